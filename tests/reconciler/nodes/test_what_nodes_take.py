"""What nodes take beside their resources: DaemonSets to come, host ports, pods that want to be near to or apart from others.

Every job that runs here was bound by the real kube-scheduler, whose own filters judge the same, where its assignment says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, PODSET_LABEL
from e2e import manifests
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.nodes import build_node
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, Scene

Json = Mapping[str, Any]
_HOLD = "e2e.topogate.dev/hold"  # a scheduling gate that is ours to take off
_APPS = "/apis/apps/v1/namespaces/{}/daemonsets"


def build_container(gpus: int, ports: Sequence[int] = ()) -> dict[str, Any]:
    amounts = {GPU: str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": "1", **amounts}, "limits": amounts}
    return {
        "name": "c",
        "image": "registry.example/c:1",
        "resources": resources,
        "ports": [{"containerPort": p, "hostPort": p} for p in ports],
    }


def with_port(port: int, gpus: int = 1) -> dict[str, Any]:
    return {"containers": [build_container(gpus, [port])]}


def build_affinity(kind: str, key: str, **labels: str) -> dict[str, Any]:
    """`podAffinity` or `podAntiAffinity` that pods with these labels are meant by."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def submit(scene: Scene, name: str, labels: Mapping[str, str], **asked: Any) -> None:
    """A job whose pods have labels."""
    job = manifests.build_job(name, scene.namespace, **asked)
    job["spec"]["template"]["metadata"]["labels"] = dict(labels)
    scene.create(job)


def run_pod(scene: Scene, name: str, labels: Mapping[str, str], **spec: Any) -> str:
    """Someone else's pod, which kube-scheduler puts on a node; that node."""
    metadata = {"name": name, "namespace": scene.namespace, "labels": dict(labels)}
    scene.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [build_container(0)], **spec}})

    def node_of(now: truth.Snapshot) -> list[str]:
        return [pod["spec"]["nodeName"] for pod in now.pods if pod["metadata"]["name"] == name and pod["spec"].get("nodeName")]

    return node_of(scene.eventually(f"{name} to be bound", node_of))[0]


def delete_pod(scene: Scene, name: str) -> None:
    scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{name}", grace_period_s=0)


def wait_until_where_assigned(scene: Scene, name: str, pods: int) -> Counter[str]:
    """Waits until all pods of a job are bound, checks that they are where the assignment says; pods per node."""
    now = scene.until_bound(name, pods)
    assert truth.as_assigned(now, name) == []
    return Counter(pod["spec"]["nodeName"] for pod in now.pods_of(name))


# --- DaemonSets ---------------------------------------------------------------------------------------


def start_held_daemon_set(scene: Scene, gpus: int) -> None:
    """A DaemonSet for the scene's nodes. Its controller makes the pods; they are not bound before `release_daemons`."""
    labels = {"app": "agent"}
    spec = {"nodeSelector": dict(scene.pool.labels), "schedulingGates": [{"name": _HOLD}], "containers": [build_container(gpus)]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    scene.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": scene.namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }
    )


def daemons(now: truth.Snapshot) -> list[dict[str, Any]]:
    return [pod for pod in now.pods if (pod["metadata"].get("labels") or {}).get("app") == "agent"]


def release_daemons(scene: Scene, count: int) -> None:
    now = scene.eventually("the DaemonSet's pods to be made", lambda now: len(daemons(now)) == count)
    for pod in daemons(now):
        path = f"/api/v1/namespaces/{scene.namespace}/pods/{pod['metadata']['name']}"
        scene.api.patch(path, {"spec": {"schedulingGates": None}})
    scene.eventually("the DaemonSet's pods to be bound", lambda now: len([p for p in daemons(now) if p["spec"].get("nodeName")]) == count)


def test_the_share_of_a_daemon_set_is_kept_on_a_node_that_joins(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster, racks=1, nodes=1).open()
    start_held_daemon_set(scene, gpus=1)
    scene.submit("whole", pods=1, gpus=8, required=scene.rack)
    assert "excluded: DaemonSet share: 1" in scene.until_waiting("whole", "TopologyPlacementFailed")
    cluster.add_nodes([build_node(scene.pool, 1, 1, 2)])
    scene.eventually("both nodes to be judged", lambda now: truth.check_waiting_reason(now, "whole", "excluded: DaemonSet share: 2") == [])
    scene.submit("beside", pods=2, gpus=7, required=scene.rack)
    assert set(wait_until_where_assigned(scene, "beside", 2).values()) == {1}

    release_daemons(scene, 2)
    assert truth.check_invariants(scene.read()) == []
    scene.delete_job("beside")
    scene.eventually(
        "the share to be the pods' own", lambda now: truth.check_waiting_reason(now, "whole", f'excluded: resource "{GPU}": 2') == []
    )
    scene.api.delete(f"{_APPS.format(scene.namespace)}/agent")
    wait_until_where_assigned(scene, "whole", 1)
    scene.close()


def test_job_without_daemon_set_reservation_uses_gpus_that_a_pending_daemon_set_requests(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster, racks=1, nodes=1).open()
    start_held_daemon_set(scene, gpus=1)
    scene.submit("whole", pods=1, gpus=8, required=scene.rack)
    scene.until_waiting("whole", "TopologyPlacementFailed")
    topogate.kill_reconciler()
    topogate.start_reconciler(options=["--no-reserve-daemonsets"])
    try:
        wait_until_where_assigned(scene, "whole", 1)
    finally:
        topogate.kill_reconciler()
        topogate.start_reconciler()
    scene.api.delete(f"{_APPS.format(scene.namespace)}/agent")
    scene.close()


# --- host ports ---------------------------------------------------------------------------------------


def test_pods_with_a_host_port_go_one_to_a_node_and_wait_for_one_that_is_taken(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster, racks=1, nodes=2).open()
    scene.submit("first", pods=2, required=scene.rack, pod_spec=with_port(9100))
    assert sorted(wait_until_where_assigned(scene, "first", 2).values()) == [1, 1]
    scene.submit("second", pods=1, required=scene.rack, pod_spec=with_port(9100))
    assert "host port 9100/TCP: 2" in scene.until_waiting("second", "TopologyPlacementFailed")
    scene.submit("other", pods=2, required=scene.rack, pod_spec=with_port(9101))
    wait_until_where_assigned(scene, "other", 2)
    scene.submit("three", pods=3, required=scene.rack, pod_spec=with_port(9102))
    assert "Its pods go one to a node, by host port 9102/TCP" in scene.until_waiting("three", "TopologyPlacementFailed")
    scene.delete_job("first")
    wait_until_where_assigned(scene, "second", 1)
    scene.close()


# --- pods near to and apart from others ---------------------------------------------------------------


def test_pods_that_keep_apart_from_their_own_kind_go_one_to_a_node_of_the_rack(scene: Scene) -> None:
    apart = build_affinity("podAntiAffinity", HOSTNAME_LABEL, app="single")
    submit(scene, "spread", {"app": "single"}, pods=2, required=scene.rack, pod_spec=apart)
    assert sorted(wait_until_where_assigned(scene, "spread", 2).values()) == [1, 1]
    assert truth.check_one_domain(scene.read(), "spread", scene.rack) == []
    submit(scene, "three", {"app": "single"}, pods=3, required=scene.rack, pod_spec=apart)
    assert "Its pods go one to each kubernetes.io/hostname" in scene.until_waiting("three", "TopologyPlacementFailed")
    # Pods of another job keep apart from the first's, too: they go to the other rack.
    submit(scene, "more", {"app": "single"}, pods=2, required=scene.rack, pod_spec=apart)
    wait_until_where_assigned(scene, "more", 2)
    assert not {pod["spec"]["nodeName"] for pod in scene.read().pods_of("more")} & {
        pod["spec"]["nodeName"] for pod in scene.read().pods_of("spread")
    }


@pytest.mark.parametrize(
    "term",
    [
        {"labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": "alone"}}},
        {
            "labelSelector": {"matchExpressions": [{"key": PODSET_LABEL, "operator": "Exists"}]},
            "matchLabelKeys": ["batch.kubernetes.io/controller-uid"],
        },
    ],
    ids=["by the job's name", "by matchLabelKeys"],
)
def test_labels_that_pods_get_only_when_they_are_made_keep_them_apart_too(scene: Scene, term: Json) -> None:
    terms = [{"topologyKey": HOSTNAME_LABEL, **term}]
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    scene.submit("alone", pods=2, required=scene.rack, pod_spec=apart)
    assert sorted(wait_until_where_assigned(scene, "alone", 2).values()) == [1, 1]
    scene.submit("another", pods=2, required=scene.rack, pod_spec=apart)
    wait_until_where_assigned(scene, "another", 2)


def test_pods_of_another_namespace_keep_pods_apart(scene: Scene, namespace: str) -> None:
    away = build_affinity("podAntiAffinity", HOSTNAME_LABEL, noise="loud")
    term = away["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}
    spec = {"containers": [build_container(0)], "nodeSelector": {HOSTNAME_LABEL: f"{scene.prefix}b1-r1-n1"}, **away}
    scene.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shy", "namespace": namespace}, "spec": spec})

    def is_bound() -> bool:
        return bool(scene.api.get(f"/api/v1/namespaces/{namespace}/pods/shy")["spec"].get("nodeName"))

    scene.eventually("the shy pod to be bound", lambda now: is_bound())
    submit(scene, "loud", {"noise": "loud"}, pods=4, gpus=4, required=scene.rack)
    assert f"{scene.prefix}b1-r1-n1" not in wait_until_where_assigned(scene, "loud", 4)
    scene.api.delete(f"/api/v1/namespaces/{namespace}/pods/shy", grace_period_s=0)


def test_pods_follow_the_pods_that_they_want_to_be_near(scene: Scene) -> None:
    near = build_affinity("podAffinity", scene.rack, app="cache")
    scene.submit("early", pods=2, gpus=8, required=scene.rack, pod_spec=near)
    assert "inter-pod affinity: 4" in scene.until_waiting("early", "TopologyPlacementFailed")
    second = f"{scene.prefix}b1-r2"
    run_pod(scene, "cache", {"app": "cache"}, nodeSelector={scene.rack: second})
    wait_until_where_assigned(scene, "early", 2)
    now = scene.read()
    assert {now.label_of(pod, scene.rack) for pod in now.pods_of("early")} == {second}
    scene.submit("late", pods=1, required=scene.rack, pod_spec=near)
    assert "inter-pod affinity: 2" in scene.until_waiting("late", "TopologyPlacementFailed")
    scene.delete_job("early")
    wait_until_where_assigned(scene, "late", 1)


def test_pods_stay_out_of_the_way_of_a_bound_pod_that_keeps_them_apart(scene: Scene) -> None:
    away = build_affinity("podAntiAffinity", scene.rack, noise="loud")
    node = run_pod(scene, "shy", {}, nodeSelector=dict(scene.pool.labels), **away)
    its_rack = scene.read().nodes[node]["metadata"]["labels"][scene.rack]
    submit(scene, "loud", {"noise": "loud"}, pods=2, gpus=8, required=scene.rack)
    wait_until_where_assigned(scene, "loud", 2)
    now = scene.read()
    assert {now.label_of(pod, scene.rack) for pod in now.pods_of("loud")}.isdisjoint({its_rack})
    submit(scene, "louder", {"noise": "loud"}, pods=1, required=scene.rack)
    assert "existing pods' inter-pod anti-affinity: 2" in scene.until_waiting("louder", "TopologyPlacementFailed")
    delete_pod(scene, "shy")
    wait_until_where_assigned(scene, "louder", 1)


@pytest.mark.parametrize("key", ["rack", "hostname"])
def test_pods_that_want_each_others_company_are_in_one_domain(scene: Scene, key: str) -> None:
    label = scene.rack if key == "rack" else HOSTNAME_LABEL
    near = build_affinity("podAffinity", label, app="herd")
    submit(scene, "herd", {"app": "herd"}, pods=4, gpus=2, unconstrained="true", pod_spec=near)
    wait_until_where_assigned(scene, "herd", 4)
    assert truth.check_one_domain(scene.read(), "herd", label) == []
