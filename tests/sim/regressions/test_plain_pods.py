"""Plain pods with nodes that are lost before they get there."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.administrators import make_ready
from sim.models.base import NODE, POD
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
POOL = NodePool(blocks=1, racks=1, nodes=2, labels={"pool": "a"})


def lose(world: World, node: Json, how: str) -> None:
    if how == "gone":
        world.delete(node)
    elif how == "not ready":
        world.patch(*NODE, node, {"status": make_ready(node, "False")["status"]}, subresource="status")
    elif how == "cordoned":
        world.patch(*NODE, node, {"spec": {"unschedulable": True}})
    else:
        world.patch(*NODE, node, {"metadata": {"labels": {"pool": "b"}}})


def submit_until_admitted(world: World) -> Json:
    """Returns the node that a plain pod is to get, as soon as its Workload is admitted; the pod is still gated."""
    container = manifests.build_job("j", "ns", pods=1, gpus=8)["spec"]["template"]["spec"]["containers"][0]
    labels, annotations = {QUEUE_NAME_LABEL: "main"}, {REQUIRED_TOPOLOGY: POOL.rack_label}
    metadata = {"name": "p", "namespace": "ns", "labels": labels, "annotations": annotations}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
    while not any(has_condition(each, "Admitted") for each in world.objects(*WORKLOADS)):
        world.run_for(0.05)
    [pod], [workload] = world.objects(*POD), world.objects(*WORKLOADS)
    assert pod["spec"]["schedulingGates"]
    [given] = workload["status"]["admission"]["podSetAssignments"]
    host = given["topologyAssignment"]["slices"][0]["valuesPerLevel"][0]["universal"]
    return next(node for node in world.objects(*NODE) if node["metadata"]["labels"][HOSTNAME_LABEL] == host)


def open_world() -> World:
    world = make_world(POOL, gpus=16)
    world.start_reconciler()
    world.run_for(5)
    return world


HOW = ["gone", "not ready", "cordoned", "in another flavor"]


@pytest.mark.parametrize("how", HOW)
def test_plain_pod_that_is_gated_gets_another_place_for_a_lost_node(how: str):
    """Seed 2564: it stayed gated for ever, and held its quota."""
    world = open_world()
    node = submit_until_admitted(world)
    lose(world, node, how)
    world.run_for(60)
    [pod] = world.objects(*POD)
    other = next(each["metadata"]["name"] for each in world.objects(*NODE) if each["metadata"]["name"] != node["metadata"]["name"])
    assert pod["spec"].get("nodeName") == other
    world.close()


@pytest.mark.parametrize("how", HOW)
def test_plain_pod_that_is_gated_is_evicted_where_no_other_node_is_left(how: str):
    world = open_world()
    submit_until_admitted(world)
    for each in world.objects(*NODE):
        lose(world, each, how)
    world.run_for(60)
    assert world.objects(*POD) == []
    assert all(not has_condition(each, "QuotaReserved") for each in world.objects(*WORKLOADS))
    world.close()


@pytest.mark.parametrize("how", ["cordoned", "in another flavor"])
def test_plain_pod_that_runs_keeps_its_node(how: str):
    world = open_world()
    node = submit_until_admitted(world)
    world.run_for(10)
    lose(world, node, how)
    world.run_for(120)
    [pod], [workload] = world.objects(*POD), world.objects(*WORKLOADS)
    assert pod["spec"]["nodeName"] == node["metadata"]["name"]
    assert has_condition(workload, "Admitted")
    world.close()
