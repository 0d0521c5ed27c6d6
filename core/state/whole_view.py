"""All nodes of the cluster as one view, and places that are kept on them for single pods: what groups of pods are placed on, whom no
flavor confines (KEP-5732)."""

from collections import Counter
from collections.abc import Mapping

from core.model.pod_traits import NO_TRAITS, PodTraits
from core.model.resources import Resources
from core.names import HOSTNAME_LABEL
from core.placement.free import FreeCapacity, with_pod
from core.placement.tree import NodeLabels, TopologyTree
from core.state.facts import NodeFacts
from core.state.ledger import Ledger, PodSetKey, Reservation


class WholeView:
    """Built when it is first asked for, and then kept up to date; `changes` counts what could help somebody who waits."""

    def __init__(self, nodes: Mapping[str, NodeFacts], ledger: Ledger) -> None:
        self._nodes, self._ledger = nodes, ledger
        self._capacity: FreeCapacity | None = None
        self._kept: dict[PodSetKey, str] = {}
        self.changes = 0

    @property
    def capacity(self) -> FreeCapacity:
        """Nodes by their names: several that share a hostname, or have none, are all there."""
        if self._capacity is None:
            hostnames = Counter(node.labels.get(HOSTNAME_LABEL) for node in self._nodes.values())
            tree = TopologyTree(
                (HOSTNAME_LABEL,),
                [
                    NodeLabels(name, node.labels if _names_one(node, hostnames) else {**node.labels, HOSTNAME_LABEL: name})
                    for name, node in self._nodes.items()
                ],
            )
            self._capacity = FreeCapacity(tree, {name: node.state for name, node in self._nodes.items()})
            self._ledger.attach(self._capacity)
        return self._capacity

    def observe_node(self, name: str, old: NodeFacts | None, new: NodeFacts | None) -> None:
        """A node came, changed or went."""
        self.changes += 1
        if self._capacity is None:
            return
        if old is None or new is None or old.labels != new.labels:
            self._ledger.detach(self._capacity)
            self._capacity = None
        else:
            self._capacity.observe_node(name, new.state)

    def keep(self, group: str, pod: str, node: str | None, requests: Resources, traits: PodTraits = NO_TRAITS) -> None:
        """Keeps a place on a node for a pod that is not bound yet (None: no more)."""
        key: PodSetKey = (f"podgroup {group}", pod, None)
        if self._kept.get(key) == node:
            return
        if node is None:
            del self._kept[key]
            self._ledger.reserve(key, None)
            self.changes += 1
            return
        self._kept[key] = node
        self._ledger.reserve(key, Reservation(with_pod(requests), ((node, 1),), traits=traits))


def _names_one(node: NodeFacts, hostnames: Mapping[str | None, int]) -> bool:
    hostname = node.labels.get(HOSTNAME_LABEL)
    return hostname is not None and hostnames[hostname] == 1
