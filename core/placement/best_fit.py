"""BestFit: the largest domains first, the last one as tight as possible (KEP-2724, Computing the assignment).

Domains are taken in descending order of units that fit, ties going to fewer pods, then to the order of
level values; preferred affinity, where it counts, comes before all of that. As soon as one of the rest
could hold all that remains, the smallest such one is taken.
"""

import numpy as np

from core.placement.candidates import Candidates, Chosen
from core.placement.tree import Indices


def order(candidates: Candidates) -> Indices:
    """Positions in the order in which candidates are taken."""
    return candidates.order(-candidates.units)


def choose(candidates: Candidates, wanted: int) -> Chosen | None:
    """The tightest candidate that holds everything; None if none does."""
    if not (candidates.units >= wanted).any():
        return None
    taken_in = order(candidates)
    return taken_in[[_tightest(candidates, taken_in, wanted)]], np.array([wanted], dtype=np.int64)


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Candidates to use and units on each; None if all together are too small."""
    ordered = order(candidates)
    units = candidates.units[ordered]
    sums = np.cumsum(units)
    if wanted > (int(sums[-1]) if len(sums) else 0):
        return None
    if not wanted:
        return ordered[:0], sums[:0]
    last = int(np.searchsorted(sums, wanted))
    rest = wanted - int(sums[last - 1]) if last else wanted
    final = last + _tightest(candidates, ordered[last:], rest)
    return np.append(ordered[:last], ordered[final]), np.append(units[:last], rest)


def _tightest(candidates: Candidates, ordered: Indices, rest: int) -> int:
    """Place in the order of the smallest candidate that holds the rest, the first among equals; best score first."""
    units = candidates.units[ordered]
    holds = units >= rest
    if candidates.scores is not None:
        scores = candidates.scores[ordered]
        holds &= scores == scores[holds].max()
    return int(np.argmin(np.where(holds, units, np.iinfo(np.int64).max)))
