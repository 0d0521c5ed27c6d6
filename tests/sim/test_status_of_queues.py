"""The status of a LocalQueue without a ClusterQueue."""

from __future__ import annotations

from core.names import HOSTNAME_LABEL, NODES_PLACED
from e2e import manifests
from sim.world import World
from tests.sim.test_world import open_world

KUEUE = "kueue.x-k8s.io"
LISTS = {"flavorsReservation", "flavorsUsage"}


def restart(world: World) -> None:
    for replica in world.replicas:
        replica.kill()
    world.run_for(120)


def test_queue_without_its_cluster_queue_gets_no_other_status_from_a_new_process():
    """Found by an attack (seed 1013): the API server leaves out a list that loses its last entry, and a new process wrote it again."""
    world = open_world(1)
    world.delete(world.objects(KUEUE, "clusterqueues")[0])
    world.run_for(60)
    [queue] = world.objects(KUEUE, "localqueues")
    assert queue["status"]["conditions"][0]["reason"] == "ClusterQueueDoesNotExist"
    restart(world)
    [after] = world.objects(KUEUE, "localqueues")
    assert after["status"] == queue["status"]
    assert not LISTS & queue["status"].keys()
    world.close()


def test_queue_that_never_had_a_cluster_queue_has_no_empty_lists():
    world = open_world(1)
    world.apply(manifests.build_local_queue("new", "team", "none"))
    world.run_for(60)
    [queue] = [each for each in world.objects(KUEUE, "localqueues") if each["metadata"]["name"] == "new"]
    assert not LISTS & queue["status"].keys()
    world.close()


def test_topology_is_reported_whole_again_though_the_last_report_was_not_observed():
    """Found by the simulation (seed 1056 of lives with many removed labels): the status from before was the one to be written."""
    world = open_world(1)
    [replica] = world.replicas
    world.run_for(60)
    [node] = [node for node in world.objects("", "nodes") if node["metadata"]["name"] == "b1-r1-n1"]
    replica.faults.late_s["topologies"] = 5.0
    world.patch("", "nodes", node, {"metadata": {"labels": {HOSTNAME_LABEL: None}}})
    world.run_for(1.0)
    world.patch("", "nodes", node, {"metadata": {"labels": {HOSTNAME_LABEL: "b1-r1-n1"}}})
    world.run_for(60)
    [topology] = world.objects(KUEUE, "topologies")
    assert [(each["type"], each["status"]) for each in topology["status"]["conditions"]] == [(NODES_PLACED, "True")]
    world.close()
