"""Where the partial slice of a pod set goes: the last slice, with the pods that make no whole one (gate TASPartialSlices).

All of its pods are in one domain of the slice level, which may have whole slices, too. Domains are chosen for the whole slices first, and
in their order. Then the last of them has the partial slice if it can; else, for BestFit, another domain takes the place of the last, if it
holds as many whole slices and has room for both; else another of those in use has it; else one more domain is used.
"""

import numpy as np

from core.placement.algorithms.candidates import Candidates, Chosen
from core.placement.algorithms.profile import Algorithm
from core.placement.topology.tree import Flags, Indices


def add_partial(candidates: Candidates, left: Indices, tail: int, algorithm: Algorithm, chosen: Chosen, *, fixed: int = 0) -> Chosen | None:
    """Returns positions of candidates and whole units on each (`chosen`), with a candidate among them that has room for `tail` pods more.

    `left` are the pods that each candidate holds beside all its whole units. One more candidate comes last, with no units. The first
    `fixed` positions stay as they are. None if no candidate has that room.
    """
    positions, units = chosen
    has_room = _find_room(candidates.units[positions], left[positions], tail, units)
    if len(positions) > fixed and has_room[-1]:
        return chosen
    if len(positions) > fixed and algorithm.tightest:
        equal = (left >= tail) & (candidates.units == candidates.units[positions[-1]])
        if candidates.scores is not None:  # preferred affinity comes before a tight fit
            equal &= candidates.scores == candidates.scores[positions[-1]]
        equal[positions] = False
        closing = candidates.find_tightest(int(units[-1]), equal)
        if closing is not None:
            return np.append(positions[:-1], closing), units
    if has_room.any():
        return chosen
    able = candidates.units + (left >= tail) > 0
    able[positions] = False
    if algorithm.tightest:
        home = candidates.find_tightest(0, able)
    else:
        ordered = algorithm.order(candidates)
        home = next(iter(ordered[able[ordered]].tolist()), None)
    return None if home is None else (np.append(positions, home), np.append(units, 0))


def find_partial_home(held: Indices, left: Indices, tail: int, units: Indices) -> int:
    """Returns the position of the slice domain that has the partial slice: the last one if it has room, else the first that has.

    Per domain that was chosen: the whole slices that it holds, the pods that it holds beside these, and the whole slices that it was given.
    One of them must have room.
    """
    has_room = _find_room(held, left, tail, units)
    assert has_room.any(), "the partial slice lost its place on the way down"
    return len(has_room) - 1 if has_room[-1] else int(has_room.argmax())


def _find_room(held: Indices, left: Indices, tail: int, units: Indices) -> Flags:
    return (held > units) | (left >= tail)
