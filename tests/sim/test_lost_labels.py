"""Nodes lose the labels by which they are in a flavor or a topology, while jobs run there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from e2e import manifests
from e2e.nodes import NodePool, node_objects
from e2e.standins.pods import has_condition
from sim.administrators import make_ready
from sim.models.base import NODE, POD, is_over
from sim.world import WORKLOADS, World

Json = dict[str, Any]
POOL = NodePool(blocks=1, racks=2, nodes=3, labels={"pool": "a"})
RACK, BLOCK = POOL.rack_label, POOL.block_label


class Cluster:
    """Two racks of three nodes with 8 GPUs each, and one job of two pods that requires a rack, a node for each pod."""

    def __init__(self, *levels: str) -> None:
        self.world = World(1)
        for node in node_objects(POOL):
            self.world.apply(make_ready(node, "True"))
        self.world.apply(manifests.topology("t", levels))
        self.world.apply(manifests.flavor("f", {"pool": "a"}, "t"))
        self.world.apply(manifests.cluster_queue("cq", {"f": {"cpu": 100, "memory": "1Ti", "nvidia.com/gpu": 64}}))
        self.world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        self.world.apply(manifests.local_queue("main", "ns", "cq"))
        self.world.start_reconciler()
        self.world.apply(manifests.job("j", "ns", pods=2, gpus=8, indexed=True, required=RACK))
        self.world.run_for(30)
        assert len(self.runs) == 2

    @property
    def pods(self) -> list[Json]:
        return [pod for pod in self.world.objects(*POD) if not is_over(pod)]

    @property
    def runs(self) -> dict[str, str]:
        """Nodes of pods that are bound, by the pod's name."""
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self.pods if pod["spec"].get("nodeName")}

    @property
    def workload(self) -> Json:
        [found] = self.world.objects(*WORKLOADS)
        return found

    def node(self, name: str) -> Json:
        return next(node for node in self.world.objects(*NODE) if node["metadata"]["name"] == name)

    def label(self, name: str, **labels: str | None) -> None:
        """Sets labels of a node; of names the parts before a slash are left out."""
        known = {"pool": "pool", "rack": RACK, "hostname": HOSTNAME_LABEL}
        self.world.patch(*NODE, self.node(name), {"metadata": {"labels": {known[key]: value for key, value in labels.items()}}})

    def delete_pod(self, node: str) -> None:
        [pod] = [pod for pod in self.pods if pod["spec"].get("nodeName") == node]
        self.world.delete(pod)

    def list_events(self, reason: str) -> list[str]:
        """Messages of the events with a reason."""
        found = [change.new for change in self.world.server.history if change.resource == ("", "events") and change.new]
        return [event["message"] for event in found if event["reason"] == reason]


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    """Those that a test appends are closed after it."""
    made: list[Cluster] = []
    yield made
    for each in made:
        each.world.close()


@pytest.mark.parametrize("labels", [{"rack": None}, {"pool": "b"}])
def test_job_in_a_rack_without_labels_runs_on_the_same_pods(clusters: list[Cluster], labels: Mapping[str, str | None]):
    """A labeller was away for longer than 30 s, and pods that ran on nodes in good health were ended."""
    cluster = Cluster(BLOCK, RACK)
    clusters.append(cluster)
    before = cluster.runs
    rack = cluster.node(next(iter(before.values())))["metadata"]["labels"][RACK]
    for node in [node for node in cluster.world.objects(*NODE) if node["metadata"]["labels"][RACK] == rack]:
        cluster.label(node["metadata"]["name"], **labels)
    cluster.world.run_for(600)
    assert cluster.runs == before
    cluster.delete_pod(next(iter(before.values())))
    cluster.world.run_for(120)
    [evicted] = cluster.list_events("EvictedDueToNodeFailures")
    assert "no node of flavor f is in that domain" in evicted
    assert has_condition(cluster.workload, "Admitted")
    assert len(cluster.runs) == 2
