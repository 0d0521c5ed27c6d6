"""Places that are given up: those of pods that have ended, and none that a pod still comes to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.model.places import count_ended_since, give_up

PLACES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6)


def test_places_of_pods_that_have_succeeded_go_and_no_others():
    assert give_up([2, 2, 2], [0, 1, 0], 2) == [0, 1, 0]
    assert give_up([2, 2, 2], [3, 0, 0], 1) == [1, 0, 0]
    assert give_up([0, 1], [4, 1], 3) == [0, 1]
    assert give_up([1, 1], [0, 0], 2) == [0, 0]
    assert give_up([], [], 3) == []


@given(PLACES, st.integers(0, 20))
def test_given_up_places_are_empty_and_at_most_the_surplus(places: list[tuple[int, int]], surplus: int):
    empty, ended = [here for here, _ in places], [done for _, done in places]
    given_up = give_up(empty, ended, surplus)
    usable = [min(pair) for pair in places]
    assert all(0 <= less <= here for less, here in zip(given_up, usable, strict=True))
    assert sum(given_up) == min(surplus, sum(usable))


@given(PLACES, st.integers(0, 20))
def test_a_place_once_given_up_stays_so_while_more_pods_are_over(places: list[tuple[int, int]], surplus: int):
    empty, ended = [here for here, _ in places], [min(pair) for pair in places]
    before, after = give_up(empty, ended, surplus), give_up(empty, ended, surplus + 1)
    assert all(one <= other for one, other in zip(before, after, strict=True))


def test_of_pods_that_have_succeeded_the_eldest_ran_under_an_earlier_admission():
    ended = [("2026-01-01T00:00:09Z", "b"), ("2026-01-01T00:00:01Z", "a"), ("2026-01-01T00:00:08Z", "b")]
    assert count_ended_since(ended, 0) == {"a": 1, "b": 2}
    assert count_ended_since(ended, 1) == {"b": 2}
    assert count_ended_since(ended, 5) == {}
    assert count_ended_since(ended, -1) == {"a": 1, "b": 2}
