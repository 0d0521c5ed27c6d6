"""Pods of a job that are there before its start, or after its end."""

from __future__ import annotations

import random

from core.names import PRIORITY_CLASS_LABEL, TOPOLOGY_GATE
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.catalogue import make_job
from sim.models.base import JOB, POD, build_owner_reference
from sim.models.jobs import JobController
from sim.models.owners import GarbageCollector
from sim.world import WORKLOADS
from tests.sim.one_queue import make_world

POOL = NodePool(blocks=1, racks=1, nodes=2, labels={"pool": "a"})


def test_job_that_waits_for_pods_of_before_says_so_and_starts_when_they_are_gone() -> None:
    """Found by an attack: its pods had been made late, and it stayed suspended with its quota without a word."""
    world = make_world(POOL, gpus=16)
    [controller] = [model for model in world.models if isinstance(model, JobController)]
    controller.is_stopped = True
    world.apply(manifests.build_job("j", "ns", pods=1, gpus=1, required=POOL.rack_label))
    [job] = world.objects(*JOB)
    metadata = {"name": "late", "namespace": "ns", "ownerReferences": [build_owner_reference(job, "batch/v1", "Job")]}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c", "image": "c:1"}]}})
    world.start_reconciler()
    world.run_for(30)
    events = [event for event in world.objects("", "events") if event["reason"] == "WaitingForPods"]
    assert len(events) == 1
    assert world.objects(*JOB)[0]["spec"]["suspend"]
    world.delete(next(pod for pod in world.objects(*POD) if pod["metadata"]["name"] == "late"), gracePeriodSeconds=0)
    world.run_for(30)
    assert not world.objects(*JOB)[0]["spec"]["suspend"]
    world.close()


def test_job_edited_while_it_waited_starts_without_an_event_about_pods() -> None:
    """Whether it may have pods that are not seen yet is not known for a moment: it said that it waits for pods, and there were none."""
    world = make_world(POOL, gpus=1)
    world.start_reconciler()
    world.apply(manifests.build_job("j", "ns", pods=2, gpus=1, unconstrained="true"))
    world.run_for(10)
    [job] = world.objects(*JOB)
    assert job["spec"]["suspend"]
    world.patch(*JOB, job, {"spec": {"parallelism": 1, "completions": 1}})
    world.run_for(10)
    assert not world.objects(*JOB)[0]["spec"]["suspend"]
    assert [event for event in world.objects("", "events") if event["reason"] == "WaitingForPods"] == []
    world.close()


def test_quota_of_a_rayjob_that_is_evicted_is_kept_while_pods_of_its_cluster_run() -> None:
    """Seed 554: its RayCluster was gone, and the garbage collector had not deleted the pods yet. Another workload had the quota then, and
    no nodes."""
    world = make_world(POOL, gpus=16)
    for obj in make_job("j", "ns", random.Random(1), 2, "rayjob"):
        obj["metadata"]["labels"].pop(PRIORITY_CLASS_LABEL, None)
        world.apply(obj)
    world.start_reconciler()
    world.run_for(60)
    assert {pod["status"]["phase"] for pod in world.objects(*POD)} == {"Running"}
    [collector] = [model for model in world.models if isinstance(model, GarbageCollector)]
    collector.is_stopped = True
    [workload] = world.objects(*WORKLOADS)
    world.patch(*WORKLOADS, workload, {"spec": {"active": False}})
    world.run_for(60)
    assert world.objects("ray.io", "rayclusters") == []
    assert {pod["status"]["phase"] for pod in world.objects(*POD)} == {"Running"}
    assert has_condition(world.objects(*WORKLOADS)[0], "QuotaReserved")
    running = world.objects(*POD)
    metadata = {name: running[0]["metadata"][name] for name in ("namespace", "annotations", "labels", "ownerReferences")}
    gated = {"containers": [{"name": "c", "image": "c:1"}], "schedulingGates": [{"name": TOPOLOGY_GATE}]}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated", **metadata}, "spec": gated})
    for pod in running:
        world.delete(pod)
    world.run_for(60)
    assert not has_condition(world.objects(*WORKLOADS)[0], "QuotaReserved"), "a pod that waits behind a gate holds nothing"
    world.close()
