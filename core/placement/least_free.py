"""LeastFreeCapacity: the fullest domains first, so that large ones stay whole (KEP-2724, Computing the assignment).

The smallest single domain that holds everything wins; else domains are filled in ascending order of
units that fit, ties going to fewer pods, then to the order of level values; preferred affinity, where
it counts, comes before all of that.
"""

import numpy as np

from core.placement.candidates import Candidates, Chosen
from core.placement.tree import Indices


def choose(candidates: Candidates, wanted: int) -> Chosen | None:
    """Candidates to use and units on each; None if all together are too small."""
    order = candidates.order(candidates.units)
    holds = candidates.units[order] >= wanted
    if holds.any():
        first = int(np.argmax(holds))
        return order[first : first + 1], np.array([wanted], dtype=np.int64)
    return _fill(candidates, order, wanted)


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """As `choose`, but without looking for a single domain first: the way down the levels."""
    return _fill(candidates, candidates.order(candidates.units), wanted)


def _fill(candidates: Candidates, order: Indices, wanted: int) -> Chosen | None:
    sums = np.cumsum(candidates.units[order])
    if not len(sums) or sums[-1] < wanted:
        return None
    last = int(np.searchsorted(sums, wanted))
    chosen = order[: last + 1]
    taken = candidates.units[chosen].copy()
    taken[-1] = wanted - (int(sums[last - 1]) if last else 0)
    return chosen[taken > 0], taken[taken > 0]
