"""Where to cut an assignment into slices so that its JSON is shortest; the order of domains stays.

A slice pays for its frame and saves what its domains share: a value or a count that all have stands
once, a prefix or suffix stands once instead of in every root. Compared by what they save are one
slice, runs of hostnames with the same prefix up to the last dash, and the best choice among the cuts
that promise most, which dynamic programming finds.

All figures are bytes of compact JSON, for values that JSON writes as they are (label values are such).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from core.model.affixes import Column, Ints, compute_column

MAX_SLICES = 1000
MAX_ROOTS = 100_000
MAX_LENGTH = 63  # characters of a label's value, and so of roots, prefixes, suffixes and universal values

# A slice of which every value and count is written out costs, besides those with their quotes and commas:
_FRAME = len('{"domainCount":0,"valuesPerLevel":[],"podCounts":{"individual":[]}},') - len(",,")
_FRAME_PER_LEVEL = len('{"individual":{"roots":[]}}')
_QUOTES = len('"",')
# A level, or the counts, where all are the same; an affix.
_SAME_VALUE = len('{"individual":{"roots":[""]}}') - len('{"universal":""}')
_SAME_COUNT = len('{"individual":[]}') - len('{"universal":}')
AFFIX_BYTES = len('"prefix":"",')
_LEAST_SLICE = len('{"domainCount":1,"valuesPerLevel":[],"podCounts":{"universal":1}}')
_LEAST_LEVEL = len('{"universal":""},')
_MANY = 256  # cuts, from which on each must promise twice the least slice: between many like runs, each pays one
_LOOK_BACK = 160  # blocks that one slice of a choice may span: one more costs time and, where so many promise something, hardly pays
_NEVER = -(2**40)
_DIGITS = np.array([10**power for power in range(1, 19)], np.int64)


class Common(NamedTuple):
    """What the values of one level have in common in one slice, in characters; affixes may overlap in the shortest value."""

    prefix: int
    suffix: int
    shortest: int
    same: bool


class Part(NamedTuple):
    """Domains of one slice, and what they share per level."""

    begin: int
    end: int
    common: tuple[Common, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Domains, or blocks of them.

    `lengths` are characters of the first value, per level, `digits` those of the first count. The rows of
    `inner` and `shared` are prefix, suffix and shortest value, per level, then 1 where all are the same,
    per level and for the counts: of one domain or block, and across the border to the one before.
    """

    sizes: Ints
    lengths: Ints
    digits: Ints
    inner: Ints
    shared: Ints


def choose_parts(columns: Sequence[Sequence[str]], counts: Sequence[int]) -> list[Part]:
    """At most MAX_SLICES slices of at most MAX_ROOTS domains, in order."""
    levels = [compute_column(values) for values in columns]
    facts = _compute_facts(levels, np.array(counts, np.int64))
    whole = _split_long(np.zeros(0, np.int64), len(counts))
    ways = [whole]
    candidates = _split_long(_find_promising(facts, MAX_SLICES - 1 - len(whole)), len(counts))
    if len(candidates) > len(whole):
        ways.append(_choose_best(_group(facts, candidates), candidates))
    runs = _split_long(_find_hostname_runs(levels[-1]), len(counts))
    if len(whole) < len(runs) < MAX_SLICES:
        ways.append(runs)
    return _list_parts(max((_group(facts, cuts) for cuts in ways), key=_compute_saved))


def can_cut_pay(columns: Sequence[Sequence[str]], size: int) -> bool:
    """Whether two or more slices could be shorter than one of `size` bytes, by the least that two slices take.

    Each holds at least its frame, one value of each level in full and, where no two values are equal, a root
    of one character or more for every further domain.
    """
    least = _LEAST_SLICE + sum(min(map(len, values)) + _LEAST_LEVEL for values in columns)
    distinct = sum(len(set(values)) == len(values) for values in columns)
    return size > 2 * least + (len(columns[0]) - 2) * distinct * (_QUOTES + 1)


def _list_parts(parts: _Facts) -> list[Part]:
    ends = np.cumsum(parts.sizes)
    levels = len(parts.lengths)
    common = parts.inner[:-1].reshape(4, levels, -1).transpose(2, 1, 0).tolist()
    return [
        Part(end - size, end, tuple(Common(prefix, suffix, shortest, bool(same)) for prefix, suffix, shortest, same in rows))
        for end, size, rows in zip(ends.tolist(), parts.sizes.tolist(), common, strict=True)
    ]


def _compute_facts(levels: Sequence[Column], counts: Ints) -> _Facts:
    lengths = np.stack([level.lengths for level in levels])
    ones = np.ones((len(levels) + 1, len(counts)), np.int64)
    inner = np.concatenate([np.minimum(lengths, MAX_LENGTH), np.minimum(lengths, MAX_LENGTH), lengths, ones])
    before = np.concatenate([lengths[:, :1], lengths[:, :-1]], axis=1)
    prefixes = np.stack([level.prefixes for level in levels])
    shared = np.concatenate(
        [
            np.minimum(prefixes, MAX_LENGTH),
            np.minimum(np.stack([level.suffixes for level in levels]), MAX_LENGTH),
            np.minimum(lengths, before),
            (prefixes == lengths) & (lengths == before),
            (counts == np.concatenate([counts[:1], counts[:-1]]))[None],
        ]
    )
    return _Facts(np.ones(len(counts), np.int64), lengths, np.searchsorted(_DIGITS, counts, "right") + 1, inner, shared)


def _group(facts: _Facts, cuts: Ints) -> _Facts:
    """The blocks between the cuts, as facts about blocks."""
    begins = np.concatenate([[0], cuts])
    # What the first of a block shares with the one before is no matter of the block.
    within = facts.shared.copy()
    within[:, begins] = facts.inner[:, begins]
    sizes = np.append(begins[1:], len(facts.sizes)) - begins
    inner = np.minimum.reduceat(within, begins, axis=1)
    return _Facts(sizes, facts.lengths[:, begins], facts.digits[begins], inner, facts.shared[:, begins])


def _saved_by_slices(sizes: Ints, common: Ints, lengths: Ints, digits: Ints) -> Ints:
    """What slices save against all values and counts written out, less their frames."""
    levels = len(lengths)
    more = sizes - 1
    prefix, suffix, shortest, same = common[:-1].reshape(4, levels, -1)
    one = more * np.maximum(prefix, suffix) - AFFIX_BYTES
    both = more * np.minimum(prefix + suffix, shortest) - 2 * AFFIX_BYTES
    universal = more * (lengths + _QUOTES) + _SAME_VALUE
    by_level = np.where(same, universal, np.maximum(np.maximum(one, both), 0))
    by_counts = common[-1] * (more * (digits + 1) + _SAME_COUNT)
    saved: Ints = by_level.sum(axis=0) + by_counts - np.searchsorted(_DIGITS, sizes, "right") - (_FRAME + levels * _FRAME_PER_LEVEL)
    return saved


def _compute_saved(parts: _Facts) -> int:
    return int(_saved_by_slices(parts.sizes, parts.inner, parts.lengths, parts.digits).sum())


def _find_promising(facts: _Facts, room: int) -> Ints:
    """Cuts at the ends of runs that share more with each other than with what is around them: those that promise most."""
    levels = len(facts.lengths)
    prefixes, suffixes, _, same = facts.shared[:-1].reshape(4, levels, -1)
    promise = np.zeros(len(facts.sizes), np.int64)
    for level in range(levels):
        promise += _promise(np.where(same[level], facts.lengths[level] + _QUOTES + AFFIX_BYTES, prefixes[level]))
        promise += _promise(np.where(same[level], 0, suffixes[level]))
    promise += _promise(facts.shared[-1] * (facts.digits + 1))
    least = _LEAST_SLICE + levels * _LEAST_LEVEL
    # What single levels and affixes promise adds up only roughly: of few domains more cuts are looked at.
    cuts = np.flatnonzero(promise >= (least // 3 if len(promise) <= _MANY else least))
    if len(cuts) > _MANY:
        cuts = cuts[promise[cuts] >= 2 * least]
    if len(cuts) > room:
        cuts = cuts[np.argsort(-promise[cuts], kind="stable")[:room]]
    return np.sort(cuts)


def _split_long(cuts: Ints, total: int) -> Ints:
    """With a cut more wherever MAX_ROOTS domains stand without one."""
    begins, ends = np.append(0, cuts), np.append(cuts, total)
    more = [np.arange(begins[i] + MAX_ROOTS, ends[i], MAX_ROOTS) for i in np.flatnonzero(ends - begins > MAX_ROOTS)]
    return np.sort(np.concatenate([cuts, *more])) if more else cuts


def _promise(shared: Ints) -> Ints:
    """For each domain, what the runs that end before it and begin with it would save by being slices of their own.

    A run is all that share at least so much with each other; its affix must be written once.
    """
    total = len(shared)
    if not shared.any():
        return np.zeros(total, np.int64)
    ending, beginning = np.zeros(total, np.int64), np.zeros(total, np.int64)
    cuts = np.arange(1, total)
    for depth in np.unique(shared[1:])[::-1]:
        cuts = cuts[shared[cuts] < depth]
        borders = np.concatenate([[0], cuts, [total]])
        sizes = borders[1:] - borders[:-1]
        large = sizes * depth > _LEAST_LEVEL
        for target, runs, size in (
            (ending, np.flatnonzero(large[:-1]), sizes[:-1]),
            (beginning, np.flatnonzero(large[1:]), sizes[1:]),
        ):
            at = cuts[runs]
            target[at] = np.maximum(target[at], size[runs] * (depth - shared[at]) - depth - AFFIX_BYTES)
    return ending + beginning


def _find_hostname_runs(column: Column) -> Ints:
    """Cuts between values of which the stems differ."""
    stems, prefixes = column.stems, column.prefixes[1:]
    return np.flatnonzero((prefixes < stems[1:]) | (prefixes < stems[:-1])) + 1


def _choose_best(blocks: _Facts, candidates: Ints) -> Ints:
    """The cuts that save most: the best up to the end of a block is the best up to some block before, and one slice of the rest."""
    total, span = len(blocks.sizes), min(len(blocks.sizes), _LOOK_BACK)
    saved = _saved_by_span(blocks, span)
    best = np.zeros(total + 1, np.int64)
    origin = np.zeros(total + 1, np.int64)
    for end in range(1, total + 1):
        begin = max(0, end - span)
        options = best[begin:end] + saved[end - 1, begin - end :]
        choice = options.argmax()
        origin[end], best[end] = begin + choice, options[choice]
    cuts = []
    at = int(origin[total])
    while at:
        cuts.append(int(candidates[at - 1]))
        at = int(origin[at])
    return np.array(cuts[::-1], np.int64)


def _saved_by_span(blocks: _Facts, span: int) -> Ints:
    """What slices of up to `span` blocks save: a row for the block it ends with, the last entry a slice of that block alone."""
    total = len(blocks.sizes)
    ends = np.cumsum(blocks.sizes)
    before = ends - blocks.sizes
    across = np.minimum(blocks.shared, blocks.inner)
    common = blocks.inner
    saved = np.zeros((total, span), np.int64)
    for further in range(span):
        if further:
            common = np.minimum(common[:, :-1], across[:, further:])
        kept = total - further
        sizes = ends[further:] - before[:kept]
        figures = _saved_by_slices(sizes, common, blocks.lengths[:, :kept], blocks.digits[:kept])
        saved[further:, -1 - further] = np.where(sizes <= MAX_ROOTS, figures, _NEVER)
    return saved
