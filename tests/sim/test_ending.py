"""How jobs and their Workloads are left when time has passed in peace, and what the simulation says of that."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest

from core.names import API_VERSION, PREBUILT_WORKLOAD, PRIORITY_CLASS_LABEL
from e2e import manifests
from e2e.standins.pods import has_condition
from sim.ending import find_unsettled
from sim.models.kubelets import ENDS_BADLY
from sim.world import World
from tests.sim.test_world import build_job, open_world

Json = dict[str, Any]
LOW = {"metadata": {"labels": {PRIORITY_CLASS_LABEL: "low"}}}


@pytest.fixture
def world() -> Iterator[World]:
    """A queue without quota, so that all jobs wait."""
    world = World(1)
    world.apply(manifests.build_flavor("f", {}, None))
    world.apply(manifests.build_cluster_queue("cq", {"f": {"cpu": 0, "nvidia.com/gpu": 0}}))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    world.apply(manifests.build_local_queue("main", "team", "cq"))
    world.apply({"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "low"}, "value": 1})
    world.start_replicas(2)
    world.run_for(30)
    yield world
    world.close()


def make_waiting(world: World, name: str, **labels: str) -> Json:
    """A job that waits."""
    job = manifests.build_job(name, "team", pods=1, gpus=1)
    job["metadata"]["labels"] |= labels
    made = world.apply(job)
    world.run_for(5)
    return made


def make_prebuilt(world: World, name: str) -> Json:
    """A job that waits with a Workload which its user has written."""
    own = manifests.build_job(name, "team", pods=1, gpus=1)["spec"]["template"]
    pod_set = {"name": "main", "count": 1, "template": {"spec": own["spec"]}}
    metadata = {"name": f"{name}-own", "namespace": "team"}
    spec = {"queueName": "main", "podSets": [pod_set]}
    world.apply({"apiVersion": API_VERSION, "kind": "Workload", "metadata": metadata, "spec": spec})
    return make_waiting(world, name, **{PREBUILT_WORKLOAD: f"{name}-own"})


def test_priority_class_of_a_job_is_not_wanted_of_its_prebuilt_workload(world: World):
    job = make_prebuilt(world, "booked")
    world.patch("batch", "jobs", job, LOW)
    world.run_for(5)
    [workload] = world.objects("kueue.x-k8s.io", "workloads")
    assert workload["metadata"]["ownerReferences"]
    assert "priorityClassRef" not in workload["spec"]
    assert list(find_unsettled(world)) == []


def test_priority_class_that_a_waiting_workload_does_not_follow_is_found(world: World):
    job = make_waiting(world, "train")
    for replica in world.replicas:
        replica.end()
    world.run_for(1)
    world.patch("batch", "jobs", job, LOW)
    world.run_for(5)
    assert "Job train has the priority class low, and its workload that waits does not" in list(find_unsettled(world))


def test_prebuilt_workload_is_not_finished_by_a_leader_that_has_not_seen_its_job(world: World):
    """It was, for want of an owner, and its job could never start (seed 48 of full-size ones)."""
    [late] = [replica for replica in world.replicas if not replica.leads]
    late.faults.late_s["jobs"] = inf
    make_prebuilt(world, "booked")
    next(replica for replica in world.replicas if replica.leads).kill()
    world.run_for(60)
    assert late.decides
    late.faults.late_s.clear()
    world.run_for(60)
    [workload] = world.objects("kueue.x-k8s.io", "workloads")
    assert not has_condition(workload, "Finished")
    assert list(find_unsettled(world)) == []


def test_job_that_makes_no_pods_for_a_while_after_failures_is_at_rest():
    """Found by an attacker's simulation (seed 2083): after six failures the Job controller waits longer than the quiet time at the end."""
    world = open_world(1)
    failing = build_job("fails", 3, seconds=5)
    failing["spec"]["template"]["metadata"]["annotations"][ENDS_BADLY] = "true"
    failing["spec"]["backoffLimit"] = 6
    world.apply(failing)
    world.run_for(330)
    [found] = world.objects("batch", "jobs")
    assert (found["status"]["failed"], found["status"].get("active")) == (6, None)
    assert list(find_unsettled(world)) == []
    world.close()


def test_failed_pod_of_a_suspended_job_that_waits_for_another_of_its_index_is_settled(world: World):
    """Seed 811: the Job controller keeps it, with its finalizer, until it makes the next one, which counts its failures."""
    [queue] = world.objects("kueue.x-k8s.io", "clusterqueues")
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"] = [
        {"name": name, "nominalQuota": "9"} for name in ("cpu", "nvidia.com/gpu")
    ]
    world.patch("kueue.x-k8s.io", "clusterqueues", queue, {"spec": queue["spec"]})
    world.apply(manifests.build_job("j", "team", pods=2, gpus=1, spec={"completionMode": "Indexed", "backoffLimitPerIndex": 1}))
    world.run_for(20)
    [first, _] = world.objects("", "pods")
    ended = {"type": "Ready", "status": "False", "lastTransitionTime": world.time()}
    world.patch("", "pods", first, {"status": {"phase": "Failed", "conditions": [ended]}}, "status")
    world.run_for(3)
    [workload] = world.objects("kueue.x-k8s.io", "workloads")
    world.patch("kueue.x-k8s.io", "workloads", workload, {"spec": {"active": False}})
    world.run_for(30)
    world.delete(first)
    world.run_for(120)
    [kept] = world.objects("", "pods")
    assert kept["metadata"]["uid"] == first["metadata"]["uid"]
    assert kept["metadata"]["deletionTimestamp"]
    assert list(find_unsettled(world)) == []
