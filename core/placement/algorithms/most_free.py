"""MostFreeCapacity: BestFit without the search for a tighter last domain (KEP-2724, MostFreeCapacity algorithm)."""

import numpy as np

from core.placement.algorithms import best_fit
from core.placement.algorithms.candidates import Candidates, Chosen, fill_in_order

order = best_fit.order


def choose(candidates: Candidates, wanted: int) -> Chosen | None:
    """Returns the position of the first in order that holds all `wanted` units, with these units; None if none holds them.

    Where preferred affinity counts it may be another than the largest.
    """
    holds = (candidates.units >= wanted).nonzero()[0]
    if not len(holds):
        return None
    first = holds[order(candidates.select(holds))[:1]]
    return first, np.array([wanted])


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Returns the positions of candidates to use, by descending units, and the units on each; the last is used as far as needed. Better
    scores of preferred affinity go first. None if all together hold less than `wanted` units."""
    return fill_in_order(candidates, wanted, largest=True)
