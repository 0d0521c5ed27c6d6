"""Pods that are queued themselves: alone and in groups."""

from __future__ import annotations

import pytest

from core.names import MANAGED
from e2e.api import ApiError
from e2e.audit import truth
from tests.reconciler.kinds.pods import (
    INDEX,
    bound,
    build_pod,
    is_waiting,
    list_domains,
    list_hosts_by,
    list_live_pods,
    list_workload_names,
    remove,
    set_active,
)
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory


def test_a_pod_alone_is_bound_where_its_workload_says(scene: Scene) -> None:
    created = scene.create(build_pod(scene, "alone", gpus=8, required=scene.rack))
    assert [gate["name"] for gate in created["spec"]["schedulingGates"]] == ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]
    now = scene.eventually("the pod to be bound", lambda now: bound(list_live_pods(now, scene), 1))
    assert truth.as_assigned(now, "alone") == []
    assert truth.is_true(now.workload_of("alone"), "Admitted")
    remove(scene, created)
    scene.eventually("its workload to be gone", lambda now: not list_workload_names(now, scene))


def test_a_pod_that_asks_for_no_topology_is_placed_as_well(scene: Scene) -> None:
    """Its flavor has a topology; a pod without a topology gate could not be pinned any more."""
    scene.create(build_pod(scene, "plain", gpus=8))
    now = scene.eventually("the pod to be bound", lambda now: bound(list_live_pods(now, scene), 1))
    assert truth.as_assigned(now, "plain") == []


def test_a_group_is_in_one_rack_in_the_order_of_its_indexes_and_ends_when_all_have_succeeded(scene: Scene) -> None:
    for i in (2, 0, 3, 1):
        obj = build_pod(scene, f"member-{3 - i}", gpus=4, group="ring", total=4, index=i, required=scene.rack)
        obj["metadata"]["annotations"] |= {"e2e.topogate.dev/complete": "true", "e2e.topogate.dev/run-seconds": "4s"}
        if i == 1:
            now = scene.read()
            assert list_workload_names(now, scene) == [], "it is queued when all are there"
        scene.create(obj)
    now = scene.eventually("the group to be bound", lambda now: bound(list_live_pods(now, scene), 4))
    pods = list_live_pods(now, scene)
    assert len(list_domains(now, pods, scene.rack)) == 1
    hosts = list_hosts_by(INDEX, now, pods)
    assert hosts == sorted(hosts)
    assert list_workload_names(now, scene) == ["ring"]
    now = scene.eventually("the workload to be finished", lambda now: truth.is_true(now.workloads[0], "Finished"))
    assert truth.get_condition(now.workloads[0], "Finished")["message"] == "Pods succeeded: 4/4"
    scene.eventually("finalizers to be off", lambda now: not any(MANAGED in (p["metadata"].get("finalizers") or ()) for p in now.pods))


def test_roles_of_a_group_are_pod_sets_and_a_pod_beyond_its_total_never_runs(scene: Scene) -> None:
    scene.create(build_pod(scene, "small", gpus=1, group="pair", total=2))
    scene.create(build_pod(scene, "large", gpus=8, group="pair", total=2))
    now = scene.eventually("the group to be bound", lambda now: bound(list_live_pods(now, scene), 2))
    assert sorted(p["count"] for p in now.workloads[0]["spec"]["podSets"]) == [1, 1]
    scene.create(build_pod(scene, "too-much", gpus=8, group="pair", total=2))
    now = scene.eventually("the third to be gone", lambda now: len(list_live_pods(now, scene)) == 2)
    now = scene.eventually("it to be told", lambda now: any(e["reason"] == "ExcessPodDeleted" for e in now.events))
    assert {p["metadata"]["name"] for p in list_live_pods(now, scene)} == {"small", "large"}


def test_pod_group_of_pods_with_different_total_counts_waits_and_an_event_names_the_difference(scene: Scene) -> None:
    scene.create(build_pod(scene, "one", group="torn", total=2))
    scene.create(build_pod(scene, "two", group="torn", total=3))
    now = scene.eventually("an event", lambda now: any(e["reason"] == "WorkloadRefused" for e in now.events))
    message = next(e["message"] for e in now.events if e["reason"] == "WorkloadRefused")
    assert "differ in their total count: 2 (pod one), 3 (pod two)" in message
    assert list_workload_names(now, scene) == []
    assert is_waiting(list_live_pods(now, scene), 2)


def test_queued_pod_with_invalid_annotations_is_rejected_with_each_field(scene: Scene) -> None:
    wrong = build_pod(scene, "wrong", group="g", total=2, required="no label")
    del wrong["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"]
    with pytest.raises(ApiError) as refused:
        scene.create(wrong)
    assert {cause["field"] for cause in refused.value.causes} == {
        "metadata.annotations[kueue.x-k8s.io/podset-required-topology]",
        "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]",
    }


def test_existing_pod_cannot_be_queued_or_moved_to_another_group(scene: Scene) -> None:
    path = f"/api/v1/namespaces/{scene.namespace}/pods"
    unqueued = build_pod(scene, "unqueued", gpus=0)
    unqueued["metadata"]["labels"] = {}
    scene.create(unqueued)
    with pytest.raises(ApiError, match="a pod is queued when it is created"):
        scene.api.patch(f"{path}/unqueued", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main"}}})
    scene.create(build_pod(scene, "queued"))
    scene.eventually("it to be bound", lambda now: any(p["metadata"]["name"] == "queued" and p["spec"].get("nodeName") for p in now.pods))
    for name, value in (("kueue.x-k8s.io/queue-name", "other"), ("kueue.x-k8s.io/pod-group-name", "g")):
        with pytest.raises(ApiError) as refused:
            scene.api.patch(f"{path}/queued", {"metadata": {"labels": {name: value}}})
        assert refused.value.status == 422
        assert [(cause["reason"], cause["field"]) for cause in refused.value.causes] == [
            ("FieldValueForbidden", f"metadata.labels[{name}]")
        ], "by the webhook, with the field"


def test_a_group_deleted_while_it_is_gated_leaves_nothing(scene: Scene) -> None:
    names = [f"big-{i}" for i in range(5)]
    for name in names:
        scene.create(build_pod(scene, name, gpus=8, group="big", total=5))
    scene.eventually(
        "it to wait", lambda now: [w for w in now.workloads if truth.get_condition(w, "QuotaReserved").get("status") == "False"]
    )
    assert is_waiting(list_live_pods(scene.read(), scene), 5)
    for name in names:
        scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{name}")
    scene.eventually("all to be gone", lambda now: not list_workload_names(now, scene) and not list_live_pods(now, scene))


def test_a_deactivated_group_is_stopped_and_gives_its_capacity_back(scene: Scene) -> None:
    for i in range(2):
        scene.create(build_pod(scene, f"first-{i}", gpus=8, group="first", total=2, required=scene.rack))
    scene.eventually("the group to be bound", lambda now: bound(list_live_pods(now, scene), 2))
    set_active(scene, "first", False)
    scene.eventually("its pods to be gone", lambda now: not list_live_pods(now, scene))
    for i in range(4):
        scene.create(build_pod(scene, f"next-{i}", gpus=8, group="next", total=4))
    scene.eventually("the next to be bound", lambda now: bound(list_live_pods(now, scene), 4))


def test_a_failed_pod_of_a_group_is_replaced_in_its_place(scene: Scene) -> None:
    for i in range(2):
        obj = build_pod(scene, f"try-{i}", gpus=8, group="tries", total=2, required=scene.rack)
        scene.create(obj)
    now = scene.eventually("the group to be bound", lambda now: bound(list_live_pods(now, scene), 2))
    rack = list_domains(now, list_live_pods(now, scene), scene.rack)
    scene.end_pod("try-0", {"phase": "Failed"})
    scene.create(build_pod(scene, "try-2", gpus=8, group="tries", total=2, required=scene.rack))
    now = scene.eventually("the new one to be bound", lambda now: bound(list_live_pods(now, scene), 2))
    assert {p["metadata"]["name"] for p in list_live_pods(now, scene)} == {"try-1", "try-2"}
    assert list_domains(now, list_live_pods(now, scene), scene.rack) == rack
