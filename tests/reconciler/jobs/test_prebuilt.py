"""Prebuilt Workloads: made before the job, or after it; another's, or for another job."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import API_VERSION, PREBUILT_WORKLOAD, WORKLOAD_ANNOTATION
from e2e.api import wait_for
from e2e.audit import truth
from tests.reconciler.kinds.pods import bound, build_pod, list_live_pods
from tests.reconciler.scenes import WORKLOADS, Scene

pytestmark = pytest.mark.in_memory

Json = dict[str, Any]


def build(scene: Scene, name: str, *, pods: int, gpus: int, labels: Json | None = None, **topology: str) -> Json:
    """A Workload as somebody writes it by hand, by what a job will ask for."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}}}
    template = {"spec": {"containers": [container]}}
    pod_set = {"name": "main", "count": pods, "template": template, "topologyRequest": {**topology, "podIndexLabel": INDEX}}
    metadata = {"name": name, "namespace": scene.namespace, "labels": labels or {}}
    body = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": metadata}
    return scene.api.create(WORKLOADS.format(scene.namespace), body | {"spec": {"queueName": "main", "podSets": [pod_set]}})


INDEX = "batch.kubernetes.io/job-completion-index"


def get_workload(scene: Scene, name: str) -> Json:
    return scene.api.get(f"{WORKLOADS.format(scene.namespace)}/{name}")


def wait_until_told(scene: Scene, job: str, reason: str) -> str:
    """The message of the event on a job."""
    path = f"/api/v1/namespaces/{scene.namespace}/events"

    def told() -> str | None:
        events = [e for e in scene.api.get(path)["items"] if e["involvedObject"].get("name") == job and e["reason"] == reason]
        return str(events[-1]["message"]) if events else None

    found = wait_for(f"{job} to be told {reason}", told)
    assert found is not None
    return found


def test_a_workload_that_was_made_before_is_the_jobs(scene: Scene) -> None:
    build(scene, "booked", pods=2, gpus=8, required=scene.rack)
    original = scene.submit("train", pods=2, gpus=8, required=scene.rack, labels={PREBUILT_WORKLOAD: "booked"})
    now = scene.until_bound("train", 2)
    (workload,) = now.workloads
    assert workload["metadata"]["name"] == "booked"
    (owner,) = workload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "train", True)
    assert truth.check_one_domain(now, "train", scene.rack) == []
    assert truth.as_assigned(now, "train") == []
    scene.submit("late", pods=2, gpus=8, required=scene.rack, labels={PREBUILT_WORKLOAD: "booked"})
    assert f"{scene.namespace}/booked is that of Job train" in wait_until_told(scene, "late", "WorkloadRefused")
    assert scene.job("late")["spec"]["suspend"] is True
    scene.patch_workload("train", {"spec": {"active": False}})
    scene.eventually("its quota to be given back", lambda now: not truth.is_true(now.workload_of("train"), "QuotaReserved"))
    assert scene.job("train")["spec"]["template"] == original["spec"]["template"]
    scene.delete_job("train")
    assert "does not exist" in wait_until_told(scene, "late", "WaitingForWorkload")
    scene.delete_job("late")


def test_a_job_waits_for_a_workload_that_is_made_later(scene: Scene) -> None:
    scene.submit("early", pods=2, gpus=8, required=scene.rack, labels={PREBUILT_WORKLOAD: "to-come"})
    assert f"waits for the Workload {scene.namespace}/to-come" in wait_until_told(scene, "early", "WaitingForWorkload")
    assert scene.read().workloads == []
    build(scene, "to-come", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("early", 2)


def test_prebuilt_workload_that_differs_from_its_job_is_out_of_sync_and_job_event_names_the_difference(scene: Scene) -> None:
    build(scene, "small", pods=1, gpus=8, required=scene.rack)
    scene.submit("large", pods=2, gpus=8, required=scene.rack, labels={PREBUILT_WORKLOAD: "small"})
    told = wait_until_told(scene, "large", "WorkloadRefused")
    assert "count of the job: 2, of the Workload: 1" in told
    finished = truth.get_condition(get_workload(scene, "small"), "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "OutOfSync")
    assert scene.job("large")["spec"]["suspend"] is True
    assert scene.read().pods_of("large") == []
    scene.api.delete(f"{WORKLOADS.format(scene.namespace)}/small")
    scene.eventually("the Workload to be gone", lambda now: "small" not in {each["metadata"]["name"] for each in now.workloads})
    build(scene, "small", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("large", 2)


def test_multikueue_copy_of_a_workload_keeps_its_quota_until_its_job_is_created(scene: Scene) -> None:
    """The copy has the label of the job there; it has quota before its job comes."""
    labels = {"kueue.x-k8s.io/job-uid": "of-another-cluster", "kueue.x-k8s.io/multikueue-origin": "multikueue"}
    build(scene, "remote", pods=2, gpus=8, required=scene.rack, labels=labels)

    def is_admitted(now: truth.Snapshot) -> bool:
        return [truth.is_true(w, "Admitted") and not truth.is_true(w, "Finished") for w in now.workloads] == [True]

    scene.eventually("the copy to be admitted", is_admitted)
    scene.submit("remote", pods=2, gpus=8, required=scene.rack, labels={PREBUILT_WORKLOAD: "remote", **dict(list(labels.items())[1:])})
    now = scene.until_bound("remote", 2)
    assert truth.as_assigned(now, "remote") == []


def test_workload_of_running_pods_cannot_be_taken_by_another_job(scene: Scene) -> None:
    """Found by an attack: a job that named the Workload of a pod group, or what an orphaned job had left, ran on quota that was in use."""
    for name in ("a", "b"):
        scene.create(build_pod(scene, name, gpus=8, group="ring", total=2))
    scene.eventually("the group to be bound", lambda now: bound(list_live_pods(now, scene), 2))
    scene.submit("left", pods=1, gpus=8)
    now = scene.until_bound("left", 1)
    (left,) = now.pods_of("left")
    workload = left["metadata"]["annotations"][WORKLOAD_ANNOTATION]
    scene.api.request("DELETE", f"/apis/batch/v1/namespaces/{scene.namespace}/jobs/left?propagationPolicy=Orphan")
    scene.eventually("it to have no owner", lambda _: not get_workload(scene, workload)["metadata"].get("ownerReferences"))
    scene.submit("thief", pods=2, gpus=8, labels={PREBUILT_WORKLOAD: "ring"})
    scene.submit("heir", pods=1, gpus=8, labels={PREBUILT_WORKLOAD: workload})
    assert "pod group ring" in wait_until_told(scene, "thief", "WorkloadRefused")
    assert "deleted without its pods" in wait_until_told(scene, "heir", "WorkloadRefused")
    now = scene.read()
    assert {pod["metadata"]["name"] for pod in list_live_pods(now, scene)} == {"a", "b", left["metadata"]["name"]}
    for path in (f"{WORKLOADS.format(scene.namespace)}/ring", f"{WORKLOADS.format(scene.namespace)}/{workload}"):
        assert not truth.is_true(scene.api.get(path), "Finished")
