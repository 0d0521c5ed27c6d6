"""Covering, against every way to do it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.placement.algorithms.cover import _CALL, NEVER, OutOfSteps, SizeCosts, Steps, compute_fewest, cover, read_offer, trace


@st.composite
def step_functions(draw: st.DrawFn) -> SizeCosts:
    sizes = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=4)))
    rises = draw(st.lists(st.integers(1, 5), min_size=len(sizes), max_size=len(sizes)))
    return SizeCosts(np.array(sizes), np.cumsum(rises))


OFFERS = st.lists(step_functions(), min_size=1, max_size=4)


def find_cheapest(offers: list[SizeCosts], wanted: int) -> int:
    """Each offer left out or taken at one of its sizes, all ways tried."""
    options = [[(0, 0), *zip(offer.sizes.tolist(), offer.costs.tolist(), strict=True)] for offer in offers]
    costs = (sum(cost for _, cost in way) for way in product(*options) if sum(size for size, _ in way) >= wanted)
    return min(costs, default=NEVER)


@given(OFFERS, st.integers(0, 12))
def test_the_least_cost_of_holding_so_much_with_the_first_offers(offers: list[SizeCosts], wanted: int):
    tables = cover(offers, wanted, Steps(10**6))
    assert len(tables) == len(offers) + 1
    for count, table in enumerate(tables):
        assert [min(cost, NEVER) for cost in table.tolist()] == [find_cheapest(offers[:count], size) for size in range(wanted + 1)]


@given(OFFERS, st.integers(1, 12))
def test_traced_cover_holds_the_wanted_size_at_the_cheapest_cost(offers: list[SizeCosts], wanted: int):
    tables = cover(offers, wanted, Steps(10**6))
    if tables[-1][wanted] >= NEVER:
        return
    taken = trace(offers, tables, wanted)
    assert [place for place, _ in taken] == sorted({place for place, _ in taken})
    assert sum(size for _, size in taken) >= wanted
    costs = [int(offers[place].costs[int(np.searchsorted(offers[place].sizes, size))]) for place, size in taken]
    assert sum(costs) == find_cheapest(offers, wanted)


def test_of_equal_covers_the_one_without_the_last_is_traced():
    offers = [SizeCosts(np.array([2]), np.array([3]))] * 3
    assert trace(offers, cover(offers, 3, Steps(10**6)), 3) == [(0, 1), (1, 2)]  # and no more than is wanted
    assert trace(offers, cover(offers, 1, Steps(10**6)), 1) == [(0, 1)]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.booleans(), st.data())
def test_an_offer_is_read_from_costs_where_they_rise(rises: list[int], bounded: bool, data: st.DataObject):
    costs = np.cumsum([0, *rises])
    if not bounded:
        costs = np.append(costs, [NEVER, NEVER])
    most = data.draw(st.integers(1, len(costs) - 1))
    offer = read_offer(costs, most)
    sizes, least = offer.sizes.tolist(), offer.costs.tolist()
    assert all(cost < NEVER for cost in least)
    assert sorted({*least}) == least
    for size in range(1, most + 1):
        reached = [cost for held, cost in zip(sizes, least, strict=True) if held >= size]
        assert (reached[0] if reached else NEVER) == int(costs[size])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_so_few_capacities_hold_it(caps: list[int], data: st.DataObject):
    wanted = data.draw(st.integers(1, sum(caps)))
    count = compute_fewest(np.array(caps), wanted)
    assert sum(sorted(caps, reverse=True)[:count]) >= wanted > sum(sorted(caps, reverse=True)[: count - 1])


def test_steps_are_counted_in_cells_and_calls():
    steps = Steps(3 * _CALL + 10)
    steps.spend(4)
    steps.spend(6, 2)
    assert (steps.left, steps.spent) == (0, 3 * _CALL + 10)
    with pytest.raises(OutOfSteps):
        steps.expect(1, 0)
    other = Steps(2 * _CALL)
    other.expect(0, 2)
    with pytest.raises(OutOfSteps):
        other.spend(1, 2)
    assert other.spent == 0


def test_a_covering_costs_its_table_for_each_size_of_an_offer():
    steps = Steps(10**6)
    cover([SizeCosts(np.array([1, 2]), np.array([1, 2])), SizeCosts(np.array([3]), np.array([1]))], 4, steps)
    assert steps.spent == (2 + 1) * 5 + 2 * 4 * _CALL
