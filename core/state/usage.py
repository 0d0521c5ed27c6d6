"""Amounts in use per node, as one array that the free matrices of all flavors follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.model.resources import Resources
from core.placement.free import FreeCapacity, Matrix
from core.placement.node_counts import NodeCounts
from core.placement.tree import Indices

Usage = Mapping[str, Mapping[str, int]]  # node -> resource -> amount


@dataclass(slots=True)
class _Follower:
    """A flavor's capacity, where in its tree the node of each slot stands (-1: nowhere), and the slot of each of its nodes."""

    view: FreeCapacity
    places: Indices
    slots: Indices


class UsageTable:
    """A slot per node name ever seen, a row per resource."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._amounts: Matrix = np.zeros((0, 0), dtype=np.int64)
        self._followers: list[_Follower] = []

    def attach(self, view: FreeCapacity) -> None:
        """Takes all that is in use from a new view and keeps it up to date from now on."""
        slots = self._slots_of(view.tree.names)
        follower = _Follower(view, np.full(self._amounts.shape[1], -1), slots)
        follower.places[slots] = np.arange(len(slots))
        here = np.flatnonzero(follower.places >= 0)
        for resource, row in self._rows.items():
            used = here[self._amounts[row, here] != 0]
            view.take_at(follower.places[used], {resource: 1}, self._amounts[row, used])
        self._followers.append(follower)

    def detach(self, view: FreeCapacity) -> None:
        """Forgets a view."""
        self._followers = [follower for follower in self._followers if follower.view is not view]

    def slot(self, node: str) -> int:
        """The slot of a node, a new one if it was never seen."""
        slot = self._slots.get(node)
        return int(self._slots_of([node])[0]) if slot is None else slot

    def slots(self, nodes: Sequence[tuple[str, int]]) -> Indices:
        """The slots of the nodes that pods are counted on, new ones for those never seen."""
        if isinstance(nodes, NodeCounts):
            for follower in self._followers:
                if follower.view.tree is nodes.tree:
                    return follower.slots[nodes.at]
        return self._slots_of([name for name, _ in nodes])

    def _slots_of(self, names: Sequence[str]) -> Indices:
        known = self._slots
        found = np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)
        if len(known) > self._amounts.shape[1]:
            more = 2 * len(known) - self._amounts.shape[1]
            self._amounts = np.pad(self._amounts, ((0, 0), (0, more)))
            for follower in self._followers:
                # Every node of its tree got its slot when it was attached: a new one has no place there.
                follower.places = np.append(follower.places, np.full(more, -1))
        return found

    def _add_rows(self, amounts: Resources) -> None:
        new = [resource for resource in amounts if resource not in self._rows]
        if new:
            self._rows.update({resource: len(self._rows) + i for i, resource in enumerate(new)})
            self._amounts = np.pad(self._amounts, ((0, len(new)), (0, 0)))

    def take(self, slot: int, amounts: Resources, times: int) -> None:
        """Uses amounts x times on one node (gives back if negative)."""
        self._add_rows(amounts)
        for resource, amount in amounts.items():
            self._amounts[self._rows[resource], slot] += amount * times
        for follower in self._followers:
            place = int(follower.places[slot])
            if place >= 0:
                follower.view.take(place, amounts, times)

    def take_each(self, slots: Indices, amounts: Resources, times: Indices) -> None:
        """Uses amounts x times[i] on the node of slots[i]; no slot may occur twice."""
        self._add_rows(amounts)
        for resource, amount in amounts.items():
            self._amounts[self._rows[resource], slots] += amount * times
        for follower in self._followers:
            places = follower.places[slots]
            here = places >= 0
            if here.all():
                follower.view.take_at(places, amounts, times)
            elif here.any():
                follower.view.take_at(places[here], amounts, times[here])

    def read(self) -> dict[str, dict[str, int]]:
        """Amounts per node where anything is in use."""
        names, usage = list(self._slots), dict[str, dict[str, int]]()
        for resource, row in self._rows.items():
            for slot in np.flatnonzero(self._amounts[row]).tolist():
                usage.setdefault(names[slot], {})[resource] = int(self._amounts[row, slot])
        return usage
