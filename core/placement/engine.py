"""`place`: the one entry to the engine. Pure and deterministic: the same view and requests give the same answer,
in whatever order nodes and labels came."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.model.assignment import DomainCount, TopologyAssignment
from core.model.podset import PodSetRequest
from core.placement.capacity import count_fits
from core.placement.explain import NotFit, Refusal
from core.placement.feasibility import InvalidSelector
from core.placement.free import FreeCapacity, Matrix, with_pod
from core.placement.levels import descend, find_start
from core.placement.profile import Profile
from core.placement.refusal import refuse, refuse_without_nodes
from core.placement.slices import find_shape
from core.placement.tree import Indices


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
    placements: list[Placement] = []
    for i, request in enumerate(requests):
        outcome = _place_one(view, request, profile, free)
        if isinstance(outcome, NotFit):
            return Decision(tuple(placements), outcome)
        placements.append(outcome)
        if i + 1 < len(requests):
            free = free.copy() if free is view.free or i == 0 else free
            take_from(view, free, request, outcome.nodes)
    return Decision(tuple(placements))


def take_from(view: FreeCapacity, free: Matrix, request: PodSetRequest, nodes: Sequence[tuple[str, int]]) -> None:
    """Subtracts pods on nodes from a free matrix of the view's shape, in place; nodes and resources it has not do not count."""
    rows = [(view.axis[resource], amount) for resource, amount in with_pod(request.requests).items() if resource in view.axis]
    for name, count in nodes:
        node = view.tree.index.get(name)
        for row, amount in rows if node is not None else ():
            free[row, node] -= amount * count


def _place_one(view: FreeCapacity, request: PodSetRequest, profile: Profile, free: Matrix) -> Placement | NotFit:
    tree = view.tree
    shape = find_shape(tree, request)
    if isinstance(shape, NotFit):
        return shape
    try:
        eligible = view.eligible(request)
    except InvalidSelector as error:
        return NotFit(Refusal.INVALID_SELECTOR, request.name, f"pod set {request.name}: {error}")
    if not eligible.any() and not (view.ready & ~view.cordoned).any():
        return refuse_without_nodes(view, request, shape)
    per_node = np.where(eligible, view.pods_that_fit(request, free), 0)
    scores = view.preferred_scores(request, eligible) if profile.respects_preferred_affinity else None
    fits = count_fits(tree, shape, per_node, scores)
    assert request.topology is not None  # find_shape refused that
    algorithm = profile.algorithm(request.topology.mode)
    wanted = request.count // shape.slice_size
    found = find_start(fits, shape, request.topology.mode, algorithm, wanted)
    if found is None:
        return refuse(view, request, shape, fits, eligible, free)
    level, chosen = found
    domains, pods = descend(tree, fits, shape, algorithm, level, chosen)
    used = pods > 0
    domains, pods = domains[used], pods[used]
    return Placement(
        request.name,
        TopologyAssignment(
            tree.emitted_levels,
            tuple(DomainCount(tree.emitted_values(int(domain)), int(count)) for domain, count in zip(domains, pods, strict=True)),
        ),
        tree.declared[level],
        _nodes_of(view, per_node, domains, pods),
    )


def _nodes_of(view: FreeCapacity, per_node: Indices, domains: Indices, pods: Indices) -> tuple[tuple[str, int], ...]:
    tree, lowest = view.tree, view.tree.levels[view.tree.lowest]
    if tree.is_hostname:
        return tuple((tree.names[domain], int(count)) for domain, count in zip(domains, pods, strict=True))
    nodes: list[tuple[str, int]] = []
    for domain, count in zip(domains, pods, strict=True):
        rest = int(count)
        for node in range(int(lowest.starts[domain]), int(lowest.ends[domain])):
            here = min(rest, int(per_node[node]))
            if here:
                nodes.append((tree.names[node], here))
                rest -= here
    return tuple(nodes)
