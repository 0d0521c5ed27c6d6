"""Amounts in use per node, as one array that the free matrices of all flavors follow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from core.model.resources import Resources
from core.placement.free import FreeCapacity, Matrix
from core.placement.tree import Indices

Usage = Mapping[str, Mapping[str, int]]  # node -> resource -> amount


@dataclass(slots=True)
class _Follower:
    """A flavor's capacity, and where in its tree the node of each slot stands (-1: nowhere)."""

    view: FreeCapacity
    places: Indices


class UsageTable:
    """A slot per node name ever seen, a row per resource."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._amounts: Matrix = np.zeros((0, 0), dtype=np.int64)
        self._followers: list[_Follower] = []

    def attach(self, view: FreeCapacity) -> None:
        """Takes all that is in use from a new view and keeps it up to date from now on."""
        follower = _Follower(view, np.array([view.tree.index.get(name, -1) for name in self._slots], dtype=np.int64))
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
        return self.slots([node]).item() if slot is None else slot

    def slots(self, nodes: Iterable[str]) -> Indices:
        """The slots of nodes, new ones for those never seen."""
        known = self._slots
        found = [known.setdefault(node, len(known)) for node in nodes]
        if len(known) > self._amounts.shape[1]:
            self._amounts = np.pad(self._amounts, ((0, 0), (0, 2 * len(known) - self._amounts.shape[1])))
        for follower in self._followers:
            if len(follower.places) < len(known):
                new = list(known)[len(follower.places) :]
                index = follower.view.tree.index
                follower.places = np.append(follower.places, [index.get(name, -1) for name in new])
        return np.array(found, dtype=np.int64)

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
