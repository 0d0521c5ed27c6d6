"""`place`: the one entry to the engine. Pure and deterministic: the same view and requests give the same answer,
in whatever order nodes and labels came.

Pod sets go one after the other (`_place_in_order`): each by itself (`_place_one`), or with its group (`_place_group`). Where that fails
they go all at once (`find_joint_fit`). Those that are tied to one domain are tried in one after the other (`place_together`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.model.step_budget import SENTENCE, UNLIMITED, StepBudget
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.placement.algorithms.balanced import place_balanced, place_group_balanced
from core.placement.algorithms.compact import CELLS_A_STEP, place_compact
from core.placement.algorithms.decision import Decision, PodSetPlacement, order_assignment, subtract_placement, subtract_pods
from core.placement.algorithms.domain_capacity import Fits, NodeFits, count_fits, fits_on_nodes
from core.placement.algorithms.levels import assign_below, find_start
from core.placement.algorithms.own_pods import PlaceInOrder, place_particular
from core.placement.algorithms.podset_groups import GroupFits, assign_group_below, find_group_start, find_mixed, fits_of_group, split_roles
from core.placement.algorithms.profile import Profile
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.algorithms.spare_placement import place_with_spares
from core.placement.algorithms.spreading import SpreadRules, find_spread
from core.placement.algorithms.tied_pod_sets import OneDomain, find_joint_fit, place_together
from core.placement.explain.refusal_facts import refuse, refuse_without_nodes
from core.placement.explain.spreading_facts import refuse_below_rule, with_spreading
from core.placement.explain.suggested_changes import Refused
from core.placement.refusals import NotFit, RefusalKind, with_note
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.topology_spread import with_spread_kept
from core.placement.topology.tree import Indices, TopologyTree

__all__ = ["Decision", "OneDomain", "PodSetPlacement", "place", "subtract_pods"]
Scores = tuple[Indices, ...]


def place(
    view: FreeCapacity,
    requests: Sequence[PodSetRequest],
    profile: Profile,
    *,
    free: Matrix | None = None,
    together: OneDomain | None = None,
) -> Decision:
    """Places pod sets one after the other, each with the room that those before it leave; if that fails, all at once.

    Returns their placements in the order of the requests, or a refusal, perhaps with placements of pod sets before it. `free` replaces the
    view's own free matrix (resources by nodes; what-if); neither is changed. `together` ties all pod sets to one domain. Where the searches
    ran out of the view's budget of steps, the refusal reports it. A level or selector that cannot be resolved is a refusal (UNKNOWN_LEVEL,
    INVALID_SELECTOR, ...), no error.
    """
    if view.budget is UNLIMITED:
        view = view.copy_with_budget(StepBudget())
    mixed = next((mixed for unit in _list_units(requests) if (mixed := find_mixed(unit)) is not None), None) if len(requests) > 2 else None
    if mixed is not None:
        return Decision((), mixed)
    spread = with_spread_kept(requests)
    if spread is not None:
        decision = _place(view.set_explains(False), spread, profile, free, together)
        if decision.refusal is None:
            return decision
    decision = _place(view, requests, profile, free, together)
    if decision.refusal is not None and view.budget.ran_out:
        return replace(decision, refusal=with_note(decision.refusal, SENTENCE))
    return decision


def _place(
    view: FreeCapacity, requests: Sequence[PodSetRequest], profile: Profile, free: Matrix | None, together: OneDomain | None
) -> Decision:
    in_order: PlaceInOrder = partial(_place_in_order, profile, free)
    if any(request.traits.is_particular for request in requests):
        in_order = partial(place_particular, in_order)
    return _place_tied(view, requests, together, free, in_order)


def _place_tied(
    view: FreeCapacity, requests: Sequence[PodSetRequest], tie: OneDomain | None, free: Matrix | None, in_order: PlaceInOrder
) -> Decision:
    """Pod sets that are tied to one domain, or (None, and where a preferred domain does not hold them) to none. Where those that are not
    tied fail for want of capacity, two or more are placed at once (rule l of docs/decisions/0004). If that fails, too, the refusal is that
    of the first try, with the placements before it."""
    tied = place_together(view, requests, tie, free, in_order) if tie is not None else None
    if tied is not None:
        return tied
    decision = in_order(view, requests, free)
    if decision.refusal is None or decision.refusal.kind is not RefusalKind.NOT_FIT or len(requests) < 2:
        return decision
    placements = find_joint_fit(view, requests, free)
    return decision if placements is None else Decision(placements, looked_ahead=True)


def _place_in_order(
    profile: Profile, free_before: Matrix | None, view: FreeCapacity, requests: Sequence[PodSetRequest], free: Matrix | None
) -> Decision:
    """`free_before` is what was free before any of the workload was placed, None for the view's own; `free` is what it has left."""
    placed: dict[str, PodSetPlacement] = {}
    units = _list_units(requests)
    for i, unit in enumerate(units):
        view.budget.charge(view.pass_steps * sum(2 if request.traits.is_particular else 1 for request in unit))
        outcome = _place_unit(view, unit, profile, free_before, free)
        if isinstance(outcome, NotFit):
            return Decision(_order_placements(requests, placed), outcome)
        placed |= {placement.pod_set: placement for placement in outcome}
        if i + 1 < len(units):
            free = (view.free if free is None else free).copy() if i == 0 else free
            assert free is not None
            for request in unit:
                subtract_placement(view, free, request, placed[request.name])
            if any(request.traits.is_particular for request in requests):
                view = view.copy_with_pods(*((request.traits, placed[request.name].nodes) for request in unit))
    return Decision(_order_placements(requests, placed))


def _place_unit(
    view: FreeCapacity, unit: Sequence[PodSetRequest], profile: Profile, free_before: Matrix | None, free: Matrix | None
) -> Sequence[PodSetPlacement] | NotFit:
    if any(request.spares for request in unit):
        bare = [replace(request, spares=0) for request in unit]
        return place_with_spares(view, unit, free, lambda view, free: _place_unit(view, bare, profile, free_before, free))
    if len(unit) == 1:
        return _place_one(view, unit[0], profile, free_before, free)
    if len(unit) == 2:
        return _place_group(view, unit, profile, free_before, free)
    lead = max(unit, key=lambda request: request.count).topology
    assert lead is not None  # only a topology names a group
    members = [replace(request, topology=replace(request.topology, group=None)) for request in unit if request.topology is not None]
    why = f"they are the pod set group {lead.group}"
    tie = OneDomain(lead.level, lead.mode is Mode.REQUIRED, why) if lead.level is not None else None
    decision = _place_tied(view, members, tie, free, partial(_place_in_order, profile, free_before))
    return decision.placements if decision.refusal is None else replace(decision.refusal, group=tuple(request.name for request in unit))


def _list_units(requests: Sequence[PodSetRequest]) -> list[tuple[PodSetRequest, ...]]:
    """What is placed together, in the order of the first of each: the pod sets of one group, all else alone."""
    units: dict[str, list[PodSetRequest]] = {}
    for request in requests:
        group = request.topology.group if request.topology is not None else None
        units.setdefault(f"group {group}" if group else f"pod set {request.name}", []).append(request)
    return [tuple(unit) for unit in units.values()]


def _order_placements(requests: Sequence[PodSetRequest], placed: Mapping[str, PodSetPlacement]) -> tuple[PodSetPlacement, ...]:
    return tuple(placed[request.name] for request in requests if request.name in placed)


def _place_one(
    view: FreeCapacity, request: PodSetRequest, profile: Profile, free_before: Matrix | None, free: Matrix | None
) -> tuple[PodSetPlacement] | NotFit:
    found = _resolve(view, request, free, profile)
    if isinstance(found, NotFit):
        return found
    tree, (shape, on_nodes, topology, scores) = view.tree, found
    fits = on_nodes.sum_up(tree, shape)
    if scores is not None:
        fits = replace(fits, scores=scores)
    algorithm = profile.get_algorithm(topology.mode)
    wanted = shape.count_units(request.count)
    # Neither the balanced nor the compact search knows of a partial slice.
    is_balanced = profile.is_balanced(topology.mode) and not shape.tail
    if is_balanced and (balanced := place_balanced(tree, fits, shape, wanted)) is not None:
        return (_build_placement(view, request, shape, balanced[0], on_nodes.per_node, *balanced[1:]),)
    spread = find_spread(tree, request)
    start = find_start(fits, shape, topology.mode, algorithm, wanted, spread)
    if start is None:
        return _refuse(view, request, shape, fits, on_nodes, free_before, free)
    level, chosen = start
    domains, pods = assign_below(tree, fits, shape, algorithm, level, chosen)
    if profile.compact and not shape.tail and scores is None and view.budget.has_left():
        if spread is not None:
            fits = _select_fits(spread, fits, shape, on_nodes, level, wanted)
        (domains, pods), search = place_compact(tree, fits, shape, request.count, (domains, pods))
        view.budget.charge(search.steps // CELLS_A_STEP)
        return (replace(_build_placement(view, request, shape, level, on_nodes.per_node, domains, pods), search=search),)
    return (_build_placement(view, request, shape, level, on_nodes.per_node, domains, pods),)


def _place_group(
    view: FreeCapacity, unit: Sequence[PodSetRequest], profile: Profile, free_before: Matrix | None, free: Matrix | None
) -> tuple[PodSetPlacement, PodSetPlacement] | NotFit:
    """A leader and its workers, each by its own selectors, requests and tolerations."""
    workers, leader = split_roles(*unit)
    names = (workers.name, leader.name)
    if leader.spreading and not workers.spreading:  # both have the rules of their group
        workers = replace(workers, spreading=leader.spreading)
    # Leader and workers share a place by the workers' topology; the leader itself is never sliced.
    sliced = leader.topology is not None and leader.topology.slices
    whole = replace(leader, topology=replace(leader.topology, slices=())) if leader.topology is not None and sliced else leader
    found, of_leader = _resolve(view, workers, free, profile), _resolve(view, whole, free)
    if isinstance(found, NotFit):
        return replace(found, group=names)
    if isinstance(of_leader, NotFit):
        return replace(of_leader, group=names)
    tree, (shape, on_nodes, topology, scores) = view.tree, found
    group = fits_of_group(view, workers, whole, free)
    fits = group.sum_up(tree, shape)
    if scores is not None:
        fits = replace(fits, alone=replace(fits.alone, scores=scores), beside=replace(fits.beside, scores=scores))
    algorithm = profile.get_algorithm(topology.mode)
    wanted = shape.count_units(workers.count)
    is_balanced = profile.is_balanced(topology.mode) and not shape.tail
    if is_balanced and (balanced := place_group_balanced(tree, fits, shape, wanted)) is not None:
        level, domains, pods, home = balanced
    else:
        spread = find_spread(tree, workers)
        start = find_group_start(fits, shape, topology.mode, algorithm, wanted, spread)
        if start is None:
            closed = spread.find_closed_nodes() if spread is not None else None
            left = fits if closed is None else group.close_nodes(closed).sum_up(tree, shape)
            return replace(_refuse(view, workers, shape, fits.beside, on_nodes, free_before, free, (left, whole)), group=names)
        level, chosen = start
        domains, pods, home = assign_group_below(tree, fits, shape, algorithm, level, chosen)
    # Of the nodes of its domain the leader is counted on the one where it costs the workers least.
    first, last = int(tree.levels[tree.lowest].starts[home]), int(tree.levels[tree.lowest].ends[home])
    node = first + int(np.argmin(group.loss[first:last]))
    per_node = on_nodes.per_node
    if not tree.is_hostname:
        per_node = per_node.copy()
        per_node[node] -= group.loss[node]
    its_place = TopologyAssignment(tree.emitted_levels, (DomainCount(tree.emitted[home], leader.count),))
    return (
        _build_placement(view, workers, shape, level, per_node, domains, pods),
        PodSetPlacement(leader.name, its_place, tree.declared[level], NodeCounts(tree, np.array([node]), np.array([leader.count]))),
    )


def _resolve(
    view: FreeCapacity, request: PodSetRequest, free: Matrix | None, profile: Profile | None = None
) -> tuple[Shape, NodeFits, TopologyRequest, Scores | None] | NotFit:
    """Levels of a request, what fits on the nodes it may use, and their scores where a profile counts these; or why it can have no place
    whatever is free."""
    shape = find_shape(view.tree, request)
    if isinstance(shape, NotFit):
        return shape
    if (below := refuse_below_rule(view.tree, request, shape)) is not None:
        return below
    if not view.usable.any():
        return refuse_without_nodes(view, request, shape)
    try:
        on_nodes = fits_on_nodes(view, request, free)
        scores = _compute_scores(view, request, on_nodes) if profile is not None and profile.respects_preferred_affinity else None
    except InvalidSelector as error:
        return NotFit(RefusalKind.INVALID_SELECTOR, request.name, f"pod set {request.name}: {error}")
    assert request.topology is not None  # find_shape refused that
    return shape, on_nodes, request.topology, scores


def _compute_scores(view: FreeCapacity, request: PodSetRequest, on_nodes: NodeFits) -> Scores | None:
    """Per level the sums of preferred-affinity scores; None where nothing is preferred. Raises InvalidSelector."""
    scores = view.compute_preferred_scores(request, on_nodes.eligible)
    return None if scores is None else tuple(view.tree.sum_nodes(level, scores) for level in range(view.tree.lowest + 1))


def _refuse(
    view: FreeCapacity,
    request: PodSetRequest,
    shape: Shape,
    fits: Fits,
    on_nodes: NodeFits,
    free_before: Matrix | None,
    free: Matrix | None,
    led: tuple[GroupFits, PodSetRequest] | None = None,
) -> NotFit:
    """`led`, of workers with a leader: what was counted for both, and the leader."""
    free, free_before = (view.free if matrix is None else matrix for matrix in (free, free_before))
    group, leader = led or (None, None)
    spread = find_spread(view.tree, request)
    closed = spread.find_closed_nodes() if spread is not None else None
    if spread is None or closed is None:
        return refuse(Refused(view, request, shape, fits, on_nodes.eligible, on_nodes.per_node, free, group, free_before, leader=leader))
    on_nodes = on_nodes.close_nodes(closed)
    left = on_nodes.sum_up(view.tree, shape) if group is None else group.beside  # a group comes without them already
    refused = Refused(
        view.close_nodes(closed), request, shape, left, on_nodes.eligible, on_nodes.per_node, free, group, free_before, leader=leader
    )
    return with_spreading(refuse(refused), refused, spread, fits)


def _select_fits(spread: SpreadRules, fits: Fits, shape: Shape, on_nodes: NodeFits, level: int, wanted: int) -> Fits:
    """Fits without the domains of a level that rules of topology spreading close, or would take only after others."""
    tree = spread.tree
    selected = np.zeros(tree.levels[level].count, dtype=np.int64)
    selected[spread.select(level, (fits.count_all_units_at(level, shape) >= wanted).nonzero()[0])] = 1
    return count_fits(tree, shape, on_nodes.per_node * selected.repeat(tree.levels[level].ends - tree.levels[level].starts))


def _build_placement(
    view: FreeCapacity, request: PodSetRequest, shape: Shape, level: int, per_node: Indices, domains: Indices, pods: Indices
) -> PodSetPlacement:
    tree = view.tree
    if not pods.all():
        domains, pods = domains[pods > 0], pods[pods > 0]
    emitted, chosen, counts = tree.emitted, domains.tolist(), pods.tolist()
    assignment = TopologyAssignment(tree.emitted_levels, tuple(map(DomainCount, [emitted[domain] for domain in chosen], counts)))
    return PodSetPlacement(
        request.name,
        order_assignment(tree, shape, domains, assignment),
        tree.declared[level],
        NodeCounts(tree, domains, pods) if tree.is_hostname else _count_nodes_within(tree, per_node, domains, counts),
    )


def _count_nodes_within(tree: TopologyTree, per_node: Indices, domains: Indices, counts: Sequence[int]) -> NodeCounts:
    """The first nodes with room of each domain, so many as its pods fill."""
    lowest = tree.levels[tree.lowest]
    on_nodes = np.zeros(len(tree), dtype=np.int64)
    for first, last, count in zip(lowest.starts[domains].tolist(), lowest.ends[domains].tolist(), counts, strict=True):
        room = per_node[first:last]
        on_nodes[first:last] = np.minimum(np.maximum(count - (room.cumsum() - room), 0), room)
    used = on_nodes.nonzero()[0]
    return NodeCounts(tree, used, on_nodes[used])
