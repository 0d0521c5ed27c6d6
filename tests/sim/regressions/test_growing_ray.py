"""Ray clusters whose workers an autoscaler adds and takes away (KubeRay, enableInTreeAutoscaling): what runs goes on, on any flavor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.model.gates import ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, ChosenGates
from core.names import ELASTIC_JOB
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.apiserver.server import Refused
from sim.ending import find_unsettled
from sim.models.base import JOB, POD
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
POOL = NodePool(blocks=1, racks=3, nodes=4, labels={"pool": "a"})
CLUSTER = "ray.io", "rayclusters"
KINDS = ("RayCluster", "RayJob", "RayService")


@pytest.fixture(params=[True, False], ids=["topology", "plain"])
def has_topology(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def world(has_topology: bool) -> Iterator[World]:
    """Quota for 12 GPUs, by which six workers can run."""
    world = make_world(POOL, gpus=12, levels=None if has_topology else [])
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: has_topology}))
    yield world
    world.close()


def start(world: World, kind: str, workers: int, *, has_topology: bool) -> set[str]:
    asked = {"required": POOL.rack_label} if has_topology else {}
    world.apply(manifests.make_elastic_ray(kind, "ray", "ns", workers=workers, gpus=2, **asked))
    world.run_for(30)
    running = list_running(world)
    assert len(running) == 1 + workers
    return running


def scale(world: World, workers: int) -> None:
    """As the autoscaler in the head's pod does."""
    [cluster] = world.objects(*CLUSTER)
    [group] = cluster["spec"]["workerGroupSpecs"]
    world.patch(*CLUSTER, cluster, {"spec": {"workerGroupSpecs": [{**group, "replicas": workers}]}})
    world.run_for(30)


def list_running(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.objects(*POD) if pod["status"].get("phase") == "Running"}


def list_gated(world: World) -> list[Json]:
    return [pod for pod in world.objects(*POD) if pod["spec"].get("schedulingGates")]


def get_counts(world: World) -> list[dict[str, int]]:
    """What each Workload of a Ray cluster that is not over was admitted with."""
    given = [each["status"].get("admission") for each in world.objects(*WORKLOADS) if not has_condition(each, "Finished")]
    counts = [{part["name"]: part["count"] for part in each["podSetAssignments"]} for each in given if each]
    return [each for each in counts if "head" in each]


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_an_autoscaler_adds_run_beside_those_that_run(world: World, has_topology: bool, kind: str) -> None:
    before = start(world, kind, 2, has_topology=has_topology)
    scale(world, 4)
    assert before < list_running(world), "what ran runs on"
    assert len(list_running(world)) == 5
    assert get_counts(world) == [{"head": 1, "gpu": 4}]
    scale(world, 9)
    assert len(list_gated(world)) == 5, "there is quota for two more of them, and those that come are admitted together"
    assert len(list_running(world)) == 5
    scale(world, 6)
    assert before < list_running(world)
    assert len(list_running(world)) == 7
    assert list_gated(world) == []
    assert list(find_unsettled(world)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_an_autoscaler_takes_away_give_back_quota_down_to_none_and_come_again(
    world: World, has_topology: bool, kind: str
) -> None:
    before = start(world, kind, 6, has_topology=has_topology)
    scale(world, 1)
    assert get_counts(world) == [{"head": 1, "gpu": 1}]
    assert len(list_running(world) & before) == 2
    other = manifests.build_job("other", "ns", pods=5, gpus=2)
    world.apply(other)
    world.run_for(30)
    assert len(list_running(world)) == 7, "another job has what it gave back"
    scale(world, 0)
    assert get_counts(world) == [{"head": 1, "gpu": 0}]
    scale(world, 1)
    assert get_counts(world) == [{"head": 1, "gpu": 1}]
    assert len(list_running(world)) == 7
    assert list(find_unsettled(world)) == []


@pytest.mark.parametrize(("kind", "size"), [("RayJob", 2), ("RayService", 4), ("RayCluster", 4)])
def test_job_that_is_stopped_comes_back_with_the_size_of_its_cluster(world: World, has_topology: bool, kind: str, size: int) -> None:
    """That of a RayJob is made anew."""
    start(world, kind, 2, has_topology=has_topology)
    scale(world, 4)
    [workload] = [each for each in world.objects(*WORKLOADS) if not has_condition(each, "Finished")]
    for is_active in (False, True):
        world.patch(*WORKLOADS, workload, {"spec": {"active": is_active}})
        world.run_for(60)
    assert get_counts(world) == [{"head": 1, "gpu": size}]
    assert len(list_running(world)) == 1 + size
    assert list(find_unsettled(world)) == []


def test_job_on_a_plain_flavor_is_resized_while_it_runs() -> None:
    """Kueue's sample-scalable-job: flavors without a topology need the one gate that is on by default."""
    world = make_world(POOL, gpus=12, levels=[])
    world.start_reconciler()
    job = manifests.build_job("j", "ns", pods=2, gpus=2, spec={"completions": 100})
    job["metadata"]["annotations"] = {ELASTIC_JOB: "true"}
    world.apply(job)
    world.run_for(30)
    before = list_running(world)
    for wanted, running in ((4, 4), (9, 4), (6, 6), (1, 1)):
        [job] = world.objects(*JOB)
        world.patch(*JOB, job, {"spec": {"parallelism": wanted}})
        world.run_for(30)
        assert len(list_running(world)) == running
        assert len(list_gated(world)) == max(0, wanted - running)
    assert list_running(world) < before
    assert list(find_unsettled(world)) == []
    world.close()


def test_autoscaler_is_refused_where_the_job_does_not_say_that_it_is_elastic() -> None:
    world = make_world(POOL, gpus=12)
    world.start_reconciler()
    ray = manifests.make_elastic_ray("RayCluster", "ray", "ns", workers=1)
    del ray["metadata"]["annotations"]
    with pytest.raises(Refused, match="enableInTreeAutoscaling"):
        world.apply(ray)
    world.close()
