"""Jobs that have finished while pods of theirs run on. On harness."""

from __future__ import annotations

from typing import Any

from core.names import EVENT_PODS_LEFT, PODSET_LABEL, QUEUE_NAME_LABEL, RESOURCE_IN_USE_FINALIZER, WORKLOAD_ANNOTATION
from core.runtime.workqueue import Item
from core.state.facts import is_condition_true
from reconciler.jobs.jobs import Jobs
from sim.harness import Harness
from tests.runtime.fakes import ManualClock

RAY = "ray.io/v1"


def owned_by(kind: str, name: str, api: str = RAY) -> list[dict[str, Any]]:
    return [{"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def test_a_complete_rayjob_holds_its_quota_while_kuberay_keeps_its_cluster():
    """`ttlSecondsAfterFinished: 2147483647` keeps the cluster of a RayJob that is Complete."""
    harness = Harness(ManualClock())
    jobs = Jobs(harness.observed, harness.executor, harness.clock)
    labels = {QUEUE_NAME_LABEL: "main"}
    status = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    spec = {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 2**31 - 1, "rayClusterSpec": {}}
    harness.put({"apiVersion": RAY, "kind": "RayJob", "metadata": {"name": "j", "labels": labels}, "spec": spec, "status": status})
    harness.put(
        {"apiVersion": RAY, "kind": "RayCluster", "metadata": {"name": "c", "ownerReferences": owned_by("RayJob", "j")}, "spec": {}}
    )
    metadata: dict[str, Any] = {"name": "head", "labels": {PODSET_LABEL: "head"}, "annotations": {WORKLOAD_ANNOTATION: "w"}}
    metadata |= {"ownerReferences": owned_by("RayCluster", "c")}
    harness.put({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    given = [{"name": "head", "count": 1, "flavors": {}, "resourceUsage": {}}]
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    harness.put(
        {
            "kind": "Workload",
            "metadata": {"name": "w", "finalizers": [RESOURCE_IN_USE_FINALIZER], "ownerReferences": owned_by("RayJob", "j")},
            "spec": {"queueName": "main", "podSets": [{"name": "head", "count": 1, "template": {"spec": {"containers": []}}}]},
            "status": {"conditions": conditions, "admission": {"clusterQueue": "q", "podSetAssignments": given}},
        }
    )
    reconcile = Item(("RayJob.ray.io", "ns/j"), frozenset(), 0.0)
    harness.wait_for(jobs._reconcile(reconcile))
    assert not is_condition_true(harness.get("Workload", "w"), "Finished")
    assert ("ns/j", EVENT_PODS_LEFT) in {(event.key, event.reason) for event in harness.events}
    harness.drop("Pod", "head")
    harness.wait_for(jobs._reconcile(reconcile))
    assert is_condition_true(harness.get("Workload", "w"), "Finished")
