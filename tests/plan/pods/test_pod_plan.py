"""Which pods of a group start, by what is left of those that were admitted."""

from __future__ import annotations

from typing import Any

from core.names import ADMISSION_GATE
from core.plan.pods.pod_plan import plan_start


def build_pod(name: str, phase: str = "Pending", *, gated: bool = False) -> tuple[dict[str, Any], str]:
    metadata = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "metadata": metadata,
        "spec": {"schedulingGates": [{"name": ADMISSION_GATE}] if gated else []},
        "status": {"phase": phase},
    }, "main"


def test_the_place_of_a_pod_that_has_been_reclaimed_is_not_given_again_though_the_pod_is_gone() -> None:
    """A user may delete a pod that has succeeded, and take our finalizer off it."""
    pods = [build_pod("runs", "Running"), build_pod("late", gated=True)]
    plan = plan_start({"main": 2}, pods, deletes_excess=True, reclaimed={"main": 1})
    assert plan.start == ()
    assert [each["metadata"]["name"] for each in plan.excess] == ["late"]
    assert [each["metadata"]["name"] for each, _ in plan_start({"main": 2}, pods, deletes_excess=True).start] == ["late"]


def test_one_that_fails_is_replaced_beside_one_that_has_been_reclaimed() -> None:
    pods = [build_pod("done", "Succeeded"), build_pod("failed", "Failed"), build_pod("late", gated=True)]
    plan = plan_start({"main": 2}, pods, deletes_excess=True, reclaimed={"main": 1})
    assert [each["metadata"]["name"] for each, _ in plan.start] == ["late"]
