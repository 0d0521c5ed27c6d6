"""What one watch has not told yet is not taken for what is not so."""

from __future__ import annotations

from math import inf

import pytest

from sim.apiserver.server import Refused, Request
from sim.world import World
from tests.runtime.config_maps import ConfigMaps
from tests.sim.test_world import POOL, Json, build_job, open_world


def pods_of(world: World, name: str) -> list[Json]:
    return [pod for pod in world.objects("", "pods") if pod["metadata"]["labels"].get("job-name") == name]


def hold(world: World, pod: Json) -> None:
    kind = next(kind for kind in world.server.kinds.values() if kind.resource == ("", "pods"))
    body = {"metadata": {"finalizers": [*pod["metadata"].get("finalizers", ()), "example.com/hold"]}}
    name = pod["metadata"]["name"]
    world.server.patch(Request("patch", kind, "team", name, "", {}, body, "application/merge-patch+json", "user"))


@pytest.mark.parametrize("lags", [False, True])
def test_quota_of_a_deleted_job_is_kept_while_its_ungated_pods_end(lags: bool):
    """The watch of pods stands still since before they were ungated: they were taken for pods that wait, and the quota was given twice."""
    world = open_world(1)
    left = world.apply(build_job("left", 2, seconds=None, rack=POOL.rack_label))
    world.apply(build_job("fill", 4, seconds=None, rack=POOL.rack_label))
    while not pods_of(world, "left"):
        world.run_for(0.1)
    world.run_for(0.3)
    if lags:
        world.replicas[0].faults.late_s["pods"] = inf
    while not all(pod["status"]["phase"] == "Running" for pod in pods_of(world, "left")):
        world.run_for(0.1)
    for pod in pods_of(world, "left"):
        hold(world, pod)
    world.kubelets.is_stopped = True
    world.delete(left, propagationPolicy="Foreground")
    world.run_for(1.5)
    world.apply(build_job("next", 2, rack=POOL.rack_label))
    world.run_for(3)
    reserved = {
        workload["metadata"]["ownerReferences"][0]["name"]
        for workload in world.objects("kueue.x-k8s.io", "workloads")
        for condition in workload["status"]["conditions"]
        if condition["type"] == "QuotaReserved" and condition["status"] == "True"
    }
    assert reserved == {"left", "fill"}
    world.close()


def test_watch_from_just_before_the_last_change_that_is_forgotten_is_answered_410():
    """As in the watch cache of kube-apiserver. It was told nothing, and the change was lost."""
    maps = ConfigMaps("a")
    before = maps.api.version
    maps.put("b")
    maps.api.compact()
    with pytest.raises(Refused, match="too old resource version"):
        maps.read_changes(before)
    assert maps.read_changes(maps.api.version) == []


def test_pod_that_is_not_seen_bound_keeps_its_place_when_its_node_is_cordoned():
    """Seed 4602: it was taken for one that waits for the node, which had run nothing then. It ran outside of the new place."""
    world = open_world(1)
    world.apply(build_job("j", 1, seconds=None, rack=POOL.rack_label))
    while not pods_of(world, "j"):
        world.run_for(0.1)
    world.run_for(0.3)
    world.replicas[0].faults.late_s["pods"] = 5.0
    while not (node := pods_of(world, "j")[0]["spec"].get("nodeName")):
        world.run_for(0.05)
    world.patch("", "nodes", {"metadata": {"name": node}}, {"spec": {"unschedulable": True}})
    for _ in range(30):
        world.run_for(0.5)
        world.audit()
    [pod] = pods_of(world, "j")
    [workload] = world.objects("kueue.x-k8s.io", "workloads")
    [given] = workload["status"]["admission"]["podSetAssignments"]
    assert pod["status"]["phase"] == "Running"
    assert given["topologyAssignment"]["slices"][0]["valuesPerLevel"] == [{"universal": node}]
    assert not workload["status"].get("unhealthyNodes")
    world.close()
