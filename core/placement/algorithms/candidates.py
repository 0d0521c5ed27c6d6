"""What an algorithm chooses among: domains of one level, in the order of level values."""

from typing import NamedTuple

import numpy as np

from core.placement.topology.tree import Flags, Indices

Chosen = tuple[Indices, Indices]  # positions among the candidates, units on each

_FEW = 256  # a sort of so few is cheaper than selecting what is to be sorted
_SMALL = 2**15  # integers of 16 bits are sorted by their digits, thousands in a fifth of the time


class Candidates(NamedTuple):
    """Per candidate: units and pods that fit, and the score of preferred affinity where it counts."""

    units: Indices
    pods: Indices
    scores: Indices | None = None

    def select(self, chosen: Indices) -> "Candidates":
        """Returns the candidates at some positions, in that order."""
        units = self.units[chosen]
        pods = units if self.pods is self.units else self.pods[chosen]
        return Candidates(units, pods, None if self.scores is None else self.scores[chosen])

    def order(self, key: Indices) -> Indices:
        """Returns positions by score (highest first), then by `key`, then by fewer pods, then by level values (the sort is stable)."""
        if self.scores is not None:
            return np.lexsort((self.pods, key, -self.scores))
        return key.argsort(kind="stable") if self.pods is self.units else np.lexsort((self.pods, key))

    def find_tightest(self, wanted: int, among: Flags | None = None) -> int | None:
        """Returns the position of the candidate that holds `wanted` units with the fewest units, then pods, then the first; best score
        before all. Only those flagged in `among` count, if it is given. None if none does."""
        holds = self.units >= wanted
        if among is not None:
            holds &= among
        left = holds.nonzero()[0]
        if self.scores is not None and len(left) > 1:
            left = left[self.scores[left] == self.scores[left].max()]
        if len(left) > 1:
            units = self.units[left]
            left = left[units == units.min()]
        if not len(left):
            return None
        return int(left[0] if len(left) == 1 or self.pods is self.units else left[np.argmin(self.pods[left])])

    def order_by_use(self, wanted: int, *, largest: bool) -> Indices:
        """Returns positions in the order in which they are taken, by descending or ascending units; at least so many as hold `wanted`
        units, if all do. Among many, only those that can be needed are sorted."""
        ends = -self.units if largest else self.units
        if len(self.units) <= _FEW or self.scores is not None:
            return self.order(ends)
        most = int(self.units.max())
        if most > len(self.units):
            return self.order(ends)
        held = np.bincount(self.units) * np.arange(most + 1)
        sums = np.cumsum(held[::-1] if largest else held)
        last = int(sums.searchsorted(wanted))
        needed = (self.units >= most - last if largest else (self.units <= last) & (self.units > 0)).nonzero()[0]
        return needed[self.select(needed).order(ends[needed].astype("int16" if most < _SMALL else "int64"))]


def choose_tightest(candidates: Candidates, wanted: int) -> Chosen | None:
    """Returns the position of the tightest candidate that holds all `wanted` units, with these units; None if none does."""
    tightest = candidates.find_tightest(wanted)
    return None if tightest is None else (np.array([tightest]), np.array([wanted]))


def fill_in_order(candidates: Candidates, wanted: int, *, largest: bool) -> Chosen | None:
    """Returns positions of candidates, one after the other by descending or ascending units, and the units on each; better scores go first.

    The last is used as far as needed; those without units are left out. None if all together hold less than `wanted` units.
    """
    ordered = candidates.order_by_use(wanted, largest=largest)
    sums = candidates.units[ordered].cumsum()
    if wanted > (int(sums[-1]) if len(sums) else 0):
        return None
    if not wanted:
        return ordered[:0], sums[:0]
    last = int(sums.searchsorted(wanted))
    chosen = ordered[: last + 1]
    taken = candidates.units[chosen].copy()
    taken[-1] = wanted - (int(sums[last - 1]) if last else 0)
    return chosen[taken > 0], taken[taken > 0]
