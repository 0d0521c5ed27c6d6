"""Nodes that fail under running jobs: who is moved, who is not, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.long import mark_long
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory

NODES = "/api/v1/nodes"
HOST = "kubernetes.io/hostname"
DOCUMENT = Path(__file__).parents[3] / "docs/nodes.md"


@pytest.fixture
def wide(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of six nodes."""
    opened = Scene(cluster, nodes=6).open()
    yield opened
    for node in opened.read().nodes.values():
        if node["metadata"]["name"].startswith(opened.prefix) and not truth.is_true(node, "Ready"):
            cluster.set_node_ready(node["metadata"]["name"], ready=True)
    opened.close()


def get_places(now: truth.Snapshot, job: str) -> dict[str, str]:
    """Nodes of its pods that are not over, by uid."""
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in list_live_pods(now, job) if pod["spec"].get("nodeName")}


def list_live_pods(now: truth.Snapshot, job: str) -> list[dict[str, Any]]:
    over = ("Failed", "Succeeded")
    return [p for p in now.pods_of(job) if p["status"].get("phase") not in over and not p["metadata"].get("deletionTimestamp")]


def get_workload(now: truth.Snapshot, job: str) -> dict[str, Any]:
    found = now.workload_of(job)
    assert found is not None
    return found


def fail(scene: Scene, job: str, *nodes: str) -> None:
    """Nodes that are not ready, and whose pods are gone."""
    for node in nodes:
        scene.cluster.set_node_ready(node, ready=False)
    end_pods(scene, job, *nodes)


def end_pods(scene: Scene, job: str, *nodes: str) -> None:
    for pod in list_live_pods(scene.read(), job):
        if pod["spec"].get("nodeName") in nodes:
            scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{pod['metadata']['name']}", grace_period_s=0)


def wait_until_whole(scene: Scene, job: str, pods: int, without: set[str]) -> truth.Snapshot:
    def is_whole(now: truth.Snapshot) -> bool:
        there = get_places(now, job)
        return len(there) == pods and not without & set(there.values()) and "unhealthyNodes" not in get_workload(now, job)["status"]

    return scene.eventually(f"{job} to be whole without {sorted(without)}", is_whole)


def list_racks_of(scene: Scene, now: truth.Snapshot, job: str) -> set[str]:
    return {now.nodes[node]["metadata"]["labels"][scene.rack] for node in get_places(now, job).values()}


@pytest.mark.parametrize("lost", mark_long([1, 3], but={0}))
def test_pods_of_failed_nodes_move_within_their_rack_and_no_other_pod_is_touched(wide: Scene, lost: int) -> None:
    wide.submit("train", pods=3, gpus=8, required=wide.rack, indexed=True)
    before = get_places(wide.until_bound("train", 3), "train")
    gone = set(sorted(before.values())[:lost])
    fail(wide, "train", *gone)
    now = wait_until_whole(wide, "train", 3, gone)
    after = get_places(now, "train")
    assert {uid: node for uid, node in before.items() if node not in gone}.items() <= after.items()
    assert len(list_racks_of(wide, now, "train")) == 1
    assert truth.is_true(get_workload(now, "train"), "Admitted")
    assert not truth.is_true(get_workload(now, "train"), "Evicted")
    said = {event["message"] for event in now.events if event["reason"] == "NodeUnhealthy"}
    assert {message.partition(":")[0] for message in said} == {f"node {node}" for node in gone}


@pytest.mark.long
def test_deleted_node_of_a_running_job_is_replaced_in_the_same_rack(wide: Scene) -> None:
    wide.submit("train", pods=2, gpus=8, required=wide.rack)
    gone, *_ = sorted(get_places(wide.until_bound("train", 2), "train").values())
    wide.cluster.delete_nodes([gone])
    end_pods(wide, "train", gone)  # as the pod garbage collector does in a minute
    now = wait_until_whole(wide, "train", 2, {gone})
    assert len(list_racks_of(wide, now, "train")) == 1


def test_a_node_that_is_away_while_its_pods_run_changes_nothing(wide: Scene) -> None:
    wide.submit("train", pods=2, gpus=8, required=wide.rack)
    before = get_places(wide.until_bound("train", 2), "train")
    admission = get_workload(wide.read(), "train")["status"]["admission"]
    for node in before.values():
        wide.cluster.set_node_ready(node, ready=False)
    wide.submit("another", pods=2, gpus=8, required=wide.rack)
    wide.until_bound("another", 2)  # by then the nodes' state has long been seen
    for node in before.values():
        wide.cluster.set_node_ready(node, ready=True)
    now = wide.read()
    assert get_places(now, "train") == before
    assert get_workload(now, "train")["status"]["admission"] == admission
    assert not [event for event in now.events if event["reason"] == "NodeUnhealthy"]


@pytest.mark.long
def test_pod_on_a_cordoned_node_keeps_running_and_moves_after_it_ends(wide: Scene) -> None:
    """As `kubectl drain` does: it cordons, then evicts."""
    wide.submit("train", pods=2, gpus=8, required=wide.rack)
    before = get_places(wide.until_bound("train", 2), "train")
    node, *_ = sorted(before.values())
    wide.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})
    wide.submit("another", pods=2, gpus=8, required=wide.rack)
    wide.until_bound("another", 2)
    assert get_places(wide.read(), "train") == before
    end_pods(wide, "train", node)
    now = wait_until_whole(wide, "train", 2, {node})
    assert {event["message"] for event in now.events if event["reason"] == "NodeUnhealthy"} <= {
        f"node {node}: it is cordoned",
        f"node {node}: it has the taint node.kubernetes.io/unschedulable:NoSchedule",
    }


def test_job_with_the_documented_pod_failure_policy_survives_lost_nodes_at_backoff_limit_zero(wide: Scene) -> None:
    """Once by the Eviction API, as `kubectl drain` does it, and once by us, who end a pod that waits for a cordoned node."""
    (shown,) = re.findall(r"```yaml\n(spec:\n  podFailurePolicy:.*?)```", DOCUMENT.read_text(), re.DOTALL)
    spec = {**yaml.safe_load(shown)["spec"], "backoffLimit": 0}
    wide.submit("train", pods=2, gpus=8, required=wide.rack, spec=spec)
    before = get_places(wide.until_bound("train", 2), "train")
    uid, node = min(before.items(), key=lambda item: item[1])
    (name,) = (pod["metadata"]["name"] for pod in wide.read().pods if pod["metadata"]["uid"] == uid)
    wide.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})
    evicts = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": wide.namespace}}
    wide.api.create(f"/api/v1/namespaces/{wide.namespace}/pods/{name}/eviction", evicts)
    # As its kubelet would, once the containers have ended: with such a policy a Job waits for that.
    wide.api.patch(f"/api/v1/namespaces/{wide.namespace}/pods/{name}/status", {"status": {"phase": "Failed"}})
    now = wait_until_whole(wide, "train", 2, {node})
    assert before.items() - {(uid, node)} <= get_places(now, "train").items()

    wide.submit("waits", pods=1, gpus=8, required=wide.rack, pod_spec={"schedulerName": "nobody"}, spec=spec)

    def pinned(now: truth.Snapshot) -> list[dict[str, Any]]:
        return [pod for pod in list_live_pods(now, "waits") if HOST in (pod["spec"].get("nodeSelector") or {})]

    (pod,) = pinned(wide.eventually("its pod to be ungated", pinned))
    host = pod["spec"]["nodeSelector"][HOST]
    wide.api.patch(f"{NODES}/{host}", {"spec": {"unschedulable": True}})
    now = wide.eventually("another pod elsewhere", lambda now: any(one["spec"]["nodeSelector"][HOST] != host for one in pinned(now)))
    assert not [job for job in now.jobs if truth.is_true(job, "Failed")]


@pytest.mark.long
def test_a_pod_that_waits_for_a_node_that_takes_none_is_ended_and_another_gets_another_place(wide: Scene) -> None:
    """Between its ungating and its binding, which nobody does here."""
    wide.submit("train", pods=1, gpus=8, required=wide.rack, pod_spec={"schedulerName": "nobody"})

    def pinned(now: truth.Snapshot) -> list[dict[str, Any]]:
        return [pod for pod in list_live_pods(now, "train") if HOST in (pod["spec"].get("nodeSelector") or {})]

    (pod,) = pinned(wide.eventually("its pod to be ungated", pinned))
    node = pod["spec"]["nodeSelector"][HOST]
    wide.api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})

    def moved(now: truth.Snapshot) -> bool:
        return any(one["spec"]["nodeSelector"][HOST] != node for one in pinned(now))

    now = wide.eventually("another pod elsewhere", moved)
    (ended,) = (one for one in now.pods if one["metadata"]["uid"] == pod["metadata"]["uid"])
    assert ended["status"]["phase"] == "Failed"
    (condition,) = (c for c in ended["status"]["conditions"] if c["type"] == "TerminatedByKueue")
    assert (condition["status"], condition["reason"]) == ("True", "UnschedulableOnAssignedNode")
    assert node in condition["message"]
    assert [event["type"] for event in now.events if event["reason"] == "PodTerminatedByKueue"] == ["Normal"]
    assert "unhealthyNodes" not in get_workload(now, "train")["status"]


def test_without_another_node_the_job_is_stopped_with_the_reason_and_comes_back_when_there_is_one(scene: Scene) -> None:
    scene.submit("train", pods=2, gpus=8, required=scene.rack)
    lost = set(get_places(scene.until_bound("train", 2), "train").values())
    scene.submit("other", pods=2, gpus=8, required=scene.rack)
    scene.until_bound("other", 2)
    fail(scene, "train", *lost)
    now = scene.eventually(
        "its eviction", lambda now: truth.get_condition(get_workload(now, "train"), "Evicted").get("reason") == "NodeFailures"
    )
    assert "unhealthyNodes" not in get_workload(now, "train")["status"]
    message = truth.get_condition(get_workload(now, "train"), "Evicted")["message"]
    assert "no replacement" in message
    assert all(node in message for node in lost)
    for node in lost:
        scene.cluster.set_node_ready(node, ready=True)
    scene.until_bound("train", 2)


@pytest.mark.long
def test_pods_are_not_moved_while_most_nodes_are_not_ready_at_once(wide: Scene) -> None:
    """Their pods are ended, too, which by itself would have each replaced."""
    wide.submit("train", pods=6, gpus=8, required=wide.rack)
    before = get_places(wide.until_bound("train", 6), "train")
    topology = f"/apis/kueue.x-k8s.io/v1beta2/topologies/{wide.prefix}topology"
    idle = sorted(name for name in wide.read().nodes if name.startswith(wide.prefix) and name not in before.values())
    away = [*sorted(before.values())[:3], *idle[:3]]  # half of each rack
    for node in away:
        wide.cluster.set_node_ready(node, ready=False)

    def reachable() -> dict[str, Any]:
        conditions = (wide.api.get(topology).get("status") or {}).get("conditions") or ()
        return next((c for c in conditions if c["type"] == "topogate.dev/NodesReachable"), {})

    wide.eventually("the storm", lambda now: reachable().get("status") == "False")
    assert reachable()["message"].startswith("6 of 12 nodes turned not ready at about the same time")
    end_pods(wide, "train", *sorted(before.values())[:2])
    wide.submit("another", pods=2, gpus=8, required=wide.rack)
    wide.until_bound("another", 2)
    now = wide.read()
    assert "unhealthyNodes" not in get_workload(now, "train")["status"]
    assert not truth.is_true(get_workload(now, "train"), "Evicted")
    for node in away:
        wide.cluster.set_node_ready(node, ready=True)
    wide.eventually("calm", lambda now: reachable().get("status") == "True")
    now = wide.until_bound("train", 6)
    assert set(get_places(now, "train").values()) == set(before.values())


@pytest.mark.long
def test_node_relabeled_to_another_rack_is_reported_and_its_pods_keep_running(wide: Scene) -> None:
    wide.submit("train", pods=2, gpus=8, required=wide.rack)
    before = get_places(wide.until_bound("train", 2), "train")
    node, *_ = sorted(before.values())
    labels = wide.read().nodes[node]["metadata"]["labels"]
    here, elsewhere = labels[wide.rack], next(rack for rack in list_racks(wide) if rack != labels[wide.rack])

    def kept(now: truth.Snapshot) -> dict[str, Any]:
        return truth.get_condition(get_workload(now, "train"), "topogate.dev/PlacementKept")

    wide.api.patch(f"{NODES}/{node}", {"metadata": {"labels": {wide.rack: elsewhere}}})
    now = wide.eventually("the drift to be told", lambda now: kept(now).get("reason") == "Split")
    assert f"though one {wide.rack} is required" in kept(now)["message"]
    wide.api.patch(f"{NODES}/{node}", {"metadata": {"labels": {wide.rack: here}}})
    now = wide.eventually("it to be over", lambda now: kept(now).get("status") == "True")
    assert get_places(now, "train") == before


def list_racks(scene: Scene) -> set[str]:
    nodes = (node["metadata"] for node in scene.read().nodes.values())
    return {node["labels"][scene.rack] for node in nodes if node["name"].startswith(scene.prefix)}


@pytest.mark.long
def test_a_node_that_is_deleted_and_comes_back_elsewhere_is_not_taken_for_the_former_one(wide: Scene) -> None:
    wide.submit("train", pods=2, gpus=8, required=wide.rack)
    gone, *_ = sorted(get_places(wide.until_bound("train", 2), "train").values())
    former = wide.read().nodes[gone]
    elsewhere = next(rack for rack in list_racks(wide) if rack != former["metadata"]["labels"][wide.rack])
    wide.cluster.delete_nodes([gone])
    end_pods(wide, "train", gone)
    metadata = {key: former["metadata"][key] for key in ("name", "annotations")}
    metadata["labels"] = {**former["metadata"]["labels"], wide.rack: elsewhere}
    status = {key: former["status"][key] for key in ("allocatable", "capacity")}
    wait_until_whole(wide, "train", 2, {gone})
    wide.cluster.add_nodes([{"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}])
    now = wait_until_whole(wide, "train", 2, {gone})
    assert len(list_racks_of(wide, now, "train")) == 1


@pytest.mark.long
def test_job_in_a_failed_required_rack_is_admitted_in_another_rack(wide: Scene) -> None:
    """Of a rack that is required nothing is left: it is evicted, and fits another."""
    wide.submit("train", pods=3, gpus=8, required=wide.rack)
    now = wide.until_bound("train", 3)
    (rack,) = list_racks_of(wide, now, "train")
    used = sorted(get_places(now, "train").values())
    beside = [name for name, node in now.nodes.items() if node["metadata"]["labels"].get(wide.rack) == rack and name not in used]
    fail(wide, "train", *used, beside[0])
    whole = wide.eventually(
        "it to run in the other rack",
        lambda now: len(get_places(now, "train")) == 3 and list_racks_of(wide, now, "train") == list_racks(wide) - {rack},
    )
    assert truth.is_true(get_workload(whole, "train"), "Admitted")
