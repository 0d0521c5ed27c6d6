"""What may become of a job of any kind, from its creation on: played with stand-ins and with the real operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.names import API_VERSION, PODSET_LABEL, PRIORITY_CLASS_LABEL, REASON_PREEMPTED, REQUIRED_TOPOLOGY
from e2e.api import wait_for
from e2e.audit import truth
from e2e.manifests import RUN_SECONDS
from e2e.topogate import Topogate
from tests.reconciler.kinds.scenarios import GPUS, Scenario
from tests.reconciler.kinds.stage import Stage, at, check_places, name_of
from tests.reconciler.scenes import GPU, QUEUES, WORKLOADS

Obj = dict[str, Any]
Life = Callable[[Stage, Scenario, Topogate], None]
PODS = "/api/v1/namespaces/{}/pods"
STILL_S = 2.0  # controllers that write again and again do so within this time
SERVES = ("RayCluster", "RayService", "LeaderWorkerSet")  # never finished by themselves


def until_still(stage: Stage, scenario: Scenario) -> None:
    """Waits until no object of the namespace is written any more: a controller that writes again and again never stands still."""
    scene, seen = stage.scene, dict[str, str]()
    paths = [stage.path(scenario), WORKLOADS.format(scene.namespace), PODS.format(scene.namespace)]

    def is_still() -> bool:
        nonlocal seen
        before = seen
        found = (obj for path in paths for obj in scene.api.list(path))
        seen = {obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in found}
        return bool(seen) and seen == before

    wait_for("all objects to stand still", is_still, poll_s=STILL_S)


def start(stage: Stage, scenario: Scenario, made: Obj | None = None) -> truth.Snapshot:
    """A job of a kind whose pods are all bound where they should be."""
    name = name_of(scenario)
    stage.scene.api.create(stage.path(scenario), made if made is not None else stage.make(scenario, name))
    now = stage.scene.until_bound(name, scenario.total)
    check_places(stage, scenario, name, now)
    return now


def end(stage: Stage, scenario: Scenario) -> None:
    """Nothing is written any more; then the job is deleted, and nothing of it is left."""
    until_still(stage, scenario)
    stage.delete(scenario, name_of(scenario))
    stage.until_gone(name_of(scenario))


def hosts_of(now: truth.Snapshot, name: str) -> dict[str, str]:
    """The node of each pod that is not ending, by its uid."""
    pods = (pod for pod in now.pods_of(name) if not pod["metadata"].get("deletionTimestamp"))
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName") or "" for pod in pods}


# --- lives ----------------------------------------------------------------------------------------------


def suspended_and_resumed(stage: Stage, scenario: Scenario, topogate: Topogate) -> None:
    name = name_of(scenario)
    created = stage.create(scenario, name)
    assert at(created, scenario.suspend_path) is True
    with stage.acting(scenario):
        now = stage.scene.until_bound(name, scenario.total)
        check_places(stage, scenario, name, now)
        stage.suspend(scenario, name, True)

        def is_given_back(now: truth.Snapshot) -> bool:
            return not now.pods_of(name) and truth.get_condition(now.workload_of(name), "QuotaReserved").get("status") == "False"

        stage.scene.eventually(f"{name} to give everything back", is_given_back)
        templates = stage.scene.api.get(f"{stage.path(scenario)}/{name}")["spec"]
        assert "kueue.x-k8s.io/workload" not in str(templates), "its own templates are given back"

        stage.resume(scenario, name)
        now = stage.scene.until_bound(name, scenario.total)
        check_places(stage, scenario, name, now)
        end(stage, scenario)


def finished(stage: Stage, scenario: Scenario, topogate: Topogate) -> None:
    """Its pods end after a second; what it held is free."""
    name = name_of(scenario)
    with stage.acting(scenario):
        stage.scene.api.create(stage.path(scenario), _annotate_pods(stage.make(scenario, name)))
        stage.scene.eventually(f"{name} to be over", lambda now: truth.is_true(now.workload_of(name), "Finished"))
        workload = stage.scene.read().workload_of(name)
        assert truth.get_condition(workload, "Finished")["reason"] == "Succeeded"
        end(stage, scenario)


def deleted_while_running(stage: Stage, scenario: Scenario, topogate: Topogate) -> None:
    with stage.acting(scenario):
        start(stage, scenario)
        end(stage, scenario)


def preempted_and_back(stage: Stage, scenario: Scenario, topogate: Topogate) -> None:
    """A job of a higher priority takes the quota, and gives it back."""
    scene, name = stage.scene, name_of(scenario)
    asked = scenario.gpus
    path = f"{QUEUES}/{scene.prefix}queue"
    groups = scene.api.get(path)["spec"]["resourceGroups"]
    classes = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"
    high = f"{scene.prefix}high"
    scene.allow_preemption()
    scene.api.patch(path, {"spec": {"resourceGroups": _limit(groups, asked)}})
    scene.api.create(classes, {"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": high}, "value": 9})
    try:
        with stage.acting(scenario):
            start(stage, scenario)
            scene.submit("urgent", pods=1, gpus=GPUS, labels={PRIORITY_CLASS_LABEL: high})
            scene.until_bound("urgent", 1)
            evicted = truth.get_condition(scene.read().workload_of(name), "Evicted")
            assert (evicted["status"], evicted["reason"]) == ("True", REASON_PREEMPTED)
            assert hosts_of(scene.read(), name) == {}
            scene.delete_job("urgent")
            now = scene.until_bound(name, scenario.total)
            check_places(stage, scenario, name, now)
            end(stage, scenario)
    finally:
        scene.api.patch(path, {"spec": {"resourceGroups": groups, "preemption": None}})
        scene.api.delete(f"{classes}/{high}")


def node_not_ready(stage: Stage, scenario: Scenario, topogate: Topogate) -> None:
    """Its pods move to another node, and the others stay."""
    _lose_node(stage, scenario, lambda node: stage.scene.cluster.set_node_ready(node, ready=False))


def node_deleted(stage: Stage, scenario: Scenario, topogate: Topogate) -> None:
    """The same where the node is gone."""
    _lose_node(stage, scenario, lambda node: stage.scene.cluster.delete_nodes([node]))


def reconciler_killed(stage: Stage, scenario: Scenario, topogate: Topogate) -> None:
    """The next one goes on where it was, and no pod is made twice."""
    name = name_of(scenario)
    with stage.acting(scenario):
        stage.create(scenario, name)
        topogate.kill_reconciler()
        topogate.start_reconciler()
        now = stage.scene.until_bound(name, scenario.total)
        before = hosts_of(now, name)
        topogate.kill_reconciler()
        topogate.start_reconciler()
        until_still(stage, scenario)
        assert hosts_of(stage.scene.read(), name) == before
        end(stage, scenario)


LIVES: Mapping[str, Life] = {
    life.__name__.replace("_", " "): life
    for life in (
        suspended_and_resumed,
        finished,
        deleted_while_running,
        preempted_and_back,
        node_not_ready,
        node_deleted,
        reconciler_killed,
    )
}

LOSING_NODES = ("node not ready", "node deleted")


def lives_of(kind: str) -> list[str]:
    """The lives that a job of a kind may have."""
    never = {finished} if kind in SERVES else set[Life]()
    never |= {suspended_and_resumed} if kind == "LeaderWorkerSet" else set()
    return [name for name, life in LIVES.items() if life not in never]


# --- parts ----------------------------------------------------------------------------------------------


def _lose_node(stage: Stage, scenario: Scenario, lose: Callable[[str], None]) -> None:
    scene, name = stage.scene, name_of(scenario)
    with stage.acting(scenario):
        before = hosts_of(start(stage, scenario), name)
        pod_set = next(iter(scenario.ranked), next(iter(scenario.pods)))
        pods = [pod for pod in scene.read().pods_of(name) if pod["metadata"]["labels"][PODSET_LABEL] == pod_set]
        if scenario.kind == "SparkApplication":  # it fails with its driver, the first
            drivers = {pod["spec"]["nodeName"] for pod in pods}
            pods = [pod for pod in scene.read().pods_of(name) if pod["spec"]["nodeName"] not in drivers]
        # Of the last rank: where the first pod of a LeaderWorkerSet goes, all of its group are made anew.
        gone = max(pods, key=lambda pod: [int(pod["metadata"]["labels"][label]) for label in scenario.rank_labels])["spec"]["nodeName"]
        lose(gone)
        for pod in scene.read().pods_of(name):
            if pod["spec"].get("nodeName") == gone:  # what a kubelet or the garbage collector does some minutes later
                scene.api.delete(f"{PODS.format(scene.namespace)}/{pod['metadata']['name']}", grace_period_s=0)

        def is_whole(now: truth.Snapshot) -> bool:
            there = hosts_of(now, name)
            return len(there) == scenario.total and "" not in there.values() and gone not in there.values()

        scene.eventually(f"{name} to be whole without {gone}", is_whole)
        now = scene.read()
        after = hosts_of(now, name)
        assert {uid: node for uid, node in before.items() if node != gone}.items() <= after.items()
        assert truth.as_assigned(now, name) == []
        assert not truth.is_true(now.workload_of(name), "Evicted")
        end(stage, scenario)


def _annotate_pods(value: Any) -> Any:
    """The same with the annotation in each pod template by which a simulated kubelet ends the pod."""
    if isinstance(value, list):
        return [_annotate_pods(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    made = {key: _annotate_pods(entry) for key, entry in value.items()}
    notes = {RUN_SECONDS: "1s", "e2e.topogate.dev/complete": "true"}
    if isinstance(made.get("spec"), dict) and "containers" in made["spec"]:
        metadata = made.get("metadata") or {}
        made["metadata"] = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **notes}}
    elif REQUIRED_TOPOLOGY in (made.get("annotations") or {}):  # a patch of a template has no containers, a role of Spark no metadata
        made["annotations"] |= notes
    return made


def _limit(groups: list[Obj], gpus: int) -> list[Obj]:
    """Groups of resources with a quota of so many GPUs."""

    def limit(resource: Obj) -> Obj:
        return {**resource, "nominalQuota": gpus} if resource["name"] == GPU else resource

    flavors = [
        [{**flavor, "resources": [limit(resource) for resource in flavor["resources"]]} for flavor in group["flavors"]] for group in groups
    ]
    return [{**group, "flavors": limited} for group, limited in zip(groups, flavors, strict=True)]
