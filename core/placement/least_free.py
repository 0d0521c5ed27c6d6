"""LeastFreeCapacity: the fullest domains first, so that large ones stay whole (KEP-2724, Computing the assignment).

The smallest single domain that holds everything wins; else domains are filled in ascending order of
units that fit, ties going to fewer pods, then to the order of level values; preferred affinity, where
it counts, comes before all of that.
"""

import numpy as np

from core.placement.candidates import Candidates, Chosen
from core.placement.tree import Indices


def order(candidates: Candidates) -> Indices:
    """Positions in the order in which candidates are taken."""
    return candidates.order(candidates.units)


def choose(candidates: Candidates, wanted: int) -> Chosen | None:
    """The smallest candidate that holds everything; None if none does."""
    taken_in = order(candidates)
    holds = candidates.units[taken_in] >= wanted
    if not holds.any():
        return None
    first = int(np.argmax(holds))
    return taken_in[first : first + 1], np.array([wanted], dtype=np.int64)


def spread(candidates: Candidates, wanted: int) -> Chosen | None:
    """One candidate if any holds everything, else as many as needed."""
    return choose(candidates, wanted) or fill(candidates, wanted)


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Candidates to use and units on each; None if all together are too small."""
    ordered = order(candidates)
    sums = np.cumsum(candidates.units[ordered])
    if wanted > (int(sums[-1]) if len(sums) else 0):
        return None
    if not wanted:
        return ordered[:0], sums[:0]
    last = int(np.searchsorted(sums, wanted))
    chosen = ordered[: last + 1]
    taken = candidates.units[chosen].copy()
    taken[-1] = wanted - (int(sums[last - 1]) if last else 0)
    return chosen[taken > 0], taken[taken > 0]
