"""The topology as arrays: nodes sorted by their path of level values, every domain one contiguous range.

Nodes are always the leaves (decision 4 of docs/decisions/0004): below the lowest declared level there is one more,
the nodes themselves, unless that level is the hostname, where each domain is a single node.

    level 0 (block)   | b1                | b2      |      starts[0] = [0, 4]
    level 1 (rack)    | r1      | r2      | r1      |      starts[1] = [0, 2, 4]
    level 2 (node)    | n1 | n2 | n3 | n4 | n5 | n6 |      starts[2] = [0, 1, 2, 3, 4, 5]

Because nodes are sorted by the full path, the index of a domain within its level is also its place
in the order of level values, which decides ties and the order of answers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter, ne
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from core.model.quantity import LARGEST
from core.names import HOSTNAME_LABEL

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_KEPT_DOMAINS = 64
Value = TypeVar("Value", np.int64, np.bool_)


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """A node in the tree: its name identifies it, its labels define where it is."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Nodes without a clear place, which no pod gets (decision 3 of docs/decisions/0004)."""

    missing_label: Mapping[str, tuple[str, ...]]  # level label -> names of nodes without it
    same_path: tuple[tuple[str, ...], ...]  # groups of nodes that share every level value


@dataclass(frozen=True, slots=True)
class Level:
    """One level: domain d covers the nodes starts[d] to ends[d].

    `parents` index the level above. The children of d are the domains first_child[d] to
    first_child[d + 1] of the level below; empty at the lowest level.
    """

    label: str
    starts: Indices
    ends: Indices
    parents: Indices
    first_child: Indices

    @property
    def count(self) -> int:
        """Number of domains."""
        return len(self.starts)


class TopologyTree:
    """Immutable tree over the nodes of one flavor.

    `levels` are the declared ones plus, where the lowest of them is not the hostname, the nodes.
    """

    def __init__(self, declared: Sequence[str], nodes: Iterable[NodeLabels]) -> None:
        self.declared = tuple(declared)
        self.lowest = len(self.declared) - 1  # the lowest declared level: what an assignment is made of
        self.is_hostname = self.declared[-1] == HOSTNAME_LABEL
        placed, self.left_out = _place(self.declared, nodes)
        self.names: tuple[str, ...] = tuple(name for _, name, _ in placed)
        self.labels: tuple[Mapping[str, str], ...] = tuple(node.labels for *_, node in placed)
        self.paths: tuple[tuple[str, ...], ...] = tuple(path for path, *_ in placed)
        self.index: Mapping[str, int] = {name: i for i, name in enumerate(self.names)}
        self.levels = _build_levels(self.declared, self.is_hostname, self.paths)
        unique = self.is_hostname and len({path[-1] for path in self.paths}) == len(self.paths)
        # Levels that an assignment names: the hostname alone where it identifies a node, else all.
        self.emitted_levels = self.declared[-1:] if unique else self.declared
        self._codes: dict[str, tuple[Indices, tuple[str, ...]]] = {}
        self._domains: dict[tuple[str, frozenset[str]], Flags] = {}
        self._by_values: dict[tuple[int, ...], dict[tuple[str, ...], int]] = {}
        self._code_of: dict[str, Mapping[str, int]] = {}
        self._keys = {key for node in self.labels for key in node}
        self._absent: tuple[Indices, tuple[str, ...]] = (np.full(len(self.names), -1, dtype=np.int64), ())

    def __len__(self) -> int:
        return len(self.names)

    def find_level(self, label: str) -> int | None:
        """Returns the index of a declared level, 0 at the top; None if the topology has no such level."""
        return self.declared.index(label) if label in self.declared else None

    def get_values(self, level: int, domain: int) -> tuple[str, ...]:
        """Returns the level values of a domain (its index at `level`) from the top down to `level`. For a level of single nodes below
        the declared ones the last value is the node's name."""
        first = int(self.levels[level].starts[domain])
        path = self.paths[first][: level + 1]
        return path if level < len(self.declared) else (*path, self.names[first])

    @cached_property
    def emitted(self) -> tuple[tuple[str, ...], ...]:
        """The values that an assignment writes for each domain of the lowest declared level, in the order of the domains."""
        kept = len(self.emitted_levels)
        return tuple(self.paths[first][-kept:] for first in self.levels[self.lowest].starts.tolist())

    def sum_nodes(self, level: int, per_node: Indices) -> Indices:
        """Returns the sums of a per-node array over the domains of a level, shape (domains,); the array itself where each domain is one
        node."""
        starts = self.levels[level].starts
        return per_node if len(starts) == len(per_node) else np.add.reduceat(per_node, starts)

    def sum_amounts(self, level: int, per_node: Indices) -> Indices:
        """Returns the sums of amounts of a resource per domain of a level, each amount cut at `most_summed`."""
        return self.sum_nodes(level, np.clip(per_node, -self.most_summed, self.most_summed))

    @property
    def most_summed(self) -> int:
        """The largest amount per node at which the sum over all nodes is not above `LARGEST`."""
        return LARGEST // max(1, len(self))

    def sum_children(self, level: int, per_child: Indices) -> Indices:
        """Returns the sums, per domain of `level`, of an array with a value per domain of the level below."""
        return self.reduce_children(np.add, level, per_child)

    def has_any_node(self, level: int, per_node: Flags) -> Flags:
        """Returns, per domain of a level, whether a flag is set on any of its nodes; the array itself where each domain is one node."""
        starts = self.levels[level].starts
        return per_node if len(starts) == len(per_node) else np.logical_or.reduceat(per_node, starts)

    def list_children(self, level: int, domain: int) -> Indices:
        """Returns the domains of the level below that belong to one domain of `level`, ascending."""
        first = self.levels[level].first_child
        return np.arange(first[domain], first[domain + 1])

    def count_children(self, level: int, domains: Indices) -> Indices:
        """Returns, for each domain of `level`, how many domains of the level below it has."""
        first = self.levels[level].first_child
        counts: Indices = first[domains + 1] - first[domains]
        return counts

    def list_children_of_all(self, level: int, domains: Indices) -> Indices:
        """Returns the domains of the level below that belong to any of some domains of `level`, ascending."""
        first = self.levels[level].first_child
        if len(domains) == 1:
            return np.arange(first[domains[0]], first[domains[0] + 1])
        domains = np.sort(domains)
        starts = first[domains]
        counts = first[domains + 1] - starts
        ends = counts.cumsum()
        children: Indices = np.arange(int(ends[-1]) if len(ends) else 0) + (starts - ends + counts).repeat(counts)
        return children

    def find_parents(self, level: int, domains: Indices) -> Indices:
        """Returns the domains of the level above that some domains of `level` (ascending) belong to, each once."""
        parents = self.levels[level].parents[domains]
        once: Indices = parents[np.append(True, parents[1:] != parents[:-1])] if len(parents) > 1 else parents
        return once

    def reduce_children(
        self, reduce: np.ufunc, level: int, per_child: npt.NDArray[Value], domains: Indices | None = None
    ) -> npt.NDArray[Value]:
        """Returns a reduction (`np.add`, `np.minimum`, ...) of an array with a value per domain of the level below. The result has one per
        domain of `level`, or per one of `domains` (ascending; None: all)."""
        first = self.levels[level].first_child
        if domains is None:
            return reduce.reduceat(per_child, first[:-1]) if len(per_child) else per_child
        counts = self.count_children(level, domains)
        return reduce.reduceat(per_child[self.list_children_of_all(level, domains)], counts.cumsum() - counts)

    def find_span(self, domain: int) -> Flags:
        """Returns a flag per node of the tree: whether it is in a domain of the lowest declared level."""
        level = self.levels[self.lowest]
        flags = np.zeros(len(self.names), dtype=bool)
        flags[level.starts[domain] : level.ends[domain]] = True
        return flags

    def cache_domains(self, label: str, names: frozenset[str], find: Callable[[str, frozenset[str]], Flags]) -> Flags:
        """Returns the flags per node that `find` returns for a label and nodes of this tree, and keeps them for the next time: the same
        array, which must not be changed. Of more than 64 the first that was kept is dropped.

        Labels never change within a tree.
        """
        found = self._domains.get((label, names))
        if found is None:
            found = self._domains[label, names] = find(label, names)
            if len(self._domains) > _KEPT_DOMAINS:
                del self._domains[next(iter(self._domains))]
        return found

    def find_by_values(self, places: tuple[int, ...]) -> Mapping[tuple[str, ...], int]:
        """Returns the domains of the lowest declared level, by index, for their values at `places`, indexes of declared levels; -1 for
        values of several. The table is kept, and must not be changed."""
        table = self._by_values.get(places)
        if table is None:
            table = self._by_values[places] = {}
            for domain, first in enumerate(self.levels[self.lowest].starts.tolist()):
                values = tuple([self.paths[first][place] for place in places])
                table[values] = -1 if values in table else domain
        return table

    def encode_label(self, label: str) -> tuple[Indices, tuple[str, ...]]:
        """Returns a label's values as small integers per node (int64, from 0 in the order in which they come first; -1: absent), and the
        value that each integer stands for. Where no node has the label, all are -1 and there are no values. Both are kept, and must not be
        changed."""
        if label not in self._keys:
            return self._absent
        found = self._codes.get(label)
        if found is None:
            meaning: dict[str, int] = {}
            codes = [-1 if (value := labels.get(label)) is None else meaning.setdefault(value, len(meaning)) for labels in self.labels]
            found = np.array(codes, dtype=np.int64), tuple(meaning)
            self._codes[label] = found
            self._code_of[label] = meaning
        return found

    def has_label(self, label: str) -> bool:
        """Whether any node has a label of this name."""
        return label in self._keys

    def find_code(self, label: str) -> Mapping[str, int]:
        """Returns the integer that stands for each value of a label in `encode_label`; empty where no node has it. It is kept, and must not
        be changed."""
        self.encode_label(label)
        return self._code_of.get(label, {})


def _place(declared: tuple[str, ...], nodes: Iterable[NodeLabels]) -> tuple[list[tuple[tuple[str, ...], str, NodeLabels]], LeftOut]:
    placed: list[tuple[tuple[str, ...], str, NodeLabels]] = []
    missing: dict[str, list[str]] = {}
    for node in nodes:
        try:
            placed.append((tuple(map(node.labels.__getitem__, declared)), node.name, node))
        except KeyError:
            for label in declared:
                if label not in node.labels:
                    missing.setdefault(label, []).append(node.name)
    placed.sort()  # names differ, so that no comparison reaches the entries after them
    same: list[tuple[str, ...]] = []
    if declared[-1] == HOSTNAME_LABEL and len({path for path, *_ in placed}) < len(placed):
        runs = [list(run) for _, run in groupby(placed, key=itemgetter(0))]
        same = [tuple(name for _, name, _ in run) for run in runs if len(run) > 1]
        placed = [run[0] for run in runs if len(run) == 1]
    left_out = LeftOut({label: tuple(sorted(names)) for label, names in sorted(missing.items())}, tuple(same))
    return placed, left_out


def _build_levels(declared: tuple[str, ...], is_hostname: bool, paths: Sequence[tuple[str, ...]]) -> tuple[Level, ...]:
    count = len(paths)
    tables: list[tuple[str, Indices, Indices, Indices]] = []
    changed = np.zeros(count, dtype=bool)  # node i starts a new domain at the level being built
    changed[:1] = True
    above = np.zeros(count, dtype=np.int64)  # domain of each node at the level above
    for depth, label in enumerate(declared):
        values = [path[depth] for path in paths]
        changed[1:] |= np.fromiter(map(ne, values[1:], values), dtype=bool, count=max(0, count - 1))
        starts = np.flatnonzero(changed)
        tables.append((label, starts, np.append(starts[1:], count), above[starts]))
        above = np.cumsum(changed) - 1
    if not is_hostname:
        starts = np.arange(count)
        tables.append(("node", starts, starts + 1, above))
    children = [np.searchsorted(below[3], np.arange(len(this[1]) + 1)) for this, below in pairwise(tables)]
    children.append(np.zeros(0, dtype=np.int64))
    return tuple(Level(*table, first_child) for table, first_child in zip(tables, children, strict=True))
