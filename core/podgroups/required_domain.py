"""Whether pods of a group that have their nodes are together, as its required levels want it: nodes are relabelled underneath.

A pod of a deleted node is nowhere: it is there until Kubernetes collects it, and no reason to find the others apart.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.group import TopologyConstraint


def count_there(nodes: Iterable[str], view: FreeCapacity) -> Counter[str]:
    """Returns the number of pods by node, for nodes that are there; `nodes` has the node of each pod."""
    return Counter(node for node in nodes if node in view.tree.index)


def find_domain(levels: Sequence[TopologyConstraint], pods: Mapping[str, int], view: FreeCapacity) -> str | None:
    """Returns the domain of the required levels that holds all `pods` (by node), its name as a placement's: the values of all these levels,
    joined by slashes. Empty where no level is required or there are no pods. None where pods are in several domains or on nodes without
    such a label. Raises KeyError where a node is not in the tree; `count_there` leaves such nodes out."""
    required = [one.level for one in levels if not one.preferred]
    found = {tuple(_get_labels(node, view).get(level) for level in required) for node in pods}
    if len(found) > 1:
        return None
    values = next(iter(found), ())
    names = [value for value in values if value is not None]
    return "/".join(names) if len(names) == len(values) else None


def describe_spread(levels: Sequence[TopologyConstraint], pods: Mapping[str, int], view: FreeCapacity) -> str:
    """Returns a text with the number of pods (`pods`: by node) in each domain of the finest required level, sorted by its value. Raises
    IndexError where no level is required, KeyError where a node is not in the tree."""
    level, counts = [one.level for one in levels if not one.preferred][-1], Counter[str]()
    for node, count in pods.items():
        counts[_get_labels(node, view).get(level, "no such label")] += count
    return f"in no one {level}: {', '.join(f'{domain} {count}' for domain, count in sorted(counts.items()))}"


def _get_labels(node: str, view: FreeCapacity) -> Mapping[str, str]:
    return view.tree.labels[view.tree.index[node]]
