"""Which nodes the pods that are there already leave to a pod: host ports, and required pod affinity and anti-affinity.

Semantics are those of kube-scheduler's NodePorts and InterPodAffinity filters. *Neighbours* are the pods
of the whole cluster, on nodes of other flavors, too, since a topology key may join what flavors part;
*company* are pods of the same workload that were placed a moment ago.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from core.model.pod_traits import HostPort, Labels, PodTerm, PodTraits, has_conflict
from core.placement.topology.tree import Flags, TopologyTree

Company = tuple[PodTraits, Sequence[tuple[str, int]]]  # equal pods, and how many of them are on which node


class Neighbours(Protocol):
    """Pods that are bound, or assigned and on their way."""

    def find_port_users(self, port: HostPort) -> Collection[str]:
        """Returns the names of nodes where a pod has a port that conflicts with this one."""

    def find_matching(self, terms: Sequence[PodTerm], *, awaits: bool = False) -> Collection[str]:
        """Returns the names of nodes with a pod that every one of the terms matches, by namespace and labels. With `awaits` the terms are
        remembered: such a pod would help from now on."""

    def is_repelled(self, traits: PodTraits) -> bool:
        """Whether a term of anti-affinity of any pod selects pods with these traits."""

    def find_repelling(self, traits: PodTraits) -> Iterable[tuple[PodTerm, Collection[str]]]:
        """Returns the terms of anti-affinity that select pods with these traits, each with the names of the nodes of the pods that have
        it."""

    def get_node_labels(self, node: str) -> Labels:
        """Returns the labels of any node of the cluster, in the tree or not."""

    def get_namespace_labels(self, namespace: str) -> Labels | None:
        """Returns the labels of a namespace; None if it is not known."""


class NoNeighbours:
    """No pod at all."""

    def find_port_users(self, port: HostPort) -> Collection[str]:
        """Returns no node; see `Neighbours.find_port_users`."""
        return ()

    def find_matching(self, terms: Sequence[PodTerm], *, awaits: bool = False) -> Collection[str]:
        """Returns no node; see `Neighbours.find_matching`."""
        return ()

    def is_repelled(self, traits: PodTraits) -> bool:
        """Returns False; see `Neighbours.is_repelled`."""
        return False

    def find_repelling(self, traits: PodTraits) -> Iterable[tuple[PodTerm, Collection[str]]]:
        """Returns no term; see `Neighbours.find_repelling`."""
        return ()

    def get_node_labels(self, node: str) -> Labels:
        """Returns no label; see `Neighbours.get_node_labels`."""
        return {}

    def get_namespace_labels(self, namespace: str) -> Labels | None:
        """Returns None; see `Neighbours.get_namespace_labels`."""
        return None


@dataclass(frozen=True, slots=True)
class AffinityVerdicts:
    """Excluded nodes, by the filter that excludes them. `first`: the affinity selects no pod there but those of its own
    pod set."""

    ports: Flags
    far: Flags
    apart: Flags
    repelled: Flags
    first: bool = False

    def find_allowed(self) -> Flags:
        """Returns a flag per node of the tree: whether none of the filters excludes it."""
        return ~(self.ports | self.far | self.apart | self.repelled)


class PodNeighbours:
    """The neighbours and the company of pods to be placed on the nodes of a tree."""

    def __init__(self, tree: TopologyTree, neighbours: Neighbours, company: Sequence[Company]) -> None:
        self._tree, self._neighbours, self._company = tree, neighbours, company

    def judge(self, traits: PodTraits) -> AffinityVerdicts:
        """Returns which nodes of the tree may not take a pod with these traits, by the filter that excludes them. Its terms of affinity are
        remembered as awaited (`Neighbours.find_matching`)."""
        near, first = self._find_near(traits)
        return AffinityVerdicts(
            self._find_port_nodes(traits.host_ports), ~near, self._find_apart(traits), self._find_repelled(traits), first
        )

    def is_match(self, term: PodTerm, traits: PodTraits) -> bool:
        """Whether a term selects pods with these traits, by their namespace, its labels, and their own labels."""
        return term.is_match(traits.namespace, traits.labels, self._neighbours.get_namespace_labels)

    def is_followed(self, one: PodTraits, other: PodTraits) -> bool:
        """Whether `one` has terms of affinity, and all of them select pods like `other`."""
        return bool(one.affinity) and all(self.is_match(term, other) for term in one.affinity)

    def are_near(self, traits: PodTraits, names: Collection[str], nodes: Iterable[str]) -> bool:
        """Whether pods with these traits may be on all of some `nodes` of the tree, as far as their affinity goes, where it selects pods on
        the nodes `names` and those that were there before."""
        found = {*self._neighbours.find_matching(traits.affinity), *names}
        keys = {term.key for term in traits.affinity}
        if not any(key in self._get_labels(name) for name in found for key in keys):
            return True  # no such pod counts
        near = np.logical_and.reduce([self.find_domains(key, found) for key in keys])
        return bool(near[[self._tree.index[name] for name in nodes]].all())

    def find_matching_domains(self, term: PodTerm) -> Flags:
        """Returns a flag per node of the tree: whether its value of the term's key is that of a node, in the tree or not, with a pod that
        the term selects. Pods placed in this solve count, too. Nodes without the key have none set."""
        names = {*self._neighbours.find_matching((term,))}
        for other, nodes in self._company:
            if self.is_match(term, other):
                names |= {name for name, _ in nodes}
        return self.find_domains(term.key, names)

    def is_conflicting(self, one: PodTraits, other: PodTraits) -> bool:
        """Whether pods of both cannot be on one node, by host ports or by anti-affinity of either, whatever label that names."""
        return has_conflict(one.host_ports, other.host_ports) or any(self.list_terms_between(one, other))

    def list_terms_between(self, one: PodTraits, other: PodTraits) -> Iterator[PodTerm]:
        """Yields the terms of anti-affinity by which either keeps away from the other, those of `one` first."""
        yield from (term for term in one.anti_affinity if self.is_match(term, other))
        yield from (term for term in other.anti_affinity if self.is_match(term, one))

    def find_domains(self, key: str, nodes: Iterable[str]) -> Flags:
        """Returns a flag per node of the tree: whether it shares the value of label `key` with any of some nodes of the cluster, by
        name."""
        if isinstance(nodes, frozenset) and nodes <= self._tree.index.keys():
            return self._tree.cache_domains(key, nodes, self._find_domains)
        return self._find_domains(key, nodes)

    def are_in_one_domain(self, key: str, nodes: Iterable[str], others: Iterable[str]) -> bool:
        """Whether any of some nodes of the cluster, by name, shares the value of label `key` with any of the others."""
        return not self._find_values(key, nodes).isdisjoint(self._find_values(key, others))

    def _find_values(self, key: str, nodes: Iterable[str]) -> set[str]:
        return {value for name in nodes if (value := self._get_labels(name).get(key)) is not None}

    def _find_domains(self, key: str, nodes: Iterable[str]) -> Flags:
        codes, meaning = self._tree.encode_label(key)
        code_of = self._tree.find_code(key)
        found = {code_of[value] for value in self._find_values(key, nodes) if value in code_of}
        if not found:
            return self._make_empty()
        is_hit = np.zeros(len(meaning) + 1, dtype=bool)  # the last one is of nodes without the label
        is_hit[list(found)] = True
        return is_hit[codes]

    def _get_labels(self, name: str) -> Labels:
        place = self._tree.index.get(name)
        return self._neighbours.get_node_labels(name) if place is None else self._tree.labels[place]

    def _make_empty(self) -> Flags:
        return np.zeros(len(self._tree), dtype=bool)

    # --- the filters ------------------------------------------------------------------------------------

    def _find_port_nodes(self, ports: Sequence[HostPort]) -> Flags:
        taken = self._make_empty()
        if ports:
            names = {name for port in ports for name in self._neighbours.find_port_users(port)}
            names.update(name for traits, nodes in self._company if has_conflict(ports, traits.host_ports) for name, _ in nodes)
            taken[[place for name in names if (place := self._tree.index.get(name)) is not None]] = True
        return taken

    def find_taken_port(self, port: HostPort) -> Flags:
        """Returns a flag per node of the tree: whether a pod there, or one placed in this solve, has a port that conflicts with this
        one."""
        taken, names = self._make_empty(), [*self._neighbours.find_port_users(port)]
        for traits, nodes in self._company:
            if any(port.is_conflicting(other) for other in traits.host_ports):
                names += (name for name, _ in nodes)
        taken[[place for name in names if (place := self._tree.index.get(name)) is not None]] = True
        return taken

    def _find_near(self, traits: PodTraits) -> tuple[Flags, bool]:
        """Returns the nodes near a pod that all terms of affinity select, and whether the pod is the first of its kind.

        Where no such pod exists, a pod that all its own terms select may be the first, on any node that has the labels.
        """
        near = ~self._make_empty()
        if not traits.affinity:
            return near, False
        names = {*self._neighbours.find_matching(traits.affinity, awaits=True)}
        for other, nodes in self._company:
            if self.is_followed(traits, other):
                names |= {name for name, _ in nodes}
        keys = {term.key for term in traits.affinity}
        for key in keys:
            near &= self._tree.encode_label(key)[0] >= 0
        if not any(key in self._get_labels(name) for name in names for key in keys):
            return (near, True) if self.is_followed(traits, traits) else (self._make_empty(), False)
        for key in keys:
            near &= self.find_domains(key, names)
        return near, False

    def _find_apart(self, traits: PodTraits) -> Flags:
        """Returns the nodes near a pod that a term of the pod's own anti-affinity selects."""
        hit = self._make_empty()
        by_key: dict[str, set[str]] = {}
        for term in traits.anti_affinity:
            names = self._neighbours.find_matching((term,))
            if names:
                hit |= self.find_domains(term.key, names)
            for other, nodes in self._company:
                if self.is_match(term, other):
                    by_key.setdefault(term.key, set()).update(name for name, _ in nodes)
        for key, of_company in by_key.items():
            hit |= self.find_domains(key, of_company)
        return hit

    def _find_repelled(self, traits: PodTraits) -> Flags:
        """Returns the nodes near a pod with anti-affinity that selects such a pod."""
        hit = self._make_empty()
        by_key: dict[str, set[str]] = {}
        for term, nodes in self._neighbours.find_repelling(traits):
            if self._tree.has_label(term.key):
                by_key.setdefault(term.key, set()).update(nodes)
        for other, placed in self._company:
            for term in other.anti_affinity:
                if self.is_match(term, traits):
                    by_key.setdefault(term.key, set()).update(name for name, _ in placed)
        for key, names in by_key.items():
            hit |= self.find_domains(key, names)
        return hit
