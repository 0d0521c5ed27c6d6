"""How long a refusal stands: until something has changed that could help."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from core.model.quota_tree import FlavorResource
from core.names import REASON_EXCEEDS_MAX_QUOTA, REASON_NO_MATCHING_FLAVOR, REASON_WAITING_FOR_QUOTA
from core.queueing.flavors.flavor_search import list_units
from core.queueing.flavors.outcome import NotAdmissible, Preempting
from core.queueing.flavors.quota_shortage import compute_usage
from core.queueing.flavors.spread_requests import read_spread_version
from core.queueing.ordering.partial_admission import build_smallest
from core.queueing.ordering.queue_order import queue_order
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import LOWER_OR_NEWER, NEVER, ClusterQueueFacts
from core.state.workload_state import add_usage, compute_admission_usage

Marks = tuple[int, int, int, int]  # changes of the state, of the configuration, of the quota of a cohort, of counted Workloads
_OF_QUOTA = (REASON_WAITING_FOR_QUOTA, REASON_EXCEEDS_MAX_QUOTA, REASON_NO_MATCHING_FLAVOR)


def read_marks(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts) -> Marks:
    """Returns the counts of changes of the state, of the configuration, of quota in a queue's cohort, and of the Workloads that rules of
    topology spreading of a workload count (`read_spread_version`), in this order. If all are equal later, nothing has changed that could
    help the workload in the queue. Raises KeyError where the quota tree does not have the queue."""
    quota, spread = state.quota.count_changes(queue.name), read_spread_version(state, workload, queue.name)
    return state.changes, state.config_changes, quota, spread


@dataclass(slots=True)
class StandingRefusal:
    """What was refused, and at which state of the cluster."""

    outcome: NotAdmissible
    round: int  # a workload is decided on at most once in a round of cycles
    changes: int
    config_changes: int
    quota_changes: int
    spread: int  # of the Workloads that its rules of topology spreading count
    is_of_quota: bool  # whether nodes play no part in it
    asked: tuple[Mapping[str, int], ...]  # canonical amounts, by what gets one flavor together
    by_share: bool = False  # whether preemption is decided by shares
    order: tuple[int, str, str] | None = None  # of the workload, where an earlier one may preempt more workloads of its own priority

    @classmethod
    def note(
        cls,
        state: ClusterState,
        workload: WorkloadFacts,
        queue: ClusterQueueFacts,
        outcome: NotAdmissible,
        in_round: int,
        *,
        by_share: bool = False,
        at: Marks | None = None,
    ) -> "StandingRefusal":
        """Returns a refusal at the present state, or at the marks `at` where its search was interrupted and began at these; it is recorded
        nowhere else. `in_round` is the number of the round; `by_share`: fair sharing is on."""
        # A growing workload has a part of its request: how much of that is free shows nothing.
        simple = workload.replaces is None and not outcome.breaks_rule
        of_quota = bool(outcome.attempts) and simple and all(a.reason in _OF_QUOTA for a in outcome.attempts)
        asked = compute_asked(state, build_smallest(workload), queue) if of_quota else ()
        # Preemption could free the quota: so the refusal is for lack of a place, which preempts no workload.
        if of_quota and outcome.preempting is None and queue.preemption.is_possible:
            of_quota = not can_be_given(state, workload, queue, asked, by_share=by_share)
        order = queue_order(workload) if queue.preemption.within_queue == LOWER_OR_NEWER else None
        return cls(outcome, in_round, *(at or read_marks(state, workload, queue)), of_quota, asked, by_share, order)

    def has_quota(self, state: ClusterState, queue: ClusterQueueFacts) -> bool:
        """Whether it was made for want of quota, in a cohort that has released some since, and what is free now is enough, without
        preemption."""
        if not self.is_of_quota or self.quota_changes == state.quota.count_changes(queue.name):
            return False
        return _is_enough(queue, self.asked, partial(state.quota.compute_available, queue.name))

    def is_valid(self, state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, in_round: int | None = None) -> bool:
        """Whether a refusal still stands: it is of the round `in_round`, or nothing has changed since that could help. Where only quota has
        changed, and is still not enough, the refusal is changed in place: it counts as made at the present state of quota."""
        if self.order is not None and queue_order(workload) < self.order:
            return False
        if self.round == in_round:
            return True
        now = state.quota.count_changes(queue.name)
        if not self.is_of_quota:
            # An admission that is observed for the first time adds a workload that could be preempted.
            if self.changes != state.changes or self.spread != read_spread_version(state, workload, queue.name):
                return False
            return self.quota_changes == now or not queue.preemption.is_possible
        if self.config_changes != state.config_changes:
            return False
        if self.quota_changes != now:
            promised = self.outcome.preempting
            if promised is not None:
                if not _is_coming(state, queue, promised):
                    return False
            elif can_be_given(state, workload, queue, self.asked, by_share=self.by_share):
                return False
            self.quota_changes = now
        return True


def _is_coming(state: ClusterState, queue: ClusterQueueFacts, promised: Preempting) -> bool:
    """Whether part of the reserved quota is not available yet, and workloads that hold the rest are still to leave."""
    workloads, coming = state.workloads, dict[FlavorResource, int]()
    for other in (queue.name, *state.quota.list_relatives(queue.name)):
        for name, amount in workloads.compute_leaving_usage(other).items():
            coming[name] = coming.get(name, 0) + amount
    for victim in promised.victims:
        held, facts = workloads.find_holding(victim.workload.key), workloads.facts.get(victim.workload.key)
        is_it = facts is not None and facts.uid == victim.workload.uid
        if held is not None and facts is not None and is_it and not facts.evicted:  # its eviction was requested, and is not observed yet
            add_usage(coming, held)
    wanted = compute_admission_usage(promised.found.admission)
    available = {name: state.quota.compute_available(queue.name, name) for name in wanted}
    is_short = any(amount > available[name] for name, amount in wanted.items())
    return is_short and all(amount <= available[name] + coming.get(name, 0) for name, amount in wanted.items())


def is_particular(state: ClusterState, workload: WorkloadFacts) -> bool:
    """Whether other pods on nodes decide where pods of a workload may go: they have host ports, (anti-)affinity or a spread to keep, or
    pods that are there repel them. Then the labels of its own pods matter, too."""
    repels = state.ledger.neighbours.is_repelled
    return any(pod_set.traits.is_particular or repels(pod_set.traits) for pod_set in workload.pod_sets)


def compute_asked(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts) -> tuple[Mapping[str, int], ...]:
    """Returns what a workload asks of quota, without its spare nodes: canonical amounts by resource, for each unit that gets one flavor
    (`list_units`)."""
    return tuple(compute_usage(unit, queue, state.resource_rules) for unit in list_units(workload))


def can_be_given(
    state: ClusterState,
    workload: WorkloadFacts,
    queue: ClusterQueueFacts,
    asked: Iterable[Mapping[str, int]],
    *,
    by_share: bool,
    unseen: Collection[str] = (),
) -> bool:
    """Whether the quota would be available if all workloads were gone that are leaving or could be preempted. It is an upper bound that is
    cheap to compute: False is certain, True is not.

    `asked` are canonical amounts by resource, for each unit. `by_share`: fair sharing is on. `unseen` are keys of workloads with evictions
    that are not observed yet.
    """
    return _is_enough(queue, asked, partial(_compute_most, state, workload, queue, by_share, unseen))


def _is_enough(queue: ClusterQueueFacts, asked: Iterable[Mapping[str, int]], most: Callable[[FlavorResource], int]) -> bool:
    """Whether flavors have as much as each unit asks for. They may have too little for all units together."""
    flavors = {resource: group.flavors for group in queue.groups for resource in group.resources}
    asked = list(asked)
    for resource in {resource for each in asked for resource in each}:
        wanted = [amount for each in asked if (amount := each.get(resource, 0))]
        choices = flavors.get(resource, ())
        needed = sum(wanted) if len(choices) == 1 else max(wanted, default=0)
        if needed and not any(needed <= most((flavor, resource)) for flavor in choices):
            return False
    return True


def _compute_most(
    state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, by_share: bool, unseen: Collection[str], name: FlavorResource
) -> int:
    """Returns an upper bound of the canonical amount of one resource of a flavor that the queue could provide.

    For a workload that can preempt none, quota that others release counts when it is released: that is a change of its
    own.
    """
    tree, policy, workloads = state.quota, queue.preemption, state.workloads
    most = tree.compute_available(queue.name, name)
    if not policy.is_possible:
        return most
    if by_share and policy.reclaim != NEVER:
        return tree.compute_potential(queue.name, name)
    own = victims = 0
    if policy.within_queue != NEVER:
        own = workloads.compute_usage_below(queue.name, workload.priority, name, inclusive=policy.within_queue == LOWER_OR_NEWER)
    relatives = tree.list_relatives(queue.name) if own or policy.while_borrowing != NEVER else []
    if policy.while_borrowing != NEVER:
        victims = sum(workloads.compute_usage_below(other, workload.priority, name) for other in relatives)
    if own or victims:
        most += own + victims + sum(workloads.compute_leaving_usage(other).get(name, 0) for other in (queue.name, *relatives))
        most += sum(compute_admission_usage(held).get(name, 0) for key in unseen if (held := workloads.find_holding(key)) is not None)
    if policy.reclaim != NEVER:  # the queue reclaims its own quota from the queues that borrow it
        used = tree.get_usage(queue.name).get(name, 0) - own - workloads.compute_leaving_usage(queue.name).get(name, 0)
        most = max(most, tree.get_nominal(queue.name, name) - used)
    return most
