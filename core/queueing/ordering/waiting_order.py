"""Workloads that wait, in the order in which they are considered, with their positions: for those that ask, not for the cycle.

Within a ClusterQueue the order is that of `pending.build_order`, by which the cycle decides, too. Across the queues of a cohort it is that
of the cycle's turns (`iteration_order`, `fair_order`) as if each workload were refused: of two queues the one comes first that would come
first if quota for one workload were free now. A workload that has to borrow comes after those that need not, with those behind it in its
queue. The flavors that it would get are not searched for: they are estimated as fair sharing estimates them.

A workload that may be queued again only later is not considered before: it comes after all others of its queue. So does one of a queue
that admits none now.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from core.model.configuration import FairSharing
from core.model.pods_ready_rules import PodsReadyRules
from core.queueing.flavors.quota_shortage import compute_usage
from core.queueing.ordering.fair_order import FairTurns, estimate_usage, is_borrowing
from core.queueing.ordering.iteration_order import PriorityTurns, Turn, Turns
from core.queueing.ordering.pending import EquivalenceClass, Pending
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts

IsHeldBack = Callable[[str], bool]
IsStopped = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class WaitingWorkload:
    """A workload that waits for quota, and its positions, which begin with 1. `cluster_queue` is empty where its LocalQueue does not
    exist; then `position` counts in the LocalQueue, too. `cohort_position` counts among all workloads of the ClusterQueues that share its
    root cohort."""

    workload: WorkloadFacts
    cluster_queue: str
    position: int
    local_position: int
    cohort_position: int | None = None


def list_all_waiting(
    state: ClusterState,
    *,
    rules: PodsReadyRules | None = None,
    sharing: FairSharing | None = None,
    is_held_back: IsHeldBack = lambda uid: False,
    is_stopped: IsStopped = lambda local_queue: False,
) -> list[WaitingWorkload]:
    """Returns all workloads that wait, in the order in which they are considered, with all their positions. Within a ClusterQueue it is
    that of `pending.build_order`; those with a uid that `is_held_back` come last, and after them those of a LocalQueue (by its key) that
    `is_stopped`. `rules` are those of waitForPodsReady. `sharing`: None
    where fair sharing is off. The state is as before."""
    pending = Pending(state.workloads, rules)
    try:
        pending.sync()
        while pending.is_behind:
            pending.sync()
    finally:
        pending.close()
    in_order = list(_list_turns(state, pending.list_classes(), sharing))
    in_order.sort(key=lambda workload: (is_stopped(workload.queue), is_held_back(workload.uid)))
    counted = Counter[tuple[str, str]]()
    found = []
    roots = dict[str, str]()
    for workload in in_order:
        local = state.local_queues.get(workload.queue)
        name = local.cluster_queue if local is not None else ""
        if name not in roots:
            roots[name] = (state.quota.list_ancestors(name) or [""])[-1]
        in_queue = ("ClusterQueue", name) if name else ("LocalQueue", workload.queue)
        in_cohort = ("Cohort", roots[name]) if roots[name] else in_queue
        counted.update({in_queue, ("LocalQueue", workload.queue), in_cohort})
        position, local_position = counted[in_queue], counted["LocalQueue", workload.queue]
        found.append(WaitingWorkload(workload, name, position, local_position, counted[in_cohort]))
    return found


def _list_turns(state: ClusterState, groups: Iterable[EquivalenceClass], sharing: FairSharing | None) -> Iterator[WorkloadFacts]:
    """The workloads in the order of their turns in a round in which none is admitted."""
    turns: Turns = PriorityTurns(0) if sharing is None else FairTurns(state, 0)
    turns.begin(groups)
    borrowing, known = set[str](), dict[EquivalenceClass, bool]()  # queues that were put off, and whether groups have to borrow
    while (following := turns.get_next()) is not None:
        turn, may_borrow = following
        queue = state.find_cluster_queue(turn.workload)
        if queue is not None and not may_borrow:
            if queue.name not in borrowing and _has_to_borrow(state, turn, known):
                borrowing.add(queue.name)
            if queue.name in borrowing:
                turns.put_off(turn)
                continue
        turns.add_follower(turn)
        yield turn.workload


def _has_to_borrow(state: ClusterState, turn: Turn, known: dict[EquivalenceClass, bool]) -> bool:
    queue = state.find_cluster_queue(turn.workload)
    if turn.group not in known:
        asked = compute_usage(turn.workload.pod_sets, queue, state.resource_rules) if queue is not None else {}
        known[turn.group] = queue is not None and is_borrowing(state.quota, queue, estimate_usage(state.quota, queue, asked))
    return known[turn.group]
