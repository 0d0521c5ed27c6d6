"""What an administrator reads who deletes what is still in use, on an API server in memory: `kubectl delete` itself only waits."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import EVENT_STILL_IN_USE, NODES_PLACED
from tests.builders import build_cluster_queue_json, build_flavor_json
from tests.reconciler.harness_queues import QueuesHarness

OBJECTS = (("clusterqueues", "ClusterQueue", "cq"), ("resourceflavors", "ResourceFlavor", "gpu"), ("topologies", "Topology", "t"))


@pytest.fixture
def harness() -> QueuesHarness:
    """With a workload that holds quota, so that everything is in use."""
    harness = QueuesHarness()
    harness.workload("holds", count=2, owner=None)
    harness.decide()
    for plural, _, name in OBJECTS:
        harness.reconcile(plural, name)
    return harness


def deleted(harness: QueuesHarness, kind: str, name: str) -> dict[str, Any]:
    harness.delete(kind, name)
    return harness.get(kind, name)


@pytest.mark.parametrize(
    ("plural", "kind", "name", "told"),
    [
        ("clusterqueues", "ClusterQueue", "cq", "still used by Workload ns/holds; it goes when that is over"),
        ("resourceflavors", "ResourceFlavor", "gpu", "still used by ClusterQueue cq; it goes when that is gone"),
        ("topologies", "Topology", "t", "still used by ResourceFlavor gpu; it goes when that is gone"),
    ],
)
def test_deleted_object_that_is_in_use_reports_its_users_in_one_event(harness: QueuesHarness, plural: str, kind: str, name: str, told: str):
    assert harness.told(name) == []
    assert deleted(harness, kind, name)["metadata"]["deletionTimestamp"]
    for _ in range(3):
        harness.reconcile(plural, name)
    assert harness.told(name) == [(EVENT_STILL_IN_USE, told)]


def test_status_of_a_deleted_object_in_use_names_its_users_while_they_exist(harness: QueuesHarness):
    for plural, kind, name in OBJECTS:
        deleted(harness, kind, name)
        harness.reconcile(plural, name)
    queue = harness.find_condition("Active", "cq", "ClusterQueue")
    topology = harness.find_condition(NODES_PLACED, "t", "Topology")
    assert (queue["status"], queue["reason"]) == ("False", "Terminating")
    assert "Workload ns/holds" in queue["message"]
    assert topology["status"] == "True"
    assert all(part in topology["message"] for part in ("ResourceFlavor gpu", "2 nodes"))
    harness.drop("Workload", "holds")
    for plural, kind, name in OBJECTS:
        harness.reconcile(plural, name)
        assert name not in [obj["metadata"]["name"] for obj in harness.all(kind)]


def test_node_of_two_flavors_is_counted_once(harness: QueuesHarness):
    harness.put({"kind": "ResourceFlavor", **build_flavor_json("other", "t")})
    harness.reconcile("topologies", "t")
    assert harness.find_condition(NODES_PLACED, "t", "Topology")["message"].startswith("2 nodes carry")
    harness.drop("Node", "r2-n", "")
    harness.reconcile("topologies", "t")
    assert "1 node " in harness.find_condition(NODES_PLACED, "t", "Topology")["message"]


def test_users_that_come_and_go_are_no_new_event_but_another_object_of_the_name_is(harness: QueuesHarness):
    for name in ("a", "b"):
        harness.put({"kind": "ResourceFlavor", **build_flavor_json(name, "t")})
    deleted(harness, "Topology", "t")
    harness.reconcile("topologies", "t")
    harness.drop("ResourceFlavor", "a")
    harness.reconcile("topologies", "t")
    ((_, told),) = harness.told("t")
    assert "ResourceFlavors a, b, gpu" in told
    topology = harness.get("Topology", "t")
    harness.drop("Topology", "t")
    harness.reconcile("topologies", "t")
    harness.put({**topology, "metadata": {**topology["metadata"], "uid": "another"}})
    harness.reconcile("topologies", "t")
    first, second = (message for _, message in harness.told("t"))
    assert first == told
    assert "ResourceFlavors b, gpu" in second


def test_deleted_queue_with_only_a_foreign_finalizer_gets_no_event(harness: QueuesHarness):
    queue = {"kind": "ClusterQueue", **build_cluster_queue_json("cq", {"gpu": "10"})}
    harness.put({**queue, "metadata": {"name": "cq", "finalizers": ["example.com/theirs"], "deletionTimestamp": harness.now()}})
    harness.reconcile("clusterqueues", "cq")
    assert harness.told("cq") == []
