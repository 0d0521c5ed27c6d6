"""What neighbours in a list of strings have in common, as arrays.

What a run of strings has in common is the least of what its neighbours have in common, so these
arrays answer for every run at once, and no run needs its strings looked at again.
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
    """One value per domain: length of each, and what each shares with the one before it; the first shares all with itself.

    `stems` are lengths up to the last dash of each, where the suffix that all share is left aside.
    """

    lengths: Ints
    prefixes: Ints
    suffixes: Ints
    stems: Ints


def compute_column(values: Sequence[str]) -> Column:
    """Raises no error for any string; a surrogate is a character like others."""
    # One string of all, so that strings are touched once; where one holds the separator itself, lengths tell them apart.
    units = _get_units(_SEPARATOR.join(values) + _SEPARATOR)
    stops = np.flatnonzero(units == ord(_SEPARATOR))
    if len(stops) != len(values):
        stops = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1) - 1
    lengths = stops.copy()
    lengths[1:] -= stops[:-1] + 1
    width = max(1, int(lengths.max()))
    around = np.zeros(width, units.dtype)
    # Every value as a row of one width: what is beyond its end belongs to its neighbours and is never counted.
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([around, units, around]), width)
    ends = stops + width
    prefixes, suffixes = lengths.copy(), lengths.copy()
    shorter = np.minimum(lengths[1:], lengths[:-1])
    prefixes[1:] = np.minimum(_count_same(windows[ends - lengths]), shorter)
    suffixes[1:] = np.minimum(_count_same(windows[ends - width][:, ::-1]), shorter)
    dashes = np.concatenate([[-1], np.flatnonzero(units == ord("-"))])
    last = dashes[np.searchsorted(dashes, stops - suffixes.min()) - 1]
    return Column(lengths, prefixes, suffixes, np.maximum(last - (stops - lengths) + 1, 0))


def _get_units(text: str) -> Units:
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _count_same(rows: Units) -> Ints:
    # How many columns, from the first on, are equal in each row and the next.
    differ = rows[1:] != rows[:-1]
    first: Ints = differ.argmax(axis=1)
    none = ~differ[np.arange(len(first)), first]
    first[none] = rows.shape[1]
    return first
