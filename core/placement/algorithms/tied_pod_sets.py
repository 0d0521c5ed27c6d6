"""Pod sets that must share a domain, and pod sets that hinder each other.

A tie - a group of more than two pod sets, or a whole workload (KEP-2724, Story 3) - is tried domain by
domain, the tightest first, and its pod sets are placed there one after the other. Where an order of pod
sets fails, `core.placement.algorithms.joint_search` places all of them at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.model.podset import Mode, PodSetRequest
from core.placement.algorithms.decision import Decision, PodSetPlacement, emit
from core.placement.algorithms.domain_capacity import NodeFits, fits_on_nodes
from core.placement.algorithms.joint_search import JOINT_STEPS, JointRequest, JointSearch, Tie
from core.placement.algorithms.own_pods import PlaceInOrder
from core.placement.algorithms.podset_groups import split_roles
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.algorithms.spreading import find_closed_nodes, find_spread
from core.placement.refusals import NotFit, RefusalKind, with_note
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.tree import TopologyTree

_MOST_DOMAINS = 64  # tried one by one for a tie


@dataclass(frozen=True, slots=True)
class OneDomain:
    """All pod sets in one domain of a level, if it is required; else of the lowest level that has such a domain, or
    anywhere.

    `why` names the origin of the requirement, for the message of a refusal.
    """

    level: str
    required: bool
    why: str


def place_together(
    view: FreeCapacity, requests: Sequence[PodSetRequest], tie: OneDomain, free: Matrix | None, in_order: PlaceInOrder
) -> Decision | None:
    """Returns placements of pod sets in one domain of the level that `tie` names. A preferred level widens to those above; None where none
    of them holds all. Where a required one does not hold them, or the level is unknown, it returns no placements and a refusal of all."""
    names = tuple(request.name for request in requests)
    level = view.tree.find_level(tie.level)
    if level is None:
        known = ", ".join(view.tree.declared)
        detail = f"no topology level {tie.level!r} ({tie.why}); the topology has {known}"
        return Decision((), NotFit(RefusalKind.UNKNOWN_LEVEL, names[0], detail, group=names))
    refusal: NotFit | None = None
    for at in range(level, level - 1 if tie.required else -1, -1):
        if at < level and not view.budget.spend(0):
            break
        decision = _place_in_one(view.set_explains(view.explains and tie.required), requests, at, free, in_order)
        if decision.refusal is None:
            return decision
        refusal = refusal or decision.refusal
    if not tie.required:
        return None
    assert refusal is not None
    refusal = with_note(refusal, f"All pod sets ({', '.join(names)}) must be in one {tie.level} ({tie.why})")
    return Decision((), replace(refusal, group=names))


def _place_in_one(
    view: FreeCapacity, requests: Sequence[PodSetRequest], level: int, free: Matrix | None, in_order: PlaceInOrder
) -> Decision:
    tree, label = view.tree, view.tree.declared[level]
    try:
        pods = [tree.sum_nodes(level, fits_on_nodes(view, request, free).per_node) for request in requests]
    except InvalidSelector:
        return in_order(view, requests, free)  # it names the pod set and the reason
    holds = np.logical_and.reduce([held >= request.count for held, request in zip(pods, requests, strict=True)])
    largest = max(range(len(requests)), key=lambda i: requests[i].count)
    domains = holds.nonzero()[0]
    domains = domains[pods[largest][domains].argsort(kind="stable")]
    for request in requests:
        spread = find_spread(tree, request)
        domains = domains if spread is None or spread.deepest > level else spread.order(level, domains)
    before = view.free if free is None else free
    refusal: NotFit | None = None
    inside, tried, quiet = before, view, view.set_explains(False)
    for domain in domains[:_MOST_DOMAINS].tolist():
        if refusal is not None and not view.budget.spend(view.pass_steps):
            break
        span = slice(int(tree.levels[level].starts[domain]), int(tree.levels[level].ends[domain]))
        inside = np.zeros_like(before)
        inside[:, span] = before[:, span]
        decision = in_order(quiet, requests, inside)
        if decision.refusal is None:
            return decision
        refusal, tried = decision.refusal, view.copy_with_domain(span) if view.explains else view
    placements = find_joint_fit(view, requests, free, level) if len(domains) else None
    if placements is not None:
        return Decision(placements, looked_ahead=True)
    if refusal is None:
        # No domain has room for each of them: the refusal is about the first one without room anywhere.
        lacking = next((request for request, held in zip(requests, pods, strict=True) if (held < request.count).all()), requests[largest])
        refusal = in_order(view, [_require_level(lacking, label)], free).refusal or in_order(view, requests, np.zeros_like(before)).refusal
    elif view.explains:  # the trials gave no reasons: the last of them does
        refusal = in_order(tried, requests, inside).refusal
    assert refusal is not None
    return Decision((), refusal)


def _require_level(request: PodSetRequest, level: str) -> PodSetRequest:
    """The pod set as if it had to be in one domain of a level; where it asks for a lower one, that is what it lacks."""
    topology = request.topology
    if topology is None or topology.mode is Mode.REQUIRED:
        return request
    return replace(request, topology=replace(topology, mode=Mode.REQUIRED, level=level, group=None))


def find_joint_fit(
    view: FreeCapacity, requests: Sequence[PodSetRequest], free: Matrix | None, tied_at: int | None = None
) -> tuple[PodSetPlacement, ...] | None:
    """Returns a fit of all pod sets at once, in their order, with `tied_at` (index; None: no tie) in one domain of that level. None if none
    was found within the budget of steps, or a level or a selector cannot be resolved. None always, too, where one asks for spares, or has
    host ports, pod affinity, a kept spread or a partial slice, or leaves the level to us with rules of topology spreading. Of such rules
    only those that close domains count.

    Preferred levels are kept together as long as that goes, then all of them widen by one level, and so on.
    """
    if any(request.traits.is_particular or request.spares for request in requests):
        return None  # offers are of pods that need not mind each other, and of no nodes that are kept free
    asked = _with_leaders_level(requests)
    shapes = [find_shape(view.tree, request) for request in asked]
    try:
        on_nodes = [fits_on_nodes(view, request, free) for request in asked]
    except InvalidSelector:
        return None
    found: list[Shape] = [shape for shape in shapes if isinstance(shape, Shape)]
    if len(found) < len(shapes) or any(shape.tail or (shape.auto and r.spreading) for shape, r in zip(found, requests, strict=True)):
        return None
    closed = [find_closed_nodes(view.tree, request) for request in requests]
    on_nodes = [fits if nodes is None else fits.close_nodes(nodes) for fits, nodes in zip(on_nodes, closed, strict=True)]
    steps = view.budget.split_off(JOINT_STEPS)
    for wider in range(len(view.tree.declared) + 1 if any(_may_widen(*pair) for pair in zip(asked, found, strict=True)) else 1):
        if not steps.spend(0):
            return None
        whole_at = [_find_whole_level(request, shape, wider, tied_at) for request, shape in zip(asked, found, strict=True)]
        if not all(_fits_alone(view.tree, *each) for each in zip(asked, found, on_nodes, whole_at, strict=True)):
            continue
        joint = [
            JointRequest(request.count, request.requests, shape, fits.eligible, level)
            for request, shape, fits, level in zip(asked, found, on_nodes, whole_at, strict=True)
        ]
        ties = _list_ties(asked, whole_at, tied_at)
        per_node = JointSearch(view, joint, ties, view.free if free is None else free, steps).run()
        if per_node is not None:
            pairs = zip(requests, per_node, found, strict=True)
            return tuple(emit(view, request, pods, shape) for request, pods, shape in pairs)
    return None


def _fits_alone(tree: TopologyTree, request: PodSetRequest, shape: Shape, on_nodes: NodeFits, whole_at: int | None) -> bool:
    """Whether a pod set has room where no other takes any: else there is nothing to search for."""
    level = whole_at or 0
    units = on_nodes.sum_up(tree, shape).count_units_at(level, shape)
    wanted = request.count // (shape.slice_size if level <= shape.slice_level else shape.count_unit_below(level))
    return int(units.sum() if whole_at is None else units.max(initial=0)) >= wanted


def _with_leaders_level(requests: Sequence[PodSetRequest]) -> list[PodSetRequest]:
    """Gives the leader in a group of two the topology request of its workers, without slices."""
    asked = list(requests)
    groups: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        if request.topology is not None and request.topology.group:
            groups.setdefault(request.topology.group, []).append(i)
    for first, second in (members for members in groups.values() if len(members) == 2):
        workers, leader = split_roles(requests[first], requests[second])
        at = first if leader is requests[first] else second
        if workers.topology is not None:
            asked[at] = replace(leader, topology=replace(workers.topology, slices=()))
    return asked


def _may_widen(request: PodSetRequest, shape: Shape) -> bool:
    return request.topology is not None and (request.topology.mode is Mode.PREFERRED or shape.auto)


def _find_whole_level(request: PodSetRequest, shape: Shape, wider: int, tied_at: int | None) -> int | None:
    """The lowest level at which all its pods are in one domain."""
    assert request.topology is not None
    mode, level = request.topology.mode, None
    if mode is Mode.REQUIRED:
        level = max(0, shape.start - wider) if shape.auto else shape.start
    elif mode is Mode.PREFERRED and shape.start >= wider:
        level = shape.start - wider
    return level if tied_at is None else max(tied_at, -1 if level is None else level)


def _list_ties(requests: Sequence[PodSetRequest], whole_at: Sequence[int | None], tied_at: int | None) -> list[Tie]:
    members: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        if request.topology is not None and request.topology.group:
            members.setdefault(request.topology.group, []).append(i)
    ties = []
    for group in members.values():
        levels = [level for i in group if (level := whole_at[i]) is not None]
        if len(group) > 1 and len(levels) == len(group):
            ties.append(Tie(min(levels), frozenset(group)))
    if tied_at is not None:
        ties.append(Tie(tied_at, frozenset(range(len(requests)))))
    return ties
