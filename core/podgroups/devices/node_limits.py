"""The number of pods that a node may have by the devices that it reaches, alone and all nodes together.

Devices lie in cells: some that only one node reaches, others that several do. Each pod needs so many devices of some
kinds from cells that its node reaches. By Hall's theorem pods on nodes can all have theirs exactly if no choice of
nodes and kinds needs more than the cells in its reach have. Of such choices only the worst for each set of shared cells
is checked, which goes node by node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

import numpy as np

from core.model.step_budget import UNLIMITED, StepBudget
from core.placement.topology.free_capacity import Matrix
from core.placement.topology.tree import Flags, Indices

_STEPS = 80  # of giving one node some pods
_MANY = 2**40
MOST_KINDS = 5  # unlike devices that pods of a placement may ask for
_MOST_SHARED = 5  # cells that several nodes reach; of more the smallest are left out


@dataclass(frozen=True, slots=True)
class SharedCell:
    """Devices that several nodes reach: their kinds (one bit each), their number, and the nodes."""

    kinds: int
    count: int
    reach: Flags


@dataclass(frozen=True, slots=True)
class Rations:
    """`needs[i][k]`: devices of kind k that a pod of set i needs. `own[kinds]`: devices of just these kinds by node. `taken[k]`: what is
    promised to others already, by node."""

    needs: tuple[tuple[int, ...], ...]
    own: Matrix
    shared: tuple[SharedCell, ...]
    taken: Matrix
    budget: StepBudget = field(default_factory=lambda: UNLIMITED, repr=False)  # of the decision
    _left: Matrix = field(init=False, repr=False)  # by choice of kinds: what a node's own cells have left

    def __post_init__(self) -> None:
        if len(self.shared) > _MOST_SHARED:
            kept = sorted(self.shared, key=lambda cell: (-cell.count, cell.kinds))[:_MOST_SHARED]
            object.__setattr__(self, "shared", tuple(kept))
        left = np.zeros_like(self.own)
        for choice in range(1, len(left)):
            left[choice] = sum((self.own[kinds] for kinds in range(1, len(left)) if kinds & choice), left[0])
            left[choice] -= sum((self.taken[kind] for kind in _list_bits(choice)), left[0])
        object.__setattr__(self, "_left", left)

    def limit_pods(self, pod_set: int, per_node: Indices) -> Indices:
        """Returns a copy of `per_node` (pods per node, int64), lowered so far that all these pods of a set (by index) together have their
        devices. They may be fewer than could have them where the budget of steps ends."""
        needs = self._needs_by_choice(pod_set)
        alone, without_shared = per_node.copy(), per_node.copy()
        for choice, need in needs.items():
            shared = sum((cell.reach * cell.count for cell in self.shared if cell.kinds & choice), np.zeros_like(per_node))
            np.minimum(alone, np.maximum(self._left[choice] + shared, 0) // need, out=alone)
            np.minimum(without_shared, np.maximum(self._left[choice], 0) // need, out=without_shared)
        return self._from_shared(needs, without_shared, alone) if self.shared and needs else alone

    def compute_remaining(self, pod_set: int, counts: Indices) -> "Rations":
        """Returns a copy with what is left for others once `counts` pods (per node) of a set (by index) are there; their devices are added
        to `taken`. The needs of all sets stay."""
        needs = np.array(self.needs[pod_set], dtype=np.int64).reshape(-1, 1)
        return replace(self, taken=self.taken + needs * counts)

    def count_missing(self, needs: Sequence[int], nodes: int) -> int:
        """Returns how many devices at least the first `nodes` nodes together lack for `needs` (devices by kind), on whichever of them; 0
        where they have enough."""
        short = 0
        for choice in range(1, len(self._left)):
            left = self._left[choice]
            shared = sum(cell.count for cell in self.shared if cell.kinds & choice and cell.reach[:nodes].any())
            has = int(np.maximum(left[:nodes], 0).sum()) + max(0, shared - int(np.maximum(-left, 0).sum()))
            short = max(short, sum(needs[kind] for kind in _list_bits(choice)) - has)
        return short

    def _needs_by_choice(self, pod_set: int) -> dict[int, int]:
        found = {choice: sum(self.needs[pod_set][kind] for kind in _list_bits(choice)) for choice in range(1, len(self._left))}
        return {choice: need for choice, need in found.items() if need}

    def _from_shared(self, needs: Mapping[int, int], counts: Indices, most: Indices) -> Indices:
        """Adds pods that need shared devices, those that need fewest first; of equal ones where there is most room.

        A node gets as many at once as need equally many. Where the budget of steps ends, so do the additions.
        """
        demand = _Demand(self, needs)
        overdrawn = np.flatnonzero((self._left < 0).any(axis=0))  # by what is promised; the others take of their own so far
        left = demand.counts - demand.find_some(overdrawn, counts[overdrawn])
        open_ = np.flatnonzero(counts < most) if left[-1] > 0 and (left >= 0).all() else counts[:0]
        prices = demand.find_all(open_, counts[open_] + 1) - demand.find_all(open_, counts[open_])
        waiting = list(zip(prices.tolist(), (-most[open_]).tolist(), open_.tolist(), strict=True))
        heapify(waiting)
        while waiting and left[-1] >= waiting[0][0] and self.budget.spend(_STEPS):
            price, room, at = heappop(waiting)
            count = int(counts[at])
            before = demand.list_demand(at, count)
            more = min(int(most[at]) - count, demand.find_most_within(at, before + left) - count)
            if more <= 0:
                continue
            more = demand.find_most_at(at, count, more, price)
            left = left - (demand.list_demand(at, count + more) - before)
            counts[at] = count = count + more
            if count < most[at]:
                heappush(waiting, (demand.compute_step(at, count), room, at))
        return counts


class _Demand:
    """What pods of one set on a node take of the shared cells at the least, for each choice of cells: what they can have from nowhere else
    must be within what these have (`counts`). The last choice is all cells."""

    def __init__(self, rations: Rations, needs: Mapping[int, int]) -> None:
        choices = range(1, len(rations._left))
        self._left = rations._left[1:]
        self._needs = np.array([needs.get(choice, 0) for choice in choices], dtype=np.int64)
        cells, kinds = range(len(rations.shared)), [cell.kinds for cell in rations.shared]
        self._subsets = [[not some >> cell & 1 for cell in cells] for some in range(1, 2 ** len(kinds))]  # those that are left out
        self.counts = np.array([sum(rations.shared[cell].count for cell in cells if not others[cell]) for others in self._subsets])
        self._reached = np.array([cell.reach for cell in rations.shared]).T  # by node
        self._meets = np.array([[bool(of_cell & choice) for choice in choices] for of_cell in kinds])
        self._counted: dict[bytes, Flags] = {}

    def _count_at(self, at: int) -> Flags:
        """By choice of cells and of kinds whether these kinds are in no other cell that the node reaches."""
        reached = self._reached[at]
        key = reached.tobytes()
        if key not in self._counted:
            elsewhere = (np.array(self._subsets) & reached).astype(np.int64) @ self._meets.astype(np.int64)
            self._counted[key] = elsewhere == 0
        return self._counted[key]

    def list_demand(self, at: int, count: int) -> Indices:
        """What so many pods on a node take, by choice of cells."""
        short = np.where(self._count_at(at), count * self._needs - self._left[:, at], 0)
        taken: Indices = np.maximum(short.max(axis=1), 0)
        return taken

    def find_some(self, nodes: Indices, counts: Indices) -> Indices:
        """What so many pods on each of some nodes take together, by choice of cells."""
        taken = np.zeros(len(self._subsets), dtype=np.int64)
        reached = self._reached[nodes] @ (1 << np.arange(self._reached.shape[1]))
        short = self._needs[:, None] * counts - self._left[:, nodes]
        for pattern in np.unique(reached):
            alike = np.flatnonzero(reached == pattern)
            for some, counted in enumerate(self._count_at(int(nodes[alike[0]]))):
                if counted.any():
                    taken[some] += np.maximum(short[counted][:, alike].max(axis=0), 0).sum()
        return taken

    def find_all(self, nodes: Indices, counts: Indices) -> Indices:
        """What so many pods on each of some nodes take of all cells together."""
        short = self._needs[:, None] * counts - self._left[:, nodes]
        taken: Indices = np.maximum(short.max(axis=0), 0)
        return taken

    def compute_step(self, at: int, count: int) -> int:
        """What one pod more takes of all cells together."""
        left = self._left[:, at]
        now, then = (max(0, int((many * self._needs - left).max())) for many in (count, count + 1))
        return then - now

    def find_most_within(self, at: int, limits: Indices) -> int:
        """Returns the largest number of pods on a node that use no more than `limits`, by choice of cells."""
        asked = self._needs > 0
        room = (limits[:, None] + self._left[asked, at]) // self._needs[asked]
        return int(np.where(self._count_at(at)[:, asked], room, _MANY).min(initial=_MANY))

    def find_most_at(self, at: int, count: int, more: int, price: int) -> int:
        """Of so many pods more, how many take each as much as the first of them does; what a pod takes never falls."""
        low, high = 1, more
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.compute_step(at, count + middle - 1) == price else (low, middle - 1)
        return low


def _list_bits(number: int) -> list[int]:
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]
