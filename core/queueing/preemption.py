"""Who has to go so that a workload fits: as few as can be, and as cheap (ClusterQueue, spec.preemption; KEP-2724, Stable).

A set of victims is better than another if the highest priority in it is lower; then if it is smaller; then if the sum of
priorities is lower; then if less work is lost (pods times the time since they were admitted); then by names. With fair
sharing the set is better, before all of that, whose queues are further beyond their own, so that they give first. Nobody goes
for nothing: with the victims gone the workload has its quota and its place, and without any one of them it has not.

Who may go at all is `core.queueing.rights`'s. Those who are on their way out already are waited for before anybody else has to go.

The search is exact where there are few candidates. Else it looks for the lowest priority that will do, and then, domain by
domain of the level asked for, at those who hold most of what is missing there; the most promising domains are tried.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np

from core.model.configuration import FairSharing
from core.model.podset import Mode
from core.model.quota import FlavorResource
from core.placement.profile import Profiles
from core.placement.slices import Shape, find_shape
from core.queueing.flavors import find_admission
from core.queueing.outcome import Found, Preempting
from core.queueing.rights import Candidate, Rank, Right, Rights
from core.queueing.world import World
from core.state.cluster import ClusterState
from core.state.facts import PodSetFacts, WorkloadFacts
from core.state.flavor_view import FlavorView
from core.state.queue_facts import TRY_NEXT, ClusterQueueFacts
from core.state.workloads import admission_usage

_EXACT = 256  # sets that are all tried
_DOMAINS = 16  # most promising ones looked into
Cost = tuple[Rank, int, int, int, tuple[str, ...]]


def find_preemption(
    state: ClusterState,
    workload: WorkloadFacts,
    queue: ClusterQueueFacts,
    profiles: Profiles,
    leaving: Collection[str],
    *,
    may_borrow: bool = True,
    sharing: FairSharing | None = None,
) -> Preempting | None:
    """Victims for a workload that does not fit as things are; None if none that it may have would help.

    Without `may_borrow` it must fit into what is the queue's own. With `sharing`, fair sharing is on.
    """
    search = _Search(state, workload, queue, profiles, leaving, sharing)
    try:
        search.world.let_go(frozenset(leaving))
        found = search.found_without((), may_borrow=may_borrow) if leaving else None
        if found is not None:
            return Preempting(found, (), tuple(sorted(leaving)))
        if not queue.preemption.is_possible:
            return None
        for rights in search.rights.stages():
            sets = [(right, search.cheapest(right)) for right in rights if may_borrow or not right.may_borrow]
            helpful = [(cost(chosen), number, right, chosen) for number, (right, chosen) in enumerate(sets) if chosen is not None]
            if helpful:
                _, _, right, chosen = min(helpful, key=lambda entry: entry[:2])
                found = search.found_by(right, chosen)
                assert found is not None  # as it did when they were chosen
                return Preempting(found, tuple(candidate.victim for candidate in chosen), tuple(sorted(leaving)))
        return None
    finally:
        search.world.restore_all()


def cost(chosen: Sequence[Candidate]) -> Cost:
    """What sets of victims are compared by, lower is better."""
    priorities, lost = sum(candidate.priority for candidate in chosen), sum(candidate.lost for candidate in chosen)
    return max(candidate.rank for candidate in chosen), len(chosen), priorities, lost, tuple(sorted(candidate.key for candidate in chosen))


class _Search:
    """Sets of victims for one workload, tried in a world in which those who are leaving are gone."""

    def __init__(
        self,
        state: ClusterState,
        workload: WorkloadFacts,
        queue: ClusterQueueFacts,
        profiles: Profiles,
        leaving: Collection[str],
        sharing: FairSharing | None,
    ) -> None:
        self._workload, self._queue, self._profiles, self._state = workload, queue, profiles, state
        self._leaving = frozenset(leaving)
        self.world = World(state, explains=False)
        self.rights = Rights(state, workload, queue, self.world, leaving, sharing)

    # --- trying -------------------------------------------------------------------------------------

    def found_without(self, chosen: Collection[Candidate], *, may_borrow: bool) -> Found | None:
        """How the workload is admitted with some gone, if it is."""
        self.world.let_go(self._leaving | {candidate.key for candidate in chosen})
        queue = self._queue if may_borrow else replace(self._queue, fungibility=replace(self._queue.fungibility, when_can_borrow=TRY_NEXT))
        found = find_admission(self._state, self._workload, queue, self._profiles, self.world)
        if not isinstance(found, Found):
            return None
        return None if found.borrows and not may_borrow else found

    def found_by(self, right: Right, chosen: Collection[Candidate]) -> Found | None:
        """How the workload is admitted with some gone, if it is and shares let it be."""
        found = self.found_without(chosen, may_borrow=right.may_borrow)
        if found is None or right.rule is None:
            return found
        gone = [(candidate.queue, candidate.amounts) for candidate in chosen if not candidate.is_own]
        return found if right.rule.allows(self.world.quota, admission_usage(found.admission), gone) else None

    def _fits(self, right: Right, chosen: Collection[Candidate]) -> bool:
        return self._may_fit(right, chosen) and self.found_by(right, chosen) is not None

    def _may_fit(self, right: Right, chosen: Collection[Candidate]) -> bool:
        """Whether what they hold is enough quota, as far as that is known without a search: most sets are too small."""
        for name, (needed, available, own_left) in self._shortages.items():
            if needed > available + sum(candidate.holds.get(name, 0) for candidate in chosen):
                return False
            own = sum(candidate.holds.get(name, 0) for candidate in chosen if candidate.is_own)
            if not right.may_borrow and needed > own_left + own:
                return False
        return True

    @cached_property
    def _shortages(self) -> dict[FlavorResource, tuple[int, int, int]]:
        """Where there is one flavor to be had: what is needed, is available, and is left of what is the queue's own, with nobody
        gone but those who are leaving."""
        self.world.let_go(self._leaving)
        tree, queue, shortages = self.world.quota, self._queue.name, dict[FlavorResource, tuple[int, int, int]]()
        for group in self._queue.groups:
            for name in ((group.flavors[0], r) for r in group.resources if len(group.flavors) == 1 and self.rights.wanted.get(r)):
                own_left = tree.nominal(queue, name) - tree.usage(queue).get(name, 0)
                shortages[name] = self.rights.wanted[name[1]], tree.available(queue, name), own_left
        return shortages

    # --- choosing -----------------------------------------------------------------------------------

    def cheapest(self, right: Right) -> tuple[Candidate, ...] | None:
        """The best set found; None if none would help."""
        candidates = right.candidates
        with_all = self.found_without(candidates, may_borrow=right.may_borrow) if candidates else None
        if with_all is None:
            return None  # not even if all of them were gone, whoever may
        if 2 ** len(candidates) <= _EXACT:
            sets = [chosen for size in range(1, len(candidates) + 1) for chosen in combinations(candidates, size)]
            return next((s for s in sorted(sets, key=cost) if self.rights.is_legal(s) and self._fits(right, s)), None)
        wanted = admission_usage(with_all.admission)
        ranks = sorted({candidate.rank for candidate in candidates})
        low, high = 0, len(ranks)  # the lowest that will do is among [low, high); high: none does
        while low < high:
            middle = (low + high) // 2
            pool = self.rights.in_order((c for c in candidates if c.rank <= ranks[middle]), right.rule, wanted)
            low, high = (low, middle) if self._fits(right, pool) else (middle + 1, high)
        if low == len(ranks):
            return None
        allowed = [c for c in candidates if c.rank <= ranks[low]]
        best: tuple[Candidate, ...] | None = None
        for order in self._orders(allowed):
            legal = self.rights.in_order(order, right.rule, wanted)
            chosen = self._shortest(right, legal, len(best) if best is not None else len(allowed))
            if chosen is not None and (best is None or cost(chosen) < cost(best)):
                best = chosen
        return best if best is None else self._smaller(right, allowed, best)

    def _shortest(self, right: Right, order: list[Candidate], most: int) -> tuple[Candidate, ...] | None:
        """As few of the first of an order as will do, and of these none who need not go; None if more than `most` were needed."""
        low, high = 1, len(order)
        if not order or not self._fits(right, order[: 4 * most]):
            return None
        high = min(high, 4 * most)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(right, order[:middle]) else (middle + 1, high)
        chosen = order[:low]
        for candidate in sorted(chosen, key=lambda c: c.order, reverse=True):
            rest = [c for c in chosen if c is not candidate]
            if rest and self.rights.is_legal(rest) and self._fits(right, rest):
                chosen = rest
        return tuple(chosen)

    def _smaller(self, right: Right, allowed: list[Candidate], best: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Whether fewer would do, as far as all sets of a size can be tried."""
        for size in range(1, len(best)):
            if comb(len(allowed), size) > _EXACT:
                break
            for chosen in sorted(combinations(allowed, size), key=cost):
                if self.rights.is_legal(chosen) and self._fits(right, chosen):
                    return chosen
        return best

    # --- promising orders ---------------------------------------------------------------------------

    def _orders(self, allowed: list[Candidate]) -> Iterator[list[Candidate]]:
        """Orders in which to add victims: by cost, by size, and domain by domain those who hold most there first."""
        yield allowed
        sizes = {c.key: self._size(c) for c in allowed}
        yield sorted(allowed, key=lambda c: (-sizes[c.key], c.order))
        for name in self._queue.flavors:
            view = self._state.view(name)
            if view is not None:
                yield from self._orders_by_domain(view, allowed, sizes)

    def _size(self, candidate: Candidate) -> float:
        """How much of the quota in question somebody holds, as a share of what the workload asks for."""
        held = candidate.holds
        wanted = self.rights.wanted
        return max((held.get((flavor, r), 0) / wanted[r] for flavor, r in self.rights.names if wanted.get(r)), default=0.0)

    def _orders_by_domain(self, view: FlavorView, allowed: list[Candidate], sizes: Mapping[str, float]) -> Iterator[list[Candidate]]:
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
        if (missing <= 0).any():
            return  # there is room without anybody going: whoever goes gives quota
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
        candidate: Candidate,
        pod_set: PodSetFacts,
    ) -> None:
        """How many pods of the pod set would about fit, per domain, in what somebody holds there."""
        for requests, nodes in self.world.held(candidate.key):
            ratio = max((requests.get(r, 0) / n for r, n in pod_set.requests.items() if n), default=0.0)
            at = np.array([index[name] for name, _ in nodes if name in index], dtype=np.int64)
            counts = np.array([count for name, count in nodes if name in index], dtype=np.float64)
            np.add.at(row, starts.searchsorted(at, side="right") - 1, counts * ratio)
