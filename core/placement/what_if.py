"""Free capacity as it would be if some workloads were gone or others were there."""

from collections.abc import Iterable, Sequence

from core.model.podset import PodSetRequest
from core.placement.algorithms.decision import subtract_pods
from core.placement.topology.free_capacity import FreeCapacity, Matrix

Usage = tuple[PodSetRequest, Sequence[tuple[str, int]]]  # a pod set and its pods per node, as in `PodSetPlacement.nodes`


class WhatIf:
    """One copy of a free matrix for a whole search: each step touches only the nodes of one pod set, and can be undone.

    The view itself, which belongs to the ledger, is never changed. `free` is what `place`, `replace_failed` and
    `resize` take as theirs; it is good until the view's nodes or resources change.
    """

    def __init__(self, view: FreeCapacity, free: Matrix | None = None) -> None:
        self._view = view
        self.free: Matrix = (view.free if free is None else free).copy()

    def release(self, usage: Iterable[Usage]) -> None:
        """Adds what pods use to `free`, in place: for each request the pods by name of their node. Those on nodes that the view does not
        have used nothing."""
        for request, nodes in usage:
            subtract_pods(self._view, self.free, request, [(name, -count) for name, count in nodes])

    def use_capacity(self, usage: Iterable[Usage]) -> None:
        """Subtracts what pods need from `free`, in place, even below 0; nodes that the view does not have are left out. Undoes `release` of
        the same usage."""
        for request, nodes in usage:
            subtract_pods(self._view, self.free, request, nodes)
