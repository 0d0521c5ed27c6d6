"""LeastFreeCapacity: the fullest domains first, so that large ones stay whole (KEP-2724, Computing the assignment).

The smallest single domain that holds everything wins; else domains are filled in ascending order of
units that fit, ties going to fewer pods, then to the order of level values; preferred affinity, where
it counts, comes before all of that.
"""

import numpy as np

from core.placement.algorithms.candidates import Candidates, Chosen, choose_tightest, fill_in_order
from core.placement.topology.tree import Indices


def order(candidates: Candidates) -> Indices:
    """Positions in the order in which candidates are taken."""
    return candidates.order(candidates.units)


def spread(candidates: Candidates, wanted: int) -> Chosen | None:
    """One candidate if any holds everything, else as many as needed."""
    return choose_tightest(candidates, wanted) or fill(candidates, wanted)


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Candidates to use and units on each; None if all together are too small."""
    return fill_in_order(candidates, wanted, largest=False)


def fill_each(candidates: Candidates, parents: Indices, wanted: Indices) -> Chosen:
    """As `fill`, for many parents at once: candidate i is a child of parents[i], a parent p of wanted[p] units.

    Children stand by parent, and every parent's children hold what it wants.
    """
    keys = (candidates.pods, candidates.units) if candidates.scores is None else (candidates.pods, candidates.units, -candidates.scores)
    ordered = np.lexsort((*keys, parents))
    units = candidates.units[ordered]
    before = units.cumsum() - units
    # Children of one parent stand together: what was counted before the first of them belongs to other parents.
    firsts = parents.searchsorted(np.arange(len(wanted)))
    taken = np.minimum(np.maximum((wanted + before[firsts])[parents] - before, 0), units)
    return ordered[taken > 0], taken[taken > 0]
