"""Over which nodes of a placement equal pods are spread: as few as possible, and small nodes rather than large ones for the rest."""

import numpy as np

from core.placement.tree import Indices


def spread(fits: Indices, wanted: int) -> tuple[Indices, Indices]:
    """Positions and counts: the nodes with most room first; what is left over goes to the tightest that holds it.

    At most as many as fit. Ties go by position.
    """
    total = int(fits.sum())
    wanted = min(wanted, total)
    if wanted <= 0:
        return fits[:0], fits[:0]
    order = (-fits).argsort(kind="stable")
    sums = fits[order].cumsum()
    last = int(sums.searchsorted(wanted))
    rest = wanted - (int(sums[last - 1]) if last else 0)
    after = order[last:]
    room = fits[after]
    enough = room[room >= rest]
    tightest = after[int(np.flatnonzero(room == enough.min())[0])]
    at = np.append(order[:last], tightest)
    return at, np.append(fits[order[:last]], rest)
