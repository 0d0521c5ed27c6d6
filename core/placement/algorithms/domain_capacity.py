"""How many pods and how many slices fit on every node and in every domain, bottom up (KEP-2724, Two-level scheduling).

What a request shape was counted to fit is kept with the view and, when asked for again, mended where
nodes have changed since: a workload that waits, or the next of a hundred equal jobs, costs only the
nodes that moved.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from core.model.pod_resources import Resources
from core.model.podset import PodSetRequest
from core.placement.algorithms.candidates import Candidates
from core.placement.algorithms.own_limit import limit_own
from core.placement.algorithms.slices import Shape
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.tree import Flags, Indices, TopologyTree

_FEW_NODES = 4096  # it is faster to count so few nodes again than to find those that changed


@dataclass(frozen=True, slots=True)
class Fits:
    """Per declared level: pods that fit in each domain, from the slice level up whole slices, and the sum
    of its nodes' preferred-affinity scores where these count.

    `left`, only where a shape has a partial slice and only from the slice level up, are the most pods that fit into a slice domain beside
    all its whole slices. A partial slice has fewer pods than a whole one. So a domain holds it beside as many whole slices as it can hold
    if that is enough, else beside one fewer, whichever slice domains these are in.
    """

    pods: tuple[Indices, ...]
    units: tuple[Indices, ...]
    scores: tuple[Indices, ...] | None = None
    left: tuple[Indices, ...] | None = None

    def count_units_at(self, level: int, shape: Shape) -> Indices:
        """Returns, per domain of a level, the units that fit: whole slices at the slice level and above; below it groups of the next
        finer layer, else pods. The array may be the one that is kept, and must not be changed."""
        if level <= shape.slice_level:
            return self.units[level]
        size = shape.count_unit_below(level)
        return self.pods[level] if size == 1 else self.pods[level] // size

    def count_all_units_at(self, level: int, shape: Shape) -> Indices:
        """Returns what `count_units_at` does, with one unit more where the partial slice fits beside all the others."""
        units = self.count_units_at(level, shape)
        return units if self.left is None or level > shape.slice_level else units + (self.left[level] >= shape.tail)

    def list_candidates(self, level: int, shape: Shape) -> Candidates:
        """Returns all domains of a level to choose among, in their order: units (`count_units_at`), pods, and scores where these count."""
        return Candidates(self.count_units_at(level, shape), self.pods[level], None if self.scores is None else self.scores[level])

    def select_candidates(self, level: int, shape: Shape, chosen: Indices) -> Candidates:
        """Returns some domains of a level, by index (`chosen`), to choose among, in that order."""
        return self.list_candidates(level, shape).select(chosen)


@dataclass(slots=True)
class NodeFits:
    """Pods of one request shape that each node holds (0 where it may not go), and what was summed over them.

    Right up to `position` in the view's log of changes; where nodes changed since, `fits_on_nodes` mends
    all of it in place. Good for one solve, as the view is.
    """

    position: int
    eligible: Flags
    per_node: Indices
    by_shape: dict[tuple[int, tuple[int, ...]], Fits] = field(default_factory=dict)

    def sum_up(self, tree: TopologyTree, shape: Shape) -> Fits:
        """Returns what fits in every domain for a shape, counted once for each shape; it is kept, and must not be changed."""
        key = (shape.slice_level, shape.sizes)
        found = self.by_shape.get(key)
        if found is None:
            found = self.by_shape[key] = _count_sums(tree, shape, self.per_node)
        return with_left(tree, shape, found) if shape.tail else found

    def close_nodes(self, closed: Flags) -> "NodeFits":
        """Returns a copy in which some nodes (a flag per node) may not be used, with nothing summed over them yet."""
        return NodeFits(self.position, self.eligible & ~closed, np.where(closed, 0, self.per_node))


def fits_on_nodes(
    view: FreeCapacity, request: PodSetRequest, free: Matrix | None = None, beside: tuple[Resources, int] | None = None
) -> NodeFits:
    """Returns the pods of a request that each node holds, 0 where it may not go. With `beside` (requests of one other pod, and a number of
    them) so many others are on each node first.

    It is kept with the view and mended in place by a later call. With `free`, which replaces the view's own matrix, it is counted anew each
    time, and so it is where other pods decide. Raises InvalidSelector where the request's node affinity cannot be evaluated.
    """
    if free is not None or view.is_particular(request.traits):
        return _count_nodes(view, request, view.free if free is None else free, beside)
    key = request_shape(view, request, beside)
    kept: NodeFits | None = view.kept.pop(key, None)
    changed = view.find_changed_since(kept.position) if kept is not None else None
    if kept is None or changed is None or (len(changed) and len(changed) * 8 + _FEW_NODES > len(view.tree)):
        kept = _count_nodes(view, request, view.free, beside)
    elif len(changed):
        _update_fits(view, request, beside, kept, changed)
    view.cache(key, kept)
    return kept


def request_shape(view: FreeCapacity, request: PodSetRequest, beside: tuple[Resources, int] | None = None) -> Hashable:
    """Returns a key of all that defines how many pods fit on a node as far as other pods do not decide: requests, node selector,
    affinity, tolerations and `beside`. Equal requests have the same; count and topology are not in it."""
    return (
        frozenset(request.requests.items()),
        frozenset(request.node_selector.items()),
        view.build_key(request.affinity),
        view.build_key(request.tolerations),
        None if beside is None else (frozenset(beside[0].items()), beside[1]),
    )


def _count_nodes(view: FreeCapacity, request: PodSetRequest, free: Matrix, beside: tuple[Resources, int] | None) -> NodeFits:
    eligible = view.find_eligible(request)
    per_node = view.count_pods_that_fit(request, free, beside=beside)
    per_node *= eligible
    if request.traits.is_particular:
        limit_own(view, request, per_node)
    return NodeFits(view.position, eligible, per_node)


def _update_fits(
    view: FreeCapacity, request: PodSetRequest, beside: tuple[Resources, int] | None, kept: NodeFits, changed: Indices
) -> None:
    kept.eligible[changed] = eligible = view.find_eligible(request, changed)
    kept.per_node[changed] = view.count_pods_that_fit(request, view.free, changed, beside) * eligible
    kept.position = view.position
    for (slice_level, sizes), fits in kept.by_shape.items():
        _update_sums(view.tree, slice_level, sizes, kept.per_node, fits, changed)


def count_fits(tree: TopologyTree, shape: Shape, per_node: Indices) -> Fits:
    """Returns the pods that fit in each domain of each declared level, summed from `per_node` up; at a level with a slice layer only whole
    slices count. It has `left` where the shape has a partial slice."""
    fits = _count_sums(tree, shape, per_node)
    return with_left(tree, shape, fits) if shape.tail else fits


def with_left(tree: TopologyTree, shape: Shape, fits: Fits) -> Fits:
    """Returns a copy of fits for a shape with a single layer of slices that has `left`, too."""
    left = [fits.pods[shape.slice_level] % shape.slice_size]
    for level in range(shape.slice_level - 1, -1, -1):
        left.insert(0, tree.reduce_children(np.maximum, level, left[0]))
    return replace(fits, left=tuple(left))


def _count_sums(tree: TopologyTree, shape: Shape, per_node: Indices) -> Fits:
    lowest = tree.lowest
    pods: list[Indices] = [per_node] * (lowest + 1)
    units: list[Indices] = [per_node] * (lowest + 1)
    here = tree.sum_nodes(lowest, per_node)
    for level in range(lowest, -1, -1):
        if level < lowest:
            here = tree.sum_children(level, here)
        size = shape.sizes[level]
        if level > shape.slice_level and size > 1:
            here = here // size * size
        pods[level] = here
        if level == shape.slice_level and shape.slice_size > 1:
            units[level] = here // shape.slice_size
        elif level < shape.slice_level and units[level + 1] is not pods[level + 1]:
            units[level] = tree.sum_children(level, units[level + 1])
        else:
            units[level] = here
    return Fits(tuple(pods), tuple(units))


def _update_sums(tree: TopologyTree, slice_level: int, sizes: tuple[int, ...], per_node: Indices, fits: Fits, changed: Indices) -> None:
    """As `count_fits`, for the domains of the nodes that changed alone."""
    lowest, at = tree.lowest, changed
    if tree.is_hostname:
        held = per_node[at]
    else:
        at = tree.find_parents(lowest + 1, at)
        held = tree.reduce_children(np.add, lowest, per_node, at)
    for level in range(lowest, -1, -1):
        if level < lowest:
            at = tree.find_parents(level + 1, at)
            held = tree.reduce_children(np.add, level, fits.pods[level + 1], at)
        if level > slice_level and sizes[level] > 1:
            held = held // sizes[level] * sizes[level]
        fits.pods[level][at] = held
        if level == slice_level and sizes[level] > 1:
            fits.units[level][at] = held // sizes[level]
        elif fits.units[level] is not fits.pods[level]:
            fits.units[level][at] = tree.reduce_children(np.add, level, fits.units[level + 1], at)
