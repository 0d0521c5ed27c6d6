"""BestFit: the largest domains first, the last one as tight as possible (KEP-2724, Computing the assignment).

Domains are taken in descending order of units that fit, ties going to fewer pods, then to the order of
level values. As soon as one of the rest could hold all that remains, the smallest such one is taken.
"""

import numpy as np

from core.placement.tree import Indices


def choose(units: Indices, pods: Indices, wanted: int) -> tuple[Indices, Indices] | None:
    """Candidates to use and units on each; None if all together are too small.

    `units` and `pods` are what fits per candidate, candidates in the order of level values.
    """
    order = np.lexsort((pods, -units))  # stable: what is still equal stays in the order of level values
    sums = np.cumsum(units[order])
    if not len(sums) or sums[-1] < wanted:
        return None
    last = int(np.searchsorted(sums, wanted))
    rest = wanted - int(sums[last - 1]) if last else wanted
    descending = units[order[last:]]
    # The tightest that still fits; among equals the first in order.
    tightest = descending[int(np.searchsorted(-descending, -rest, side="right")) - 1]
    final = last + int(np.searchsorted(-descending, -tightest, side="left"))
    chosen = np.append(order[:last], order[final])
    taken = np.append(units[order[:last]], rest)
    return chosen, taken
