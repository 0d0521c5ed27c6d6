"""TopologyPlacement: one placement for each distinct value of a node label (KEP-5732, "Scheduler Plugins")."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from core.model.plugin_choice import GroupEvent
from core.placement.topology.tree import Indices, TopologyTree
from core.podgroups.framework import PlacementCycle
from core.podgroups.group import PodGroupInfo
from core.podgroups.placements import Placement, Placements, join

_Labels = tuple[str, ...]


class TopologyPlacement:
    """The domains that a group's constraints allow, by rank: first those where preferred levels hold, too, then with the finest of these
    given up, and so on.

    Nodes without a label are in no domain of it. A group that runs in part stays in the one domain of its running pods.
    """

    name = "TopologyPlacement"
    events = frozenset({GroupEvent.NODE_CHANGED, GroupEvent.NODE_TOPOLOGY_CHANGED})

    def __init__(self) -> None:
        self._cuts: WeakKeyDictionary[TopologyTree, dict[_Labels, Placements]] = WeakKeyDictionary()

    def generate(self, cycle: PlacementCycle, group: PodGroupInfo, parents: Sequence[Placements]) -> Sequence[Placements]:
        """Returns, rank by rank from 0, the domains within each of the parents: first by all levels, then without the finest preferred one,
        and so on. Each combination of levels has a rank for each parent; some may be empty. Without levels it is the parent itself. Where
        pods of the group have nodes it has only the domain with all of them. See `PlacementGenerator.generate`."""
        tree = cycle.view.tree
        found: list[Placements] = []
        for labels in _list_labels_by_rank(group):
            for within in parents:
                cut = self._cut(tree, labels) if labels else within
                if labels and not _is_whole(within, tree):
                    cut = _cut_parents(tree, cut, within)
                found.append((_find_around_running(tree, group, cut) if group.running else cut).copy_with_rank(len(found)))
        return found

    def _cut(self, tree: TopologyTree, labels: _Labels) -> Placements:
        kept = self._cuts.setdefault(tree, {})
        if labels not in kept:
            kept[labels] = _cut(tree, labels, self._cut(tree, labels[:-1]) if len(labels) > 1 else None)
        return kept[labels]


def _list_labels_by_rank(group: PodGroupInfo) -> list[_Labels]:
    """Labels by which to part the nodes, for each rank."""
    left = list(group.constraints)
    found = [tuple(constraint.level for constraint in left)]
    for constraint in reversed(group.constraints):
        if constraint.preferred:
            left.remove(constraint)
            found.append(tuple(constraint.level for constraint in left))
    return found


def _cut(tree: TopologyTree, labels: _Labels, above: Placements | None) -> Placements:
    """All nodes that have the labels, parted by their values, in the order of these."""
    domains: dict[tuple[str, ...], list[int]] = {}
    for node, own in enumerate(tree.labels):
        values = tuple(own[label] for label in labels if label in own)
        if len(values) == len(labels):
            domains.setdefault(values, []).append(node)
    parents = {} if above is None else {placement.name: placement for placement in above}
    return join(
        [
            Placement("/".join(values), np.array(nodes, dtype=np.int64), parent=parents.get("/".join(values[:-1])))
            for values, nodes in sorted(domains.items())
        ]
    )


def _is_whole(parents: Placements, tree: TopologyTree) -> bool:
    return len(parents) == 1 and len(parents.order) == len(tree)


def _cut_parents(tree: TopologyTree, cut: Placements, parents: Placements) -> Placements:
    """The parts of a cut's placements that lie in each of some parents."""
    found = []
    for parent in parents:
        inside = parent.build_mask(tree)
        for placement in cut:
            nodes: Indices = placement.nodes[inside[placement.nodes]]
            if len(nodes):
                name = f"{parent.name}/{placement.name}" if parent.name else placement.name
                found.append(Placement(name, nodes, parent=parent if parent.name else placement.parent))
    return join(found)


def _find_around_running(tree: TopologyTree, group: PodGroupInfo, cut: Placements) -> Placements:
    """The placement with all pods that run; none where they are in several, or on nodes that are in none."""
    running = {tree.index.get(node, -1) for node in group.running}
    return cut.select(np.array([running <= set(placement.nodes.tolist()) for placement in cut], dtype=bool))
