"""Whether the pods of a job are ready, by what its status tells; None where its pods are to be looked at."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.jobs.contract import Referring
from core.jobs.kinds.registry import KINDS, TEMPLATED
from tests.jobs.test_kinds import BY_NAME
from tests.reconciler.kinds.scenarios import SCENARIOS, runtime

Json = dict[str, Any]
SPECS = {scenario.kind: scenario.spec("rack") for scenario in SCENARIOS}


def said(kind: str, status: Json | None, spec: Json | None = None) -> bool | None:
    description = BY_NAME[kind]
    job: Json = {"metadata": {"name": "j"}, "spec": deepcopy(spec if spec is not None else SPECS[kind])}
    if status is not None:
        job["status"] = status
    if isinstance(description, Referring):
        job = description.expand(job, runtime())
    answer: bool | None = description.are_pods_ready(job)
    return answer


def list_roles(kind: str) -> list[Any]:
    job: Json = {"metadata": {"name": "j"}, "spec": SPECS[kind]}
    description = BY_NAME[kind]
    return list(description.list_roles(description.expand(job, runtime()) if isinstance(description, Referring) else job))


@pytest.mark.parametrize(
    ("spec", "status", "ready"),
    [
        ({"parallelism": 3}, None, False),
        ({"parallelism": 3}, {"ready": 2}, False),
        ({"parallelism": 3}, {"ready": 3}, True),
        ({"parallelism": 3}, {"ready": 1, "succeeded": 2}, True),
        ({"parallelism": 3}, {"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}}, True),
        ({"parallelism": 3}, {"ready": 2, "failed": 1, "uncountedTerminatedPods": {"failed": ["a"]}}, False),
        ({"parallelism": 3, "completions": 2}, {"ready": 2}, True),
        ({"parallelism": 0}, None, True),
        ({}, {"ready": 1}, True),
    ],
)
def test_a_job_is_ready_by_its_own_counts(spec: Json, status: Json | None, ready: bool):
    assert said("Job", status, spec) is ready


@pytest.mark.parametrize(("kind", "field"), [("JobSet", "replicatedJobsStatus"), ("TrainJob", "jobsStatus")])
def test_a_job_of_jobs_is_ready_once_all_of_them_are(kind: str, field: str):
    roles = list_roles(kind)
    statuses = [{"name": role.pod_set, "ready": role.sub_group_count, "succeeded": 0} for role in roles]
    assert said(kind, {field: statuses}) is True
    assert said(kind, {field: [{**status, "ready": 0, "succeeded": status["ready"]} for status in statuses]}) is True
    assert said(kind, {field: [{**statuses[0], "ready": statuses[0]["ready"] - 1}, *statuses[1:]]}) is False
    assert said(kind, {field: [{"name": role.pod_set, "active": 1} for role in roles]}) is None, "it does not tell"
    assert said(kind, None) is None


@pytest.mark.parametrize(
    ("kind", "path"),
    [("RayCluster", ()), ("RayJob", ("rayClusterStatus",)), ("RayService", ("activeServiceStatus", "rayClusterStatus"))],
)
def test_a_ray_cluster_is_ready_with_its_workers_and_its_head(kind: str, path: tuple[str, ...]):
    workers = sum(role.count for role in list_roles(kind) if role.pod_set not in ("head", "submitter"))

    def of(cluster: Json) -> bool | None:
        status = cluster
        for key in reversed(path):
            status = {key: status}
        return said(kind, status)

    head = {"type": "HeadPodReady", "status": "True"}
    assert of({}) is None
    assert of({"state": "ready"}) is None, "it has been once"
    assert of({"state": "suspended", "readyWorkerReplicas": workers}) is False
    assert of({"state": "ready", "readyWorkerReplicas": workers - 1}) is False
    assert of({"state": "ready", "readyWorkerReplicas": workers}) is True
    assert of({"state": "ready", "readyWorkerReplicas": workers, "conditions": [head]}) is True
    assert of({"state": "ready", "readyWorkerReplicas": workers, "conditions": [{**head, "status": "False"}]}) is False


def test_pods_ready_of_app_wrapper_or_finishing_spark_application_is_read_from_the_status():
    assert said("AppWrapper", {"conditions": [{"type": "PodsReady", "status": "True"}]}) is True
    assert said("AppWrapper", {"conditions": [{"type": "PodsReady", "status": "False"}]}) is False
    assert said("AppWrapper", {"conditions": [{"type": "ResourcesDeployed", "status": "True"}]}) is None
    assert said("SparkApplication", {"applicationState": {"state": "RUNNING"}}) is None
    assert said("SparkApplication", {"applicationState": {"state": "SUCCEEDING"}}) is True


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
def test_every_kind_answers_for_a_job_without_a_status(kind: str):
    assert said(kind, None, {} if kind == "Job" else None) in (None, False)


def test_pods_ready_of_kinds_with_only_active_counts_is_left_to_their_pods():
    active = {"replicaStatuses": {"Launcher": {"active": 1}, "Worker": {"active": 100}, "Master": {"active": 1}}}
    left = [kind.kind for kind in TEMPLATED if kind.kind in SPECS and said(kind.kind, active) is None]
    assert {"MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"} <= set(left)
