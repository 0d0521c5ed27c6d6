"""A pod that its node does not take though others of its workload run there, in the moment in which it gets another place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from core.names import MANAGER_ADMISSION
from core.plan.steps.writes import Apply, Write
from e2e import manifests
from e2e.nodes import NodePool
from reconciler.execute.executor import Executor
from sim.models.base import NODE, POD, is_over
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
POOL = NodePool(blocks=1, racks=1, nodes=2, labels={"pool": "a"})


@pytest.fixture
def world() -> Iterator[World]:
    """A job with a pod that runs on one node and one that is stuck there, by a taint. The other node is cordoned."""
    world = make_world(POOL, gpus=16)
    world.start_reconciler()
    world.apply(manifests.build_job("j", "ns", pods=2, gpus=4, indexed=True, required=POOL.rack_label))
    world.run_for(10)
    [home] = set(find_places(world).values())
    change_node(world, home, {"taints": [{"key": "example.com/repair", "effect": "NoSchedule"}]})
    change_node(world, find_other(home), {"unschedulable": True})
    world.delete(world.objects(*POD)[0])
    world.run_for(90)
    assert [*find_places(world).values()].count("") == 1
    assert any(each["reason"] == "SecondPassFailed" for each in world.objects("", "events"))
    yield world
    world.close()


def find_places(world: World) -> dict[str, str]:
    """Nodes of pods that are not over, empty where they are not bound, by the pod's name."""
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in world.objects(*POD) if not is_over(pod)}


def find_home(world: World) -> str:
    return max(find_places(world).values())


def find_other(node: str) -> str:
    [other] = {"b1-r1-n1", "b1-r1-n2"} - {node}
    return other


def change_node(world: World, name: str, spec: Json) -> None:
    world.patch(*NODE, {"metadata": {"name": name}}, {"spec": spec})


@pytest.mark.parametrize("late_s", [0.0, 5.0])
def test_stuck_pod_that_is_bound_as_another_place_is_found_keeps_its_own(world: World, late_s: float) -> None:
    """Seed 5786: the taint was gone, and a place on the other node was written as the pod had just been bound."""
    home, before = find_home(world), find_places(world)
    world.replicas[0].faults.late_s["pods"] = late_s
    change_node(world, home, {"taints": None})
    change_node(world, find_other(home), {"unschedulable": None})
    for _ in range(40):
        world.run_for(0.5)
        world.audit()
    assert find_places(world) == dict.fromkeys(before, home)


def test_stuck_pod_gets_the_place_that_another_node_has(world: World) -> None:
    home, before = find_home(world), find_places(world)
    change_node(world, find_other(home), {"unschedulable": None})
    for _ in range(30):
        world.run_for(1)
        world.audit()
    after = find_places(world)
    assert sorted(after.values()) == ["b1-r1-n1", "b1-r1-n2"]
    assert len(before.keys() - after.keys()) == 1
    [workload] = world.objects(*WORKLOADS)
    [moved] = [each["message"] for each in world.objects("", "events") if each["reason"] == "PodsMoved" and "Workload" in str(each)]
    assert "they were stuck" in moved
    assert not workload["status"].get("unhealthyNodes")


def test_pod_made_anew_before_its_other_place_is_written_waits_for_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sent to the place that the old one had, and the node took it by then."""
    home, before, written = find_home(world), find_places(world), list[str]()
    do = Executor._write

    async def do_late(self: Executor, write: Write) -> Json:
        if isinstance(write, Apply) and write.manager == MANAGER_ADMISSION:
            written.append(write.seen["metadata"]["name"])
            await asyncio.sleep(25)
        return await do(self, write)

    monkeypatch.setattr(Executor, "_write", do_late)
    change_node(world, find_other(home), {"unschedulable": None})
    world.loop.call_later(20, change_node, world, home, {"taints": None})
    for _ in range(40):
        world.run_for(1)
        world.audit()
    after = find_places(world)
    assert len(written) == 1
    assert sorted(after.values()) == ["b1-r1-n1", "b1-r1-n2"]
    assert len(before.keys() - after.keys()) == 1
