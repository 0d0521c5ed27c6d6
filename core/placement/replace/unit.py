"""A pod set, or a group of pod sets, of which some pods stay where they are while the others are placed near them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from core.model.podset import PodSetRequest
from core.placement.algorithms.decision import PodSetPlacement, emit, subtract_placement, subtract_pods
from core.placement.algorithms.podset_groups import fits_of_group, split_roles
from core.placement.algorithms.profile import Profile
from core.placement.algorithms.slices import find_shape
from core.placement.engine import place
from core.placement.refusals import NotFit, RefusalKind
from core.placement.replace.added_pods import Completion, PresentPods
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.tree import Flags, Indices

_MOST_HOMES = 8  # slice domains in which a missing leader is tried


@dataclass(frozen=True, slots=True)
class UnitPart:
    """One pod set of a unit: its pods per node that stay, those that lost their node, and how many need a place.

    `gone` of the lost pods were on nodes that are not in the tree any more; `before` were all its pods until now. `anchors`, where pods
    stay on nodes outside of the tree, counts these on nodes of the tree that are in the same domains, as far as there are such; `beside`
    those of them with the same domains of all levels but the lowest.
    """

    request: PodSetRequest
    kept: Indices
    lost: Indices
    missing: int
    gone: int = 0
    before: int = 0
    anchors: Indices | None = None
    beside: Indices | None = None

    @property
    def present(self) -> Indices:
        """Pods per node of the tree, int64, that define in which domains the pod set is: those that stay there, and `anchors`."""
        return self.kept if self.anchors is None else self.kept + self.anchors

    @property
    def has_pods(self) -> bool:
        """Whether any of its pods stays where it is, on nodes of the tree or outside."""
        return self.anchors is not None or bool(self.kept.any())


def group_parts(parts: Sequence[UnitPart]) -> list[tuple[UnitPart, ...]]:
    """Returns tuples of the parts that belong together: those of one pod set group, any other alone; in the order of the first of each."""
    units: dict[str, list[UnitPart]] = {}
    for part in parts:
        topology = part.request.topology
        key = f"group {topology.group}" if topology is not None and topology.group else f"pod set {part.request.name}"
        units.setdefault(key, []).append(part)
    return [tuple(unit) for unit in units.values()]


def complete_unit(
    view: FreeCapacity, unit: Sequence[UnitPart], profile: Profile, free: Matrix, healthy: Flags
) -> dict[str, PodSetPlacement] | NotFit:
    """Places missing pods on healthy nodes (`healthy`: a flag per node) and subtracts from `free` what they use. Returns placements by pod
    set, each of all its pods, or a refusal, with nothing subtracted.

    Where all pods of the unit are missing it is placed like a new one, and `healthy` is not looked at. In a group the remaining pods of all
    members define where the group is, and the member with the fewest missing pods is placed first; if that fails, the one with the most.
    A leader that is missing beside pods of sliced workers is then tried in one slice domain after the other, where it costs these least.
    """
    if not len(view.tree) or not any(part.has_pods for part in unit):  # without nodes the refusal is that of a new one
        return _place_anew(view, unit, profile, free)
    members = _as_group(unit)
    fewest_first = sorted(members, key=lambda part: part.missing)
    refusals: list[NotFit] = []
    in_any_place = ((order, healthy) for order in (fewest_first, fewest_first[::-1])[: len(unit)])
    for order, first in chain(in_any_place, _generate_leaders_places(view, members, free, healthy, refusals)):
        trial = free.copy()
        explaining = view if len(refusals) < len(unit) else view.set_explains(False)  # the first refusal is the answer
        outcome = _complete_in_order(explaining, order, profile, trial, healthy, first)
        if not isinstance(outcome, NotFit):
            free[:] = trial
            return {part.request.name: outcome[part.request.name] for part in unit}
        refusals.append(outcome)
    refused = refusals[0]
    names = tuple(part.request.name for part in unit if part.missing)
    return replace(refused, group=names) if len(unit) > 1 else refused


def _place_anew(view: FreeCapacity, unit: Sequence[UnitPart], profile: Profile, free: Matrix) -> dict[str, PodSetPlacement] | NotFit:
    requests = [part.request for part in unit]
    decision = place(view, requests, profile, free=free)
    if decision.refusal is not None:
        return decision.refusal
    for request, placement in zip(requests, decision.placements, strict=True):
        subtract_placement(view, free, request, placement)
    return {placement.pod_set: placement for placement in decision.placements}


def _as_group(unit: Sequence[UnitPart]) -> list[UnitPart]:
    """Gives the leader of a group the topology request of its workers, without slices.

    The leader is the smaller pod set before anything changed, so that a group shrunk to one worker does not swap roles.
    """
    if len(unit) != 2:
        return list(unit)
    before = [replace(part.request, count=part.before) for part in unit]
    workers, leader = split_roles(*before)
    shared = replace(workers.topology, slices=()) if workers.topology is not None else None
    return [replace(part, request=replace(part.request, topology=shared)) if part.request.name == leader.name else part for part in unit]


def _generate_leaders_places(
    view: FreeCapacity, members: Sequence[UnitPart], free: Matrix, healthy: Flags, refusals: Sequence[NotFit]
) -> Iterator[tuple[Sequence[UnitPart], Flags]]:
    """Yields the parts with the leader first, and a flag for the one node that it may have: of each slice domain of its workers the node
    where it costs them the fewest pods, at most `_MOST_HOMES`, those in the domain of the group before others.

    Nothing unless leader and workers lack pods, the workers have slices, and the `refusals` so far are of both, for want of capacity.
    """
    sliced = [part for part in members if part.request.topology is not None and part.request.topology.slices]
    if len(members) != 2 or len(sliced) != 1 or not all(part.missing for part in members):
        return
    (workers,), (leader,) = sliced, [part for part in members if part is not sliced[0]]
    shape = find_shape(view.tree, workers.request)
    if isinstance(shape, NotFit) or any(refusal.kind is not RefusalKind.NOT_FIT for refusal in refusals):
        return
    if {refusal.pod_set for refusal in refusals} != {workers.request.name, leader.request.name}:
        return  # one of them that came first has no place even without the other
    counted = fits_of_group(view, workers.request, replace(leader.request, count=leader.missing), free)
    able = np.flatnonzero(counted.takes_leader & healthy)
    levels, loss = view.tree.levels, counted.loss[able]
    homes, around = (levels[level].starts.searchsorted(able, side="right") - 1 for level in (shape.slice_level, shape.start))
    order = np.lexsort((able, loss, homes))
    order = order[np.unique(homes[order], return_index=True)[1]]
    present = view.tree.sum_nodes(shape.start, np.sum([part.present for part in members], axis=0))
    order = order[np.lexsort((able[order], loss[order], present[around[order]] == 0))]
    for node in able[order][:_MOST_HOMES].tolist():
        if not view.budget.spend(view.pass_steps):
            return
        yield (leader, workers), np.arange(len(view.tree)) == node


def _complete_in_order(
    view: FreeCapacity, unit: Sequence[UnitPart], profile: Profile, free: Matrix, healthy: Flags, first: Flags
) -> dict[str, PodSetPlacement] | NotFit:
    """Completes the parts one after the other on healthy nodes, the first part on those that `first` flags."""
    present: Indices = np.sum([part.present for part in unit], axis=0)
    placed: dict[str, PodSetPlacement] = {}
    for part in unit:
        shape = find_shape(view.tree, part.request)
        if isinstance(shape, NotFit):
            return shape
        try:
            eligible = view.find_eligible(part.request) & (first if part is unit[0] else healthy)
            around = PresentPods(part.kept, present, part.lost, part.gone, part.beside)
            completion = Completion(view, part.request, shape, profile, around, eligible, free)
        except InvalidSelector as error:
            return NotFit(RefusalKind.INVALID_SELECTOR, part.request.name, f"pod set {part.request.name}: {error}")
        refusal = completion.add(part.missing) if part.missing else None
        if refusal is not None:
            return refusal
        subtract_pods(view, free, part.request, name_nodes(view, completion.added))
        present = present + completion.added
        placed[part.request.name] = emit(view, part.request, part.kept + completion.added, shape)
        view = add_placed(view, unit, placed[part.request.name])
    return placed


def add_placed(view: FreeCapacity, parts: Sequence[UnitPart], *placed: PodSetPlacement) -> FreeCapacity:
    """Returns a copy of the capacity with pods where they were placed, as neighbours; the same object if no part has host ports, pod
    affinity or a kept spread. Free amounts stay."""
    if not any(part.request.traits.is_particular for part in parts):
        return view
    traits = {part.request.name: part.request.traits for part in parts}
    return view.copy_with_pods(*((traits[placement.pod_set], placement.nodes) for placement in placed))


def name_nodes(view: FreeCapacity, per_node: Indices) -> tuple[tuple[str, int], ...]:
    """Returns the names of nodes that have pods, and how many, in the order of the tree."""
    return tuple((view.tree.names[node], int(per_node[node])) for node in np.flatnonzero(per_node))
