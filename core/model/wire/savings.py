"""What a slice saves against writing every value and count out, in bytes, and whether a second one can pay.

All figures are bytes of compact JSON, for values that JSON writes as they are (label values are such).
A slice pays for its frame; each domain after its first saves what all of the slice share.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from core.model.wire.affixes import Ints

MAX_LENGTH = 63  # characters of a label's value, and so of roots, prefixes, suffixes and universal values

QUOTES = len('"",')
AFFIX_BYTES = len('"prefix":"",')
LEAST_SLICE = len('{"domainCount":1,"valuesPerLevel":[],"podCounts":{"universal":1}}')
LEAST_LEVEL = len('{"universal":""},')
# The cost of a slice with every value and count written out, besides those with their quotes and commas:
_FRAME = len('{"domainCount":0,"valuesPerLevel":[],"podCounts":{"individual":[]}},') - len(",,")
_FRAME_PER_LEVEL = len('{"individual":{"roots":[]}}')
# A level, or the counts, where all are the same.
_SAME_VALUE = len('{"individual":{"roots":[""]}}') - len('{"universal":""}')
_SAME_COUNT = len('{"individual":[]}') - len('{"universal":}')
_DIGITS = np.array([10**power for power in range(1, 19)], np.int64)


class Common(NamedTuple):
    """What the values of one level have in common in one slice, in characters; affixes may overlap in the shortest value."""

    prefix: int
    suffix: int
    shortest: int
    same: bool


def split_rows(shared: Ints, levels: int) -> Ints:
    """Returns the rows of `shared` but the last, which is for the counts, by figure (prefix, suffix, length of the shorter, same), then
    level. It is a view: what is written into it changes `shared`."""
    return shared[:-1].reshape(levels, 4, *shared.shape[1:]).swapaxes(0, 1)


def count_digits(numbers: Ints) -> Ints:
    """Returns the number of decimal digits of each number; none may be negative."""
    return _DIGITS.searchsorted(numbers, "right") + 1


def choose_affixes(further: int, common: Common) -> tuple[int, int]:
    """Returns the lengths, in characters, of the prefix and the suffix to write, 0 for one that does not pay: each of `further` roots
    saves them, each field costs its name. Where even the shortest value is longer than `MAX_LENGTH`, all that is common is written."""
    prefix, suffix, shortest, _ = common
    if not suffix:
        return (prefix if further * prefix > AFFIX_BYTES or shortest > MAX_LENGTH else 0, 0)
    both = (prefix, min(suffix, shortest - prefix))
    if shortest > MAX_LENGTH:
        return both
    options = (both, (prefix, 0), (0, suffix), (0, 0))
    return max(options, key=lambda option: _compute_affix_savings(further, option))


def compute_saved(values: Sequence[Sequence[str]], commons: Sequence[Common], counts: Sequence[int]) -> int:
    """Returns the bytes that one slice of all domains saves against writing all out, negative where it costs more. `values` and `commons`
    are per level, `counts` per domain."""
    further = len(counts) - 1
    saved = 1 - _FRAME - len(str(len(counts))) - len(commons) * _FRAME_PER_LEVEL
    for column, common in zip(values, commons, strict=True):
        if common.same:
            saved += further * (len(column[0]) + QUOTES) + _SAME_VALUE
        else:
            saved += _compute_affix_savings(further, choose_affixes(further, common))
    if counts.count(counts[0]) == len(counts):
        saved += further * (len(str(counts[0])) + 1) + _SAME_COUNT
    return saved


def compute_saved_by_slices(sizes: Ints, common: Ints, lengths: Ints, digits: Ints) -> Ints:
    """Returns the bytes that each of many slices saves against writing all out, negative where it costs more. `sizes` are their numbers of
    domains, `digits` the decimal digits of the count of the first domain, `lengths` the characters of its value per level. Rows of `common`
    are four per level (`split_rows`) and a last one for the counts."""
    levels = len(lengths)
    more = sizes - 1
    prefix, suffix, shortest, same = split_rows(common, levels)
    one = more * np.maximum(prefix, suffix) - AFFIX_BYTES
    both = more * np.minimum(prefix + suffix, shortest) - 2 * AFFIX_BYTES
    universal = more * (lengths + QUOTES) + _SAME_VALUE
    by_level = np.where(same, universal, np.maximum(np.maximum(one, both), 0))
    by_counts = common[-1] * (more * (digits + 1) + _SAME_COUNT)
    saved: Ints = by_level.sum(axis=0) + by_counts - count_digits(sizes) - (_FRAME + levels * _FRAME_PER_LEVEL - 1)
    return saved


def compute_least_frame(levels: int) -> int:
    """Returns the bytes that the frame of a slice costs at least, less all that it saves once, however many domains it has."""
    return _FRAME - _SAME_COUNT + levels * (_FRAME_PER_LEVEL - _SAME_VALUE)


def can_cut_pay(shared: Sequence[int], saved: int, levels: int) -> bool:
    """Returns whether two or more slices may save more than one, which saves `saved` bytes. False is certain, True is not.

    `shared` has for every two neighbours the most that the second saves in a slice with the first. A slice saves at most the least of its
    neighbours' for each, so what it gains on one slice of all lies in a run of neighbours that share more than the least; of two or more
    slices each must gain half the further frame on average.
    """
    least = min(shared, default=0)
    room = saved + 2 * compute_least_frame(levels) - (len(shared) - 1) * least
    if sum(shared) - len(shared) * least <= room:
        return False
    gain = 0
    for more in shared:
        gain = gain + more - least if more > least else 0
        if 2 * gain > room:
            return True
    return False


def _compute_affix_savings(further: int, affixes: tuple[int, int]) -> int:
    prefix, suffix = affixes
    return further * (prefix + suffix) - AFFIX_BYTES * ((prefix > 0) + (suffix > 0))
