"""LeastFreeCapacity: the fullest domains first, so that large ones stay whole (KEP-2724, Computing the assignment).

The smallest single domain that holds everything wins; else domains are filled in ascending order of
units that fit, ties going to fewer pods, then to the order of level values; preferred affinity, where
it counts, comes before all of that.
"""

import numpy as np

from core.placement.algorithms.candidates import Candidates, Chosen, choose_tightest, fill_in_order
from core.placement.topology.tree import Indices


def order(candidates: Candidates) -> Indices:
    """Returns the positions of the candidates in the order in which they are taken: by ascending units, then fewer pods, then position;
    better scores of preferred affinity before all."""
    return candidates.order(candidates.units)


def spread(candidates: Candidates, wanted: int) -> Chosen | None:
    """Returns positions of candidates and the units on each: the tightest one that holds all `wanted` units, else several by ascending
    units, the last used as far as needed. Better scores of preferred affinity go before both. None if all together hold less."""
    return choose_tightest(candidates, wanted) or fill(candidates, wanted)


def fill(candidates: Candidates, wanted: int) -> Chosen | None:
    """Returns the positions of candidates to use, by ascending units, and the units on each; the last is used as far as needed. Better
    scores of preferred affinity go first. None if all together hold less than `wanted` units."""
    return fill_in_order(candidates, wanted, largest=False)


def fill_each(candidates: Candidates, parents: Indices, wanted: Indices) -> Chosen:
    """Returns what `fill` does, for many parents at once: candidate i is a child of parents[i], and wanted[p] units go to the children of
    parent p. Positions are by parent.

    Children stand by parent, and every parent has children, which must hold what it wants.
    """
    keys = (candidates.pods, candidates.units) if candidates.scores is None else (candidates.pods, candidates.units, -candidates.scores)
    ordered = np.lexsort((*keys, parents))
    units = candidates.units[ordered]
    before = units.cumsum() - units
    # Children of one parent stand together: what was counted before the first of them belongs to other parents.
    firsts = parents.searchsorted(np.arange(len(wanted)))
    taken = np.minimum(np.maximum((wanted + before[firsts])[parents] - before, 0), units)
    return ordered[taken > 0], taken[taken > 0]
