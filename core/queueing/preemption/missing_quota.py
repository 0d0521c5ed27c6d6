"""Of a workload that waits: which quota it lacks, which workloads hold that, and why it preempts none of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.model.quantity import show_count
from core.model.quota_tree import FlavorResource, QuotaTree
from core.queueing.ordering.partial_admission import build_smallest
from core.queueing.ordering.standing_refusals import compute_asked
from core.queueing.preemption.preemption_policy import may_preempt_within, may_reclaim
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import LOWER_OR_NEWER, NEVER, ClusterQueueFacts
from core.state.workload_state import compute_admission_usage


@dataclass(frozen=True, slots=True)
class QuotaHolder:
    """A workload that holds a canonical amount of quota, by which ClusterQueue."""

    workload: WorkloadFacts
    cluster_queue: str
    amount: int


@dataclass(frozen=True, slots=True)
class MissingQuota:
    """A flavor with too little quota left of a resource, in canonical amounts. `holders`: the workloads of the queue that hold it, and
    those of queues that use it beyond their own; the largest first.

    `owners`: the other ClusterQueues that use quota of their own which they would lend, and how much more the queue could use without that;
    the largest first. None of their workloads may be preempted for it. `of_owners`: how much more the queue could use without that of all
    of them together.
    """

    flavor: str
    resource: str
    wanted: int
    available: int
    holders: tuple[QuotaHolder, ...]
    owners: tuple[tuple[str, int], ...] = ()
    of_owners: int = 0


def list_missing_quota(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts) -> list[MissingQuota]:
    """Returns the quota that a workload lacks now in its queue, by the flavors in the order in which they are tried. Empty where some
    flavor of each resource group has enough, so that something else is missing. It counts the fewest pods that the workload accepts."""
    asked, missing = compute_asked(state, build_smallest(workload), queue), list[MissingQuota]()
    for group in queue.groups:
        totals = {resource: [each[resource] for each in asked if each.get(resource)] for resource in group.resources}
        # Units may get different flavors, where there are several.
        wanted = {r: sum(amounts) if len(group.flavors) == 1 else max(amounts) for r, amounts in totals.items() if amounts}
        names = [(flavor, resource) for flavor in group.flavors for resource in wanted]
        left = {name: state.quota.compute_available(queue.name, name) for name in names}
        short = [name for name in names if wanted[name[1]] > left[name]]
        if {flavor for flavor, _ in short} == set(group.flavors):
            missing += [
                MissingQuota(
                    *name, wanted[name[1]], left[name], _list_holders_of(state, queue, name), *_list_owners(state, queue.name, name)
                )
                for name in short
            ]
    return missing


def _list_holders_of(state: ClusterState, queue: ClusterQueueFacts, name: FlavorResource) -> tuple[QuotaHolder, ...]:
    tree, found = state.quota, list[QuotaHolder]()
    for other in (queue.name, *_list_in_the_way(state, queue.name, tree.list_relatives(queue.name), [name])):
        for workload in state.workloads.list_holders(other):
            admission = state.workloads.find_holding(workload.key)
            amount = compute_admission_usage(admission).get(name, 0) if admission is not None else 0
            found += [QuotaHolder(workload, other, amount)] if amount else []
    return tuple(sorted(found, key=lambda holder: (-holder.amount, holder.workload.key)))


def _list_in_the_way(state: ClusterState, queue: str, others: Iterable[str], names: Iterable[FlavorResource]) -> list[str]:
    """Of other ClusterQueues those that use more than their own, and without which the queue could use more: its limits may leave it none
    of what others borrow."""
    names = list(names)
    beyond = {other: [name for name in names if state.quota.is_using_others(queue, other, name)] for other in others}
    if not any(beyond.values()):
        return []
    tree = state.quota.copy_around(queue)
    return [other for other, used in beyond.items() if any(_compute_gain(tree, queue, other, name) > 0 for name in used)]


def _compute_gain(tree: QuotaTree, queue: str, other: str, name: FlavorResource) -> int:
    """How much more a queue could use if another used nothing. The tree is as before."""
    used, before = tree.get_usage(other).get(name, 0), tree.compute_available(queue, name)
    tree.add(other, {name: used}, -1)
    gained = tree.compute_available(queue, name) - before
    tree.add(other, {name: used})
    return gained


def _list_owners(state: ClusterState, queue: str, name: FlavorResource) -> tuple[tuple[tuple[str, int], ...], int]:
    """See `MissingQuota`: `owners` and `of_owners`."""
    tree = state.quota.copy_around(queue)
    owners = [o for o in tree.list_relatives(queue) if tree.get_usage(o).get(name) and not tree.is_using_others(queue, o, name)]
    found = [(other, gained) for other in owners if (gained := _compute_gain(tree, queue, other, name)) > 0]
    before = tree.compute_available(queue, name)
    for other, _ in found:
        tree.add(other, {name: tree.get_usage(other)[name]}, -1)
    return tuple(sorted(found, key=lambda each: (-each[1], each[0]))), tree.compute_available(queue, name) - before


def explain_no_preemption(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, *, by_share: bool = False) -> list[str]:
    """Returns sentences on why a workload preempts none, for one that the judge has refused without preemption: the setting that prevents
    it, or that those which it may preempt would not be enough. Empty where no workload holds quota that it could use. `by_share`: fair
    sharing is on."""
    stop = state.pause.evictions
    paused = [stop.sentence] if stop is not None else []
    return [*paused, *_explain_own(state, workload, queue), *_explain_others(state, workload, queue, by_share=by_share)]


def _explain_own(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Iterator[str]:
    policy, holders = queue.preemption.within_queue, _list_running(state, queue.name)
    setting = f"withinClusterQueue of ClusterQueue {queue.name} is {policy}"
    if not holders:
        return
    lowest = min(holders, key=lambda other: (other.priority, other.key))
    may_go = sum(may_preempt_within(policy, workload, other) for other in holders)
    if may_go:
        yield f"{setting}, so that it may preempt {show_count(may_go, 'workload')} of its queue, which would not be enough"
    elif lowest.priority < workload.priority:
        yield f"priority {workload.priority} waits behind {lowest.priority} ({lowest.key}) because {setting}"
    else:
        equal = " and none of the same priority was queued later" if policy == LOWER_OR_NEWER else ""
        yield (
            f"no workload that holds quota of ClusterQueue {queue.name} has a priority below {workload.priority}{equal}:"
            f" the lowest is {lowest.priority} ({lowest.key}); {setting}"
        )


def _explain_others(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, *, by_share: bool) -> Iterator[str]:
    cohort, policy = state.quota.find_cohort(queue.name), queue.preemption
    if cohort is None:
        return
    asked = compute_asked(state, workload, queue)
    names = [(f, r) for group in queue.groups for f in group.flavors for r in group.resources if any(each.get(r) for each in asked)]
    beyond = _list_in_the_way(state, queue.name, state.quota.list_relatives(queue.name), names)
    holders = [other for name in beyond for other in _list_running(state, name)]
    setting = f"reclaimWithinCohort of ClusterQueue {queue.name} is {policy.reclaim}"
    if not holders:
        yield f"no other ClusterQueue of cohort {cohort} borrows quota that this one could use, so that there is nothing to reclaim"
        return
    borrowers = f"{show_count(len(beyond), 'other ClusterQueue')} ({beyond[0]}{' and others' if len(beyond) > 1 else ''})"
    may_go = sum(may_reclaim(policy.reclaim, workload, other) for other in holders)
    if policy.reclaim == NEVER:
        yield f"{borrowers} of cohort {cohort} holds borrowed quota, and {setting}"
    elif not may_go:
        yield f"no workload of {borrowers} with borrowed quota has a priority below {workload.priority}; {setting}"
    elif by_share:
        yield f"{setting}, but to preempt would not be enough, or fair sharing does not permit it"
    elif any(_is_beyond_nominal(state, queue, name, asked) for name in names) and policy.while_borrowing == NEVER:
        yield f"it would have to borrow, and borrowWithinCohort of ClusterQueue {queue.name} is Never: it may only reclaim its own quota"
    else:
        yield f"{setting}, so that it may preempt {show_count(may_go, 'workload')} with borrowed quota, which would not be enough"


def _is_beyond_nominal(state: ClusterState, queue: ClusterQueueFacts, name: FlavorResource, asked: tuple[Mapping[str, int], ...]) -> bool:
    """Whether a workload would use more than its queue's own quota of one resource of a flavor."""
    wanted = sum(each.get(name[1], 0) for each in asked)
    return state.quota.get_usage(queue.name).get(name, 0) + wanted > state.quota.get_nominal(queue.name, name)


def list_never_preempted(state: ClusterState, queue: ClusterQueueFacts, borrowers: Iterable[str]) -> list[tuple[int, str]]:
    """Returns the settings of a ClusterQueue that are Never, as text, each with the lowest priority of the workloads that it protects from
    all workloads of the queue. One without such workloads is left out. `borrowers`: other ClusterQueues that use more than their own."""
    beyond = _list_in_the_way(state, queue.name, borrowers, queue.quota) if queue.preemption.reclaim == NEVER else []
    policies = (
        ("withinClusterQueue", queue.preemption.within_queue, [queue.name]),
        ("reclaimWithinCohort", queue.preemption.reclaim, beyond),
    )
    never = [
        (name, [w.priority for each in queues for w in _list_running(state, each)]) for name, policy, queues in policies if policy == NEVER
    ]
    return [(min(priorities), f"{name} is {NEVER}") for name, priorities in never if priorities]


def _list_running(state: ClusterState, queue: str) -> list[WorkloadFacts]:
    """The workloads that hold quota of a queue and could be evicted."""
    holders = state.workloads.list_holders(queue)
    return [w for w in holders if w.admission is not None and not (w.finished or w.deleting or w.evicted)]
