"""BalancedPlacement: as few domains as possible, and on each of them about as much (KEP-2724, Balanced placement).

L is the level preferred, the lower level the one below it that pods are balanced on. What the KEP leaves open:

- At the top of the topology all domains of L are one choice, as if a level above held them.
- Everything is counted in slices; where slices are kept together on the lowest level, or on L itself because L
  is the lowest, that is the lower level; where they are kept on L above other levels there is nothing to balance.
- The leader goes first, to the domain that holds most beside it (ties: fewer pods, then level values); T counts
  what its domain holds beside it, and a domain that holds less than T beside the leader may not have it.
- Where pruning leaves the leader no place with all its workers, T is lowered until it has one.
- Of equal T and equally few domains on L, the first domain on L-1 by level values is taken.
- The capacity that a subset minimises is counted in pods, less what the leader takes where that is in the subset.
- Of equal subsets that one is taken whose last domain comes first, then whose last but one does, and so on: on L
  in descending order of slices beside the leader, then of entropy, then by level values; on the lower level by level values.
- What remains after T on each is given to the domain of the leader first, then by slices, descending.
- The standard algorithm takes over where T would be 0, or where the subset chosen needs more domains than T allows.
- Below the lower level each domain hands down its own share, as BestFit does.

The search for a subset is exact and bounded. The largest domains are what hold the request in the fewest domains;
a subset is how it differs from them, so that its deficit is less than one domain holds, and sets of deficits are
the bits of one integer per number of domains exchanged.
"""

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np

from core.placement.capacity import Fits
from core.placement.groups import GroupChosen, GroupFits, descend_group
from core.placement.groups import _hand_down as hand_down_group
from core.placement.levels import descend, hand_down
from core.placement.profile import BEST_FIT
from core.placement.slices import Shape
from core.placement.tree import Flags, Indices, TopologyTree


class _Room(NamedTuple):
    """What some domains of a level hold, alone and beside the leader, in slices (`units`, `beside`) and in pods."""

    units: Indices
    beside: Indices
    pods: Indices
    pods_beside: Indices
    takes_leader: Flags

    def some(self, chosen: Indices) -> "_Room":
        return _Room(*(column[chosen] for column in self))


class _Balance(NamedTuple):
    """Domains of the lower level and units on each; `leader` is the one that has the leader, too."""

    domains: Indices
    units: Indices
    leader: int


def place_balanced(tree: TopologyTree, fits: Fits, shape: Shape, wanted: int) -> tuple[int, Indices, Indices] | None:
    """Level, domains of the lowest level and pods on each; None where the standard algorithm is to be used."""
    # A leader that takes nothing has a place everywhere and changes no answer.
    group = GroupFits(fits, fits, tuple(np.ones(len(units), dtype=bool) for units in fits.units))
    balance = _balance(tree, group, shape, wanted)
    if balance is None:
        return None
    chosen = _hand_down_to_slices(tree, group, shape, balance._replace(leader=-1))
    return _common_level(tree, shape, balance.domains), *descend(tree, fits, shape, BEST_FIT, shape.slice_level, chosen[:2])


def place_group_balanced(tree: TopologyTree, fits: GroupFits, shape: Shape, wanted: int) -> tuple[int, Indices, Indices, int] | None:
    """As `place_balanced` for workers; also the lowest domain that has their leader."""
    balance = _balance(tree, fits, shape, wanted)
    if balance is None:
        return None
    chosen = GroupChosen(*_hand_down_to_slices(tree, fits, shape, balance))
    return _common_level(tree, shape, balance.domains), *descend_group(tree, fits, shape, BEST_FIT, shape.slice_level, chosen)


def _hand_down_to_slices(tree: TopologyTree, fits: GroupFits, shape: Shape, balance: _Balance) -> _Balance:
    """Each domain's units to its own children, down to the level of the slices."""
    for level in range(_lower_level(shape) + 1, shape.slice_level + 1):
        parts, home = [], balance.leader
        for domain, units in zip(balance.domains, balance.units, strict=True):
            children = tree.children(level - 1, int(domain))
            if domain == balance.leader:
                below = hand_down_group(fits, shape, BEST_FIT, level, children, int(units))
                parts.append((below.domains, below.units))
                home = below.leader
            else:
                parts.append(hand_down(fits.alone, shape, BEST_FIT, level, children, int(units)))
        balance = _Balance(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), home)
    return balance


def _lower_level(shape: Shape) -> int:
    return min(shape.start + 1, shape.slice_level)


def _common_level(tree: TopologyTree, shape: Shape, domains: Indices) -> int:
    """L if one domain of it has everything, else the level above."""
    upper = tree.levels[_lower_level(shape)].parents[domains] if _lower_level(shape) > shape.start else domains
    return shape.start if (upper == upper[0]).all() else max(shape.start - 1, 0)


def _balance(tree: TopologyTree, fits: GroupFits, shape: Shape, wanted: int) -> _Balance | None:
    """The seven steps."""
    level, lower = shape.start, _lower_level(shape)
    if lower == level < tree.lowest:
        return None
    choices = tree.levels[level - 1].first_child if level else np.array([0, tree.levels[level].count])
    children = tree.levels[level].first_child
    of_lower = children[choices] if lower > level else choices
    alone, beside = fits.alone, fits.beside
    room = _Room(alone.units[lower], beside.units[lower], alone.pods[lower], beside.pods[lower], fits.takes_leader[lower])
    needed, smallest = _fewest(room, of_lower, wanted)
    thresholds = np.where(needed > 0, np.minimum(wanted // np.maximum(needed, 1), smallest), 0)
    while (threshold := int(thresholds.max())) > 0:
        best = np.flatnonzero(thresholds == threshold)
        pruned = _prune(room, threshold)
        upper = _sum_up(pruned, children) if lower > level else pruned
        needed, _ = _fewest(upper, choices, wanted)
        best, failing = best[needed[best] > 0], best[needed[best] == 0]
        if len(best):
            first = best[np.argmin(needed[best])]
            candidates = np.arange(choices[first], choices[first + 1])
            if lower > level:
                chosen = _choose_upper(pruned, upper, children, candidates, wanted, shape)
                candidates = np.concatenate([np.arange(children[domain], children[domain + 1]) for domain in np.sort(chosen)])
            return _choose_lower(pruned, candidates, threshold, wanted, shape)
        thresholds[failing] -= 1
    return None


def _fewest(room: _Room, bounds: Indices, wanted: int) -> tuple[Indices, Indices]:
    """Per range of domains: how few hold the request with its leader (0: it does not fit), and the least that one of these holds."""
    starts, numbers = bounds[:-1], np.arange(len(bounds) - 1)
    group = np.repeat(numbers, np.diff(bounds))
    most = int(room.pods_beside.max()) + 1
    rank = np.where(room.takes_leader, room.beside * most - room.pods_beside + most, 0)
    highest = np.maximum.reduceat(rank, starts)
    tied = np.flatnonzero(rank == highest[group])
    leader = tied[np.searchsorted(group[tied], numbers)]
    units = room.units.copy()
    units[leader] = 0
    # One sort of numbers sorts every range on its own, largest first.
    largest = int(units.max())
    units = largest - (np.sort(group * (largest + 1) + largest - units) - group * (largest + 1))
    sums = np.cumsum(units)
    before = sums[starts] - units[starts]
    held = room.beside[leader]
    rest = np.maximum(wanted - held, 0)
    last = np.searchsorted(sums, before + rest)
    fits = (highest > 0) & (sums[bounds[1:] - 1] - before >= rest)
    more = np.where(rest > 0, last - starts + 1, 0)
    least = np.where(rest > 0, units[np.minimum(last, len(units) - 1)], held)
    return np.where(fits, more + 1, 0), np.minimum(held, least)


def _prune(room: _Room, threshold: int) -> _Room:
    """Domains that hold less than T are empty, and none has the leader that holds less beside it."""
    keeps = room.units >= threshold
    takes = room.takes_leader & (room.beside >= threshold)
    beside, pods_beside = np.where(takes, room.beside, 0), np.where(takes, room.pods_beside, 0)
    return _Room(np.where(keeps, room.units, 0), beside, np.where(keeps, room.pods, 0), pods_beside, takes)


def _sum_up(room: _Room, children: Indices) -> _Room:
    """What the parents hold; the leader costs them what it costs the child that loses least."""
    starts = children[:-1]
    units, pods = np.add.reduceat(room.units, starts), np.add.reduceat(room.pods, starts)
    takes = np.logical_or.reduceat(room.takes_leader, starts)
    never = np.iinfo(np.int64).max
    loss = np.minimum.reduceat(np.where(room.takes_leader, room.units - room.beside, never), starts)
    pods_lost = np.minimum.reduceat(np.where(room.takes_leader, room.pods - room.pods_beside, never), starts)
    return _Room(units, np.where(takes, units - loss, 0), pods, np.where(takes, pods - pods_lost, 0), takes)


def _choose_upper(pruned: _Room, upper: _Room, children: Indices, domains: Indices, wanted: int, shape: Shape) -> Indices:
    """Step 5: a subset of the domains of L."""
    here = upper.some(domains)
    entropy = np.array([_entropy(pruned.pods[children[domain] : children[domain + 1]]) for domain in domains])
    order = np.lexsort((-entropy, -here.beside, ~here.takes_leader))
    return domains[order[_smallest_subset(here.some(order), wanted, shape.slice_size)]]


def _entropy(capacities: Indices) -> float:
    """How evenly a capacity is spread; the same for the same capacities in any order."""
    held = np.sort(capacities[capacities > 0])
    shares = held / max(int(held.sum()), 1)
    return round(float(-(shares * np.log2(shares)).sum()), 9)


def _choose_lower(pruned: _Room, domains: Indices, threshold: int, wanted: int, shape: Shape) -> _Balance | None:
    """Steps 6 and 7: a subset of the lower domains, T units on each, and then the rest."""
    chosen = _smallest_subset(pruned.some(domains), wanted, shape.slice_size)
    domains = domains[chosen]
    rest = wanted - threshold * len(domains)
    if not len(domains) or rest < 0:
        return None
    here = pruned.some(domains)
    order = np.lexsort((here.pods_beside, -here.beside, ~here.takes_leader))
    spare = here.units[order] - threshold
    spare[0] = here.beside[order[0]] - threshold
    more = np.clip(rest - (np.cumsum(spare) - spare), 0, spare)
    if more.sum() < rest:
        return None
    return _Balance(domains[order], threshold + more, int(domains[order[0]]))


def _smallest_subset(room: _Room, wanted: int, slice_size: int) -> Indices:
    """Positions of as few domains as hold the request with its leader, of least total capacity; none if none does."""
    if not len(room.units):
        return np.zeros(0, dtype=np.int64)
    size = int(_fewest(room, np.array([0, len(room.units)]), wanted)[0][0])
    costs_nothing = bool(room.takes_leader.all() and (room.pods == room.pods_beside).all())
    loss = None if costs_nothing else np.where(room.takes_leader, room.pods - room.pods_beside, -1)
    kept = np.flatnonzero(room.units > 0)
    if not size or size > len(kept):
        return np.zeros(0, dtype=np.int64)
    return kept[find_subset(room.pods[kept], size, wanted * slice_size, None if loss is None else loss[kept])]


_Sets = tuple[int, int]  # without and with the leader: a bit per deficit and number of domains exchanged
_Shifts = tuple[int, int, int]  # of a domain that is not taken, is taken, is taken with the leader (-1: cannot be)


def find_subset(capacities: Indices, size: int, wanted: int, loss: Indices | None = None) -> Indices:
    """Positions of `size` capacities whose sum is the least that reaches `wanted`, ties as the module says; none if none does.

    With `loss`, one of those chosen loses that much of its capacity (-1: it is none of which one can be that one).
    """
    pivot = int(np.partition(capacities, len(capacities) - size)[len(capacities) - size])
    big = capacities > pivot
    slack = int(capacities[big].sum()) + pivot * (size - int(big.sum())) - wanted
    if slack < 0:
        return np.zeros(0, dtype=np.int64)
    cost = np.abs(capacities - pivot)
    out = int(np.searchsorted(np.cumsum(np.sort(cost[big])), slack, side="right"))
    short = size - int(big.sum())
    into = min(int(np.searchsorted(np.cumsum(np.sort(cost[~big])), slack, side="right")), short + out)
    # One row of bits per deficit, one bit per number of the largest left out less number of others taken.
    # The lowest bit of a row stays empty: it stops what leaves a row on either side.
    width = out + into + 2
    rows = ((1 << width * (slack + 1)) - 1) // ((1 << width) - 1)
    moves = _moves(cost, big, loss, slack, width)
    step = isqrt(len(moves)) + 1
    at = [(1 << into + 1, 0)]
    for first in range(0, len(moves), step):
        *_, reached = _prefixes(at[-1], moves[first : first + step], rows * ((1 << width) - 2))
        at.append(reached)
    with_leader = int(loss is not None)
    ends = at[-1][with_leader] & (rows << into + 1 - short)
    if not ends:
        return np.zeros(0, dtype=np.int64)
    bit, chosen = ends.bit_length() - 1, []
    for number, first in reversed(list(enumerate(range(0, len(moves), step)))):
        sets = list(_prefixes(at[number], moves[first : first + step], rows * ((1 << width) - 2)))
        for i in reversed(range(first, min(first + step, len(moves)))):
            kind, bit, with_leader = _came_by(sets[i - first], moves[i], bit, with_leader)
            if kind:
                chosen.append(i)
    return np.array(chosen[::-1], dtype=np.int64)


def _moves(cost: Indices, big: Flags, loss: Indices | None, slack: int, width: int) -> list[_Shifts]:
    """How far each domain shifts the sets; what costs more than the slack never happens."""
    never = width * (slack + 1)
    moves: list[_Shifts] = []
    for i in range(len(cost)):
        paid = int(cost[i]) * width
        left_out, taken = (paid + 1, 0) if big[i] else (0, paid - 1)
        leads = never if loss is None or loss[i] < 0 else taken + int(loss[i]) * width
        moves.append((left_out if left_out < never else never, taken if taken < never else never, min(leads, never)))
    return moves


def _prefixes(sets: _Sets, moves: Sequence[_Shifts], mask: int) -> Iterator[_Sets]:
    """The sets reachable before each move, and after the last."""
    yield sets
    limit = mask.bit_length()
    for left_out, taken, leads in moves:
        without, with_leader = sets
        if left_out >= limit and taken == 0 and leads >= limit:
            yield sets
            continue
        sets = (
            (_shift(without, left_out, limit) | _shift(without, taken, limit)) & mask,
            (_shift(with_leader, left_out, limit) | _shift(with_leader, taken, limit) | _shift(without, leads, limit)) & mask,
        )
        yield sets


def _shift(bits: int, by: int, limit: int) -> int:
    if by >= limit:
        return 0
    return bits << by if by >= 0 else bits >> -by


def _came_by(before: _Sets, move: _Shifts, bit: int, with_leader: int) -> tuple[int, int, int]:
    """Whether the domain was left out (0), if that can be, else taken; and where from."""
    for kind, (by, table) in enumerate(((move[0], with_leader), (move[1], with_leader), (move[2], 0))):
        if (kind < 2 or with_leader) and bit >= by and before[table] >> (bit - by) & 1:
            return kind, bit - by, table
    raise AssertionError("a set that was reached was reached from somewhere")
