"""Whether what the Workloads' assignments promise is reserved: recounted from assignments and labels of nodes alone.

The ledger's own recount (`Ledger.audit`) begins with its reservations, so that it can't find one that is missing. This one begins with the
Workloads, and finds their nodes by labels, without trees and views.
"""

from collections.abc import Iterator, Mapping, Sequence

from core.model.wire.assignment import TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts

Missing = Mapping[str, str]  # key of a workload -> what is not reserved for it


def find_missing(state: ClusterState) -> Iterator[Missing | None]:
    """Yields None before each workload, which is checked by the state at that step. At last it yields a text by the key of each workload
    that lacks something: what is not reserved for the last such pod set. Empty where nothing is missing. Only assignments on flavors with
    a topology that exists are looked at, and of these only domains with nodes."""
    missing: dict[str, str] = {}
    tables = _Tables(state)
    for key in list(state.workloads.facts):
        yield None
        admission, facts = state.workloads.find_holding(key), state.workloads.facts.get(key)
        if admission is None or facts is None:
            continue
        for pod_set, given in zip(facts.pod_sets, admission.pod_sets, strict=False):
            name = state.find_topology_flavor(given.flavors.values())
            flavor = state.flavors[name] if name is not None else None
            topology = state.topologies.get(flavor.topology or "") if flavor is not None else None
            if given.assignment is None or flavor is None or topology is None:
                continue
            reserved = state.ledger.count_assigned((facts.pods_key, pod_set.name, facts.owner_uid))
            lack = _find_lack(tables, flavor, topology.levels, given.assignment, reserved)
            if lack:
                missing[key] = f"pod set {pod_set.name}: {lack}"
    yield missing


class _Tables:
    """Names of the nodes by the values of some labels, as they are now."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._made_at = -1
        self._tables: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = {}
        self._domains: dict[tuple[object, ...], frozenset[str]] = {}

    def find_nodes(self, flavor: FlavorFacts, levels: Sequence[str], assigned: Sequence[str], values: tuple[str, ...]) -> frozenset[str]:
        """Nodes of a flavor in a domain that an assignment names by the values of its own levels; many workloads may have that domain."""
        if self._made_at != self.state.node_changes:
            self._made_at, self._tables, self._domains = self.state.node_changes, {}, {}
        key = flavor.name, tuple(levels), tuple(assigned), values
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = frozenset(self._read_nodes(flavor, levels, assigned, values))
        return found

    def _read_nodes(self, flavor: FlavorFacts, levels: Sequence[str], assigned: Sequence[str], values: tuple[str, ...]) -> Iterator[str]:
        by_path, nodes = self._find_table(levels), self.state.nodes
        shares_its_place = levels[-1] == HOSTNAME_LABEL  # two nodes of one path are left out of such a topology
        for name in self._find_table(assigned).get(values, ()):
            path = by_path.get(tuple(nodes[name].labels.get(level, "") for level in levels))
            is_of_flavor = all(nodes[name].labels.get(label) == value for label, value in flavor.node_labels.items())
            if path and is_of_flavor and not (shares_its_place and len(path) > 1):
                yield name

    def _find_table(self, labels: Sequence[str]) -> Mapping[tuple[str, ...], list[str]]:
        table = self._tables.get(tuple(labels))
        if table is None:
            table = self._tables[tuple(labels)] = {}
            for name, node in self.state.nodes.items():
                if all(label in node.labels for label in labels):
                    table.setdefault(tuple(node.labels[label] for label in labels), []).append(name)
        return table


def _find_lack(
    tables: _Tables, flavor: FlavorFacts, levels: Sequence[str], assignment: TopologyAssignment, reserved: Mapping[str, int]
) -> str:
    for domain in assignment.domains:
        there = tables.find_nodes(flavor, levels, assignment.levels, domain.values)
        if len(there) < len(reserved):
            counted = sum(reserved.get(name, 0) for name in there)
        else:
            counted = sum(count for name, count in reserved.items() if name in there)
        if there and counted < domain.count:
            return f"{domain.count} pods are assigned to {'/'.join(domain.values)}, and {counted} are reserved there"
    return ""
