"""Pods that already have a place: on which nodes of the tree, and which of them have lost theirs."""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.model.podset import Mode, PodSetRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.placement.topology.free_capacity import FreeCapacity
from core.placement.topology.tree import Flags, Indices, TopologyTree

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class PlacedPodSet:
    """A pod set and the assignment it was admitted with.

    `nodes` names the node that each pod is counted on, as `PodSetPlacement.nodes` does. Where the lowest level is the
    hostname the assignment names it; in other topologies it must be given. `stuck` has the number of its pods that a
    node rejects although it serves the others: these need another place, those stay. `outside` has the labels of nodes
    that exist and are not in the tree, by the domain of the assignment: they have left the flavor or the topology, and
    pods that run there stay.
    """

    request: PodSetRequest
    assignment: TopologyAssignment
    nodes: Sequence[tuple[str, int]] | None = None
    stuck: Sequence[tuple[str, int]] = ()
    outside: Mapping[tuple[str, ...], Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Located:
    """A pod set's pods per node of the tree: those that stay, and those that a node has lost or rejects.

    `gone` are lost pods on nodes that are not in the tree any more; `stale` is the reason why pods that seem to stay
    may not. `outside` are domains with pods that stay on nodes outside of the tree, and `anchors` counts these pods on
    nodes of the tree in the same domains, as far as there are such; `beside` counts only those with the same domains of
    all levels but the lowest.
    """

    kept: Indices
    lost: Indices
    gone: int = 0
    stale: str | None = None
    outside: tuple[DomainCount, ...] = ()
    anchors: Indices | None = None
    beside: Indices | None = None

    @property
    def present(self) -> Indices:
        """Pods per node of the tree, int64, that define in which domains the pod set is: those that stay there, and `anchors`."""
        return self.kept if self.anchors is None else self.kept + self.anchors

    @property
    def missing(self) -> int:
        """The number of pods that need a new place: lost ones on nodes of the tree, and those on nodes that are gone."""
        return int(self.lost.sum()) + self.gone


def find_failed(tree: TopologyTree, failed: Collection[str | tuple[str, ...]]) -> Flags:
    """Returns a flag per node of the tree: whether `failed` names it, so that it takes no pods any more. A string is a node's name or else,
    only where the lowest level is the hostname, its hostname; a tuple names a domain of the lowest level by its own value, or by those of
    all levels. A name that is unknown or that several domains have sets no flag."""
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
            out |= tree.find_span(domain)
    return out


def locate(view: FreeCapacity, held: PlacedPodSet, failed: Collection[str | tuple[str, ...]], out: Flags) -> Located:
    """Returns a pod set's pods that stay apart from those that have lost their node; `out` is `find_failed` of `failed`. Nothing is
    changed.

    Pods on a cordoned or tainted node continue to run and stay; so do those on a node that exists outside of the tree. `stale` is set if
    pods are counted on a node that is missing or not ready and yet not among the failed ones.
    """
    tree = view.tree
    counts = np.zeros(len(tree), dtype=np.int64)
    gone, stale = 0, None
    outside: list[DomainCount] = []
    is_named_alike = held.assignment.levels == tree.emitted_levels  # else one assignment cannot name the old and the new domains
    for values, node, count in _list_nodes(tree, held):
        if node != _NOWHERE:
            counts[node] += count
        elif values in failed or values[-1] in failed:
            gone += count
        elif values in held.outside and is_named_alike:
            stuck = min(count, sum(many for name, many in held.stuck if name == values[-1]))
            gone += stuck
            if count > stuck:
                outside.append(DomainCount(values, count - stuck))
        else:
            stale = _explain_missing(tree, values)
    unready = np.flatnonzero((counts > 0) & ~view.ready & ~out)
    if len(unready):
        stale = f"node {tree.names[unready[0]]} has pods, is not ready and not among the failed nodes"
    lost = np.where(out, counts, np.minimum(counts, count_stuck(tree, [held])))
    if not outside:
        return Located(counts - lost, lost, gone, stale)
    staying = [(held.outside[each.values], each.count) for each in outside]
    anchors, beside = count_anchors(tree, held.request, staying), _count_beside(tree, staying)
    return Located(counts - lost, lost, gone, stale, tuple(outside), anchors, beside)


def _explain_missing(tree: TopologyTree, values: tuple[str, ...]) -> str:
    """Why no node of the tree is the one that an assignment names, though it has not failed."""
    same = [name for name, path in zip(tree.names, tree.paths, strict=True) if path[-1] == values[-1]] if len(values) == 1 else []
    if len(same) <= 1:
        return f"{'/'.join(values)} has pods, is not there and not among the failed nodes"
    nodes = f"{', '.join(same[:4])}{f' and {len(same) - 4} more' if len(same) > 4 else ''}"
    return f"{values[-1]} is the hostname of several nodes ({nodes}), and the assignment does not say of which; give the others another one"


def add_outside(
    tree: TopologyTree, assignment: TopologyAssignment, held: PlacedPodSet, outside: Sequence[DomainCount]
) -> TopologyAssignment:
    """Returns a copy of an assignment with domains outside of the tree (`outside`, in the order of the former assignment of `held`), each
    before those that it was before in the former one; those that were last come last, and a partial slice after all others. Raises
    KeyError for one that `held` does not have."""
    former = held.assignment
    place = {domain.values: at for at, domain in enumerate(former.domains)}
    domains, left = list[DomainCount](), deque(outside)
    for domain in assignment.domains:
        while left and place[left[0].values] < place.get(domain.values, -1):
            domains.append(left.popleft())
        domains.append(domain)
    whole = TopologyAssignment(assignment.levels, (*domains, *left))
    topology = held.request.topology
    at = tree.find_level(topology.slices[0].level) if topology is not None and topology.partial and topology.slices else None
    if topology is None or at is None:
        return whole
    known = dict(zip(assignment.domains, find_domains(tree, assignment.levels, [each.values for each in assignment.domains]), strict=True))
    homes = (
        tuple(held.outside[each.values].get(label, "") for label in tree.declared[: at + 1])
        if each.values in held.outside
        else tree.get_values(tree.lowest, known[each])[: at + 1]
        for each in whole.domains
    )
    return whole.move_partial_last(tuple(homes), topology.slices[0].size)


def count_anchors(tree: TopologyTree, request: PodSetRequest, outside: Iterable[tuple[Mapping[str, str], int]]) -> Indices:
    """Returns pods per node of the tree, int64: pods on nodes outside of it, counted on the first node of the tree in the same domain. That
    is the domain above the lowest level or, where it has no node of the tree, the one of the level that the request names. Pods without any
    such node are left out, and all are where the lowest level is required.

    `outside` has the labels of each outside node and its pods.
    """
    return _count_at(tree, ((_find_anchor(tree, request, labels), count) for labels, count in outside))


def _count_beside(tree: TopologyTree, outside: Iterable[tuple[Mapping[str, str], int]]) -> Indices:
    """As `count_anchors`, on nodes in the same domains of all levels but the lowest."""
    return _count_at(tree, ((_find_first(tree, labels, tree.lowest), count) for labels, count in outside))


def _count_at(tree: TopologyTree, counts: Iterable[tuple[int, int]]) -> Indices:
    found = np.zeros(len(tree), dtype=np.int64)
    for node, count in counts:
        if node != _NOWHERE:
            found[node] += count
    return found


def _find_anchor(tree: TopologyTree, request: PodSetRequest, labels: Mapping[str, str]) -> int:
    """Returns a node of the tree in the domain of a node outside of it: the domain above the lowest level, else that of the level that
    the pod set asks for; _NOWHERE if the tree has none."""
    topology = request.topology
    level = tree.find_level(topology.level) if topology is not None and topology.level is not None else None
    if topology is not None and topology.mode is Mode.REQUIRED and level == tree.lowest:
        return _NOWHERE  # no other node is in the domain of one node
    found = _find_first(tree, labels, tree.lowest)
    return found if found != _NOWHERE or level is None else _find_first(tree, labels, level + 1)


def _find_first(tree: TopologyTree, labels: Mapping[str, str], depth: int) -> int:
    """Returns the first node of the tree that has the values of some labels at so many levels, from the highest; _NOWHERE if none has."""
    wanted = tuple(labels.get(label, "") for label in tree.declared[:depth])
    at = bisect_left(tree.paths, wanted)
    return at if wanted and at < len(tree) and tree.paths[at][:depth] == wanted else _NOWHERE


def count_stuck(tree: TopologyTree, all_held: Iterable[PlacedPodSet]) -> Indices:
    """Returns, per node of the tree, the pods of all pod sets together that the node rejects (`PlacedPodSet.stuck`), int64. Names of
    nodes that are not in the tree are ignored."""
    found = np.zeros(len(tree), dtype=np.int64)
    for held in all_held:
        for name, count in held.stuck:
            if name in tree.index:
                found[tree.index[name]] += count
    return found


def _list_nodes(tree: TopologyTree, held: PlacedPodSet) -> Iterable[tuple[tuple[str, ...], int, int]]:
    """Name, node in the tree (_NOWHERE if it has none) and pods there."""
    if held.nodes is not None:
        return [((name,), tree.index.get(name, _NOWHERE), count) for name, count in held.nodes]
    assert tree.is_hostname, "without a hostname level the nodes that pods are counted on must be given"
    values = [domain.values for domain in held.assignment.domains]
    nodes = find_domains(tree, held.assignment.levels, values)
    return zip(values, nodes, [domain.count for domain in held.assignment.domains], strict=True)


def find_domains(tree: TopologyTree, levels: Sequence[str], wanted: Sequence[tuple[str, ...]]) -> list[int]:
    """Returns, for each tuple of values at some levels (labels), the index of its domain of the lowest level; -1 where there is none or
    more than one, and for all where a level is not one of the tree."""
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
