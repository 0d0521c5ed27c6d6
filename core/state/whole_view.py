"""All nodes of the cluster as one view, with places that are kept on them for single pods. Groups of pods that are not
limited to a flavor are placed on it (KEP-5732)."""

from collections.abc import Callable, Mapping

from core.model.pod_resources import Resources
from core.model.pod_traits import NO_TRAITS, PodTraits
from core.placement.topology.free_capacity import FreeCapacity, with_pod
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.state.facts import NodeFacts
from core.state.ledger import Ledger, PodSetKey, Reservation

_NODE = ""  # a label that no node can have


class WholeView:
    """Built when it is first asked for, and then kept up to date."""

    def __init__(self, nodes: Mapping[str, NodeFacts], ledger: Ledger, on_free: Callable[[], None] = lambda: None) -> None:
        self._nodes, self._ledger, self._on_free = nodes, ledger, on_free
        self._capacity: FreeCapacity | None = None
        self._kept: dict[PodSetKey, str] = {}

    @property
    def capacity(self) -> FreeCapacity:
        """Returns all nodes by their names, which are the only level: several that share a hostname, or have none, are all there. It is one
        object, kept up to date, until a node comes, goes or has other labels."""
        if self._capacity is None:
            tree = TopologyTree((_NODE,), [NodeLabels(name, {**node.labels, _NODE: name}) for name, node in self._nodes.items()])
            self._capacity = FreeCapacity(tree, {name: node.state for name, node in self._nodes.items()})
            self._ledger.attach(self._capacity)
        return self._capacity

    def observe_node(self, name: str, old: NodeFacts | None, new: NodeFacts | None) -> None:
        """Applies a change of a node's facts (None: it is not there). Where it came, went or has other labels, `capacity` is built anew
        when asked for."""
        if self._capacity is None:
            return
        if old is None or new is None or old.labels != new.labels:
            self._ledger.detach(self._capacity)
            self._capacity = None
        else:
            self._capacity.observe_node(name, new.state)

    @property
    def kept(self) -> Mapping[PodSetKey, str]:
        """Returns the names of nodes on which places are kept, by `("podgroup " + group, pod, None)`, with `group` and `pod` as given to
        `hold_place`. It is no copy."""
        return self._kept

    def find_kept_node(self, group: str, pod: str) -> str | None:
        """Returns the name of the node on which a place is kept for a pod; None where none is."""
        return self._kept.get((f"podgroup {group}", pod, None))

    def hold_place(self, group: str, pod: str, node: str | None, requests: Resources, traits: PodTraits = NO_TRAITS) -> None:
        """Keeps a place on a node for a pod of a group that is not bound yet, in place of an earlier one. With None it removes the place,
        if there is one. `on_free` is called where it leaves a node. `requests` are of the pod without its one of `pods`.
        The same node again changes nothing, whatever the requests."""
        key: PodSetKey = (f"podgroup {group}", pod, None)
        before = self._kept.get(key)
        if before == node:
            return
        if node is None:
            del self._kept[key]
            self._ledger.reserve(key, None)
        else:
            self._kept[key] = node
            self._ledger.reserve(key, Reservation(with_pod(requests), ((node, 1),), traits=traits))
        if before is not None:
            self._on_free()
