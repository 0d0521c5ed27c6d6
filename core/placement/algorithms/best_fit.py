"""BestFit: the largest domains first, the last one as tight as possible (KEP-2724, Computing the assignment).

Domains are taken in descending order of units that fit, ties going to fewer pods, then to the order of
level values; preferred affinity, where it counts, comes before all of that. As soon as one of the rest
could hold all that remains, the smallest such one is taken.
"""

import numpy as np

from core.placement.algorithms.candidates import Candidates, Chosen
from core.placement.topology.tree import Indices


def order(candidates: Candidates) -> Indices:
    """Returns the positions of the candidates in the order in which they are taken: by descending units, then fewer pods, then position;
    better scores of preferred affinity before all."""
    return candidates.order(-candidates.units)


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Returns the positions of candidates to use, by descending units, and the units on each; better scores of preferred affinity go first.
    The last is the tightest that holds what is left. Both are empty for 0 units; None if all together hold less than `wanted` units."""
    ordered = candidates.order_by_use(wanted, largest=True)
    units = candidates.units[ordered]
    sums = units.cumsum()
    if wanted > (int(sums[-1]) if len(sums) else 0):
        return None
    if not wanted:
        return ordered[:0], sums[:0]
    last = int(sums.searchsorted(wanted))
    chosen, taken = ordered[: last + 1], units[: last + 1]
    if last:
        left = np.ones(len(candidates.units), dtype=bool)
        left[ordered[:last]] = False
        taken[last] = wanted - sums[last - 1]
        final = candidates.find_tightest(int(taken[last]), left)
    else:
        taken[0] = wanted
        final = candidates.find_tightest(wanted)
    assert final is not None  # the next in order holds the rest
    chosen[last] = final
    return chosen, taken
