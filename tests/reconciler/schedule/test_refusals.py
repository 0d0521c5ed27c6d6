"""Where a user looks for the reason why a job waits: at the job itself; and what an admission says, on an API server in memory."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import (
    IS_GROUP_WORKLOAD,
    MIN_PARALLELISM,
    QUOTA_RESERVED,
    REASON_MISCONFIGURED,
    REASON_WAITING_FOR_QUOTA,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.state.facts import find_condition
from tests.builders import RACK
from tests.reconciler.harness_pods import build_pod
from tests.reconciler.harness_queues import QueuesHarness

JOB = ("batch/v1", "Job", "train")


@pytest.fixture
def harness() -> QueuesHarness:
    return QueuesHarness()


def put_job(harness: QueuesHarness) -> None:
    harness.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"suspend": True}})


def test_waiting_job_gets_the_same_events_as_its_workload(harness: QueuesHarness):
    put_job(harness)
    harness.workload("job-train", count=6, owner=JOB, topology={"required": RACK})
    for _ in range(3):
        harness.decide()
    (event,) = [event for event in harness.events if event.key == "ns/train"]
    assert (event.kind, event.reason) == ("Job", "TopologyPlacementFailed")
    assert [(event.reason, event.message)] == harness.told("job-train")
    harness.node("r1-small", "r1", cpu=1000)
    harness.decide()
    assert harness.told("train") == harness.told("job-train")
    assert len(harness.told("train")) == 2


@pytest.mark.parametrize(
    ("owner", "told"),
    [(("v1", "Pod", "alone"), "alone"), (("apps/v1", "StatefulSet", "web"), "web")],
)
def test_refusal_is_reported_on_pods_and_their_parents_too(harness: QueuesHarness, owner: tuple[str, str, str], told: str):
    harness.put(build_pod("alone", group=None))
    harness.put({"kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {}})
    harness.workload("w", count=11, owner=owner)
    harness.decide()
    assert harness.told(told) == harness.told("w") != []


def test_refusal_of_a_pod_group_is_reported_on_one_pod(harness: QueuesHarness):
    for i in range(3):
        harness.put(build_pod(f"p{i}", total=3))
    workload: dict[str, Any] = harness.workload("g", count=11, owner=None)
    harness.put({**workload, "metadata": {**workload["metadata"], "annotations": {IS_GROUP_WORKLOAD: "true"}}})
    harness.decide()
    assert [len(harness.told(f"p{i}")) for i in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("there", [True, False], ids=["made anew under its name", "gone"])
def test_refusal_of_a_deleted_job_is_not_reported_on_another_job_of_the_same_name(harness: QueuesHarness, there: bool):
    if there:
        put_job(harness)
        harness.put({**harness.get("Job", "train"), "metadata": {"name": "train", "uid": "another"}})
    harness.workload("job-train", count=11, owner=JOB)
    harness.decide()
    assert harness.told("train") == []
    assert [reason for reason, _ in harness.told("job-train")] == ["ExceedsMaxQuota"]


@pytest.mark.parametrize("holding", [0, 8], ids=["with quota", "when quota is short"])
def test_workload_with_an_unknown_level_is_deactivated_and_reported_on_its_job(harness: QueuesHarness, holding: int):
    """A shortage of quota must not hide a mistake that no quota mends."""
    if holding:
        harness.workload("holds", count=holding, owner=None)
        harness.decide()
    put_job(harness)
    workload = harness.workload("job-train", count=4, owner=JOB)
    annotations = {WORKLOAD_REQUIRED_TOPOLOGY: "cloud/zone"}
    harness.put({**workload, "metadata": {**workload["metadata"], "annotations": annotations}})
    harness.decide()
    assert harness.get("Workload", "job-train")["spec"]["active"] is False
    ((reason, message),) = harness.told("train")
    assert reason == "WorkloadRefused"
    assert harness.told("job-train") == [(REASON_MISCONFIGURED, message)]
    assert "no topology level 'cloud/zone'" in message
    assert RACK in message
    assert REASON_WAITING_FOR_QUOTA not in str(harness.events)


def test_an_admission_names_the_level_that_the_workload_asks_for(harness: QueuesHarness):
    workload = harness.workload("job-train", count=3, owner=JOB)
    annotations = {WORKLOAD_REQUIRED_TOPOLOGY: RACK}
    harness.put({**workload, "metadata": {**workload["metadata"], "annotations": annotations}})
    harness.decide()
    message = dict(harness.told("job-train"))["Admitted"]
    assert all(part in message for part in (f"{RACK} r1 (annotation {WORKLOAD_REQUIRED_TOPOLOGY})", "pod set main"))


def test_admission_with_fewer_pods_reports_the_asked_count_with_the_reason(harness: QueuesHarness):
    workload = harness.workload("job-train", count=50, owner=JOB)
    workload["spec"]["podSets"][0]["minCount"] = 2
    harness.put(workload)
    harness.decide()
    message = dict(harness.told("job-train"))["Admitted"]
    (given,) = harness.get("Workload", "job-train")["status"]["admission"]["podSetAssignments"]
    fewer = f"pod set main has {given['count']} of the 50 pods that it asked for ({MIN_PARALLELISM} accepts 2 or more), since not all fit: "
    assert f"; fewer pods: {fewer}" in message
    assert message.index("; fewer pods: ") < message.index("; placed: ")
    reserved = find_condition(harness.get("Workload", "job-train"), QUOTA_RESERVED)
    assert reserved is not None
    assert reserved["message"].endswith(f"; {fewer.partition(', since')[0]}")
