"""A Topology or a ResourceFlavor is changed while jobs run (Kueue 0.20): what runs runs on, what waits is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.models.base import NODE, POD, is_over
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
KUEUE = "kueue.x-k8s.io"
POOL = NodePool(blocks=1, racks=2, nodes=2, labels={"pool": "a"})
TAINT = {"key": "gpu", "effect": "NoSchedule"}
TOLERATION = {"key": "gpu", "operator": "Exists"}


@pytest.fixture
def world() -> Iterator[World]:
    made = make_world(POOL, gpus=64)
    yield made
    made.close()


def start(world: World) -> dict[str, str]:
    """A job of two pods that requires a rack, a node for each; returns the nodes of its pods."""
    world.start_reconciler()
    world.apply(manifests.build_job("j", "ns", pods=2, gpus=8, indexed=True, required=POOL.rack_label))
    world.run_for(30)
    assert len(list_runs(world)) == 2
    return list_runs(world)


def list_runs(world: World) -> dict[str, str]:
    pods = (pod for pod in world.objects(*POD) if not is_over(pod) and pod["spec"].get("nodeName"))
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}


def get_workload(world: World) -> Json:
    [found] = world.objects(*WORKLOADS)
    return found


def set_levels(world: World, *levels: str) -> None:
    [topology] = world.objects(KUEUE, "topologies")
    world.patch(KUEUE, "topologies", topology, {"spec": {"levels": [{"nodeLabel": level} for level in levels]}})


def set_flavor(world: World, **spec: Any) -> None:
    [flavor] = world.objects(KUEUE, "resourceflavors")
    world.patch(KUEUE, "resourceflavors", flavor, {"spec": spec})


def taint_nodes(world: World) -> None:
    for node in world.objects(*NODE):
        world.patch(*NODE, node, {"spec": {"taints": [TAINT]}})


def suspend(world: World, *, is_suspended: bool) -> None:
    [job] = world.objects("batch", "jobs")
    world.patch("batch", "jobs", job, {"spec": {"suspend": is_suspended}})
    world.run_for(30)


def count_evictions(world: World) -> int:
    found = [change.new for change in world.server.history if change.resource == ("", "events") and change.new]
    return sum(event["reason"].startswith("Evicted") for event in found)


def test_job_runs_on_without_its_level_and_is_admitted_again_once_the_level_is_back(world: World):
    before = start(world)
    given = get_workload(world)["status"]["admission"]
    set_levels(world, POOL.block_label, HOSTNAME_LABEL)
    world.run_for(300)
    assert list_runs(world) == before
    assert get_workload(world)["status"]["admission"] == given
    assert count_evictions(world) == 0
    suspend(world, is_suspended=True)
    suspend(world, is_suspended=False)
    assert get_workload(world)["spec"]["active"] is False, "its next admission fails"
    assert list_runs(world) == {}
    set_levels(world, POOL.block_label, POOL.rack_label, HOSTNAME_LABEL)
    world.run_for(60)
    assert has_condition(get_workload(world), "Admitted")
    assert len(list_runs(world)) == 2


def test_job_runs_on_though_its_flavor_tolerates_the_taint_of_its_nodes_no_more(world: World):
    set_flavor(world, tolerations=[TOLERATION])
    taint_nodes(world)
    before = start(world)
    set_flavor(world, tolerations=[])
    world.run_for(300)
    assert list_runs(world) == before
    assert count_evictions(world) == 0
    assert not get_workload(world)["status"].get("unhealthyNodes")


def test_job_runs_on_in_a_flavor_with_a_new_taint(world: World):
    before = start(world)
    set_flavor(world, nodeTaints=[TAINT])
    world.run_for(300)
    assert list_runs(world) == before
    assert count_evictions(world) == 0


def test_job_that_waits_is_admitted_once_its_flavor_tolerates_the_taint_of_its_nodes(world: World):
    taint_nodes(world)
    world.start_reconciler()
    world.apply(manifests.build_job("j", "ns", pods=2, gpus=8, indexed=True, required=POOL.rack_label))
    world.run_for(30)
    assert not has_condition(get_workload(world), "QuotaReserved")
    set_flavor(world, tolerations=[TOLERATION])
    world.run_for(30)
    assert len(list_runs(world)) == 2
