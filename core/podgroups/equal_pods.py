"""Over which nodes of a placement equal pods are spread: as few as possible, and small nodes rather than large ones for the rest."""

import numpy as np

from core.placement.topology.tree import Indices


def spread(fits: Indices, wanted: int) -> tuple[Indices, Indices]:
    """Returns positions in `fits` (pods that fit, by node), and the pods on each: the nodes with most room first; what is left over goes to
    the tightest that holds it. Both are empty where no pod is wanted or fits.

    At most as many pods as fit are counted. Ties are resolved by position.
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


def spread_each(fits: Indices, starts: Indices, wanted: int) -> Indices:
    """Returns pods by position (int64, as long as `fits`), for each of the runs that begin at `starts` as `spread` has them for `wanted`
    pods; no run may be empty."""
    sizes = np.diff(starts, append=len(fits))
    run, totals = np.arange(len(starts)).repeat(sizes), np.add.reduceat(fits, starts)
    order = np.lexsort((-fits, run))
    ordered = fits[order]
    sums = ordered.cumsum()
    sums -= (sums[starts] - ordered[starts]).repeat(sizes)
    asked = np.minimum(wanted, totals)
    filled = sums < asked.repeat(sizes)
    last = np.add.reduceat(filled.astype(np.int64), starts)
    rest = asked - np.where(last > 0, sums[starts + np.maximum(last - 1, 0)], 0)
    able = np.add.reduceat((ordered >= rest.repeat(sizes)).astype(np.int64), starts)
    tightest = ordered[starts + np.maximum(able - 1, 0)]
    first = np.add.reduceat((ordered > tightest.repeat(sizes)).astype(np.int64), starts)
    counts = np.where(filled, ordered, 0)
    some = asked > 0
    counts[(starts + np.maximum(last, first))[some]] = rest[some]
    found = np.zeros_like(fits)
    found[order] = counts
    return found
