"""Which labels of nodes form a tree, from the widest level to the narrowest: labels with a known meaning first, others
by their values.

A label nests in another if nodes that share its value share the other's, too. The order of nodes or labels has no
effect.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.model.quantity import show_count
from core.names import HOSTNAME_LABEL

Labels = Mapping[str, str]
Nodes = Mapping[str, Labels]  # by name
MOST_LEVELS = 16

ZONES = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
# Networks as clouds, fabrics and tools name their levels, each from the widest to the narrowest. The first that names most nodes is taken.
NETWORKS: tuple[tuple[str, ...], ...] = (
    ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
    ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-host"),
    tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in range(1, 5)),
    tuple(f"oci.oraclecloud.com/rdma.{part}" for part in ("hpc_island_id", "network_block_id", "local_block_id")),
    tuple(f"backend.coreweave.cloud/{part}" for part in ("fabric", "superpod", "leafgroup")),
    tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(5, -1, -1)),
    tuple(f"network.topology.nvidia.com/tier-{tier}" for tier in range(5, -1, -1)),
    tuple(f"network.topology.nvidia.com/{part}" for part in ("datacenter", "core", "spine", "block", "leaf")),
)
# Domains of one accelerator interconnect, which may lie at any height of a network.
ACCELERATORS = (
    "network.topology.nvidia.com/accelerator",
    "accelerator.topograph.run/domain",
    "accelerator.topograph.run/sub-domain",
    "ds.coreweave.com/nvlink.domain",
    "nvidia.com/gpu.clique",
)
# Parts of the names of labels for the place of a node.
_PLACES = "region zone site campus building hall room row aisle island pod superpod cell block subblock cluster core spine leaf leafgroup"
_PLACES += " tor switch rack cage cabinet chassis enclosure domain network fabric rail topology"
_IS_PLACE = re.compile(rf"(^|[^a-z])({'|'.join(_PLACES.split())})s?([^a-z]|$)")
# Parts for the kind of a node, which is no place.
_IS_NO_PLACE = re.compile(
    r"(^|\.)(beta\.kubernetes\.io|feature\.node\.kubernetes\.io|node-role\.kubernetes\.io|nvidia\.com|karpenter\.sh|karpenter\.k8s\.aws)/"
    r"|^kubernetes\.io/|^node\.kubernetes\.io/|instance|nodepool|nodegroup|node-group|node-pool|machine|image|version|capacity|os($|[^a-z])"
)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FoundLevels:
    """Labels from the widest level to the narrowest, and what is odd about them, a sentence each."""

    levels: tuple[str, ...]
    remarks: tuple[str, ...]


def find_levels(nodes: Nodes) -> FoundLevels:
    """Returns the levels of a topology of these nodes, with remarks on them: node labels, the widest first, and the hostname last where any
    node has it. With the hostname there are `MOST_LEVELS` at most. No levels where no label is of use."""
    remarks: list[str] = []
    network = _choose_network(nodes, remarks)
    if network:
        levels = _join_accelerators(nodes, _join_zones(nodes, network, remarks), remarks)
        remarks += _list_reused_values(nodes, levels)
    else:
        levels = _join_accelerators(nodes, _search(nodes, remarks), remarks)
    if any(HOSTNAME_LABEL in have for have in nodes.values()):
        levels = [*levels[: MOST_LEVELS - 1], HOSTNAME_LABEL]
    remarks += [*_list_nodes_without_label(nodes, levels), *_list_single_node_domains(nodes, levels), *_list_same_hosts(nodes, levels)]
    return FoundLevels(tuple(levels), tuple(remarks))


def _choose_network(nodes: Nodes, remarks: list[str]) -> list[str]:
    """Returns the levels of the family that names the place of most nodes, without those that few nodes have or that
    are equal to the one above."""
    best: list[str] = []
    most = 0
    for family in NETWORKS:
        usual = [label for label in family if _is_usual(nodes, label)]
        covered = sum(all(label in have for label in usual) for have in nodes.values()) if usual else 0
        if covered > most:
            best, most = usual, covered
    kept: list[str] = []
    for label in best:
        if kept and _is_nested(nodes, kept[-1], label) and _is_nested(nodes, label, kept[-1]):
            remarks.append(f"label {label} is not used: its domains are those of {kept[-1]}")
        else:
            kept.append(label)
    for label in (label for family in NETWORKS for label in family if label not in best and _count(nodes, label)):
        few = f"{_count(nodes, label)} of {show_count(len(nodes), 'node')} have it"
        other = f"{kept[0]} describes the network of more nodes" if kept else few
        remarks.append(f"label {label} is not used: {other if _is_usual(nodes, label) else few}")
    return kept


def _join_zones(nodes: Nodes, levels: Sequence[str], remarks: list[str]) -> list[str]:
    """Region and zone go above a network, where there is more than one and what is below lies in one each."""
    above = []
    for label in ZONES:
        if len(_list_values(nodes, label)) < 2:
            continue
        crossing = _find_crossing(nodes, levels[0], label)
        if crossing is None:
            above.append(label)
        else:
            remarks.append(crossing)
    return [*above, *levels]


def _join_accelerators(nodes: Nodes, levels: Sequence[str], remarks: list[str]) -> list[str]:
    """Domains of an interconnect come below the last level in which they lie, and above the first that lies in them."""
    joined = list(levels)
    for label in ACCELERATORS:
        if not _is_usual(nodes, label) or len(_list_values(nodes, label)) == len(nodes):
            continue
        place = next((at for at in range(len(joined), 0, -1) if _is_nested(nodes, label, joined[at - 1])), 0)
        if place and _is_nested(nodes, joined[place - 1], label):
            continue  # it is equal to the one above
        below = joined[place:]
        if all(_is_nested(nodes, other, label) for other in below[:1]):
            joined.insert(place, label)
        else:
            crossing = _find_crossing(nodes, below[0], label)
            remarks += [crossing] if crossing is not None else []
    return joined


def _search(nodes: Nodes, remarks: list[str]) -> list[str]:
    """Returns the longest chain of labels where each nests in the next wider one and has more domains: of those with
    names of places, or else of all.

    Of labels that divide the nodes alike only the first by name is used.
    """
    labels = sorted({label for have in nodes.values() for label in have} - {HOSTNAME_LABEL, *ACCELERATORS})
    dividing = [label for label in labels if _has_groups(nodes, label)]
    named = [label for label in dividing if label in ZONES or (_IS_PLACE.search(label.lower()) and not _IS_NO_PLACE.search(label.lower()))]
    candidates = named or [label for label in dividing if not _IS_NO_PLACE.search(label.lower())]
    different: list[str] = []
    for label in candidates:
        same = next((other for other in different if _is_nested(nodes, label, other) and _is_nested(nodes, other, label)), None)
        if same is None:
            different.append(label)
        else:
            remarks.append(f"label {label} is not used: its domains are those of {same}")
    chain = _find_longest_chain(nodes, different)
    for label in different:
        if label not in chain:
            crossings = (
                _find_crossing(nodes, *pair) for other in chain for pair in [sorted((label, other), key=_build_fineness_key(nodes))]
            )
            remarks.append(next((text for text in crossings if text is not None), f"label {label} is not used"))
    return chain


def _has_groups(nodes: Nodes, label: str) -> bool:
    """Whether half of the nodes or more have a label, and it makes some groups of them."""
    return 1 < len(_list_values(nodes, label)) < _count(nodes, label) and _is_usual(nodes, label)


def _find_longest_chain(nodes: Nodes, labels: Iterable[str]) -> list[str]:
    """From the widest to the narrowest; of equally long ones the first by name."""
    longest: dict[str, list[str]] = {}
    counts = {label: len(_list_values(nodes, label)) for label in labels}
    for label in sorted(counts, key=lambda each: (counts[each], each)):
        above = [chain for other, chain in longest.items() if counts[other] < counts[label] and _is_nested(nodes, label, other)]
        longest[label] = [*min(above, key=_rank_chain, default=[]), label]
    return min(longest.values(), key=_rank_chain, default=[])


def _rank_chain(chain: Sequence[str]) -> tuple[int, Sequence[str]]:
    return -len(chain), chain


def _build_fineness_key(nodes: Nodes) -> Callable[[str], tuple[int, str]]:
    return lambda label: (-len(_list_values(nodes, label)), label)


# --- what is odd --------------------------------------------------------------------------------------


def _list_reused_values(nodes: Nodes, levels: Sequence[str]) -> list[str]:
    """Values below two domains of the level above: they are taken for two domains."""
    found = []
    for upper, lower in pairwise(levels):
        crossing = _find_crossing(nodes, lower, upper)
        found += [f"{crossing}; they are taken for different domains"] if crossing is not None else []
    return found


def _list_nodes_without_label(nodes: Nodes, levels: Sequence[str]) -> list[str]:
    missing = {label: sorted(name for name, have in nodes.items() if label not in have) for label in levels}
    return [f"{_format_some(names)} without the label {label}: left out" for label, names in missing.items() if names]


def _list_single_node_domains(nodes: Nodes, levels: Sequence[str]) -> list[str]:
    """Returns messages about domains of one node, in levels that are wider than nodes; a level with no other domains
    gets one message."""
    found = []
    wider = [label for label in levels if label != HOSTNAME_LABEL]
    for depth, label in enumerate(wider, 1):
        counts = Counter(path for have in nodes.values() if (path := _find_path(have, wider[:depth])) is not None)
        single = sorted("/".join(path) for path, count in counts.items() if count == 1)
        if single and len(single) == len(counts):
            found.append(f"every domain of level {label} has one node only: it could be left out")
        elif single:
            found.append(f"level {label}: {len(single)} of {show_count(len(counts), 'domain')} of one node: {_format_few(single)}")
    return found


def _find_path(have: Labels, levels: Sequence[str]) -> tuple[str, ...] | None:
    """The values of all levels; None where one is missing."""
    return tuple(have[label] for label in levels) if all(label in have for label in levels) else None


def _list_same_hosts(nodes: Nodes, levels: Sequence[str]) -> list[str]:
    """Nodes that share even the whole path are left out (decision 3 of docs/decisions/0004)."""
    if levels[-1:] != [HOSTNAME_LABEL]:
        return []
    paths: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(nodes):
        path = _find_path(nodes[name], levels)
        if path is not None:
            paths.setdefault(path, []).append(name)
    shared = {path: names for path, names in paths.items() if len(names) > 1}
    return [f"{_format_some(names)} share the {HOSTNAME_LABEL} {path[-1]} and all above it: left out" for path, names in shared.items()]


def _find_crossing(nodes: Nodes, lower: str, upper: str) -> str | None:
    """Describes a value of one label that lies in two values of another; None where each lies in one."""
    wholes: dict[str, set[str]] = {}
    for have in nodes.values():
        if lower in have and upper in have:
            wholes.setdefault(have[lower], set()).add(have[upper])
    crossing = sorted(value for value, above in wholes.items() if len(above) > 1)
    if not crossing:
        return None
    above = sorted(wholes[crossing[0]])
    more = f", and {show_count(len(crossing) - 1, 'more value')} like it" if len(crossing) > 1 else ""
    return f"label {lower} does not nest in {upper}: {crossing[0]} lies in {_format_few(above)}{more}"


def _is_nested(nodes: Nodes, lower: str, upper: str) -> bool:
    """Whether nodes that share a value of the lower label share one of the upper, and have one."""
    wholes: dict[str, str] = {}
    return all(upper in have and wholes.setdefault(have[lower], have[upper]) == have[upper] for have in nodes.values() if lower in have)


def _is_usual(nodes: Nodes, label: str) -> bool:
    """Whether half of the nodes or more have a label: nodes without the label of a level are left out."""
    return 0 < len(nodes) <= 2 * _count(nodes, label)


def _count(nodes: Nodes, label: str) -> int:
    return sum(label in have for have in nodes.values())


def _list_values(nodes: Nodes, label: str) -> set[str]:
    return {have[label] for have in nodes.values() if label in have}


def _format_some(names: Sequence[str]) -> str:
    return f"{show_count(len(names), 'node')} ({_format_few(names)})"


def _format_few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
