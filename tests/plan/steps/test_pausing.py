"""The one gate that admissions and evictions pass: what a write begins, and what a pause keeps from being written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.model.admission import Admission, PodSetAdmission
from core.model.pause_state import Pause, Stop
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import (
    REASON_ADMISSION_CHECK,
    REASON_DEACTIVATED,
    REASON_DEACTIVATED_BY_TIME,
    REASON_JOB_CHANGED,
    REASON_NODE_FAILURES,
    REASON_PODS_READY_TIMEOUT,
    REASON_QUEUE_STOPPED,
    REASON_SUSPENDED_BY_USER,
)
from core.plan.steps.conditions import Condition
from core.plan.steps.managed_status import read_managed_status
from core.plan.steps.pausing import find_held_eviction, find_stopped, has_effect
from core.plan.workloads.admission_status import (
    build_admitted_status,
    build_amended_status,
    build_evicted_status,
    build_preempted_status,
    build_released_status,
    build_returned_status,
    build_waiting_status,
    sync_status,
)
from core.state.facts import WorkloadFacts
from tests.builders import build_pod_set_json, build_workload_json

NOW = "2026-01-01T01:00:00Z"
ADMISSIONS, EVICTIONS = Stop("admissions", NOW, "alice", "why"), Stop("evictions", NOW, "bob", "because")
BY_ADMISSIONS, BY_EVICTIONS, BY_BOTH = Pause(admissions=ADMISSIONS), Pause(evictions=EVICTIONS), Pause(ADMISSIONS, EVICTIONS)
Json = dict[str, Any]
Change = Callable[[Json], Mapping[str, Any]]


def build_admission() -> Admission:
    return Admission("cq", (PodSetAdmission("main", {"cpu": "gpu"}, {"cpu": 1000}, 1),))


def waiting() -> Json:
    return build_workload_json("w", [build_pod_set_json("main", 1)])


def with_status(status: Mapping[str, Any]) -> Json:
    return {**waiting(), "status": dict(status)}


def reserved() -> Json:
    """Has quota, waits for a check."""
    return with_status(build_admitted_status(waiting(), build_admission(), NOW, ["check"]))


def running() -> Json:
    return with_status(build_admitted_status(waiting(), build_admission(), NOW))


def broken() -> Json:
    """Runs, and has lost a node."""
    return with_status({**running()["status"], "unhealthyNodes": [{"name": "n1"}]})


def evicted() -> Json:
    return with_status(build_evicted_status(running(), REASON_QUEUE_STOPPED, "stopped", NOW))


def admit(workload: Json) -> Mapping[str, Any]:
    return build_admitted_status(workload, build_admission(), NOW, [])


def evict_for(reason: str) -> Change:
    return lambda workload: build_evicted_status(workload, reason, "message", NOW)


def wait(workload: Json) -> Mapping[str, Any]:
    return build_waiting_status(workload, WorkloadFacts.read(workload), "WaitingForQuota", "message", NOW)


def ready(workload: Json) -> Mapping[str, Any]:
    return build_amended_status(workload, [Condition("PodsReady", True, "Started", "")], NOW, None)


def build_admission_on(**pods: int) -> Admission:
    """On nodes of these names."""
    assignment = TopologyAssignment(("kubernetes.io/hostname",), tuple(DomainCount((node,), count) for node, count in pods.items()))
    return Admission("cq", (PodSetAdmission("main", {"cpu": "gpu"}, {"cpu": 1000}, assignment.count, assignment),))


def spread() -> Json:
    """Runs on two nodes."""
    return with_status(build_admitted_status(waiting(), build_admission_on(a=1, b=2), NOW))


def place_on(**pods: int) -> Change:
    return lambda workload: build_admitted_status(workload, build_admission_on(**pods), NOW)


def shrink(workload: Json) -> Mapping[str, Any]:
    return read_managed_status(workload) | {"admission": {"clusterQueue": "cq", "podSetAssignments": []}}


ADMITS: list[tuple[Callable[[], Json], Change]] = [
    (waiting, admit),
    (waiting, lambda workload: build_admitted_status(workload, build_admission(), NOW, ["check"])),
    (reserved, admit),
    (broken, lambda workload: build_admitted_status(workload, replace(build_admission(), cluster_queue="other"), NOW)),
    (lambda: with_status(build_released_status(evicted(), "stopped", NOW)), admit),
    (spread, place_on(a=1, c=2)),  # pods that are stuck
    (spread, place_on(a=2, b=1)),
]
OURS = (REASON_QUEUE_STOPPED, REASON_PODS_READY_TIMEOUT, REASON_DEACTIVATED_BY_TIME, REASON_NODE_FAILURES, REASON_ADMISSION_CHECK)
EVICTS: list[tuple[Callable[[], Json], Change]] = [
    *((running, evict_for(reason)) for reason in OURS),
    (running, evict_for("DeactivatedDueToRequeuingLimitExceeded")),
    (broken, evict_for(REASON_NODE_FAILURES)),
    (reserved, lambda workload: build_returned_status(workload, REASON_ADMISSION_CHECK, "refused", NOW, NOW)),
]
BY_USERS = [(running, evict_for(reason)) for reason in (REASON_DEACTIVATED, REASON_SUSPENDED_BY_USER, REASON_JOB_CHANGED)]
NEITHER: list[tuple[Callable[[], Json], Change]] = [
    (waiting, wait),
    (running, ready),
    (broken, ready),
    (broken, admit),  # its nodes are well again
    (broken, shrink),
    (running, shrink),
    (spread, place_on(a=1, b=2)),
    (spread, place_on(b=1)),
    (evicted, lambda workload: build_released_status(workload, "stopped", NOW)),
    (evicted, evict_for(REASON_SUSPENDED_BY_USER)),
    (evicted, evict_for(REASON_PODS_READY_TIMEOUT)),
    (reserved, lambda workload: sync_status(workload, [{"name": "other", "state": "Pending"}], NOW)),
]


def get_stop(pause: Pause, before: Callable[[], Json], change: Change) -> str | None:
    workload = before()
    found = find_stopped(pause, workload, change(workload))
    return found.stop.what if found is not None else None


@pytest.mark.parametrize(("before", "change"), ADMITS)
def test_admitting_write_is_stopped_only_while_admissions_are_paused(before: Callable[[], Json], change: Change):
    by = {pause: get_stop(pause, before, change) for pause in (Pause(), BY_ADMISSIONS, BY_EVICTIONS, BY_BOTH)}
    assert by == {Pause(): None, BY_ADMISSIONS: "admissions", BY_EVICTIONS: None, BY_BOTH: "admissions"}


@pytest.mark.parametrize(("before", "change"), EVICTS)
def test_evicting_write_is_stopped_only_while_evictions_are_paused(before: Callable[[], Json], change: Change):
    by = {pause: get_stop(pause, before, change) for pause in (Pause(), BY_ADMISSIONS, BY_EVICTIONS, BY_BOTH)}
    assert by == {Pause(): None, BY_ADMISSIONS: None, BY_EVICTIONS: "evictions", BY_BOTH: "evictions"}


def test_no_preemption_is_begun_while_either_is_paused():
    def preempt(workload: Json) -> Mapping[str, Any]:
        return build_preempted_status(workload, "InClusterQueue", "for another", NOW)

    by = [get_stop(pause, running, preempt) for pause in (Pause(), BY_ADMISSIONS, BY_EVICTIONS, BY_BOTH)]
    assert by == [None, "admissions", "evictions", "evictions"]


@pytest.mark.parametrize(("before", "change"), [*BY_USERS, *NEITHER])
def test_write_of_a_user_or_without_admission_or_eviction_is_never_stopped(before: Callable[[], Json], change: Change):
    assert [get_stop(pause, before, change) for pause in (BY_ADMISSIONS, BY_EVICTIONS, BY_BOTH)] == [None, None, None]


def test_stopped_eviction_reports_its_reason_and_the_pause():
    workload = running()
    found = find_stopped(BY_EVICTIONS, workload, evict_for(REASON_PODS_READY_TIMEOUT)(workload))
    assert found is not None
    assert found.reason == "EvictionPaused"
    assert EVICTIONS.sentence in found.message
    assert found.message.endswith(f"{REASON_PODS_READY_TIMEOUT}: message")


@pytest.mark.parametrize(("before", "holds"), [(waiting, False), (reserved, True), (running, True), (evicted, False)])
def test_workload_runs_or_holds_quota_from_reservation_until_eviction(before: Callable[[], Json], holds: bool):
    assert has_effect(before()) == holds


def test_a_deactivation_of_ours_begins_an_eviction():
    assert find_held_eviction(BY_EVICTIONS, REASON_DEACTIVATED_BY_TIME, "") is not None
    assert find_held_eviction(BY_EVICTIONS, REASON_SUSPENDED_BY_USER, "") is None


def test_deactivation_and_admission_writes_exist_only_behind_the_pause_gate():
    """A new way to evict that is not one of these writes would not be held by a pause (`reconciler.execute.executor`)."""
    root = Path(__file__).parents[3]
    found: dict[str, set[str]] = {}
    for path in sorted([*root.glob("reconciler/**/*.py"), *root.glob("core/plan/**/*.py")]):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.unparse(function)
                if "'active': False" in text or "MANAGER_ADMISSION)" in text:
                    found.setdefault(path.name, set()).add(function.name)
    assert found == {"writes.py": {"deactivate", "apply_admission"}}
