"""Nodes of two flavors with the same hostnames, under one job that has pods on both, and nodes of one flavor that cannot be told apart."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from e2e import manifests
from e2e.nodes import NodePool, build_nodes
from e2e.standins.pods import has_condition
from sim.administrators import make_ready
from sim.models.base import NODE, POD, is_over
from sim.world import WORKLOADS, World

Json = dict[str, Any]
POOLS = {name: NodePool(blocks=1, racks=1, nodes=4, prefix=name, labels={"pool": name}) for name in "ab"}
LEVELS = POOLS["a"].levels


def make_world() -> World:
    """Flavors `fa` and `fb`, each with four nodes that are called h0 to h3 in it, and a JobSet with two pods on each."""
    world = World(1)
    for pool in POOLS.values():
        for i, node in enumerate(build_nodes(pool)):
            node["metadata"]["labels"][HOSTNAME_LABEL] = f"h{i}"
            world.apply(make_ready(node, "True"))
    world.apply(manifests.build_topology("t", LEVELS))
    for name, pool in POOLS.items():
        world.apply(manifests.build_flavor(f"f{name}", pool.labels, "t"))
    world.apply(manifests.build_cluster_queue("cq", {f"f{name}": {"cpu": 100, "memory": "1Ti", "nvidia.com/gpu": 100} for name in POOLS}))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    world.apply(manifests.build_local_queue("main", "ns", "cq"))
    jobs = {
        name: manifests.build_job(
            name, "ns", pods=2, gpus=8, indexed=True, required=POOLS[name].rack_label, pod_spec={"nodeSelector": pool.labels}
        )
        for name, pool in POOLS.items()
    }
    replicated = [{"name": name, "replicas": 1, "template": {"spec": job["spec"] | {"backoffLimit": 100}}} for name, job in jobs.items()]
    metadata = {"name": "js", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    world.start_reconciler()
    world.apply({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": replicated}})
    world.run_for(40)
    return world


def list_running(world: World) -> dict[str, str]:
    """Nodes on which pods run, by the pod's uid."""
    pods = (pod for pod in world.objects(*POD) if not is_over(pod) and pod["spec"].get("nodeName"))
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}


def get_node(world: World, name: str) -> Json:
    return next(node for node in world.objects(*NODE) if node["metadata"]["name"] == name)


@pytest.mark.parametrize("is_gone", [False, True], ids=["not ready", "gone"])
@pytest.mark.parametrize("pool", POOLS)
def test_node_is_replaced_in_its_flavor_though_a_node_of_another_flavor_of_the_job_has_its_hostname(pool: str, is_gone: bool) -> None:
    """Former defect: it was not reported, or never replaced, since the pods of the other pod set ran well on a node with that hostname."""
    world = make_world()
    before = list_running(world)
    assert len(before) == 4
    lost = min(node for node in before.values() if node.startswith(pool))
    host = get_node(world, lost)["metadata"]["labels"][HOSTNAME_LABEL]
    assert any(get_node(world, node)["metadata"]["labels"][HOSTNAME_LABEL] == host for node in before.values() if node != lost)
    if is_gone:
        world.delete(get_node(world, lost))
    else:
        unready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "", "lastTransitionTime": world.time()}
        world.patch(*NODE, get_node(world, lost), {"status": {"conditions": [unready]}}, "status")
    world.run_for(600)
    now = list_running(world)
    assert len(now) == 4
    assert lost not in now.values()
    assert {uid: node for uid, node in now.items() if uid in before} == {uid: node for uid, node in before.items() if node != lost}
    assert sorted(node[0] for node in now.values()) == sorted(node[0] for node in before.values())
    [workload] = world.objects(*WORKLOADS)
    assert not workload["status"].get("unhealthyNodes")
    world.close()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("is_full", [False, True], ids=["room", "no room"])
def test_place_without_a_pod_that_runs_stays_where_a_node_of_another_flavor_with_its_hostname_is_gone(phase: str, is_full: bool) -> None:
    """Former defect: the good node was taken for the lost one, and the job was evicted where there was no other."""
    world = make_world()
    if is_full:
        for number in range(2):
            spec = {"nodeSelector": POOLS["b"].labels}
            world.apply(manifests.build_job(f"fill{number}", "ns", pods=1, gpus=8, pod_spec=spec, required=POOLS["b"].rack_label))
        world.run_for(40)
    hosts = {node["metadata"]["name"]: node["metadata"]["labels"][HOSTNAME_LABEL] for node in world.objects(*NODE)}
    pods = {pod["spec"]["nodeName"]: pod for pod in world.objects(*POD) if pod["metadata"]["name"].startswith("js")}
    own, lost = next((b, a) for a in sorted(pods) for b in pods if a[0] == "a" and b[0] == "b" and hosts[a] == hosts[b])
    world.delete(get_node(world, lost))
    world.run_for(4)
    world.patch(*POD, pods[own], {"status": {"phase": phase, "conditions": []}}, "status")
    world.run_for(300)
    [workload] = [each for each in world.objects(*WORKLOADS) if each["metadata"]["name"].startswith("jobset")]
    assert has_condition(workload, "Admitted")
    assert not has_condition(workload, "Evicted")
    assert not workload["status"].get("unhealthyNodes")
    given = {each["name"]: each["topologyAssignment"] for each in workload["status"]["admission"]["podSetAssignments"]}
    assert hosts[lost] not in str(given["a"])
    assert hosts[own] in str(given["b"])
    world.close()
