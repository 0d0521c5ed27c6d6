"""What may become of a job of one kind alone: played with the real operators, whose stand-ins do none of it."""

from __future__ import annotations

from typing import Any

from core.names import QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY
from e2e import truth
from e2e.api import PATIENCE_S
from e2e.manifests import job
from tests.reconciler.kinds.pods import live, template, workloads
from tests.reconciler.scenes import Scene

Obj = dict[str, Any]


def _replicated(name: str, pods: int, level: str, run_seconds: int | None = None, **more: Any) -> Obj:
    made = job(name, "any", pods=pods, gpus=4, annotations={REQUIRED_TOPOLOGY: level}, run_seconds=run_seconds)["spec"]
    spec = {key: made[key] for key in ("parallelism", "completions", "template")}
    return {"name": name, "replicas": 1, "template": {"spec": {**spec, "backoffLimit": 0}}, **more}


def _jobset(scene: Scene, *jobs: Obj, **spec: Any) -> Obj:
    metadata = {"name": "train", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def jobset_restarted_after_a_pod_has_failed(scene: Scene) -> None:
    """All its Jobs are made anew by its failure policy, and their pods get their places."""
    scene.create(_jobset(scene, _replicated("workers", 4, scene.rack), failurePolicy={"maxRestarts": 2}))
    before = {pod["metadata"]["uid"] for pod in scene.until_bound("train", 4).pods_of("train")}
    failed = scene.read().pods_of("train")[0]["metadata"]["name"]
    scene.api.patch(f"/api/v1/namespaces/{scene.namespace}/pods/{failed}/status", {"status": {"phase": "Failed"}})

    def is_restarted(now: truth.Snapshot) -> bool:
        pods = [pod for pod in now.pods_of("train") if pod["metadata"]["uid"] not in before]
        return len(pods) == 4 and all(pod["spec"].get("nodeName") for pod in pods) and len(now.pods_of("train")) == 4

    now = scene.eventually("all pods to be made anew and bound", is_restarted, PATIENCE_S)
    assert truth.as_assigned(now, "train") == []
    assert not truth.is_true(now.workload_of("train"), "Evicted")


def jobset_with_a_second_job_that_depends_on_the_first(scene: Scene) -> None:
    """Both are admitted at once; the pods of the second one come when the first is complete, to the places that were kept for them."""
    first = _replicated("prepare", 1, scene.rack, run_seconds=1)
    second = _replicated("train", 4, scene.rack, dependsOn=[{"name": "prepare", "status": "Complete"}])
    scene.create(_jobset(scene, first, second))

    def is_second_bound(now: truth.Snapshot) -> bool:
        pods = [pod for pod in now.pods_of("train") if pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == "train"]
        return len(pods) == 4 and all(pod["spec"].get("nodeName") for pod in pods)

    now = scene.eventually("the pods of the second job to be bound", is_second_bound, PATIENCE_S)
    assert len({now.label_of(pod, scene.rack) for pod in now.pods_of("train")}) == 1
    assert truth.is_true(now.workload_of("train"), "Admitted")


def leader_worker_set_rolled_with_a_surge(scene: Scene) -> None:
    """No group goes before another one is there: each of the surge has a Workload of its own."""
    spec: Obj = {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 2, "workerTemplate": template(2, required=scene.rack)},
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}},
    }
    metadata = {"name": "serve", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
    made = scene.create({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec})

    def are_bound(now: truth.Snapshot, image: str | None) -> bool:
        pods = live(now, scene)
        images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
        return len(pods) == 4 and all(pod["spec"].get("nodeName") for pod in pods) and image in (None, *images) and len(images) == 1

    scene.eventually("both groups to be bound", lambda now: are_bound(now, None), PATIENCE_S)
    changed = made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
    changed[0]["image"] = "registry.example/server:2"
    path = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{scene.namespace}/leaderworkersets/serve"
    scene.api.patch(path, {"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": changed}}}}})

    def is_rolled_out(now: truth.Snapshot) -> bool:
        return are_bound(now, "registry.example/server:2") and len(workloads(now, scene)) == 2

    scene.eventually("all pods to have the new image, and none of the surge to be left", is_rolled_out, 2 * PATIENCE_S)
