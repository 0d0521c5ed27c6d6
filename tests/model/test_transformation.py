"""How quota counts requests where a file says that some resources count as others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.configuration import ResourceRules, SecondPass, Transformation
from core.model.transformation import compute_quota_requests

MIG = Transformation("nvidia.com/mig-1g.5gb", False, {"example.com/gpu-memory": 5_000, "example.com/credits": 10_000})


@pytest.mark.parametrize(
    ("requests", "rules", "counted"),
    [
        ({"cpu": 1500}, ResourceRules(), {"cpu": 1500}),
        ({"cpu": 1500}, ResourceRules((), (Transformation("cpu", True, {"credits": 1000}),)), {"cpu": 1500, "credits": 2}),
        ({"cpu": 1500}, ResourceRules((), (Transformation("cpu", False, {"credits": 2000}),)), {"credits": 3}),
        ({"nvidia.com/mig-1g.5gb": 2}, ResourceRules((), (MIG,)), {"example.com/gpu-memory": 10, "example.com/credits": 20}),
        ({"gpu": 2}, ResourceRules((), (Transformation("gpu", True, {"cpu": 500}),)), {"gpu": 2, "cpu": 1000}),
        (  # what several inputs come to is summed, and not transformed again
            {"a": 1, "b": 2},
            ResourceRules((), (Transformation("a", False, {"b": 1000}), Transformation("b", True, {"c": 1000}))),
            {"b": 3, "c": 2},
        ),
        ({"gpu": 2, "cpu": 3000}, ResourceRules((), (Transformation("gpu", True, {"x": 1000}, "cpu"),)), {"gpu": 2, "x": 6, "cpu": 3000}),
        ({"gpu": 2}, ResourceRules((), (Transformation("gpu", True, {"x": 1000}, "cpu"),)), {"gpu": 2, "x": 2}),
        ({"gpu": 1}, ResourceRules((), (Transformation("gpu", False),)), {}),
        ({"example.com/x": 1, "cpu": 1}, ResourceRules(("example.com/",)), {"cpu": 1}),
        ({"x/gpu": 1}, ResourceRules(("x/",), (Transformation("x/gpu", True, {"y": 1000}),)), {}),
    ],
)
def test_transformed_requests_are_counted_by_the_resource_rules(
    requests: dict[str, int], rules: ResourceRules, counted: dict[str, int]
) -> None:
    assert compute_quota_requests(requests, rules) == counted


def test_fractions_are_rounded_up_once_for_a_pod() -> None:
    thirds = ResourceRules((), (Transformation("a", False, {"x": 333}), Transformation("b", False, {"x": 333})))
    assert compute_quota_requests({"a": 1, "b": 1}, thirds) == {"x": 1}
    assert compute_quota_requests({"a": 2, "b": 2}, thirds) == {"x": 2}


# --- the back-off of the second pass ------------------------------------------------------------------------


def test_pauses_double_until_the_workload_is_evicted() -> None:
    """Rule i of docs/decisions/0004."""
    assert [SecondPass().pause_s(attempt) for attempt in range(1, 7)] == [10, 20, 40, 80, None, None]
    assert [SecondPass(1, 10).pause_s(attempt) for attempt in range(1, 5)] == [1, 2, 4, None]


def test_the_time_of_the_next_attempt_follows_from_the_first_alone() -> None:
    found = [SecondPass().compute_wait_s(waited) for waited in (0, 4, 9.5, 10, 29, 30, 69, 70, 149, 150, 299, 1000)]
    assert found == [10, 6, 0.5, 20, 1, 40, 1, 80, 1, None, None, None]


@given(st.floats(0.1, 60), st.floats(1, 1000), st.floats(0, 2000))
def test_attempts_are_ahead_in_time_and_before_the_eviction(base: float, timeout: float, waited: float) -> None:
    left = SecondPass(base, timeout).compute_wait_s(waited)
    if left is not None:
        assert left > 0
        assert waited + left < timeout + 1e-6
