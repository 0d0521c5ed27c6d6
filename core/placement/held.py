"""Pods that already have a place: on which nodes of the tree, and which of them have lost theirs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from core.model.assignment import TopologyAssignment
from core.model.podset import PodSetRequest
from core.placement.free import FreeCapacity
from core.placement.tree import Flags, Indices, TopologyTree

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Held:
    """A pod set and the assignment it was admitted with.

    `nodes` names the node that each pod is counted on, as `Placement.nodes` does. Where the lowest
    level is the hostname the assignment says it, in other topologies it must be given. `stuck` says of how many of its pods a node
    that serves the others does not take: these need another place, those stay.
    """

    request: PodSetRequest
    assignment: TopologyAssignment
    nodes: Sequence[tuple[str, int]] | None = None
    stuck: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """A pod set's pods per node of the tree: those that stay, and those whose node has failed or does not take them.

    `gone` are lost pods whose node is not in the tree any more; `stale` says why pods that seem to stay may not.
    """

    kept: Indices
    lost: Indices
    gone: int = 0
    stale: str | None = None

    @property
    def missing(self) -> int:
        """Pods that need a new place."""
        return int(self.lost.sum()) + self.gone


def find_failed(tree: TopologyTree, failed: Collection[str | tuple[str, ...]]) -> Flags:
    """Nodes that take no pods any more: a string names a node, by its name or else by its hostname, a tuple a
    domain of the lowest level as assignments name it."""
    out = np.zeros(len(tree), dtype=bool)
    domains = [name for name in failed if isinstance(name, tuple)]
    for name in failed:
        if isinstance(name, str) and name in tree.index:
            out[tree.index[name]] = True
        elif isinstance(name, str) and tree.is_hostname:
            domains.append((name,))
    for values in domains:
        levels = tree.declared[-1:] if len(values) == 1 else tree.declared
        domain = find_domains(tree, levels, [values])[0]
        if domain != _NOWHERE:
            out |= tree.spans(domain)
    return out


def locate(view: FreeCapacity, held: Held, failed: Collection[str | tuple[str, ...]], out: Flags) -> Located:
    """Tells apart which pods stay and which have lost their node; `out` is `find_failed` of `failed`.

    Stale is an assignment that counts pods on a node that is not there or not ready and yet not among the
    failed ones. Pods on a cordoned or tainted node run on and stay.
    """
    tree = view.tree
    counts = np.zeros(len(tree), dtype=np.int64)
    gone, stale = 0, None
    for values, node, count in _nodes_of(tree, held):
        if node != _NOWHERE:
            counts[node] += count
        elif values in failed or values[-1] in failed:
            gone += count
        else:
            stale = f"{'/'.join(values)} has pods, is not there and not among the failed nodes"
    unready = np.flatnonzero((counts > 0) & ~view.ready & ~out)
    if len(unready):
        stale = f"node {tree.names[unready[0]]} has pods, is not ready and not among the failed nodes"
    lost = np.where(out, counts, np.minimum(counts, count_stuck(tree, [held])))
    return Located(counts - lost, lost, gone, stale)


def count_stuck(tree: TopologyTree, all_held: Iterable[Held]) -> Indices:
    """Pods per node that it does not take, of all pod sets together."""
    found = np.zeros(len(tree), dtype=np.int64)
    for held in all_held:
        for name, count in held.stuck:
            if name in tree.index:
                found[tree.index[name]] += count
    return found


def _nodes_of(tree: TopologyTree, held: Held) -> Iterable[tuple[tuple[str, ...], int, int]]:
    """Name, node in the tree (_NOWHERE if it has none) and pods there."""
    if held.nodes is not None:
        return [((name,), tree.index.get(name, _NOWHERE), count) for name, count in held.nodes]
    assert tree.is_hostname, "without a hostname level the nodes that pods are counted on must be given"
    values = [domain.values for domain in held.assignment.domains]
    nodes = find_domains(tree, held.assignment.levels, values)
    return zip(values, nodes, [domain.count for domain in held.assignment.domains], strict=True)


def find_domains(tree: TopologyTree, levels: Sequence[str], wanted: Sequence[tuple[str, ...]]) -> list[int]:
    """Domains of the lowest level by their values at some levels; -1 where there is none or more than one."""
    if any(level not in tree.declared for level in levels):
        return [_NOWHERE] * len(wanted)
    places = tuple([tree.declared.index(level) for level in levels])
    exact = tree.is_hostname and tuple(levels) == tree.emitted_levels
    found = []
    for values in wanted:
        # A hostname is nearly always the node's name; only where it is not, or is gone, all nodes are looked through, once for each tree.
        node = tree.index.get(values[-1], _NOWHERE) if exact else _NOWHERE
        if node == _NOWHERE or tuple(tree.paths[node][place] for place in places) != values:
            node = tree.find_by_values(places).get(values, _NOWHERE)
        found.append(node)
    return found
