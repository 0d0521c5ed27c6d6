"""Pods of the whole cluster as the neighbours of pods to be placed: host ports, anti-affinity, and which pods have which labels.

Pods with host ports or anti-affinity are counted per node as they come and go. Labels of the many others are read only when a pod set
asks for pods of some labels: then all pods are entered in a table of arrays, with a column for each label key that is asked for, and the
table is kept up from then on. A term is judged for 50,000 pods by a few operations on arrays; what was found for a term stands until a
pod, a reservation or a namespace changes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from core.model.pod_traits import ANY_IP, HostPort, Labels, PodTerm, PodTraits, Selector, is_selected
from core.placement.topology.tree import Flags
from core.state.facts import PodFacts

_KEYS = 64  # columns: label keys that were asked for last
_AWAITED = 16  # affinities remembered as asked for
_KEPT = 256  # answers kept
_MOST_TERMS, _MOST_OF_POD = 4_000, 16
"""Terms of anti-affinity of other pods that are judged for a pod set, and how many of them of one pod. kube-scheduler judges the rest, and
pods that it leaves waiting get another place."""
_NONE: frozenset[str] = frozenset()
_NO_LABELS: Labels = {}
K = TypeVar("K", bound=Hashable)
Codes = npt.NDArray[np.int32]
Nodes = Callable[[], Collection[str]]


@dataclass(slots=True)
class _Column:
    """Values of one label key: a number per row of the table (-1: the label is absent), and the number of each value."""

    codes: Codes
    values: dict[str, int] = field(default_factory=dict)

    def put(self, row: int, labels: Labels, key: str) -> None:
        value = labels.get(key)
        self.codes[row] = -1 if value is None else self.values.setdefault(value, len(self.values))

    def find_rows(self, operator: str, values: Collection[str]) -> Flags:
        """Rows for which a requirement of a selector holds (`Requirement.is_met`)."""
        if operator in ("In", "NotIn"):
            named = np.zeros(len(self.values) + 1, dtype=bool)  # the last stands for -1
            named[[self.values[value] for value in values if value in self.values]] = True
            inside: Flags = named[self.codes]
            return inside if operator == "In" else ~inside
        there: Flags = self.codes >= 0
        return there if operator == "Exists" else ~there


class _Table:
    """A row per pod that is on a node, and per reservation: its namespace, its labels where asked for, and its nodes."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self._unused: list[int] = []
        self._labels: list[Labels] = []
        self._nodes: list[str | Nodes] = []  # the node of a pod, those of a reservation
        self._namespace: Codes = np.zeros(0, dtype=np.int32)  # -1: no such row
        self._numbers: dict[str, int] = {}  # of namespaces
        self._columns: dict[str, _Column] = {}

    def put(self, key: Hashable, namespace: str, labels: Labels, nodes: str | Nodes) -> None:
        row = self._rows.get(key)
        if row is None:
            if not self._unused:
                self._grow()
            row = self._rows[key] = self._unused.pop()
        self._labels[row], self._nodes[row] = labels, nodes
        self._namespace[row] = self._numbers.setdefault(namespace, len(self._numbers))
        for name, column in self._columns.items():
            column.put(row, labels, name)

    def drop(self, key: Hashable) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            self._namespace[row], self._labels[row], self._nodes[row] = -1, _NO_LABELS, ""
            self._unused.append(row)

    def _grow(self) -> None:
        size, more = len(self._labels), len(self._labels) + 64
        self._unused = list(range(size + more - 1, size - 1, -1))
        self._labels += [_NO_LABELS] * more
        self._nodes += [""] * more
        self._namespace = np.append(self._namespace, np.full(more, -1, dtype=np.int32))
        for column in self._columns.values():
            column.codes = np.append(column.codes, np.full(more, -1, dtype=np.int32))

    def _find_column(self, key: str) -> _Column:
        found = self._columns.pop(key, None)
        if found is None:
            found = _Column(np.full(len(self._labels), -1, dtype=np.int32))
            for row, labels in enumerate(self._labels):
                if key in labels:
                    found.put(row, labels, key)
        self._columns[key] = found
        if len(self._columns) > _KEYS:
            del self._columns[next(iter(self._columns))]
        return found

    def find_nodes(self, terms: Iterable[PodTerm], namespace_labels: Callable[[str], Labels | None]) -> frozenset[str]:
        """Names of the nodes with a pod that every one of the terms matches."""
        rows: Flags = self._namespace >= 0
        for term in terms:
            if term.selector is None:
                return _NONE
            rows &= self._find_in_namespaces(term, namespace_labels)
            for requirement in term.selector:
                if not rows.any():
                    return _NONE
                rows &= self._find_column(requirement.key).find_rows(requirement.operator, requirement.values)
        names: set[str] = set()
        for row in np.flatnonzero(rows).tolist():
            nodes = self._nodes[row]
            if isinstance(nodes, str):
                names.add(nodes)
            else:
                names.update(nodes())
        return frozenset(names)

    def _find_in_namespaces(self, term: PodTerm, namespace_labels: Callable[[str], Labels | None]) -> Flags:
        meant = [name in term.namespaces or _is_selected(term.namespace_selector, namespace_labels(name)) for name in self._numbers]
        return np.array([*meant, False])[self._namespace]


def _is_selected(selector: Selector, labels: Labels | None) -> bool:
    return selector is not None and is_selected(selector, labels or _NO_LABELS)


class ClusterNeighbours:
    """`core.placement.topology.pod_affinity.Neighbours`, folded from pods and reservations by the ledger."""

    def __init__(
        self,
        pods: Mapping[str, PodFacts],
        node_labels: Callable[[str], Labels],
        namespace_labels: Callable[[str], Labels | None],
    ) -> None:
        self._pods = pods
        self.get_node_labels, self.get_namespace_labels = node_labels, namespace_labels
        self._ports: dict[tuple[int, str], dict[str, Counter[str]]] = {}  # port and protocol -> IP -> node -> pods
        self._apart: dict[PodTerm, Counter[str]] = {}  # term of anti-affinity -> node -> pods that have it
        self._speaks_of: dict[str | None, dict[PodTerm, None]] = {}  # its terms by namespace (None: by a selector)
        self._reserved: dict[Hashable, tuple[PodTraits, Nodes]] = {}
        self._ignored: Mapping[str, PodFacts] = {}
        self._table: _Table | None = None  # made when it is first asked for
        self._awaited: dict[tuple[PodTerm, ...], None] = {}
        # Answers that stand as long as no pod, reservation or namespace changes, and no term of anti-affinity does.
        self._matching: dict[tuple[PodTerm, ...], frozenset[str]] = {}
        self._repelling: dict[tuple[str, frozenset[tuple[str, str]]], Sequence[PodTerm]] = {}

    # --- folding ----------------------------------------------------------------------------------------

    def count(self, traits: PodTraits | None, node: str, times: int) -> None:
        """Counts `times` more pods (fewer, if negative) with the host ports and anti-affinity of `traits` on a node; None changes nothing.
        Of the terms of anti-affinity of a pod the first 16 count."""
        if traits is None:
            return
        for port in traits.host_ports:
            by_ip = self._ports.setdefault(port[:2], {})
            if not _add(by_ip, port.ip, node, times) and not by_ip:
                del self._ports[port[:2]]
        for term in traits.anti_affinity[:_MOST_OF_POD]:
            names = [*term.namespaces, None] if term.namespace_selector is not None else term.namespaces
            is_new = term not in self._apart
            if _add(self._apart, term, node, times):
                for namespace in names if is_new else ():
                    self._speaks_of.setdefault(namespace, {})[term] = None
                    self._repelling.clear()
            else:
                self._repelling.clear()
                for namespace in names:
                    self._speaks_of.get(namespace, {}).pop(term, None)

    def observe_pod(self, key: str, old: PodFacts | None, new: PodFacts | None) -> bool:
        """Applies a change of a pod's facts (None: not there; one that holds no node counts as not there). Returns whether a pod set that
        asked for affinity may be helped: a pod that it asks for came to a node, or any pod on a node changed its labels while some are
        asked for."""
        for facts, sign in ((old, -1), (new, 1)):
            if facts is not None and facts.traits is not None and facts.holds:
                self.count(facts.traits, facts.node, sign)
        was, now = (facts if facts is not None and facts.holds else None for facts in (old, new))
        if was is not None and now is not None and (was.node, was.labels) == (now.node, now.labels):
            return False
        if was is None and now is None:
            return False
        self._matching.clear()
        if self._table is not None:
            if now is None:
                self._table.drop(key)
            else:
                self._table.put(key, key.partition("/")[0], now.labels, now.node)
        relabelled = was is not None and now is not None and was.labels != now.labels
        return bool(self._awaited) and (relabelled or (now is not None and any(self._is_match(now, terms) for terms in self._awaited)))

    def reserve(self, key: Hashable, traits: PodTraits, nodes: Nodes | None) -> None:
        """Counts equal pods that are assigned as pods with the labels and namespace of `traits` on the nodes that `nodes` returns whenever
        asked. It replaces what it had for the key; None removes that. Ports and anti-affinity stay with `count`."""
        self._matching.clear()
        if nodes is None:
            self._reserved.pop(key, None)
            if self._table is not None:
                self._table.drop((key,))
        else:
            self._reserved[key] = traits, nodes
            if self._table is not None:
                self._table.put((key,), traits.namespace, traits.labels, nodes)

    def ignore(self, pods: Mapping[str, PodFacts]) -> None:
        """Leaves these pods, by key, out of all answers, ports and anti-affinity included, and counts those again that the last call left
        out. With no pods none is left out any more."""
        for key, pod in self._ignored.items():
            self.observe_pod(key, None, pod)
        self._ignored = pods
        for key, pod in pods.items():
            self.observe_pod(key, pod, None)

    def observe_namespace(self) -> None:
        """Drops answers that depend on labels of namespaces, as these have changed. The labels themselves are read anew when asked for."""
        self._matching.clear()
        self._repelling.clear()

    # --- asking -----------------------------------------------------------------------------------------

    def find_port_users(self, port: HostPort) -> Collection[str]:
        """Returns the names of nodes, as a new set, where a pod has the same port and protocol on the same IP, or one of both is for any
        IP. Pods that are assigned there count, too; see `Neighbours.find_port_users`."""
        by_ip = self._ports.get(port[:2], {})
        return {node for ip, nodes in by_ip.items() if port.ip == ANY_IP or ip in (ANY_IP, port.ip) for node in nodes}

    def is_repelled(self, traits: PodTraits) -> bool:
        """Returns whether a term of anti-affinity of any pod selects a pod with the namespace and labels of `traits`; see
        `Neighbours.is_repelled`. At most 4,000 terms are judged."""
        return bool(self._apart) and bool(self._find_terms_against(traits))

    def find_repelling(self, traits: PodTraits) -> Iterator[tuple[PodTerm, Collection[str]]]:
        """Returns an iterator of the terms of anti-affinity that select a pod with the namespace and labels of `traits`. Each comes with
        the names of nodes of pods that have it. At most 4,000 terms are judged."""
        return ((term, self._apart[term]) for term in self._find_terms_against(traits))

    def _find_terms_against(self, traits: PodTraits) -> Sequence[PodTerm]:
        key = traits.namespace, frozenset(traits.labels.items())
        found = self._repelling.get(key)
        if found is None:
            asked = chain.from_iterable(self._speaks_of.get(namespace, ()) for namespace in (traits.namespace, None))
            terms = islice(asked, _MOST_TERMS)
            found = [term for term in terms if term.is_match(traits.namespace, traits.labels, self.get_namespace_labels)]
            _cache(self._repelling, key, found)
        return found

    def find_matching(self, terms: Sequence[PodTerm], *, awaits: bool = False) -> Collection[str]:
        """Returns the names of nodes with one pod, bound or assigned there, that every one of the terms matches. Empty where a term has no
        selector; all such nodes without terms. `awaits`: from now on `observe_pod` reports a pod that matches the terms; the last 16 of
        these requests are remembered."""
        key = tuple(terms)
        if awaits:
            self._awaited.pop(key, None)
            self._awaited[key] = None
            if len(self._awaited) > _AWAITED:
                del self._awaited[next(iter(self._awaited))]
        found = self._matching.get(key)
        if found is None:
            found = self._build_table().find_nodes(key, self.get_namespace_labels)
            _cache(self._matching, key, found)
        return found

    def _build_table(self) -> _Table:
        if self._table is None:
            self._table = _Table()
            for key, pod in self._pods.items():
                if pod.holds and key not in self._ignored:
                    self._table.put(key, key.partition("/")[0], pod.labels, pod.node)
            for pods, (traits, nodes) in self._reserved.items():
                self._table.put((pods,), traits.namespace, traits.labels, nodes)
        return self._table

    def _is_match(self, pod: PodFacts, terms: Iterable[PodTerm]) -> bool:
        namespace = pod.key.partition("/")[0]
        return all(term.is_match(namespace, pod.labels, self.get_namespace_labels) for term in terms)

    # --- invariant --------------------------------------------------------------------------------------

    def count_by_node(self) -> dict[str, dict[str, int]]:
        """Returns the number of pods per node, then per text of a host port or term of anti-affinity, for the ledger's recount."""
        found: dict[str, dict[str, int]] = {}
        for (port, protocol), by_ip in self._ports.items():
            for ip, nodes in by_ip.items():
                for node, count in nodes.items():
                    found.setdefault(node, {})[f"host port {HostPort(port, protocol, ip)}"] = count
        for term, nodes in self._apart.items():
            for node, count in nodes.items():
                found.setdefault(node, {})[f"anti-affinity {term}"] = count
        return found


def _add(table: dict[K, Counter[str]], key: K, node: str, times: int) -> bool:
    """Counts, and drops counts of 0. Returns whether the key is still there."""
    counter = table.setdefault(key, Counter())
    counter[node] += times
    if not counter[node]:
        del counter[node]
    if not counter:
        del table[key]
    return bool(counter)


V = TypeVar("V")


def _cache(answers: dict[K, V], key: K, answer: V) -> None:
    answers[key] = answer
    if len(answers) > _KEPT:
        del answers[next(iter(answers))]
