"""What there is to see of each ClusterQueue: the workloads that wait, in order, those that hold quota, and the quota itself."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from core.model.configuration import FairSharing
from core.model.pods_ready_rules import PodsReadyRules
from core.model.quota_tree import Amounts, FlavorResource, Quota
from core.queueing.cycle.queue_resolution import find_inactive_reason, make_stop_check
from core.queueing.ordering.waiting_order import IsHeldBack, WaitingWorkload, list_all_waiting
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts
from core.state.workload_state import compute_admission_usage


@dataclass(frozen=True, slots=True)
class HoldingWorkload:
    """A workload that holds quota, and the canonical amounts that it holds, by flavor and resource."""

    workload: WorkloadFacts
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The quota of a ClusterQueue in one resource of a flavor, in canonical amounts.

    Of what is `used`, `borrowed` is beyond its own quota. `lent` of its own is used by others of its cohort. `available` is what it may use
    more now, borrowed included; it is negative where more is in use than there is. `by_local_queue` is what workloads hold, by the key of
    their LocalQueue, the most first. `borrowers` are other ClusterQueues with a share in the same cohorts that use more than their own, and
    how much more.
    """

    flavor: str
    resource: str
    quota: Quota
    used: int
    borrowed: int
    lent: int
    available: int
    by_local_queue: Mapping[str, int]
    borrowers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueueView:
    """A ClusterQueue with its workloads. `facts` is None where it does not exist; its name is empty for workloads with a LocalQueue that
    does not exist. `problem`: reason and message why it admits none, if so. `inactive` workloads hold nothing and are not considered; they
    are sorted by key. Workloads that hold quota are in the order in which they got it."""

    name: str
    facts: ClusterQueueFacts | None
    problem: tuple[str, str] | None
    waiting: tuple[WaitingWorkload, ...]
    inactive: tuple[WorkloadFacts, ...]
    holding: tuple[HoldingWorkload, ...]
    quota: tuple[QuotaUse, ...]


def build_queue_views(
    state: ClusterState,
    *,
    rules: PodsReadyRules | None = None,
    sharing: FairSharing | None = None,
    is_held_back: IsHeldBack = lambda uid: False,
    chosen: Collection[str] | None = None,
) -> list[QueueView]:
    """Returns a view of each ClusterQueue, sorted by name: those that exist, and those that a LocalQueue or a waiting workload names. With
    `chosen` only those with one of these names. The other parameters are those of `list_all_waiting`. The state is as before."""
    waiting = defaultdict[str, list[WaitingWorkload]](list)
    for each in list_all_waiting(state, rules=rules, sharing=sharing, is_held_back=is_held_back, is_stopped=make_stop_check(state)):
        waiting[each.cluster_queue].append(each)
    inactive = _list_inactive(state)
    names = {*state.cluster_queues, *waiting, *inactive, *(local.cluster_queue for local in state.local_queues.values())}
    shown = sorted(names if chosen is None else names.intersection(chosen))
    return [_build_view(state, name, tuple(waiting[name]), tuple(inactive[name])) for name in shown]


def _list_inactive(state: ClusterState) -> Mapping[str, list[WorkloadFacts]]:
    """Workloads that hold nothing and are not considered: deactivated, or on hold."""
    found = defaultdict[str, list[WorkloadFacts]](list)
    for key, facts in state.workloads.facts.items():
        if (facts.active and not facts.on_hold) or facts.finished or facts.deleting or state.workloads.find_holding(key) is not None:
            continue
        local = state.local_queues.get(facts.queue)
        found[local.cluster_queue if local is not None else ""].append(facts)
    for workloads in found.values():
        workloads.sort(key=lambda facts: facts.key)
    return found


def _build_view(state: ClusterState, name: str, waiting: tuple[WaitingWorkload, ...], inactive: tuple[WorkloadFacts, ...]) -> QueueView:
    queue = state.cluster_queues.get(name)
    holding = list[HoldingWorkload]()
    for workload in sorted(state.workloads.list_holders(name), key=lambda workload: (workload.reserved_at or "~", workload.key)):
        admission = state.workloads.find_holding(workload.key)
        if admission is not None:
            holding.append(HoldingWorkload(workload, compute_admission_usage(admission)))
    if queue is None:
        return QueueView(name, None, None, waiting, inactive, tuple(holding), ())
    quota = _list_quota(state, queue, holding)
    return QueueView(name, queue, find_inactive_reason(state, queue), waiting, inactive, tuple(holding), quota)


def _list_quota(state: ClusterState, queue: ClusterQueueFacts, holding: list[HoldingWorkload]) -> tuple[QuotaUse, ...]:
    held = defaultdict[FlavorResource, dict[str, int]](dict)
    for each in holding:
        for name, amount in each.amounts.items():
            of_name = held[name]
            of_name[each.workload.queue] = of_name.get(each.workload.queue, 0) + amount
    return tuple(
        _build_quota_use(state, queue, (flavor, resource), held[flavor, resource])
        for group in queue.groups
        for flavor in group.flavors
        for resource in group.resources
    )


def _build_quota_use(state: ClusterState, queue: ClusterQueueFacts, name: FlavorResource, held: Mapping[str, int]) -> QuotaUse:
    tree = state.quota
    quota, used = queue.quota.get(name, Quota(0)), tree.get_usage(queue.name).get(name, 0)
    available = tree.compute_available(queue.name, name)
    most_first = {key: amount for key, amount in sorted(held.items(), key=lambda item: (-item[1], item[0])) if amount}
    beyond = {other: tree.compute_borrowed(other, name) for other in tree.list_relatives(queue.name)}
    return QuotaUse(
        *name,
        quota,
        used,
        tree.compute_borrowed(queue.name, name),
        max(0, quota.nominal - used) - min(max(0, quota.nominal - used), max(0, available)),
        available,
        most_first,
        {other: amount for other, amount in sorted(beyond.items(), key=lambda item: (-item[1], item[0])) if amount},
    )
