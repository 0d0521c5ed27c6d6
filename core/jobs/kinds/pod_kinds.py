"""All that is queued as pods: pods themselves and the kinds that hand their queue on to them."""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from core.jobs.contract import Defaults, JobKind, Json, Rules
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_parents import Deployment, LeaderWorkerSet, PodParent, StatefulSet
from core.jobs.kinds.registry import KINDS
from core.jobs.schema_check import Fields


class Reviewed(Protocol):
    """What the webhook must know of a kind; `defaults_updates`: its defaults are renewed with every change."""

    kind: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    plural: ClassVar[str]
    spec_shape: ClassVar[Fields]
    defaults_updates: ClassVar[bool]

    def default(self, job: Json, defaults: Defaults) -> dict[str, Any]: ...
    def validate_create(self, job: Json) -> Rules: ...
    def validate_update(self, old: Json, new: Json) -> Rules: ...


# Those whose workloads are made of the object; a Deployment's are made of its pods, each alone.
POD_SETS: tuple[PodParent, ...] = (StatefulSet(), LeaderWorkerSet())


def pod_kinds(kinds: Sequence[JobKind] = KINDS) -> tuple[Pod | PodParent, ...]:
    """Kinds that the webhook knows beside `kinds`, whose pods are left alone."""
    return (Pod(kinds), *POD_SETS, Deployment())
