"""One topology-aware flavor over its nodes, and what an assignment of it takes there."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from core.model.admission import PodSetAdmission
from core.model.pod_resources import Resources
from core.model.spare_nodes import find_fullest
from core.model.wire.assignment import TopologyAssignment
from core.placement.topology.free_capacity import FreeCapacity, with_pod
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import Indices
from core.state.facts import FlavorFacts, NodeFacts, PodSetFacts, TopologyFacts
from core.state.ledger import Domain, Reservation


@dataclass(slots=True)
class FlavorView:
    """One topology-aware flavor over its nodes."""

    flavor: FlavorFacts
    topology: TopologyFacts
    capacity: FreeCapacity
    _by_values: dict[tuple[str, ...], tuple[int, ...]] = field(init=False, repr=False)
    _indexed: set[tuple[str, ...]] = field(init=False, repr=False)  # levels, also of former topologies, by which domains are found
    _name_sets: dict[tuple[str, ...], frozenset[str]] = field(init=False, repr=False)  # of domains of several nodes, one set for all

    def __post_init__(self) -> None:
        self._name_sets = {}
        # Which levels an assignment names depends on whether hostnames were unique when it was written: a node that joins with the
        # hostname of another must not make those unreadable that are there. By its hostname alone such an assignment means both nodes.
        tree, found = self.capacity.tree, dict[tuple[str, ...], tuple[int, ...]]()
        for domain, first in enumerate(tree.levels[tree.lowest].starts.tolist()):
            path = tree.paths[first]
            for values in {path, path[-1:]} if tree.is_hostname else {path}:
                found[values] = (*found.get(values, ()), domain)
        self._by_values, self._indexed = found, {tree.declared}

    def index_levels(self, levels: tuple[str, ...]) -> None:
        """Lets domains be found by their values for `levels`, too: those that an assignment names, which was written before the levels of
        the topology changed. Nothing happens unless the hostname is the lowest of both, or for levels by which domains are found already.
        """
        tree = self.capacity.tree
        if not tree.is_hostname or len(levels) < 2 or levels[-1] != tree.declared[-1] or levels in self._indexed:
            return
        self._indexed.add(levels)
        for domain, labels in enumerate(tree.labels):
            if all(level in labels for level in levels):
                values = tuple(labels[level] for level in levels)
                self._by_values[values] = (*self._by_values.get(values, ()), domain)

    def copy(self) -> "FlavorView":
        """Returns a copy with the nodes and free amounts as they are now: what happens later does not reach it. Flavor and topology are
        shared."""
        other = copy(self)
        other.capacity = self.capacity.copy()
        return other

    def find_domain(self, values: tuple[str, ...]) -> int | None:
        """Returns the index, among domains of the lowest level, of the one that an assignment names by its values: those of all levels.
        Where the lowest level is the hostname, that alone will do. None if it is not there (any more); of several it is the first."""
        return next(iter(self._by_values.get(values, ())), None)

    def find_domains(self, assignment: TopologyAssignment) -> list[int]:
        """Returns what `find_domain` does for the domains of an assignment, in their order, also by former levels (`index_levels`); those
        that are not there (any more) are left out."""
        self.index_levels(assignment.levels)
        get = self._by_values.get
        return [found[0] for domain in assignment.domains if (found := get(domain.values)) is not None]

    def list_domain_nodes(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of the nodes of the domains that an assignment names by its values (see `find_domain`), of several one after
        the other. Empty if there is none (any more)."""
        level, names = self.capacity.tree.levels[self.capacity.tree.lowest], self.capacity.tree.names
        return tuple(
            name for domain in self._by_values.get(values, ()) for name in names[int(level.starts[domain]) : int(level.ends[domain])]
        )

    def count_domain_nodes(self, values: tuple[str, ...]) -> int:
        """Returns the number of nodes that `list_domain_nodes` returns."""
        level = self.capacity.tree.levels[self.capacity.tree.lowest]
        return sum(int(level.ends[domain]) - int(level.starts[domain]) for domain in self._by_values.get(values, ()))

    def get_domain_names(self, values: tuple[str, ...]) -> frozenset[str]:
        """Returns the same names as `list_domain_nodes`, as a set. Equal answers are one object: each workload in the domain keeps it."""
        found = self._name_sets.get(values)
        if found is None:
            found = self._name_sets[values] = frozenset(self.list_domain_nodes(values))
        return found

    def find_domain_places(self, values: tuple[str, ...]) -> Indices:
        """Returns the indexes in the tree, int64, of the nodes that `list_domain_nodes` returns, in its order; empty if there are none."""
        level = self.capacity.tree.levels[self.capacity.tree.lowest]
        places = [np.arange(int(level.starts[domain]), int(level.ends[domain])) for domain in self._by_values.get(values, ())]
        return np.concatenate(places) if places else np.zeros(0, dtype=np.int64)

    def find_moved(self, old: "FlavorView") -> set[tuple[str, ...]]:
        """Returns the level values of domains that have other nodes than in an older view. Beside these it has the names of nodes that
        are in one view only, each as `(name,)`.

        What does not change is shared with the older view from now on.
        """
        now, before = self._build_name_table(), old._build_name_table()
        moved = {values for values in now.keys() | before.keys() if now.get(values) != before.get(values)}
        self._name_sets |= {values: names for values, names in old._name_sets.items() if values not in moved}
        return moved | {(name,) for name in self.capacity.tree.index.keys() ^ old.capacity.tree.index.keys()}

    def _build_name_table(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """What `list_domain_nodes` returns for all domains."""
        tree = self.capacity.tree
        level = tree.levels[tree.lowest]
        of_each = [tree.names[start:end] for start, end in zip(level.starts.tolist(), level.ends.tolist(), strict=False)]
        return {
            values: of_each[domains[0]] if len(domains) == 1 else tuple(name for domain in domains for name in of_each[domain])
            for values, domains in self._by_values.items()
        }

    def get_host(self, name: str) -> str:
        """Returns what an assignment calls a node by its name: the value of the lowest level, as a rule the name itself. Only where the
        lowest level is the hostname. Raises KeyError where the view has no such node."""
        return self.capacity.tree.emitted[self.capacity.tree.index[name]][-1]

    def list_spares(self, given: PodSetAdmission) -> tuple[tuple[str, int], ...]:
        """Returns the names of nodes that are kept free for a pod set (`given.spares`, in their order), each with the number of pods
        reserved there: the most that any domain of its assignment has. Nodes that are gone or have pods of its assignment are left out.
        Empty without an assignment, or unless the lowest level is the hostname."""
        tree = self.capacity.tree
        if not given.spares or given.assignment is None or not tree.is_hostname:
            return ()
        used = {tree.names[node] for domain in given.assignment.domains if (node := self.find_domain(domain.values)) is not None}
        pods = find_fullest(given)
        return tuple((name, pods) for name in given.spares if name in tree.index and name not in used)


def is_match(flavor: FlavorFacts, node: NodeFacts) -> bool:
    """Returns whether a node has all labels, with their values, by which a flavor selects its nodes; True for a flavor without any. Taints
    are not looked at."""
    return all(node.labels.get(key) == value for key, value in flavor.node_labels.items())


def build_reservation(
    view: FlavorView, pod_set: PodSetFacts, requests: Resources, assignment: TopologyAssignment, plan: Sequence[tuple[str, int]] | None
) -> Reservation:
    """Returns what an assignment takes, as pods per node or per domain of several nodes; a domain that is not there (any more) takes
    nothing. `requests` are of one pod with its one of `pods`. `plan`: (node, pods) where the engine counted them, or None. One made on the
    view's own tree is taken as it is, where the lowest level is the hostname. Else it only decides within domains of several nodes. One
    with another number of pods in the plan is filled anew, nodes with room in order. Pods that do not fit count on its last node."""
    tree, pinned, wide = view.capacity.tree, dict[str, int](), list[Domain]()
    view.index_levels(assignment.levels)
    if tree.is_hostname:
        if isinstance(plan, NodeCounts) and plan.tree is tree:
            return Reservation(requests, plan, traits=pod_set.traits)
        for domain in assignment.domains:
            for name in view.list_domain_nodes(domain.values):
                pinned[name] = pinned.get(name, 0) + domain.count
        return Reservation(requests, tuple(pinned.items()), traits=pod_set.traits)
    for domain in assignment.domains:
        width = view.count_domain_nodes(domain.values)
        if width == 1:
            (name,) = view.list_domain_nodes(domain.values)
            pinned[name] = pinned.get(name, 0) + domain.count
        elif width:
            nodes = view.get_domain_names(domain.values)
            known = tuple(entry for entry in plan or () if entry[0] in nodes)
            whole = sum(count for _, count in known) == domain.count
            wide.append(Domain(nodes, known if whole else _plan_anew(view, pod_set, domain.values, domain.count)))
    return Reservation(requests, tuple(pinned.items()), tuple(wide), pod_set.traits)


def _plan_anew(view: FlavorView, pod_set: PodSetFacts, values: tuple[str, ...], count: int) -> tuple[tuple[str, int], ...]:
    """Returns a plan for the pods of a domain that another process decided on: nodes with room are filled in order."""
    capacity, places = view.capacity, view.find_domain_places(values)
    room = np.full(len(places), count, dtype=np.int64)
    for resource, amount in with_pod(pod_set.requests).items():
        if amount > 0:
            row = capacity.axis.get(resource)
            room = np.minimum(room, capacity.free[row, places] // amount if row is not None else 0)
    ends = np.minimum(np.cumsum(np.maximum(room, 0)), count)
    here = np.diff(ends, prepend=0)
    used = np.flatnonzero(here)
    plan = {capacity.tree.names[int(places[at])]: int(here[at]) for at in used.tolist()}
    left = count - int(ends[-1])
    if left:  # they do not fit, but they are coming: counted somewhere
        last = capacity.tree.names[int(places[-1])]
        plan[last] = plan.get(last, 0) + left
    return tuple(plan.items())


def list_spares(pod_set: str) -> str:
    """Returns the name of a pod set by which the ledger knows the nodes that are kept free for it: `pod_set` and " spares". No pod names
    it."""
    return f"{pod_set} spares"


@dataclass(frozen=True, slots=True)
class AssignedPlaces:
    """Where the domains of assignments are, by the nodes there were. Nothing in it changes: another thread may read it."""

    views: Mapping[str, FlavorView | None]  # by pod set; None where its flavor has no topology, or is not there

    def list_level_values(self, given: PodSetAdmission, index: int) -> tuple[str, ...]:
        """Returns the values of all levels of the topology, coarse to fine, for the domain at `index` of a pod set's assignment. Where its
        nodes or its view are gone these are what the assignment itself names; empty without an assignment.

        Raises KeyError for a pod set that is not in `views`, IndexError where the assignment has no such domain.
        """
        if given.assignment is None:
            return ()
        values, view = given.assignment.domains[index].values, self.views[given.name]
        domain = view.find_domain(values) if view is not None else None
        if view is None or domain is None:
            return values
        tree = view.capacity.tree
        return tree.get_values(tree.lowest, domain)

    def list_domain_nodes(self, given: PodSetAdmission, values: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of the nodes of a domain that a pod set's assignment names by its values. Empty where it or the view is not
        there. Raises KeyError for a pod set that is not in `views`."""
        view = self.views[given.name]
        return view.list_domain_nodes(values) if view is not None else ()
