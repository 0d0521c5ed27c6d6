"""What neighbours in a list of strings have in common, as arrays.

What a run of strings has in common is the least of what its neighbours have in common, so these
arrays answer for every run at once, and no run needs its strings looked at again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Units = NDArray[np.uint8] | NDArray[np.uint32]


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
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    width = max(1, int(lengths.max()))
    units = np.pad(_get_units("".join(values)), width)
    # Every value as a row of one width: what is beyond its end belongs to its neighbours and is never counted.
    windows = np.lib.stride_tricks.sliding_window_view(units, width)
    ends = np.cumsum(lengths) + width
    prefixes, suffixes = lengths.copy(), lengths.copy()
    shorter = np.minimum(lengths[1:], lengths[:-1])
    prefixes[1:] = np.minimum(_count_same(windows[ends - lengths]), shorter)
    suffixes[1:] = np.minimum(_count_same(windows[ends - width][:, ::-1]), shorter)
    dashes = np.concatenate([[-1], np.flatnonzero(units == ord("-"))])
    last = dashes[np.searchsorted(dashes, ends - suffixes.min()) - 1]
    return Column(lengths, prefixes, suffixes, np.maximum(last - (ends - lengths) + 1, 0))


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
