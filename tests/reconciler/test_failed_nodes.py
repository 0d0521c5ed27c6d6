"""Failed nodes of a running job on the real control plane; the test plays the controller that says which nodes have failed."""

from __future__ import annotations

from typing import Any

from core.plan.admission import apply_body, managed_status
from e2e import truth
from e2e.api import APPLY_PATCH
from tests.reconciler.scenes import WORKLOADS, Scene


def say_failed(scene: Scene, job: str, *nodes: str) -> None:
    """As a part of topogate does: by its own field manager, with all that this manager owns."""
    workload = scene.read().workload_of(job)
    assert workload is not None
    status = managed_status(workload) | {"unhealthyNodes": [{"name": node} for node in nodes]}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **apply_body(workload, status, strict=True)}
    path = f"{WORKLOADS.format(scene.namespace)}/{workload['metadata']['name']}/status"
    scene.cluster.api.patch(f"{path}?fieldManager=kueue-admission&force=true", body, APPLY_PATCH)


def nodes_of(now: truth.Snapshot, job: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in now.pods_of(job) if pod["spec"].get("nodeName")}


def status_of(now: truth.Snapshot, job: str) -> dict[str, Any]:
    return dict((now.workload_of(job) or {}).get("status") or {})


def test_another_node_is_assigned_and_the_job_runs_on(scene: Scene) -> None:
    scene.submit("train", pods=1, gpus=8, required=scene.rack)
    (lost,) = nodes_of(scene.until_bound("train", 1), "train")
    before = status_of(scene.read(), "train")["admission"]
    say_failed(scene, "train", lost)
    now = scene.eventually("a replacement", lambda now: "unhealthyNodes" not in status_of(now, "train"))
    status = status_of(now, "train")
    assert status["admission"] != before
    assert lost not in str(status["admission"])
    assert truth.is_true(now.workload_of("train"), "Admitted")
    assert not truth.is_true(now.workload_of("train"), "Evicted")


def test_without_another_node_the_job_is_stopped_and_waits(scene: Scene) -> None:
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    lost = nodes_of(scene.until_bound("train", 2), "train")
    scene.submit("other", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("other", 2)
    say_failed(scene, "train", *lost)
    now = scene.eventually("its eviction", lambda now: truth.condition(now.workload_of("train"), "Evicted").get("reason") == "NodeFailures")
    assert "unhealthyNodes" not in status_of(now, "train")
    # The nodes are well in truth: once its pods are gone it is admitted again.
    scene.eventually("its return", lambda now: not truth.is_true(now.workload_of("train"), "Evicted"))
    scene.until_bound("train", 2)
