"""Replacement of failed nodes: pods on healthy nodes stay where they are, those of the failed nodes are placed again.

Any number of nodes is replaced at once. A pod set, or group of pod sets, that still has pods somewhere is completed
around them (core.placement.replace.added_pods); one that has lost all of them is placed like a new workload.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from core.placement.algorithms.profile import Profile
from core.placement.engine import Decision, PodSetPlacement, place
from core.placement.refusals import NotFit, RefusalKind
from core.placement.replace.unit import UnitPart, add_placed, complete_unit, group_parts, name_nodes
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.placed_pods import Located, PlacedPodSet, add_outside, count_stuck, find_failed, locate


def replace_failed(
    view: FreeCapacity,
    held: Sequence[PlacedPodSet],
    failed: Collection[str | tuple[str, ...]],
    profile: Profile,
    *,
    free: Matrix | None = None,
    recreated: bool = True,
) -> Decision:
    """Returns assignments for all pod sets of a workload with failed nodes, in the order of `held`; a refusal has those without lost pods.

    `held` are all pod sets of the workload; in the free matrix, which is not changed, their pods count as used. `failed` names nodes, or
    domains by their level values, that take no pods any more (`find_failed`). A pod set that has lost none keeps its assignment as it is,
    and all do where no controller recreates lost pods (`recreated` False). A pod set that has lost pods, but has others on a node that is
    not ready either, is refused as stale until that node is named, too. Of a node that rejects some of its pods (`PlacedPodSet.stuck`) only
    so many move, and none is added to it. Pods on nodes that exist and are not in the tree (`PlacedPodSet.outside`) keep their places.
    """
    out = find_failed(view.tree, failed)
    located = [locate(view, each, failed, out) for each in held]
    placed = {each.request.name: _build_unchanged(view, each, found) for each, found in zip(held, located, strict=True)}
    if not recreated:
        return Decision(tuple(placed.values()))
    for each, found in zip(held, located, strict=True):
        if found.stale is not None and found.missing:
            name = each.request.name
            return _refuse(placed, located, NotFit(RefusalKind.STALE_ASSIGNMENT, name, f"pod set {name}: {found.stale}"))
    free = (view.free if free is None else free).copy()
    closed = out | (count_stuck(view.tree, held) > 0)  # a node that does not take one pod takes no other in its place
    free[:, closed] = np.minimum(free[:, closed], 0)
    view = view.close_nodes(closed)
    parts = [_make_part(each, found) for each, found in zip(held, located, strict=True)]
    units = [unit for unit in group_parts(parts) if any(part.missing for part in unit)]
    # Those that the pods which stay tie to a place come first, those that are free to go anywhere later, and these all at once.
    for unit in filter(_has_pods, units):
        outcome = complete_unit(view, unit, profile, free, ~out)
        if isinstance(outcome, NotFit):
            return _refuse(placed, located, outcome)
        placed |= {part.request.name: outcome[part.request.name] for part in unit if part.missing}
        view = add_placed(view, parts, *outcome.values())
    anew = [part for unit in units if not _has_pods(unit) for part in unit]
    decision = place(view, [part.request for part in anew], profile, free=free) if anew else Decision(())
    if decision.refusal is not None:
        return _refuse(placed, located, decision.refusal)
    missing = {part.request.name for part in anew if part.missing}
    placed |= {placement.pod_set: placement for placement in decision.placements if placement.pod_set in missing}
    whole = (_with_outside(view, placed[each.request.name], each, found) for each, found in zip(held, located, strict=True))
    return Decision(tuple(whole))


def _make_part(held: PlacedPodSet, found: Located) -> UnitPart:
    request = replace(held.request, count=held.assignment.count)
    return UnitPart(request, found.kept, found.lost, found.missing, found.gone, held.assignment.count, found.anchors, found.beside)


def _with_outside(view: FreeCapacity, placement: PodSetPlacement, held: PlacedPodSet, found: Located) -> PodSetPlacement:
    """Returns the placement of a pod set with its domains outside of the tree; one that has lost no pod has them already."""
    if not found.outside or not found.missing:
        return placement
    return replace(placement, assignment=add_outside(view.tree, placement.assignment, held, found.outside))


def _has_pods(unit: Sequence[UnitPart]) -> bool:
    """Whether any pod of a unit stays where it is."""
    return any(part.has_pods for part in unit)


def _build_unchanged(view: FreeCapacity, held: PlacedPodSet, found: Located) -> PodSetPlacement:
    nodes = tuple(held.nodes) if held.nodes is not None else name_nodes(view, found.kept + found.lost)
    return PodSetPlacement(held.request.name, held.assignment, view.tree.declared[-1], nodes)


def _refuse(placed: dict[str, PodSetPlacement], located: Sequence[Located], refusal: NotFit) -> Decision:
    """Nothing is replaced; pod sets that have lost no pod keep what they have."""
    return Decision(tuple(each for each, found in zip(placed.values(), located, strict=True) if not found.missing), refusal)
