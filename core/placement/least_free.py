"""LeastFreeCapacity: the fullest domains first, so that large ones stay whole (KEP-2724, Computing the assignment).

The smallest single domain that holds everything wins; else domains are filled in ascending order of
units that fit, ties going to fewer pods, then to the order of level values.
"""

import numpy as np

from core.placement.tree import Indices


def choose(units: Indices, pods: Indices, wanted: int) -> tuple[Indices, Indices] | None:
    """Candidates to use and units on each; None if all together are too small.

    `units` and `pods` are what fits per candidate, candidates in the order of level values.
    """
    order = np.lexsort((pods, units))
    ascending = units[order]
    single = int(np.searchsorted(ascending, wanted))
    if single < len(order):
        return order[single : single + 1], np.array([wanted], dtype=np.int64)
    return fill(units, pods, wanted)


def fill(units: Indices, pods: Indices, wanted: int) -> tuple[Indices, Indices] | None:
    """As `choose`, but without looking for a single domain first: the way down the levels."""
    order = np.lexsort((pods, units))
    sums = np.cumsum(units[order])
    if not len(sums) or sums[-1] < wanted:
        return None
    last = int(np.searchsorted(sums, wanted))
    chosen = order[: last + 1]
    taken = units[chosen].copy()
    taken[-1] = wanted - (int(sums[last - 1]) if last else 0)
    return chosen[taken > 0], taken[taken > 0]
