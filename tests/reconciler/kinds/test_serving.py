"""StatefulSet and Deployment: their own controllers, queued through their pods."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from core.names import QUEUE_NAME_LABEL, STATEFULSET_INDEX_LABEL
from e2e import manifests
from e2e.api import ApiError
from e2e.audit import truth
from e2e.topogate import build_managed_labels
from tests.e2e.users import create_user
from tests.reconciler.kinds.pods import (
    bound,
    build_template,
    is_waiting,
    list_domains,
    list_hosts_by,
    list_live_pods,
    list_workload_names,
    of_set,
    remove,
    set_active,
)
from tests.reconciler.scenes import Scene

pytestmark = pytest.mark.in_memory
PODS = "/api/v1/namespaces/{}/pods"


def scale(scene: Scene, obj: dict[str, Any], replicas: int) -> None:
    scene.api.patch(f"{manifests.get_path(obj)}/{obj['metadata']['name']}", {"spec": {"replicas": replicas}})


@pytest.mark.live("an admission policy")
def test_a_stateful_set_is_one_workload_in_one_rack_in_the_order_of_its_ordinals(scene: Scene) -> None:
    created = scene.create(of_set("StatefulSet", scene, "db", 4, build_template(4, required=scene.rack)))
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene, app="db"), 4))
    pods = list_live_pods(now, scene)
    assert len(list_workload_names(now, scene)) == 1
    assert len(list_domains(now, pods, scene.rack)) == 1
    hosts = list_hosts_by(STATEFULSET_INDEX_LABEL, now, pods)
    assert hosts == sorted(hosts)
    assert truth.as_assigned(now, "db") == []
    path = f"{PODS.format(scene.namespace)}/{pods[0]['metadata']['name']}?dryRun=All"
    user = create_user(scene.api, scene.namespace)
    with pytest.raises(ApiError, match="the labels of a pod of an admitted workload cannot change or go"):
        user.patch(path, {"metadata": {"labels": {"app": "another"}}})  # its controller would release it
    user.patch(path, {"metadata": {"labels": {"mine": "added"}}})
    user.close()
    remove(scene, created)
    scene.eventually("all to be gone", lambda now: not list_live_pods(now, scene) and not list_workload_names(now, scene))


def test_a_stateful_set_counts_ranks_from_its_first_ordinal(scene: Scene) -> None:
    obj = of_set("StatefulSet", scene, "later", 4, build_template(4, required=scene.rack))
    obj["spec"] |= {"ordinals": {"start": 3}, "podManagementPolicy": "Parallel"}
    scene.create(obj)
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene), 4))
    hosts = list_hosts_by(STATEFULSET_INDEX_LABEL, now, list_live_pods(now, scene))
    assert hosts == sorted(hosts)
    assert truth.get_condition(now.workload_of("later"), "topogate.dev/RankOrderKept").get("status") != "False"
    scale(scene, obj, 0)
    scene.eventually("its workload to be on hold", lambda now: not list_live_pods(now, scene) and is_on_hold(now.workload_of("later")))
    scale(scene, obj, 2)
    scene.eventually(
        "as many as it is scaled to", lambda now: bound(list_live_pods(now, scene), 2) and len(list_workload_names(now, scene)) == 1
    )


def is_on_hold(workload: dict[str, Any] | None) -> bool:
    reserved = truth.get_condition(workload, "QuotaReserved")
    is_held = (reserved.get("status"), reserved.get("reason")) == ("False", "OnHold")
    return workload is not None and is_held and "admission" not in workload["status"]


@pytest.mark.long
def test_a_deactivated_stateful_set_waits_gated_until_it_is_activated(scene: Scene) -> None:
    scene.create(of_set("StatefulSet", scene, "web", 2, build_template(8)))
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene), 2))
    name = list_workload_names(now, scene)[0]
    set_active(scene, name, False)

    def is_released(now: truth.Snapshot) -> bool:
        return truth.get_condition(now.workload_of("web"), "QuotaReserved").get("status") == "False"

    scene.eventually("its first pod to come back, gated", lambda now: is_waiting(list_live_pods(now, scene), 1) and is_released(now))
    set_active(scene, name, True)
    scene.eventually("all to be bound again", lambda now: bound(list_live_pods(now, scene), 2))


def test_a_stateful_set_is_admitted_anew_with_as_many_pods_as_it_is_scaled_to(scene: Scene) -> None:
    obj = of_set("StatefulSet", scene, "grow", 2, build_template(8, required=scene.block))
    obj["spec"]["podManagementPolicy"] = "Parallel"
    scene.create(obj)
    scene.eventually("two to be bound", lambda now: bound(list_live_pods(now, scene), 2))

    def is_placed(count: int, now: truth.Snapshot) -> bool:
        counts = [w["spec"]["podSets"][0]["count"] for w in now.workloads]
        return counts == [count] and bound(list_live_pods(now, scene), count) and truth.as_assigned(now, "grow") == []

    for replicas in (4, 1):
        scale(scene, obj, replicas)
        scene.eventually(f"{replicas} to be admitted and bound", partial(is_placed, replicas))


def test_a_stateful_set_that_leaves_its_queue_at_no_replicas_runs_without_topogate(scene: Scene) -> None:
    obj = of_set("StatefulSet", scene, "leaving", 1, build_template(8, required=scene.rack))
    scene.create(obj)
    scene.eventually("it to be bound", lambda now: bound(list_live_pods(now, scene), 1))
    scale(scene, obj, 0)
    scene.eventually("all to be gone", lambda now: not list_live_pods(now, scene))
    path = f"{manifests.get_path(obj)}/leaving"
    scene.eventually("its status to say so", lambda _: not scene.api.get(path)["status"].get("replicas"))
    scene.api.patch(path, {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}})
    scale(scene, obj, 1)
    scene.eventually(
        "it to be bound, without a workload", lambda now: bound(list_live_pods(now, scene), 1) and not list_workload_names(now, scene)
    )


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_deleted_while_pods_of_it_are_gated_it_leaves_nothing(kind: str, scene: Scene) -> None:
    created = scene.create(of_set(kind, scene, "huge", 9, build_template(8)))
    scene.eventually(
        "a gated pod",
        lambda now: any(pod["spec"].get("schedulingGates") for pod in list_live_pods(now, scene)) and list_workload_names(now, scene),
    )
    remove(scene, created)
    scene.eventually("all to be gone", lambda now: not list_live_pods(now, scene) and not list_workload_names(now, scene))


def test_mistakes_in_the_templates_are_refused_with_their_fields(scene: Scene) -> None:
    for kind in ("StatefulSet", "Deployment"):
        with pytest.raises(ApiError) as refused:
            scene.create(of_set(kind, scene, "wrong", 4, build_template(1, required=scene.rack, slice_topology=scene.rack, slice_size=3)))
        assert [cause["field"] for cause in refused.value.causes] == [
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"
        ]


def test_each_pod_of_a_deployment_is_a_workload_and_comes_back_gated_when_stopped(scene: Scene) -> None:
    obj = of_set("Deployment", scene, "api", 3, build_template(8, required=scene.rack))
    scene.create(obj)
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene), 3))
    names = list_workload_names(now, scene)
    assert len(names) == 3
    assert all(name.startswith("pod-api-") for name in names)
    set_active(scene, names[0], False)
    scene.eventually(
        "another in its place",
        lambda now: (
            bound(list_live_pods(now, scene), 3)
            and len(list_workload_names(now, scene)) == 3
            and names[0] not in list_workload_names(now, scene)
        ),
    )
    scale(scene, obj, 5)
    now = scene.eventually(
        "four to be bound, and one to wait",
        lambda now: len(list_live_pods(now, scene)) == 5 and len(list_workload_names(now, scene)) == 5,
    )
    now = scene.eventually("four to be bound", lambda now: sum(1 for p in list_live_pods(now, scene) if p["spec"].get("nodeName")) == 4)
    scale(scene, obj, 1)
    scene.eventually("one to be left", lambda now: bound(list_live_pods(now, scene), 1) and len(list_workload_names(now, scene)) == 1)


def test_deployment_without_a_queue_gets_no_workload_and_its_pods_are_bound(scene: Scene) -> None:
    """Pods of Jobs and of a Deployment that names no queue, their templates' labels or not."""
    unqueued = of_set("Deployment", scene, "free", 1, build_template(0))
    unqueued["metadata"]["labels"] = {}
    scene.create(unqueued)
    scene.submit("job", pods=2, gpus=1, pod_spec={})
    scene.until_bound("job", 2)
    now = scene.eventually("the free one to be bound", lambda now: bound(list_live_pods(now, scene, app="free"), 1))
    assert len(list_workload_names(now, scene)) == 1, "the job's"


@pytest.mark.live("the DaemonSet controller")
def test_in_a_managed_namespace_all_pods_are_queued_but_those_of_daemon_sets_and_jobs(scene: Scene) -> None:
    scene.api.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": build_managed_labels()}})
    scene.create(manifests.build_local_queue("default", scene.namespace, f"{scene.prefix}queue"))
    on_nodes = of_set("DaemonSet", scene, "agent", 0, build_template(0))
    del on_nodes["spec"]["replicas"]
    on_nodes["spec"]["template"]["spec"]["nodeSelector"] = scene.pool.labels
    for obj in (
        on_nodes,
        of_set("Deployment", scene, "api", 1, build_template(1)),
        of_set("ReplicaSet", scene, "bare", 1, build_template(1)),
    ):
        obj["metadata"]["labels"] = {}
        scene.create(obj)
    scene.submit("job", pods=2, queue=None)
    scene.until_bound("job", 2)
    now = scene.eventually("the others to be bound", lambda now: bound(list_live_pods(now, scene), 4 + 1 + 1 + 2))
    assert len(list_workload_names(now, scene)) == 3, "the job's, and those of two pods"
    assert all("kueue.x-k8s.io/queue-name" not in pod["metadata"]["labels"] for pod in list_live_pods(now, scene, app="agent"))
    remove(scene, on_nodes)
    scene.eventually("the daemons to be gone", lambda now: not list_live_pods(now, scene, app="agent"))
