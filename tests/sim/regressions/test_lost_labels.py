"""Nodes lose the labels by which they are in a flavor or a topology, while jobs run there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.administrators import make_ready
from sim.models.base import NODE, POD, is_over
from sim.world import WORKLOADS
from tests.sim.one_queue import make_world

Json = dict[str, Any]
POOL = NodePool(blocks=1, racks=2, nodes=3, labels={"pool": "a"})
RACK, BLOCK = POOL.rack_label, POOL.block_label
SUCCEEDED = {"phase": "Succeeded"}


class Cluster:
    """Two racks of three nodes with 8 GPUs each, and one job of two pods that requires a rack, a node for each pod."""

    def __init__(self, *levels: str, **job: Any) -> None:
        self.world = make_world(POOL, gpus=64, levels=levels)
        self.world.start_reconciler()
        made = manifests.build_job("j", "ns", pods=2, gpus=8, indexed=True, required=RACK)
        self.world.apply({**made, "spec": {**made["spec"], **job}})
        self.world.run_for(30)
        assert len(self.runs) == job.get("parallelism", 2)

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


LEAVES = [({"pool": "b"}, "left flavor f"), ({"rack": None}, "left topology t"), ({"hostname": "other"}, "is other now")]


@pytest.mark.parametrize(("labels", "why"), LEAVES)
def test_pod_of_a_node_that_left_is_made_anew_on_another_node(clusters: list[Cluster], labels: Mapping[str, str | None], why: str):
    """Its pod stayed gated for ever, and nothing said why."""
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    before = cluster.runs
    left, stays = sorted(set(before.values()))
    cluster.label(left, **labels)
    cluster.world.run_for(600)
    assert cluster.runs == before, "what runs on a node in good health runs on"
    [kept] = [each for each in cluster.workload["status"]["conditions"] if each["type"] == "topogate.dev/PlacementKept"]
    assert kept["status"] == "False"
    assert why in kept["message"]
    cluster.delete_pod(left)
    cluster.world.run_for(10)
    assert stays in cluster.runs.values()
    assert left not in cluster.runs.values()
    assert len(cluster.runs) == 2
    [message] = cluster.list_events("NodeUnhealthy")
    assert why in message


@pytest.mark.parametrize("seconds", [3, 20])
def test_labels_that_come_back_soon_cost_no_place(clusters: list[Cluster], seconds: int):
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    before = cluster.runs
    left = min(before.values())
    cluster.label(left, rack=None)
    cluster.delete_pod(left)
    cluster.world.run_for(seconds)
    assert len(cluster.runs) == 1
    cluster.label(left, rack=cluster.node(max(before.values()))["metadata"]["labels"][RACK])
    cluster.world.run_for(60)
    assert sorted(cluster.runs.values()) == sorted(before.values())
    assert cluster.list_events("NodeUnhealthy") == []


def test_node_is_replaced_while_a_pod_runs_on_a_node_that_left(clusters: list[Cluster]):
    """Of the node that is gone no replacement was ever found: the other node "is not there and not among the failed nodes"."""
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    left, gone = sorted(set(cluster.runs.values()))
    rack = cluster.node(left)["metadata"]["labels"][RACK]
    cluster.label(left, pool="b")
    cluster.world.run_for(60)
    cluster.world.kubelets.down.add(gone)
    cluster.world.delete(cluster.node(gone))
    cluster.world.run_for(200)
    assert len(cluster.runs) == 2
    assert left in cluster.runs.values()
    assert {cluster.node(node)["metadata"]["labels"][RACK] for node in cluster.runs.values()} == {rack}
    assert cluster.list_events("EvictedDueToNodeFailures") == []


def test_process_that_begins_anew_finds_a_node_that_left(clusters: list[Cluster]):
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    left = min(cluster.runs.values())
    cluster.label(left, rack=None)
    cluster.delete_pod(left)
    cluster.world.run_for(20)
    cluster.world.replicas[0].kill()
    cluster.world.run_for(90)
    assert len(cluster.runs) == 2
    assert left not in cluster.runs.values()


def test_process_that_begins_anew_names_no_node_as_lost_that_has_another_hostname_and_pods_that_run(clusters: list[Cluster]):
    """The node of that place seemed to be gone: the pod ran on outside of its Workload's assignment, which had another place for it."""
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    before, given = cluster.runs, cluster.workload["status"]["admission"]
    cluster.label(min(before.values()), hostname="other")
    cluster.world.run_for(60)
    cluster.world.replicas[0].kill()
    cluster.world.run_for(200)
    assert cluster.runs == before
    assert cluster.workload["status"]["admission"] == given
    assert cluster.list_events("NodeUnhealthy") == []


def test_node_is_replaced_beside_one_that_left_after_another_that_had_its_hostname_is_gone(clusters: list[Cluster]):
    """Seed 7581: the node that had left was named as lost for ever, as its pods ran well, and no other one was replaced meanwhile."""
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    left, gone = sorted(set(cluster.runs.values()))
    node = cluster.node(left)
    twin = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "twin", "labels": node["metadata"]["labels"]},
        "status": node["status"],
    }
    cluster.world.apply(twin)
    cluster.label(left, pool="b")
    cluster.world.run_for(60)
    cluster.world.delete(cluster.node("twin"))
    cluster.world.run_for(60)
    assert cluster.list_events("NodeUnhealthy") == []
    cluster.world.kubelets.down.add(gone)
    cluster.world.delete(cluster.node(gone))
    cluster.world.run_for(200)
    assert len(cluster.runs) == 2
    assert left in cluster.runs.values()
    assert cluster.list_events("NodeUnhealthy") == [f"node {gone}: it is gone"]
    assert cluster.workload["status"].get("unhealthyNodes") is None


def test_flavor_with_other_labels_lets_pods_that_run_stay_where_they_are(clusters: list[Cluster]):
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    before = cluster.runs
    [flavor] = cluster.world.objects("kueue.x-k8s.io", "resourceflavors")
    cluster.world.patch("kueue.x-k8s.io", "resourceflavors", flavor, {"spec": {"nodeLabels": {"pool": "b"}}})
    cluster.world.run_for(600)
    assert cluster.runs == before
    cluster.delete_pod(min(before.values()))
    cluster.world.run_for(120)
    assert len(cluster.list_events("EvictedDueToNodeFailures")) == 1, "no node of the flavor is left"


@pytest.mark.parametrize("has_failed", [False, True])
def test_pod_in_the_stead_of_one_that_has_succeeded_gets_another_place(clusters: list[Cluster], has_failed: bool):
    """A Job with more completions than it runs pods at once: its places are used again."""
    clusters.append(cluster := Cluster(BLOCK, RACK, HOSTNAME_LABEL, completions=6))
    [(name, node), (_, other)] = cluster.runs.items()
    cluster.world.patch(*POD, next(pod for pod in cluster.pods if pod["metadata"]["name"] == name), {"status": SUCCEEDED}, "status")
    if has_failed:
        cluster.world.kubelets.down.add(node)
        cluster.world.patch(*NODE, cluster.node(node), {"status": make_ready(cluster.node(node), "False")["status"]}, "status")
    else:
        cluster.label(node, pool="b")
    cluster.world.run_for(120)
    [another] = set(cluster.runs.values()) - {other}
    assert another != node
    assert cluster.workload["status"].get("unhealthyNodes") is None


def test_pod_is_made_anew_where_all_places_that_are_left_had_pods_that_have_succeeded(clusters: list[Cluster]):
    """Each of two such places seemed not to be needed, since there was the other one: the pod stayed gated for ever."""
    clusters.append(cluster := Cluster(BLOCK, RACK, HOSTNAME_LABEL, parallelism=3, completions=4, **build_halves()))
    by_index = {pod["metadata"]["labels"][JOB_COMPLETION_INDEX_LABEL]: pod for pod in cluster.pods}
    assert by_index["0"]["spec"]["nodeName"] == by_index["1"]["spec"]["nodeName"] != by_index["2"]["spec"]["nodeName"]
    for index in ("1", "2"):
        cluster.label(by_index[index]["spec"]["nodeName"], pool="b")
    cluster.world.patch(*POD, by_index["0"], {"status": SUCCEEDED}, "status")
    cluster.world.run_for(120)
    assert len(cluster.runs) == 3
    cluster.world.patch(*POD, by_index["2"], {"status": SUCCEEDED}, "status")
    cluster.world.run_for(10)
    cluster.world.delete(by_index["1"])
    cluster.world.run_for(120)
    assert len(cluster.runs) == 2
    assert not {by_index[index]["spec"]["nodeName"] for index in ("1", "2")} & set(cluster.runs.values())


def build_halves() -> Json:
    """Pods that leave room for another on their node."""
    return {"template": manifests.build_job("j", "ns", pods=3, gpus=4, indexed=True, required=RACK)["spec"]["template"]}


def test_place_of_a_pod_that_has_succeeded_is_not_replaced_while_no_other_needs_it(clusters: list[Cluster]):
    clusters.append(cluster := Cluster(BLOCK, RACK, HOSTNAME_LABEL))
    [(name, node), (_, other)] = cluster.runs.items()
    cluster.world.patch(*POD, next(pod for pod in cluster.pods if pod["metadata"]["name"] == name), {"status": SUCCEEDED}, "status")
    cluster.world.run_for(5)
    cluster.label(node, pool="b")
    cluster.delete_pod(other)
    cluster.world.run_for(120)
    assert list(cluster.runs.values()) == [other]
    assert not cluster.list_events("NodeUnhealthy")


def test_job_with_a_topology_deleted_by_force_says_so(clusters: list[Cluster]):
    """Former defect: a pod that was made anew stayed gated for ever, and nothing said why."""
    cluster = Cluster(BLOCK, RACK, HOSTNAME_LABEL)
    clusters.append(cluster)
    [topology] = cluster.world.objects("kueue.x-k8s.io", "topologies")
    cluster.world.delete(topology)
    [topology] = cluster.world.objects("kueue.x-k8s.io", "topologies")
    cluster.world.patch("kueue.x-k8s.io", "topologies", topology, {"metadata": {"finalizers": []}})
    cluster.delete_pod(min(cluster.runs.values()))
    cluster.world.run_for(120)
    assert cluster.world.objects("kueue.x-k8s.io", "topologies") == []
    assert len(cluster.runs) == 1
    [kept] = [each for each in cluster.workload["status"]["conditions"] if each["type"] == "topogate.dev/PlacementKept"]
    assert kept["status"] == "False"
    assert "topology t of its flavor is not there any more" in kept["message"]
    cluster.world.apply(manifests.build_topology("t", [BLOCK, RACK, HOSTNAME_LABEL]))
    cluster.world.run_for(120)
    assert len(cluster.runs) == 2
    [kept] = [each for each in cluster.workload["status"]["conditions"] if each["type"] == "topogate.dev/PlacementKept"]
    assert kept["status"] == "True"
