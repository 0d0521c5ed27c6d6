"""Choosing among candidates: what is selected from many is what sorting them all would give, and each algorithm keeps its rule."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.placement.algorithms import best_fit, candidates, least_free
from core.placement.algorithms.candidates import Candidates, Chosen, choose_tightest
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import NodeLabels, TopologyTree

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@st.composite
def choices(draw: st.DrawFn) -> Candidates:
    """Units, pods that are units and what is left over, and scores perhaps."""
    units = np.array(draw(COUNTS))
    pods = (
        units if draw(st.booleans()) else units * 2 + np.array(draw(st.lists(st.integers(0, 1), min_size=len(units), max_size=len(units))))
    )
    scores = np.array(draw(st.lists(st.integers(0, 2), min_size=len(units), max_size=len(units)))) if draw(st.booleans()) else None
    return Candidates(units, pods, scores)


def as_pairs(chosen: Chosen | None) -> list[tuple[int, int]] | None:
    return None if chosen is None else list(zip(chosen[0].tolist(), chosen[1].tolist(), strict=True))


def score(among: Candidates, place: int) -> int:
    return 0 if among.scores is None else int(among.scores[place])


@given(choices(), st.integers(1, 12))
def test_the_tightest_is_the_first_by_score_then_units_then_pods_then_place(among: Candidates, wanted: int):
    holds = [i for i, units in enumerate(among.units.tolist()) if units >= wanted]
    best = min(holds, key=lambda i: (-score(among, i), among.units[i], among.pods[i], i), default=None)
    assert among.find_tightest(wanted) == best
    assert as_pairs(choose_tightest(among, wanted)) == (None if best is None else [(best, wanted)])
    even = np.arange(len(among.units)) % 2 == 0
    assert among.find_tightest(wanted, even) == min(
        (i for i in holds if i % 2 == 0), key=lambda i: (-score(among, i), among.units[i], among.pods[i], i), default=None
    )


@given(choices(), st.integers(0, 40))
def test_best_fit_takes_the_largest_and_then_the_smallest_that_holds_the_rest(among: Candidates, wanted: int):
    left, rest, expected = list(range(len(among.units))), wanted, []
    while rest and left:
        first = min(left, key=lambda i: (-score(among, i), -among.units[i], among.pods[i], i))
        if among.units[first] >= rest:
            first = min((i for i in left if among.units[i] >= rest), key=lambda i: (-score(among, i), among.units[i], among.pods[i], i))
        taken = min(rest, int(among.units[first]))
        expected.append((first, taken))
        rest -= taken
        left.remove(first)
    assert as_pairs(best_fit.fill(among, wanted)) == (None if rest else expected)


@given(choices(), st.integers(0, 40))
def test_least_free_takes_the_smallest_first_unless_one_holds_all(among: Candidates, wanted: int):
    rest, expected = wanted, []
    for place in sorted(range(len(among.units)), key=lambda i: (-score(among, i), among.units[i], among.pods[i], i)):
        taken = min(rest, int(among.units[place]))
        if taken:
            expected.append((place, taken))
        rest -= taken
    assert as_pairs(least_free.fill(among, wanted)) == (None if rest else expected)
    if wanted:
        alone = choose_tightest(among, wanted)
        assert as_pairs(least_free.spread(among, wanted)) == (as_pairs(alone) if alone is not None else None if rest else expected)


@given(choices(), st.booleans())
def test_of_many_only_those_that_can_be_needed_are_sorted_and_these_in_the_same_order(among: Candidates, largest: bool):
    total = int(among.units.sum())
    everything = among.order_by_use(total, largest=largest).tolist()
    assert sorted(everything) == list(range(len(among.units)))
    for wanted in range(1, total + 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(candidates, "_FEW", 0)
            some = among.order_by_use(wanted, largest=largest)
        nonzero = [i for i in everything if among.units[i]]
        if among.scores is None:
            assert [i for i in some.tolist() if among.units[i]] == nonzero[: int((among.units[some] > 0).sum())]
        assert among.units[some].sum() >= wanted


def test_few_of_many_are_sorted():
    """Three thousand domains of up to nine units, of which a hundred are wanted."""
    units = np.arange(3000) % 10
    among = Candidates(units, units)
    assert len(among.order_by_use(100, largest=True)) == 300
    assert len(among.order_by_use(100, largest=False)) == 300
    assert len(Candidates(units * 1000, units).order_by_use(100, largest=True)) == 3000  # too many sizes to count by size


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_many_parents_are_filled_at_once_as_each_would_be_alone(families: list[list[int]], data: st.DataObject):
    wanted = [data.draw(st.integers(0, sum(family))) for family in families]
    units = np.array([count for family in families for count in family])
    parents = np.array([place for place, family in enumerate(families) for _ in family])
    all_at_once = as_pairs(least_free.fill_each(Candidates(units, units), parents, np.array(wanted)))
    first, expected = 0, []
    for family, count in zip(families, wanted, strict=True):
        alone = as_pairs(least_free.fill(Candidates(np.array(family), np.array(family)), count))
        assert alone is not None
        expected += [(first + place, taken) for place, taken in alone]
        first += len(family)
    assert all_at_once == expected


# --- pods per node ---------------------------------------------------------------------------------------


def test_counts_of_nodes_read_like_pairs_of_names_and_numbers():
    tree = TopologyTree(["r"], [NodeLabels(f"n{i}", {"r": "a"}) for i in range(4)])
    counts = NodeCounts(tree, np.array([0, 2, 3]), np.array([5, 6, 7]))
    pairs = [("n0", 5), ("n2", 6), ("n3", 7)]
    assert len(counts) == 3
    assert list(counts) == pairs
    assert counts.list_names() == ["n0", "n2", "n3"]
    assert [counts[0], counts[-1]] == [pairs[0], pairs[-1]]
    assert [type(each) for each in counts[1]] == [str, int]
    for first, last in combinations(range(4), 2):
        assert list(counts[first:last]) == pairs[first:last]
    assert repr(counts) == repr(tuple(pairs))


def test_counts_of_nodes_are_equal_where_the_pairs_are():
    tree = TopologyTree(["r"], [NodeLabels(f"n{i}", {"r": "a"}) for i in range(4)])
    other_tree = TopologyTree(["r"], [NodeLabels(f"n{i}", {"r": "a"}) for i in range(3)])
    counts = NodeCounts(tree, np.array([0, 2]), np.array([5, 6]))
    same = NodeCounts(other_tree, np.array([0, 2]), np.array([5, 6]))
    assert counts == same == (("n0", 5), ("n2", 6))
    assert hash(counts) == hash(same) == hash((("n0", 5), ("n2", 6)))
    assert counts == NodeCounts(tree, np.array([0, 2]), np.array([5, 6]))
    assert counts != NodeCounts(tree, np.array([0, 1]), np.array([5, 6]))
    assert counts != NodeCounts(tree, np.array([0, 2]), np.array([5, 7]))
    assert counts != NodeCounts(other_tree, np.array([0, 2]), np.array([5, 7]))
    assert counts != {"n0": 5, "n2": 6}
