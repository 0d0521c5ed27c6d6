"""Which workloads may be preempted for one that does not fit, by the ClusterQueue's `spec.preemption` and by fair
sharing.

- In its own queue a workload preempts as `withinClusterQueue` states.
- In other queues of its cohort it preempts workloads only while their queue uses borrowed quota, where both queues can
  reach that quota, and within the quota that the victim holds. So no queue is brought below its own quota.
  `reclaimWithinCohort` applies if the workload then need not borrow, `borrowWithinCohort` if it must. A workload that
  borrows preempts none that would then fit into the quota of its own queue: that workload could reclaim it at once, and
  the two would evict each other for ever.
- With fair sharing, shares decide what a workload may take by borrowing, from the workloads that `reclaimWithinCohort`
  selects (`core.queueing.preemption.fair_preemption`). `borrowWithinCohort` has no effect then.

Which of the workloads that may be preempted are tried is decided in `core.queueing.preemption.victim_search`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from heapq import nsmallest

from core.model.configuration import FairSharing
from core.model.pieces import Pieces
from core.model.quota_tree import Amounts, FlavorResource
from core.model.step_budget import StepBudget
from core.names import REASON_FAIR_SHARING, REASON_IN_QUEUE, REASON_RECLAIMED, REASON_RECLAIMED_BY_BORROWER
from core.queueing.flavors.outcome import Victim
from core.queueing.flavors.quota_shortage import compute_usage
from core.queueing.flavors.what_if_view import Readings, World
from core.queueing.ordering.queue_order import queue_order
from core.queueing.preemption.fair_preemption import Excess, OneByOne, ShareRule
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ANY, LOWER_OR_NEWER, LOWER_PRIORITY, NEVER, ClusterQueueFacts

MOST_CANDIDATES = 6_000  # that are tried; of more, those of the lowest priority, the last admitted first
_LISTED_AT_ONCE = 1_000
_CANDIDATE_STEPS = 15  # what it costs to find out what one holds
_TRIED_AT_ONCE = 500
SHARE_STEPS = 60  # what it costs to compare shares
Rank = tuple[Excess, int]  # with fair sharing how far its queue is beyond its own; priority


def may_preempt_within(policy: str, workload: WorkloadFacts, other: WorkloadFacts) -> bool:
    """Whether `withinClusterQueue` (`policy`) lets a workload preempt another one of its own ClusterQueue."""
    if policy not in (LOWER_PRIORITY, LOWER_OR_NEWER):
        return False
    equal = policy == LOWER_OR_NEWER and queue_order(other) > queue_order(workload) and other.priority == workload.priority
    return other.priority < workload.priority or equal


def may_reclaim(policy: str, workload: WorkloadFacts, other: WorkloadFacts) -> bool:
    """Whether `reclaimWithinCohort` (`policy`) names another one, of a ClusterQueue that uses the quota of others, to a workload."""
    return policy == ANY or (policy != NEVER and other.priority < workload.priority)


def list_unseen(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, spared: Collection[str] = ()) -> set[str]:
    """Returns the keys of workloads that one may preempt as soon as their admission is observed: it is decided, and perhaps not written.

    They are of its queue, or of others of its cohort that use the quota of others. Not among them are those of the parties `spared`, and
    those that it may preempt only if it borrows, or by its share. Raises KeyError where the quota tree does not have the queue.
    """
    policy, tree, found = queue.preemption, state.quota, set[str]()
    relatives = set(tree.list_relatives(queue.name)) if policy.reclaim != NEVER else set()
    for other, holder in state.workloads.list_unseen():
        is_own = holder == queue.name
        if other.party in spared and not (is_own and other.priority < workload.priority):
            continue
        if is_own:
            may_go = may_preempt_within(policy.within_queue, workload, other)
        else:
            may_go = holder in relatives and may_reclaim(policy.reclaim, workload, other)
            may_go = may_go and any(tree.is_using_others(queue.name, holder, name) for name in tree.get_usage(holder))
        found |= {other.key} if may_go else set()
    return found


@dataclass(frozen=True)
class Candidate:
    """A workload that may have to go, and what that would give and cost."""

    victim: Victim
    queue: str
    amounts: Amounts  # all that it holds of quota
    holds: Amounts  # of the quota in question
    lost: int  # pods x seconds, as of a second after the youngest candidate began
    excess: Excess = ()

    @property
    def is_own(self) -> bool:
        """Whether it is in the preemptor's own queue, by the reason of its preemption."""
        return self.victim.reason == REASON_IN_QUEUE

    @property
    def key(self) -> str:
        """Returns the namespace/name of its workload."""
        return self.victim.workload.key

    @property
    def priority(self) -> int:
        """Its priority: higher is spared longer."""
        return self.victim.workload.priority

    @property
    def rank(self) -> Rank:
        """Sort key: with fair sharing queues further beyond their own come first, then lower priority. A candidate with a lower rank is
        tried first."""
        return self.excess, self.priority

    @property
    def order(self) -> tuple[Rank, int, bool, str]:
        """Sort key: lower rank, then less work lost, then other queues than the preemptor's, then key."""
        return self.rank, self.lost, self.is_own, self.key


@dataclass(slots=True)
class Memory:
    """What a search has read, for the search that confirms its answer.

    `candidates` are by key and reason, for a question of the quota `names`; `now` is the time (s) up to which lost work was counted.
    `spared` are keys of workloads that are no candidates only because evictions would go in a circle.
    """

    readings: Readings = field(default_factory=Readings)
    candidates: dict[tuple[str, str], Candidate] = field(default_factory=dict)
    names: list[FlavorResource] = field(default_factory=list)
    now: int = 0
    spared: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Right:
    """Candidates, whether the workload may borrow if they are preempted, and the rule of shares, if shares decide."""

    candidates: list[Candidate]
    may_borrow: bool
    rule: ShareRule | None = None


class Rights:
    """The rights of one workload to preempt others, in a view without the workloads that are `leaving`."""

    def __init__(
        self,
        state: ClusterState,
        workload: WorkloadFacts,
        queue: ClusterQueueFacts,
        world: World,
        leaving: Collection[str],
        sharing: FairSharing | None,
        budget: StepBudget,
        memory: Memory,
        among: Collection[str] | None = None,
        spared: Collection[str] = (),
    ) -> None:
        self._among = among  # keys of the workloads that may be preempted; None: of all
        self._spared = spared  # parties of workloads that go only if there is no quota of the queue's own without them
        self._state, self._workload, self._queue, self._world, self._sharing = state, workload, queue, world, sharing
        self._budget = budget
        self._leaving = frozenset(leaving)
        self._claimed = state.copy_claimed()
        self._beyond: dict[str, Amounts] = {}
        self._excess: dict[str, Excess] = {}
        self._since: dict[str, int] = {}
        self._memory = memory
        if memory.names != self.names:
            memory.names, memory.candidates = self.names, {}

    # --- candidates ---------------------------------------------------------------------------------

    def list_stages(self) -> Iterator[list[Right] | None]:
        """Yields rights among which the cheapest victims count, each with candidates by `Candidate.order`; the caller asks for a later
        stage only where no earlier one makes room. None: a piece of the work has been done, and it may be interrupted. With `among`
        candidates are in no such order. Adds to `Memory.spared` those left out for cycles of evictions."""
        policy, priority = self._queue.preemption, self._workload.priority
        own = [w for w in self._list_holders(self._queue.name) if may_preempt_within(policy.within_queue, self._workload, w)]
        owned = [(w, REASON_IN_QUEUE) for w in own]
        others = [
            w
            for name in self._world.quota.list_relatives(self._queue.name)
            if self._is_using_others(name)
            for w in self._list_holders(name)
        ]
        named = [w for w in others if may_reclaim(policy.reclaim, self._workload, w)]
        reclaimed = self._leave_out_spared(owned + [(w, REASON_RECLAIMED) for w in named], are_for_own=True)
        first = [Right((yield from self._list_candidates(reclaimed)), may_borrow=False)]
        if self._among is not None or self._world.quota.find_cohort(self._queue.name) is None:
            yield first  # of few that are to be confirmed any right will do
            first = []
        if self._world.quota.find_cohort(self._queue.name) is None:
            return
        if self._sharing is not None:
            fair = yield from self._list_candidates(self._leave_out_spared(owned + [(w, REASON_FAIR_SHARING) for w in named]))
            for strategy in self._sharing.strategies:
                yield [*first, Right(fair, True, ShareRule(self._queue.name, strategy))]
                first = []
        else:
            if policy.while_borrowing != NEVER:
                most = priority - 1 if policy.highest_priority is None else min(priority - 1, policy.highest_priority)
                owned += [(w, REASON_RECLAIMED_BY_BORROWER) for w in others if w.priority <= most]
            owned = self._leave_out_spared(owned)
            yield first + ([Right((yield from self._list_candidates(owned)), may_borrow=True)] if owned else [])

    def _leave_out_spared(self, rights: list[tuple[WorkloadFacts, str]], *, are_for_own: bool = False) -> list[tuple[WorkloadFacts, str]]:
        """Leaves out those with which evictions would go in a circle; none where `are_for_own` quota needs them."""
        left = [(w, reason) for w, reason in rights if self._may_go(w, reason)] if self._spared else rights
        if len(left) == len(rights) or (are_for_own and not self._has_quota_without(left)):
            return rights
        self._memory.spared |= {w.key for w, _ in rights} - {w.key for w, _ in left}
        return left

    def _may_go(self, other: WorkloadFacts, reason: str) -> bool:
        """Whether a workload is not spared. Preemption by priority within one queue makes no circle alone, since priorities only rise: each
        circle has another eviction, too, and ends at that."""
        is_lower = reason == REASON_IN_QUEUE and other.priority < self._workload.priority
        return is_lower or other.party not in self._spared

    def _has_quota_without(self, rights: list[tuple[WorkloadFacts, str]]) -> bool:
        """Whether the workload would have quota of its queue's own with all of these gone: then others would go for their nodes alone."""
        self._world.remove_workloads(self._leaving | {w.key for w, _ in rights})
        tree, queue = self._world.quota, self._queue.name

        def is_left(resource: str, amount: int) -> bool:
            names = (name for name in self.names if name[1] == resource)
            return any(
                amount <= min(tree.compute_available(queue, name), tree.get_nominal(queue, name) - tree.get_usage(queue).get(name, 0))
                for name in names
            )

        return all(is_left(resource, amount) for resource, amount in self.wanted.items() if amount)

    def _list_holders(self, queue: str) -> list[WorkloadFacts]:
        """Returns the workloads that hold quota as far as it is observed: an admission that is still being written is
        not undone."""
        holders = self._state.workloads.list_holders(queue)
        if self._among is not None:
            holders = [w for w in holders if w.key in self._among]
        return [w for w in holders if w.key not in self._leaving and w.admission is not None and not w.finished and not w.deleting]

    @cached_property
    def wanted(self) -> dict[str, int]:
        """Canonical amounts, by resource, that all pods of the workload would take from quota, without its spare nodes."""
        return compute_usage(self._workload.pod_sets, self._queue, self._state.resource_rules)

    @cached_property
    def names(self) -> list[FlavorResource]:
        """Flavors and resources of the quota that the workload could use, in the order in which its queue lists them."""
        asked = self.wanted
        return [(flavor, r) for group in self._queue.groups for flavor in group.flavors for r in group.resources if r in asked]

    def _is_using_others(self, queue: str) -> bool:
        return any(self._world.quota.is_using_others(self._queue.name, queue, name) for name in self.names)

    def _list_candidates(self, rights: Sequence[tuple[WorkloadFacts, str]]) -> Pieces[list[Candidate]]:
        since, memory = self._since, self._memory
        if self._among is None:
            for number, (w, _) in enumerate(rights):
                if w.key not in since:
                    since[w.key] = _count_seconds(w.reserved_at)
                if number % (10 * _LISTED_AT_ONCE) == 0:
                    yield
            memory.now = max((since[w.key] for w, _ in rights), default=0)
        now = memory.now

        def count_loss(right: tuple[WorkloadFacts, str]) -> tuple[Rank, int]:
            w, _ = right
            queue = w.admission.cluster_queue if w.admission is not None else ""
            return (self._compute_excess(queue), w.priority), now - since[w.key]

        most = min(MOST_CANDIDATES, max(_LISTED_AT_ONCE, self._budget.most // _CANDIDATE_STEPS))
        if self._among is None and len(rights) > most:
            rights = nsmallest(most, rights, key=count_loss)
            self._budget.stop()
        self._budget.charge(_CANDIDATE_STEPS * len(rights))
        candidates = []
        for number, (w, reason) in enumerate(rights):
            if number % _LISTED_AT_ONCE == 0:
                yield
            queue, amounts = self._world.find_usage(w.key)
            if not queue:
                continue  # it has finished meanwhile
            self._compute_unused(queue)  # while nothing has to be counted back
            known, excess = self._find_known(w, reason), self._compute_excess(queue)
            if known is None or known.amounts is not amounts or known.excess != excess:
                holds = {name: amounts[name] for name in self.names if name in amounts}
                pods = sum(given.count for given in w.admission.pod_sets) if w.admission is not None else 0
                if w.key not in since:
                    since[w.key] = _count_seconds(w.reserved_at)
                lost = pods * (max(0, now - since[w.key]) + 1)
                known = memory.candidates[w.key, reason] = Candidate(Victim(w, reason), queue, amounts, holds, lost, excess)
            candidates.append(known)
        return sorted(candidates, key=lambda candidate: candidate.order) if self._among is None else candidates

    def _find_known(self, workload: WorkloadFacts, reason: str) -> Candidate | None:
        """Returns the candidate that the confirmed search read for a workload that has not changed since."""
        known = self._memory.candidates.get((workload.key, reason)) if self._among is not None else None
        return known if known is not None and known.victim.workload is workload else None

    def _compute_excess(self, queue: str) -> Excess:
        """Returns how far the queue, and each cohort above it, use more than their own before any workload is
        preempted; empty without fair sharing."""
        if self._sharing is None:
            return ()
        if queue not in self._excess:
            self._excess[queue] = tuple((not share.is_infinite, -share.value) for share in self._world.quota.compute_shares(queue))
        return self._excess[queue]

    # --- sets of candidates -----------------------------------------------------------------------------

    def is_legal(self, chosen: Sequence[Candidate]) -> bool:
        """Whether the candidates can go in some order in which each queue still uses more than its own whenever one of its workloads goes.
        Those that go for a workload which borrows must be able to go in any order. Candidates of the preemptor's own queue are not looked
        at."""
        by_queue: dict[str, list[Candidate]] = {}
        for candidate in chosen:
            if not candidate.is_own:
                by_queue.setdefault(candidate.queue, []).append(candidate)
        return all(self._may_all_go(queue, members) for queue, members in by_queue.items())

    def _may_all_go(self, queue: str, members: Sequence[Candidate]) -> bool:
        """Tries the order backwards, from the last one to be preempted: all that could be the last are restored, then
        all that could be before these, and so on.

        One round restores all that hold quota of which the queue then uses more than its own, so that there are at most
        as many rounds as there is quota in question.
        """
        unused = dict(self._compute_unused(queue))
        for member in members:
            for name, amount in member.holds.items():
                unused[name] -= amount
        if _is_for_borrower(members[0]):
            return all(_is_beyond(unused, member) for member in members)
        gone, before = list(members), -1
        while gone and len(gone) != before:
            before, still_gone = len(gone), []
            for member in gone:
                if not _is_beyond(unused, member):
                    still_gone.append(member)
                    continue
                for name, amount in member.holds.items():
                    unused[name] += amount
            gone = still_gone
        return not gone

    def _compute_unused(self, queue: str) -> Amounts:
        """Returns how much a queue uses beyond its own with none gone but those that are leaving anyway; negative where it uses less.

        Room that is promised to workloads of it does not count: it is not borrowed yet, and workloads that hold what is the queue's own
        would go for it.
        """
        if queue not in self._beyond:
            tree, back, claimed = self._world.quota, self._world.gone - self._leaving, self._claimed.get(queue, {})
            usage = {name: tree.get_usage(queue).get(name, 0) - claimed.get(name, 0) for name in self.names}
            for key in back:
                of, amounts = self._world.find_usage(key)
                if of == queue:
                    for name in usage:
                        usage[name] += amounts.get(name, 0)
            self._beyond[queue] = {name: amount - tree.get_nominal(queue, name) for name, amount in usage.items()}
        return self._beyond[queue]

    def order_victims(
        self, order: Sequence[Candidate], rule: ShareRule | None = None, wanted: Amounts | None = None, most: int | None = None
    ) -> Pieces[list[Candidate]]:
        """Yields None where it may be interrupted. Returns, in the order given, those that may be preempted one after the other, the first
        `most` of them (None: all). With a `rule` shares decide, for a workload that takes `wanted`.

        Those beyond the budget are left out. With a `rule`, the world has only the leaving workloads removed afterwards.
        """
        if rule is None:
            self._budget.charge(len(order))
            return (yield from self._order_one_by_one(order, None, most))
        self._world.remove_workloads(self._leaving)
        shares = rule.begin(self._world.quota, wanted or {})
        try:
            return (yield from self._order_one_by_one(order, shares, most))
        finally:
            shares.end()

    def _order_one_by_one(self, order: Iterable[Candidate], shares: OneByOne | None, most: int | None) -> Pieces[list[Candidate]]:
        chosen: list[Candidate] = []
        of_queue: dict[str, list[Candidate]] = {}  # chosen ones
        unused: dict[str, dict[FlavorResource, int]] = {}
        for number, candidate in enumerate(order, 1):
            if number % _TRIED_AT_ONCE == 0:
                yield
            if len(chosen) == most or (shares is not None and not self._budget.spend(SHARE_STEPS)):
                break
            left = unused.get(candidate.queue)
            if left is None:
                left = unused[candidate.queue] = dict(self._compute_unused(candidate.queue))
            if not candidate.is_own and not any(left[name] > 0 for name, amount in candidate.holds.items() if amount):
                continue
            if _is_for_borrower(candidate):
                after = {name: amount - candidate.holds.get(name, 0) for name, amount in left.items()}
                with_it = [candidate, *of_queue.get(candidate.queue, ())]
                if not self._budget.spend(len(with_it)):
                    break
                if not all(_is_beyond(after, other) for other in with_it):
                    continue
            if shares is not None and not shares.release_if_allowed(candidate.queue, candidate.amounts, is_own=candidate.is_own):
                continue
            for name, amount in candidate.holds.items():
                left[name] -= amount
            chosen.append(candidate)
            of_queue.setdefault(candidate.queue, []).append(candidate)
        return chosen


def _is_for_borrower(candidate: Candidate) -> bool:
    return candidate.victim.reason == REASON_RECLAIMED_BY_BORROWER


def _is_beyond(unused: Amounts, candidate: Candidate) -> bool:
    """Whether a queue that is so far beyond its own would be so with one workload more, in quota that this workload holds: what the queue
    borrows of another flavor, or of another resource, is no reason for it to go."""
    return any(unused[name] + amount > 0 for name, amount in candidate.holds.items() if amount)


def _count_seconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) if time else 0
