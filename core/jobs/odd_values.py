"""Values that Kueue accepts and that have no effect: warnings, since objects with them are created there, too."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.names import (
    ELASTIC_JOB,
    POD_GROUP_FAST_ADMISSION,
    POD_GROUP_INDEX_LABEL,
    POD_GROUP_INDEX_LABEL_NAME,
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    RETRIABLE_IN_GROUP,
)

_LABEL = re.compile(r"([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_TRUE_OR_FALSE = ("true", "false")


def warn_of_values(path: str, annotations: Mapping[str, Any], labels: Mapping[str, Any]) -> Iterator[str]:
    """Yields a warning with its field for each value that has no effect, of annotations at a path and of labels beside them. They are those
    of a pod template or a pod: an empty group of pod sets, switches that are neither true nor false, and indexes and names of index labels
    that cannot be read."""
    if annotations.get(PODSET_GROUP_NAME) == "" and (REQUIRED_TOPOLOGY in annotations or PREFERRED_TOPOLOGY in annotations):
        yield f"{path}[{PODSET_GROUP_NAME}]: is empty and has no effect; the name of a group is expected"
    for name, otherwise in (
        (RETRIABLE_IN_GROUP, "another pod replaces one that fails"),
        (POD_GROUP_FAST_ADMISSION, "the group waits for all of its pods"),
        (ELASTIC_JOB, "nothing is elastic"),
    ):
        value = annotations.get(name)
        if value is not None and value not in _TRUE_OR_FALSE:
            yield f'{path}[{name}]: {_format_value(value)} has no effect, so that {otherwise}; "true" or "false" is expected'
    label = annotations.get(POD_GROUP_INDEX_LABEL_NAME)
    if label is not None and not _LABEL.fullmatch(str(label)):
        yield f"{path}[{POD_GROUP_INDEX_LABEL_NAME}]: {_format_value(label)} has no effect; the name of a label of the pod is expected"
    index = labels.get(POD_GROUP_INDEX_LABEL)
    if index is not None and not re.fullmatch(r"[0-9]{1,9}", str(index)):
        of_labels = f"{path.removesuffix('annotations')}labels"
        shown = _format_value(index)
        yield f"{of_labels}[{POD_GROUP_INDEX_LABEL}]: {shown} has no effect, and the pod has no rank; a whole number is expected"


def _format_value(value: object) -> str:
    return repr(str(value)[:60])
