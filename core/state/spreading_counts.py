"""How many admitted Workloads are in which domain, for rules of topology spreading (KEP-13746 of Kueue): counted once, then kept current.

A table is made when it is first asked for, by a look at the Workloads that have one of the labels alone, and changed in place by each
admission and each end. It holds for the tree on which it was made; nodes that come or go make another tree, and another table. Then those
of the former tree are dropped: each would keep that tree, and all that is free on it, in memory.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.model.admission import Admission
from core.model.topology_spreading import Spreading
from core.model.wire.assignment import TopologyAssignment
from core.placement.topology.tree import Indices, TopologyTree
from core.state.facts import PodSetFacts
from core.state.flavor_view import FlavorView
from core.state.workload_state import Standing

_MOST_TABLES, _MOST_VALUES = 128, 1_000  # tables that are kept, and values of a label that one of them may ask for
_MOST_CELLS = 4_000_000  # domains of all tables that are kept together, 8 bytes each
_MOST_VERSIONS = 16  # values of a query that are looked up to learn whether a Workload has come
Label = tuple[str, str, str, str]  # ClusterQueue, namespace, key, value


@dataclass(frozen=True, slots=True)
class SpreadQuery:
    """Which Workloads are counted, and by which of their pod sets: those of a ClusterQueue and a namespace with one of the labels, by the
    assignments of a flavor to pod sets of the unit. A unit is the name of a pod set's group, or of the pod set without one."""

    cluster_queue: str
    namespace: str
    flavor: str
    unit: str
    label: str
    values: tuple[str, ...]

    def list_labels(self) -> Iterator[Label]:
        """Yields the keys by which the Workloads are found."""
        return ((self.cluster_queue, self.namespace, self.label, value) for value in self.values)


@dataclass(frozen=True, slots=True)
class SpreadCounts:
    """Workloads per domain: `levels[i]` of the level i of a tree, int64, as far down as was asked for; `total` those with any
    assignment."""

    levels: tuple[Indices, ...]
    total: int


@dataclass(frozen=True, slots=True)
class _Member:
    """What a Workload holds, as far as it is counted."""

    cluster_queue: str
    namespace: str
    labels: Mapping[str, str]
    given: tuple[tuple[str, frozenset[str], TopologyAssignment], ...]  # unit, flavors, assignment

    def list_labels(self) -> Iterator[Label]:
        return ((self.cluster_queue, self.namespace, key, value) for key, value in self.labels.items())


@dataclass(slots=True)
class _Table:
    query: SpreadQuery
    view: FlavorView
    levels: list[Indices]  # as far down as was asked for
    total: int = 0

    @property
    def tree(self) -> TopologyTree:
        return self.view.capacity.tree

    @property
    def cells(self) -> int:
        return sum(map(len, self.levels))


@dataclass(slots=True)
class SpreadingIndex:
    """Workloads with labels that hold quota, and the tables that were asked for. It is empty unless facts have labels (`labels`), which
    they have only with the gate SPREADING."""

    _members: dict[str, _Member] = field(default_factory=dict)
    _by_label: dict[Label, dict[str, None]] = field(default_factory=dict)
    _marks: dict[str, int] = field(default_factory=dict)  # hashes of members, by key
    _versions: dict[Label, int] = field(default_factory=dict)  # the sum of the marks of its members
    _version: int = 0  # the sum of all marks
    _tables: dict[SpreadQuery, _Table] = field(default_factory=dict)  # the one that was made last at the end
    _asking: dict[Label, dict[SpreadQuery, None]] = field(default_factory=dict)

    def put(self, key: str, standing: Standing) -> None:
        """Records what a Workload holds now, in place of what it held before. Without labels it holds nothing here."""
        before, now = self._members.get(key), _read_member(key, standing)
        if before == now:
            return
        if before is not None:
            del self._members[key]
            self._note(key, before, -1, self._marks.pop(key))
        if now is not None:
            self._members[key], self._marks[key] = now, hash((key, now.given))
            self._note(key, now, 1, self._marks[key])

    def _note(self, key: str, member: _Member, sign: int, mark: int) -> None:
        self._version += sign * mark
        asking: dict[SpreadQuery, None] = {}
        for label in member.list_labels():
            keys = self._by_label.setdefault(label, {})
            self._versions[label] = self._versions.get(label, 0) + sign * mark
            if sign > 0:
                keys[key] = None
            else:
                del keys[key]
                if not keys:
                    del self._by_label[label], self._versions[label]
            asking |= self._asking.get(label, {})
        for query in asking:
            _add(self._tables[query], [member], sign)

    def read_version(self, query: SpreadQuery) -> int:
        """Returns another number where the query counts other Workloads, or these in other places; with many values also where others do.
        It is as before once all is as before: what a claim adds in each cycle is no change."""
        if len(query.values) > _MOST_VERSIONS:
            return self._version
        return sum(self._versions.get(label, 0) for label in query.list_labels())

    def count(self, query: SpreadQuery, view: FlavorView, deepest: int, without: Collection[str] = ()) -> SpreadCounts | None:
        """Returns the Workloads of a query in the domains of a flavor's view, from the top down to the level `deepest`, those with the keys
        `without` left out; None where there are none. The arrays may be those that are kept, and must not be changed."""
        if not any(label in self._by_label for label in query.list_labels()):
            return None
        table = self._tables.get(query)
        if table is None or table.tree is not view.capacity.tree or len(table.levels) <= deepest:
            table = self._build(query, view, deepest)
            if len(query.values) <= _MOST_VALUES:
                self._put_table(query, table)
        left_out = self._list_counted(query, without)
        if left_out:
            table = _Table(query, table.view, [counts.copy() for counts in table.levels], table.total)
            _add(table, left_out, -1)
        return SpreadCounts(tuple(table.levels), table.total)

    def _build(self, query: SpreadQuery, view: FlavorView, deepest: int) -> _Table:
        tree = view.capacity.tree
        table = _Table(query, view, [np.zeros(tree.levels[level].count, dtype=np.int64) for level in range(deepest + 1)])
        keys = dict.fromkeys(key for label in query.list_labels() for key in self._by_label.get(label, ()))
        _add(table, [self._members[key] for key in keys], 1)
        return table

    def _put_table(self, query: SpreadQuery, table: _Table) -> None:
        """Keeps a table as the last to be dropped, and none of another tree of its flavor."""
        former = [other for other, kept in self._tables.items() if other.flavor == query.flavor and kept.tree is not table.tree]
        for other in (*former, *((query,) if query in self._tables and query not in former else ())):
            self._drop_table(other)
        self._tables[query] = table
        for label in query.list_labels():
            self._asking.setdefault(label, {})[query] = None
        cells = sum(kept.cells for kept in self._tables.values())
        while len(self._tables) > 1 and (len(self._tables) > _MOST_TABLES or cells > _MOST_CELLS):
            oldest = next(iter(self._tables))
            cells -= self._tables[oldest].cells
            self._drop_table(oldest)

    def _drop_table(self, query: SpreadQuery) -> None:
        del self._tables[query]
        for label in query.list_labels():
            self._asking[label].pop(query, None)
            if not self._asking[label]:
                del self._asking[label]

    def _list_counted(self, query: SpreadQuery, keys: Iterable[str]) -> list[_Member]:
        """Of some Workloads those that the query counts."""
        values = frozenset(query.values)
        members = (self._members[key] for key in dict.fromkeys(keys) if key in self._members)
        return [
            member
            for member in members
            if (member.cluster_queue, member.namespace) == (query.cluster_queue, query.namespace)
            and member.labels.get(query.label) in values
        ]


def get_unit(pod_set: PodSetFacts) -> str:
    """Returns the name under which a pod set is counted: that of its group, or its own."""
    return pod_set.group or pod_set.name


def build_query(spreading: Spreading, cluster_queue: str, namespace: str, flavor: str, unit: str) -> SpreadQuery:
    """Returns the query for what an annotation asks for; its label must be resolved (`Spreading.resolve`)."""
    return SpreadQuery(cluster_queue, namespace, flavor, unit, spreading.label, spreading.values)


def _read_member(key: str, standing: Standing) -> _Member | None:
    facts, held = standing.facts, standing.held
    if facts is None or facts.labels is None or held is None:
        return None
    return _Member(held.cluster_queue, key.partition("/")[0], facts.labels, tuple(_list_given(facts.pod_sets, held)))


def _list_given(pod_sets: Sequence[PodSetFacts], held: Admission) -> Iterator[tuple[str, frozenset[str], TopologyAssignment]]:
    for pod_set, given in zip(pod_sets, held.pod_sets, strict=False):
        if given.assignment is not None:
            yield get_unit(pod_set), frozenset(given.flavors.values()), given.assignment


def _add(table: _Table, members: Sequence[_Member], sign: int) -> None:
    """Adds Workloads to a table, or subtracts them: each once in each domain of each level. A domain that the tree has not counts nowhere,
    nor does one of an assignment by another lowest level; the Workload itself is in the total."""
    tree, asked, flavor = table.tree, table.query.unit, table.query.flavor
    owners, counts, domains, lowest = list[int](), list[int](), list[int](), tree.declared[-1]
    for number, member in enumerate(members):
        is_counted = False
        for unit, flavors, given in member.given:
            if unit == asked and flavor in flavors:
                is_counted = True
                if given.levels[-1] == lowest:
                    found = table.view.find_domains(given)
                    domains += found
                    owners.append(number)
                    counts.append(len(found))
        table.total += sign * is_counted
    of, at = np.array(owners, dtype=np.int64).repeat(counts), np.array(domains, dtype=np.int64)
    for level in range(tree.lowest, -1, -1):
        if level < tree.lowest:
            at = tree.levels[level + 1].parents[at]
        count = max(1, tree.levels[level].count)
        once = np.unique(of * count + at)  # a Workload counts once in a domain
        of, at = once // count, once % count
        if level < len(table.levels):
            np.add.at(table.levels[level], at, sign)
