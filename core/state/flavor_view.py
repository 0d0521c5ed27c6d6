"""One topology-aware flavor over its nodes, and what an assignment of it takes there."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from core.model.admission import PodSetAdmission
from core.model.assignment import TopologyAssignment
from core.model.resources import Resources
from core.model.spares import fullest
from core.placement.free import FreeCapacity, with_pod
from core.placement.node_counts import NodeCounts
from core.state.facts import FlavorFacts, NodeFacts, PodSetFacts, TopologyFacts
from core.state.ledger import Domain, Reservation


@dataclass(slots=True)
class FlavorView:
    """One topology-aware flavor over its nodes."""

    flavor: FlavorFacts
    topology: TopologyFacts
    capacity: FreeCapacity
    _by_values: Mapping[tuple[str, ...], tuple[int, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Which levels an assignment names depends on whether hostnames were unique when it was written: a node that joins with the
        # hostname of another must not make those unreadable that are there. By its hostname alone such an assignment means both nodes.
        tree, found = self.capacity.tree, dict[tuple[str, ...], tuple[int, ...]]()
        for domain, first in enumerate(tree.levels[tree.lowest].starts.tolist()):
            path = tree.paths[first]
            for values in {path, path[-1:]} if tree.is_hostname else {path}:
                found[values] = (*found.get(values, ()), domain)
        self._by_values = found

    def copy(self) -> "FlavorView":
        """The same nodes as they are now, whatever becomes of them."""
        other = copy(self)
        other.capacity = self.capacity.copy()
        return other

    def find_domain(self, values: tuple[str, ...]) -> int | None:
        """The domain of the lowest level that an assignment names; None if it is not there (any more). Of several the first."""
        return next(iter(self._by_values.get(values, ())), None)

    def domain_nodes(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the nodes of a domain that an assignment names; none if it is not there (any more)."""
        level, names = self.capacity.tree.levels[self.capacity.tree.lowest], self.capacity.tree.names
        return tuple(
            name for domain in self._by_values.get(values, ()) for name in names[int(level.starts[domain]) : int(level.ends[domain])]
        )

    def host_of(self, name: str) -> str:
        """What an assignment calls a node that is there, where the lowest level is the hostname; as a rule by its name."""
        return self.capacity.tree.emitted[self.capacity.tree.index[name]][-1]

    def spares_of(self, given: PodSetAdmission) -> tuple[tuple[str, int], ...]:
        """Nodes that are kept free for a pod set, with the pods that each has room for: those that are there, and have none of its pods."""
        tree = self.capacity.tree
        if not given.spares or given.assignment is None or not tree.is_hostname:
            return ()
        used = {tree.names[node] for domain in given.assignment.domains if (node := self.find_domain(domain.values)) is not None}
        pods = fullest(given)
        return tuple((name, pods) for name in given.spares if name in tree.index and name not in used)


def matches(flavor: FlavorFacts, node: NodeFacts) -> bool:
    """Whether a node is one of a flavor's."""
    return all(node.labels.get(key) == value for key, value in flavor.node_labels.items())


def reservation_of(
    view: FlavorView, pod_set: PodSetFacts, requests: Resources, assignment: TopologyAssignment, plan: Sequence[tuple[str, int]] | None
) -> Reservation:
    """What an assignment takes; a domain that is not there (any more) takes nothing."""
    tree, pinned, wide = view.capacity.tree, dict[str, int](), list[Domain]()
    if tree.is_hostname:
        if isinstance(plan, NodeCounts) and plan.tree is tree:
            return Reservation(requests, plan, traits=pod_set.traits)
        for domain in assignment.domains:
            for name in view.domain_nodes(domain.values):
                pinned[name] = pinned.get(name, 0) + domain.count
        return Reservation(requests, tuple(pinned.items()), traits=pod_set.traits)
    for domain in assignment.domains:
        nodes = view.domain_nodes(domain.values)
        if len(nodes) == 1:
            pinned[nodes[0]] = pinned.get(nodes[0], 0) + domain.count
        elif nodes:
            known = tuple(entry for entry in plan or () if entry[0] in nodes)
            whole = sum(count for _, count in known) == domain.count
            wide.append(Domain(frozenset(nodes), known if whole else _plan_anew(view, pod_set, nodes, domain.count)))
    return Reservation(requests, tuple(pinned.items()), tuple(wide), pod_set.traits)


def _plan_anew(view: FlavorView, pod_set: PodSetFacts, nodes: tuple[str, ...], count: int) -> tuple[tuple[str, int], ...]:
    """A plan for pods of a domain whose decision this process did not make: the first node that has room first."""
    capacity, requests = view.capacity, with_pod(pod_set.requests)
    plan: dict[str, int] = {}
    for name in nodes:
        node = capacity.tree.index[name]
        room = min(
            (int(capacity.free[capacity.axis[r], node]) // amount if r in capacity.axis else 0 for r, amount in requests.items()), default=0
        )
        here = min(count, max(0, room))
        if here:
            plan[name] = here
            count -= here
    if count:  # they fit no more, but they are coming: counted somewhere
        plan[nodes[-1]] = plan.get(nodes[-1], 0) + count
    return tuple(plan.items())


def spares_of(pod_set: str) -> str:
    """What the ledger calls the nodes that are kept free for a pod set: no pod names it."""
    return f"{pod_set} spares"
