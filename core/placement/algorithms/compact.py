"""The `compact` profile: the most compact of all answers that keep what the request asks for.

What it minimises is defined in `measure`: the domains used per level from the top, and among as few of them what is left
over. Every mode is served by this one measure. Where a domain of the level asked for holds all pods, the fewest
domains of that level and above are one each, which is what `required` and `preferred` want; where none does, a
preferred or unconstrained pod set uses as few as there need be.

How it searches. The lowest level at which some domain, a *home*, holds everything alone is found first; all
levels above use one domain, and the next level as many as its largest domains need. From there on a choice of domains
is a covering: each domain offers, for every number of units, the least cost of holding them inside it, where the cost
is the measure of what it uses, written as one number; the least sum is found by dynamic programming over the units
(`cover`). In the last step, from a home to its lowest domains, the fewest are the largest, and only what can be
exchanged for a better fit is in doubt. So the answer is exact, and homes are judged in the order of what they may come
to at best, until no other can be better.

The search counts its steps and stops at `STEP_LIMIT`. Costs inside racks are then taken from their largest nodes,
which keeps the counts exact but not what is left over, and if that is too much, too, the answer of the `kep` profile
stands. It competes in any case, so that no answer is ever less compact than that of `kep`. What is proven is described in
`CompactSearch`: no answer's measure is below its bound. Of equal answers `kep`'s is taken, then
one in the tightest home, BestFit's before others, then the first by level values. The decision is charged for the
steps; one that has none left takes the answer of `kep`, without a search.
"""

import numpy as np

from core.placement.algorithms import best_fit
from core.placement.algorithms.candidates import Chosen
from core.placement.algorithms.compactness import CompactSearch, Measure, measure
from core.placement.algorithms.cover import NEVER, OutOfSteps, SizeCosts, Steps, compute_fewest, cover, cover_with_fewest, read_offer, trace
from core.placement.algorithms.domain_capacity import Fits
from core.placement.algorithms.levels import assign_below
from core.placement.algorithms.profile import BEST_FIT
from core.placement.algorithms.slices import Shape
from core.placement.topology.tree import Indices, TopologyTree

STEP_LIMIT = 1_500_000  # cells touched, and what calls cost beside that: some five milliseconds
CELLS_A_STEP = 300  # of the decision's budget
_MOST_COST = NEVER // 4


def place_compact(tree: TopologyTree, fits: Fits, shape: Shape, count: int, standard: Chosen) -> tuple[Chosen, CompactSearch]:
    """Returns domains of the lowest level, ascending, pods on each, and what the search came to. Out of steps it is the best answer that
    was found.

    `standard`, such domains and their pods, is the answer that must not be less compact, and stands where none is more compact; `count` are
    pods.
    """
    steps = Steps(STEP_LIMIT)
    problem = _Problem(tree, fits, shape, count)
    level, homes, leasts = problem.find_homes()
    answers = [(measure(tree, fits, standard[0], count), standard)]
    if leasts[0] < answers[0][0] and level < tree.lowest:
        quick = problem.fill_largest(level, int(homes[0]))
        answers.append((measure(tree, fits, quick[0], count), quick))
    best, chosen = min(answers, key=lambda answer: answer[0])
    bounds = [best]
    for home, least in zip(homes.tolist(), leasts, strict=True):
        if least >= best:
            break
        answer, bound = _judge(problem, level, home, least, steps)
        if answer is not None:
            reached = measure(tree, fits, answer[0], count)
            chosen, best = (answer, reached) if reached < best else (chosen, best)
            bound = bound or reached
        bounds.append(bound or least)
    return chosen, CompactSearch(best, min([best, *bounds]), steps.spent)


def _judge(problem: "_Problem", level: int, home: int, least: Measure, steps: Steps) -> tuple[Chosen | None, Measure | None]:
    """The best answer found within a home, and a bound of all answers there (None: it is the best there is)."""
    for exact in (True, False):
        try:
            choice = _Choice(problem, level, home, exact, steps)
            answer = choice.choose()
        except OutOfSteps:
            continue
        if exact and choice.weighs_all:
            return answer, None
        return answer, (*measure(problem.tree, problem.fits, answer[0], problem.count)[:-1], least[-1])
    return None, least


class _Problem:
    """What is to be placed, counted per level in the units that are handed out there: `caps` of `units` pods each."""

    def __init__(self, tree: TopologyTree, fits: Fits, shape: Shape, count: int) -> None:
        self.tree, self.fits, self.shape, self.count = tree, fits, shape, count
        levels = range(tree.lowest + 1)
        self.units = [shape.slice_size if level <= shape.slice_level else shape.count_unit_below(level) for level in levels]
        self.caps = [fits.count_units_at(level, shape) for level in levels]
        self.wanted = [count // unit for unit in self.units]

    def list_children(self, level: int, domains: Indices) -> tuple[Indices, Indices]:
        """Domains of the level below, and how many of them each domain has; above the top level is one that has all."""
        if level < 0:
            count = self.tree.levels[0].count
            return np.arange(count), np.array([count])
        return self.tree.list_children_of_all(level, domains), self.tree.count_children(level, domains)

    def fill_largest(self, level: int, home: int) -> Chosen:
        """An answer within a home as BestFit has it: at once, and seldom far from the best."""
        if level < 0:
            start = best_fit.fill(self.fits.list_candidates(0, self.shape), self.wanted[0])
            assert start is not None  # all together hold it
            return assign_below(self.tree, self.fits, self.shape, BEST_FIT, 0, start)
        whole = np.array([home]), np.array([self.wanted[level]])
        return assign_below(self.tree, self.fits, self.shape, BEST_FIT, level, whole)

    def find_homes(self) -> tuple[int, Indices, list[Measure]]:
        """The level of the homes, those that may have the best answer, and what each may come to at best, ascending."""
        level, homes = -1, np.array([0])
        while level < self.tree.lowest:
            holding = (self.caps[level + 1] >= self.wanted[level + 1]).nonzero()[0]
            if not len(holding):
                break
            level, homes = level + 1, holding
        if level < self.tree.lowest:
            children, sizes = self.list_children(level, homes)
            needed = _compute_fewest_each(self.caps[level + 1][children], sizes, self.wanted[level + 1])
            homes = homes[needed == needed.min()]
        columns = self._compute_least(level, homes)
        keys = [*columns, *self._compute_room_around(level, homes)]
        if level == self.tree.lowest:  # nothing below is open, so the first of the least is the answer
            order = np.arange(len(homes))
            for key in keys:
                order = order[key[order] == key[order].min()]
            order = order[:1]
        else:
            order = np.lexsort(keys[::-1])
        return level, homes[order], list(zip(*(column[order].tolist() for column in columns), strict=True))

    def _compute_least(self, level: int, homes: Indices) -> list[Indices]:
        """What the answers within each home come to at best: one column per entry of the measure."""
        lowest, nothing = self.tree.lowest, np.zeros(len(homes), dtype=np.int64)
        used = [nothing + 1] * (lowest + 1)
        below, sizes = homes, nothing + 1
        for here in range(level + 1, lowest + 1):
            below, counts = self.list_children(here - 1, below)
            sizes = np.add.reduceat(counts, sizes.cumsum() - sizes)
            used[here] = _compute_fewest_each(self.caps[here][below], sizes, self.wanted[here])
        return [*used, self.fits.pods[lowest][homes] - self.count if level == lowest else nothing]

    def _compute_room_around(self, level: int, homes: Indices) -> list[Indices]:
        """Pods that each home and the domains it lies in hold, from the home up: of equal homes the tightest is tried first."""
        rooms = []
        for here in range(level, -1, -1):
            rooms.append(self.fits.pods[here][homes])
            homes = self.tree.levels[here].parents[homes]
        return rooms


class _Choice:
    """The search within one home; `exact` or with the costs inside the last but one level taken from the largest domains.

    `weighs_all` is whether all of the measure went into the costs: numbers have an end.
    """

    def __init__(self, problem: _Problem, level: int, home: int, exact: bool, steps: Steps) -> None:
        self._problem, self._level, self._home, self._exact, self._steps = problem, level, home, exact, steps
        self._used, self._left, self.weighs_all = self._weigh()
        self._leaf_tables: dict[tuple[int, bytes], Indices] = {}

    def _weigh(self) -> tuple[list[int], int, bool]:
        """What a domain used costs, per level, and a pod left over."""
        problem, lowest = self._problem, self._problem.tree.lowest
        below, most = np.array([self._home]), {}
        for level in range(self._level + 1, lowest + 1):
            below, _ = problem.list_children(level - 1, below)
            most[level] = min(len(below), problem.count)
        room = int(problem.fits.pods[lowest][below].sum())
        for left, weight in ((1, room + 1), (0, 1)):
            used = [0] * (lowest + 1)
            for level in range(lowest, self._level, -1):
                used[level], weight = weight, weight * (most[level] + 1)
            if weight <= _MOST_COST:
                return used, left, left > 0
        raise OutOfSteps

    def choose(self) -> Chosen:
        """Domains of the lowest level, ascending, and pods on each."""
        problem = self._problem
        if self._level == problem.tree.lowest:
            return np.array([self._home]), np.array([problem.count])
        parts = self._choose(self._level, self._home, problem.wanted[self._level + 1])
        domains, pods = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = domains.argsort()
        return domains[order], pods[order]

    def _choose(self, level: int, home: int, wanted: int) -> list[Chosen]:
        problem, below = self._problem, level + 1
        children, _ = problem.list_children(level, np.array([home]))
        caps = problem.caps[below][children]
        if below == problem.tree.lowest:
            self._steps.spend(len(caps), 12)
            chosen = children[cover_with_fewest(caps, problem.fits.pods[below][children], wanted, self._steps)]
            held = problem.caps[below][chosen]
            units = np.minimum(np.maximum(wanted - (held.cumsum() - held), 0), held)
            return [(chosen, units * problem.units[below])]
        # With as few as can be, each must hold what the largest others leave over.
        largest = -np.sort(-caps)
        needed = compute_fewest(caps, wanted)
        least = max(1, wanted - int(largest[: needed - 1].sum()))
        children, caps = children[caps >= least], caps[caps >= least]
        self._estimate_work(below, children, np.minimum(caps, wanted) - least + 1, wanted)
        offers = [self._compute_offer(below, child, wanted, least) for child in children.tolist()]
        parts: list[Chosen] = []
        for place, size in trace(offers, cover(offers, wanted, self._steps), wanted):
            parts += self._choose(below, int(children[place]), size * self._compute_ratio(below))
        return parts

    def _estimate_work(self, level: int, domains: Indices, sizes: Indices, wanted: int) -> None:
        """Gives up before anything is counted if it will be too much: so many sizes at most of each domain, or one a leaf."""
        counts = np.ones_like(sizes)
        for lower in range(level, self._problem.tree.lowest):
            domains, children = self._problem.list_children(lower, domains)
            counts = np.add.reduceat(children, counts.cumsum() - counts)
        cells = int((sizes if self._exact else np.minimum(sizes, counts)).sum()) * (wanted + 1)
        self._steps.expect(cells, 12 * len(sizes) + (len(domains) if self._exact else 0))

    def _compute_ratio(self, level: int) -> int:
        """Units of the level below in one unit of a level."""
        return self._problem.units[level] // self._problem.units[level + 1]

    def _compute_offer(self, level: int, domain: int, wanted: int, least: int = 1) -> SizeCosts:
        """What a domain above the lowest level offers, of sizes from `least` to `wanted`."""
        problem, below, ratio = self._problem, level + 1, self._compute_ratio(level)
        most = min(int(problem.caps[level][domain]), wanted)
        children, _ = problem.list_children(level, np.array([domain]))
        if below == problem.tree.lowest:
            costs = self._compute_leaf_costs(children, most * ratio)
        else:
            children = children[problem.caps[below][children] > 0]
            costs = cover([self._compute_offer(below, child, most * ratio) for child in children.tolist()], most * ratio, self._steps)[-1]
        sizes, costs = read_offer(costs[::ratio], most)
        return SizeCosts(sizes[sizes >= least], costs[sizes >= least] + self._used[level])

    def _compute_leaf_costs(self, leaves: Indices, most: int) -> Indices:
        """The least cost of holding 0, 1, 2, ... `most` units in domains of the lowest level."""
        problem, lowest = self._problem, self._problem.tree.lowest
        pods = np.sort(problem.fits.pods[lowest][leaves])[::-1]
        key = (most, pods.tobytes())
        if key not in self._leaf_tables:
            self._steps.spend(len(leaves), 8)
            caps = pods // problem.units[lowest]
            pods, caps = pods[caps > 0], caps[caps > 0]
            own = self._used[lowest] + self._left * pods
            if self._exact and len(pods) and pods[0] != pods[-1]:
                self._leaf_tables[key] = self._cover_leaves(caps, own, most)
            else:
                sums = np.append(0, own.cumsum())
                self._leaf_tables[key] = sums[np.append(0, caps.cumsum()).searchsorted(np.arange(most + 1))]
        return self._leaf_tables[key]

    def _cover_leaves(self, caps: Indices, own: Indices, most: int) -> Indices:
        self._steps.spend(len(caps) * (most + 1), len(caps))
        offers = [SizeCosts(caps[i : i + 1], own[i : i + 1]) for i in range(len(caps))]
        return cover(offers, most, Steps(NEVER))[-1]


def _compute_fewest_each(caps: Indices, sizes: Indices, wanted: int) -> Indices:
    """Per run of so many domains: how few of them hold `wanted`; they do together."""
    ends = sizes.cumsum()
    starts = ends - sizes
    # One sort of numbers sorts every run on its own, largest first.
    above = np.arange(1, len(sizes) + 1).repeat(sizes) * (int(caps.max()) + 1)
    ordered = above - np.sort(above - caps)
    sums = ordered.cumsum()
    needed: Indices = sums.searchsorted(sums[starts] - ordered[starts] + wanted) - starts + 1
    return needed
