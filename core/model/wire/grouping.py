"""Where to cut an assignment into slices so that its JSON is shortest; the order of domains stays.

A slice pays for its frame and saves what its domains share: a value or a count that all have stands
once, a prefix or suffix stands once instead of in every root. Compared by what they save are one
slice, runs of hostnames with the same prefix up to the last dash, and the best choice among the cuts
that promise most, which dynamic programming finds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from core.model.wire.affixes import Column, Ints, compute_column
from core.model.wire.paying_cuts import compute_promise
from core.model.wire.savings import (
    AFFIX_BYTES,
    LEAST_LEVEL,
    LEAST_SLICE,
    MAX_LENGTH,
    QUOTES,
    Common,
    can_cut_pay,
    compute_least_frame,
    compute_saved,
    compute_saved_by_slices,
    count_digits,
    split_rows,
)

MAX_SLICES = 1000
MAX_ROOTS = 100_000

_MANY = 256  # cuts, from which on each must promise twice the least slice: between many like runs, each pays one
_ASK = 2048  # domains up to which asking whether any cut can pay is cheap beside looking for cuts
_LOOK_BACK = 160  # blocks that one slice of a choice may span: one more costs time and, where so many promise something, hardly pays
_ROWS = 64  # blocks for which all slices that end with them are compared at once: arrays that stay in the cache
_NEVER = -(2**40)
_NO_CUTS = np.zeros(0, np.int64)


class SlicePart(NamedTuple):
    """Domains of one slice, and what they share per level."""

    begin: int
    end: int
    common: tuple[Common, ...]


@dataclass(frozen=True, slots=True)
class _Domains:
    """Domains, and what each shares with the one before.

    `lengths` are characters of the values, per level, `digits` those of the counts. The rows of `shared` are those of
    `Column.shared`, level after level, and 1 where counts are the same; affixes are no longer than a slice may have them.
    """

    lengths: Ints
    digits: Ints
    shared: Ints


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Runs of domains: `lengths` and `digits` of the first of each, what is common `inside`, and `shared` with the block before."""

    begins: Ints
    sizes: Ints
    lengths: Ints
    digits: Ints
    inside: Ints
    shared: Ints


@dataclass(frozen=True, slots=True)
class _Choice:
    """Slices that begin at 0 and at the cuts, what is common inside each, and what all of them save."""

    cuts: Ints
    inside: Ints
    saved: int


def choose_parts(columns: Sequence[Sequence[str]], counts: Sequence[int]) -> list[SlicePart]:
    """Returns the slices that make the JSON short, in order and with all domains: at most MAX_SLICES, each of at most MAX_ROOTS domains. It
    is the best choice that was found, not always the shortest. `columns` has the values of all domains for each level, `counts` the pods of
    each domain; there must be a domain."""
    levels = [compute_column(values) for values in columns]
    domains = _compare_neighbours(levels, np.array(counts, np.int64))
    most = _compute_most_saved(domains)
    whole = _split_long(_NO_CUTS, len(counts))
    if len(whole):
        best = _weigh(domains, whole)
    else:
        inside = domains.shared.min(axis=1, keepdims=True)
        best = _Choice(whole, inside, compute_saved(columns, _list_common(inside[:, 0]), counts))
    ask = len(counts) <= _ASK and domains.lengths.max() <= MAX_LENGTH
    if not ask or can_cut_pay(most.tolist(), best.saved, len(columns)):
        best = _search(domains, levels[-1], most, best)
    borders = [0, *best.cuts.tolist(), len(counts)]
    return [SlicePart(*part, _list_common(inside)) for part, inside in zip(pairwise(borders), best.inside.T, strict=True)]


def _search(domains: _Domains, hostnames: Column, most: Ints, whole: _Choice) -> _Choice:
    best, total = whole, len(domains.digits)
    candidates = _split_long(_find_promising(domains, MAX_SLICES - 1 - len(whole.cuts)), total)
    if len(candidates) > len(whole.cuts):
        best = max(best, _choose_best(_group(domains, candidates)), key=attrgetter("saved"))
    runs = _split_long(_find_hostname_runs(hostnames), total)
    if len(whole.cuts) < len(runs) < MAX_SLICES:
        at_most = most.sum() - most[runs - 1].sum() - (len(runs) + 1) * compute_least_frame(len(domains.lengths))
        if at_most > best.saved:
            best = max(best, _weigh(domains, runs), key=attrgetter("saved"))
    return best


def _list_common(inside: Ints) -> tuple[Common, ...]:
    rows = inside.tolist()
    return tuple(Common(rows[at], rows[at + 1], rows[at + 2], bool(rows[at + 3])) for at in range(0, len(rows) - 1, 4))


def _compare_neighbours(levels: Sequence[Column], counts: Ints) -> _Domains:
    shared = np.concatenate([*(column.shared for column in levels), counts[None]])
    np.equal(counts[1:], counts[:-1], out=shared[-1, 1:])
    shared[-1, 0] = 1
    affixes = split_rows(shared, len(levels))[:2]
    np.minimum(affixes, MAX_LENGTH, out=affixes)
    return _Domains(np.array([column.lengths for column in levels]), count_digits(counts), shared)


def _compute_most_saved(domains: _Domains) -> Ints:
    """For every two neighbours, the most that the second saves in a slice with the first."""
    prefixes, suffixes, shorter, same = split_rows(domains.shared, len(domains.lengths))
    by_level = np.where(same, domains.lengths + QUOTES, np.minimum(prefixes + suffixes, shorter))
    most: Ints = by_level.sum(axis=0) + domains.shared[-1] * (domains.digits + 1)
    return most[1:]


def _group(domains: _Domains, cuts: Ints) -> _Blocks:
    """The blocks between the cuts."""
    begins = np.concatenate([[0], cuts])
    lengths = domains.lengths[:, begins]
    # What the first of a block shares with the one before is no matter of the block.
    within = domains.shared.copy()
    within[:, begins] = 1
    prefixes, suffixes, shorter, _ = split_rows(within, len(lengths))
    shorter[:, begins] = lengths
    prefixes[:, begins] = suffixes[:, begins] = np.minimum(lengths, MAX_LENGTH)
    inside = np.minimum.reduceat(within, begins, axis=1)
    sizes = np.append(cuts, len(domains.digits)) - begins
    return _Blocks(begins, sizes, lengths, domains.digits[begins], inside, domains.shared[:, begins])


def _weigh(domains: _Domains, cuts: Ints) -> _Choice:
    parts = _group(domains, cuts)
    saved = compute_saved_by_slices(parts.sizes, parts.inside, parts.lengths, parts.digits)
    return _Choice(cuts, parts.inside, int(saved.sum()))


def _find_promising(domains: _Domains, room: int) -> Ints:
    """Cuts at the ends of runs that share more with each other than with what is around them: those that promise most."""
    levels = len(domains.lengths)
    prefixes, suffixes, _, same = split_rows(domains.shared, levels)
    kinds = [np.where(same, domains.lengths + (QUOTES + AFFIX_BYTES), prefixes), np.where(same, 0, suffixes)]
    kinds.append(domains.shared[-1:] * (domains.digits + 1))
    promise = compute_promise(np.concatenate(kinds)[:, 1:])
    least = LEAST_SLICE + levels * LEAST_LEVEL
    # The savings of single levels and affixes add up only roughly: with few domains more cuts are tried.
    cuts = (promise >= (least // 3 if len(domains.digits) <= _MANY else least)).nonzero()[0]
    if len(cuts) > _MANY:
        cuts = cuts[promise[cuts] >= 2 * least]
    if len(cuts) > room:
        cuts = np.sort(cuts[np.argsort(-promise[cuts], kind="stable")[:room]])
    return cuts + 1


def _split_long(cuts: Ints, total: int) -> Ints:
    """With a cut more wherever MAX_ROOTS domains stand without one."""
    if total <= MAX_ROOTS:
        return cuts
    begins, ends = np.append(0, cuts), np.append(cuts, total)
    more = [np.arange(begins[i] + MAX_ROOTS, ends[i], MAX_ROOTS) for i in np.flatnonzero(ends - begins > MAX_ROOTS)]
    return np.sort(np.concatenate([cuts, *more]))


def _find_hostname_runs(column: Column) -> Ints:
    """Returns cuts between values with different stems."""
    stems = column.compute_stems()
    return (column.shared[0, 1:] < np.maximum(stems[1:], stems[:-1])).nonzero()[0] + 1


def _choose_best(blocks: _Blocks) -> _Choice:
    """The cuts that save most: the best up to the end of a block is the best up to some block before, and one slice of the rest."""
    total, span = len(blocks.sizes), min(len(blocks.sizes), _LOOK_BACK)
    windows = _list_windows(blocks, span)
    # With impossible ends before the first, as many as a slice may span.
    best = np.full(total + span, _NEVER, np.int64)
    best[span - 1] = 0
    origin, inside = [], []
    for end in range(total):
        if end % _ROWS == 0:
            saved, common = _compare_spans(blocks, windows[:, end : end + _ROWS], end)
        options = best[end : end + span] + saved[end % _ROWS]
        choice = int(options.argmax())
        best[end + span] = options[choice]
        origin.append(end - span + 1 + choice)
        inside.append(common[:, end % _ROWS, choice])
    ends = [total]
    while origin[ends[-1] - 1]:
        ends.append(origin[ends[-1] - 1])
    ends.reverse()
    return _Choice(blocks.begins[ends[:-1]], np.array([inside[end - 1] for end in ends]).T, int(best[-1]))


def _list_windows(blocks: _Blocks, span: int) -> Ints:
    """Returns, for each block, the facts about it and those before it.

    Rows as in `inside`, of a block and the border behind it; then lengths, digits and where it begins.
    """
    known, total = len(blocks.inside), len(blocks.sizes)
    rows = np.zeros((known + len(blocks.lengths) + 2, total + span - 1), np.int64)
    facts = rows[:, span - 1 :]
    facts[:known] = blocks.inside
    np.minimum(blocks.inside[:, :-1], blocks.shared[:, 1:], out=facts[:known, :-1])
    facts[known:-2] = blocks.lengths
    facts[-2], facts[-1] = blocks.digits, blocks.begins
    return np.ndarray((len(rows), total, span), np.int64, rows, strides=(*rows.strides, rows.itemsize))


def _compare_spans(blocks: _Blocks, windows: Ints, first: int) -> tuple[Ints, Ints]:
    """Of slices that end with each of some blocks, what they save and what is common to them.

    The last entry for a block is the slice of that block alone; the first blocks begin with impossible ones.
    """
    known, ending = len(blocks.inside), slice(first, first + windows.shape[1])
    common = windows[:known].copy()
    common[:, :, -1] = blocks.inside[:, ending]
    backwards = common[:, :, ::-1]
    np.minimum.accumulate(backwards, axis=2, out=backwards)
    sizes = (blocks.begins + blocks.sizes)[ending, None] - windows[-1]
    saved = compute_saved_by_slices(sizes, common, windows[known:-2], windows[-2])
    saved[sizes > MAX_ROOTS] = _NEVER
    return saved, common
