"""Replicas of a LeaderWorkerSet or a Deployment, each a Workload, spread over racks: with the gate TASTopologySpreading, and without it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from core.model.gates import NO_GATES, SPREADING, ChosenGates
from core.model.wire.encoding import decode
from core.names import QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, TOPOLOGY_SPREADING
from e2e.nodes import NodePool
from sim.models.base import NODE
from sim.world import WORKLOADS, World
from tests.queueing.spreading import build_text, rule
from tests.sim.one_queue import make_world

ON = ChosenGates({SPREADING: True})
SERVICE = "example.com/service"
POOL = NodePool(blocks=1, racks=2, nodes=2, labels={"pool": "a"})  # of 8 GPUs each


def build_set(replicas: int, share: str) -> dict[str, Any]:
    notes = {REQUIRED_TOPOLOGY: POOL.rack_label, TOPOLOGY_SPREADING: build_text(rule(POOL.rack_label, share))}
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serving", "namespace": "ns", "labels": {QUEUE_NAME_LABEL: "main"}},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
    }


def run(replicas: int, share: str, gates: ChosenGates) -> World:
    world = make_world(POOL, gpus=100, gates=gates)
    world.start_reconciler(gates=gates)
    world.apply(build_set(replicas, share))
    world.run_for(60)
    return world


def list_racks(world: World) -> list[str]:
    """The racks of admitted Workloads, sorted."""
    racks = {node["metadata"]["name"]: node["metadata"]["labels"][POOL.rack_label] for node in world.objects(*NODE)}
    admitted = [w["status"]["admission"] for w in world.objects(*WORKLOADS) if (w.get("status") or {}).get("admission")]
    return sorted(
        rack
        for admission in admitted
        for rack in {
            racks[domain.values[-1]] for given in admission["podSetAssignments"] for domain in decode(given["topologyAssignment"]).domains
        }
    )


@pytest.mark.parametrize(("gates", "racks"), [(ON, 2), (NO_GATES, 1)])
def test_replicas_are_spread_over_racks_only_with_the_gate(gates: ChosenGates, racks: int) -> None:
    world = run(4, "0.5", gates)
    found = list_racks(world)
    assert len(found) == 4
    assert len(set(found)) == racks
    assert racks == 1 or [found.count(rack) for rack in dict.fromkeys(found)] == [2, 2]
    world.close()


def test_replica_without_an_open_rack_waits_until_the_share_allows_it() -> None:
    world = run(3, "0.4", ON)
    assert len(set(list_racks(world))) == 2
    [waiting] = [w for w in world.objects(*WORKLOADS) if not (w.get("status") or {}).get("admission")]
    [condition] = [each for each in waiting["status"]["conditions"] if each["type"] == "QuotaReserved"]
    assert "topology spreading excludes all" in condition["message"]
    assert "opens with" in condition["message"]
    world.close()


@pytest.mark.parametrize(("copied", "racks"), [((SERVICE,), [2, 2]), ((), [4])])
def test_pods_of_a_deployment_are_spread_by_a_label_that_their_workloads_get(copied: tuple[str, ...], racks: list[int]) -> None:
    """Each is a Workload and a job by itself, so that only a label of its own joins it with the others."""
    world = make_world(POOL, gpus=100, gates=ON)
    world.start_reconciler(gates=ON, copied_labels=copied)
    text = build_text(rule(POOL.rack_label, "0.5"), selector=(SERVICE, ["chat"]))
    deployment = build_set(4, "0.5")
    template = deployment["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    template["metadata"] = {"labels": {SERVICE: "chat"}, "annotations": template["metadata"]["annotations"] | {TOPOLOGY_SPREADING: text}}
    spec = {"replicas": 4, "selector": {"matchLabels": {SERVICE: "chat"}}, "template": template}
    world.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": deployment["metadata"], "spec": spec})
    world.run_for(60)
    assert sorted(Counter(list_racks(world)).values()) == racks
    world.close()
