"""Who has to go so that a workload fits: as few as can be, and as cheap (ClusterQueue, spec.preemption; KEP-2724, Stable).

A set of victims is better than another if the highest priority in it is lower; then if it is smaller; then if the sum of
priorities is lower; then if less work is lost (pods times the time since they were admitted); then by names. Nobody goes
for nothing: with the victims gone the workload has its quota and its place, and without any one of them it has not.

- In its own queue a workload preempts as `withinClusterQueue` says.
- In other queues of its cohort only as long as they use what they could only borrow from where both can reach, so that none
  is brought below what is its own: `reclaimWithinCohort` if the workload then needs not borrow, `borrowWithinCohort` if it does.
- Those who are on their way out already are waited for before anybody else has to go.

The search is exact where there are few candidates. Else it looks for the lowest priority that will do, and then, domain by
domain of the level asked for, at those who hold most of what is missing there; the most promising domains are tried.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np

from core.model.podset import Mode
from core.model.quota import Amounts, FlavorResource
from core.model.resources import add
from core.names import REASON_IN_QUEUE, REASON_RECLAIMED, REASON_RECLAIMED_BY_BORROWER
from core.placement.profile import Profiles
from core.placement.slices import Shape, find_shape
from core.queueing.flavors import find_admission
from core.queueing.order import queue_order
from core.queueing.outcome import Found, Preempting, Victim
from core.queueing.quota import pod_set_usage
from core.queueing.world import World
from core.state.cluster import ClusterState, FlavorView
from core.state.facts import PodSetFacts, WorkloadFacts
from core.state.queue_facts import ANY, LOWER_OR_NEWER, LOWER_PRIORITY, NEVER, TRY_NEXT, ClusterQueueFacts
from core.state.workloads import admission_usage

_EXACT = 256  # sets that are all tried
_DOMAINS = 16  # most promising ones looked into
Cost = tuple[int, int, int, int, tuple[str, ...]]


@dataclass(frozen=True)
class _Candidate:
    victim: Victim
    queue: str
    holds: Amounts  # of the quota in question
    lost: int  # pods x seconds, as of the youngest candidate

    @cached_property
    def is_own(self) -> bool:
        """Whether it is in the preemptor's own queue."""
        return self.victim.reason == REASON_IN_QUEUE

    @cached_property
    def key(self) -> str:
        return self.victim.workload.key

    @cached_property
    def priority(self) -> int:
        return self.victim.workload.priority

    @cached_property
    def order(self) -> tuple[int, int, bool, str]:
        return self.priority, self.lost, self.is_own, self.key


def find_preemption(
    state: ClusterState,
    workload: WorkloadFacts,
    queue: ClusterQueueFacts,
    profiles: Profiles,
    leaving: Collection[str],
    *,
    may_borrow: bool = True,
) -> Preempting | None:
    """Victims for a workload that does not fit as things are; None if none that it may have would help.

    Without `may_borrow` it must fit into what is the queue's own.
    """
    search = _Search(state, workload, queue, profiles, leaving)
    try:
        found = search.found_without((), may_borrow=may_borrow) if leaving else None
        if found is not None:
            return Preempting(found, (), tuple(sorted(leaving)))
        if not queue.preemption.is_possible:
            return None
        best: tuple[Cost, tuple[_Candidate, ...], bool] | None = None
        for candidates, by_borrowing in search.rights():
            chosen = search.cheapest(candidates, may_borrow=by_borrowing) if may_borrow or not by_borrowing else None
            if chosen is not None and (best is None or cost(chosen) < best[0]):
                best = cost(chosen), chosen, by_borrowing
        if best is None:
            return None
        _, chosen, by_borrowing = best
        found = search.found_without(chosen, may_borrow=by_borrowing)
        assert found is not None  # as it did when they were chosen
        return Preempting(found, tuple(candidate.victim for candidate in chosen), tuple(sorted(leaving)))
    finally:
        search.world.restore_all()


def cost(chosen: Sequence[_Candidate]) -> Cost:
    """What sets of victims are compared by, lower is better."""
    priorities = [candidate.priority for candidate in chosen]
    lost = sum(candidate.lost for candidate in chosen)
    return max(priorities, default=0), len(chosen), sum(priorities), lost, tuple(sorted(candidate.key for candidate in chosen))


class _Search:
    """Sets of victims for one workload, tried in a world in which those who are leaving are gone."""

    def __init__(
        self, state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, profiles: Profiles, leaving: Collection[str]
    ) -> None:
        self._workload, self._queue, self._profiles, self._state = workload, queue, profiles, state
        self._leaving = frozenset(leaving)
        self._beyond: dict[str, Amounts] = {}
        self.world = World(state, explains=False)
        for key in sorted(leaving):
            self.world.remove(key)

    # --- who may go ---------------------------------------------------------------------------------

    def rights(self) -> Iterator[tuple[list[_Candidate], bool]]:
        """Candidates, and whether the workload may borrow if they go."""
        policy, priority = self._queue.preemption, self._workload.priority
        own = [w for w in self._holders(self._queue.name) if self._is_lower(policy.within_queue, w)]
        owned = [(w, REASON_IN_QUEUE) for w in own]
        others = [w for name in self._state.quota.relatives(self._queue.name) if self._takes_of_others(name) for w in self._holders(name)]
        reclaimed = [(w, REASON_RECLAIMED) for w in others if policy.reclaim == ANY or (policy.reclaim != NEVER and w.priority < priority)]
        yield self._candidates(owned + reclaimed), False
        if policy.while_borrowing != NEVER:
            most = priority - 1 if policy.highest_priority is None else min(priority - 1, policy.highest_priority)
            owned += [(w, REASON_RECLAIMED_BY_BORROWER) for w in others if w.priority <= most]
        if owned and self._state.quota.cohort_of(self._queue.name) is not None:
            yield self._candidates(owned), True

    def _holders(self, queue: str) -> list[WorkloadFacts]:
        """Those who hold quota, as far as it is seen: a decision that is still on its way is not undone."""
        holders = self._state.workloads.holders(queue)
        return [w for w in holders if w.key not in self._leaving and w.admission is not None and not w.finished and not w.deleting]

    def _is_lower(self, policy: str, other: WorkloadFacts) -> bool:
        if policy not in (LOWER_PRIORITY, LOWER_OR_NEWER):
            return False
        equal = policy == LOWER_OR_NEWER and queue_order(other) > queue_order(self._workload) and other.priority == self._workload.priority
        return other.priority < self._workload.priority or equal

    @cached_property
    def _wanted(self) -> dict[str, int]:
        """What the workload would take from quota."""
        total: dict[str, int] = {}
        for pod_set in self._workload.pod_sets:
            add(total, pod_set_usage(pod_set, self._queue, self._state.resource_rules))
        return total

    @cached_property
    def _names(self) -> list[FlavorResource]:
        """The quota that the workload could use."""
        asked = self._wanted
        return [(flavor, r) for group in self._queue.groups for flavor in group.flavors for r in group.resources if r in asked]

    def _takes_of_others(self, queue: str) -> bool:
        return any(self._state.quota.takes_of_others(self._queue.name, queue, name) for name in self._names)

    def _candidates(self, rights: Iterable[tuple[WorkloadFacts, str]]) -> list[_Candidate]:
        rights = list(rights)
        since = {w.key: _seconds(w.reserved_at) for w, _ in rights}
        now = max(since.values(), default=0)
        candidates = []
        for w, reason in rights:
            admission, _ = self.world.held(w.key)
            amounts = admission_usage(admission)
            holds = {name: amounts[name] for name in self._names if name in amounts}
            lost = sum(pod_set.count for pod_set in w.pod_sets) * (now - since[w.key])
            candidates.append(_Candidate(Victim(w, reason), admission.cluster_queue, holds, lost))
        return sorted(candidates, key=lambda candidate: candidate.order)

    # --- trying -------------------------------------------------------------------------------------

    def found_without(self, chosen: Collection[_Candidate], *, may_borrow: bool) -> Found | None:
        """How the workload is admitted with some gone, if it is."""
        wanted = self._leaving | {candidate.key for candidate in chosen}
        for key in sorted(self.world.gone - wanted):
            self.world.restore(key)
        for key in sorted(wanted - self.world.gone):
            self.world.remove(key)
        queue = self._queue if may_borrow else replace(self._queue, fungibility=replace(self._queue.fungibility, when_can_borrow=TRY_NEXT))
        found = find_admission(self._state, self._workload, queue, self._profiles, self.world)
        if not isinstance(found, Found):
            return None
        return None if found.borrows and not may_borrow else found

    def _is_legal(self, chosen: Sequence[_Candidate]) -> bool:
        """Whether they can go in some order in which each queue still uses more than its own whenever one of its workloads goes."""
        by_queue: dict[str, list[_Candidate]] = {}
        for candidate in chosen:
            if not candidate.is_own:
                by_queue.setdefault(candidate.queue, []).append(candidate)
        return all(self._may_all_go(queue, members) for queue, members in by_queue.items())

    def _may_all_go(self, queue: str, members: Sequence[_Candidate]) -> bool:
        """The last to go must find its queue still using more than its own."""
        spare = dict(self._spare(queue))
        for member in members:
            for name, amount in member.holds.items():
                spare[name] -= amount
        return any(spare[name] + member.holds.get(name, 0) > 0 for member in members for name in spare)

    def _spare(self, queue: str) -> Amounts:
        """What a queue uses beyond its own, with nobody gone but those who are leaving anyway; negative where it uses less."""
        if queue not in self._beyond:
            tree, back = self.world.quota, self.world.gone - self._leaving
            usage = {name: tree.usage(queue).get(name, 0) for name in self._names}
            for key in back:
                admission, _ = self.world.held(key)
                if admission.cluster_queue == queue:
                    amounts = admission_usage(admission)
                    for name in usage:
                        usage[name] += amounts.get(name, 0)
            self._beyond[queue] = {name: amount - tree.nominal(queue, name) for name, amount in usage.items()}
        return self._beyond[queue]

    def _fits(self, chosen: Sequence[_Candidate], *, may_borrow: bool) -> bool:
        return self.found_without(chosen, may_borrow=may_borrow) is not None

    def _in_order(self, order: Iterable[_Candidate]) -> list[_Candidate]:
        """Those who may go one after the other."""
        chosen: list[_Candidate] = []
        spare: dict[str, dict[FlavorResource, int]] = {}
        for candidate in order:
            if not candidate.is_own:
                left = spare.setdefault(candidate.queue, dict(self._spare(candidate.queue)))
                if all(amount <= 0 for amount in left.values()):
                    continue
                for name, amount in candidate.holds.items():
                    left[name] -= amount
            chosen.append(candidate)
        return chosen

    # --- choosing -----------------------------------------------------------------------------------

    def cheapest(self, candidates: list[_Candidate], *, may_borrow: bool) -> tuple[_Candidate, ...] | None:
        """The best set found; None if none would help."""
        if not candidates or not self._fits(candidates, may_borrow=may_borrow):
            return None  # not even if all of them were gone, whoever may
        if 2 ** len(candidates) <= _EXACT:
            sets = [chosen for size in range(1, len(candidates) + 1) for chosen in combinations(candidates, size)]
            return next((s for s in sorted(sets, key=cost) if self._is_legal(s) and self._fits(s, may_borrow=may_borrow)), None)
        priorities = sorted({candidate.priority for candidate in candidates})
        low, high = 0, len(priorities)  # the lowest that will do is among [low, high); high: none does
        while low < high:
            middle = (low + high) // 2
            pool = self._in_order(c for c in candidates if c.priority <= priorities[middle])
            low, high = (low, middle) if self._fits(pool, may_borrow=may_borrow) else (middle + 1, high)
        if low == len(priorities):
            return None
        allowed = [c for c in candidates if c.priority <= priorities[low]]
        best: tuple[_Candidate, ...] | None = None
        for order in self._orders(allowed):
            chosen = self._shortest(self._in_order(order), len(best) if best is not None else len(allowed), may_borrow=may_borrow)
            if chosen is not None and (best is None or cost(chosen) < cost(best)):
                best = chosen
        return best if best is None else self._smaller(allowed, best, may_borrow=may_borrow)

    def _shortest(self, order: list[_Candidate], most: int, *, may_borrow: bool) -> tuple[_Candidate, ...] | None:
        """As few of the first of an order as will do, and of these none who need not go; None if more than `most` were needed."""
        low, high = 1, len(order)
        if not order or not self._fits(order[: 4 * most], may_borrow=may_borrow):
            return None
        high = min(high, 4 * most)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(order[:middle], may_borrow=may_borrow) else (middle + 1, high)
        chosen = order[:low]
        for candidate in sorted(chosen, key=lambda c: c.order, reverse=True):
            rest = [c for c in chosen if c is not candidate]
            if rest and self._is_legal(rest) and self._fits(rest, may_borrow=may_borrow):
                chosen = rest
        return tuple(chosen)

    def _smaller(self, allowed: list[_Candidate], best: tuple[_Candidate, ...], *, may_borrow: bool) -> tuple[_Candidate, ...]:
        """Whether fewer would do, as far as all sets of a size can be tried."""
        for size in range(1, len(best)):
            if comb(len(allowed), size) > _EXACT:
                break
            for chosen in sorted(combinations(allowed, size), key=cost):
                if self._is_legal(chosen) and self._fits(chosen, may_borrow=may_borrow):
                    return chosen
        return best

    # --- promising orders ---------------------------------------------------------------------------

    def _orders(self, allowed: list[_Candidate]) -> Iterator[list[_Candidate]]:
        """Orders in which to add victims: by cost, by size, and domain by domain those who hold most there first."""
        yield allowed
        sizes = {c.key: self._size(c) for c in allowed}
        yield sorted(allowed, key=lambda c: (-sizes[c.key], c.order))
        for name in self._queue.flavors:
            view = self._state.view(name)
            if view is not None:
                yield from self._orders_by_domain(view, allowed, sizes)

    def _size(self, candidate: _Candidate) -> float:
        """How much of the quota in question somebody holds, as a share of what the workload asks for."""
        held = candidate.holds
        wanted = self._wanted
        return max((held.get((flavor, r), 0) / wanted[r] for flavor, r in self._names if wanted.get(r)), default=0.0)

    def _orders_by_domain(self, view: FlavorView, allowed: list[_Candidate], sizes: Mapping[str, float]) -> Iterator[list[_Candidate]]:
        pod_set = max(self._workload.pod_sets, key=lambda p: p.count)
        request = self._state.request_for(pod_set, view.flavor)
        shape = find_shape(view.capacity.tree, request)
        if not isinstance(shape, Shape) or request.topology is None or request.topology.mode not in (Mode.REQUIRED, Mode.PREFERRED):
            return
        self.found_without((), may_borrow=True)
        tree, free = view.capacity.tree, self.world.free(view)
        room = view.capacity.pods_that_fit(request, view.capacity.free if free is None else free) * view.capacity.eligible(request)
        starts = tree.levels[shape.start].starts
        missing = pod_set.count - np.add.reduceat(room, starts)
        held = np.zeros((len(allowed), len(starts)))
        for row, candidate in enumerate(allowed):
            self._add_pods(held[row], tree.index, starts, candidate, pod_set)
        falling = -np.sort(-held, axis=0)
        enough = np.cumsum(falling, axis=0) >= missing
        needed = np.where(enough.any(axis=0), enough.argmax(axis=0) + 1, len(allowed) + 1)
        for domain in np.lexsort((missing, needed))[:_DOMAINS].tolist():
            if needed[domain] <= len(allowed):
                in_it = held[:, domain]
                order = sorted(range(len(allowed)), key=lambda i: (-in_it[i], -sizes[allowed[i].key], allowed[i].order))
                yield [allowed[i] for i in order]

    def _add_pods(
        self,
        row: np.ndarray,
        index: Mapping[str, int],
        starts: np.ndarray,
        candidate: _Candidate,
        pod_set: PodSetFacts,
    ) -> None:
        """How many pods of the pod set would about fit, per domain, in what somebody holds there."""
        for requests, nodes in self.world.held(candidate.key)[1]:
            ratio = max((requests.get(r, 0) / n for r, n in pod_set.requests.items() if n), default=0.0)
            at = np.array([index[name] for name, _ in nodes if name in index], dtype=np.int64)
            counts = np.array([count for name, count in nodes if name in index], dtype=np.float64)
            np.add.at(row, starts.searchsorted(at, side="right") - 1, counts * ratio)


def _seconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) if time else 0
