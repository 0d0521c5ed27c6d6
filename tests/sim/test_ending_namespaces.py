"""A namespace that is being deleted, and that a finalizer keeps, holds no quota for pods that can never be made."""

from __future__ import annotations

from e2e import manifests
from sim.world import World
from tests.sim.test_world import build_job, open_world


def delete_pods(world: World, namespace: str) -> None:
    """As Kubernetes does first of all."""
    for pod in world.objects("", "pods"):
        if pod["metadata"]["namespace"] == namespace:
            world.delete(pod)


def open_two_teams() -> World:
    world = open_world(1)
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "finalizers": ["example.com/kept"]}})
    world.apply(manifests.build_local_queue("main", "other", "cq"))
    return world


def in_other(name: str, pods: int) -> dict[str, object]:
    made = build_job(name, pods, None)
    return {**made, "metadata": {**made["metadata"], "namespace": "other"}}


def end_namespace(world: World) -> None:
    [namespace] = [each for each in world.objects("", "namespaces") if each["metadata"]["name"] == "other"]
    world.delete(namespace)
    world.run_for(2)
    delete_pods(world, "other")


def list_running(world: World) -> list[str]:
    pods = world.objects("", "pods")
    return sorted(pod["metadata"]["namespace"] for pod in pods if pod["status"].get("phase") == "Running")


def test_workloads_of_a_namespace_that_is_being_deleted_give_their_quota_back():
    world = open_two_teams()
    world.apply(in_other("runs", 6))
    world.run_for(20)
    world.apply(build_job("waits", 6, None))
    world.run_for(20)
    assert list_running(world) == ["other"] * 6
    end_namespace(world)
    world.run_for(60)
    assert list_running(world) == ["team"] * 6
    world.close()


def test_workload_that_waits_in_a_namespace_that_is_being_deleted_is_not_admitted():
    world = open_two_teams()
    world.apply(build_job("runs", 6, 100))
    world.run_for(20)
    world.apply(in_other("waits", 6))
    world.run_for(20)
    end_namespace(world)
    world.run_for(200)
    assert list_running(world) == []
    [workload] = [each for each in world.objects("kueue.x-k8s.io", "workloads") if each["metadata"]["namespace"] == "other"]
    [reserved] = [each for each in workload["status"]["conditions"] if each["type"] == "QuotaReserved"]
    assert (reserved["status"], reserved["message"]) == ("False", "namespace other is being deleted, and no pod can be made in it")
    world.close()
