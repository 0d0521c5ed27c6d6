"""What administrators see on queues, flavors and topologies."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from core.names import RESOURCE_IN_USE_FINALIZER
from e2e import manifests
from e2e.api import wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.nodes import build_node
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.in_memory

ROOT = "/apis/kueue.x-k8s.io/v1beta2"


def _wait_until(scene: Scene, path: str, what: str, probe: Any) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        obj = scene.api.get(f"{ROOT}/{path}")
        return obj if probe(obj) else None

    return wait_for(what, look)


def _is_gone(scene: Scene, path: str) -> bool:
    return scene.api.find(f"{ROOT}/{path}") is None


def test_queue_status_counts_admitted_and_pending_workloads_with_their_usage(scene: Scene) -> None:
    scene.submit("runs", pods=2, gpus=8, required=scene.rack)
    scene.submit("waits", pods=3, gpus=8, required=scene.rack)
    scene.until_bound("runs", 2)
    for path in (f"clusterqueues/{scene.prefix}queue", f"namespaces/{scene.namespace}/localqueues/main"):
        queue = _wait_until(
            scene,
            path,
            f"{path} to count",
            lambda obj: (obj.get("status") or {}).get("admittedWorkloads") == 1 and obj["status"]["pendingWorkloads"] == 1,
        )
        assert queue["status"]["reservingWorkloads"] == 1
        flavor, *_ = queue["status"]["flavorsUsage"]
        assert {r["name"]: r["total"] for r in flavor["resources"]} == {"cpu": "2", GPU: "16"}
        assert truth.is_true(queue, "Active")
    scene.delete_job("runs")
    path = f"clusterqueues/{scene.prefix}queue"
    _wait_until(scene, path, "usage to be given back", lambda obj: obj["status"]["flavorsUsage"][0]["resources"][1]["total"] == "0")


def test_cluster_queue_names_its_missing_flavor_or_topology_and_recovers(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster).open_without_queue()
    flavor, topology, path = f"{scene.prefix}flavor", f"{scene.prefix}topology", f"clusterqueues/{scene.prefix}queue"
    scene.create(manifests.build_cluster_queue(f"{scene.prefix}queue", {flavor: {"cpu": 10, GPU: 100}}))
    scene.create(manifests.build_local_queue("main", scene.namespace, f"{scene.prefix}queue"))

    def reason(obj: dict[str, Any]) -> str:
        return str(truth.get_condition(obj, "Active").get("reason", ""))

    lacking = _wait_until(scene, path, "the flavor to be missed", lambda obj: reason(obj) == "FlavorNotFound")
    assert flavor in truth.get_condition(lacking, "Active")["message"]
    scene.submit("early", pods=2, gpus=8, required=scene.rack)
    assert "is inactive" in scene.until_waiting("early", "Suspended")
    scene.create(manifests.build_flavor(flavor, scene.pool.labels, topology))
    lacking = _wait_until(scene, path, "the topology to be missed", lambda obj: reason(obj) == "TopologyNotFound")
    assert topology in truth.get_condition(lacking, "Active")["message"]
    scene.create(manifests.build_topology(topology, scene.pool.levels))
    _wait_until(scene, path, "the queue to be active", lambda obj: reason(obj) == "Ready")
    scene.until_bound("early", 2)
    scene.close()


def test_object_in_use_is_held_by_a_finalizer_until_its_queue_is_deleted(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster).open()
    for path in (f"resourceflavors/{scene.prefix}flavor", f"topologies/{scene.prefix}topology"):
        _wait_until(scene, path, f"{path} to be held", lambda obj: RESOURCE_IN_USE_FINALIZER in (obj["metadata"].get("finalizers") or ()))
        scene.api.delete(f"{ROOT}/{path}")
        assert scene.api.find(f"{ROOT}/{path}") is not None
    scene.api.delete(f"{ROOT}/clusterqueues/{scene.prefix}queue")
    for path in (f"clusterqueues/{scene.prefix}queue", f"resourceflavors/{scene.prefix}flavor", f"topologies/{scene.prefix}topology"):
        wait_for(f"{path} to go", partial(_is_gone, scene, path))
    scene.close()


def test_nodes_without_valid_level_labels_are_left_out_and_named_in_the_condition(scene: Scene) -> None:
    nowhere = build_node(scene.pool, 1, 1, 8)
    del nowhere["metadata"]["labels"][scene.rack]
    twin = build_node(scene.pool, 1, 1, 9)
    twin["metadata"]["labels"]["kubernetes.io/hostname"] = f"{scene.prefix}b1-r1-n1"
    scene.cluster.add_nodes([nowhere, twin])

    def told(obj: dict[str, Any]) -> bool:
        message = truth.get_condition(obj, "topogate.dev/NodesPlaced").get("message", "")
        return nowhere["metadata"]["name"] in message and twin["metadata"]["name"] in message

    topology = _wait_until(scene, f"topologies/{scene.prefix}topology", "the nodes to be named", told)
    condition = truth.get_condition(topology, "topogate.dev/NodesPlaced")
    assert condition["status"] == "False"
    assert f"without the label {scene.rack}" in condition["message"]
    scene.submit("whole-rack", pods=2, gpus=8, required=scene.rack)
    now = scene.until_bound("whole-rack", 2)
    assert {pod["spec"]["nodeName"] for pod in now.pods_of("whole-rack")} == {f"{scene.prefix}b1-r2-n1", f"{scene.prefix}b1-r2-n2"}
