"""Elastic jobs under attack: late watches, processes that are cut off, Workloads that users write. Nothing runs beyond quota or a node."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from core.model.gates import ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, ChosenGates
from core.names import ELASTIC_JOB, SLICE_REPLACES
from e2e import manifests
from e2e.standins.pods import has_condition
from sim.apiserver.server import Change
from sim.ending import find_unsettled
from sim.models.base import JOB, POD
from sim.transport import Faults
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world
from tests.sim.regressions.test_growing_ray import CLUSTER, POOL

Json = dict[str, Any]
KINDS = ("Job", "RayCluster", "RayJob", "RayService")


@pytest.fixture
def faults() -> Faults:
    return Faults(random.Random(1))


@pytest.fixture(params=[True, False], ids=["topology", "plain"])
def world(request: pytest.FixtureRequest, faults: Faults) -> Iterator[World]:
    """Quota for 12 GPUs."""
    world = make_world(POOL, gpus=12, levels=None if request.param else [])
    world.start_reconciler(faults=faults, gates=ChosenGates({ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: bool(request.param)}))
    yield world
    world.close()


def make_elastic(kind: str, workers: int) -> Json:
    """With pods or workers of two GPUs each."""
    if kind != "Job":
        return manifests.make_elastic_ray(kind, "j", "ns", workers=workers, gpus=2)
    job = manifests.build_job("j", "ns", pods=workers, gpus=2, spec={"completions": 100})
    job["metadata"]["annotations"] = {ELASTIC_JOB: "true"}
    return job


def find_job(world: World, kind: str) -> Json:
    resource = JOB if kind == "Job" else ("ray.io", f"{kind.lower()}s")
    return next(job for job in world.objects(*resource) if job["metadata"]["name"] == "j")


def scale(world: World, kind: str, workers: int) -> None:
    if kind == "Job":
        world.patch(*JOB, find_job(world, kind), {"spec": {"parallelism": workers}})
        return
    [cluster] = world.objects(*CLUSTER)
    first, *others = cluster["spec"]["workerGroupSpecs"]
    world.patch(*CLUSTER, cluster, {"spec": {"workerGroupSpecs": [{**first, "replicas": workers}, *others]}})


def suspend(world: World, kind: str, value: bool) -> None:
    spec: Json = {"suspend": value}
    job = find_job(world, kind)
    resource = JOB if kind == "Job" else ("ray.io", f"{kind.lower()}s")
    # By an administrator: a policy lets no user unsuspend those of Ray.
    world.patch(*resource, job, {"spec": {"rayClusterConfig": spec} if kind == "RayService" else spec}, user="admin")


def count_gpus(world: World) -> int:
    running = (pod for pod in world.objects(*POD) if pod["status"].get("phase") == "Running")
    return sum(int(each["resources"]["requests"].get("nvidia.com/gpu", 0)) for pod in running for each in pod["spec"]["containers"])


def admitted(world: World, name: str = "j") -> list[dict[str, int]]:
    """What each Workload of a job that is not over was admitted with, but for heads."""
    mine = [each for each in world.objects(*WORKLOADS) if f"-{name}-" in each["metadata"]["name"] and not has_condition(each, "Finished")]
    given = [(each["status"].get("admission") or {}).get("podSetAssignments") or () for each in mine]
    return [{part["name"]: part["count"] for part in each if part["name"] != "head"} for each in given if each]


@pytest.mark.parametrize("lag_s", [1.2, 3.0])
@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
def test_pods_that_are_asked_for_again_wait_until_the_reduced_admission_is_seen(
    world: World, faults: Faults, kind: str, lag_s: float
) -> None:
    """Former defect: they were let in by the admission from before, and the quota was another job's by then: 20 of 12 GPUs."""
    world.apply(make_elastic(kind, 6))
    world.run_for(30)
    world.apply(manifests.build_job("other", "ns", pods=4, gpus=2))
    world.run_for(10)
    faults.late_s = {"workloads": lag_s}
    scale(world, kind, 1)
    while [sum(counts.values()) for counts in admitted(world)] != [1]:
        world.run_for(0.05)
    scale(world, kind, 6)
    for _ in range(100):
        world.run_for(0.2)
        assert count_gpus(world) <= 12
    assert world.find_broken() == []
    assert count_gpus(world) == 10


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
def test_workers_that_are_added_have_room_beside_those_of_another_group(kind: str) -> None:
    """Former defect: the places of the other group were taken for free: 9 GPUs on a node of 8."""
    world = make_world(POOL, gpus=40)
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: True}))
    ray = manifests.make_elastic_ray(kind, "j", "ns", workers=1, gpus=1, required=POOL.rack_label)
    spec = ray["spec"]
    groups = (spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec)["workerGroupSpecs"]
    groups.append({**deepcopy(groups[0]), "groupName": "big", "replicas": 2})
    for amounts in groups[1]["template"]["spec"]["containers"][0]["resources"].values():
        amounts["nvidia.com/gpu"] = "2"
    world.apply(ray)
    world.run_for(30)
    scale(world, kind, 5)
    for _ in range(60):
        world.run_for(0.5)
        assert world.find_broken() == []
    assert admitted(world) == [{"gpu": 5, "big": 2}]
    assert count_gpus(world) == 9
    world.close()


@pytest.mark.parametrize("after_s", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_job_unsuspended_before_its_start_gets_no_more_pods_than_admitted(world: World, faults: Faults, kind: str, after_s: int) -> None:
    """Former defect: its templates have no gate, and it was resized as if it had been started: 40 of 12 GPUs. After one second it was
    stopped and started again before its pods were seen, which ran on in places that were not theirs."""

    def cut_off(change: Change) -> None:
        if change.resource == WORKLOADS and change.new and has_condition(change.new, "Admitted"):
            faults.is_cut = True

    world.server.on_change.append(cut_off)
    world.apply(make_elastic(kind, 2))
    world.run_for(after_s)
    world.server.on_change.remove(cut_off)
    suspend(world, kind, False)
    world.run_for(1)
    faults.is_cut = False
    world.run_for(2)
    if kind == "Job" or world.objects(*CLUSTER):
        scale(world, kind, 9)
    world.run_for(120)
    assert count_gpus(world) <= 12
    assert list(find_unsettled(world)) == []


@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
def test_workload_that_asks_for_less_than_the_pods_it_is_to_take_over_is_not_admitted(world: World, kind: str) -> None:
    """Former defect: a user of Workloads lowered the requests of the one that waited, and the quota of what ran was another job's."""
    world.apply(make_elastic(kind, 6))
    world.run_for(30)
    scale(world, kind, 8)
    world.run_for(20)
    waiting = next(each for each in world.objects(*WORKLOADS) if SLICE_REPLACES in each["metadata"]["annotations"])
    pod_sets = deepcopy(waiting["spec"]["podSets"])
    for pod_set in pod_sets:
        pod_set["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    world.patch(*WORKLOADS, waiting, {"spec": {"podSets": pod_sets}})
    world.apply(manifests.build_job("other", "ns", pods=6, gpus=2))
    world.run_for(60)
    assert count_gpus(world) == 12
    assert admitted(world, "other") == []


def test_workload_that_waits_to_grow_is_dropped_where_the_gate_is_off_by_now() -> None:
    """Former defect: it was admitted later, and held quota for pods that nothing made."""
    world = make_world(POOL, gpus=12, levels=[])
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: True}))
    world.apply(manifests.build_job("other", "ns", pods=4, gpus=2))
    world.run_for(5)
    world.apply(make_elastic("Job", 1))
    world.run_for(20)
    scale(world, "Job", 5)
    world.run_for(20)
    assert len([each for each in world.objects(*WORKLOADS) if "-j-" in each["metadata"]["name"]]) == 2
    ending = world.replicas.pop().end()
    world.run_for(1)
    assert all(task.done() for task in ending)
    scale(world, "Job", 1)
    world.run_for(5)
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: False}))
    world.run_for(60)
    assert admitted(world) == [{"main": 1}]
    assert len([each for each in world.objects(*WORKLOADS) if "-j-" in each["metadata"]["name"]]) == 1
    world.close()


def test_pods_that_are_asked_for_again_before_the_others_have_ended_have_the_places_that_are_left(world: World) -> None:
    """Former defect: places were given back by how scattered they were, that of a pod which ran among them."""
    world.kubelets.ends_after_s = 5
    world.apply(manifests.build_job("first", "ns", pods=1, gpus=6))
    world.run_for(10)
    world.apply(make_elastic("RayCluster", 1))
    world.run_for(15)
    world.delete(next(job for job in world.objects(*JOB) if job["metadata"]["name"] == "first"), propagationPolicy="Background")
    world.run_for(15)
    scale(world, "RayCluster", 5)
    world.run_for(30)
    scale(world, "RayCluster", 1)
    world.run_for(1)
    scale(world, "RayCluster", 3)
    for _ in range(120):
        world.run_for(0.5)
        assert world.find_broken() == []
    assert admitted(world) == [{"gpu": 3}]
    assert count_gpus(world) == 6


@pytest.mark.parametrize("kind", ["Job", "RayCluster", "RayJob"])
def test_job_that_is_suspended_as_it_has_grown_stays_so(world: World, faults: Faults, kind: str) -> None:
    """Former defect: the Workload that had taken over was dropped, and another one was queued."""
    world.apply(make_elastic(kind, 1))
    world.run_for(30)
    faults.late_s = {"workloads": 2.0}
    scale(world, kind, 5)
    while not any(has_condition(each, "Finished") for each in world.objects(*WORKLOADS)):
        world.run_for(0.05)
    world.run_for(0.5)
    suspend(world, kind, True)
    world.run_for(120)
    assert count_gpus(world) == 0
    [present] = [each for each in world.objects(*WORKLOADS) if not has_condition(each, "Finished")]
    assert present["spec"]["active"] is False
    assert list(find_unsettled(world)) == []
