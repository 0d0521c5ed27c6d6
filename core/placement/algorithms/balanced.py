"""BalancedPlacement: as few domains as possible, and on each of them about as much (KEP-2724, Balanced placement).

L is the level preferred, the lower level the one that units are balanced on. What the KEP leaves open:

- All is counted in slices. The lower level is L + 1, or L itself if that is the lowest; where slices are kept
  together on L and there are levels below, there is nothing to balance.
- At the top of the topology all domains of L are one choice, as if a level above held them.
- The leader goes to the domain that holds most beside it (ties: fewer pods, then level values); T counts what that
  domain holds beside it, and a domain that holds less than T beside the leader may not have it.
- Where after pruning the leader, again where most is beside it on L, leaves too little for all, T is lowered until it does not.
- Of equal T and equally few domains on L, the first domain of L - 1 by level values is taken.
- The capacity that a subset minimises is counted in pods, less what the leader takes where it is in the subset. Pods that make
  no whole slice count, too, so that the subset of least capacity may hold too few slices, or all but its last domain may
  hold as many pods as are wanted: Kueue builds no such subset, and the standard algorithm takes over.
- Of equal subsets the one with the earliest last domain is taken, if possible with the leader elsewhere; then the same
  applies to the last but one, and so on: on L in descending order of units beside the leader, then of entropy, then by level
  values; on the lower level by level values.
- What remains after T on each is given to the domain of the leader first, then by units, descending.
- The standard algorithm takes over where T would be 0, and where the subset chosen needs more domains than can have T
  each or is too small once its leader is placed.
- Below the lower level each domain hands its own share down, as BestFit does.
- Preferred affinity, where it counts and there is no leader, comes before room: in the greedy count of domains, which a preferred
  domain that holds nothing ends, and in the order in which what remains after T is given. T is not lowered then.

The search for a subset is exact and bounded. The largest domains are what holds the request in the fewest; another
subset exchanges some of them and falls short of their sum by a deficit smaller than one domain. What deficits can be
reached by how many exchanges is one integer, a bit for each, and a domain more to choose from is a shift of it.
"""

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.placement.algorithms.domain_capacity import Fits
from core.placement.algorithms.levels import assign_below, assign_children
from core.placement.algorithms.podset_groups import GroupChosen, GroupFits, assign_group_below
from core.placement.algorithms.podset_groups import assign_children_with_leader as hand_down_group
from core.placement.algorithms.profile import BEST_FIT
from core.placement.algorithms.slices import Shape
from core.placement.topology.tree import Flags, Indices, TopologyTree

_MOST_SUMS = 200_000  # sums of capacities that are tried one by one
Floats = npt.NDArray[np.floating]


class _Room(NamedTuple):
    """What domains of one level hold, alone and beside the leader, in units and in pods; without a leader these are the same."""

    units: Indices
    beside: Indices
    pods: Indices
    pods_beside: Indices
    takes_leader: Flags | None
    scores: Indices | None = None  # of preferred affinity, where these count and there is no leader

    def select(self, chosen: Indices | slice) -> "_Room":
        takes = None if self.takes_leader is None else self.takes_leader[chosen]
        units = self.units[chosen]
        if takes is None:
            pods = units if self.pods is self.units else self.pods[chosen]
            return _Room(units, units, pods, pods, None, None if self.scores is None else self.scores[chosen])
        return _Room(units, self.beside[chosen], self.pods[chosen], self.pods_beside[chosen], takes)

    def order(self, tie: Indices | Floats) -> Indices:
        """Positions: able to take the leader first, then by units beside it, descending."""
        return np.lexsort((tie, -self.beside) if self.takes_leader is None else (tie, -self.beside, ~self.takes_leader))


class _Balance(NamedTuple):
    """Domains of one level and units on each; `leader` is the one that has the leader, too (-1: there is none)."""

    domains: Indices
    units: Indices
    leader: int


def place_balanced(tree: TopologyTree, fits: Fits, shape: Shape, wanted: int) -> tuple[int, Indices, Indices] | None:
    """Returns the level, domains of the lowest level in the order of level values, and pods on each, for `wanted` units. The level is the
    one asked for where a domain of it has all, else the one above. None where no balanced choice is found, and the standard algorithm takes
    over."""
    lower = _lower_level(shape)
    units, pods = fits.units[lower], fits.pods[lower]
    room = _Room(units, units, pods, pods, None, None if fits.scores is None else fits.scores[lower])
    balance = _balance(tree, room, shape, wanted)
    if balance is None:
        return None
    chosen = assign_children_with_leader(tree, fits, None, shape, balance)
    return _find_common_level(tree, shape, balance.domains), *assign_below(tree, fits, shape, BEST_FIT, shape.slice_level, chosen[:2])


def place_group_balanced(tree: TopologyTree, fits: GroupFits, shape: Shape, wanted: int) -> tuple[int, Indices, Indices, int] | None:
    """Returns the level, domains of the lowest level in the order of level values, pods of the workers on each, and the lowest domain that
    has their leader. `wanted` units of workers are placed, and the level is as in `place_balanced`. None where the standard algorithm takes
    over."""
    lower, alone, beside = _lower_level(shape), fits.alone, fits.beside
    room = _Room(alone.units[lower], beside.units[lower], alone.pods[lower], beside.pods[lower], fits.takes_leader[lower])
    balance = _balance(tree, room, shape, wanted)
    if balance is None:
        return None
    chosen = GroupChosen(*assign_children_with_leader(tree, alone, fits, shape, balance))
    return _find_common_level(tree, shape, balance.domains), *assign_group_below(tree, fits, shape, BEST_FIT, shape.slice_level, chosen)


def _lower_level(shape: Shape) -> int:
    return min(shape.start + 1, shape.slice_level)


def _find_common_level(tree: TopologyTree, shape: Shape, domains: Indices) -> int:
    """L if one domain of it has everything, else the level above."""
    upper = domains if _lower_level(shape) == shape.start else tree.levels[_lower_level(shape)].parents[domains]
    return shape.start if (upper == upper[0]).all() else max(shape.start - 1, 0)


def assign_children_with_leader(tree: TopologyTree, fits: Fits, group: GroupFits | None, shape: Shape, balance: _Balance) -> _Balance:
    """Returns a new balance with each domain's units given to its own children, down to the level of the slices; `leader` is the child that
    has the leader (-1: none). `group` is None without a leader. The same object is returned where the domains are at that level already."""
    for level in range(_lower_level(shape) + 1, shape.slice_level + 1):
        parts, home = [], -1
        for domain, units in zip(balance.domains.tolist(), balance.units.tolist(), strict=True):
            children = tree.list_children(level - 1, domain)
            if group is not None and domain == balance.leader:
                part = hand_down_group(group, shape, BEST_FIT, level, children, units)
                parts.append((part.domains, part.units))
                home = part.leader
            else:
                parts.append(assign_children(fits, shape, BEST_FIT, level, children, units))
        balance = _Balance(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), home)
    return balance


def _balance(tree: TopologyTree, room: _Room, shape: Shape, wanted: int) -> _Balance | None:
    """The seven steps; `room` is of the lower level. Bounds are where each domain's children begin, and where the last's end."""
    level, lower = shape.start, _lower_level(shape)
    if lower == level < tree.lowest:
        return None
    choices = tree.levels[level - 1].first_child if level else np.array([0, tree.levels[level].count])
    children = tree.levels[level].first_child if lower > level else np.arange(len(room.units) + 1)
    found = _find_best_choice(room, children, choices, wanted)
    if found is None:
        return None
    threshold, choice, pruned = found
    bounds = children[choices[choice] : choices[choice + 1] + 1]
    pruned = pruned.select(slice(bounds[0], bounds[-1]))
    candidates = np.arange(len(pruned.units))
    if lower > level:
        chosen = np.zeros(len(bounds) - 1, dtype=bool)
        chosen[_choose_upper(pruned, bounds - bounds[0], wanted, shape.slice_size)] = True
        candidates = np.flatnonzero(np.repeat(chosen, np.diff(bounds)))
    balance = _choose_lower(pruned, candidates, threshold, wanted, shape.slice_size)
    return balance and _Balance(balance.domains + bounds[0], balance.units, balance.leader + int(bounds[0]))


def _find_best_choice(room: _Room, children: Indices, choices: Indices, wanted: int) -> tuple[int, int, _Room] | None:
    """Steps 1 to 4: T, which domain of L - 1, and what T leaves of `room`."""
    needed, least = _compute_fewest(room, children[choices], wanted)
    thresholds = np.where(needed > 0, np.minimum(wanted // np.maximum(needed, 1), least), 0)
    while (threshold := int(thresholds.max())) > 0:
        best = np.flatnonzero(thresholds == threshold)
        pruned = _prune(room, threshold)
        needed = _compute_fewest(_sum_up(pruned, children), choices, wanted)[0][best]
        if needed.any():
            return threshold, int(best[np.argmin(np.where(needed > 0, needed, np.iinfo(np.int64).max))]), pruned
        # Up to the next smaller capacity pruning would stay the same. A preferred domain that is pruned keeps the rest
        # pruned.
        smaller = max(int(held[held < threshold].max(initial=0)) for held in (room.units, room.beside))
        thresholds[best] = smaller if room.scores is None else 0
    return None


def _compute_fewest(room: _Room, bounds: Indices, wanted: int) -> tuple[Indices, Indices]:
    """Per range of domains: how few hold the request (0: it does not fit), and the least that one of these holds."""
    if room.scores is not None:
        return _find_fewest_by_score(room, room.scores, bounds, wanted)
    starts, group = bounds[:-1], np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    units, held, able = room.units, np.full(len(starts), np.iinfo(np.int64).max), np.ones(len(starts), dtype=bool)
    rest, led = np.full(len(starts), wanted), 0
    if room.takes_leader is not None:
        pods = int(room.pods_beside.max()) + 1
        rank = np.where(room.takes_leader, room.beside * pods + pods - room.pods_beside, 0)
        able = np.maximum.reduceat(rank, starts) > 0
        tied = np.flatnonzero(rank == np.maximum.reduceat(rank, starts)[group])
        leader = tied[np.searchsorted(group[tied], np.arange(len(starts)))]
        units, held = units.copy(), room.beside[leader]
        rest, led, units[leader] = np.maximum(wanted - held, 0), 1, 0
    # One sort of numbers sorts every range on its own, largest first; of short numbers where they do, and in place,
    # since arrays of this size cost more than sorting them.
    apart = int(units.max()) + 1
    width: type[np.signedinteger[Any]] = np.int32 if apart * len(bounds) < 2**31 else np.int64
    above = (group + 1).astype(width) * apart
    falling = above - units.astype(width)
    falling.sort()
    np.subtract(above, falling, out=falling)
    sums = np.cumsum(falling, dtype=np.int64)
    before = sums[starts] - falling[starts]
    last = np.searchsorted(sums, before + rest)
    fits = able & (sums[bounds[1:] - 1] - before >= rest)
    least = np.where(rest > 0, falling[np.minimum(last, len(units) - 1)], held)
    return np.where(fits, np.where(rest > 0, last - starts + 1, 0) + led, 0), np.minimum(held, least)


def _find_fewest_by_score(room: _Room, scores: Indices, bounds: Indices, wanted: int) -> tuple[Indices, Indices]:
    """The same where preferred affinity comes before room: one that is preferred and holds nothing ends the range."""
    starts, sizes = bounds[:-1], np.diff(bounds)
    order = np.lexsort((room.pods, -room.units, -scores, np.arange(len(starts)).repeat(sizes)))
    units = room.units[order]
    none = np.cumsum(units == 0)
    units = np.where(none > (none[starts] - (units[starts] == 0)).repeat(sizes), 0, units)
    sums = np.cumsum(units)
    sums -= (sums[starts] - units[starts]).repeat(sizes)
    before = np.add.reduceat((sums < wanted).astype(np.int64), starts)
    fits = before < sizes
    last = starts + np.minimum(before, sizes - 1)
    return np.where(fits, before + 1, 0), units[last]


def _prune(room: _Room, threshold: int) -> _Room:
    """Step 4: domains that hold less than T are empty, and none has the leader that holds less beside it."""
    keeps = room.units >= threshold  # times a flag is several times as fast as a choice between two
    units = room.units * keeps
    pods = units if room.pods is room.units else room.pods * keeps
    if room.takes_leader is None:
        return _Room(units, units, pods, pods, None, room.scores)
    takes = room.takes_leader & (room.beside >= threshold)
    return _Room(units, room.beside * takes, pods, room.pods_beside * takes, takes)


def _sum_up(room: _Room, bounds: Indices) -> _Room:
    """What the parents hold; the leader costs them what it costs the child that loses least."""
    starts = bounds[:-1]
    units = np.add.reduceat(room.units, starts)
    pods = units if room.pods is room.units else np.add.reduceat(room.pods, starts)
    if room.takes_leader is None:
        return _Room(units, units, pods, pods, None, None if room.scores is None else np.add.reduceat(room.scores, starts))
    takes, never = np.logical_or.reduceat(room.takes_leader, starts), np.iinfo(np.int64).max
    lost = np.minimum.reduceat(np.where(room.takes_leader, room.units - room.beside, never), starts)
    pods_lost = np.minimum.reduceat(np.where(room.takes_leader, room.pods - room.pods_beside, never), starts)
    return _Room(units, np.where(takes, units - lost, 0), pods, np.where(takes, pods - pods_lost, 0), takes)


def _choose_upper(pruned: _Room, bounds: Indices, wanted: int, slice_size: int) -> Indices:
    """Step 5: a subset of the domains of L."""
    here = _sum_up(pruned, bounds)
    shares = pruned.pods / np.repeat(np.maximum(here.pods, 1), np.diff(bounds))
    entropy: Floats = -np.add.reduceat(shares * np.log2(np.where(shares > 0, shares, 1.0)), bounds[:-1])
    order = here.order(-np.round(entropy, 9))  # equal entropies differ by no more than the order of their sum
    return order[_find_smallest_subset(here.select(order), wanted, slice_size)]


def _choose_lower(pruned: _Room, domains: Indices, threshold: int, wanted: int, slice_size: int) -> _Balance | None:
    """Steps 6 and 7: a subset of the lower domains, T units on each, and then the rest."""
    domains = domains[_find_smallest_subset(pruned.select(domains), wanted, slice_size)]
    rest = wanted - threshold * len(domains)
    if not len(domains) or rest < 0:
        return None
    if pruned.scores is not None:
        domains = domains[np.lexsort((pruned.pods[domains], -pruned.units[domains], -pruned.scores[domains]))]
    else:
        domains = domains[pruned.select(domains).order(pruned.pods_beside[domains])]
    # The first domain is one that can hold the leader with all units still fitting: of two with equal capacity beside the leader one
    # may lose more by it.
    if pruned.takes_leader is not None:
        held = pruned.units[domains].sum() - (pruned.units[domains] - pruned.beside[domains])
        first = int(np.argmax(pruned.takes_leader[domains] & (held >= wanted)))
        domains = np.concatenate([domains[first : first + 1], np.delete(domains, first)])
    beyond = pruned.units[domains] - threshold
    beyond[0] = pruned.beside[domains[0]] - threshold
    more = np.clip(rest - (np.cumsum(beyond) - beyond), 0, beyond)
    return _Balance(domains, threshold + more, int(domains[0]))


def _find_smallest_subset(room: _Room, wanted: int, slice_size: int) -> Indices:
    """Positions of as few domains as hold the request, and of least total capacity in pods; none if all do not hold it, or that subset
    would not be built."""
    size = int(_compute_fewest(room, np.array([0, len(room.units)]), wanted)[0][0]) if len(room.units) else 0
    kept = np.flatnonzero(room.units > 0)
    room = room.select(kept)
    loss = None if room.takes_leader is None else np.where(room.takes_leader, room.pods - room.pods_beside, -1)
    chosen = find_subset(room.pods, size, wanted * slice_size, loss) if size else kept[:0]
    if not len(chosen) or _sum_up(room.select(chosen), np.array([0, size])).beside[0] < wanted:
        return kept[:0]
    if loss is None and int(room.pods[chosen[:-1]].sum()) >= wanted * slice_size:
        chosen = _find_subset_in_order(room.pods, size, wanted * slice_size) if room.scores is not None else kept[:0]
    return kept[chosen]


def _find_subset_in_order(capacities: Indices, size: int, wanted: int) -> Indices:
    """Returns positions of `size` capacities of which all but the last are too small and all together have the least
    sum that is enough.

    None where there is no such subset, or too many would have to be tried.
    """
    if len(capacities) * size * wanted > _MOST_SUMS:
        return np.zeros(0, dtype=np.int64)
    reached: list[dict[int, tuple[int, ...]]] = [{wanted: ()}, *({} for _ in range(size))]  # by how many, and what is left
    for place, capacity in enumerate(capacities.tolist()):
        for count in range(size, 0, -1):
            for left, chosen in reached[count - 1].items():
                if left > 0:
                    reached[count].setdefault(left - capacity, (*chosen, place))
    enough = [left for left in reached[size] if left <= 0]
    return np.array(reached[size][max(enough)] if enough else (), dtype=np.int64)


_Sets = tuple[int, int]  # without and with the leader: rows of bits, a row per deficit, a bit per exchange
_Move = tuple[int, int, int]  # by how much a domain shifts them: left out, taken, taken with the leader


def find_subset(capacities: Indices, size: int, wanted: int, loss: Indices | None = None) -> Indices:
    """Returns positions of `size` capacities with the least sum that reaches `wanted`; none if no such sum does. The
    module describes how ties are resolved.

    With `loss`, one of the chosen capacities loses that much (-1: it cannot be that one).
    """
    pivot = int(np.partition(capacities, len(capacities) - size)[len(capacities) - size])
    big, equal = capacities > pivot, capacities == pivot
    short = size - int(big.sum())
    slack = int(capacities[big].sum()) + pivot * short - wanted
    if slack < 0:
        return np.zeros(0, dtype=np.int64)
    if not slack and loss is None:
        return np.flatnonzero(big | equal & (np.cumsum(equal) <= short))
    # All larger ones but `out` are taken and `into` of the others: no more can be afforded. The lowest bit of
    # a row stays empty, which stops what would leave a row on either side.
    cost = np.abs(capacities - pivot)
    out = int(np.searchsorted(np.cumsum(np.sort(cost[big])), slack, side="right"))
    into = min(int(np.searchsorted(np.cumsum(np.sort(cost[~big])), slack, side="right")), short + out)
    width = out + into + 2
    rows = ((1 << width * (slack + 1)) - 1) // ((1 << width) - 1)
    mask = rows * ((1 << width) - 2)
    moves = _list_moves(cost, big, loss, width, slack)
    # Of the sets before each move only some are kept, the others made again on the way back.
    step = isqrt(len(moves)) + 1
    blocks = [moves[first : first + step] for first in range(0, len(moves), step)]
    kept = [(1 << into + 1, 0)]
    for block in blocks:
        *_, reached = _list_prefixes(kept[-1], block, mask)
        kept.append(reached)
    led = int(loss is not None)
    bit = (kept[-1][led] & rows << into + 1 - short).bit_length() - 1
    kinds: list[int] = []  # of the moves, last first
    for block, sets in zip(reversed(blocks), reversed(kept[:-1]), strict=True):
        for move, before in reversed(list(zip(block, _list_prefixes(sets, block, mask), strict=False))) if bit >= 0 else ():
            came_from = (before[led], before[led], before[0] * led)
            kinds.append(next(kind for kind in range(3) if bit >= move[kind] and came_from[kind] >> bit - move[kind] & 1))
            bit, led = bit - move[kinds[-1]], led if kinds[-1] < 2 else 0
    return np.flatnonzero(kinds[::-1])


def _list_moves(cost: Indices, big: Flags, loss: Indices | None, width: int, slack: int) -> list[_Move]:
    left_out = np.where(big, cost * width + 1, 0)
    taken = np.where(big, 0, cost * width - 1)
    never = np.full(len(cost), width * (slack + 1))
    leads = never if loss is None else np.where(loss < 0, never, taken + loss * width)
    return list(zip(*(np.minimum(shift, never).tolist() for shift in (left_out, taken, leads)), strict=True))


def _list_prefixes(sets: _Sets, moves: Sequence[_Move], mask: int) -> Iterator[_Sets]:
    """The sets that can be reached before each move, and after the last; a shift may be by -1."""
    yield sets
    for left_out, taken, leads in moves:
        alone, led = sets
        both = (alone << left_out + 1 | alone << taken + 1, led << left_out + 1 | led << taken + 1 | alone << leads + 1)
        sets = both[0] >> 1 & mask, both[1] >> 1 & mask
        yield sets
