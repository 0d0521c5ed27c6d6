"""What is free on each node of a tree, kept in place by events.

One int64 matrix, resources x nodes in tree order: reductions over a rack are reductions over a range,
and an event on a node or a pod touches one column.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from core.model.pod_resources import PODS, Resources, list_resource_names
from core.model.pod_traits import PodTraits
from core.model.podset import PodSetRequest
from core.model.quantity import LARGEST, saturate
from core.model.step_budget import UNLIMITED, StepBudget
from core.placement.topology.node_eligibility import Taint, Tolerations, check_size, match_affinity, match_selector, match_term
from core.placement.topology.pod_affinity import Company, Neighbours, NoNeighbours, PodNeighbours
from core.placement.topology.tree import Flags, Indices, TopologyTree

Matrix = npt.NDArray[np.int64]
MOST_PODS = 2**31 - 1  # no object counts more pods, and sums over all nodes of a cluster stay far below 64 bits
Value = TypeVar("Value")
_REMEMBERED = 32
_LONG = 1_000  # characters of a key; of a longer one a digest is kept
_CLASSES = 64  # of taints, beside twice as many as nodes had when they were counted last
_KEPT = 48  # request shapes: some 500 bytes a node if all are in use
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class NodeState:
    """What changes on a node without moving it in the topology."""

    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False


class Memo(Generic[Value]):
    """What was made of a few objects, by which object it is: to compare large ones would cost more. They must not change."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[object, Value]] = {}

    def get(self, of: object) -> Value | None:
        """Returns the value that was kept for this very object; None if there is none."""
        found = self._found.get(id(of))
        return found[1] if found is not None and found[0] is of else None

    def put(self, of: object, value: Value) -> None:
        """Keeps a value for an object; of more than 32 the first that was kept is dropped."""
        self._found[id(of)] = of, value  # which keeps the object, and so its id
        if len(self._found) > _REMEMBERED:
            del self._found[next(iter(self._found))]


class FreeCapacity:
    """Free amounts, taints and readiness of the nodes of one tree.

    Owned and changed by the ledger; a placement reads it and changes nothing.
    """

    def __init__(self, tree: TopologyTree, states: Mapping[str, NodeState]) -> None:
        self.tree = tree
        self.axis: dict[str, int] = {}
        self.free: Matrix = np.zeros((0, len(tree)), dtype=np.int64)
        self.allocatable: Matrix = self.free
        self.used: Callable[[str], Indices] = lambda _: np.zeros(len(tree), dtype=np.int64)  # of a resource, per node; set by the ledger
        self._extend_axis(list_resource_names(*(states[name].allocatable for name in tree.names)))
        self.kept: dict[Hashable, Any] = {}  # what others counted on this capacity and mend by `find_changed_since`
        self._log: list[int] = []  # nodes in the order of their changes, the oldest of them forgotten
        self._forgotten = 0
        self.ready = np.ones(len(tree), dtype=bool)
        self.cordoned = np.zeros(len(tree), dtype=bool)
        self.usable = np.ones(len(tree), dtype=bool)  # ready and not cordoned
        self.taint_class = np.zeros(len(tree), dtype=np.int64)
        self._taint_classes: dict[tuple[Taint, ...], int] = {(): 0}
        self._most_classes = _CLASSES  # before those that no node has any more are dropped
        self._numbering = 0  # how often that was done
        self._label_masks: dict[Hashable, Flags] = {}
        self._keys = Memo[str]()
        self._verdicts = Memo[tuple[int, list[Taint | None]]]()  # by tolerations, and how many classes there were
        self.neighbours: Neighbours = NoNeighbours()
        self.daemon_shares: Mapping[str, Resources] = {}  # of the free amounts' use: reserved for pods of DaemonSets to come
        self.company: tuple[Company, ...] = ()
        self.inside: tuple[tuple[PodTraits, Flags], ...] = ()  # pods that a solve confines to some nodes
        self.closed: Flags | None = None  # nodes that a solve may not have whatever is freed on them
        self.elsewhere: Flags | None = None  # nodes out of the domain that a solve is confined to
        self.explains = True  # whether a refusal has reasons
        self.budget: StepBudget = UNLIMITED  # of the decision that asks
        self._observe_all([states[name] for name in tree.names])

    def _extend_axis(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self.axis]
        if new:
            self.axis.update({name: len(self.axis) + i for i, name in enumerate(new)})
            self.free = np.vstack([self.free, *(-self.used(name) for name in new)])
            self.allocatable = np.vstack([self.allocatable, np.zeros((len(new), len(self.tree)), dtype=np.int64)])

    def _observe_all(self, states: Sequence[NodeState]) -> None:
        count = len(states)
        for resource, row in self.axis.items():
            self.allocatable[row] = np.fromiter((state.allocatable.get(resource, 0) for state in states), dtype=np.int64, count=count)
        self.free = self.allocatable.copy()
        self.ready[:] = np.fromiter((state.ready for state in states), dtype=bool, count=count)
        self.cordoned[:] = np.fromiter((state.unschedulable for state in states), dtype=bool, count=count)
        self.usable[:] = self.ready & ~self.cordoned
        known = self._taint_classes
        classes = (known.setdefault(state.taints, len(known)) for state in states)
        self.taint_class[:] = np.fromiter(classes, dtype=np.int64, count=count)
        self._most_classes = _CLASSES + 2 * len(known)

    def observe_node(self, name: str, state: NodeState) -> None:
        """Sets capacity, taints and readiness of a node that is in the tree; its free amounts change by as much as its capacity. Counts as
        a change of the node. Raises KeyError where it is not in the tree."""
        node = self.tree.index[name]
        self._extend_axis(state.allocatable)
        column = np.array([state.allocatable.get(resource, 0) for resource in self.axis], dtype=np.int64)
        self.free[:, node] += column - self.allocatable[:, node]
        self.allocatable[:, node] = column
        self.ready[node] = state.ready
        self.cordoned[node] = state.unschedulable
        self.usable[node] = state.ready and not state.unschedulable
        self.taint_class[node] = self._taint_classes.setdefault(state.taints, len(self._taint_classes))
        if len(self._taint_classes) > self._most_classes:
            self._number_taints()
        self._note(node)

    @property
    def position(self) -> int:
        """The number of changes in the log so far, those that were forgotten included."""
        return self._forgotten + len(self._log)

    def find_changed_since(self, position: int) -> Indices | None:
        """Returns the places in the tree of nodes that changed after a `position` (a former value of that property), ascending, each
        once; None if the log does not reach back so far."""
        if position < self._forgotten:
            return None
        if position == self.position:
            return _NONE
        return np.unique(np.array(self._log[position - self._forgotten :], dtype=np.int64))

    def cache(self, key: Hashable, value: Any) -> None:
        """Keeps what was counted under a key in `kept`, in place of an earlier value, as the last to be dropped; of more than 48 the
        oldest is."""
        self.kept.pop(key, None)
        self.kept[key] = value
        if len(self.kept) > _KEPT:
            del self.kept[next(iter(self.kept))]

    def _note(self, *nodes: int) -> None:
        self._log.extend(nodes)
        if len(self._log) > 1024 + 2 * len(self.tree):
            half = len(self._log) // 2
            del self._log[:half]
            self._forgotten += half

    def use_node(self, node: int | str, amounts: Resources, times: int = 1) -> None:
        """Subtracts `amounts` x `times` from what is free on a node, by index or name (gives back if negative), in place and cut at
        `LARGEST`. Counts as a change of the node.

        A node that is not in the tree and a resource that no node has are ignored.
        """
        place = self.tree.index.get(node, -1) if isinstance(node, str) else node
        if place < 0:
            return
        for resource, amount in amounts.items():
            row = self.axis.get(resource)
            if row is not None:
                self.free[row, place] = saturate(int(self.free[row, place]) - amount * times)
        self._note(place)

    def use_nodes(self, nodes: Indices, amounts: Resources, times: Indices) -> None:
        """Subtracts `amounts` x times[i] from what is free on the node at index nodes[i], in place and cut at `LARGEST`; each node occurs
        once. Counts as a change of these nodes.

        A resource that no node has is ignored.
        """
        known = {row: amount for resource, amount in amounts.items() if (row := self.axis.get(resource)) is not None}
        if max(map(abs, known.values()), default=0) * int(np.abs(times).max(initial=0)) <= LARGEST:
            cells = np.array([*known], dtype=np.int64)[:, None], nodes
            self.free[cells] = cut(self.free[cells] - np.multiply.outer(np.array([*known.values()], dtype=np.int64), times))
        else:
            for row, amount in known.items():
                subtract_at(self.free[row], nodes, amount, times)
        self._note(*nodes.tolist())

    def match_labels(self, selector: Mapping[str, str], affinity: Mapping[str, Any] | None) -> Flags:
        """Returns a mask of the nodes with labels that satisfy both. It is kept, since labels never change within a tree, and must not be
        changed.

        Raises InvalidSelector where an expression cannot be evaluated or there are too many.
        """
        key = frozenset(selector.items()), self.build_key(affinity)
        mask = self._label_masks.get(key)
        if mask is None:
            mask = match_selector(self.tree, selector) & match_affinity(self.tree, affinity)
            if len(self._label_masks) > 128:
                self._label_masks.clear()
            self._label_masks[key] = mask
        return mask

    def build_key(self, value: Any) -> str:
        """Returns the text, or a digest of a long one, that stands for a selector, affinity or tolerations in the keys of what is kept;
        those written alike, in the same order, have the same."""
        if not value:
            return ""
        found = self._keys.get(value)
        if found is None:
            text = repr(value)
            found = text if len(text) < _LONG else sha256(text.encode()).hexdigest()
            self._keys.put(value, found)
        return found

    def _number_taints(self) -> None:
        """Numbers the classes of taints that a node has again, and drops the others."""
        used, self.taint_class[:] = np.unique(self.taint_class, return_inverse=True)
        classes = self.taints_by_class
        kept = dict.fromkeys(((), *(classes[number] for number in used.tolist())))
        number_of = {taints: number for number, taints in enumerate(kept)}
        self.taint_class[:] = np.array([number_of[classes[number]] for number in used.tolist()], dtype=np.int64)[self.taint_class]
        self._taint_classes = number_of
        self._numbering += 1
        self._most_classes = _CLASSES + 2 * len(number_of)

    @property
    def taints_by_class(self) -> Sequence[tuple[Taint, ...]]:
        """The taints that each number in `taint_class` stands for."""
        return tuple(self._taint_classes)

    def taint_verdicts(self, tolerations: Sequence[Mapping[str, Any]]) -> list[Taint | None]:
        """Returns, for each number in `taint_class`, the first taint that keeps a pod with these tolerations away; None where all are
        tolerated. The list is kept, and must not be changed."""
        found = self._verdicts.get(tolerations)
        if found is None or found[0] != self._numbering:
            found = self._numbering, []
            self._verdicts.put(tolerations, found)
        _, verdicts = found
        if len(verdicts) < len(self._taint_classes):
            judged = Tolerations(tolerations)
            verdicts += (judged.find_untolerated(taints) for taints in islice(self._taint_classes, len(verdicts), None))
        return verdicts

    def find_eligible(self, request: PodSetRequest, nodes: Indices | slice = slice(None)) -> Flags:
        """Returns a flag for all or some nodes (indexes or a slice): whether they may take a pod of this pod set, capacity aside. They must
        be ready, not cordoned, with taints tolerated, and meet selector, required affinity, and host ports and pod affinity. Nodes outside
        of `inside`, to which a copy confines such pods, are not. Raises InvalidSelector where its node affinity cannot be evaluated."""
        tolerated = [taint is None for taint in self.taint_verdicts(request.tolerations)]
        mask: Flags = self.usable[nodes] & (True if all(tolerated) else np.array(tolerated)[self.taint_class[nodes]])
        if request.node_selector or request.affinity:
            mask &= self.match_labels(request.node_selector, request.affinity)[nodes]
        if self.is_particular(request.traits):
            mask &= self.around.judge(request.traits).find_allowed()[nodes]
            for traits, inside in self.inside:
                if traits is request.traits:
                    mask &= inside[nodes]
        return mask

    @property
    def around(self) -> PodNeighbours:
        """The pods that are there, as filters of host ports and pod affinity see them."""
        return PodNeighbours(self.tree, self.neighbours, self.company)

    def is_particular(self, traits: PodTraits) -> bool:
        """Whether more than the node alone decides if a pod with these traits may go there; what is counted for such pods is not kept."""
        if traits.is_particular or self.company or (self.inside and any(traits is confined for confined, _ in self.inside)):
            return True
        return self.neighbours.is_repelled(traits)

    def copy_with_pods(self, *company: Company) -> "FreeCapacity":
        """Returns a copy that shares all arrays, seen with more pods there (traits, and pods by name of the node). They count for ports
        and pod affinity only: free amounts stay. Good for one solve."""
        other = self._copy()
        other.company += company
        return other

    def set_explains(self, explains: bool) -> "FreeCapacity":
        """Returns the same capacity, with refusals that have reasons or not: a search that asks often only needs to know whether something
        fits. It is a copy that shares all arrays, or itself where nothing changes."""
        if self.explains is explains:
            return self
        other = self._copy()
        other.explains = explains
        return other

    def close_nodes(self, nodes: Flags | None) -> "FreeCapacity":
        """Returns a copy that shares all arrays, without the flagged nodes, and those closed before, in what a refusal suggests; None:
        with all nodes. Good for one solve. What fits does not change."""
        other = self._copy()
        other.closed = nodes if nodes is None or self.closed is None else self.closed | nodes
        return other

    def copy_with_domain(self, inside: slice) -> "FreeCapacity":
        """Returns a copy that shares all arrays, with the nodes of one domain as those that a refusal is about and suggests. Good for one
        solve. What fits does not change."""
        elsewhere = np.ones(len(self.tree), dtype=bool)
        elsewhere[inside] = False
        other = self.close_nodes(elsewhere)
        other.elsewhere = elsewhere
        return other

    def copy_with_budget(self, budget: StepBudget) -> "FreeCapacity":
        """Returns a copy that shares all arrays, with `budget` (shared, not copied) as the steps of the decision; good for one solve."""
        other = self._copy()
        other.budget = budget
        return other

    @property
    def pass_steps(self) -> int:
        """Steps of the budget that it costs to count once over all nodes."""
        return 40 + len(self.tree) // 40

    def _copy(self) -> "FreeCapacity":
        other = object.__new__(FreeCapacity)
        other.__dict__.update(self.__dict__)
        return other

    def copy(self) -> "FreeCapacity":
        """Returns a copy of the nodes as they are now: later changes do not affect it. Which pods are there, as far as ports and pod
        affinity go, is shared. What was kept and the log of changes are empty in the copy."""
        other = self._copy()
        for name in ("free", "allocatable", "ready", "cordoned", "usable", "taint_class"):
            setattr(other, name, getattr(self, name).copy())
        other.axis, other.kept, other._log = dict(self.axis), {}, []
        other._taint_classes, other._verdicts = dict(self._taint_classes), Memo()
        return other

    def with_free(self, free: Matrix) -> "FreeCapacity":
        """Returns the same nodes with `free`, which is not copied, as the amounts free on them, to be shown."""
        other = self._copy()
        other.free = free
        return other

    def copy_confined(self, pods: Iterable[PodTraits], inside: Flags) -> "FreeCapacity":
        """Returns a copy that shares all arrays, with only the nodes `inside` for pods with these very traits (the same objects); good for
        one solve."""
        other = self._copy()
        other.inside += tuple((traits, inside) for traits in pods)
        return other

    def compute_preferred_scores(self, request: PodSetRequest, eligible: Flags) -> Indices | None:
        """Returns, per node, the summed weights of the preferred node affinity terms it meets, 0 where it is not eligible.

        None where nothing is preferred. Raises InvalidSelector where an expression cannot be evaluated or there are too many.
        """
        terms = ((request.affinity or {}).get("nodeAffinity") or {}).get("preferredDuringSchedulingIgnoredDuringExecution")
        if not terms:
            return None
        check_size([term["preference"] for term in terms])
        scores = np.zeros(len(self.tree), dtype=np.int64)
        for term in terms:
            scores += int(term["weight"]) * match_term(self.tree, term["preference"])
        return np.where(eligible, scores, 0)

    def count_pods_that_fit(
        self, request: PodSetRequest, free: Matrix, nodes: Indices | slice = slice(None), beside: tuple[Resources, int] | None = None
    ) -> Indices:
        """Returns the pods, 0 to `MOST_PODS`, that each of all or some nodes (indexes or a slice) holds by capacity alone. `free` is a
        matrix of this shape. All are 0 where the view does not know a resource that is requested.

        `beside` has the requests of one other pod and how many of them are on each node first. Selectors, taints and readiness are not
        looked at (`find_eligible`).
        """
        others = {} if beside is None else with_pod(beside[0])
        fit: Indices | None = None
        for resource, amount in with_pod(request.requests).items():
            row = self.axis.get(resource)
            if row is None:
                return np.zeros(len(self.tree), dtype=np.int64)[nodes]
            left = free[row, nodes]
            if beside is not None and resource in others:
                left = left - saturate(others[resource] * beside[1])
            by_resource = left.copy() if amount == 1 else left // amount  # to divide is the dearest step here
            fit = by_resource if fit is None else np.minimum(fit, by_resource, out=fit)
        assert fit is not None  # with_pod always names `pods`
        return np.minimum(np.maximum(fit, 0, out=fit), MOST_PODS, out=fit)


def cut(amounts: Indices) -> Indices:
    """Returns a copy of the amounts, cut at `LARGEST` either way; `numpy.clip` takes three times as long where there are few."""
    return np.minimum(np.maximum(amounts, -LARGEST), LARGEST)


def subtract_at(amounts: Indices, at: Indices, amount: int, counts: Indices) -> None:
    """Subtracts `amount` x counts[i] from amounts[at[i]], in place, cut at `LARGEST` either way; no place may occur twice in `at` (node
    indexes)."""
    most = int(np.abs(counts).max(initial=0))
    if abs(amount) * most <= LARGEST:
        amounts[at] = cut(amounts[at] - amount * counts)
    else:
        left = zip(amounts[at].tolist(), counts.tolist(), strict=True)
        amounts[at] = [saturate(has - amount * count) for has, count in left]


def sum_amounts(amounts: Indices) -> int:
    """Returns the sum of the amounts above 0. Each is cut at `LARGEST` divided by their number, so that the sum is at most `LARGEST`."""
    return int(np.minimum(np.maximum(amounts, 0), LARGEST // max(1, len(amounts))).sum())


def with_pod(requests: Resources) -> dict[str, int]:
    """Returns a new dict of the canonical amounts that one pod uses of a node: its requests above 0 and one more of `pods`."""
    amounts = {resource: amount for resource, amount in requests.items() if amount > 0}
    amounts[PODS] = amounts.get(PODS, 0) + 1
    return amounts
