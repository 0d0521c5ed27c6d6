"""How many pods of its own kind a pod set lets be on a node.

Pods with a host port go one to a node, and so do those with anti-affinity to their own kind by hostname.
By a wider key they go one to a domain of it: of each such domain one node counts. Which one matters only
within the level that all pods must share, so there is one for every pair of the two.
"""

from collections.abc import Iterable

import numpy as np

from core.model.pod_traits import PodTerm, PodTraits
from core.model.podset import Mode, PodSetRequest
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.pod_affinity import PodNeighbours
from core.placement.topology.topology_spread import limit_spread
from core.placement.topology.tree import Indices


def limit_own(view: FreeCapacity, request: PodSetRequest, per_node: Indices) -> None:
    """Cuts down, in place, the pods that each node holds by capacity (`per_node`) to what a pod set lets be beside its own kind. With host
    ports that is one pod on a node; with anti-affinity against itself one in each domain of the term's key (nodes without the key stay as
    they are). Spread constraints with `keeps_spread` limit as `limit_spread` does. Under a required level this holds within each of its
    domains."""
    keys = dict.fromkeys(term.key for term in list_own_terms(view.around, request.traits))
    _limit(view, request, per_node, keys, find_required_domains(view, request) if keys else per_node)
    for spread in request.traits.spread if request.traits.keeps_spread else ():
        limit_spread(view, spread, find_required_domains(view, request), per_node)


def limit_beside_own(view: FreeCapacity, request: PodSetRequest, per_node: Indices, there: Indices) -> None:
    """Cuts down, in place, the pods that each node holds by capacity (`per_node`) beside those of the pod set that are `there`, pods per
    node. Host ports and anti-affinity against its own pods count, spread constraints do not.

    What is left can all be used at once: a domain of a key has one node, none where it has pods already.
    """
    if request.traits.host_ports:
        per_node[there > 0] = 0
    keys = dict.fromkeys(term.key for term in list_own_terms(view.around, request.traits))
    for key in keys:
        codes = view.tree.encode_label(key)[0]
        per_node[np.isin(codes, codes[(there > 0) & (codes >= 0)])] = 0
    _limit(view, request, per_node, keys, np.zeros_like(per_node))


def _limit(view: FreeCapacity, request: PodSetRequest, per_node: Indices, keys: Iterable[str], required: Indices) -> None:
    """`required` are the domains within which one node counts for each domain of a key."""
    if request.traits.host_ports:
        np.minimum(per_node, 1, out=per_node)
    for key in keys:
        codes = view.tree.encode_label(key)[0]
        able = np.flatnonzero((per_node > 0) & (codes >= 0))
        if not len(able):
            continue
        _, firsts = np.unique(codes[able] * len(codes) + required[able], return_index=True)  # a number for each pair of the two
        per_node[able] = 0
        per_node[able[firsts]] = 1


def list_own_terms(around: PodNeighbours, traits: PodTraits) -> list[PodTerm]:
    """Returns the terms of anti-affinity of a pod set that select its own pods."""
    return [term for term in traits.anti_affinity if around.is_match(term, traits)]


def find_required_domains(view: FreeCapacity, request: PodSetRequest) -> Indices:
    """Returns, per node (int64), the index of its domain at the required level of the request; all 0 where it requires none, or one that
    the tree does not have."""
    tree, topology = view.tree, request.topology
    level = tree.find_level(topology.level) if topology is not None and topology.level and topology.mode is Mode.REQUIRED else None
    if level is None:
        return np.zeros(len(tree), dtype=np.int64)
    return np.searchsorted(tree.levels[level].starts, np.arange(len(tree)), side="right") - 1
