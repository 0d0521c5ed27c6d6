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

    def default(self, job: Json, defaults: Defaults) -> dict[str, Any]:
        """Returns a copy of the object as it should be stored, changed only where it must be; see `JobKind.default`."""
        ...

    def validate_create(self, job: Json) -> Rules:
        """Returns all errors and warnings that a new object shows by itself."""
        ...

    def validate_update(self, old: Json, new: Json) -> Rules:
        """Returns all errors and warnings of a change from `old` to `new`."""
        ...


# Kinds with workloads that are made from the object; those of a Deployment are made from its pods, one each.
POD_SETS: tuple[PodParent, ...] = (StatefulSet(), LeaderWorkerSet())


def list_pod_kinds(kinds: Sequence[JobKind] = KINDS) -> tuple[Pod | PodParent, ...]:
    """Returns the kinds that the webhook serves in addition to `kinds`: Pod, StatefulSet, LeaderWorkerSet and Deployment, in this order.
    Pods of `kinds` are not queued by themselves."""
    return (Pod(kinds), *POD_SETS, Deployment())
