"""Pods of the whole cluster as the neighbours of pods to be placed: who has which port, who keeps whom away, who has which labels.

Pods with host ports or anti-affinity are counted per node as they come and go. Labels of the many
others are looked into only when a pod set asks for pods of some labels: then bound pods are indexed
by one label key that it asks for, and the index is kept up for as long as such questions come.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from core.model.pod_traits import ANY_IP, HostPort, Labels, PodTerm, PodTraits
from core.state.facts import PodFacts

_KEYS = 8  # label keys that pods are indexed by at a time
_AWAITED = 64  # affinities remembered as asked for
K = TypeVar("K", bound=Hashable)
Reserved = tuple[PodTraits, Collection[str]]  # equal pods that are assigned, and the nodes where they are expected


class ClusterNeighbours:
    """`core.placement.neighbours.Neighbours`, folded from pods and reservations by the ledger."""

    def __init__(
        self,
        pods: Mapping[str, PodFacts],
        reserved: Callable[[], Iterable[Reserved]],
        node_labels: Callable[[str], Labels],
        namespace_labels: Callable[[str], Labels | None],
    ) -> None:
        self._pods, self._reserved = pods, reserved
        self.node_labels, self.namespace_labels = node_labels, namespace_labels
        self._ports: dict[tuple[int, str], dict[str, Counter[str]]] = {}  # port and protocol -> IP -> node -> pods
        self._apart: dict[PodTerm, Counter[str]] = {}  # term of anti-affinity -> node -> pods that have it
        self._speaks_of: dict[str | None, dict[PodTerm, None]] = {}  # its terms by namespace (None: by a selector)
        self._by_label: dict[str, dict[str, set[str]]] = {}  # label key -> value -> keys of bound pods
        self._awaited: dict[tuple[PodTerm, ...], None] = {}

    # --- folding ----------------------------------------------------------------------------------------

    def count(self, traits: PodTraits | None, node: str, times: int) -> None:
        """More (less, if negative) pods with such ports and anti-affinity on a node."""
        if traits is None:
            return
        for port in traits.host_ports:
            by_ip = self._ports.setdefault(port[:2], {})
            if not _add(by_ip, port.ip, node, times) and not by_ip:
                del self._ports[port[:2]]
        for term in traits.anti_affinity:
            names = [*term.namespaces, None] if term.namespace_selector is not None else term.namespaces
            if _add(self._apart, term, node, times):
                for namespace in names:
                    self._speaks_of.setdefault(namespace, {})[term] = None
            else:
                for namespace in names:
                    self._speaks_of.get(namespace, {}).pop(term, None)

    def observe_pod(self, key: str, old: PodFacts | None, new: PodFacts | None) -> bool:
        """Follows a pod whose facts changed. Says whether that may help a pod set that asked for pods like it."""
        for facts, sign in ((old, -1), (new, 1)):
            if facts is not None and facts.traits is not None and facts.holds:
                self.count(facts.traits, facts.node, sign)
        if not self._by_label and not self._awaited:
            return False
        was, now = (facts if facts is not None and facts.holds else None for facts in (old, new))
        if was is not None and now is not None and (was.node, was.labels) == (now.node, now.labels):
            return False
        for label, pods in self._by_label.items():
            if was is not None and label in was.labels:
                pods[was.labels[label]].discard(key)
            if now is not None and label in now.labels:
                pods.setdefault(now.labels[label], set()).add(key)
        relabelled = was is not None and now is not None and was.labels != now.labels
        return relabelled or (now is not None and any(self._matches(now, terms) for terms in self._awaited))

    # --- asking -----------------------------------------------------------------------------------------

    def using(self, port: HostPort) -> Collection[str]:
        by_ip = self._ports.get(port[:2], {})
        return {node for ip, nodes in by_ip.items() if port.ip == ANY_IP or ip in (ANY_IP, port.ip) for node in nodes}

    def repels(self, traits: PodTraits) -> bool:
        return bool(self._apart) and any(True for _ in self.repelling(traits))

    def repelling(self, traits: PodTraits) -> Iterator[tuple[PodTerm, Collection[str]]]:
        for namespace in (traits.namespace, None):
            for term in self._speaks_of.get(namespace, ()):
                if term.matches(traits.namespace, traits.labels, self.namespace_labels):
                    yield term, self._apart[term]

    def matching(self, terms: Sequence[PodTerm]) -> Collection[str]:
        self._awaited.pop(tuple(terms), None)
        self._awaited[tuple(terms)] = None
        if len(self._awaited) > _AWAITED:
            del self._awaited[next(iter(self._awaited))]
        nodes = {pod.node for pod in self._candidates(terms) if pod.holds and self._matches(pod, terms)}
        for traits, expected in self._reserved():
            if all(term.matches(traits.namespace, traits.labels, self.namespace_labels) for term in terms):
                nodes.update(expected)
        return nodes

    def _matches(self, pod: PodFacts, terms: Iterable[PodTerm]) -> bool:
        namespace = pod.key.partition("/")[0]
        return all(term.matches(namespace, pod.labels, self.namespace_labels) for term in terms)

    def _candidates(self, terms: Iterable[PodTerm]) -> Iterable[PodFacts]:
        """Pods among which are all that the terms can mean."""
        asked = [requirement for term in terms for requirement in term.selector or () if requirement.operator == "In"]
        if not asked:
            return self._pods.values()
        chosen = next((requirement for requirement in asked if requirement.key in self._by_label), asked[0])
        index = self._index(chosen.key)
        return [self._pods[key] for value in chosen.values for key in index.get(value, ())]

    def _index(self, label: str) -> dict[str, set[str]]:
        found = self._by_label.pop(label, None)
        if found is None:
            found = {}
            for key, pod in self._pods.items():
                if label in pod.labels and pod.holds:
                    found.setdefault(pod.labels[label], set()).add(key)
        self._by_label[label] = found
        if len(self._by_label) > _KEYS:
            del self._by_label[next(iter(self._by_label))]
        return found

    # --- invariant --------------------------------------------------------------------------------------

    def counts(self) -> dict[str, dict[str, int]]:
        """Per node the ports and terms of anti-affinity of its pods, for the ledger's recount."""
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
    """Counts, and drops what came to nothing. Says whether the key is still there."""
    counter = table.setdefault(key, Counter())
    counter[node] += times
    if not counter[node]:
        del counter[node]
    if not counter:
        del table[key]
    return bool(counter)
