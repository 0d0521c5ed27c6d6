"""The common prefixes and suffixes of neighbours in a list of strings, as arrays.

A run of strings has in common the least that its neighbours have in common. So these arrays answer for every run at
once, and no run needs its strings read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_SEPARATOR = "\0"
Units = NDArray[np.unsignedinteger[Any]]  # characters


@dataclass(frozen=True, slots=True)
class Column:
    """One value per domain, and what each shares with the one before it; the first shares all with itself.

    Rows of `shared` are prefix, suffix, length of the shorter one, and 1 where both are the same. `units` are the
    characters of all values, each with a separator behind it, which stands at `stops`.
    """

    lengths: Ints
    shared: Ints
    units: Units
    stops: Ints

    def compute_stems(self) -> Ints:
        """Returns, per value, the number of characters up to its last dash, with that, int64; 0 without a dash. Dashes in the suffix
        that all values share do not count."""
        dashes = (self.units == ord("-")).nonzero()[0]
        if not len(dashes):
            return np.zeros_like(self.lengths)
        last = dashes.searchsorted(self.stops - self.shared[1].min()) - 1
        stems: Ints = np.maximum(np.append(dashes, -1)[last] + 1 - self.stops + self.lengths, 0)
        return stems


def compute_column(values: Sequence[str]) -> Column:
    """Returns the arrays of a list of strings, which must not be empty. Any string is good; a surrogate is a character like others."""
    # One string of all, so that strings are read once; where one contains the separator itself, lengths separate them.
    units = _get_units(_SEPARATOR.join(values) + _SEPARATOR)
    stops = (units == ord(_SEPARATOR)).nonzero()[0]
    if len(stops) != len(values):
        stops = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1) - 1
    lengths = stops.copy()
    lengths[1:] -= stops[:-1] + 1
    width = int(lengths.max()) + 1
    # Every value as a row of one width: what is beyond its end belongs to its neighbours and is never counted.
    padded = np.zeros(len(units) + 2 * width, units.dtype)
    padded[width:-width] = units
    windows: Units = np.ndarray((len(padded) - width + 1, width), padded.dtype, padded, strides=padded.strides * 2)
    shared = np.empty((4, len(values)), np.int64)
    shared[:3] = lengths
    forwards, backwards = windows[stops + width - lengths], windows[stops]
    shared[0, 1:] = _find_first(forwards[1:] != forwards[:-1])
    shared[1, 1:] = _find_first((backwards[1:] != backwards[:-1])[:, ::-1])
    np.minimum(lengths[1:], lengths[:-1], out=shared[2, 1:])
    np.minimum(shared[:2], shared[2], out=shared[:2])
    shared[3, 0] = 1
    np.equal(shared[0, 1:], np.maximum(lengths[1:], lengths[:-1]), out=shared[3, 1:])
    return Column(lengths, shared, units, stops)


def _get_units(text: str) -> Units:
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _find_first(differ: NDArray[np.bool_]) -> Ints:
    # In each row; the last column counts as different.
    differ[:, -1] = True
    first: Ints = differ.argmax(axis=1)
    return first
