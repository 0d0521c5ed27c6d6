"""What an administrator reads who deletes what is still in use, on paper: `kubectl delete` itself only waits."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import EVENT_STILL_IN_USE, NODES_PLACED
from tests.builders import cluster_queue_json, flavor_json
from tests.reconciler.paper_queues import QueuesPaper

OBJECTS = (("clusterqueues", "ClusterQueue", "cq"), ("resourceflavors", "ResourceFlavor", "gpu"), ("topologies", "Topology", "t"))


@pytest.fixture
def paper() -> QueuesPaper:
    """With a workload that holds quota, so that everything is in use."""
    paper = QueuesPaper()
    paper.workload("holds", count=2, owner=None)
    paper.decide()
    for plural, _, name in OBJECTS:
        paper.reconcile(plural, name)
    return paper


def deleted(paper: QueuesPaper, kind: str, name: str) -> dict[str, Any]:
    paper.delete(kind, name)
    return paper.get(kind, name, "None")


@pytest.mark.parametrize(
    ("plural", "kind", "name", "told"),
    [
        ("clusterqueues", "ClusterQueue", "cq", "still used by Workload ns/holds; it goes when that is over"),
        ("resourceflavors", "ResourceFlavor", "gpu", "still used by ClusterQueue cq; it goes when that is gone"),
        ("topologies", "Topology", "t", "still used by ResourceFlavor gpu; it goes when that is gone"),
    ],
)
def test_what_is_deleted_and_still_in_use_says_by_whom_and_says_so_once(paper: QueuesPaper, plural: str, kind: str, name: str, told: str):
    assert paper.told(name) == []
    assert deleted(paper, kind, name)["metadata"]["deletionTimestamp"]
    for _ in range(3):
        paper.reconcile(plural, name)
    assert paper.told(name) == [(EVENT_STILL_IN_USE, told)]


def test_the_status_says_so_too_as_long_as_it_is_true(paper: QueuesPaper):
    for plural, kind, name in OBJECTS:
        deleted(paper, kind, name)
        paper.reconcile(plural, name)
    queue, topology = paper.condition("ClusterQueue", "cq"), paper.condition("Topology", "t")
    assert (queue["status"], queue["reason"]) == ("False", "Terminating")
    assert queue["message"].endswith("; still used by Workload ns/holds; it goes when that is over")
    assert (topology["type"], topology["status"]) == (NODES_PLACED, "True")
    assert topology["message"] == "still used by ResourceFlavor gpu; it goes when that is gone. 2 node(s) have their place"
    paper.drop("Workload", "holds")
    for plural, kind, name in OBJECTS:
        paper.reconcile(plural, name)
        assert name not in [obj["metadata"]["name"] for obj in paper.all(kind)]


def test_users_that_come_and_go_are_no_new_event_but_another_object_of_the_name_is(paper: QueuesPaper):
    for name in ("a", "b"):
        paper.put({"kind": "ResourceFlavor", **flavor_json(name, "t")})
    deleted(paper, "Topology", "t")
    paper.reconcile("topologies", "t")
    paper.drop("ResourceFlavor", "a")
    paper.reconcile("topologies", "t")
    ((_, told),) = paper.told("t")
    assert told == "still used by ResourceFlavors a, b, gpu; it goes when they are gone"
    topology = paper.get("Topology", "t", "None")
    paper.drop("Topology", "t")
    paper.reconcile("topologies", "t")
    paper.put({**topology, "metadata": {**topology["metadata"], "uid": "another"}})
    paper.reconcile("topologies", "t")
    assert [message for _, message in paper.told("t")] == [told, "still used by ResourceFlavors b, gpu; it goes when they are gone"]


def test_what_somebody_elses_finalizer_holds_is_not_told_of(paper: QueuesPaper):
    queue = {"kind": "ClusterQueue", **cluster_queue_json("cq", {"gpu": "10"})}
    paper.put({**queue, "metadata": {"name": "cq", "finalizers": ["example.com/theirs"], "deletionTimestamp": paper.now()}})
    paper.reconcile("clusterqueues", "cq")
    assert paper.told("cq") == []
