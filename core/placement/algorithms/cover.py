"""Covering: of parts that each hold more at a higher cost, finds the cheapest ones that together hold a wanted number.

A part's *offer* is a step function: the sizes it can hold, ascending, and the least cost of each; it may also be left
out, at no cost. Costs are integers in which a count at a higher level outweighs everything below it, so that the least
sum is the least in lexicographic order.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from core.placement.topology.tree import Flags, Indices

NEVER = 2**61  # the cost of what cannot be
_CALL = 1500  # steps that a pass over an array costs however short it is


class OutOfSteps(Exception):
    """The work limit is reached."""


class Steps:
    """A work limit, in cells touched."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit

    def spend(self, cells: int, calls: int = 1) -> None:
        """Subtracts work that is about to be done: cells touched, and calls at a fixed price. Raises OutOfSteps where that is more than is
        left, and subtracts nothing then."""
        self.expect(cells, calls)
        self.left -= cells + calls * _CALL

    def expect(self, cells: int, calls: int = 1) -> None:
        """Raises OutOfSteps where work that is to be done later will be too much; subtracts nothing."""
        if cells + calls * _CALL > self.left:
            raise OutOfSteps

    @property
    def spent(self) -> int:
        """The cells that the work has cost so far."""
        return self.limit - self.left


class SizeCosts(NamedTuple):
    """Sizes, ascending, and the least cost of each."""

    sizes: Indices
    costs: Indices


def read_offer(costs: Indices, most: int) -> SizeCosts:
    """Returns the offer behind `costs`, the least costs of holding 0, 1, 2, ... units, up to a size of `most`. A size is left out where the
    next larger one costs no more, or where it cannot be held (`NEVER`)."""
    costs = costs[: most + 1]
    rises = np.ones(len(costs) - 1, dtype=bool)
    np.less(costs[1:-1], costs[2:], out=rises[:-1])
    sizes = rises.nonzero()[0] + 1
    costs = costs[sizes]
    return SizeCosts(sizes, costs) if costs[-1] < NEVER else SizeCosts(sizes[costs < NEVER], costs[costs < NEVER])


def cover(offers: Sequence[SizeCosts], wanted: int, steps: Steps) -> list[Indices]:
    """Returns, after the first 0, 1, 2, ... offers, the least cost of holding at least 0, 1, ..., `wanted` units. Raises OutOfSteps where
    that is more work than is left."""
    first = np.full(wanted + 1, NEVER, dtype=np.int64)
    first[0] = 0
    tables = [first]
    for sizes, costs in offers:
        steps.spend(len(sizes) * (wanted + 1), 4)
        tables.append(_add(tables[-1], np.minimum(sizes, wanted), costs, wanted))
    return tables


def _add(before: Indices, sizes: Indices, costs: Indices, wanted: int) -> Indices:
    now = before.copy()
    if len(sizes) <= 2:
        for size, cost in zip(sizes.tolist(), costs.tolist(), strict=True):
            np.minimum(now[1 : size + 1], cost, out=now[1 : size + 1])
            np.minimum(now[size:], before[: wanted + 1 - size] + cost, out=now[size:])
        return now
    most = int(sizes.max())
    padded = np.zeros(most + wanted + 1, dtype=np.int64)  # to hold less than nothing costs nothing
    padded[most:] = before
    windows: Indices = np.ndarray((most + 1, wanted + 1), np.int64, padded, 0, padded.strides * 2)
    shifted = windows[most - sizes]
    shifted += costs[:, None]
    np.minimum(now, np.minimum.reduce(shifted), out=now)
    now[0] = 0
    return now


def trace(offers: Sequence[SizeCosts], tables: Sequence[Indices], wanted: int) -> list[tuple[int, int]]:
    """Returns the offers taken, by position, and the size of each; `tables` are those of `cover`.

    Of equal covers it is the one that leaves out the last in order.
    """
    taken = []
    for place in range(len(offers) - 1, -1, -1):
        cost = tables[place + 1][wanted]
        if cost == tables[place][wanted]:
            continue
        sizes, costs = offers[place]
        before = np.maximum(wanted - sizes, 0)
        chosen = int(np.argmax(tables[place][before] + costs == cost))
        taken.append((place, min(int(sizes[chosen]), wanted)))
        wanted = int(before[chosen])
    return taken[::-1]


def compute_fewest(caps: Indices, wanted: int) -> int:
    """Returns the number of the largest of some capacities that hold `wanted`; all together must hold it."""
    return int((-np.sort(-caps)).cumsum().searchsorted(wanted)) + 1


def cover_with_fewest(caps: Indices, pods: Indices, wanted: int, steps: Steps) -> Indices:
    """Returns the positions, ascending, of as few domains as hold `wanted`, and of those the ones with the fewest pods.

    The largest are the fewest. Another choice of as many exchanges some of them, and what it loses by that is at most what the largest hold
    beyond what is wanted. So of each size only so many can be in doubt. Raises OutOfSteps where that is more work than is left.
    """
    order = np.lexsort((pods, -caps))
    held = caps[order]
    sums = held.cumsum()
    count = int(sums.searchsorted(wanted)) + 1
    slack = int(sums[count - 1]) - wanted
    if not slack:
        return np.sort(order[:count])
    taken, doubtful = _sort_out(held, count, slack)
    rest = wanted - int(held[taken].sum())
    open_, weight = np.flatnonzero(doubtful), int(pods.sum()) + 1
    steps.spend(len(open_) * (rest + 1), 2 * len(open_))
    offers = [SizeCosts(held[i : i + 1], weight + pods[order[i : i + 1]]) for i in open_.tolist()]
    chosen = [int(open_[place]) for place, _ in trace(offers, cover(offers, rest, Steps(NEVER)), rest)]
    return np.sort(order[np.append(np.flatnonzero(taken), np.array(chosen, dtype=np.int64))])


def _sort_out(held: Indices, count: int, slack: int) -> tuple[Flags, Flags]:
    """Of capacities in descending order: those in every choice of `count` that loses at most `slack`, and those in some."""
    pivot = int(held[count - 1])
    firsts = np.flatnonzero(np.append(True, held[1:] != held[:-1]))
    sizes = np.diff(np.append(firsts, len(held)))
    place = np.arange(len(held)) - firsts.repeat(sizes)  # within its own size
    size, apart = sizes.repeat(sizes), np.abs(held - pivot)
    exchanges = slack // np.maximum(apart, 1)
    short = count - int((held > pivot).sum())
    sure = np.where(held > pivot, size - exchanges, np.where(held == pivot, short - slack, 0))
    possible = np.where(held > pivot, size, np.where(held == pivot, short + slack, exchanges))
    taken = place < sure
    return taken, ~taken & (place < possible)
