"""Jobs that have finished while pods of theirs run on. On paper."""

from __future__ import annotations

from typing import Any, cast

from core.names import EVENT_PODS_LEFT, PODSET_LABEL, QUEUE_NAME_LABEL, RESOURCE_IN_USE_FINALIZER, WORKLOAD_ANNOTATION
from core.runtime.workqueue import Item
from core.state.facts import condition_is_true
from reconciler.apply import Writer
from reconciler.jobs import Jobs
from tests.reconciler.paper import Paper

RAY = "ray.io/v1"


def owned_by(kind: str, name: str, api: str = RAY) -> list[dict[str, Any]]:
    return [{"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def test_a_complete_rayjob_holds_its_quota_while_kuberay_keeps_its_cluster():
    """Attack F1: `ttlSecondsAfterFinished: 2147483647` keeps the cluster of a RayJob that is Complete."""
    paper = Paper()
    paper._informers |= {kind: paper.observed.jobs[f"{kind}.ray.io"] for kind in ("RayJob", "RayCluster")}
    jobs = Jobs(paper.observed, cast("Writer", paper), paper.clock)
    labels = {QUEUE_NAME_LABEL: "main"}
    status = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    spec = {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 2**31 - 1, "rayClusterSpec": {}}
    paper.put({"apiVersion": RAY, "kind": "RayJob", "metadata": {"name": "j", "labels": labels}, "spec": spec, "status": status})
    paper.put({"apiVersion": RAY, "kind": "RayCluster", "metadata": {"name": "c", "ownerReferences": owned_by("RayJob", "j")}, "spec": {}})
    metadata: dict[str, Any] = {"name": "head", "labels": {PODSET_LABEL: "head"}, "annotations": {WORKLOAD_ANNOTATION: "w"}}
    metadata |= {"ownerReferences": owned_by("RayCluster", "c")}
    paper.put({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    given = [{"name": "head", "count": 1, "flavors": {}, "resourceUsage": {}}]
    conditions = [{"type": kind, "status": "True", "reason": kind, "message": ""} for kind in ("QuotaReserved", "Admitted")]
    paper.put(
        {
            "kind": "Workload",
            "metadata": {"name": "w", "finalizers": [RESOURCE_IN_USE_FINALIZER], "ownerReferences": owned_by("RayJob", "j")},
            "spec": {"queueName": "main", "podSets": [{"name": "head", "count": 1, "template": {"spec": {"containers": []}}}]},
            "status": {"conditions": conditions, "admission": {"clusterQueue": "q", "podSetAssignments": given}},
        }
    )
    reconcile = Item(("RayJob.ray.io", "ns/j"), frozenset(), 0.0)
    paper.wait_for(jobs._reconcile(reconcile))
    assert not condition_is_true(paper.get("Workload", "w"), "Finished")
    assert ("ns/j", EVENT_PODS_LEFT) in {event[:2] for event in paper.events}
    paper.drop("Pod", "head")
    paper.wait_for(jobs._reconcile(reconcile))
    assert condition_is_true(paper.get("Workload", "w"), "Finished")
