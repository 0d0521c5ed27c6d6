"""Which cuts promise to pay: those at the ends of long runs that share more than what is around them."""

import numpy as np

from core.model.wire.affixes import Ints
from core.model.wire.savings import AFFIX_BYTES, LEAST_LEVEL

_FEW = 2048  # neighbours; an array for all depths at once is small for so few


def compute_promise(shared: Ints) -> Ints:
    """Returns, for each two neighbours (int64, one fewer than values), the bytes that the runs that end and begin between them would save
    by being slices of their own, at least 0; an estimate.

    A row of `shared` is one kind of what neighbours share, in bytes. A run is all that share at least so much with each other; its affix
    must be written once. What the kinds promise is added up.
    """
    promise: Ints = np.zeros(shared.shape[1], np.int64)
    compute = _estimate_few if len(promise) < _FEW else _estimate_many
    for row in shared:
        depths = _list_depths(row)
        if depths:
            promise += compute(row, depths)
    return promise


def _list_depths(shared: Ints) -> list[int]:
    """Of runs that may save anything, deepest first: by how many share so much, one may be long enough."""
    numbers = np.bincount(shared).tolist()
    least = next((depth for depth, number in enumerate(numbers) if number), 0)
    longest, depths = 1, []
    for depth in range(len(numbers) - 1, least, -1):
        longest += numbers[depth]
        if numbers[depth] and longest * (depth - least) > depth + AFFIX_BYTES:
            depths.append(depth)
    return depths


def _estimate_few(shared: Ints, depths: list[int]) -> Ints:
    # All depths at once, a row for each.
    depth = np.array(depths)[:, None]
    total = len(shared) + 1
    ends = np.arange(1, total)
    apart = shared < depth
    borders = np.zeros((2, len(depths), total), np.int64)
    # The nearest border before, and with the order turned round, the nearest behind.
    np.multiply(apart, ends, out=borders[0, :, 1:])
    np.multiply(apart[:, ::-1], ends, out=borders[1, :, 1:])
    np.maximum.accumulate(borders, axis=2, out=borders)
    sizes = ends - borders[:, :, :-1]
    sizes[1] = sizes[1, :, ::-1].copy()
    saved = sizes * (depth - shared) - (depth + AFFIX_BYTES)
    saved *= sizes * depth > LEAST_LEVEL
    promise: Ints = saved.max(axis=1, initial=0).sum(axis=0)
    return promise


def _estimate_many(shared: Ints, depths: list[int]) -> Ints:
    # One depth after the other, looking only at runs that are long enough.
    total = len(shared) + 1
    ending, beginning = np.zeros(total - 1, np.int64), np.zeros(total - 1, np.int64)
    cuts = np.arange(total - 1)
    for depth in depths:
        cuts = cuts[shared[cuts] < depth]
        borders = np.concatenate([[0], cuts + 1, [total]])
        sizes = borders[1:] - borders[:-1]
        large = sizes * depth > LEAST_LEVEL
        for target, runs, size in (
            (ending, large[:-1].nonzero()[0], sizes[:-1]),
            (beginning, large[1:].nonzero()[0], sizes[1:]),
        ):
            at = cuts[runs]
            target[at] = np.maximum(target[at], size[runs] * (depth - shared[at]) - depth - AFFIX_BYTES)
    return ending + beginning
