"""What a search decides by: the cluster as it is, or as it will be once some workloads are gone."""

from collections.abc import Sequence

from core.model.admission import Admission
from core.model.quota import QuotaTree
from core.model.resources import Resources
from core.placement.free import FreeCapacity, Matrix
from core.state.cluster import ClusterState, FlavorView
from core.state.workloads import admission_usage

_Held = Sequence[tuple[Resources, Sequence[tuple[str, int]]]]  # requests of one pod, pods per node


class World:
    """The state with some workloads thought away. Nodes are copied once per flavor; the tree of quota is changed in place, so that
    whoever thinks somebody away must think everybody back before the state is used again."""

    def __init__(self, state: ClusterState, *, explains: bool = True) -> None:
        self.state = state
        self.explains = explains  # whether its answers say why; a search that asks often does better without
        self._free: dict[str, Matrix] = {}
        self._gone: dict[str, None] = {}
        self._held: dict[str, tuple[Admission, _Held]] = {}

    @property
    def quota(self) -> QuotaTree:
        """Who may still use how much."""
        return self.state.quota

    @property
    def gone(self) -> frozenset[str]:
        """Keys of the workloads thought away."""
        return frozenset(self._gone)

    def free(self, view: FlavorView) -> Matrix | None:
        """Free amounts on the nodes of a flavor; None: as the ledger has them."""
        if not self._gone:
            return None
        name = view.flavor.name
        if name not in self._free:
            self._free[name] = view.capacity.free.copy()
            for key in self._gone:
                self._take(view, self._free[name], self._held[key][1], -1)
        return self._free[name]

    def capacity(self, view: FlavorView) -> FreeCapacity:
        """The nodes of a flavor, whatever is free on them."""
        return view.capacity if self.explains else view.capacity.without_words()

    def held(self, key: str) -> tuple[Admission, _Held]:
        """What a workload holds: its admission, and per pod set the requests of one pod and pods per node."""
        if key not in self._held:
            admission = self.state.workloads.holding(key)
            assert admission is not None
            self._held[key] = admission, self.state.ledger.held_by(self.state.pods_key(key))
        return self._held[key]

    def remove(self, key: str) -> None:
        """Thinks a workload that holds something away."""
        self._gone[key] = None
        self._change(*self.held(key), -1)

    def restore(self, key: str) -> None:
        """Thinks a workload back."""
        del self._gone[key]
        self._change(*self.held(key), 1)

    def restore_all(self) -> None:
        """Thinks everybody back."""
        for key in list(self._gone):
            self.restore(key)

    def _change(self, admission: Admission, held: _Held, times: int) -> None:
        self.quota.add(admission.cluster_queue, admission_usage(admission), times)
        for name, free in self._free.items():
            view = self.state.view(name)
            assert view is not None
            self._take(view, free, held, times)

    @staticmethod
    def _take(view: FlavorView, free: Matrix, held: _Held, times: int) -> None:
        index, axis = view.capacity.tree.index, view.capacity.axis
        for requests, nodes in held:
            rows = [(axis[resource], amount * times) for resource, amount in requests.items() if resource in axis]
            for name, count in nodes:
                place = index.get(name)
                for row, amount in rows if place is not None else ():
                    free[row, place] -= amount * count
