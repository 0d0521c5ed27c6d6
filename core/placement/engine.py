"""`place`: the one entry to the engine. Pure and deterministic: the same view and requests give the same answer,
in whatever order nodes and labels came."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.model.assignment import DomainCount, TopologyAssignment
from core.model.podset import PodSetRequest, TopologyRequest
from core.placement.balanced import place_balanced, place_group_balanced
from core.placement.capacity import count_fits
from core.placement.explain import NotFit, Refusal
from core.placement.feasibility import InvalidSelector
from core.placement.free import FreeCapacity, Matrix, with_pod
from core.placement.groups import count_group_fits, descend_group, find_group_start, split_roles
from core.placement.levels import descend, find_start
from core.placement.profile import Profile
from core.placement.refusal import refuse, refuse_without_nodes
from core.placement.slices import Shape, find_shape
from core.placement.tree import Flags, Indices


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one pod set goes: the assignment, and the node each pod is counted on.

    Where the lowest level is no hostname, `nodes` is how the engine showed that the pods fit, not
    where they will be bound.
    """

    pod_set: str
    assignment: TopologyAssignment
    level: str  # the level at which the pod set fits in the domains chosen
    nodes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Placements in the order of the requests; if `refusal` is set, only of the pod sets before it."""

    placements: tuple[Placement, ...]
    refusal: NotFit | None = None


def place(view: FreeCapacity, requests: Sequence[PodSetRequest], profile: Profile, *, free: Matrix | None = None) -> Decision:
    """Places pod sets one after the other, each seeing what those before it take.

    `free` replaces the view's own free matrix (what-if); it is not changed.
    """
    free = view.free if free is None else free
    placed: dict[str, Placement] = {}
    units = _units(requests)
    for i, unit in enumerate(units):
        outcome = _place_group(view, unit, profile, free) if len(unit) == 2 else _place_one(view, unit[0], profile, free)
        if isinstance(outcome, NotFit):
            return Decision(_in_order(requests, placed), outcome)
        placed |= {placement.pod_set: placement for placement in outcome}
        if i + 1 < len(units):
            free = free.copy() if i == 0 else free
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


def take_from(view: FreeCapacity, free: Matrix, request: PodSetRequest, nodes: Sequence[tuple[str, int]]) -> None:
    """Subtracts pods on nodes from a free matrix of the view's shape, in place; nodes and resources it has not do not count."""
    rows = [(view.axis[resource], amount) for resource, amount in with_pod(request.requests).items() if resource in view.axis]
    for name, count in nodes:
        node = view.tree.index.get(name)
        for row, amount in rows if node is not None else ():
            free[row, node] -= amount * count


def _place_one(view: FreeCapacity, request: PodSetRequest, profile: Profile, free: Matrix) -> tuple[Placement] | NotFit:
    found = _resolve(view, request)
    if isinstance(found, NotFit):
        return found
    tree, (shape, eligible, topology) = view.tree, found
    per_node = np.where(eligible, view.pods_that_fit(request, free), 0)
    fits = count_fits(tree, shape, per_node, _scores(view, request, profile, eligible))
    algorithm = profile.algorithm(topology.mode)
    wanted = request.count // shape.slice_size
    if profile.balances(topology.mode) and (balanced := place_balanced(tree, fits, shape, wanted)) is not None:
        return (_placement(view, request, balanced[0], per_node, *balanced[1:]),)
    start = find_start(fits, shape, topology.mode, algorithm, wanted)
    if start is None:
        return refuse(view, request, shape, fits, eligible, free)
    level, chosen = start
    domains, pods = descend(tree, fits, shape, algorithm, level, chosen)
    return (_placement(view, request, level, per_node, domains[pods > 0], pods[pods > 0]),)


def _place_group(
    view: FreeCapacity, unit: tuple[PodSetRequest, ...], profile: Profile, free: Matrix
) -> tuple[Placement, Placement] | NotFit:
    """A leader and its workers, each by its own selectors, requests and tolerations."""
    workers, leader = split_roles(*unit)
    names = (workers.name, leader.name)
    # Leader and workers share a place by the workers' topology; the leader itself is never sliced.
    whole = replace(leader, topology=replace(leader.topology, slices=())) if leader.topology is not None else leader
    found, of_leader = _resolve(view, workers), _resolve(view, whole)
    if isinstance(found, NotFit):
        return replace(found, group=names)
    if isinstance(of_leader, NotFit):
        return replace(of_leader, group=names)
    tree, (shape, eligible, topology) = view.tree, found
    takes_leader = of_leader[1] & (view.pods_that_fit(leader, free) >= leader.count)
    less = free.copy()
    for resource, amount in with_pod(leader.requests).items():
        if resource in view.axis:
            less[view.axis[resource]] -= amount * leader.count
    alone = np.where(eligible, view.pods_that_fit(workers, free), 0)
    beside = np.where(eligible & takes_leader, view.pods_that_fit(workers, less), 0)
    fits = count_group_fits(tree, shape, alone, beside, takes_leader, _scores(view, workers, profile, eligible))
    algorithm = profile.algorithm(topology.mode)
    wanted = workers.count // shape.slice_size
    if profile.balances(topology.mode) and (balanced := place_group_balanced(tree, fits, shape, wanted)) is not None:
        level, domains, pods, home = balanced
    else:
        start = find_group_start(fits, shape, topology.mode, algorithm, wanted)
        if start is None:
            return replace(refuse(view, workers, shape, fits.beside, eligible, free), group=names)
        level, chosen = start
        domains, pods, home = descend_group(tree, fits, shape, algorithm, level, chosen)
    at, one = np.array([home]), np.array([leader.count])
    # Of the nodes of its domain the leader is counted on the one where it costs the workers least.
    able = takes_leader & tree.spans(home)
    its_node = np.arange(len(tree)) == np.argmin(np.where(able, alone - beside, np.iinfo(np.int64).max))
    return (
        _placement(view, workers, level, np.where(its_node, beside, alone), domains[pods > 0], pods[pods > 0]),
        _placement(view, leader, level, np.where(its_node, leader.count, 0), at, one),
    )


def _resolve(view: FreeCapacity, request: PodSetRequest) -> tuple[Shape, Flags, TopologyRequest] | NotFit:
    """Levels of a request and the nodes it may use, or why it can have no place whatever is free."""
    shape = find_shape(view.tree, request)
    if isinstance(shape, NotFit):
        return shape
    try:
        eligible = view.eligible(request)
    except InvalidSelector as error:
        return NotFit(Refusal.INVALID_SELECTOR, request.name, f"pod set {request.name}: {error}")
    if not eligible.any() and not (view.ready & ~view.cordoned).any():
        return refuse_without_nodes(view, request, shape)
    assert request.topology is not None  # find_shape refused that
    return shape, eligible, request.topology


def _scores(view: FreeCapacity, request: PodSetRequest, profile: Profile, eligible: Flags) -> Indices | None:
    return view.preferred_scores(request, eligible) if profile.respects_preferred_affinity else None


def _placement(view: FreeCapacity, request: PodSetRequest, level: int, per_node: Indices, domains: Indices, pods: Indices) -> Placement:
    tree = view.tree
    emitted = tree.emitted
    counts = tuple(DomainCount(emitted[domain], count) for domain, count in zip(domains.tolist(), pods.tolist(), strict=True))
    return Placement(
        request.name,
        TopologyAssignment(tree.emitted_levels, counts),
        tree.declared[level],
        _nodes_of(view, per_node, domains, pods),
    )


def _nodes_of(view: FreeCapacity, per_node: Indices, domains: Indices, pods: Indices) -> tuple[tuple[str, int], ...]:
    tree, lowest = view.tree, view.tree.levels[view.tree.lowest]
    if tree.is_hostname:
        names = tree.names
        return tuple((names[domain], count) for domain, count in zip(domains.tolist(), pods.tolist(), strict=True))
    nodes: list[tuple[str, int]] = []
    for domain, count in zip(domains, pods, strict=True):
        rest = int(count)
        for node in range(int(lowest.starts[domain]), int(lowest.ends[domain])):
            here = min(rest, int(per_node[node]))
            if here:
                nodes.append((tree.names[node], here))
                rest -= here
    return tuple(nodes)
