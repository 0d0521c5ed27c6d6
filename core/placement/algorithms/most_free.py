"""MostFreeCapacity: BestFit without the search for a tighter last domain (KEP-2724, MostFreeCapacity algorithm)."""

import numpy as np

from core.placement.algorithms import best_fit
from core.placement.algorithms.candidates import Candidates, Chosen, fill_in_order

order = best_fit.order


def choose(candidates: Candidates, wanted: int) -> Chosen | None:
    """The first in order, if it holds everything: none holds more, but where preferred affinity counts another may hold enough."""
    holds = (candidates.units >= wanted).nonzero()[0]
    if not len(holds):
        return None
    first = holds[order(candidates.select(holds))[:1]]
    return first, np.array([wanted])


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Candidates to use and units on each; None if all together are too small."""
    return fill_in_order(candidates, wanted, largest=True)
