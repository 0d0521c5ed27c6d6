"""Where a pod is, as labels and annotations that its containers can read through the downward API.

Stamped by the write that ungates the pod, so it costs none of its own; what a user set under these names is overwritten.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.names import DOMAIN_INDEX_ANNOTATION, DOMAIN_SIZE_ANNOTATION, LEVEL_PREFIX, RANK_ANNOTATION

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Labels and annotations of one pod; None removes one."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)


def compute_coordinates(levels: Sequence[str], domain: int, size: int, rank: int | None, present: Sequence[str] = ()) -> Coordinates:
    """Returns what to stamp on a pod: values of all `levels` (coarse to fine), index `domain` and `size` of its domain in the assignment,
    and rank. A value that can be no label becomes an annotation. `rank` is None where it is not known: then that is removed. `size` is the
    number of pods that the assignment gives the domain. `present`: names of coordinates that the pod has already; those that are not set
    are removed."""
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    for i, value in enumerate(levels):
        (labels if _LABEL_VALUE.fullmatch(value) else annotations)[f"{LEVEL_PREFIX}{i}"] = value
    annotations |= {
        RANK_ANNOTATION: None if rank is None else str(rank),
        DOMAIN_INDEX_ANNOTATION: str(domain),
        DOMAIN_SIZE_ANNOTATION: str(size),
    }
    for name in present:
        labels.setdefault(name, None)
        annotations.setdefault(name, None)
    return Coordinates(labels, annotations)
