"""How many pods a node may have by the devices that it reaches, alone and all nodes together.

Devices lie in cells: some that only one node reaches, others that several do. Each pod needs so many devices of some kinds from cells that
its node reaches. By Hall's theorem pods on nodes can all have theirs exactly if no choice of nodes and kinds needs more than the cells in
its reach have; of such choices only the worst for each set of shared cells has to be looked at, which goes node by node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush

import numpy as np

from core.placement.free import Matrix
from core.placement.tree import Flags, Indices

MOST_KINDS = 5  # unlike devices that pods of a placement may ask for
_MOST_SHARED = 5  # cells that several nodes reach; of more the smallest are left out


@dataclass(frozen=True, slots=True)
class SharedCell:
    """Devices that several nodes reach: of which kinds they are (one bit each), how many, and which nodes."""

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
    _left: Matrix = field(init=False, repr=False)  # by choice of kinds: what a node's own cells have left

    def __post_init__(self) -> None:
        if len(self.shared) > _MOST_SHARED:
            kept = sorted(self.shared, key=lambda cell: (-cell.count, cell.kinds))[:_MOST_SHARED]
            object.__setattr__(self, "shared", tuple(kept))
        left = np.zeros_like(self.own)
        for choice in range(1, len(left)):
            left[choice] = sum((self.own[kinds] for kinds in range(1, len(left)) if kinds & choice), left[0])
            left[choice] -= sum((self.taken[kind] for kind in _bits(choice)), left[0])
        object.__setattr__(self, "_left", left)

    def within(self, pod_set: int, per_node: Indices) -> Indices:
        """At most `per_node` pods of a set on each node, and so few that all of them together have their devices."""
        needs = self._needs_by_choice(pod_set)
        alone, without_shared = per_node.copy(), per_node.copy()
        for choice, need in needs.items():
            shared = sum((cell.reach * cell.count for cell in self.shared if cell.kinds & choice), np.zeros_like(per_node))
            np.minimum(alone, np.maximum(self._left[choice] + shared, 0) // need, out=alone)
            np.minimum(without_shared, np.maximum(self._left[choice], 0) // need, out=without_shared)
        return self._from_shared(needs, without_shared, alone) if self.shared and needs else alone

    def after(self, pod_set: int, counts: Indices) -> "Rations":
        """What is left for others once so many pods of a set are on each node."""
        needs = np.array(self.needs[pod_set], dtype=np.int64).reshape(-1, 1)
        return replace(self, taken=self.taken + needs * counts)

    def short_of(self, needs: Sequence[int], nodes: int) -> int:
        """How many devices the first `nodes` nodes together lack for so many of each kind, on whichever of them."""
        short = 0
        for choice in range(1, len(self._left)):
            left = self._left[choice]
            shared = sum(cell.count for cell in self.shared if cell.kinds & choice and cell.reach[:nodes].any())
            has = int(np.maximum(left[:nodes], 0).sum()) + max(0, shared - int(np.maximum(-left, 0).sum()))
            short = max(short, sum(needs[kind] for kind in _bits(choice)) - has)
        return short

    def _needs_by_choice(self, pod_set: int) -> dict[int, int]:
        found = {choice: sum(self.needs[pod_set][kind] for kind in _bits(choice)) for choice in range(1, len(self._left))}
        return {choice: need for choice, need in found.items() if need}

    def _from_shared(self, needs: dict[int, int], counts: Indices, most: Indices) -> Indices:
        """Adds pods that need shared devices, those that need fewest first; of equal ones where there is most room."""
        budgets = [_Budget(self, cells) for cells in range(1, 2 ** len(self.shared))]
        overdrawn = np.flatnonzero((self._left < 0).any(axis=0)).tolist()  # by what is promised; the others take of their own so far
        for budget in budgets:
            budget.left -= sum(budget.need_at(at, needs, int(counts[at])) for at in overdrawn)
        everything = budgets[-1]
        if everything.left <= 0:
            return counts

        def price(at: int) -> int:
            count = int(counts[at])
            return everything.need_at(at, needs, count + 1) - everything.need_at(at, needs, count)

        waiting = [(price(at), -int(most[at]), at) for at in np.flatnonzero(counts < most).tolist()]
        heapify(waiting)
        while waiting and everything.left >= waiting[0][0]:
            _, room, at = heappop(waiting)
            count = int(counts[at])
            steps = [budget.need_at(at, needs, count + 1) - budget.need_at(at, needs, count) for budget in budgets]
            if any(step > budget.left for step, budget in zip(steps, budgets, strict=True)):
                continue
            for step, budget in zip(steps, budgets, strict=True):
                budget.left -= step
            counts[at] += 1
            if counts[at] < most[at]:
                heappush(waiting, (price(at), room, at))
        return counts


class _Budget:
    """Some of the shared cells (a bit each): what nodes take that can have it from nowhere else must be within what these have."""

    def __init__(self, rations: Rations, cells: int) -> None:
        self._rations, self._others = rations, [cell for number, cell in enumerate(rations.shared) if not cells >> number & 1]
        self.left = sum(rations.shared[number].count for number in _bits(cells))

    def need_at(self, node: int, needs: dict[int, int], count: int) -> int:
        """What so many pods on a node take of these cells at the least."""
        worst = 0
        for choice in range(1, len(self._rations._left)):
            if not any(cell.kinds & choice and cell.reach[node] for cell in self._others):
                worst = max(worst, count * needs.get(choice, 0) - int(self._rations._left[choice, node]))
        return worst


def _bits(number: int) -> list[int]:
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]
