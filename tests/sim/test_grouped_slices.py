"""A LeaderWorkerSet whose workers are cut into slices, from the webhook to its pods: TASGroupedPodSetSlicing with TASPartialSlices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from core.model.gates import GROUPED_SLICES, PARTIAL_SLICES, ChosenGates
from core.model.wire.assignment import TopologyAssignment
from core.model.wire.encoding import decode
from core.names import LWS_WORKER_INDEX_LABEL, PODSET_GROUP_NAME, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, SLICE_REQUIRED_TOPOLOGY, SLICE_SIZE
from e2e.audit.recount_promises import find_misshapen, find_overbooked
from e2e.nodes import NodePool
from sim.apiserver.server import Refused
from sim.models.base import NODE, POD
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
ON = ChosenGates({GROUPED_SLICES: True, PARTIAL_SLICES: True})
POOL = NodePool(blocks=1, racks=4, nodes=4, labels={"pool": "a"})  # of 8 GPUs each; a pod takes all of a node
SIZE = 16


def build_lws() -> Json:
    shared = {PODSET_GROUP_NAME: "g", REQUIRED_TOPOLOGY: POOL.block_label}
    sliced = {**shared, SLICE_REQUIRED_TOPOLOGY: POOL.rack_label, SLICE_SIZE: "4"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}}
    leader, workers = ({"metadata": {"annotations": notes}, "spec": {"containers": [container]}} for notes in (shared, sliced))
    template = {"size": SIZE, "leaderTemplate": leader, "workerTemplate": workers}
    metadata = {"name": "lws", "namespace": "ns", "labels": {QUEUE_NAME_LABEL: "main"}}
    spec = {"replicas": 1, "leaderWorkerTemplate": template}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}


def run(pool: NodePool = POOL) -> World:
    world = make_world(pool, gpus=200, gates=ON)
    world.start_reconciler(gates=ON)
    world.apply(build_lws())
    world.run_for(120)
    return world


def get_assignments(world: World) -> dict[str, TopologyAssignment]:
    [workload] = world.objects(*WORKLOADS)
    return {given["name"]: decode(given["topologyAssignment"]) for given in workload["status"]["admission"]["podSetAssignments"]}


def list_racks(world: World) -> list[str]:
    """The rack of each pod, in the order of ranks; the leader is the first."""
    racks = {node["metadata"]["name"]: node["metadata"]["labels"][POOL.rack_label] for node in world.objects(*NODE)}
    live = [pod for pod in world.objects(*POD) if pod["status"].get("phase") not in ("Failed", "Succeeded")]
    pods = sorted(live, key=lambda pod: int(pod["metadata"]["labels"][LWS_WORKER_INDEX_LABEL]))
    return [racks[pod["spec"]["nodeName"]] for pod in pods]


def find_broken(world: World) -> list[str]:
    workloads, nodes = world.objects(*WORKLOADS), world.objects(*NODE)
    return [*find_misshapen(workloads, nodes), *find_overbooked(workloads, world.objects(*POD), nodes)]


def test_partial_slice_of_workers_is_beside_their_leader() -> None:
    world = run()
    racks = list_racks(world)
    assert len(racks) == SIZE
    leader, workers = racks[0], racks[1:]
    slices = [workers[:4], workers[4:8], workers[8:12], workers[12:]]
    assert [len(set(each)) for each in slices] == [1, 1, 1, 1]
    assert len({each[0] for each in slices}) == 4
    assert leader == slices[3][0]
    assert find_broken(world) == []
    world.close()


def test_replacement_of_the_leaders_node_splits_no_slice() -> None:
    world = run(replace(POOL, nodes=5))
    lost = get_assignments(world)["leader"].domains[0].values[-1]
    world.delete(next(node for node in world.objects(*NODE) if node["metadata"]["name"] == lost))
    world.run_for(600)
    now = get_assignments(world)
    assert now["leader"].domains[0].values[-1] != lost
    assert Counter(list_racks(world)[1:]).most_common()[-1][1] >= 3
    assert find_broken(world) == []
    world.close()


def test_slices_in_a_group_are_refused_where_the_webhook_lacks_the_gate() -> None:
    world = make_world(POOL, gpus=200, gates=ChosenGates({PARTIAL_SLICES: True}))
    with pytest.raises(Refused, match=GROUPED_SLICES):
        world.apply(build_lws())
    world.close()
