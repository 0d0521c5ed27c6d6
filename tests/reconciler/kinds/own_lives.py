"""What may become of a job of one kind alone: played with the real operators, whose stand-ins do none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from core.names import QUEUE_NAME_LABEL, RANK_ORDER_KEPT, REQUIRED_TOPOLOGY
from e2e.accounts import issue_token
from e2e.api import JSON_PATCH
from e2e.audit import truth
from e2e.manifests import build_job, make_elastic_ray
from e2e.manifests import get_path as path_of
from tests.reconciler.kinds.pods import build_template, list_live_pods, list_workload_names
from tests.reconciler.scenes import Scene

Obj = dict[str, Any]
MPI_JOB = Path(__file__).parents[3] / "examples" / "kinds" / "mpijob.yaml"


def _replicated(name: str, pods: int, level: str, run_seconds: int | None = None, **more: Any) -> Obj:
    made = build_job(name, "any", pods=pods, gpus=4, annotations={REQUIRED_TOPOLOGY: level}, run_seconds=run_seconds)["spec"]
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
    scene.end_pod(failed, {"phase": "Failed"})

    def is_restarted(now: truth.Snapshot) -> bool:
        pods = [pod for pod in now.pods_of("train") if pod["metadata"]["uid"] not in before]
        return len(pods) == 4 and all(pod["spec"].get("nodeName") for pod in pods) and len(now.pods_of("train")) == 4

    now = scene.eventually("all pods to be made anew and bound", is_restarted)
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

    now = scene.eventually("the pods of the second job to be bound", is_second_bound)
    assert len({now.label_of(pod, scene.rack) for pod in now.pods_of("train")}) == 1
    assert truth.is_true(now.workload_of("train"), "Admitted")


def leader_worker_set_rolled_with_a_surge(scene: Scene) -> None:
    """No group goes before another one is there: each of the surge has a Workload of its own."""
    spec: Obj = {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 2, "workerTemplate": build_template(2, required=scene.rack)},
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}},
    }
    metadata = {"name": "serve", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
    made = scene.create({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec})

    def are_bound(now: truth.Snapshot, image: str | None) -> bool:
        pods = list_live_pods(now, scene)
        images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
        return len(pods) == 4 and all(pod["spec"].get("nodeName") for pod in pods) and image in (None, *images) and len(images) == 1

    scene.eventually("both groups to be bound", lambda now: are_bound(now, None))
    changed = made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
    changed[0]["image"] = "registry.example/server:2"
    path = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{scene.namespace}/leaderworkersets/serve"
    scene.api.patch(path, {"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": changed}}}}})

    def is_rolled_out(now: truth.Snapshot) -> bool:
        return are_bound(now, "registry.example/server:2") and len(list_workload_names(now, scene)) == 2

    scene.eventually("all pods to have the new image, and none of the surge to be left", is_rolled_out)


def launcher_that_is_no_worker_beside_its_workers_in_the_order_of_ranks(scene: Scene) -> None:
    """The example for users: a launcher and its workers are one group, whose ranks are those of the workers."""
    made: Obj = yaml.safe_load(MPI_JOB.read_text())
    made["metadata"]["namespace"] = scene.namespace
    for part in made["spec"]["mpiReplicaSpecs"].values():
        part["template"]["metadata"]["annotations"][REQUIRED_TOPOLOGY] = scene.rack
    scene.create(made)
    name = made["metadata"]["name"]
    now = scene.until_bound(name, 5)
    assert len({now.label_of(pod, scene.rack) for pod in now.pods_of(name)}) == 1
    workers = [pod for pod in now.pods_of(name) if pod["metadata"]["labels"]["training.kubeflow.org/job-role"] == "worker"]
    ranked = sorted(workers, key=lambda pod: int(pod["metadata"]["labels"]["training.kubeflow.org/replica-index"]))
    hosts = [pod["spec"]["nodeName"] for pod in ranked]
    assert len(hosts) == 4
    assert hosts == [host for each in dict.fromkeys(hosts) for host in hosts if host == each], "a host is left and entered again"
    scene.eventually("the condition on ranks", lambda now: truth.is_true(now.workload_of(name), RANK_ORDER_KEPT))


def ray_resized_by_its_autoscaler(kind: str, scene: Scene) -> None:
    """As the autoscaler in the head's pod asks for it, with the account and the rights that KubeRay gives that."""
    made = scene.create(make_elastic_ray(kind, "ray", scene.namespace, workers=2, gpus=2, required=scene.rack))
    before = {pod["metadata"]["uid"] for pod in scene.until_bound("ray", 3).pods_of("ray")}
    clusters = f"/apis/ray.io/v1/namespaces/{scene.namespace}/rayclusters"
    [cluster] = scene.api.list(clusters)
    [head] = [pod for pod in scene.read().pods_of("ray") if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
    autoscaler = scene.api.for_token(issue_token(scene.api, scene.namespace, head["spec"]["serviceAccountName"]))

    def scale(workers: int, *gone: str) -> None:
        group = "/spec/workerGroupSpecs/0"
        steps: list[Obj] = [{"op": "replace", "path": f"{group}/replicas", "value": workers}]
        steps.append({"op": "add", "path": f"{group}/scaleStrategy", "value": {"workersToDelete": list(gone)}})
        autoscaler.patch(f"{clusters}/{cluster['metadata']['name']}", steps, JSON_PATCH)

    try:
        scale(4)
        now = scene.until_bound("ray", 5)
        assert before < {pod["metadata"]["uid"] for pod in now.pods_of("ray")}, "what ran runs on"
        assert truth.as_assigned(now, "ray") == []
        workers = sorted(pod["metadata"]["name"] for pod in now.pods_of("ray") if pod["metadata"]["name"] != head["metadata"]["name"])
        scale(1, *workers[:3])

        def is_given_back(now: truth.Snapshot) -> bool:
            given = (now.workload_of("ray") or {})["status"]["admission"]["podSetAssignments"]
            return {each["name"]: each["count"] for each in given} == {"head": 1, "gpu": 1} and len(now.pods_of("ray")) == 2

        now = scene.eventually("three workers to be given back", is_given_back)
        assert workers[3] in {pod["metadata"]["name"] for pod in now.pods_of("ray")}, "it says itself which of them go"
        scale(3)
        now = scene.until_bound("ray", 4)
        assert head["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in now.pods_of("ray")}
        assert truth.as_assigned(now, "ray") == []
    finally:
        autoscaler.close()
    scene.api.delete(f"{path_of(made)}/ray")
    scene.eventually(
        "nothing of it to be left", lambda now: not list_live_pods(now, scene) and scene.api.find(f"{path_of(made)}/ray") is None
    )
