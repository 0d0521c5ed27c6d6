"""What the engine decides: a place for every pod set, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.model.podset import Mode, PodSetRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.placement.algorithms.compactness import CompactSearch
from core.placement.algorithms.slices import Shape
from core.placement.refusals import NotFit
from core.placement.topology.free_capacity import FreeCapacity, Matrix, subtract_at, with_pod
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import Indices, TopologyTree


@dataclass(frozen=True, slots=True)
class PodSetPlacement:
    """Where one pod set goes: the assignment, and the node each pod is counted on.

    Where the lowest level is no hostname, `nodes` is how the engine showed that the pods fit, not
    where they will be bound.
    """

    pod_set: str
    assignment: TopologyAssignment
    level: str  # the level at which the pod set fits in the domains chosen
    nodes: Sequence[tuple[str, int]]  # each once
    spares: Sequence[tuple[str, int]] = ()  # nodes kept free for it, and the pods that each has room for
    search: CompactSearch | None = None  # how compact the answer is, where the profile looks for that

    @property
    def spare_names(self) -> tuple[str, ...]:
        """Names of the nodes that are kept free for it."""
        return tuple(name for name, _ in self.spares)


@dataclass(frozen=True, slots=True)
class Decision:
    """Placements in the order of the requests; if `refusal` is set, only of the pod sets before it.

    `looked_ahead`: placed one after the other the pod sets would not have fitted.
    """

    placements: tuple[PodSetPlacement, ...]
    refusal: NotFit | None = None
    looked_ahead: bool = False


def subtract_pods(view: FreeCapacity, free: Matrix, request: PodSetRequest, nodes: Sequence[tuple[str, int]], times: int = 1) -> None:
    """Subtracts pods on nodes (names, each once, and pods) from a free matrix of the view's shape, in place; with `times` -1 it adds them
    back. Each uses its requests and one of `pods`. Nodes and resources that the view has not are left out; amounts are cut at `LARGEST`."""
    if isinstance(nodes, NodeCounts) and nodes.tree is view.tree:
        at, counts = nodes.at, nodes.counts
    else:
        known = [(place, count) for name, count in nodes if (place := view.tree.index.get(name)) is not None]
        at, counts = np.array(known, dtype=np.int64).reshape(-1, 2).T
    for resource, amount in with_pod(request.requests).items():
        if resource in view.axis:
            subtract_at(free[view.axis[resource]], at, amount, times * counts)


def subtract_placement(view: FreeCapacity, free: Matrix, request: PodSetRequest, placement: PodSetPlacement) -> None:
    """Subtracts what a pod set was given, spares included, from a free matrix of the view's shape, in place; see `subtract_pods`."""
    subtract_pods(view, free, request, placement.nodes)
    if placement.spares:
        subtract_pods(view, free, request, placement.spares)


def emit(view: FreeCapacity, request: PodSetRequest, per_node: Indices, shape: Shape) -> PodSetPlacement:
    """Returns the placement of a pod set with `per_node` pods on the nodes of the tree, domains in their order, a partial slice last.

    Its level is, where one is required or preferred, the lowest from the start of `shape` upwards at which one domain has them all; else
    that start.
    """
    tree = view.tree
    counts = tree.sum_nodes(tree.lowest, per_node)
    domains = tuple(DomainCount(tree.emitted[domain], int(counts[domain])) for domain in np.flatnonzero(counts))
    level = shape.start
    bound = request.topology is not None and request.topology.mode in (Mode.REQUIRED, Mode.PREFERRED)
    while bound and level > 0 and np.count_nonzero(tree.sum_nodes(level, per_node)) > 1:
        level -= 1
    used = np.flatnonzero(per_node)
    assignment = order_assignment(tree, shape, np.flatnonzero(counts), TopologyAssignment(tree.emitted_levels, domains))
    return PodSetPlacement(request.name, assignment, tree.declared[level], NodeCounts(tree, used, per_node[used]))


def order_assignment(tree: TopologyTree, shape: Shape, domains: Indices, assignment: TopologyAssignment) -> TopologyAssignment:
    """Returns an assignment to some domains of the lowest level (`domains`: indexes, one for each of its own) with the partial slice of the
    shape last; the same object if there is none."""
    if not shape.tail:
        return assignment
    starts = tree.levels[tree.lowest].starts[domains]
    homes = tree.levels[shape.slice_level].starts.searchsorted(starts, side="right")
    return assignment.move_partial_last(homes.tolist(), shape.slice_size)
