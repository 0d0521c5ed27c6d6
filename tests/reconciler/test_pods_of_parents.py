"""Pods of StatefulSets and LeaderWorkerSets on paper: as they come, scaled, rolled out, left behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.jobs.contract import Defaults, PodSetTemplate
from core.names import MAX_EXEC_TIME_LABEL, PLACEMENT_PROFILE, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL, WORKLOAD_REQUIRED_TOPOLOGY
from core.plan.pod_workloads import Wanted, asks_otherwise
from core.runtime.watch_step import Applied
from reconciler.unit_steps import PARENTS_BY_KIND
from tests.reconciler.paper import Paper
from tests.reconciler.paper_pods import KINDS, Json, admit, end, names, pod, started


@pytest.fixture
def paper() -> Paper:
    return Paper()


def stateful_set(replicas: int, **metadata: Any) -> Json:
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


def test_pods_of_a_stateful_set_start_as_they_come_and_no_more_than_admitted(paper: Paper):
    owner = paper.put(stateful_set(2))
    paper.run()
    (workload,) = paper.all("Workload")
    admit(paper, workload["metadata"]["name"])
    for i in range(3):
        paper.put(pod_of(owner, f"db-{i}"))
        paper.run()
    assert started(paper) == {"db-0", "db-1"}
    assert names(paper) == {"db-0", "db-1", "db-2"}, "who makes them would only make them again"


def test_a_scaled_stateful_set_is_stopped_and_asks_anew(paper: Paper):
    owner = paper.put(stateful_set(1))
    paper.run()
    admit(paper, paper.all("Workload")[0]["metadata"]["name"])
    paper.put(pod_of(owner, "db-0"))
    paper.run()
    paper.put(stateful_set(3, generation=2))
    paper.run()
    (workload,) = paper.all("Workload")
    assert workload["spec"]["podSets"][0]["count"] == 3
    assert "admission" not in workload["status"]
    assert paper.all("Pod") == []


def quota_reserved(workload: Json) -> tuple[str, str]:
    (found,) = (c for c in workload["status"]["conditions"] if c["type"] == "QuotaReserved")
    return found["status"], found["reason"]


@pytest.mark.parametrize("is_admitted", [True, False])
def test_stateful_set_at_zero_replicas_holds_its_workload(paper: Paper, is_admitted: bool):
    """Found defect E23: the Workload was deleted. Kueue keeps it, without quota and out of the queue, until replicas are asked for."""
    owner = paper.put(stateful_set(2))
    paper.run()
    (before,) = paper.all("Workload")
    if is_admitted:
        admit(paper, before["metadata"]["name"])
        paper.put(pod_of(owner, "db-0"))
        paper.run()
        assert started(paper) == {"db-0"}
    paper.put(stateful_set(0, generation=2))
    paper.run()
    if is_admitted:
        assert "admission" in paper.all("Workload")[0]["status"], "a pod of it runs"
        paper.drop("Pod", "db-0")
        paper.run()
    (held,) = paper.all("Workload")
    assert held["metadata"]["uid"] == before["metadata"]["uid"]
    assert quota_reserved(held) == ("False", "OnHold")
    assert "admission" not in held["status"]
    assert list(paper.observed.state.workloads.pending()) == []
    paper.put(stateful_set(3, generation=3))
    paper.run()
    (waits,) = paper.all("Workload")
    assert waits["metadata"]["uid"] == before["metadata"]["uid"]
    assert waits["spec"]["podSets"][0]["count"] == 3
    assert quota_reserved(waits) == ("False", "PendingEvaluation")
    assert [facts.key for facts in paper.observed.state.workloads.pending()] == [f"ns/{waits['metadata']['name']}"]


def test_stateful_set_without_replicas_that_leaves_its_queue_has_no_workload(paper: Paper):
    paper.put(stateful_set(2))
    paper.run()
    paper.put(stateful_set(0, generation=2))
    paper.run()
    assert len(paper.all("Workload")) == 1
    paper.put(stateful_set(0, generation=3, labels={}))
    paper.run()
    assert paper.all("Workload") == []


def test_workload_that_ends_its_hold_has_the_new_number_of_pods_before(paper: Paper, monkeypatch: pytest.MonkeyPatch):
    """Else it is admitted with the number that its StatefulSet had when it was scaled to zero."""
    paper.put(stateful_set(2))
    paper.run()
    paper.put(stateful_set(0, generation=2))
    paper.run()
    counts = []
    write = paper.apply_admission

    async def record(workload: Json, status: Json, *, strict: bool) -> Json:
        counts.append(workload["spec"]["podSets"][0]["count"])
        return await write(workload, status, strict=strict)

    monkeypatch.setattr(paper, "apply_admission", record)
    paper.put(stateful_set(3, generation=3))
    paper.run()
    assert counts == [3]


def test_another_image_rolls_out_under_way_and_more_of_anything_is_admitted_anew(paper: Paper):
    owner = paper.put(stateful_set(1))
    paper.run()
    admit(paper, paper.all("Workload")[0]["metadata"]["name"])
    paper.put(pod_of(owner, "db-0"))
    paper.run()
    changed = stateful_set(1, generation=2)
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    paper.put(changed)
    paper.run()
    assert started(paper) == {"db-0"}
    changed["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    paper.put({**changed, "metadata": {**changed["metadata"], "generation": 3}})
    paper.run()
    assert paper.all("Pod") == []
    assert "admission" not in paper.all("Workload")[0]["status"]


def test_a_stateful_set_that_is_gone_leaves_no_finalizer(paper: Paper):
    owner = paper.put(stateful_set(1))
    paper.put(pod_of(owner, "db-0"))
    paper.run()
    paper.drop("StatefulSet", "db")
    paper.run()
    (workload,) = paper.all("Workload")
    assert [c["reason"] for c in workload["status"]["conditions"]] == ["OwnerNotFound"]
    assert workload["metadata"]["finalizers"] == [], "the garbage collector may take it"
    assert [p["metadata"]["finalizers"] for p in paper.all("Pod")] == [[]]


def test_a_pod_of_a_leader_worker_set_that_has_no_place_yet_only_loses_its_finalizer(paper: Paper):
    parent = {"kueue.x-k8s.io/pod-suspending-parent": "leaderworkerset.x-k8s.io/leaderworkerset"}
    paper.put(pod("early", group=None, notes=parent))
    paper.run()
    assert paper.all("Workload") == []
    early = paper.get("Pod", "early")
    paper.put({**early, "metadata": {**early["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    paper.run()
    assert paper.all("Pod") == []


NAME, GROUP_INDEX, WORKER_INDEX = (f"leaderworkerset.sigs.k8s.io/{part}" for part in ("name", "group-index", "worker-index"))


def leader_worker_set(size: int) -> Json:
    template = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    metadata = {"name": "lws", "uid": "uid-LeaderWorkerSet-lws", "labels": {QUEUE_NAME_LABEL: "main"}}
    return KINDS["LeaderWorkerSet"].default({"kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}, Defaults())


def owned(owner: tuple[str, str] | None) -> Json:
    if owner is None:
        return {}
    kind, name = owner
    return {"ownerReferences": [{"apiVersion": "x", "kind": kind, "name": name, "uid": f"uid-{kind}-{name}", "controller": True}]}


def of_leader_worker_set(paper: Paper, name: str, worker: int, owner: tuple[str, str] | None) -> None:
    template = paper.get("LeaderWorkerSet", "lws")["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    labels = {**template["metadata"]["labels"], NAME: "lws", GROUP_INDEX: "0", WORKER_INDEX: str(worker)}
    metadata = {**template["metadata"], "name": name, "uid": f"uid-Pod-{name}", "labels": labels, **owned(owner)}
    paper.put(KINDS["Pod"].default({"kind": "Pod", "metadata": metadata, "spec": template["spec"]}, Defaults()))


def test_a_pod_made_by_hand_is_no_member_of_a_leader_worker_set(paper: Paper):
    paper.put(leader_worker_set(2))
    paper.run()
    (workload,) = paper.all("Workload")
    admit(paper, workload["metadata"]["name"])
    of_leader_worker_set(paper, "a-stranger", 0, None)
    of_leader_worker_set(paper, "lws-0", 0, ("StatefulSet", "lws"))
    of_leader_worker_set(paper, "lws-0-1", 1, ("StatefulSet", "lws-0"))
    paper.run()
    assert started(paper) == set(), "nobody knows yet whose they are"
    told = []
    paper.observed.on_owner.append(lambda pod: told.append(pod["metadata"]["name"]))
    for name, owner in (("lws-0", ("Pod", "lws-0")), ("lws", ("LeaderWorkerSet", "lws"))):
        paper.put(
            {"kind": "StatefulSet", "metadata": {"name": name, "uid": f"uid-StatefulSet-{name}", **owned(owner)}, "spec": {"replicas": 1}}
        )
    assert set(told) == {"lws-0", "lws-0-1"}
    paper.run()
    assert started(paper) == {"lws-0", "lws-0-1"}
    paper.put({**paper.get("LeaderWorkerSet", "lws"), "spec": {**paper.get("LeaderWorkerSet", "lws")["spec"], "replicas": 0}})
    for name in ("lws-0", "lws-0-1"):
        paper.drop("Pod", name)
    paper.run()
    assert paper.all("Workload") == [], "scaled away, whoever stays"


@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "StatefulSet"])
def test_waiting_workload_follows_new_priority_class_of_its_parent(paper: Paper, kind: str):
    """Found defect E21: the label was handed on to the pods and did not reach the Workload."""
    obj = paper.put(leader_worker_set(2) if kind == "LeaderWorkerSet" else stateful_set(2))
    paper.run()
    paper.observed.workload_priority_classes._fold(Applied({"metadata": {"name": "high", "uid": "p", "resourceVersion": "1"}, "value": 7}))
    labels = {**obj["metadata"]["labels"], PRIORITY_CLASS_LABEL: "high", MAX_EXEC_TIME_LABEL: "60"}
    paper.put({**obj, "metadata": {**obj["metadata"], "labels": labels}})
    paper.run()
    (spec,) = (workload["spec"] for workload in paper.all("Workload"))
    assert (spec["priority"], spec["priorityClassRef"]["name"], spec["maximumExecutionTimeSeconds"]) == (7, "high", 60)
    paper.put(obj)
    paper.run()
    (spec,) = (workload["spec"] for workload in paper.all("Workload"))
    assert not spec.get("priority")
    assert spec.get("maximumExecutionTimeSeconds") is None


def test_replica_of_a_surge_gets_a_workload_when_status_counts_it(paper: Paper):
    """Found defect E5: the status alone shows how many replicas a rollout has made."""
    stored = leader_worker_set(2)
    stored["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0}}
    paper.put(stored)
    paper.run()
    assert len(paper.all("Workload")) == 1
    paper.put({**paper.get("LeaderWorkerSet", "lws"), "status": {"replicas": 2}})
    paper.run()
    assert len(paper.all("Workload")) == 2
    paper.put({**paper.get("LeaderWorkerSet", "lws"), "status": {"replicas": 1}})
    paper.run()
    assert len(paper.all("Workload")) == 1


def test_a_pod_of_an_earlier_stateful_set_of_that_name_does_not_start(paper: Paper):
    owner = paper.put(stateful_set(1))
    paper.run()
    admit(paper, paper.all("Workload")[0]["metadata"]["name"])
    early = pod_of(owner, "db-0")
    early["metadata"]["ownerReferences"][0]["uid"] = "uid-of-earlier"
    paper.put(early)
    paper.run()
    assert started(paper) == set()


def test_a_leader_worker_set_written_past_the_webhook_is_no_more_units_than_the_most(paper: Paper):
    paper.put({"kind": "LeaderWorkerSet", "metadata": {"name": "lws"}, "spec": {"replicas": 200_000}})
    (parent,) = (parent for parent in PARENTS_BY_KIND.values() if parent.several)
    assert len(paper.pods._units_of(parent, paper.get("LeaderWorkerSet", "lws"))) == 10_000


def test_a_parent_on_its_way_out_does_not_take_the_place_of_pods_that_it_let_go_of(paper: Paper):
    """Deleted with --cascade=orphan; the garbage collector has come to the pods, but not to the workload yet."""
    owner = paper.put(stateful_set(1))
    paper.run()
    name = paper.all("Workload")[0]["metadata"]["name"]
    admit(paper, name)
    paper.put(pod_of(owner, "db-0"))
    paper.run()
    assert started(paper) == {"db-0"}
    paper.put(stateful_set(1, generation=2, deletionTimestamp="2026-01-01T00:00:00Z"))
    running = paper.get("Pod", "db-0")
    paper.put({**running, "metadata": {**running["metadata"], "ownerReferences": []}})
    paper.run()
    assert names(paper) == {"db-0"}
    assert not paper.get("Workload", name)["metadata"].get("deletionTimestamp")
    workload = paper.get("Workload", name)
    paper.put({**workload, "metadata": {**workload["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    paper.run()
    assert paper.get("Workload", name), "it is held while the pod lives, whoever deletes it"
    end(paper, "db-0", "Succeeded")
    paper.run()
    assert paper.all("Workload") == []


def test_a_parent_on_its_way_out_whose_workload_was_let_go_of_first_keeps_its_pods(paper: Paper):
    owner = paper.put(stateful_set(1))
    paper.run()
    name = paper.all("Workload")[0]["metadata"]["name"]
    admit(paper, name)
    paper.put(pod_of(owner, "db-0"))
    paper.run()
    paper.put(stateful_set(1, generation=2, deletionTimestamp="2026-01-01T00:00:00Z"))
    workload = paper.get("Workload", name)
    paper.put({**workload, "metadata": {**workload["metadata"], "ownerReferences": []}})
    paper.run()
    assert names(paper) == {"db-0"}
    assert [w["metadata"]["name"] for w in paper.all("Workload")] == [name]


def test_what_is_asked_for_all_pods_is_followed_and_brings_back_what_was_wrong(paper: Paper):
    paper.put(stateful_set(2, annotations={WORKLOAD_REQUIRED_TOPOLOGY: "nowhere", PLACEMENT_PROFILE: "compact"}))
    paper.run()
    (workload,) = paper.all("Workload")
    waits = [{"type": "QuotaReserved", "status": "False", "reason": "Misconfigured", "message": ""}]
    paper.put({**workload, "spec": {**workload["spec"], "active": False}, "status": {"conditions": waits}})
    paper.run()
    assert paper.all("Workload")[0]["spec"]["active"] is False, "nothing has been changed"
    paper.put(stateful_set(2, annotations={WORKLOAD_REQUIRED_TOPOLOGY: "rack"}))
    paper.run()
    (workload,) = paper.all("Workload")
    assert workload["spec"]["active"] is True
    assert workload["metadata"]["annotations"][WORKLOAD_REQUIRED_TOPOLOGY] == "rack"
    assert PLACEMENT_PROFILE not in workload["metadata"]["annotations"]
    assert paper.messages[-1] == f"Updated Workload: active, {PLACEMENT_PROFILE}, {WORKLOAD_REQUIRED_TOPOLOGY}"


@pytest.mark.parametrize(
    "part", [{"nodeSelector": {"disk": "ssd"}}, {"tolerations": [{"key": "a", "operator": "Exists"}]}, {"affinity": {"nodeAffinity": {}}}]
)
def test_a_parent_that_wants_other_nodes_asks_otherwise(part: dict[str, Any]):
    """Found defect E3: with another node selector, affinity or toleration it was never admitted anew, and the rollout stood."""
    template = PodSetTemplate("main", 1, {"spec": {"containers": []}}, None)
    workload = {"spec": {"queueName": "main", "podSets": [template.to_wire()]}}
    same = Wanted("w", "main", (template,), (), {}, {}, {})
    assert not asks_otherwise(same, workload)
    assert asks_otherwise(replace(same, queue="other"), workload), "its pods would run by the quota of the queue that it has left"
    other = PodSetTemplate("main", 1, {"spec": {"containers": [], **part}}, None)
    assert asks_otherwise(replace(same, pod_sets=(other,)), workload)
