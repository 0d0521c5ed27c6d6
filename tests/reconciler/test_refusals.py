"""Where a user looks for the reason why a job waits: at the job itself; and what an admission says, on paper."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import IS_GROUP_WORKLOAD, REASON_MISCONFIGURED, REASON_WAITING_FOR_QUOTA, WORKLOAD_REQUIRED_TOPOLOGY
from tests.builders import RACK
from tests.reconciler.paper_pods import pod
from tests.reconciler.paper_queues import QueuesPaper

JOB = ("batch/v1", "Job", "train")


@pytest.fixture
def paper() -> QueuesPaper:
    return QueuesPaper()


def put_job(paper: QueuesPaper) -> None:
    paper.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"suspend": True}})


def test_a_job_that_waits_is_told_what_its_workload_is_told_and_as_often(paper: QueuesPaper):
    put_job(paper)
    paper.workload("job-train", count=6, owner=JOB, topology={"required": RACK})
    for _ in range(3):
        paper.decide()
    ((kind, _, reason, message),) = [story for story in paper.stories if story[1] == "train"]
    assert (kind, reason) == ("Job", "TopologyPlacementFailed")
    assert [(reason, message)] == paper.told("job-train")
    paper.node("r1-small", "r1", cpu=1000)
    paper.decide()
    assert paper.told("train") == paper.told("job-train")
    assert len(paper.told("train")) == 2


@pytest.mark.parametrize(
    ("owner", "told"),
    [(("v1", "Pod", "alone"), "alone"), (("apps/v1", "StatefulSet", "web"), "web")],
)
def test_pods_and_their_parents_are_told_too(paper: QueuesPaper, owner: tuple[str, str, str], told: str):
    paper.put(pod("alone", group=None))
    paper.put({"kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {}})
    paper.workload("w", count=11, owner=owner)
    paper.decide()
    assert paper.told(told) == paper.told("w") != []


def test_of_a_pod_group_one_pod_is_told(paper: QueuesPaper):
    for i in range(3):
        paper.put(pod(f"p{i}", total=3))
    workload: dict[str, Any] = paper.workload("g", count=11, owner=None)
    paper.put({**workload, "metadata": {**workload["metadata"], "annotations": {IS_GROUP_WORKLOAD: "true"}}})
    paper.decide()
    assert [len(paper.told(f"p{i}")) for i in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("there", [True, False], ids=["made anew under its name", "gone"])
def test_a_job_that_is_gone_is_not_told_nor_is_another_of_its_name(paper: QueuesPaper, there: bool):
    if there:
        put_job(paper)
        paper.put({**paper.get("Job", "train"), "metadata": {"name": "train", "uid": "another"}})
    paper.workload("job-train", count=11, owner=JOB)
    paper.decide()
    assert paper.told("train") == []
    assert [reason for reason, _ in paper.told("job-train")] == ["ExceedsMaxQuota"]


@pytest.mark.parametrize("holding", [0, 8], ids=["with quota", "when quota is short"])
def test_a_workloads_level_that_does_not_exist_deactivates_it_and_is_told_on_the_job(paper: QueuesPaper, holding: int):
    """A shortage of quota must not hide a mistake that no quota mends."""
    if holding:
        paper.workload("holds", count=holding, owner=None)
        paper.decide()
    put_job(paper)
    workload = paper.workload("job-train", count=4, owner=JOB)
    annotations = {WORKLOAD_REQUIRED_TOPOLOGY: "cloud/zone"}
    paper.put({**workload, "metadata": {**workload["metadata"], "annotations": annotations}})
    paper.decide()
    assert paper.get("Workload", "job-train")["spec"]["active"] is False
    ((reason, message),) = paper.told("train")
    assert reason == "WorkloadRefused"
    assert paper.told("job-train") == [(REASON_MISCONFIGURED, message)]
    assert "no topology level 'cloud/zone'" in message
    assert RACK in message
    assert REASON_WAITING_FOR_QUOTA not in str(paper.stories)


def test_an_admission_names_the_level_that_the_workload_asks_for(paper: QueuesPaper):
    workload = paper.workload("job-train", count=3, owner=JOB)
    annotations = {WORKLOAD_REQUIRED_TOPOLOGY: RACK}
    paper.put({**workload, "metadata": {**workload["metadata"], "annotations": annotations}})
    paper.decide()
    message = dict(paper.told("job-train"))["Admitted"]
    assert f"; placed: all pods in {RACK} r1 (annotation {WORKLOAD_REQUIRED_TOPOLOGY}); pod set main: " in message
