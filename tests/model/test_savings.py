"""The figures that cuts of an encoded assignment are chosen by: each is what the JSON says, or its definition done slowly."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.wire import encoding, grouping, paying_cuts
from core.model.wire.affixes import compute_column
from core.model.wire.assignment import TopologyAssignment
from core.model.wire.grouping import SlicePart
from core.model.wire.savings import AFFIX_BYTES, LEAST_LEVEL, Common, choose_affixes, compute_saved, count_digits
from tests.model.test_encoding_size import pools


def compute_size(wire: object) -> int:
    return len(json.dumps(wire, separators=(",", ":"), ensure_ascii=False))


def compute_columns(assignment: TopologyAssignment) -> tuple[list[list[str]], list[int]]:
    columns = [list(values) for values in zip(*(domain.values for domain in assignment.domains), strict=True)]
    return columns, [domain.count for domain in assignment.domains]


def compute_domains(columns: list[list[str]], counts: list[int]) -> grouping._Domains:
    return grouping._compare_neighbours([compute_column(values) for values in columns], np.array(counts))


@given(pools(), st.data())
def test_computed_savings_of_slices_equal_the_difference_of_json_lengths(assignment, data):
    columns, counts = compute_columns(assignment)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(counts) - 1), max_size=4))) if len(counts) > 1 else []
    written_out = sum(len(value) + len('"",') for values in columns for value in values) + sum(len(f"{count},") for count in counts)
    choice = grouping._weigh(compute_domains(columns, counts), np.array(cuts, np.int64))
    borders = [0, *cuts, len(counts)]
    parts = [SlicePart(*part, grouping._list_common(inside)) for part, inside in zip(pairwise(borders), choice.inside.T, strict=True)]
    slices = [encoding._encode_slice(columns, counts, part) for part in parts]
    assert choice.saved == written_out - sum(compute_size(wire) + len(",") for wire in slices)
    if not cuts:
        assert compute_saved(columns, parts[0].common, counts) == choice.saved
        assert parts[0].common == tuple(map(encoding._get_common, columns))


@pytest.mark.parametrize(
    ("left", "right", "counts", "shared"),
    [
        ("n1", "n1", (3, 3), len('"n1",') + len("3,")),
        ("n1", "n1", (10, 10), len('"n1",') + len("10,")),
        ("rack-1-a", "rack-2-a", (1, 2), len("rack-") + len("-a")),
        ("aa", "aaa", (1, 2), 2),
        ("x", "y", (1, 2), 0),
    ],
)
def test_shared_part_of_two_neighbours_is_as_listed(left: str, right: str, counts: tuple[int, int], shared: int):
    assert grouping._compute_most_saved(compute_domains([[left, right]], list(counts))).tolist() == [shared]


@given(st.integers(1, 40), st.integers(0, 20), st.integers(0, 20), st.integers(1, 63))
def test_affixes_are_those_that_save_most(further: int, prefix: int, suffix: int, shortest: int):
    prefix, suffix = min(prefix, shortest), min(suffix, shortest)

    def saved(first: int, last: int) -> int:
        return further * (first + last) - AFFIX_BYTES * ((first > 0) + (last > 0))

    ways = [(first, last) for first in range(prefix + 1) for last in range(suffix + 1) if first + last <= shortest]
    chosen = choose_affixes(further, Common(prefix, suffix, shortest, False))
    assert chosen in ways
    assert saved(*chosen) == max(saved(*way) for way in ways)


def test_roots_longer_than_a_label_are_cut_by_all_that_is_common():
    assert choose_affixes(1, Common(3, 0, 64, False)) == (3, 0)
    assert choose_affixes(1, Common(3, 4, 64, False)) == (3, 4)
    assert choose_affixes(1, Common(3, 0, 63, False)) == (0, 0)
    assert choose_affixes(1, Common(3, 4, 63, False)) == (0, 0)


@given(st.lists(st.integers(0, 10**18), min_size=1))
def test_digits_are_counted(numbers: list[int]):
    assert count_digits(np.array(numbers)).tolist() == [len(str(number)) for number in numbers]
    powers = [10**power + more for power in range(19) for more in (-1, 0)]
    assert count_digits(np.array(powers)).tolist() == [len(str(number)) for number in powers]


# --- what promises to pay --------------------------------------------------------------------------------


def compute_promise(shared: list[int]) -> list[int]:
    """By the definition: the best of all depths, of the run that ends between two neighbours and of the one that begins there."""

    def best(here: int, behind: list[int]) -> int:
        found = [0]
        for depth in range(here + 1, max(shared) + 1):
            run = 1 + next((i for i, more in enumerate(behind) if more < depth), len(behind))
            if run * depth > LEAST_LEVEL:
                found.append(run * (depth - here) - depth - AFFIX_BYTES)
        return max(found)

    return [best(here, shared[:i][::-1]) + best(here, shared[i + 1 :]) for i, here in enumerate(shared)]


DEPTHS = st.integers(0, 30) | st.sampled_from([0, 5, 6])


@given(st.lists(st.lists(DEPTHS, min_size=12, max_size=12), min_size=1, max_size=3), st.booleans())
def test_promise_of_a_cut_is_the_sum_of_savings_of_both_sides(shared: list[list[int]], many: bool):
    expected = np.sum([compute_promise(row) for row in shared], axis=0).tolist()
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(paying_cuts, "_FEW", 0)
        assert paying_cuts.compute_promise(np.array(shared)).tolist() == expected


# --- what neighbours have in common ------------------------------------------------------------------------


WORDS = st.lists(st.text("ab-0\0é", max_size=6), min_size=1, max_size=6)


def count_common(left: str, right: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


@given(WORDS)
def test_each_value_of_a_column_is_compared_with_the_one_before(values: list[str]):
    column = compute_column(values)
    assert column.lengths.tolist() == [len(value) for value in values]
    expected = [
        (count_common(left, right), count_common(left[::-1], right[::-1]), min(len(left), len(right)), int(left == right))
        for left, right in zip([values[0], *values], values, strict=False)
    ]
    assert [tuple(row) for row in column.shared.T.tolist()] == expected


@given(st.lists(st.text("ab-", min_size=1, max_size=6), min_size=1, max_size=6))
def test_column_stem_ends_at_the_last_dash_before_the_common_suffix(values: list[str]):
    column = compute_column(values)
    suffix = min(count_common(left[::-1], right[::-1]) for left, right in zip([values[0], *values], values, strict=False))
    assert column.compute_stems().tolist() == [value[: len(value) - suffix].rfind("-") + 1 for value in values]
