"""Jobs deleted without their pods, or before these have ended: what the pods use is free when the last of them is over, for sure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from core.names import API_VERSION, PODSET_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from e2e import manifests
from e2e.api import wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.long import mark_long
from tests.reconciler.kinds.pods import build_pod, build_template, list_live_pods, of_set
from tests.reconciler.scenes import WORKLOADS, Scene

pytestmark = pytest.mark.in_memory
PODS = "/api/v1/namespaces/{}/pods"
POD_SET = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "c"}]}}}
ENDS_SLOWLY = "e2e.topogate.dev/ends-slowly"  # its containers have not ended as long as it has this annotation (e2e/stages/pod.yaml)
Obj = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _garbage_is_collected(cluster: Cluster, topogate: Topogate, module_namespace: str) -> None:
    """The garbage collector learns of Workloads half a minute after their CRD was made; until then it leaves them as they are."""
    api, owners = cluster.api, f"/api/v1/namespaces/{module_namespace}/configmaps"
    workloads = WORKLOADS.format(module_namespace)
    owner = api.create(owners, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    metadata = {"name": "owned", "namespace": module_namespace, "ownerReferences": [reference]}
    api.create(workloads, {"apiVersion": API_VERSION, "kind": "Workload", "metadata": metadata, "spec": {"podSets": [POD_SET]}})
    api.delete(f"{owners}/owner")
    wait_for("the garbage collector", lambda: api.find(f"{workloads}/owned") is None)


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Two racks of two nodes, and quota for one rack."""
    opened = Scene(cluster).open(quota=16)
    yield opened
    opened.close()


def made(kind: str, scene: Scene) -> Obj:
    """What asks for all the quota, by two pods; a pod alone by one."""
    if kind == "Job":
        return scene.submit("left", pods=2, gpus=8, required=scene.rack)
    if kind == "Pod":
        return scene.create(build_pod(scene, "left", gpus=8) | {"spec": build_template(8)["spec"] | {"restartPolicy": "Never"}})
    return scene.create(of_set(kind, scene, "left", 2, build_template(8, required=scene.rack)) | {})


def wait_until_running(scene: Scene, kind: str) -> list[Obj]:
    count = 1 if kind == "Pod" else 2
    now = scene.eventually("all to be bound", lambda now: len(list_running(now, scene)) == count)
    return list_running(now, scene)


def of_left(now: truth.Snapshot) -> list[Obj]:
    return [found for found in now.pods if found["metadata"]["name"].startswith("left")]


def list_uids(objects: list[Obj]) -> list[str]:
    return sorted(found["metadata"]["uid"] for found in objects)


def list_running(now: truth.Snapshot, scene: Scene) -> list[Obj]:
    return [found for found in list_live_pods(now, scene) if found["spec"].get("nodeName") and found in of_left(now)]


def delete(scene: Scene, obj: Obj, policy: str) -> None:
    scene.api.request("DELETE", f"{manifests.get_path(obj)}/{obj['metadata']['name']}?propagationPolicy={policy}")


def end(scene: Scene, found: Obj) -> None:
    scene.end_pod(found["metadata"]["name"], {"phase": "Succeeded"})


def hold(scene: Scene, found: Obj) -> None:
    _annotate(scene, found, "true")


def let_go(scene: Scene, found: Obj) -> None:
    _annotate(scene, found, None)


def _annotate(scene: Scene, found: Obj, value: str | None) -> None:
    scene.api.patch(f"{PODS.format(scene.namespace)}/{found['metadata']['name']}", {"metadata": {"annotations": {ENDS_SLOWLY: value}}})


def workload_named(now: truth.Snapshot, name: str) -> Obj | None:
    return next((w for w in now.workloads if w["metadata"]["name"] == name), None)


def orphaned(scene: Scene, kind: str) -> tuple[str, list[Obj]]:
    """Its pods run, and it is deleted without them; name of its workload, and the pods."""
    obj = made(kind, scene)
    pods = wait_until_running(scene, kind)
    name = pods[0]["metadata"]["annotations"][WORKLOAD_ANNOTATION]
    delete(scene, obj, "Orphan")

    def is_orphaned(now: truth.Snapshot) -> bool:
        there = scene.api.find(f"{manifests.get_path(obj)}/{obj['metadata']['name']}")
        workload = workload_named(now, name)
        return there is None and workload is not None and not workload["metadata"].get("ownerReferences")

    scene.eventually("it to be gone without its workload", is_orphaned)
    return name, pods


@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
@pytest.mark.parametrize("restarted", mark_long([False, True], but={0}), ids=["", "restarted"])
def test_quota_of_orphaned_pods_is_released_when_the_last_pod_ends(scene: Scene, topogate: Topogate, kind: str, restarted: bool) -> None:
    name, pods = orphaned(scene, kind)
    scene.submit("next", pods=2, gpus=8, required=scene.rack)
    scene.until_waiting("next", "WaitingForQuota")
    end(scene, pods[0])
    if restarted:
        topogate.kill_reconciler()
        topogate.start_reconciler()
    scene.submit("small", pods=1, gpus=1, required=scene.rack)
    scene.until_waiting("small", "WaitingForQuota")
    now = scene.read()
    assert [found["metadata"]["uid"] for found in list_running(now, scene)] == [pods[1]["metadata"]["uid"]], "it runs on"
    workload = workload_named(now, name)
    assert truth.is_true(workload, "QuotaReserved")
    assert not truth.is_true(workload, "Finished")
    scene.delete_job("small")
    end(scene, pods[1])
    scene.until_bound("next", 2)
    scene.eventually("its workload to be gone", lambda now: workload_named(now, name) is None)


def test_orphaned_pods_that_ended_while_the_reconciler_was_down_hold_no_quota(scene: Scene, topogate: Topogate) -> None:
    name, pods = orphaned(scene, "Job")
    topogate.kill_reconciler()
    for found in pods:
        end(scene, found)
    topogate.start_reconciler()
    scene.eventually("its workload to be gone", lambda now: workload_named(now, name) is None)


@pytest.mark.parametrize(("kind", "policy"), mark_long(product(["Job", "StatefulSet", "Pod"], ["Background", "Foreground"]), but={0, 3}))
def test_quota_of_a_deleted_object_is_held_while_its_pods_are_terminating(scene: Scene, kind: str, policy: str) -> None:
    obj = made(kind, scene)
    pods = wait_until_running(scene, kind)
    for found in pods:
        hold(scene, found)
    delete(scene, obj, policy)
    scene.eventually(
        "its pods to be terminating",
        lambda now: all(p["metadata"].get("deletionTimestamp") for p in of_left(now)),
    )
    if policy == "Background" and kind != "Pod":
        scene.eventually("it to be gone", lambda now: scene.api.find(f"{manifests.get_path(obj)}/{obj['metadata']['name']}") is None)
    scene.submit("next", pods=2, gpus=8, required=scene.rack)
    scene.until_waiting("next", "WaitingForQuota")
    last = pods.pop()
    for found in pods:
        let_go(scene, found)
    now = scene.eventually("all but one to be gone", lambda now: list_uids(of_left(now)) == list_uids([last]))
    assert [truth.is_true(w, "QuotaReserved") for w in now.workloads if "left" in w["metadata"]["name"]] == [True]
    scene.submit("small", pods=2, gpus=5, required=scene.rack)  # 10 of 16, and the last pod has 8
    scene.until_waiting("small", "WaitingForQuota")
    assert list_uids(of_left(scene.read())) == list_uids([last]), "it has not ended"
    scene.delete_job("small")
    let_go(scene, last)
    scene.until_bound("next", 2)


def test_gated_orphan_never_starts_gets_an_event_and_holds_quota_until_deleted(scene: Scene) -> None:
    name, pods = orphaned(scene, "Job")
    gated = build_pod(scene, "left-behind", gpus=8)
    gated["metadata"] |= {"labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: name}}
    gated["spec"]["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
    scene.create(gated)
    for found in pods:
        end(scene, found)
    now = scene.eventually("it to be told", lambda now: any(e["reason"] == "PodStaysGated" for e in now.events))
    message = next(e["message"] for e in now.events if e["reason"] == "PodStaysGated")
    assert f"Workload {name} is gone" in message
    assert [p["metadata"]["name"] for p in now.pods if truth.has_gate(p)] == ["left-behind"]
    assert truth.is_true(workload_named(now, name), "QuotaReserved")
    scene.api.delete(f"{PODS.format(scene.namespace)}/left-behind")
    scene.eventually("its workload to be gone", lambda now: workload_named(now, name) is None)


def test_an_orphaned_workload_that_is_deleted_takes_its_pods_along_and_then_goes(scene: Scene) -> None:
    name, pods = orphaned(scene, "Job")
    hold(scene, pods[0])
    scene.api.delete(f"{WORKLOADS.format(scene.namespace)}/{name}")
    now = scene.eventually(
        "the other pod to be gone", lambda now: len([p for p in now.pods if p["metadata"]["name"].startswith("left")]) == 1
    )
    assert truth.is_true(workload_named(now, name), "QuotaReserved"), "one pod is still terminating"
    let_go(scene, pods[0])
    scene.eventually("its workload to be gone", lambda now: workload_named(now, name) is None)


def test_gated_pod_of_a_missing_workload_gets_an_event_with_the_reason(scene: Scene) -> None:
    stranger = build_pod(scene, "stranger", gpus=1)
    stranger["metadata"] |= {"labels": {}, "annotations": {WORKLOAD_ANNOTATION: "none-such"}}
    stranger["spec"]["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
    scene.create(stranger)
    now = scene.eventually("it to be told", lambda now: any(e["reason"] == "PodStaysGated" for e in now.events))
    told = [e["message"] for e in now.events if e["reason"] == "PodStaysGated"]
    assert len(told) == 1
    assert "Workload none-such, which does not exist; delete the pod" in told[0]
