"""What a search decides by: the cluster as it is, or as it will be once some workloads are gone."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from core.model.admission import Admission
from core.model.pod_resources import Resources
from core.model.quantity import LARGEST, saturate
from core.model.quota_tree import Amounts, FlavorResource, QuotaTree
from core.model.step_budget import StepBudget
from core.placement.topology.free_capacity import FreeCapacity, Matrix, cut
from core.placement.topology.tree import Flags, TopologyTree
from core.queueing.flavors.spare_lending import Loan, Offer, give_back, release
from core.state.cluster import ClusterState
from core.state.flavor_view import FlavorView
from core.state.queue_facts import ClusterQueueFacts
from core.state.workload_state import compute_admission_usage

_Cells = tuple[tuple[int, ...], tuple[int, ...], int]  # places in a flattened matrix, amounts there, the sum of the amounts
_NO_CELLS: _Cells = ((), (), 0)
_Usage = tuple[str, Amounts]  # name of a ClusterQueue, amounts
_Held = Sequence[tuple[Resources, Sequence[tuple[str, int]]]]  # requests of one pod, pods per node


def copy_without_nodes(free: Matrix, nodes: Flags) -> Matrix:
    """Returns a copy of the free amounts with nothing free on some nodes; what is below zero stays."""
    free = free.copy()
    free[:, nodes] = np.minimum(free[:, nodes], 0)
    return free


@dataclass(slots=True)
class _CellsOfFlavor:
    """Cells by workload, with the version in the ledger; for one layout of the matrix."""

    tree: TopologyTree
    axis: dict[str, int]
    by_key: dict[str, tuple[int, _Cells]] = field(default_factory=dict)


class Readings:
    """What worlds have read of workloads. A later world reads again only the workloads that have changed since."""

    def __init__(self) -> None:
        self.usage: dict[str, tuple[Admission, _Usage]] = {}
        self._cells: dict[str, _CellsOfFlavor] = {}

    def find_cells(self, view: FlavorView) -> dict[str, tuple[int, _Cells]]:
        """Returns what was read of workloads, by key, for the matrix of a flavor as it is laid out now: the version in the ledger, and the
        cells (places in the flattened matrix, amounts, their sum). The caller adds to this dict; it is empty after a change of layout."""
        found, tree, axis = self._cells.get(view.flavor.name), view.capacity.tree, view.capacity.axis
        if found is None or found.tree is not tree or found.axis != axis:
            found = self._cells[view.flavor.name] = _CellsOfFlavor(tree, dict(axis))
        return found.by_key


class World:
    """The state without some workloads. Nodes are copied once per flavor.

    The quota tree is changed in place unless the view is frozen: then all workloads must be restored before the state
    is used again.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        explains: bool = True,
        offers: Sequence[Offer] = (),
        loans: Sequence[Loan] = (),
        budget: StepBudget | None = None,
        readings: Readings | None = None,
    ) -> None:
        self.state = state
        self.budget = StepBudget() if budget is None else budget  # of the search for a place
        self._offers = offers  # what is lent to the workload for which a place is searched
        self.loans = loans  # what that workload has lent of its own spare nodes
        self.explains = explains  # whether its answers have reasons; a search that asks often is faster without
        self._free: dict[str, tuple[Matrix, set[str], int]] = {}  # the workloads that are gone in it, and how many of `_turned` it has seen
        self._turned: list[str] = []  # keys in the order in which they were removed or restored
        self._gone: dict[str, None] = {}
        self._held: dict[str, _Held] = {}
        self._usage: dict[str, _Usage] = {}
        self._cells: dict[str, dict[str, _Cells]] = {}  # by flavor and workload
        self._readings = Readings() if readings is None else readings
        self._quota: QuotaTree | None = None  # as it was when `copy_quota_and_nodes` was called
        self._views: dict[str, FlavorView] | None = None

    def copy_quota_and_nodes(self, queue: ClusterQueueFacts) -> None:
        """Copies quota and nodes that a queue can use, so that the state may change while a search in this world is interrupted. From then
        on this world changes the copy of the quota alone.

        Which pods are where, and what workloads hold, is read when it is asked for first.
        """
        self._quota = self.state.quota.copy_around(queue.name)
        views = {name: self.state.get_view(name) for name in queue.flavors}
        self._views = {name: view.copy() for name, view in views.items() if view is not None}

    def get_view(self, flavor: str) -> FlavorView | None:
        """Returns a topology-aware flavor over its nodes; None if it, or its topology, does not exist. After `copy_quota_and_nodes` it is
        the copy, and None for a flavor that the queue did not have then."""
        return self.state.get_view(flavor) if self._views is None else self._views.get(flavor)

    @property
    def quota(self) -> QuotaTree:
        """Returns the quota tree, without the usage of the workloads that are removed in this view: the state's own, or the copy that
        `copy_quota_and_nodes` has made."""
        return self.state.quota if self._quota is None else self._quota

    @property
    def gone(self) -> frozenset[str]:
        """Returns the keys of the removed workloads, as a copy."""
        return frozenset(self._gone)

    def compute_free(self, view: FlavorView) -> Matrix | None:
        """Returns the canonical amounts that are free on the nodes of a flavor, resources by nodes, with what removed workloads hold and
        what is lent. None: they are those of the view. The array is this world's own, which a later call changes.

        Most removed workloads are back before a search needs the nodes, so the amounts are only computed here.
        """
        if view.flavor.name not in self._free:
            if not self._gone and not self._offers:
                return None
            matrix = view.capacity.free.copy()
            release(view, matrix, self._offers)
            self._free[view.flavor.name] = matrix, set(), 0
        free, gone, seen = self._free[view.flavor.name]
        turned = set(self._turned[seen:])
        back, away = turned & gone - self._gone.keys(), turned & self._gone.keys() - gone
        self._apply(view, free, back, -1)
        self._apply(view, free, away, 1)
        self._free[view.flavor.name] = free, gone - back | away, len(self._turned)
        return free

    def _apply(self, view: FlavorView, free: Matrix, keys: AbstractSet[str], sign: int) -> None:
        """Adds to free amounts, or subtracts from them, what workloads hold."""
        at, amounts, most = list[int](), list[int](), 0
        for cells in self._find_cells(view, keys):
            at += cells[0]
            amounts += cells[1]
            most += cells[2]
        if most < LARGEST:
            flat = free.reshape(-1)
            np.add.at(flat, at, np.array(amounts, dtype=np.int64) * sign)
            touched = np.array(at, dtype=np.int64)
            flat[touched] = cut(flat[touched])
        else:
            for key in sorted(keys):
                self.subtract_held(view, free, self.find_held(key), -sign)

    def _find_cells(self, view: FlavorView, keys: Iterable[str]) -> Iterator[_Cells]:
        """Where in a flavor's matrix each of some workloads holds how much, and the sum of it."""
        known, read, ledger = self._cells.setdefault(view.flavor.name, {}), self._readings.find_cells(view), self.state.ledger
        for key in keys:
            found = known.get(key)
            if found is None:
                pods_key = self.state.get_pods_key(key)
                version, (read_at, found) = ledger.read_version(pods_key), read.get(key, (-1, _NO_CELLS))
                if key in self._held or version != read_at:
                    read_at = version if key not in self._held else -1
                    found = self._count_cells(view, self.find_held(key))
                    read[key] = read_at, found
                known[key] = found
            yield found

    @staticmethod
    def _count_cells(view: FlavorView, held: _Held) -> _Cells:
        index, axis, width = view.capacity.tree.index, view.capacity.axis, len(view.capacity.tree)
        at, amounts = list[int](), list[int]()
        for requests, nodes in held:
            rows = [(axis[resource] * width, amount) for resource, amount in requests.items() if resource in axis]
            for name, count in nodes:
                if (place := index.get(name)) is not None:
                    at += [row + place for row, _ in rows]
                    amounts += [amount * count for _, amount in rows]
        return tuple(at), tuple(amounts), sum(map(abs, amounts))  # not lists, which the garbage collector would visit

    def compute_free_for_spares(self, view: FlavorView, free: Matrix | None) -> Matrix | None:
        """Returns the free amounts for the spare nodes of the workload: a copy of `free`, those for its pods (None: of the view), with what
        it has lent. It is `free` itself where nothing is lent."""
        if not self.loans:
            return free
        free = (view.capacity.free if free is None else free).copy()
        give_back(view.capacity, free, self.loans)
        return free

    def get_capacity(self, view: FlavorView) -> FreeCapacity:
        """Returns a copy of the nodes of a flavor for a search with this world's budget; it gives reasons only if the world `explains`.
        Free amounts in it are those of the view, as if no workload were removed."""
        return view.capacity.set_explains(self.explains).copy_with_budget(self.budget)

    def find_held(self, key: str) -> _Held:
        """Returns what a workload holds on nodes: per pod set the requests of one pod (canonical amounts) and pods per node, by name; empty
        where it holds nothing. It is read once and kept."""
        if key not in self._held:
            self._held[key] = self.state.ledger.list_held(self.state.get_pods_key(key))
        return self._held[key]

    def read_held(self, keys: Iterable[str]) -> None:
        """Reads and keeps what workloads (keys) hold of quota, and what they hold on the nodes that `copy_quota_and_nodes` has copied, if
        it has; nothing is removed."""
        keys = list(keys)
        for key in keys:
            self.find_usage(key)
        for view in (self._views or {}).values():
            for _ in self._find_cells(view, keys):
                pass

    def find_usage(self, key: str) -> tuple[str, Amounts]:
        """Returns the name of the queue of which a workload holds quota, and the canonical amounts by flavor and resource; `("", {})` for
        one that holds none any more. It is read once and kept."""
        found = self._usage.get(key)
        if found is None:
            admission = self.state.workloads.find_holding(key)
            read_of, found = self._readings.usage.get(key, (None, ("", {})))
            if admission is None:
                found = "", {}
            elif read_of is not admission:
                found = admission.cluster_queue, compute_admission_usage(admission)
                self._readings.usage[key] = admission, found
            self._usage[key] = found
        return found

    def remove(self, key: str) -> None:
        """Removes what a workload holds of quota, at once, and what it holds on nodes, once `compute_free` is called. It must not be
        removed already: its quota would be subtracted twice."""
        self._apply_turn(key, -1)
        self.quota.add(*self.find_usage(key), -1)

    def restore(self, key: str) -> None:
        """Restores what a removed workload holds of quota, at once, and on nodes, once `compute_free` is called. Raises KeyError where it
        is not removed."""
        self._apply_turn(key, 1)
        self.quota.add(*self.find_usage(key))

    def remove_workloads(self, keys: AbstractSet[str]) -> None:
        """Makes exactly the workloads with these keys removed, and restores all others. One that holds nothing counts as removed all the
        same."""
        changes: dict[str, dict[FlavorResource, int]] = {}  # by queue
        for keys_turned, times in ((self._gone.keys() - keys, 1), (keys - self._gone.keys(), -1)):
            for key in sorted(keys_turned):
                self._apply_turn(key, times)
                queue, amounts = self.find_usage(key)
                of_queue = changes.setdefault(queue, {})
                for name, amount in amounts.items():
                    of_queue[name] = of_queue.get(name, 0) + amount * times
        for queue, amounts in changes.items():
            self.quota.add(queue, amounts)

    def restore_all(self) -> None:
        """Adds all removed workloads back."""
        self.remove_workloads(frozenset())

    def _apply_turn(self, key: str, times: int) -> None:
        if times < 0:
            self._gone[key] = None
        else:
            del self._gone[key]
        self._turned.append(key)

    @staticmethod
    def subtract_held(view: FlavorView, free: Matrix, held: _Held, times: int) -> None:
        """Subtracts what a workload holds on nodes from `free`, `times` times, in place (negative: adds); nodes and resources that `free`
        does not have are left out. Amounts are cut at `LARGEST`."""
        index, axis = view.capacity.tree.index, view.capacity.axis
        for requests, nodes in held:
            rows = [(axis[resource], amount * times) for resource, amount in requests.items() if resource in axis]
            for name, count in nodes:
                place = index.get(name)
                for row, amount in rows if place is not None else ():
                    free[row, place] = saturate(int(free[row, place]) - amount * count)
