"""MostFreeCapacity: BestFit without the search for a tighter last domain (KEP-2724, MostFreeCapacity algorithm)."""

import numpy as np

from core.placement import best_fit
from core.placement.candidates import Candidates, Chosen

order = best_fit.order


def choose(candidates: Candidates, wanted: int) -> Chosen | None:
    """The first in order, if it holds everything: none holds more, but where preferred affinity counts another may hold enough."""
    holds = (candidates.units >= wanted).nonzero()[0]
    if not len(holds):
        return None
    first = holds[order(candidates.some(holds))[:1]]
    return first, np.array([wanted])


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Candidates to use and units on each; None if all together are too small."""
    ordered = candidates.taken_first(wanted, largest=True)
    sums = candidates.units[ordered].cumsum()
    if wanted > (int(sums[-1]) if len(sums) else 0):
        return None
    if not wanted:
        return ordered[:0], sums[:0]
    last = int(sums.searchsorted(wanted))
    taken = candidates.units[ordered[: last + 1]].copy()
    taken[last] = wanted - (int(sums[last - 1]) if last else 0)
    return ordered[: last + 1], taken
