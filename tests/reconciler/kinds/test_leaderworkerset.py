"""LeaderWorkerSet, its controller by a stand-in over StatefulSets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.names import LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL, PODSET_GROUP_NAME
from e2e.api import ApiError
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.topogate import Topogate
from tests.reconciler.kinds.pods import (
    bound,
    build_template,
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
PATH = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets"


@pytest.fixture(scope="module", autouse=True)
def leader_worker_sets(cluster: Cluster, topogate: Topogate) -> Iterator[LeaderWorkerSetStandIn]:
    """The kind is installed while topogate runs."""
    with LeaderWorkerSetStandIn(cluster.api) as running:
        yield running
    running.uninstall()


def build_lws(
    scene: Scene, name: str, replicas: int, size: int, workers: dict[str, Any], leader: dict[str, Any] | None = None
) -> dict[str, Any]:
    made = {"size": size, "workerTemplate": workers} | ({"leaderTemplate": leader} if leader else {})
    metadata = {"name": name, "namespace": scene.namespace, "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    spec = {"replicas": replicas, "leaderWorkerTemplate": made}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}


def group(now: truth.Snapshot, scene: Scene, index: int) -> list[dict[str, Any]]:
    return list_live_pods(now, scene, **{LWS_GROUP_INDEX_LABEL: str(index)})


def scale(scene: Scene, name: str, replicas: int) -> None:
    scene.api.patch(f"{PATH.format(scene.namespace)}/{name}", {"spec": {"replicas": replicas}})


def test_leader_and_workers_of_each_group_share_a_rack_in_the_order_of_their_indexes(scene: Scene) -> None:
    """Story 6: the leader is small, its workers are not, and they are placed together."""
    together = {PODSET_GROUP_NAME: "lws-group"}
    leader, workers = (build_template(gpus, notes=together, required=scene.rack) for gpus in (1, 5))
    created = scene.create(build_lws(scene, "story", 2, 3, workers, leader))
    assert (
        created["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"].get("kueue.x-k8s.io/pod-index-offset") is None
    )
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene), 6))
    assert len(list_workload_names(now, scene)) == 2
    racks = [list_domains(now, group(now, scene, i), scene.rack) for i in range(2)]
    assert [len(found) for found in racks] == [1, 1]
    for i in range(2):
        hosts = list_hosts_by(LWS_WORKER_INDEX_LABEL, now, group(now, scene, i))
        assert hosts == sorted(hosts)
    for workload in now.workloads:
        assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("leader", 1), ("worker", 2)]
        assert truth.get_condition(workload, "topogate.dev/RankOrderKept").get("status") != "False"


def test_workers_with_a_leader_of_another_template_count_from_one(scene: Scene) -> None:
    created = scene.create(build_lws(scene, "offset", 1, 5, build_template(4, required=scene.rack), build_template(0)))
    notes = created["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]
    assert notes["kueue.x-k8s.io/pod-index-offset"] == "1"
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene), 5))
    workers = [p for p in list_live_pods(now, scene) if p["metadata"]["labels"][LWS_WORKER_INDEX_LABEL] != "0"]
    assert len(list_domains(now, workers, scene.rack)) == 1
    hosts = list_hosts_by(LWS_WORKER_INDEX_LABEL, now, workers)
    assert hosts == sorted(hosts)
    scene.eventually("the condition on ranks", lambda now: truth.is_true(now.workloads[0], "topogate.dev/RankOrderKept"))


@pytest.mark.long
def test_groups_come_and_go_as_it_is_scaled_and_the_others_stay(scene: Scene) -> None:
    scene.create(build_lws(scene, "serve", 1, 2, build_template(8, required=scene.rack)))
    now = scene.eventually("the first group to be bound", lambda now: bound(list_live_pods(now, scene), 2))
    first = {p["metadata"]["uid"] for p in list_live_pods(now, scene)}
    scale(scene, "serve", 2)
    now = scene.eventually("the second to be bound", lambda now: bound(list_live_pods(now, scene), 4))
    assert first <= {p["metadata"]["uid"] for p in list_live_pods(now, scene)}
    assert [p["count"] for w in now.workloads for p in w["spec"]["podSets"]] == [2, 2]
    assert len(list_domains(now, group(now, scene, 0), scene.rack) | list_domains(now, group(now, scene, 1), scene.rack)) == 2
    scale(scene, "serve", 3)
    now = scene.eventually(
        "the third to wait", lambda now: is_waiting(group(now, scene, 2), 2) and len(list_workload_names(now, scene)) == 3
    )
    scale(scene, "serve", 1)
    now = scene.eventually("one to be left", lambda now: bound(list_live_pods(now, scene), 2) and len(list_workload_names(now, scene)) == 1)
    assert {p["metadata"]["uid"] for p in list_live_pods(now, scene)} == first


@pytest.mark.long
def test_a_deactivated_group_comes_back_gated_and_the_other_runs_on(scene: Scene) -> None:
    scene.create(build_lws(scene, "pair", 2, 2, build_template(8, required=scene.rack)))
    now = scene.eventually("all to be bound", lambda now: bound(list_live_pods(now, scene), 4))
    name = next(name for name in list_workload_names(now, scene) if name.startswith("leaderworkerset-pair-1-"))
    set_active(scene, name, False)
    now = scene.eventually("the second group to be gated", lambda now: is_waiting(group(now, scene, 1), 2))
    assert bound(group(now, scene, 0), 2)
    set_active(scene, name, True)
    scene.eventually("all to be bound again", lambda now: bound(list_live_pods(now, scene), 4))


def test_deleted_while_it_is_gated_it_leaves_nothing(scene: Scene) -> None:
    created = scene.create(build_lws(scene, "huge", 1, 3, build_template(8, required=scene.rack)))
    scene.eventually("all to be gated", lambda now: is_waiting(list_live_pods(now, scene), 3) and list_workload_names(now, scene))
    remove(scene, created)
    scene.eventually("all to be gone", lambda now: not list_live_pods(now, scene) and not list_workload_names(now, scene))


def test_mistakes_are_refused_with_their_fields_and_its_size_stays(scene: Scene) -> None:
    leader = build_template(1, notes={PODSET_GROUP_NAME: "g"}, required=scene.rack)
    workers = build_template(1, notes={PODSET_GROUP_NAME: "g"}, required=scene.block)
    with pytest.raises(ApiError) as refused:
        scene.create(build_lws(scene, "wrong", 1, 3, workers, leader))
    assert [cause["field"] for cause in refused.value.causes] == [
        "spec.leaderWorkerTemplate.leaderTemplate.metadata.annotations",
        "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations",
    ]
    scene.create(build_lws(scene, "right", 1, 2, build_template(1)))
    body = {"spec": {"leaderWorkerTemplate": {"size": 3}}}
    with pytest.raises(ApiError) as refused:
        scene.api.patch(f"{PATH.format(scene.namespace)}/right", body)
    assert [cause["field"] for cause in refused.value.causes] == ["spec.leaderWorkerTemplate.size"]
