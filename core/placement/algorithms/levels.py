"""From a level down to the assignment: where to start, and how counts are handed to ever smaller domains."""

import numpy as np

from core.model.podset import Mode
from core.placement.algorithms.candidates import Candidates, Chosen
from core.placement.algorithms.domain_capacity import Fits
from core.placement.algorithms.least_free import fill_each
from core.placement.algorithms.partial_slice import add_partial, find_partial_home
from core.placement.algorithms.profile import Algorithm, Select
from core.placement.algorithms.slices import Shape
from core.placement.algorithms.spreading import SpreadRules
from core.placement.topology.tree import Indices, TopologyTree


def find_start(
    fits: Fits, shape: Shape, mode: Mode, algorithm: Algorithm, wanted: int, rules: SpreadRules | None = None
) -> tuple[int, Chosen] | None:
    """Returns the level at which the pod set fits, the domains there and the whole units on each; None if it does not fit. `wanted` counts
    the partial slice, too; a domain that has it alone has no units.

    A required level must hold everything in one domain; a preferred one widens to the level above until one domain holds everything, and at
    the top takes as many as needed; an unconstrained one takes as many as needed at once (KEP-2724, Computing the assignment). Only a
    required level has `rules`: the domain is one of those that they select of all that hold everything.
    """
    if rules is not None:
        return _find_start_by_rules(fits, shape, algorithm, wanted, rules)
    level = shape.start
    while True:
        candidates = fits.list_candidates(level, shape)
        whole = candidates if fits.left is None else candidates._replace(units=fits.count_all_units_at(level, shape))
        if _can_one_hold(whole, mode, algorithm, wanted):
            return level, choose_one(candidates, whole.units, shape, algorithm, wanted)
        if mode is Mode.REQUIRED and (not shape.auto or level == 0):
            return None
        if mode not in (Mode.REQUIRED, Mode.PREFERRED) or level == 0:
            spread = _select(fits, shape, algorithm, algorithm.spread, level, None, wanted)
            return (level, spread) if spread is not None else None
        level -= 1


def _find_start_by_rules(fits: Fits, shape: Shape, algorithm: Algorithm, wanted: int, rules: SpreadRules) -> tuple[int, Chosen] | None:
    for level in range(shape.start, rules.deepest - 1 if shape.auto else shape.start - 1, -1):
        candidates, whole = fits.list_candidates(level, shape), fits.count_all_units_at(level, shape)
        able = rules.select(level, (whole >= wanted).nonzero()[0])
        if len(able):
            chosen = choose_one(candidates.select(able), whole[able], shape, algorithm, wanted)
            return level, (able[chosen[0]], chosen[1])
    return None


def _can_one_hold(candidates: Candidates, mode: Mode, algorithm: Algorithm, wanted: int) -> bool:
    """Whether one domain holds everything. Preferred affinity outranks staying together, so where it counts
    only the domain that is first by it is asked, unless the level is required."""
    asked = candidates.units if candidates.scores is None or mode is Mode.REQUIRED else candidates.units[algorithm.order(candidates)[:1]]
    return int(asked.max()) >= wanted


def choose_one(candidates: Candidates, all_units: Indices, shape: Shape, algorithm: Algorithm, wanted: int) -> Chosen:
    """Returns the position of one candidate that holds all units, with its whole units; `all_units` and `wanted` count the partial slice,
    too. At least one must hold them."""
    if not shape.tail:
        chosen = algorithm.choose(candidates, wanted)
        assert chosen is not None
        return chosen
    holds = (all_units >= wanted).nonzero()[0]
    chosen = algorithm.choose(candidates.select(holds), wanted - 1)
    assert chosen is not None
    return holds[chosen[0]], chosen[1]


def _select(
    fits: Fits, shape: Shape, algorithm: Algorithm, select: Select, level: int, among: Indices | None, wanted: int
) -> Chosen | None:
    """What `select` chooses of some domains of a level (None: all), as positions among them, and with room for the partial slice."""
    candidates = fits.list_candidates(level, shape) if among is None else fits.select_candidates(level, shape, among)
    if not shape.tail:
        return select(candidates, wanted)
    assert fits.left is not None
    chosen = select(candidates, wanted - 1)
    left = fits.left[level] if among is None else fits.left[level][among]
    return None if chosen is None else add_partial(candidates, left, shape.tail, algorithm, chosen)


def assign_below(tree: TopologyTree, fits: Fits, shape: Shape, algorithm: Algorithm, level: int, chosen: Chosen) -> Chosen:
    """Returns domains of the lowest declared level and pods on each, in the order of level values; `chosen` has domains of `level` and
    whole units, which their children must hold, with the partial slice of the shape.

    Above the slices the children of all chosen domains are candidates together. From the slices down each domain's own children share what
    it was given, in whole groups of the next layer if there is one. Within a slice the fullest children are filled first, whatever the
    algorithm.
    """
    domains, units = chosen
    while level < min(shape.slice_level, tree.lowest):
        pool = tree.list_children_of_all(level, domains)
        level += 1
        domains, units = assign_children(fits, shape, algorithm, level, pool, int(units.sum()) + (shape.tail > 0))
    pods = units * (shape.slice_size if level <= shape.slice_level else shape.count_unit_below(level))
    if shape.tail:
        assert fits.left is not None
        pods[find_partial_home(fits.units[level][domains], fits.left[level][domains], shape.tail, units)] += shape.tail
    while level < tree.lowest:
        level += 1
        domains, pods = assign_children_of_each(tree, fits, shape, level, domains, pods)
    order = domains.argsort()
    return domains[order], pods[order]


def assign_children(fits: Fits, shape: Shape, algorithm: Algorithm, level: int, candidates: Indices, wanted: int) -> Chosen:
    """Returns which of some domains of a level (`candidates`: indexes) are used and the whole units on each, `wanted` in all with the
    partial slice; they must hold that. The algorithm's `fill` chooses."""
    chosen = _select(fits, shape, algorithm, algorithm.fill, level, candidates, wanted)
    # What fits in a domain is the sum of what fits in its children, so the children always hold it.
    assert chosen is not None, f"level {level} lost capacity on the way down"
    return candidates[chosen[0]], chosen[1]


def assign_children_of_each(tree: TopologyTree, fits: Fits, shape: Shape, level: int, parents: Indices, pods: Indices) -> Chosen:
    """Returns children of domains of the level above (`parents`) and the pods on each, out of what the own parent was given (`pods`); the
    fullest children first, in whole groups of the next layer of slices. Parents may be in any order; the result is by ascending parent."""
    size = shape.count_unit_below(level)
    order = parents.argsort()
    parents, pods = parents[order], pods[order]
    children = tree.list_children_of_all(level - 1, parents)
    counts = tree.count_children(level - 1, parents)
    of = np.arange(len(parents)).repeat(counts)
    chosen, units = fill_each(fits.select_candidates(level, shape, children), of, pods // size if size > 1 else pods)
    return children[chosen], units * size
