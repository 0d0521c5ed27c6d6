"""Elastic pod sets: growing adds pods near the present ones, shrinking removes those of the most scattered domain
first.

Pods that stay never move. Pods on a node that is gone are placed again with those that are added. So are those on a
node that is not ready or does not hold them any more, unless they are known to run (`outside`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.model.podset import PodSetRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.placement.algorithms.decision import subtract_pods
from core.placement.algorithms.profile import Profile
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.engine import Decision, PodSetPlacement
from core.placement.refusals import NotFit, RefusalKind
from core.placement.replace.added_pods import count_on_nodes
from core.placement.replace.unit import UnitPart, add_placed, complete_unit, group_parts, name_nodes
from core.placement.topology.free_capacity import MOST_PODS, FreeCapacity, Matrix
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.placed_pods import PlacedPodSet, add_outside, count_anchors, find_domains
from core.placement.topology.tree import Flags, Indices, TopologyTree


def resize(
    view: FreeCapacity,
    requests: Sequence[PodSetRequest],
    previous: Mapping[str, TopologyAssignment],
    profile: Profile,
    *,
    free: Matrix | None = None,
    outside: Mapping[tuple[str, ...], Mapping[str, str]] | None = None,
) -> Decision:
    """Returns assignments, in order, for pod sets of which some had one before, by name, with another count perhaps. If the added pods do
    not fit, it returns a refusal.

    The previous pods are not counted as used in the free matrix (core.placement.what_if gives them back), which is not changed. All pods
    that stay are counted before any is added, so several pod sets together never take more than there is. `outside` is given where the
    previous pods run: these stay whatever their node is like. It has the labels of nodes that exist and are not in the tree, as
    `PlacedPodSet.outside`. Pods there are a refusal (STALE_ASSIGNMENT) where the levels have changed or slices must be completed.
    """
    runs, outside = outside is not None, outside or {}
    free = (view.free if free is None else free).copy()
    before = {request.name: _find_pods(view, previous.get(request.name)) for request in requests}
    beyond = {request.name: _find_outside(request, previous.get(request.name), outside) for request in requests}
    parts: dict[str, UnitPart] = {}
    # The pod set with the fewest eligible nodes is placed first.
    for request in sorted(requests, key=lambda request: int(_find_eligible(view, request).sum())):
        mates = [before[mate.name] for mate in requests if mate is not request and _is_same_group(mate, request)]
        away = {domain: outside[domain.values] for domain in beyond[request.name]}
        part = _find_kept(view, request, before[request.name], sum(mates, np.zeros_like(before[request.name])), free, away, runs=runs)
        if away and (why := _find_obstacle(view, part, previous[request.name])):
            named = ", ".join("/".join(domain.values) for domain in away)
            sentence = f"pod set {request.name}: pods run outside of the topology, in {named}; {why}"
            return Decision((), NotFit(RefusalKind.STALE_ASSIGNMENT, request.name, sentence))
        subtract_pods(view, free, request, name_nodes(view, part.kept))
        parts[request.name] = part
    placed: dict[str, PodSetPlacement] = {}
    healthy = np.ones(len(view.tree), dtype=bool)
    units = group_parts([parts[request.name] for request in requests])
    for unit in sorted(units, key=lambda unit: not any(part.has_pods for part in unit)):
        outcome = complete_unit(view, unit, profile, free, healthy)
        if isinstance(outcome, NotFit):
            return Decision(tuple(placed[request.name] for request in requests if request.name in placed), outcome)
        placed |= outcome
        view = add_placed(view, list(parts.values()), *outcome.values())
    for name, left in beyond.items():
        if left:
            held = PlacedPodSet(parts[name].request, previous[name], outside=outside)
            placed[name] = replace(placed[name], assignment=add_outside(view.tree, placed[name].assignment, held, left))
    return Decision(tuple(placed[request.name] for request in requests))


def _find_outside(
    request: PodSetRequest, assignment: TopologyAssignment | None, outside: Mapping[tuple[str, ...], Mapping[str, str]]
) -> tuple[DomainCount, ...]:
    """Domains outside of the tree, with as many of their pods as are wanted."""
    found, left = list[DomainCount](), request.count
    for domain in assignment.domains if assignment is not None else ():
        if domain.values in outside and (stay := min(left, domain.count)):
            found.append(replace(domain, count=stay))
            left -= stay
    return tuple(found)


def _find_obstacle(view: FreeCapacity, part: UnitPart, assignment: TopologyAssignment) -> str:
    """Why a pod set with pods outside of the tree cannot be resized; empty if it can."""
    if assignment.levels != view.tree.emitted_levels:  # one assignment cannot name the old and the new domains
        return "their place is named by other levels than those of the topology now"
    is_sliced = part.request.topology is not None and bool(part.request.topology.slices)
    return "whether its slices are whole is not known" if is_sliced and part.missing else ""


def _is_same_group(one: PodSetRequest, other: PodSetRequest) -> bool:
    return (
        one.topology is not None
        and other.topology is not None
        and one.topology.group is not None
        and one.topology.group == other.topology.group
    )


def _find_pods(view: FreeCapacity, assignment: TopologyAssignment | None) -> Indices:
    """Pods of an assignment per domain of the lowest level, where that is still there."""
    tree = view.tree
    counts: Indices = np.zeros(tree.levels[tree.lowest].count, dtype=np.int64)
    if assignment is not None:
        domains = find_domains(tree, assignment.levels, [domain.values for domain in assignment.domains])
        for domain, entry in zip(domains, assignment.domains, strict=True):
            if domain >= 0:
                counts[domain] += entry.count
    return counts


def _find_kept(
    view: FreeCapacity,
    request: PodSetRequest,
    before: Indices,
    mates: Indices,
    free: Matrix,
    away: Mapping[DomainCount, Mapping[str, str]],
    *,
    runs: bool,
) -> UnitPart:
    """The pods that stay, less what a smaller count gives back: those that run, or those on ready nodes that hold them. `away` are pods
    outside of the tree, with the labels of their nodes."""
    tree, shape, eligible = view.tree, find_shape(view.tree, request), _find_eligible(view, request)
    left = request.count - sum(domain.count for domain in away)
    room = np.where(view.ready | runs, view.count_pods_that_fit(request, free), 0)
    rooms = [np.where(eligible, room, 0), np.where(eligible, 0, room), *([np.full_like(room, MOST_PODS)] if runs else ())]
    kept = tree.sum_nodes(tree.lowest, _hold(tree, rooms, before))
    if not isinstance(shape, NotFit):
        kept = give_back(tree, shape, kept, left, mates, partial=request.topology is not None and request.topology.partial)
    nodes = _hold(tree, rooms, kept)
    anchors = count_anchors(tree, request, [(labels, domain.count) for domain, labels in away.items()]) if away else None
    had = int(before.sum()) + request.count - left
    return UnitPart(request, nodes, np.zeros_like(nodes), max(0, left - int(kept.sum())), before=had, anchors=anchors)


def _find_eligible(view: FreeCapacity, request: PodSetRequest) -> Flags:
    """Nodes that may take its pods."""
    try:
        return view.find_eligible(request)
    except InvalidSelector:  # a request that is refused as soon as a pod is to be placed
        return view.ready


def _hold(tree: TopologyTree, rooms: Sequence[Indices], pods: Indices) -> Indices:
    """Pods per node for pods per domain, as many as the nodes hold. On which nodes of a domain they are is not known: they are counted
    where the first of the `rooms` has a place for them, then where the next has one."""
    held: Indices = np.zeros_like(rooms[0])
    for usable in rooms:
        wanted = np.minimum(pods - tree.sum_nodes(tree.lowest, held), tree.sum_nodes(tree.lowest, usable))
        domains = np.flatnonzero(wanted)
        held = held + count_on_nodes(tree, usable, domains, wanted[domains])
    return held


def give_back(tree: TopologyTree, shape: Shape, pods: Indices, count: int, mates: Indices, *, partial: bool = False) -> Indices:
    """Returns, of the pods per domain of the lowest level, those that stay when only `count` are wanted; `pods` itself where there are no
    more.

    From the top down each domain gives up its children with the fewest pods first, of equal ones the last in the order of level values.
    Those without a mate of the group (`mates` per lowest domain) come before those with one. From the slice level up whole slices go, below
    it whole groups of the next layer; a slice that has lost a pod counts as whole, since it would have to be completed. A partial slice is
    one slice, too, and goes first where the last slice may have fewer pods (`partial`). The last slice that stays gives up what it has more
    than the partial one is to have.
    """
    whole = _count_whole(tree, shape, pods)
    surplus = int(whole[0].sum()) - (shape.count_units(count) * shape.slice_size if partial else count)
    if partial and surplus > 0:
        pods = _drop_partial(tree, shape, pods)
        whole = _count_whole(tree, shape, pods)
        surplus = int(whole[0].sum()) - shape.count_units(count) * shape.slice_size
    if surplus <= 0:
        return _trim(tree, shape, pods, count) if shape.tail else pods
    near = [mates]
    for level in range(tree.lowest - 1, -1, -1):
        near.insert(0, tree.sum_children(level, near[0]))
    stay = _drop(whole[0], near[0], surplus)
    for level in range(1, tree.lowest + 1):
        target, stay = stay, whole[level].copy()
        surpluses = tree.sum_children(level - 1, stay) - target
        for parent in np.flatnonzero(surpluses > 0).tolist():
            children = tree.list_children(level - 1, parent)
            stay[children] = _drop(stay[children], near[level][children], int(surpluses[parent]))
    stay = np.minimum(pods, stay)
    return _trim(tree, shape, stay, count) if shape.tail else stay


def _drop_partial(tree: TopologyTree, shape: Shape, pods: Indices) -> Indices:
    """Takes the pods of one slice that is not whole away, of the slice domain with the fewest pods; `pods` itself without any."""
    homes, held = _find_homes(tree, shape, pods)
    partial = np.flatnonzero(held % shape.slice_size)
    return _drop_in(pods, homes, held, partial, held % shape.slice_size) if len(partial) else pods


def _trim(tree: TopologyTree, shape: Shape, pods: Indices, count: int) -> Indices:
    """Takes pods above `count`, fewer than a slice, away from one slice domain: one that has the partial slice then, if there is any."""
    surplus = int(pods.sum()) - count
    if surplus <= 0:
        return pods
    homes, held = _find_homes(tree, shape, pods)
    able = np.flatnonzero(held >= surplus)
    partial = able[(held[able] - surplus) % shape.slice_size == shape.tail]
    return _drop_in(pods, homes, held, partial if len(partial) else able, np.full_like(held, surplus))


def _find_homes(tree: TopologyTree, shape: Shape, pods: Indices) -> tuple[Indices, Indices]:
    """The slice domain of each domain of the lowest level, and the pods of each slice domain."""
    level = tree.levels[shape.slice_level]
    homes = level.starts.searchsorted(tree.levels[tree.lowest].starts, side="right") - 1
    return homes, np.bincount(homes, pods, minlength=level.count).astype(np.int64)


def _drop_in(pods: Indices, homes: Indices, held: Indices, able: Indices, surplus: Indices) -> Indices:
    """Takes the surplus of one slice domain away from it: of those that are `able` that with the fewest pods, the last of these."""
    home = int(able[np.lexsort((-able, held[able]))[0]])
    inside, stay = homes == home, pods.copy()
    stay[inside] = _drop(pods[inside], np.zeros_like(pods[inside]), int(surplus[home]))
    return stay


def _count_whole(tree: TopologyTree, shape: Shape, pods: Indices) -> list[Indices]:
    """Pods per level and domain, with every slice of every layer completed."""
    whole: list[Indices] = []
    here = pods
    for level in range(tree.lowest, -1, -1):
        here = here if level == tree.lowest else tree.sum_children(level, here)
        here = -(-here // shape.sizes[level]) * shape.sizes[level]
        whole.insert(0, here)
    return whole


def _drop(pods: Indices, near: Indices, surplus: int) -> Indices:
    """Takes a surplus away from domains, the most scattered first."""
    order = np.lexsort((-np.arange(len(pods)), pods, near))
    before = np.cumsum(pods[order]) - pods[order]
    stay = pods.copy()
    stay[order] -= np.clip(surplus - before, 0, pods[order])
    return stay
