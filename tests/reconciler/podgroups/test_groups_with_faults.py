"""The reconciler of groups of pods after an error of its own in the middle of a step."""

from __future__ import annotations

import pytest

from tests.reconciler.harness_groups import GroupsHarness


def with_a_step_that_raised() -> GroupsHarness:
    """A gang of two pods: that their places are kept was decided, and none was written."""
    harness = GroupsHarness({"r1": (2,)})
    harness.gang(2)
    harness.add("a", "b")

    def break_off(what: str, name: str) -> None:
        raise RuntimeError("odd")

    harness.on_step = break_off
    with pytest.raises(RuntimeError):
        harness.look()
    harness.steps.clear()
    harness.on_step = lambda what, name: None
    return harness


def test_places_of_a_step_that_raised_are_given_back_where_the_group_is_gone() -> None:
    """Former defect: they were kept until the process ended, and the nodes counted as full."""
    harness = with_a_step_that_raised()
    harness.drop("PodGroup", "g")
    harness.settle()
    assert harness.held() == {}


def test_gang_with_a_step_that_raised_gets_its_places_before_any_pod_is_let_go() -> None:
    harness = with_a_step_that_raised()
    harness.settle()
    assert [what for what, _ in harness.steps] == ["keep", "keep", "let go", "let go"]
    assert harness.where() == {"a": "r1-0", "b": "r1-0"}
