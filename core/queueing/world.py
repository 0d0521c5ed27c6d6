"""What a search decides by: the cluster as it is, or as it will be once some workloads are gone."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from core.model.budget import Budget
from core.model.quantity import saturate
from core.model.quota import Amounts, FlavorResource, QuotaTree
from core.model.resources import Resources
from core.placement.free import FreeCapacity, Matrix
from core.placement.tree import Flags
from core.queueing.lending import Loan, Offer, give_back, release
from core.state.cluster import ClusterState
from core.state.flavor_view import FlavorView
from core.state.workloads import admission_usage

_Held = Sequence[tuple[Resources, Sequence[tuple[str, int]]]]  # requests of one pod, pods per node


def without(free: Matrix, nodes: Flags) -> Matrix:
    """Free amounts with nothing free on some nodes."""
    free = free.copy()
    free[:, nodes] = np.minimum(free[:, nodes], 0)
    return free


class World:
    """The state with some workloads thought away. Nodes are copied once per flavor; the tree of quota is changed in place, so that
    whoever thinks somebody away must think everybody back before the state is used again."""

    def __init__(
        self,
        state: ClusterState,
        *,
        explains: bool = True,
        offers: Sequence[Offer] = (),
        loans: Sequence[Loan] = (),
        budget: Budget | None = None,
    ) -> None:
        self.state = state
        self.budget = Budget() if budget is None else budget  # of the search for a place
        self._offers = offers  # what is lent to whoever looks for a place
        self.loans = loans  # what who looks has lent, of its own spares
        self.explains = explains  # whether its answers say why; a search that asks often does better without
        self._free: dict[str, tuple[Matrix, set[str], int]] = {}  # the workloads that are gone in it, and how many of `_turned` it has seen
        self._turned: list[str] = []  # keys in the order in which they were thought away or back
        self._gone: dict[str, None] = {}
        self._held: dict[str, _Held] = {}
        self._usage: dict[str, tuple[str, Amounts]] = {}

    @property
    def quota(self) -> QuotaTree:
        """Who may still use how much."""
        return self.state.quota

    @property
    def gone(self) -> frozenset[str]:
        """Keys of the workloads thought away."""
        return frozenset(self._gone)

    def free(self, view: FlavorView) -> Matrix | None:
        """Free amounts on the nodes of a flavor; None: as the ledger has them. Most who are thought away are back before anybody
        looks at nodes, so these are only reckoned here."""
        if view.flavor.name not in self._free:
            if not self._gone and not self._offers:
                return None
            matrix = view.capacity.free.copy()
            release(view, matrix, self._offers)
            self._free[view.flavor.name] = matrix, set(), 0
        free, gone, seen = self._free[view.flavor.name]
        for key in dict.fromkeys(self._turned[seen:]):
            if key in gone and key not in self._gone:
                self.take(view, free, self.held(key), 1)
                gone.discard(key)
            elif key in self._gone and key not in gone:
                self.take(view, free, self.held(key), -1)
                gone.add(key)
        self._free[view.flavor.name] = free, gone, len(self._turned)
        return free

    def free_for_spares(self, view: FlavorView, free: Matrix | None) -> Matrix | None:
        """What is free for the spares of who looks, which may be lent; `free` is what is so for its pods."""
        if not self.loans:
            return free
        free = (view.capacity.free if free is None else free).copy()
        give_back(view.capacity, free, self.loans)
        return free

    def capacity(self, view: FlavorView) -> FreeCapacity:
        """The nodes of a flavor, whatever is free on them."""
        return view.capacity.set_explains(self.explains).within(self.budget)

    def held(self, key: str) -> _Held:
        """What a workload holds on nodes: per pod set the requests of one pod and pods per node."""
        if key not in self._held:
            self._held[key] = self.state.ledger.held_by(self.state.pods_key(key))
        return self._held[key]

    def usage(self, key: str) -> tuple[str, Amounts]:
        """What a workload holds of quota, and of which queue's."""
        if key not in self._usage:
            admission = self.state.workloads.holding(key)
            assert admission is not None
            self._usage[key] = admission.cluster_queue, admission_usage(admission)
        return self._usage[key]

    def remove(self, key: str) -> None:
        """Thinks a workload that holds something away."""
        self._apply_turn(key, -1)
        self.quota.add(*self.usage(key), -1)

    def restore(self, key: str) -> None:
        """Thinks a workload back."""
        self._apply_turn(key, 1)
        self.quota.add(*self.usage(key))

    def let_go(self, keys: AbstractSet[str]) -> None:
        """Thinks exactly these away."""
        changes: dict[str, dict[FlavorResource, int]] = {}  # by queue
        for keys_turned, times in ((self._gone.keys() - keys, 1), (keys - self._gone.keys(), -1)):
            for key in sorted(keys_turned):
                self._apply_turn(key, times)
                queue, amounts = self.usage(key)
                of_queue = changes.setdefault(queue, {})
                for name, amount in amounts.items():
                    of_queue[name] = of_queue.get(name, 0) + amount * times
        for queue, amounts in changes.items():
            self.quota.add(queue, amounts)

    def restore_all(self) -> None:
        """Thinks everybody back."""
        self.let_go(frozenset())

    def _apply_turn(self, key: str, times: int) -> None:
        if times < 0:
            self._gone[key] = None
        else:
            del self._gone[key]
        self._turned.append(key)

    @staticmethod
    def take(view: FlavorView, free: Matrix, held: _Held, times: int) -> None:
        """Takes so many times from free amounts what somebody holds on nodes; what is on others takes nothing."""
        index, axis = view.capacity.tree.index, view.capacity.axis
        for requests, nodes in held:
            rows = [(axis[resource], amount * times) for resource, amount in requests.items() if resource in axis]
            for name, count in nodes:
                place = index.get(name)
                for row, amount in rows if place is not None else ():
                    free[row, place] = saturate(int(free[row, place]) - amount * count)
