"""The three phases of KEP-5732: candidate placements are generated, checked pod by pod, scored, and one is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.model.step_budget import UNLIMITED, StepBudget
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.tree import Indices
from core.podgroups.framework import PlacementCycle, Plugins, PodGroupAssignment, assume_placement
from core.podgroups.group import PodGroupInfo
from core.podgroups.placement_feasibility import Checked, are_apart, bound_by_amounts, check, compute_upper_bound
from core.podgroups.placements import Placement, Placements, build_whole, join
from core.podgroups.scorers import BinPacking, PodCount
from core.podgroups.topology_placement import TopologyPlacement

_NONE: Indices = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The placement of a group and where its pods go; `pods` of them have a place, which are enough."""

    placement: Placement
    assignment: PodGroupAssignment
    score: float

    @property
    def pods(self) -> int:
        """Returns the number of pods that get a place by this, of those that wait."""
        return self.assignment.count


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision. Without a choice `tried` are the placements there were, all ranks together, and `why` is the reason
    that a plugin gives for missing ones."""

    chosen: Chosen | None
    tried: tuple[Placements, ...] = ()
    why: str = ""


def default_plugins() -> Plugins:
    """Returns the plugins by default: TopologyPlacement generates, PodCount and BinPacking score with weight 1 each. So most pods come
    first, then the fullest placement."""
    return Plugins((TopologyPlacement(),), ((PodCount(), 1.0), (BinPacking(), 1.0)))


def decide(view: FreeCapacity, group: PodGroupInfo, plugins: Plugins) -> Outcome:
    """Returns the placement that is chosen, which takes at least `group.missing` pods, or without one what was tried; the same for the same
    nodes and pods, in whatever order they came. `view` is not changed.

    Of placements that take enough those of the lowest rank are chosen from, by the sum of weighted scores, then by name. Of these only the
    first `plugins.feasible_limit` by name (None: all) are scored, and none that the budget of steps did not reach. Raises InvalidSelector
    where a node affinity cannot be evaluated, and what the plugins raise (NotServed, Unanswered).
    """
    if view.budget is UNLIMITED:
        view = view.copy_with_budget(StepBudget())
    cycle = PlacementCycle(view)
    generated: Sequence[Placements] = (build_whole(view.tree),)
    for generator in plugins.generators:
        generated = generator.generate(cycle, group, generated)
    for placements in sorted(generated, key=lambda one: one.rank):
        feasible = _find_feasible(cycle, group, placements, plugins)
        if len(feasible.placements):
            return Outcome(_choose_best(cycle, group, feasible, plugins), tuple(generated))
    return Outcome(None, tuple(generated), cycle.why)


def _find_feasible(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements, plugins: Plugins) -> Checked:
    """Returns the placements with room for enough pods, at most as many as the limit, in the order of their names."""
    missing, limit = group.missing, plugins.feasible_limit
    if not len(placements):
        return check(cycle, group, placements)
    if not plugins.states and (len(group.pod_sets) == 1 or are_apart(cycle, group, placements)):
        if len(group.pod_sets) > 1:
            placements = placements.select(bound_by_amounts(cycle, group, placements) >= missing)
        checked = check(cycle, group, placements) if len(placements) else Checked(cycle, group, placements, _NONE, _NONE)
        enough = np.flatnonzero(checked.pods >= missing)
        return checked if len(enough) == len(checked.placements) and limit is None else checked.select(enough[:limit])
    hopeful = np.flatnonzero(compute_upper_bound(cycle, group, placements) >= missing)
    found: list[Checked] = []
    for number, at in enumerate(hopeful.tolist()):
        if number and not cycle.view.budget.spend(0):
            break
        one = _check_assumed(cycle, group, placements[at], plugins)
        if one.pods[0] >= missing:
            found.append(one)
            if limit is not None and len(found) == limit:
                break
    return _join_checked(cycle, group, found, placements.rank)


def _check_assumed(cycle: PlacementCycle, group: PodGroupInfo, placement: Placement, plugins: Plugins) -> Checked:
    """One placement as state plugins have it."""
    with assume_placement(plugins.states, cycle, group, placement):
        return check(cycle, group, join([placement], placement.rank))


def _join_checked(cycle: PlacementCycle, group: PodGroupInfo, found: Sequence[Checked], rank: int) -> Checked:
    def build_column(values: list[int]) -> Indices:
        return np.array(values, dtype=np.int64)

    return Checked(
        cycle,
        group,
        join([one.placements[0] for one in found], rank),
        build_column([int(one.pods[0]) for one in found]),
        build_column([int(one.room[0]) for one in found]),
        None,
        [one.compute_assignment(0) for one in found],
    )


def _choose_best(cycle: PlacementCycle, group: PodGroupInfo, feasible: Checked, plugins: Plugins) -> Chosen:
    total = np.zeros(len(feasible.placements))
    for scorer, weight in plugins.scorers:
        if weight:
            total += weight * scorer.score(cycle, group, feasible)
    at = int(total.argmax())  # the first of equals: placements are in the order of their names
    return Chosen(feasible.placements[at], feasible.compute_assignment(at), float(total[at]))
