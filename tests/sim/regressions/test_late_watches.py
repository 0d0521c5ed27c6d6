"""One watch is half a minute behind the others: the audit of objects holds at every moment, and everything ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.names import API_VERSION, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, TOPOLOGY_GATE
from e2e import manifests
from e2e.nodes import build_nodes
from sim.apiserver.server import Request
from sim.models.base import POD, is_over
from sim.models.kubelets import RUN_SECONDS
from sim.transport import Faults
from sim.world import World
from tests.sim.test_world import POOL

Json = dict[str, Any]
ENDING_S = 15.0  # a pod that is deleted runs on for so long
CONFIGURATION = "clusterqueues localqueues resourceflavors topologies namespaces limitranges workloadpriorityclasses"


class Play:
    """A cluster of eight nodes in two racks. Queue `main` has all of it with a topology, queue `plain` half of it without."""

    def __init__(self) -> None:
        world = self.world = World(1)
        self.faults = Faults(random.Random(1))
        for node in build_nodes(POOL):
            world.apply(set_ready(node, "True"))
        world.apply(manifests.build_topology("t", POOL.levels))
        world.apply(manifests.build_flavor("f", {}, "t"))
        world.apply(manifests.build_flavor("p", {"type": "kwok"}, None))
        preempts = {"withinClusterQueue": "LowerPriority"}
        world.apply(manifests.build_cluster_queue("cq", {"f": {"cpu": 100, "nvidia.com/gpu": 64}}, preemption=preempts))
        world.apply(manifests.build_cluster_queue("pq", {"p": {"cpu": 100, "nvidia.com/gpu": 32}}))
        world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        world.apply(manifests.build_local_queue("main", "team", "cq"))
        world.apply(manifests.build_local_queue("plain", "team", "pq"))
        for name, value in (("low", 1), ("high", 100)):
            world.apply({"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value})
        self._let_pods_end_slowly()
        world.start_reconciler(self.faults)
        world.run_for(5)

    def _let_pods_end_slowly(self) -> None:
        kubelets, ends = self.world.kubelets, dict[str, float]()
        look = kubelets.look

        def look_later(resource: tuple[str, str], key: tuple[str, str]) -> None:
            pod = kubelets.find(resource, key)
            if pod is not None and pod["metadata"].get("deletionTimestamp") and pod["spec"].get("nodeName") and not is_over(pod):
                left = ends.setdefault(pod["metadata"]["uid"], kubelets.loop.time() + ENDING_S) - kubelets.loop.time()
                if left > 0:
                    kubelets.add(resource, key, left)
                    return
            look(resource, key)

        kubelets.look = look_later  # type: ignore[method-assign]

    def add(self, name: str, pods: int, seconds: int = 30, queue: str = "main", priority: str = "") -> Json:
        rack = {"required": POOL.rack_label} if queue == "main" else {}
        made = manifests.build_job(name, "team", pods=pods, gpus=8, queue=queue, **rack)  # type: ignore[arg-type]
        made["spec"]["template"]["metadata"]["annotations"][RUN_SECONDS] = str(seconds)
        if priority:
            made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
        return self.world.apply(made)

    def add_group(self, name: str, pods: int, seconds: int = 30) -> None:
        [container] = manifests.build_job("", "", pods=1, gpus=8)["spec"]["template"]["spec"]["containers"]
        for number in range(pods):
            labels = {QUEUE_NAME_LABEL: "main", "kueue.x-k8s.io/pod-group-name": name, "job-name": name}
            notes = {"kueue.x-k8s.io/pod-group-total-count": str(pods), REQUIRED_TOPOLOGY: POOL.rack_label, RUN_SECONDS: str(seconds)}
            metadata = {"name": f"{name}-{number}", "namespace": "team", "labels": labels, "annotations": notes}
            spec = {"restartPolicy": "Never", "containers": [container]}
            self.world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def pods(self, name: str) -> list[Json]:
        return [pod for pod in self.world.objects("", "pods") if pod["metadata"]["labels"].get("job-name") == name]

    def workload(self, name: str) -> Json | None:
        found = self.world.objects("kueue.x-k8s.io", "workloads")
        return next((each for each in found if (each["metadata"].get("ownerReferences") or [{}])[0].get("name") == name), None)

    def patch(self, group: str, plural: str, name: str, body: Json, subresource: str = "") -> None:
        kind = next(kind for kind in self.world.server.kinds.values() if kind.resource == (group, plural))
        namespace = "team" if kind.namespaced else ""
        self.world.server.patch(Request("patch", kind, namespace, name, subresource, {}, body, "application/merge-patch+json", "user"))

    def suspend(self, name: str, suspend: bool) -> None:
        self.patch("batch", "jobs", name, {"spec": {"suspend": suspend}})

    def run_for(self, seconds: float) -> None:
        end = self.world.loop.time() + seconds
        while self.world.loop.time() < end:
            self.world.run_for(1.0)
            assert self.world.find_broken() == [], f"at {self.world.loop.time():.1f} s"

    def run_until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(400):
            if is_so():
                return
            self.run_for(0.5)
        raise AssertionError("it never comes to that")

    def run_until_pods(self, name: str, phase: str = "Running") -> None:
        self.run_until(lambda: bool(self.pods(name)) and all(pod["status"]["phase"] == phase for pod in self.pods(name)))


def set_ready(node: Json, status: str) -> Json:
    ready = {"type": "Ready", "status": status, "reason": "K", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**node, "status": {**(node.get("status") or {}), "conditions": [ready]}}


def delete_gated(play: Play) -> None:
    job = play.add("one", 3, 300)
    play.run_until(lambda: bool(play.pods("one")))
    play.world.delete(job, propagationPolicy="Background")
    play.add("two", 4)
    play.add("three", 4)


def delete_running(play: Play) -> None:
    job = play.add("one", 3, 300)
    play.run_until_pods("one")
    play.world.delete(job, propagationPolicy="Foreground")
    play.add("two", 4)
    play.add("three", 4)


def delete_without_topology(play: Play) -> None:
    job = play.add("one", 4, 300, "plain")
    play.run_until_pods("one")
    play.world.delete(job, propagationPolicy="Background")
    play.add("two", 4, queue="plain")


def suspend_without_topology(play: Play) -> None:
    play.add("one", 4, queue="plain")
    play.run_until_pods("one")
    play.suspend("one", True)
    play.add("two", 4, queue="plain")
    play.run_for(90)
    play.suspend("one", False)


def delete_workload_without_topology(play: Play) -> None:
    play.add("one", 4, queue="plain")
    play.run_until_pods("one")
    play.world.delete(play.workload("one") or {})
    play.add("two", 4, queue="plain")


def orphan_and_delete_workload(play: Play) -> None:
    job = play.add("one", 4, 300)
    play.run_until_pods("one")
    play.world.delete(job, propagationPolicy="Orphan")
    play.run_for(0.5)
    if (workload := play.workload("one")) is not None:
        play.world.delete(workload)
    for found in play.world.objects("kueue.x-k8s.io", "workloads"):
        play.world.delete(found)
    play.add("two", 4)
    play.add("three", 4)


def recreate(play: Play) -> None:
    job = play.add("one", 3, 300)
    play.run_until_pods("one")
    play.world.delete(job, propagationPolicy="Background")
    play.run_for(0.5)
    play.add("one", 4)
    play.add("two", 4)


def preempt(play: Play) -> None:
    play.add("one", 4, 60, priority="low")
    play.add("two", 4, 60, priority="low")
    play.run_until(lambda: bool(play.pods("two")))
    play.add("three", 4, priority="high")


def replace_node(play: Play) -> None:
    play.add("one", 3, 60)
    play.run_until_pods("one")
    name = play.pods("one")[0]["spec"]["nodeName"]
    node = next(node for node in play.world.objects("", "nodes") if node["metadata"]["name"] == name)
    play.world.delete(node)
    play.add("two", 4)
    play.run_for(20)
    metadata = {"name": name, "labels": node["metadata"]["labels"]}
    play.world.apply(set_ready({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": node["status"]}, "True"))


def scale(play: Play) -> None:
    play.add("one", 3)
    play.run_until_pods("one")
    play.patch("batch", "jobs", "one", {"spec": {"parallelism": 1}})
    play.add("two", 4)
    play.add("three", 3)


def finish(play: Play) -> None:
    for number in range(6):
        play.add(f"job-{number}", 3, 2)


def replace_group(play: Play) -> None:
    play.add_group("one", 4, 300)
    play.run_until_pods("one")
    for pod in play.pods("one"):
        play.world.delete(pod)
    play.add("two", 4)
    play.add_group("three", 4)


OF_JOBS = [delete_gated, delete_without_topology, suspend_without_topology, recreate, preempt, scale, finish]
OF_WORKLOADS = [*OF_JOBS, delete_workload_without_topology, orphan_and_delete_workload]
SCENES = [
    *(("pods", scene) for scene in (*OF_WORKLOADS, delete_running, replace_node, replace_group)),
    *(("nodes", scene) for scene in (replace_node, preempt)),
    *(("jobs", scene) for scene in OF_JOBS),
    *(("workloads", scene) for scene in (*OF_WORKLOADS, replace_node, replace_group)),
    *((CONFIGURATION, scene) for scene in (preempt, finish)),
]


def find_left(world: World) -> Iterator[str]:
    """What has neither ended nor gone."""
    for job in world.objects("batch", "jobs"):
        if not any(condition["type"] == "Complete" for condition in (job.get("status") or {}).get("conditions") or ()):
            yield f"job {job['metadata']['name']}"
    for pod in world.objects(*POD):
        if not is_over(pod):
            yield f"pod {pod['metadata']['name']}"
    for workload in world.objects("kueue.x-k8s.io", "workloads"):
        finished = (c for c in (workload.get("status") or {}).get("conditions") or () if c["type"] == "Finished" and c["status"] == "True")
        if not any(finished) or workload["metadata"].get("finalizers"):
            yield f"workload {workload['metadata']['name']}"


@pytest.fixture(autouse=True)
def close_worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[World] = []
    begin = World.__init__

    def note(self: World, *args: Any, **options: Any) -> None:
        opened.append(self)
        begin(self, *args, **options)

    monkeypatch.setattr(World, "__init__", note)
    yield
    for world in opened:
        world.close()


@pytest.mark.parametrize(("late", "scene"), SCENES, ids=lambda each: each.__name__ if callable(each) else each.partition(" ")[0])
def test_audit_holds_and_all_ends_while_one_watch_is_late(late: str, scene: Callable[[Play], None]) -> None:
    play = Play()
    play.faults.late_s |= dict.fromkeys(late.split(), 30.0)
    scene(play)
    play.run_for(60)
    play.faults.late_s.clear()
    for _ in range(30):
        if not any(find_left(play.world)):
            break
        play.run_for(10)
    assert list(find_left(play.world)) == []


def test_orphaned_workload_stays_until_pods_that_are_not_seen_ungated_have_ended() -> None:
    """They were taken for pods that wait: the finalizer was dropped, and their nodes were given to others."""
    play = Play()
    job = play.add("one", 4, 300)
    play.run_until(lambda: bool(play.pods("one")))
    play.run_for(0.5)
    play.faults.late_s["pods"] = 30.0
    play.run_until_pods("one")
    [workload] = play.world.objects("kueue.x-k8s.io", "workloads")
    play.world.delete(job, propagationPolicy="Orphan")
    play.run_for(1)
    play.world.delete(workload)
    for _ in range(60):
        play.run_for(1)
        if any(pod["status"]["phase"] == "Running" for pod in play.pods("one")):
            assert play.world.objects("kueue.x-k8s.io", "workloads"), "its pods run"
    assert all(is_over(pod) for pod in play.pods("one")), "nobody else ends them"


def test_workload_without_an_owner_stays_until_pods_that_are_not_seen_ungated_have_ended() -> None:
    play = Play()
    spec = {"restartPolicy": "Never", "containers": manifests.build_job("", "", pods=1, gpus=8)["spec"]["template"]["spec"]["containers"]}
    pod_set = {"name": "main", "count": 4, "template": {"spec": spec}, "topologyRequest": {"required": POOL.rack_label}}
    metadata = {"name": "made-by-hand", "namespace": "team"}
    head = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": metadata}
    workload = play.world.apply({**head, "spec": {"queueName": "main", "podSets": [pod_set]}}, user="admin")
    play.run_for(3)
    labels, notes = {"kueue.x-k8s.io/podset": "main", "job-name": "by-hand"}, {"kueue.x-k8s.io/workload": "made-by-hand"}
    for number in range(4):
        of_pod = {"name": f"pod-{number}", "namespace": "team", "labels": labels, "annotations": notes}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": of_pod, "spec": {**spec, "schedulingGates": [{"name": TOPOLOGY_GATE}]}}
        play.world.apply(pod, user="admin")
    play.run_for(0.5)
    play.faults.late_s["pods"] = 30.0
    play.run_until_pods("by-hand")
    play.world.delete({**workload, **head})
    play.run_for(60)
    assert [each["metadata"]["name"] for each in play.world.objects("kueue.x-k8s.io", "workloads")] == ["made-by-hand"]
