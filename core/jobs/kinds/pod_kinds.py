"""All that is queued as pods: pods themselves and the kinds that hand their queue on to them."""

from collections.abc import Sequence

from core.jobs.contract import JobKind
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_parents import Deployment, LeaderWorkerSet, PodParent, StatefulSet
from core.jobs.kinds.registry import KINDS

# Kinds with workloads that are made from the object; those of a Deployment are made from its pods, one each.
POD_SETS: tuple[PodParent, ...] = (StatefulSet(), LeaderWorkerSet())


def list_pod_kinds(kinds: Sequence[JobKind] = KINDS) -> tuple[Pod | PodParent, ...]:
    """Returns the kinds that the webhook serves in addition to `kinds`: Pod, StatefulSet, LeaderWorkerSet and Deployment, in this order.
    Pods of `kinds` are not queued by themselves."""
    return (Pod(kinds), *POD_SETS, Deployment())
