"""Amounts in use per node, which the free matrices of all flavors follow.

Resources that a node of an attached view has are counted in one array, a row each. Those that no such node has are
counted apart, per node where they are requested: a pod may name thousands of them, and none of them decides anything.
Totals are exact, however large: where one exceeds `LARGEST`, the array has `LARGEST` and `_beyond` the total itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.model.pod_resources import Resources
from core.model.quantity import LARGEST, saturate
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import Indices

Usage = Mapping[str, Mapping[str, int]]  # node -> resource -> amount


@dataclass(slots=True)
class _Follower:
    """A flavor's capacity, where in its tree the node of each slot stands (-1: nowhere), and the slot of each of its nodes."""

    view: FreeCapacity
    places: Indices
    slots: Indices


class UsageTable:
    """A slot per node name, a row per resource that a node of an attached view has.

    `held` returns the slots that its owner refers to; a slot that nothing refers to and where nothing is in use is
    given to another node when a slot is needed.
    """

    def __init__(self, held: Callable[[], Iterable[Indices]] = tuple) -> None:
        self._held = held
        self._slots: dict[str, int] = {}
        self._unused: list[int] = []
        self._rows: dict[str, int] = {}
        self._amounts: Matrix = np.zeros((0, 0), dtype=np.int64)
        self._beyond: dict[tuple[int, int], int] = {}  # (row, slot) -> a total that is no less than LARGEST
        self._beyond_slots: set[int] = set()
        self._rare: dict[str, dict[int, int]] = {}  # resources without a row -> slot -> total
        self._followers: list[_Follower] = []

    def attach(self, view: FreeCapacity) -> None:
        """Subtracts everything in use from a new view, in place, and keeps the view up to date from now on. It also sets `view.used`, by
        which the view reads usage of a resource that it begins to count."""
        slots = self._find_slots(view.tree.names)
        self._add_rows(view.axis)
        follower = _Follower(view, np.full(self._amounts.shape[1], -1), slots)
        follower.places[slots] = np.arange(len(slots))
        here = np.flatnonzero(follower.places >= 0)
        for resource, row in self._rows.items():
            used = here[self._amounts[row, here] != 0]
            view.use_nodes(follower.places[used], {resource: 1}, self._amounts[row, used])
        self._followers.append(follower)
        view.used = lambda resource: self._find_used(resource, follower)

    def _find_used(self, resource: str, follower: _Follower) -> Indices:
        """What of a resource is in use on each node of a view that is about to count it."""
        self._add_rows([resource])
        used: Indices = self._amounts[self._rows[resource], follower.slots]
        return used

    def detach(self, view: FreeCapacity) -> None:
        """Stops keeping a view up to date, if it was; its free amounts stay as they are."""
        self._followers = [follower for follower in self._followers if follower.view is not view]

    def get_slot(self, node: str) -> int:
        """Returns the slot (a column of the table) of a node, a new one if it has none. It stays that of the node as long as anything is in
        use there or the owner refers to it."""
        slot = self._slots.get(node)
        return int(self._find_slots([node])[0]) if slot is None else slot

    def get_slots(self, nodes: Sequence[tuple[str, int]]) -> Indices:
        """Returns the slots, int64, of the nodes in (node, pods), in their order; new ones for nodes that have none. The numbers of pods
        are not used."""
        if isinstance(nodes, NodeCounts):
            for follower in self._followers:
                if follower.view.tree is nodes.tree:
                    return follower.slots[nodes.at]
        return self._find_slots([name for name, _ in nodes])

    def _find_slots(self, names: Sequence[str]) -> Indices:
        new = [name for name in dict.fromkeys(names) if name not in self._slots]
        if len(new) > len(self._unused):
            self._find_unused(len(new), {self._slots[name] for name in names if name in self._slots})
        for name in new:
            self._slots[name] = self._unused.pop()
        return np.array([self._slots[name] for name in names], dtype=np.int64)

    def _find_unused(self, wanted: int, asked: Iterable[int]) -> None:
        """Drops the names of slots where nothing is in use and that nothing refers to; adds slots where these are too few."""
        width = self._amounts.shape[1]
        in_use = (self._amounts != 0).any(axis=0) if len(self._amounts) else np.zeros(width, dtype=bool)
        for slots in (*self._held(), *(follower.slots for follower in self._followers), *map(list, self._rare.values()), list(asked)):
            in_use[np.asarray(slots, dtype=np.int64)] = True
        self._slots = {name: slot for name, slot in self._slots.items() if in_use[slot]}
        self._unused = np.flatnonzero(~in_use)[::-1].tolist()
        if len(self._unused) < wanted + width // 4:
            # To twice the size: so that not each of many new names makes it look for unused ones again.
            more = width + wanted
            self._unused[:0] = range(width + more - 1, width - 1, -1)
            self._amounts = np.pad(self._amounts, ((0, 0), (0, more)))
            for follower in self._followers:
                # Every node of its tree got its slot when it was attached: a new one has no place there.
                follower.places = np.append(follower.places, np.full(more, -1))

    def _add_rows(self, resources: Iterable[str]) -> None:
        new = [resource for resource in resources if resource not in self._rows]
        if not new:
            return
        self._amounts = np.pad(self._amounts, ((0, len(new)), (0, 0)))
        for resource in new:
            row = self._rows[resource] = len(self._rows)
            for slot, total in self._rare.pop(resource, {}).items():
                self._set(row, slot, total)

    def _set(self, row: int, slot: int, total: int) -> None:
        self._amounts[row, slot] = saturate(total)
        if abs(total) >= LARGEST:
            self._beyond[row, slot] = total
        elif self._beyond.pop((row, slot), None) is None:
            return
        self._beyond_slots = {slot for _, slot in self._beyond}

    def use_slot(self, slot: int, amounts: Resources, times: int) -> None:
        """Adds `amounts` (canonical units) x `times` to what is in use on the node of a slot; negative times give back. The free
        amounts of attached views change as well."""
        changes: dict[str, int] = {}
        for resource, amount in amounts.items():
            row = self._rows.get(resource)
            if row is None:
                self._add_rare(resource, slot, amount * times)
                continue
            shown = int(self._amounts[row, slot])
            self._set(row, slot, self._beyond.get((row, slot), shown) + amount * times)
            changes[resource] = int(self._amounts[row, slot]) - shown
        for follower in self._followers:
            place = int(follower.places[slot])
            if place >= 0:
                follower.view.use_node(place, changes)

    def _add_rare(self, resource: str, slot: int, amount: int) -> None:
        totals = self._rare.setdefault(resource, {})
        totals[slot] = totals.get(slot, 0) + amount
        if not totals[slot]:
            del totals[slot]
        if not totals:
            del self._rare[resource]

    def use_slots(self, slots: Indices, amounts: Resources, times: Indices) -> None:
        """Does the same as `use_slot` with times[i] for the node of slots[i]; no slot may occur twice."""
        most = int(np.abs(times).max(initial=0))
        if not most:
            return
        is_large = any(resource not in self._rows or amount * most >= LARGEST // 2 for resource, amount in amounts.items())
        if is_large or (self._beyond and not self._beyond_slots.isdisjoint(slots.tolist())):
            for slot, count in zip(slots.tolist(), times.tolist(), strict=True):
                self.use_slot(slot, amounts, count)
            return
        cells = np.array([self._rows[resource] for resource in amounts], dtype=np.int64)[:, None], slots
        totals = self._amounts[cells] + np.multiply.outer(np.array([*amounts.values()], dtype=np.int64), times)
        if int(np.abs(totals).max(initial=0)) >= LARGEST:
            for slot, count in zip(slots.tolist(), times.tolist(), strict=True):
                self.use_slot(slot, amounts, count)
            return
        self._amounts[cells] = totals
        self._follow(slots, amounts, times)

    def _follow(self, slots: Indices, amounts: Resources, times: Indices) -> None:
        for follower in self._followers:
            places = follower.places[slots]
            here = places >= 0
            if here.all():
                follower.view.use_nodes(places, amounts, times)
            elif here.any():
                follower.view.use_nodes(places[here], amounts, times[here])

    def read(self) -> dict[str, dict[str, int]]:
        """Returns, as new maps, amounts per node and resource, in canonical units, where anything is in use; totals are exact."""
        names, usage = {slot: name for name, slot in self._slots.items()}, dict[str, dict[str, int]]()
        for resource, row in self._rows.items():
            for slot in np.flatnonzero(self._amounts[row]).tolist():
                total = self._beyond.get((row, slot))
                usage.setdefault(names[slot], {})[resource] = int(self._amounts[row, slot]) if total is None else total
        for resource, totals in self._rare.items():
            for slot, total in totals.items():
                usage.setdefault(names[slot], {})[resource] = total
        return usage
