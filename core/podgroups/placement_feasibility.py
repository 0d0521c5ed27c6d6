"""Phase 2: which placements take the group, and how its pods then lie (KEP-5732, "Pod-Level Filtering and Feasibility Check").

Sets of pods are placed one after the other, each seeing what those before it take; what was assumed is gone with the check, since all of it
happens on copies. A group of equal pods, as most are, is checked in all placements at once; so are unlike pods in placements that share no
node, as many of these at a time as have a thousand nodes or so.

The first check is made in any case, the others as long as the decision has steps left.
"""

from dataclasses import dataclass, field

import numpy as np

from core.model.podset import PodSetRequest
from core.placement.algorithms.domain_capacity import fits_on_nodes
from core.placement.engine import subtract_pods
from core.placement.topology.free_capacity import FreeCapacity, Matrix, with_pod
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import Indices
from core.podgroups.equal_pods import spread, spread_each
from core.podgroups.framework import PlacementCycle, PodGroupAssignment
from core.podgroups.group import PodGroupInfo
from core.podgroups.placements import Placement, Placements

_CHUNK = 1024  # nodes of placements that are checked at once
_SET_STEPS = 100  # of placing one set of pods in some placements


@dataclass(slots=True)
class Checked:
    """Placements and what each of them takes of the group; `pods` and `room` as `framework.FeasiblePlacements` has them."""

    cycle: PlacementCycle
    group: PodGroupInfo
    placements: Placements
    pods: Indices
    room: Indices
    per_node: Indices | None = None  # of the group's only set
    assignments: list[PodGroupAssignment] = field(default_factory=list)

    def compute_assignment(self, at: int) -> PodGroupAssignment:
        """Returns where the pods of the placement at a position would go, set by set; see `FeasiblePlacements.compute_assignment`. What
        `check` has counted is used; else the placement is checked again, which raises InvalidSelector where a node affinity cannot be
        evaluated."""
        if self.per_node is None:
            return self.assignments[at] if self.assignments else check_one(self.cycle, self.group, self.placements[at])[0]
        nodes = self.placements.list_nodes(at)
        where, counts = spread(self.per_node[nodes], int(self.pods[at]))
        return PodGroupAssignment((NodeCounts(self.cycle.view.tree, nodes[where], counts),))

    def select(self, at: Indices) -> "Checked":
        """Returns a copy with the placements at some positions (`at`: int64, ascending), and what was counted for them; `per_node` is
        shared."""
        kept = np.zeros(len(self.placements), dtype=bool)
        kept[at] = True
        assignments = [self.assignments[i] for i in at.tolist()] if self.assignments else []
        return Checked(self.cycle, self.group, self.placements.select(kept), self.pods[at], self.room[at], self.per_node, assignments)


def check(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements) -> Checked:
    """Returns what every placement takes, whether that is enough or not, in their order; placements beyond the budget of steps are left
    out, but never the first.

    Raises InvalidSelector where a node affinity cannot be evaluated.
    """
    if len(group.pod_sets) == 1 and cycle.closed is None and cycle.limits is None and not group.pod_sets[0].traits.is_particular:
        (pods,) = group.pod_sets
        per_node = fits_on_nodes(cycle.view, pods).per_node
        fits = placements.compute_sums(per_node)
        coming = max(pods.count, (group.desired_count or 0) - group.has_running)
        return Checked(cycle, group, placements, np.minimum(fits, pods.count), np.minimum(fits, coming), per_node)
    if are_apart(cycle, group, placements):
        return check_apart(cycle, group, placements)
    assignments, room = list[PodGroupAssignment](), list[int]()
    for placement in placements:
        if assignments and not cycle.view.budget.spend(0):
            break
        assignment, coming = check_one(cycle, group, placement)
        assignments.append(assignment)
        room.append(assignment.count + coming)
    taken = np.array([assignment.count for assignment in assignments], dtype=np.int64)
    placements = placements.select(np.arange(len(placements)) < len(assignments))
    return Checked(cycle, group, placements, taken, np.array(room, dtype=np.int64), None, assignments)


def are_apart(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements) -> bool:
    """Returns whether placements can be checked at once: they share no node, and only the free amounts on a node decide how many pods fit.
    That is without closed nodes and limits in `cycle`, and if no pod set has host ports, (anti-)affinity or a spread to keep."""
    if cycle.closed is not None or cycle.limits is not None or any(pods.traits.is_particular for pods in group.pod_sets):
        return False
    return len(np.unique(placements.order)) == len(placements.order)


def check_apart(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements) -> Checked:
    """Returns how many pods fit on placements that `are_apart`, in their order. The most promising ones are counted first, and those beyond
    the budget are left out.

    Raises InvalidSelector where a node affinity cannot be evaluated.
    """
    hopes = bound_by_amounts(cycle, group, placements)
    ends = placements.starts + np.diff(placements.starts, append=len(placements.order))
    pods, room = np.zeros(len(placements), dtype=np.int64), np.zeros(len(placements), dtype=np.int64)
    judged = np.zeros(len(placements), dtype=bool)
    some: list[int] = []
    size = 0
    by_hope = np.argsort(-hopes, kind="stable").tolist()
    for number, at in enumerate(by_hope):
        some.append(at)
        size += int(ends[at] - placements.starts[at])
        if size < _CHUNK and number + 1 < len(by_hope):
            continue
        if judged.any() and not cycle.view.budget.spend(0):
            break
        chunk = np.sort(np.array(some))
        judged[chunk] = True
        pods[chunk], room[chunk] = _check_chunk(cycle, group, placements.select(np.isin(np.arange(len(placements)), chunk)))
        some, size = [], 0
    return Checked(cycle, group, placements.select(judged), pods[judged], room[judged])


def _check_chunk(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements) -> tuple[Indices, Indices]:
    """Returns how many pods fit on each placement, and how many with those that are still expected."""
    view, nodes, starts = cycle.view, placements.order, placements.starts
    free = view.free[:, nodes].copy()
    pods, more = np.zeros(len(starts), dtype=np.int64), np.zeros(len(starts), dtype=np.int64)
    for of_set in group.pod_sets:
        view.budget.charge(_SET_STEPS + len(nodes) // 8)
        fits = _count_some(view, of_set, free, nodes)
        counts = spread_each(fits, starts, of_set.count)
        pods += np.add.reduceat(counts, starts)
        more = np.add.reduceat(fits - counts, starts)
        for resource, amount in with_pod(of_set.requests).items():
            if resource in view.axis:
                free[view.axis[resource]] -= amount * counts
    coming = max(0, (group.desired_count or 0) - group.has_running - group.count)
    return pods, pods + np.minimum(more, coming)


def _count_some(view: FreeCapacity, pods: PodSetRequest, free: Matrix, nodes: Indices) -> Indices:
    """Pods that some nodes hold; `free` is of these only."""
    return view.count_pods_that_fit(pods, free) * view.find_eligible(pods, nodes)


def check_one(
    cycle: PlacementCycle, group: PodGroupInfo, placement: Placement, *, to_the_end: bool = False
) -> tuple[PodGroupAssignment, int]:
    """Returns where one placement has the group's pods, set by set, and how many more of the last set have room, up to desired_count. Stops
    where so many pods have no place that `missing` is out of reach, unless `to_the_end`: the sets after that get none. `cycle` is not
    changed, but its budget of steps is used. Raises InvalidSelector where a node affinity cannot be evaluated."""
    particular = [pods.traits for pods in group.pod_sets if pods.traits.is_particular]
    view = cycle.view.copy_confined(particular, placement.build_mask(cycle.view.tree)) if particular else cycle.view
    free: Matrix | None = None
    found: list[NodeCounts] = []
    spare, more = group.count - group.missing, 0
    limits = cycle.limits
    terms = 0  # of anti-affinity of the sets so far: with each of them each later one is compared, and with each of its own all of these
    for number, pods in enumerate(group.pod_sets):
        view.budget.charge(_SET_STEPS + len(placement.nodes) // 8 + terms + number * len(pods.traits.anti_affinity))
        terms += len(pods.traits.anti_affinity)
        per_node = _fits(cycle, view, pods, free, placement.nodes)
        if limits is not None:
            per_node = limits.limit_pods(number, per_node)
        where, counts = spread(per_node, pods.count)
        counted = NodeCounts(view.tree, placement.nodes[where], counts)
        found.append(counted)
        spare -= pods.count - int(counts.sum())
        if spare < 0 and not to_the_end:
            found += [NodeCounts(view.tree, placement.nodes[:0], counts[:0])] * (len(group.pod_sets) - len(found))
            break
        more = int(per_node.sum() - counts.sum())
        if number + 1 == len(group.pod_sets):
            break  # no later pod set needs what is left
        if limits is not None:
            limits = limits.compute_remaining(number, _spread_out(len(per_node), where, counts))
        if free is None:
            free = view.free.copy()
        subtract_pods(view, free, pods, counted)
        if any(other.traits.is_particular for other in group.pod_sets):
            view = view.copy_with_pods((pods.traits, counted))
    coming = max(0, (group.desired_count or 0) - group.has_running - group.count)
    return PodGroupAssignment(tuple(found)), min(more, coming)


def _spread_out(nodes: int, where: Indices, counts: Indices) -> Indices:
    found = np.zeros(nodes, dtype=np.int64)
    found[where] = counts
    return found


def _fits(cycle: PlacementCycle, view: FreeCapacity, pods: PodSetRequest, free: Matrix | None, nodes: Indices) -> Indices:
    free = view.free if free is None else free
    if pods.traits.is_particular:
        view.budget.charge(2 * view.pass_steps)
        per_node = fits_on_nodes(view, pods, free).per_node[nodes]
    else:
        per_node = _count_some(view, pods, free[:, nodes], nodes)
    return per_node if cycle.closed is None else per_node * ~cycle.closed[nodes]


def compute_upper_bound(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements) -> Indices:
    """Returns, per placement (int64), an upper bound of the pods that any check finds room for: of each set by itself, and of all by their
    sum of each resource (the pre-filter).

    What plugins assume can only lower it. Raises InvalidSelector where a node affinity cannot be evaluated.
    """
    alone = np.zeros(len(placements), dtype=np.int64)
    view = cycle.view
    for pods in group.pod_sets:
        view.budget.charge(view.pass_steps)
        fits = view.count_pods_that_fit(pods, view.free) if pods.traits.is_particular else fits_on_nodes(view, pods).per_node
        alone += np.minimum(placements.compute_sums(fits), pods.count)
    return np.minimum(alone, bound_by_amounts(cycle, group, placements))


def bound_by_amounts(cycle: PlacementCycle, group: PodGroupInfo, placements: Placements) -> Indices:
    """Returns, per placement (int64), an upper bound of the pods that it takes, by the free sum of each resource alone, on all its nodes
    whatever their labels and taints. It may be too high, never too low."""
    view, asked = cycle.view, [(with_pod(pods.requests), pods.count) for pods in group.pod_sets]
    alone = np.full(len(placements), group.count, dtype=np.int64)
    for resource in sorted({resource for amounts, _ in asked for resource in amounts}):
        row = view.axis.get(resource)
        if row is None:
            return np.zeros(len(placements), dtype=np.int64) if all(resource in amounts for amounts, _ in asked) else alone
        left = placements.compute_sums(np.maximum(view.free[row], 0))
        by_size = sorted((amounts.get(resource, 0), count) for amounts, count in asked)
        held = np.zeros(len(placements), dtype=np.int64)
        for amount, count in by_size:
            fit = np.full(len(placements), count) if amount == 0 else np.minimum(left // amount, count)
            held += fit
            left = left - fit * amount
        alone = np.minimum(alone, held)
    return alone
