"""Places that are given up: as many as pods come no more, and none that a pod still comes to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.model.places import give_up

PLACES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6)


def test_places_of_pods_that_have_succeeded_go_first_then_the_last():
    assert give_up([2, 2, 2], [0, 1, 0], 2) == [0, 1, 1]
    assert give_up([2, 2, 2], [3, 0, 0], 1) == [1, 0, 0]
    assert give_up([0, 1], [4, 0], 3) == [0, 1]
    assert give_up([], [], 3) == []


@given(PLACES, st.integers(0, 20))
def test_what_is_given_up_was_empty_and_is_no_more_than_is_over(places: list[tuple[int, int]], surplus: int):
    empty, ended = [here for here, _ in places], [done for _, done in places]
    given_up = give_up(empty, ended, surplus)
    assert all(0 <= less <= here for less, here in zip(given_up, empty, strict=True))
    assert sum(given_up) == min(surplus, sum(empty))
    usable = [min(pair) for pair in places]
    assert sum(min(less, done) for less, done in zip(given_up, usable, strict=True)) == min(surplus, sum(usable))


@given(PLACES, st.integers(0, 20))
def test_a_place_once_given_up_stays_so_while_more_pods_are_over(places: list[tuple[int, int]], surplus: int):
    empty, ended = [here for here, _ in places], [min(pair) for pair in places]
    before, after = give_up(empty, ended, surplus), give_up(empty, ended, surplus + 1)
    assert all(one <= other for one, other in zip(before, after, strict=True))
