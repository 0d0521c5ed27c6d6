"""Pods of StatefulSets and LeaderWorkerSets on an API server in memory: as they come, scaled, rolled out, left behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.jobs.contract import Defaults, PodSetTemplate
from core.names import MAX_EXEC_TIME_LABEL, PLACEMENT_PROFILE, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL, WORKLOAD_REQUIRED_TOPOLOGY
from core.plan.pods.pod_workloads import DesiredWorkload, has_other_request
from core.plan.pods.units import PARENTS_BY_KIND
from sim.apiserver.server import Request
from tests.reconciler.harness_pods import KINDS, Json, PodsHarness, admit, build_pod, end, list_names, list_started


@pytest.fixture
def harness() -> PodsHarness:
    return PodsHarness()


def build_stateful_set(replicas: int, **metadata: Any) -> Json:
    template = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    own = {"name": "db", "namespace": "ns", "uid": "uid-db", "labels": {QUEUE_NAME_LABEL: "main"}, **metadata}
    return KINDS["StatefulSet"].default(
        {"kind": "StatefulSet", "metadata": own, "spec": {"replicas": replicas, "template": template}}, Defaults()
    )


def pod_of(owner: Json, name: str) -> Json:
    template = owner["spec"]["template"]
    controller = {"apiVersion": "apps/v1", "kind": owner["kind"], "name": "db", "uid": "uid-db", "controller": True}
    metadata = {**template["metadata"], "name": name, "ownerReferences": [controller]}
    return KINDS["Pod"].default({"kind": "Pod", "metadata": metadata, "spec": template["spec"]}, Defaults())


def test_pods_of_a_stateful_set_start_as_they_come_and_no_more_than_admitted(harness: PodsHarness):
    owner = harness.put(build_stateful_set(2))
    harness.run()
    (workload,) = harness.all("Workload")
    admit(harness, workload["metadata"]["name"])
    for i in range(3):
        harness.put(pod_of(owner, f"db-{i}"))
        harness.run()
    assert list_started(harness) == {"db-0", "db-1"}
    assert list_names(harness) == {"db-0", "db-1", "db-2"}, "who makes them would only make them again"


def test_a_scaled_stateful_set_is_stopped_and_asks_anew(harness: PodsHarness):
    owner = harness.put(build_stateful_set(1))
    harness.run()
    admit(harness, harness.all("Workload")[0]["metadata"]["name"])
    harness.put(pod_of(owner, "db-0"))
    harness.run()
    harness.put(build_stateful_set(3, generation=2))
    harness.run()
    (workload,) = harness.all("Workload")
    assert workload["spec"]["podSets"][0]["count"] == 3
    assert "admission" not in workload["status"]
    assert harness.all("Pod") == []


def quota_reserved(workload: Json) -> tuple[str, str]:
    (found,) = (c for c in workload["status"]["conditions"] if c["type"] == "QuotaReserved")
    return found["status"], found["reason"]


@pytest.mark.parametrize("is_admitted", [True, False])
def test_stateful_set_at_zero_replicas_holds_its_workload(harness: PodsHarness, is_admitted: bool):
    """Former defect: the Workload was deleted. Kueue keeps it, without quota and out of the queue, until replicas are asked for."""
    owner = harness.put(build_stateful_set(2))
    harness.run()
    (before,) = harness.all("Workload")
    if is_admitted:
        admit(harness, before["metadata"]["name"])
        harness.put(pod_of(owner, "db-0"))
        harness.run()
        assert list_started(harness) == {"db-0"}
    harness.put(build_stateful_set(0, generation=2))
    harness.run()
    if is_admitted:
        assert "admission" in harness.all("Workload")[0]["status"], "a pod of it runs"
        harness.drop("Pod", "db-0")
        harness.run()
    (held,) = harness.all("Workload")
    assert held["metadata"]["uid"] == before["metadata"]["uid"]
    assert quota_reserved(held) == ("False", "OnHold")
    assert "admission" not in held["status"]
    assert list(harness.observed.state.workloads.list_pending()) == []
    harness.put(build_stateful_set(3, generation=3))
    harness.run()
    (waits,) = harness.all("Workload")
    assert waits["metadata"]["uid"] == before["metadata"]["uid"]
    assert waits["spec"]["podSets"][0]["count"] == 3
    assert quota_reserved(waits) == ("False", "PendingEvaluation")
    assert [facts.key for facts in harness.observed.state.workloads.list_pending()] == [f"ns/{waits['metadata']['name']}"]


def test_workload_on_hold_follows_queue_and_priority_of_its_stateful_set(harness: PodsHarness):
    """Found by seed 224 of the simulation: it kept the priority that it had when it was scaled to zero."""
    harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000})
    harness.put(build_stateful_set(2))
    harness.run()
    harness.put(build_stateful_set(0, generation=2))
    harness.run()
    labels = {QUEUE_NAME_LABEL: "other", PRIORITY_CLASS_LABEL: "high"}
    harness.put(build_stateful_set(0, generation=2, labels=labels))
    harness.run()
    (held,) = harness.all("Workload")
    assert quota_reserved(held) == ("False", "OnHold")
    assert (held["spec"]["queueName"], held["spec"]["priority"]) == ("other", 1000)
    assert held["spec"]["priorityClassRef"]["name"] == "high"
    version = held["metadata"]["resourceVersion"]
    harness.run()
    assert harness.all("Workload")[0]["metadata"]["resourceVersion"] == version


def test_stateful_set_without_replicas_that_leaves_its_queue_has_no_workload(harness: PodsHarness):
    harness.put(build_stateful_set(2))
    harness.run()
    harness.put(build_stateful_set(0, generation=2))
    harness.run()
    assert len(harness.all("Workload")) == 1
    harness.put(build_stateful_set(0, generation=3, labels={}))
    harness.run()
    assert harness.all("Workload") == []


def test_workload_that_ends_its_hold_has_the_new_number_of_pods_before(harness: PodsHarness):
    """Else it is admitted with the number that its StatefulSet had when it was scaled to zero."""
    harness.put(build_stateful_set(2))
    harness.run()
    harness.put(build_stateful_set(0, generation=2))
    harness.run()
    counts = []

    def record(request: Request) -> None:
        if (request.kind.kind, request.subresource) == ("Workload", "status"):
            counts.append(harness.get("Workload", request.name)["spec"]["podSets"][0]["count"])

    harness.on_write = record
    harness.put(build_stateful_set(3, generation=3))
    harness.run()
    assert counts == [3]


def test_another_image_rolls_out_under_way_and_more_of_anything_is_admitted_anew(harness: PodsHarness):
    owner = harness.put(build_stateful_set(1))
    harness.run()
    admit(harness, harness.all("Workload")[0]["metadata"]["name"])
    harness.put(pod_of(owner, "db-0"))
    harness.run()
    changed = build_stateful_set(1, generation=2)
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    harness.put(changed)
    harness.run()
    assert list_started(harness) == {"db-0"}
    changed["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    harness.put({**changed, "metadata": {**changed["metadata"], "generation": 3}})
    harness.run()
    assert harness.all("Pod") == []
    assert "admission" not in harness.all("Workload")[0]["status"]


def test_a_stateful_set_that_is_gone_leaves_no_finalizer(harness: PodsHarness):
    owner = harness.put(build_stateful_set(1))
    harness.put(pod_of(owner, "db-0"))
    harness.run()
    harness.drop("StatefulSet", "db")
    harness.run()
    (workload,) = harness.all("Workload")
    assert [c["reason"] for c in workload["status"]["conditions"]] == ["OwnerNotFound"]
    assert "finalizers" not in workload["metadata"], "the garbage collector may take it"
    assert ["finalizers" in p["metadata"] for p in harness.all("Pod")] == [False]


def test_a_pod_of_a_leader_worker_set_that_has_no_place_yet_only_loses_its_finalizer(harness: PodsHarness):
    parent = {"kueue.x-k8s.io/pod-suspending-parent": "leaderworkerset.x-k8s.io/leaderworkerset"}
    harness.put(build_pod("early", group=None, notes=parent))
    harness.run()
    assert harness.all("Workload") == []
    early = harness.get("Pod", "early")
    harness.put({**early, "metadata": {**early["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    harness.run()
    assert harness.all("Pod") == []


NAME, GROUP_INDEX, WORKER_INDEX = (f"leaderworkerset.sigs.k8s.io/{part}" for part in ("name", "group-index", "worker-index"))


def build_leader_worker_set(size: int) -> Json:
    template = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    metadata = {"name": "lws", "uid": "uid-LeaderWorkerSet-lws", "labels": {QUEUE_NAME_LABEL: "main"}}
    return KINDS["LeaderWorkerSet"].default({"kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}, Defaults())


def owned(owner: tuple[str, str] | None) -> Json:
    if owner is None:
        return {}
    kind, name = owner
    version = {"Pod": "v1", "StatefulSet": "apps/v1"}.get(kind, "leaderworkerset.x-k8s.io/v1")
    return {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{kind}-{name}", "controller": True}]}


def of_leader_worker_set(harness: PodsHarness, name: str, worker: int, owner: tuple[str, str] | None) -> None:
    template = harness.get("LeaderWorkerSet", "lws")["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    labels = {**template["metadata"]["labels"], NAME: "lws", GROUP_INDEX: "0", WORKER_INDEX: str(worker)}
    metadata = {**template["metadata"], "name": name, "uid": f"uid-Pod-{name}", "labels": labels, **owned(owner)}
    harness.put(KINDS["Pod"].default({"kind": "Pod", "metadata": metadata, "spec": template["spec"]}, Defaults()))


def test_a_pod_made_by_hand_is_no_member_of_a_leader_worker_set(harness: PodsHarness):
    harness.put(build_leader_worker_set(2))
    harness.run()
    (workload,) = harness.all("Workload")
    admit(harness, workload["metadata"]["name"])
    of_leader_worker_set(harness, "a-stranger", 0, None)
    of_leader_worker_set(harness, "lws-0", 0, ("StatefulSet", "lws"))
    of_leader_worker_set(harness, "lws-0-1", 1, ("StatefulSet", "lws-0"))
    harness.run()
    assert list_started(harness) == set(), "nobody knows yet whose they are"
    told = []
    harness.observed.on_pod_read.append(lambda pod: told.append(pod["metadata"]["name"]))
    for name, owner in (("lws-0", ("Pod", "lws-0")), ("lws", ("LeaderWorkerSet", "lws"))):
        harness.put(
            {"kind": "StatefulSet", "metadata": {"name": name, "uid": f"uid-StatefulSet-{name}", **owned(owner)}, "spec": {"replicas": 1}}
        )
    assert set(told) == {"lws-0", "lws-0-1"}
    harness.run()
    assert list_started(harness) == {"lws-0", "lws-0-1"}
    harness.put({**harness.get("LeaderWorkerSet", "lws"), "spec": {**harness.get("LeaderWorkerSet", "lws")["spec"], "replicas": 0}})
    for name in ("lws-0", "lws-0-1"):
        harness.drop("Pod", name)
    harness.run()
    assert harness.all("Workload") == [], "scaled away, whoever stays"


@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "StatefulSet"])
def test_waiting_workload_follows_new_priority_class_of_its_parent(harness: PodsHarness, kind: str):
    """Former defect: the label was handed on to the pods and did not reach the Workload."""
    obj = harness.put(build_leader_worker_set(2) if kind == "LeaderWorkerSet" else build_stateful_set(2))
    harness.run()
    harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 7})
    labels = {**obj["metadata"]["labels"], PRIORITY_CLASS_LABEL: "high", MAX_EXEC_TIME_LABEL: "60"}
    harness.put({**obj, "metadata": {**obj["metadata"], "labels": labels}})
    harness.run()
    (spec,) = (workload["spec"] for workload in harness.all("Workload"))
    assert (spec["priority"], spec["priorityClassRef"]["name"], spec["maximumExecutionTimeSeconds"]) == (7, "high", 60)
    harness.put(obj)
    harness.run()
    (spec,) = (workload["spec"] for workload in harness.all("Workload"))
    assert not spec.get("priority")
    assert spec.get("maximumExecutionTimeSeconds") is None


@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "StatefulSet"])
def test_waiting_workload_keeps_its_priority_when_the_class_of_its_parent_changes(harness: PodsHarness, kind: str):
    obj = build_leader_worker_set(2) if kind == "LeaderWorkerSet" else build_stateful_set(2)
    obj["metadata"]["labels"][PRIORITY_CLASS_LABEL] = "high"
    harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 7})
    harness.put(obj)
    harness.run()
    harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000})
    harness.run()
    assert {workload["spec"]["priority"] for workload in harness.all("Workload")} == {7}


def test_replica_of_a_surge_gets_a_workload_when_status_counts_it(harness: PodsHarness):
    """The status alone shows how many replicas a rollout has made."""
    stored = build_leader_worker_set(2)
    stored["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}}
    harness.put(stored)
    harness.run()
    assert len(harness.all("Workload")) == 1
    harness.put({**harness.get("LeaderWorkerSet", "lws"), "status": {"replicas": 2}})
    harness.run()
    assert len(harness.all("Workload")) == 2
    harness.put({**harness.get("LeaderWorkerSet", "lws"), "status": {"replicas": 1}})
    harness.run()
    assert len(harness.all("Workload")) == 1


def test_a_pod_of_an_earlier_stateful_set_of_that_name_does_not_start(harness: PodsHarness):
    owner = harness.put(build_stateful_set(1))
    harness.run()
    admit(harness, harness.all("Workload")[0]["metadata"]["name"])
    early = pod_of(owner, "db-0")
    early["metadata"]["ownerReferences"][0]["uid"] = "uid-of-earlier"
    harness.put(early)
    harness.run()
    assert list_started(harness) == set()


def test_a_leader_worker_set_written_past_the_webhook_is_no_more_units_than_the_most(harness: PodsHarness):
    harness.put({"kind": "LeaderWorkerSet", "metadata": {"name": "lws"}, "spec": {"replicas": 200_000}})
    (parent,) = (parent for parent in PARENTS_BY_KIND.values() if parent.several)
    assert len(harness.pods._list_units(parent, harness.get("LeaderWorkerSet", "lws"))) == 10_000


def test_a_parent_on_its_way_out_does_not_take_the_place_of_pods_that_it_let_go_of(harness: PodsHarness):
    """Deleted with --cascade=orphan; the garbage collector has come to the pods, but not to the workload yet."""
    owner = harness.put(build_stateful_set(1))
    harness.run()
    name = harness.all("Workload")[0]["metadata"]["name"]
    admit(harness, name)
    harness.put(pod_of(owner, "db-0"))
    harness.run()
    assert list_started(harness) == {"db-0"}
    harness.put(build_stateful_set(1, generation=2, deletionTimestamp="2026-01-01T00:00:00Z"))
    running = harness.get("Pod", "db-0")
    harness.put({**running, "metadata": {**running["metadata"], "ownerReferences": []}})
    harness.run()
    assert list_names(harness) == {"db-0"}
    assert not harness.get("Workload", name)["metadata"].get("deletionTimestamp")
    workload = harness.get("Workload", name)
    harness.put({**workload, "metadata": {**workload["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    harness.run()
    assert harness.get("Workload", name), "it is held while the pod lives, whoever deletes it"
    end(harness, "Succeeded", "db-0")
    harness.run()
    assert harness.all("Workload") == []


def test_terminating_parent_with_a_workload_without_owner_reference_keeps_its_pods(harness: PodsHarness):
    owner = harness.put(build_stateful_set(1))
    harness.run()
    name = harness.all("Workload")[0]["metadata"]["name"]
    admit(harness, name)
    harness.put(pod_of(owner, "db-0"))
    harness.run()
    harness.put(build_stateful_set(1, generation=2, deletionTimestamp="2026-01-01T00:00:00Z"))
    workload = harness.get("Workload", name)
    harness.put({**workload, "metadata": {**workload["metadata"], "ownerReferences": []}})
    harness.run()
    assert list_names(harness) == {"db-0"}
    assert [w["metadata"]["name"] for w in harness.all("Workload")] == [name]


def test_changed_annotations_of_a_stateful_set_update_and_reactivate_its_workload(harness: PodsHarness):
    harness.put(build_stateful_set(2, annotations={WORKLOAD_REQUIRED_TOPOLOGY: "nowhere", PLACEMENT_PROFILE: "compact"}))
    harness.run()
    (workload,) = harness.all("Workload")
    waits = [{"type": "QuotaReserved", "status": "False", "reason": "Misconfigured", "message": ""}]
    harness.put({**workload, "spec": {**workload["spec"], "active": False}, "status": {"conditions": waits}})
    harness.run()
    assert harness.all("Workload")[0]["spec"]["active"] is False, "nothing has been changed"
    harness.put(build_stateful_set(2, annotations={WORKLOAD_REQUIRED_TOPOLOGY: "rack"}))
    harness.run()
    (workload,) = harness.all("Workload")
    assert workload["spec"]["active"] is True
    assert workload["metadata"]["annotations"][WORKLOAD_REQUIRED_TOPOLOGY] == "rack"
    assert PLACEMENT_PROFILE not in workload["metadata"]["annotations"]
    assert harness.messages[-1] == f"Updated Workload: active, {PLACEMENT_PROFILE}, {WORKLOAD_REQUIRED_TOPOLOGY}"


@pytest.mark.parametrize(
    "part", [{"nodeSelector": {"disk": "ssd"}}, {"tolerations": [{"key": "a", "operator": "Exists"}]}, {"affinity": {"nodeAffinity": {}}}]
)
def test_a_parent_that_wants_other_nodes_asks_otherwise(part: dict[str, Any]):
    """Former defect: with another node selector, affinity or toleration it was never admitted anew, and the rollout stood."""
    template = PodSetTemplate("main", 1, {"spec": {"containers": []}}, None)
    workload = {"spec": {"queueName": "main", "podSets": [template.to_wire()]}}
    same = DesiredWorkload("w", "main", (template,), (), {}, {}, {})
    assert not has_other_request(same, workload)
    assert has_other_request(replace(same, queue="other"), workload), "its pods would run by the quota of the queue that it has left"
    other = PodSetTemplate("main", 1, {"spec": {"containers": [], **part}}, None)
    assert has_other_request(replace(same, pod_sets=(other,)), workload)
