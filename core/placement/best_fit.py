"""BestFit: the largest domains first, the last one as tight as possible (KEP-2724, Computing the assignment).

Domains are taken in descending order of units that fit, ties going to fewer pods, then to the order of
level values; preferred affinity, where it counts, comes before all of that. As soon as one of the rest
could hold all that remains, the smallest such one is taken.
"""

import numpy as np

from core.placement.candidates import Candidates, Chosen
from core.placement.tree import Indices


def choose(candidates: Candidates, wanted: int) -> Chosen | None:
    """Candidates to use and units on each; None if all together are too small."""
    order = candidates.order(-candidates.units)
    if not (candidates.units >= wanted).any():
        return _fill(candidates, order, wanted)
    return order[[_tightest(candidates, order, wanted)]], np.array([wanted], dtype=np.int64)


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """As `choose`, but without looking for a single domain first: the way down the levels."""
    return _fill(candidates, candidates.order(-candidates.units), wanted)


def _fill(candidates: Candidates, order: Indices, wanted: int) -> Chosen | None:
    units = candidates.units[order]
    sums = np.cumsum(units)
    if not len(sums) or sums[-1] < wanted:
        return None
    last = int(np.searchsorted(sums, wanted))
    rest = wanted - int(sums[last - 1]) if last else wanted
    final = last + _tightest(candidates, order[last:], rest)
    return np.append(order[:last], order[final]), np.append(units[:last], rest)


def _tightest(candidates: Candidates, order: Indices, rest: int) -> int:
    """Place in the order of the smallest candidate that holds the rest, the first among equals; best score first."""
    units = candidates.units[order]
    holds = units >= rest
    if candidates.scores is not None:
        scores = candidates.scores[order]
        holds &= scores == scores[holds].max()
    return int(np.argmin(np.where(holds, units, np.iinfo(np.int64).max)))
