"""Conditions that are reported of a Workload: when each is written, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.names import BORROWED_SPARES, PLACEMENT_KEPT, PODS_SCHEDULABLE, RANK_ORDER_KEPT, SPARES, SPARES_HELD
from core.plan.steps.steps import Overtaken, Step
from core.plan.steps.writes import Apply, Guard, Patch
from core.plan.workloads.drift import Drift, DriftKind
from core.plan.workloads.reports import name_spares, report_drift, report_rank_order, report_spares, report_stuck, restore_borrowed
from core.queueing.cycle.kept_spares import KeptSpares
from core.state.facts import PodFacts
from tests.builders import build_pod_set_json, build_workload_json

Json = dict[str, Any]
Report = Callable[[Json], Step | None]
NOW = "2026-02-02T00:00:00Z"
DRIFTS = (Drift(DriftKind.SPLIT, "pods run in two racks"), Drift(DriftKind.OUTSIDE, "a pod is outside"))
HELD = KeptSpares("main", 1, ("n1",), (), 2)
MISSING = KeptSpares("main", 2, ("n1",), (), 2)


def build_waiting_pod(name: str, why: str = "") -> PodFacts:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}]
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return PodFacts.read({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Pending", "conditions": conditions}})


def build_stuck_pods(count: int) -> list[tuple[str, PodFacts]]:
    return [(f"n{index}", build_waiting_pod(f"p{index}", "no room")) for index in range(count)]


def make_workload() -> Json:
    return build_workload_json("w", [build_pod_set_json(count=2)])


def make_workload_with(kind: str) -> Json:
    """A workload with a condition that does not hold any more."""
    workload = make_workload()
    workload["status"]["conditions"] = [{"type": kind, "status": "Unknown", "reason": "Before", "message": "before"}]
    return workload


def read(step: Step | None) -> Json:
    """The condition that a step writes."""
    assert step is not None
    assert isinstance(step.write, Apply)
    assert (step.write.guard, step.passes) == (Guard.SAME, frozenset({Overtaken.GONE}))
    (condition,) = step.write.body["status"]["conditions"]
    return dict(condition)


@pytest.mark.parametrize(
    ("report", "kind", "status", "reason", "says"),
    [
        (lambda w: report_drift(w, DRIFTS, NOW, runs=True), PLACEMENT_KEPT, "False", "Split", "pods run in two racks; a pod is outside"),
        (
            lambda w: report_stuck(w, build_stuck_pods(1), NOW),
            PODS_SCHEDULABLE,
            "False",
            "Unschedulable",
            "pod p0",
        ),
        (lambda w: report_stuck(w, build_stuck_pods(5), NOW), PODS_SCHEDULABLE, "False", "Unschedulable", "2 more pods"),
        (lambda w: report_spares(w, [HELD], NOW), SPARES_HELD, "True", "Held", "1 of 1 spare node"),
        (lambda w: report_spares(w, [HELD, MISSING], NOW), SPARES_HELD, "False", "Missing", "1 of 2 spare nodes"),
        (
            lambda w: report_rank_order(w, {"b": "no rank", "a": "twice"}, NOW, kept=True),
            RANK_ORDER_KEPT,
            "False",
            "RankOrderBroken",
            "pod set a: twice; pod set b: no rank",
        ),
        (lambda w: report_rank_order(w, {}, NOW, kept=True), RANK_ORDER_KEPT, "True", "RankOrderKept", ""),
    ],
)
def test_condition_is_written_once(report: Report, kind: str, status: str, reason: str, says: str):
    workload = make_workload()
    condition = read(report(workload))
    assert (condition["type"], condition["status"], condition["reason"], condition["lastTransitionTime"]) == (kind, status, reason, NOW)
    assert says in condition["message"]
    workload["status"]["conditions"] = [condition]
    assert report(workload) is None


@pytest.mark.parametrize(
    ("report", "kind", "status"),
    [
        (lambda w: report_drift(w, (), NOW, runs=True), PLACEMENT_KEPT, "True"),
        (lambda w: report_drift(w, (), NOW, runs=False), PLACEMENT_KEPT, "True"),
        (lambda w: report_stuck(w, (), NOW), PODS_SCHEDULABLE, "True"),
        (lambda w: report_stuck(w, (), NOW, runs=False), PODS_SCHEDULABLE, "True"),
        (lambda w: report_spares(w, None, NOW), SPARES_HELD, "False"),
    ],
)
def test_end_of_a_problem_is_written_only_where_there_was_one(report: Report, kind: str, status: str):
    assert report(make_workload()) is None
    assert read(report(make_workload_with(kind)))["status"] == status


def test_workload_without_ranks_says_nothing_of_them():
    assert report_rank_order(make_workload(), {}, NOW, kept=False) is None


def test_stuck_pods_are_an_event_and_a_warning_in_the_log():
    step = report_stuck(make_workload(), build_stuck_pods(1), NOW)
    assert step is not None
    assert [(event.reason, event.warning) for event in step.events] == [("Unschedulable", True)]
    assert step.log is not None
    assert step.log.warning


def test_spares_are_named_and_borrowed_nodes_restored_on_the_workload():
    written = [name_spares(make_workload(), '{"main":["n1"]}', [HELD]).write, restore_borrowed(make_workload(), '{"main":["n2"]}').write]
    assert all(isinstance(write, Patch) and write.guard is Guard.AS_SEEN for write in written)
    bodies = [write.body["metadata"]["annotations"] for write in written if isinstance(write, Patch)]
    assert bodies == [{SPARES: '{"main":["n1"]}'}, {BORROWED_SPARES: '{"main":["n2"]}'}]
