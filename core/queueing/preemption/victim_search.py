"""The search for victims: the fewest and cheapest workloads to preempt so that one fits (ClusterQueue, spec.preemption;
KEP-2724, Stable).

A set of victims is better than another if the highest priority in it is lower; then if it is smaller; then if the sum
of priorities is lower; then if less work is lost (pods times the time since they were admitted); then by names. With
fair sharing, a set is better before all of that if its queues are further beyond their own quota, so that these give
first. No workload is preempted without effect: with all victims gone the workload has its quota and its place, and
without any one of them it has not.

Which workloads may be preempted at all is decided in `core.queueing.preemption.preemption_policy`. The search waits for
workloads that are being evicted already before it preempts others.

The search is exact where there are few candidates. Otherwise it finds the lowest priority that is sufficient. Then it
tries, domain by domain of the requested level, the workloads that hold most of what is missing there; only the most
promising domains are tried.

What it tries beyond the first sufficient set is limited by the steps of the decision. Once these are spent, the best
set so far is the answer, which may have more workloads than necessary.

A search may be interrupted (`core.model.pieces`). It continues with quota and nodes as they were when it began. Whether
its answer still holds is confirmed by the same search among the victims alone (`among`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, combinations
from math import comb
from operator import add, sub

import numpy as np

from core.model.configuration import FairSharing
from core.model.pieces import Pieces
from core.model.podset import Mode, PodSetRequest
from core.model.quota_tree import FlavorResource
from core.model.step_budget import DECISION_STEPS, StepBudget
from core.placement.algorithms.profile import Profiles
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.topology.free_capacity import Matrix, with_pod
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible, Preempting
from core.queueing.flavors.what_if_view import World
from core.queueing.preemption.preemption_policy import SHARE_STEPS, Candidate, Memory, Rank, Right, Rights
from core.state.cluster import ClusterState
from core.state.facts import PodSetFacts, WorkloadFacts
from core.state.flavor_view import FlavorView
from core.state.queue_facts import TRY_NEXT, ClusterQueueFacts
from core.state.workload_state import compute_admission_usage

_EXACT = 256  # sets that are all tried
_DOMAINS = 16  # most promising ones looked into
_ROUNDING = 1e-6  # of pods
_TRIAL_STEPS = 30_000  # of the search for a place with one set gone
_FEW = 8  # candidates of which all sets are tried
_READ_AT_ONCE = 500  # candidates
_TRIAL = 100  # steps of a trial beside those of the search for a place
Cost = tuple[Rank, int, int, int, tuple[str, ...]]
Set = tuple[tuple[Candidate, ...], Admissible]  # victims, and how the workload is admitted with them gone


def search_preemption(
    state: ClusterState,
    workload: WorkloadFacts,
    queue: ClusterQueueFacts,
    profiles: Profiles,
    leaving: Collection[str],
    *,
    may_borrow: bool = True,
    sharing: FairSharing | None = None,
    budget: StepBudget | None = None,
    among: Collection[str] | None = None,
    memory: Memory | None = None,
    spared: Collection[str] = (),
) -> Pieces[Preempting | None]:
    """Yields None where it may be interrupted, and returns the victims for a workload that does not fit as things are, and its admission
    without them; there are none where it is enough that those `leaving` (keys) go. None if none that it may have would help, as far as was
    searched.

    Without `may_borrow` it must fit into what is the queue's own. With `sharing`, fair sharing is on. `budget` are the steps that the
    decision has left, `among` the keys of the workloads that alone may be victims. Workloads of the parties `spared` are victims only if
    the workload cannot have quota of its queue's own without them. A search `among` some reads only what has changed since the search that
    filled `memory`.
    """
    budget, memory = StepBudget(DECISION_STEPS) if budget is None else budget, Memory() if memory is None else memory
    search = _Search(state, workload, queue, profiles, leaving, sharing, budget, memory, among, spared)
    search.world.remove_workloads(frozenset(leaving))
    found = search.admit_without((), may_borrow=may_borrow) if leaving else None
    if found is not None:
        return Preempting(found, (), tuple(sorted(leaving)))
    if not queue.preemption.is_possible:
        return None
    for rights in search.rights.list_stages():
        yield
        helpful = list[Set]()
        for right in rights or ():
            if right.may_borrow and not may_borrow:
                continue
            helping = search.find_all(right) if among is not None and len(right.candidates) > _FEW else None
            if helping is None:
                helping = yield from search.find_cheapest(right)
            elif search.has_steps:
                helping = yield from search.remove_unneeded(right, *helping)
            helpful += [helping] if helping is not None else []
        if helpful:
            chosen, found = min(helpful, key=lambda helping: compute_cost(helping[0])) if len(helpful) > 1 else helpful[0]
            victims = tuple(candidate.victim for candidate in chosen)
            return Preempting(found, victims, tuple(sorted(leaving)), is_cut=search.is_cut)
    return None


def compute_cost(chosen: Sequence[Candidate]) -> Cost:
    """Returns the key by which sets of victims are compared; lower is better. It has the highest rank, the number, the sum of priorities,
    the work lost (pods x seconds) and the sorted keys. Raises ValueError for an empty set."""
    priorities, lost = sum(candidate.priority for candidate in chosen), sum(candidate.lost for candidate in chosen)
    return max(candidate.rank for candidate in chosen), len(chosen), priorities, lost, tuple(sorted(candidate.key for candidate in chosen))


class _Search:
    """Sets of victims for one workload, tried in a view without the workloads that are leaving."""

    def __init__(
        self,
        state: ClusterState,
        workload: WorkloadFacts,
        queue: ClusterQueueFacts,
        profiles: Profiles,
        leaving: Collection[str],
        sharing: FairSharing | None,
        budget: StepBudget,
        memory: Memory,
        among: Collection[str] | None,
        spared: Collection[str],
    ) -> None:
        self._workload, self._queue, self._profiles, self._state = workload, queue, profiles, state
        self._leaving = frozenset(leaving)
        self._budget = budget
        self._has_tried = False
        self._asked: dict[str, tuple[int, ...]] = {}
        self.world = World(state, explains=False, budget=budget, readings=memory.readings)
        self.world.copy_quota_and_nodes(queue)
        self.rights = Rights(state, workload, queue, self.world, leaving, sharing, budget, memory, among, spared)

    @property
    def has_steps(self) -> bool:
        """Whether it may try more."""
        return self._budget.has_left()

    @property
    def is_cut(self) -> bool:
        """Whether it stopped for want of steps."""
        return self._budget.ran_out

    # --- trying -------------------------------------------------------------------------------------

    def admit_without(self, chosen: Collection[Candidate], *, may_borrow: bool) -> Admissible | None:
        """How the workload is admitted with some gone, if it is."""
        self._budget.charge(len(chosen))
        self.world.remove_workloads(self._leaving | {candidate.key for candidate in chosen})
        return self._find_now(may_borrow=may_borrow)

    def _find_now(self, *, may_borrow: bool) -> Admissible | None:
        """How the workload is admitted in the world as it stands, if it is."""
        self._budget.charge(_TRIAL)
        self.world.budget = self._budget.split_off(_TRIAL_STEPS)
        queue = self._queue if may_borrow else replace(self._queue, fungibility=replace(self._queue.fungibility, when_can_borrow=TRY_NEXT))
        found = find_admission(self._state, self._workload, queue, self._profiles, self.world)
        if not isinstance(found, Admissible):
            return None
        return None if found.borrows and not may_borrow else found

    def _is_fair(self, right: Right, chosen: Collection[Candidate], found: Admissible) -> bool:
        """Whether shares let it be, in the world as it stands, in which the chosen ones are gone."""
        if right.rule is None:
            return True
        gone = [(candidate.queue, candidate.amounts) for candidate in chosen if not candidate.is_own]
        self._budget.charge(SHARE_STEPS * len(gone))
        return right.rule.allows(self.world.quota, compute_admission_usage(found.admission), gone)

    def _find_by(self, right: Right, chosen: Sequence[Candidate]) -> Admissible | None:
        """How the workload is admitted with some gone, if it is and shares let it be."""
        holds, of_others = self._sum(chosen), self._sum(candidate for candidate in chosen if not candidate.is_own)
        return self._find_if_enough(right, chosen, holds, tuple(map(sub, holds, of_others)))

    def _find_if_enough(self, right: Right, chosen: Sequence[Candidate], holds: Sequence[int], own: Sequence[int]) -> Admissible | None:
        """The same where it is known what they hold."""
        if not self._may_fit(right, holds, own):
            return None
        found = self.admit_without(chosen, may_borrow=right.may_borrow)
        return found if found is not None and self._is_fair(right, chosen, found) else None

    def _read_asked(self, candidate: Candidate) -> tuple[int, ...]:
        """What one holds of each of the `_shortages`."""
        found = self._asked.get(candidate.key)
        if found is None:
            holds = candidate.holds
            found = self._asked[candidate.key] = tuple([holds.get(name, 0) for name in self._shortages])
        return found

    def _sum(self, chosen: Iterable[Candidate]) -> tuple[int, ...]:
        """What some hold of each of the `_shortages`."""
        return tuple(map(sum, zip(*map(self._read_asked, chosen), strict=True))) or self._no_amounts

    @cached_property
    def _no_amounts(self) -> tuple[int, ...]:
        return (0,) * len(self._shortages)

    def _may_fit(self, right: Right, holds: Sequence[int], own: Sequence[int]) -> bool:
        """Whether what a set holds, those of the workload's own queue `own` of it, is enough quota, as far as that is known without a
        search: most sets are too small."""
        for (needed, available, own_left), held, own_held in zip(self._shortages.values(), holds, own, strict=True):
            if needed > available + held or (not right.may_borrow and needed > own_left + own_held):
                return False
        return True

    @cached_property
    def _shortages(self) -> dict[FlavorResource, tuple[int, int, int]]:
        """Returns, for resources with a single flavor, the amounts that are needed, available, and left of the queue's
        own quota, with only the leaving workloads gone."""
        self.world.remove_workloads(self._leaving)
        tree, queue, shortages = self.world.quota, self._queue.name, dict[FlavorResource, tuple[int, int, int]]()
        for group in self._queue.groups:
            for name in ((group.flavors[0], r) for r in group.resources if len(group.flavors) == 1 and self.rights.wanted.get(r)):
                own_left = tree.get_nominal(queue, name) - tree.get_usage(queue).get(name, 0)
                shortages[name] = self.rights.wanted[name[1]], tree.compute_available(queue, name), own_left
        return shortages

    # --- choosing -----------------------------------------------------------------------------------

    def find_cheapest(self, right: Right) -> Pieces[Set | None]:
        """The best set found; None if none would help."""
        candidates = right.candidates
        if not candidates or (self._has_tried and not self._budget.spend(0)):
            return None
        self._has_tried = True
        for at in range(0, len(candidates), _READ_AT_ONCE):
            self.world.read_held(candidate.key for candidate in candidates[at : at + _READ_AT_ONCE])
            yield
        with_all = self.admit_without(candidates, may_borrow=right.may_borrow)
        if with_all is None:
            return None  # not sufficient even if all of them were gone
        if 2 ** len(candidates) <= _EXACT:
            sets = [chosen for size in range(1, len(candidates) + 1) for chosen in combinations(candidates, size)]
            return (yield from self._find_first_that_helps(right, sorted(sets, key=compute_cost)))
        wanted = compute_admission_usage(with_all.admission)
        ranks = sorted({candidate.rank for candidate in candidates})
        low, high = 0, len(ranks)  # the lowest that will do is among [low, high); high: none does
        while low < high:
            if not self._budget.spend(0):
                low = high = min(high, len(ranks) - 1)
                break
            middle = (low + high) // 2
            yield
            pool = yield from self.rights.order_victims([c for c in candidates if c.rank <= ranks[middle]], right.rule, wanted)
            is_known = right.rule is None and len(pool) == len(candidates)
            found = with_all if is_known else self._find_by(right, pool)
            low, high = (low, middle) if found is not None else (middle + 1, high)
        if low == len(ranks):
            return None
        allowed = [c for c in candidates if c.rank <= ranks[low]]
        best: Set | None = None
        for order, least in self._list_orders(allowed):
            yield
            if order is None or (best is not None and right.rule is None and least > len(best[0])):
                continue
            if best is not None and not self._budget.spend(len(allowed)):
                return best
            most = 4 * len(best[0] if best is not None else allowed)
            legal = yield from self.rights.order_victims(order, right.rule, wanted, most)
            helping = yield from self._find_shortest(right, legal, least)
            if helping is not None and (best is None or compute_cost(helping[0]) < compute_cost(best[0])):
                best = helping
        return best if best is None else (yield from self._find_smaller(right, allowed, best))

    def find_all(self, right: Right) -> Set | None:
        """All candidates, if they may go together and that helps."""
        chosen = tuple(right.candidates)
        found = self._find_by(right, chosen) if self.rights.is_legal(chosen) else None
        return (chosen, found) if found is not None else None

    def _find_first_that_helps(self, right: Right, sets: Iterable[tuple[Candidate, ...]]) -> Pieces[Set | None]:
        """Of some sets in the order of their cost the first that will do."""
        for number, chosen in enumerate(sets):
            if number and not self._budget.spend(0):
                return None
            yield
            found = self._find_by(right, chosen) if self.rights.is_legal(chosen) else None
            if found is not None:
                return chosen, found
        return None

    def _find_shortest(self, right: Right, order: list[Candidate], least: int) -> Pieces[Set | None]:
        """As few of the first of an order as will do, and of these none that is not needed; None if all of them are not enough. It tries
        `least` first, then twice as many, and so on."""
        low, high, found = 1, min(max(1, least), len(order)), None
        holds, own_holds = self._sum_up_to(order), self._sum_up_to(order, own=True)
        while order:
            high = high if self._budget.spend(0) else len(order)
            found = self._find_if_enough(right, order[:high], holds[high], own_holds[high])
            if found is not None or high == len(order):
                break
            yield
            low, high = high + 1, min(2 * high, len(order))
        if found is None:
            return None
        while low < high and self._budget.spend(0):
            middle = (low + high) // 2
            yield
            fewer = self._find_if_enough(right, order[:middle], holds[middle], own_holds[middle])
            low, high, found = (low, middle, fewer) if fewer is not None else (middle + 1, high, found)
        yield
        return (yield from self.remove_unneeded(right, order[:high], found))

    def remove_unneeded(self, right: Right, chosen: Sequence[Candidate], found: Admissible) -> Pieces[Set]:
        """A set without those that are not needed, the dearest asked first: one, and as long as that goes two, four and so on at once."""
        order = sorted(chosen, key=lambda c: c.order, reverse=True)
        behind, own_behind = self._sum_up_to(order[::-1])[::-1], self._sum_up_to(order[::-1], own=True)[::-1]
        kept, holds, own = list[Candidate](), self._no_amounts, self._no_amounts  # those that are needed, and what they hold
        foreign, foreign_kept = [candidate for candidate in order if not candidate.is_own], list[Candidate]()
        foreign_before = list(accumulate((not candidate.is_own for candidate in order), initial=0))
        self.world.remove_workloads(self._leaving | {candidate.key for candidate in order})
        at, run, grows = 0, 1, True
        while at < len(order) and self._budget.spend(1 + len(order) // 500):
            run = min(run, len(order) - at)
            yield
            fewer: Admissible | None = None
            is_any_left = bool(kept) or at + run < len(order)
            if is_any_left and self._may_fit(right, _add(holds, behind[at + run]), _add(own, own_behind[at + run])):
                rest = [*foreign_kept, *foreign[foreign_before[at + run] :]]
                fewer = self._find_without_asked(right, order[at : at + run], rest)
            if fewer is not None:
                found, at, run = fewer, at + run, run * 2 if grows else max(1, run // 2)
            elif run > 1:
                run, grows = run // 2, False
            else:
                needed = order[at]
                kept.append(needed)
                foreign_kept += [] if needed.is_own else [needed]
                holds = _add(holds, self._read_asked(needed))
                own = _add(own, self._read_asked(needed)) if needed.is_own else own
                at, grows = at + 1, True
        keys = {candidate.key for candidate in (*kept, *order[at:])}
        return tuple(candidate for candidate in chosen if candidate.key in keys), found

    def _find_without_asked(self, right: Right, asked: Sequence[Candidate], rest: Sequence[Candidate]) -> Admissible | None:
        """How the workload is admitted with some of those that are gone back; these stay back if it is. `rest` are those that then are
        gone of other queues."""
        self._budget.charge(len(rest) // 10)
        if not self.rights.is_legal(rest):
            return None
        for candidate in asked:
            self.world.restore(candidate.key)
        found = self._find_now(may_borrow=right.may_borrow)
        if found is not None and self._is_fair(right, rest, found):
            return found
        for candidate in asked:
            self.world.remove(candidate.key)
        return None

    def _sum_up_to(self, order: Sequence[Candidate], *, own: bool = False) -> list[tuple[int, ...]]:
        """What the first 0, 1, 2, ... of an order hold of each of the `_shortages`, or those of the workload's own queue of them."""
        each = (self._read_asked(candidate) if candidate.is_own or not own else self._no_amounts for candidate in order)
        return list(accumulate(each, _add, initial=self._no_amounts))

    def _find_smaller(self, right: Right, allowed: list[Candidate], best: Set) -> Pieces[Set]:
        """Whether fewer would do, as far as all sets of a size can be tried."""
        for size in range(1, len(best[0])):
            if comb(len(allowed), size) > _EXACT or not self._budget.spend(0):
                break
            helping = yield from self._find_first_that_helps(right, sorted(combinations(allowed, size), key=compute_cost))
            if helping is not None:
                return helping
        return best

    # --- promising orders ---------------------------------------------------------------------------

    def _list_orders(self, allowed: list[Candidate]) -> Iterator[tuple[list[Candidate] | None, int]]:
        """Orders in which to add victims: domain by domain those that hold most there first, by cost, and by size. With each goes how many
        of it are needed at least, as far as that is known. None at an interruption."""
        sizes = {c.key: self._compute_size(c) for c in allowed}
        for name in self._queue.flavors:
            view = self.world.get_view(name)
            if view is not None:
                yield from self._list_orders_by_domain(view, allowed, sizes)
        yield allowed, 0
        yield sorted(allowed, key=lambda c: (-sizes[c.key], c.order)), 0

    def _compute_size(self, candidate: Candidate) -> float:
        """Returns the largest share of the requested quota that a candidate holds."""
        held = candidate.holds
        wanted = self.rights.wanted
        return max((held.get((flavor, r), 0) / wanted[r] for flavor, r in self.rights.names if wanted.get(r)), default=0.0)

    def _list_orders_by_domain(
        self, view: FlavorView, allowed: list[Candidate], sizes: Mapping[str, float]
    ) -> Iterator[tuple[list[Candidate] | None, int]]:
        pod_set = max(self._workload.pod_sets, key=lambda p: p.count)
        request = self._state.request_for(pod_set, view.flavor)
        shape = find_shape(view.capacity.tree, request)
        if not isinstance(shape, Shape) or request.topology is None or request.topology.mode not in (Mode.REQUIRED, Mode.PREFERRED):
            return
        self.admit_without((), may_borrow=True)
        changed, eligible = self.world.compute_free(view), view.capacity.find_eligible(request)
        free = view.capacity.free if changed is None else changed
        room = view.capacity.count_pods_that_fit(request, free) * eligible
        starts = view.capacity.tree.levels[shape.start].starts
        missing = pod_set.count - np.add.reduceat(room, starts)
        if (missing <= 0).any():
            return  # there is room without any preemption: a preempted workload releases quota only
        by_size = sorted(range(len(allowed)), key=lambda i: (-sizes[allowed[i].key], allowed[i].order))
        held: dict[int, dict[int, float]] = {}
        for at in range(0, len(allowed), _READ_AT_ONCE):
            yield None, 0
            self._count_pods_by_domain(view, starts, allowed, range(at, min(at + _READ_AT_ONCE, len(allowed))), pod_set, held)
        # What is free for a part of a pod counts, too: with that of a victim it may be enough for one.
        least_missing = pod_set.count - np.add.reduceat(_compute_open_shares(view, request, free) * eligible, starts) - _ROUNDING
        needed: list[tuple[int, int, int]] = []
        for domain, holders in held.items():
            pods = np.cumsum(-np.sort(-np.array(list(holders.values()))))
            enough = pods >= least_missing[domain]
            if enough.any():
                needed.append((int(enough.argmax()) + 1, int(missing[domain]), domain))
        for least, _, domain in sorted(needed)[:_DOMAINS]:
            in_it = held[domain]
            first = sorted(in_it, key=lambda i: (-in_it[i], -sizes[allowed[i].key], allowed[i].order))
            yield [allowed[i] for i in (*first, *(i for i in by_size if i not in in_it))], least

    def _count_pods_by_domain(
        self,
        view: FlavorView,
        starts: np.ndarray,
        allowed: Sequence[Candidate],
        some: Iterable[int],
        pod_set: PodSetFacts,
        counted: dict[int, dict[int, float]],
    ) -> None:
        """Adds how many pods of the pod set would about fit in what some candidates, by their place in the list, hold in each domain."""
        index = view.capacity.tree.index
        wanted = [(resource, amount) for resource, amount in pod_set.requests.items() if amount]
        at, fitting = list[int](), list[tuple[int, float]]()
        for i in some:
            for requests, nodes in self.world.find_held(allowed[i].key):
                ratio = max([requests.get(resource, 0) / amount for resource, amount in wanted], default=0.0)
                for name, count in nodes if ratio else ():
                    if (place := index.get(name)) is not None:
                        at.append(place)
                        fitting.append((i, count * ratio))
        self._budget.charge(len(at))
        domains = starts.searchsorted(np.array(at, dtype=np.int64), side="right") - 1
        for domain, (i, pods) in zip(domains.tolist(), fitting, strict=True):
            of_domain = counted.setdefault(domain, {})
            of_domain[i] = of_domain.get(i, 0.0) + pods


def _compute_open_shares(view: FlavorView, request: PodSetRequest, free: Matrix) -> np.ndarray:
    """Pods of a request that each node has room for, and parts of one; 0 where the view does not know a resource of it."""
    shares: np.ndarray = np.full(len(view.capacity.tree), np.inf)
    for resource, amount in with_pod(request.requests).items():
        row = view.capacity.axis.get(resource)
        np.minimum(shares, 0 if row is None else free[row] / amount, out=shares)
    np.maximum(shares, 0, out=shares)
    return shares


def _add(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(add, one, other))
