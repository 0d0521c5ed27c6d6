"""`place`: the one entry to the engine. Pure and deterministic: the same view and requests give the same answer,
in whatever order nodes and labels came."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.model.assignment import DomainCount, TopologyAssignment
from core.model.podset import PodSetRequest, TopologyRequest
from core.placement.balanced import place_balanced, place_group_balanced
from core.placement.capacity import Fits, NodeFits, fits_on_nodes
from core.placement.explain import NotFit, Refusal
from core.placement.feasibility import InvalidSelector
from core.placement.free import FreeCapacity, Matrix, with_pod
from core.placement.groups import descend_group, find_group_start, fits_of_group, split_roles
from core.placement.levels import descend, find_start
from core.placement.node_counts import NodeCounts
from core.placement.profile import Profile
from core.placement.refusal import refuse, refuse_without_nodes
from core.placement.slices import Shape, find_shape
from core.placement.tree import Indices, TopologyTree


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one pod set goes: the assignment, and the node each pod is counted on.

    Where the lowest level is no hostname, `nodes` is how the engine showed that the pods fit, not
    where they will be bound.
    """

    pod_set: str
    assignment: TopologyAssignment
    level: str  # the level at which the pod set fits in the domains chosen
    nodes: Sequence[tuple[str, int]]  # each once


@dataclass(frozen=True, slots=True)
class Decision:
    """Placements in the order of the requests; if `refusal` is set, only of the pod sets before it."""

    placements: tuple[Placement, ...]
    refusal: NotFit | None = None


def place(view: FreeCapacity, requests: Sequence[PodSetRequest], profile: Profile, *, free: Matrix | None = None) -> Decision:
    """Places pod sets one after the other, each seeing what those before it take.

    `free` replaces the view's own free matrix (what-if); it is not changed.
    """
    placed: dict[str, Placement] = {}
    units = _units(requests)
    for i, unit in enumerate(units):
        outcome = _place_group(view, unit, profile, free) if len(unit) == 2 else _place_one(view, unit[0], profile, free)
        if isinstance(outcome, NotFit):
            return Decision(_in_order(requests, placed), outcome)
        placed |= {placement.pod_set: placement for placement in outcome}
        if i + 1 < len(units):
            free = (view.free if free is None else free).copy() if i == 0 else free
            assert free is not None
            for request in unit:
                take_from(view, free, request, placed[request.name].nodes)
    return Decision(_in_order(requests, placed))


def _units(requests: Sequence[PodSetRequest]) -> list[tuple[PodSetRequest, ...]]:
    """What is placed together, in the order of the first of each: pairs of one group, all else alone."""
    members: dict[str, list[PodSetRequest]] = {}
    for request in requests:
        if request.topology is not None and request.topology.group:
            members.setdefault(request.topology.group, []).append(request)
    units: list[tuple[PodSetRequest, ...]] = []
    for request in requests:
        group = members.get((request.topology.group or "") if request.topology is not None else "", [])
        if len(group) != 2:
            units.append((request,))
        elif request is group[0]:
            units.append(tuple(group))
    return units


def _in_order(requests: Sequence[PodSetRequest], placed: Mapping[str, Placement]) -> tuple[Placement, ...]:
    return tuple(placed[request.name] for request in requests if request.name in placed)


def take_from(view: FreeCapacity, free: Matrix, request: PodSetRequest, nodes: Sequence[tuple[str, int]], times: int = 1) -> None:
    """Subtracts pods on nodes, each named once, from a free matrix of the view's shape, in place (gives back if `times`
    is -1); nodes and resources it has not do not count."""
    if isinstance(nodes, NodeCounts) and nodes.tree is view.tree:
        at, counts = nodes.at, nodes.counts
    else:
        known = [(place, count) for name, count in nodes if (place := view.tree.index.get(name)) is not None]
        at, counts = np.array(known, dtype=np.int64).reshape(-1, 2).T
    for resource, amount in with_pod(request.requests).items():
        if resource in view.axis:
            free[view.axis[resource], at] -= amount * times * counts


def _place_one(view: FreeCapacity, request: PodSetRequest, profile: Profile, free: Matrix | None) -> tuple[Placement] | NotFit:
    found = _resolve(view, request, free)
    if isinstance(found, NotFit):
        return found
    tree, (shape, on_nodes, topology) = view.tree, found
    fits, scores = on_nodes.sum_up(tree, shape), _scores(view, request, profile, on_nodes)
    if scores is not None:
        fits = replace(fits, scores=scores)
    algorithm = profile.algorithm(topology.mode)
    wanted = request.count // shape.slice_size
    if profile.balances(topology.mode) and (balanced := place_balanced(tree, fits, shape, wanted)) is not None:
        return (_placement(view, request, balanced[0], on_nodes.per_node, *balanced[1:]),)
    start = find_start(fits, shape, topology.mode, algorithm, wanted)
    if start is None:
        return _refuse(view, request, shape, fits, on_nodes, free)
    level, chosen = start
    domains, pods = descend(tree, fits, shape, algorithm, level, chosen)
    return (_placement(view, request, level, on_nodes.per_node, domains, pods),)


def _place_group(
    view: FreeCapacity, unit: tuple[PodSetRequest, ...], profile: Profile, free: Matrix | None
) -> tuple[Placement, Placement] | NotFit:
    """A leader and its workers, each by its own selectors, requests and tolerations."""
    workers, leader = split_roles(*unit)
    names = (workers.name, leader.name)
    # Leader and workers share a place by the workers' topology; the leader itself is never sliced.
    sliced = leader.topology is not None and leader.topology.slices
    whole = replace(leader, topology=replace(leader.topology, slices=())) if leader.topology is not None and sliced else leader
    found, of_leader = _resolve(view, workers, free), _resolve(view, whole, free)
    if isinstance(found, NotFit):
        return replace(found, group=names)
    if isinstance(of_leader, NotFit):
        return replace(of_leader, group=names)
    tree, (shape, on_nodes, topology) = view.tree, found
    group = fits_of_group(view, workers, whole, free)
    fits = group.sum_up(tree, shape)
    scores = _scores(view, workers, profile, on_nodes)
    if scores is not None:
        fits = replace(fits, alone=replace(fits.alone, scores=scores), beside=replace(fits.beside, scores=scores))
    algorithm = profile.algorithm(topology.mode)
    wanted = workers.count // shape.slice_size
    if profile.balances(topology.mode) and (balanced := place_group_balanced(tree, fits, shape, wanted)) is not None:
        level, domains, pods, home = balanced
    else:
        start = find_group_start(fits, shape, topology.mode, algorithm, wanted)
        if start is None:
            return replace(_refuse(view, workers, shape, fits.beside, on_nodes, free), group=names)
        level, chosen = start
        domains, pods, home = descend_group(tree, fits, shape, algorithm, level, chosen)
    # Of the nodes of its domain the leader is counted on the one where it costs the workers least.
    first, last = int(tree.levels[tree.lowest].starts[home]), int(tree.levels[tree.lowest].ends[home])
    node = first + int(np.argmin(group.loss[first:last]))
    per_node = on_nodes.per_node
    if not tree.is_hostname:
        per_node = per_node.copy()
        per_node[node] -= group.loss[node]
    its_place = TopologyAssignment(tree.emitted_levels, (DomainCount(tree.emitted[home], leader.count),))
    return (
        _placement(view, workers, level, per_node, domains, pods),
        Placement(leader.name, its_place, tree.declared[level], NodeCounts(tree, np.array([node]), np.array([leader.count]))),
    )


def _resolve(view: FreeCapacity, request: PodSetRequest, free: Matrix | None) -> tuple[Shape, NodeFits, TopologyRequest] | NotFit:
    """Levels of a request and what fits on the nodes it may use, or why it can have no place whatever is free."""
    shape = find_shape(view.tree, request)
    if isinstance(shape, NotFit):
        return shape
    if not view.usable.any():
        return refuse_without_nodes(view, request, shape)
    try:
        on_nodes = fits_on_nodes(view, request, free)
    except InvalidSelector as error:
        return NotFit(Refusal.INVALID_SELECTOR, request.name, f"pod set {request.name}: {error}")
    assert request.topology is not None  # find_shape refused that
    return shape, on_nodes, request.topology


def _scores(view: FreeCapacity, request: PodSetRequest, profile: Profile, on_nodes: NodeFits) -> tuple[Indices, ...] | None:
    """Per level the sums of preferred-affinity scores, where these count."""
    scores = view.preferred_scores(request, on_nodes.eligible) if profile.respects_preferred_affinity else None
    return None if scores is None else tuple(view.tree.sum_nodes(level, scores) for level in range(view.tree.lowest + 1))


def _refuse(view: FreeCapacity, request: PodSetRequest, shape: Shape, fits: Fits, on_nodes: NodeFits, free: Matrix | None) -> NotFit:
    return refuse(view, request, shape, fits, on_nodes.eligible, view.free if free is None else free)


def _placement(view: FreeCapacity, request: PodSetRequest, level: int, per_node: Indices, domains: Indices, pods: Indices) -> Placement:
    tree = view.tree
    if not pods.all():
        domains, pods = domains[pods > 0], pods[pods > 0]
    emitted, chosen, counts = tree.emitted, domains.tolist(), pods.tolist()
    return Placement(
        request.name,
        TopologyAssignment(tree.emitted_levels, tuple(map(DomainCount, [emitted[domain] for domain in chosen], counts))),
        tree.declared[level],
        NodeCounts(tree, domains, pods) if tree.is_hostname else _nodes_within(tree, per_node, domains, counts),
    )


def _nodes_within(tree: TopologyTree, per_node: Indices, domains: Indices, counts: Sequence[int]) -> NodeCounts:
    """The first nodes with room of each domain, so many as its pods fill."""
    lowest = tree.levels[tree.lowest]
    on_nodes = np.zeros(len(tree), dtype=np.int64)
    for first, last, count in zip(lowest.starts[domains].tolist(), lowest.ends[domains].tolist(), counts, strict=True):
        room = per_node[first:last]
        on_nodes[first:last] = np.minimum(np.maximum(count - (room.cumsum() - room), 0), room)
    used = on_nodes.nonzero()[0]
    return NodeCounts(tree, used, on_nodes[used])
