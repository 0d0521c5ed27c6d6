"""The ungater on paper: what is told although a pod cannot be ungated, and which pods it passes over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from core.metric_names import OF_RECONCILER
from core.model.assignment import DomainCount, TopologyAssignment
from core.model.encoding import encode
from core.names import (
    COORDINATE_PREFIXES,
    EVENT_WORKLOAD_REFUSED,
    HOSTNAME_LABEL,
    JOB_COMPLETION_INDEX_LABEL,
    JOB_UID_LABEL,
    PODSET_LABEL,
    RANK_ORDER_KEPT,
    RESOURCE_IN_USE_FINALIZER,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from core.plan.ungate import Ungate
from core.runtime.controller import Done, RequeueAfter
from core.runtime.errors import Invalid, NotFound
from core.runtime.metrics import Metrics
from core.runtime.resource import Obj
from core.runtime.workqueue import Item
from reconciler.apply import Writer
from reconciler.metrics import UNRECORDED, Recorder
from reconciler.ungater import HELD_S, Ungater
from tests.builders import Node, cluster_queue_json, flavor_json, node_json, topology_json
from tests.reconciler.paper import Paper
from tests.scraped import Scraped

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-job", "controller": True}


class Ungated(Paper):
    """A paper on which pods are ungated, but those that are `contradictory`."""

    def __init__(self, recorder: Recorder = UNRECORDED) -> None:
        super().__init__()
        self.ungater = Ungater(self.observed, cast("Writer", self), self.clock, recorder=recorder)
        self.contradictory: set[str] = set()
        self.ungated: list[str] = []

    async def ungate(self, namespace: str, name: str, action: Ungate) -> Obj:
        if name in self.contradictory:
            raise Invalid(422, "Invalid", "its own selector contradicts the domain")
        self.ungated.append(name)
        return self.get("Pod", name, namespace)

    def reconcile(self) -> None:
        self.wait_for(self.ungater._reconcile(Item("ns/w", frozenset(), 0.0)))


def pod(index: int, owner: Mapping[str, Any] | None = OWNER) -> Obj:
    metadata = {
        "name": f"p{index}",
        "labels": {PODSET_LABEL: "main", JOB_COMPLETION_INDEX_LABEL: str(index)},
        "annotations": {WORKLOAD_ANNOTATION: "w"},
        "ownerReferences": [owner] if owner is not None else [],
    }
    return {"kind": "Pod", "metadata": metadata, "spec": {"schedulingGates": [{"name": TOPOLOGY_GATE}]}}


def workload(owner: Mapping[str, Any] | None = OWNER) -> Obj:
    pod_set = {"name": "main", "count": 2, "template": {}, "topologyRequest": {"podIndexLabel": JOB_COMPLETION_INDEX_LABEL}}
    assignment = encode(TopologyAssignment((HOSTNAME_LABEL,), (DomainCount(("n0",), 1), DomainCount(("n1",), 1))))
    given = {"name": "main", "count": 2, "flavors": {}, "topologyAssignment": assignment}
    conditions = [{"type": kind, "status": "True", "reason": kind, "message": ""} for kind in ("QuotaReserved", "Admitted")]
    return {
        "kind": "Workload",
        "metadata": {"name": "w", "ownerReferences": [owner] if owner is not None else []},
        "spec": {"podSets": [pod_set]},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}, "conditions": conditions},
    }


def test_the_order_of_ranks_is_told_although_one_pod_cannot_be_ungated():
    paper = Ungated()
    paper.put(workload())
    for i in range(2):
        paper.put(pod(i))
    paper.contradictory = {"p1"}
    with pytest.raises(Invalid):
        paper.reconcile()
    assert paper.ungated == ["p0"]
    assert [c["status"] for c in paper.get("Workload", "w")["status"]["conditions"] if c["type"] == RANK_ORDER_KEPT] == ["True"]


def test_a_pod_that_requests_more_than_was_admitted_stays_gated_with_an_event_on_it():
    """Attack F6: containers that another webhook or a controller added are in no quota."""
    paper = Ungated()
    paper.put(workload())
    for i, requests in enumerate(({"cpu": "200m", "memory": "256Mi"}, {"nvidia.com/gpu": "8"})):
        made = pod(i)
        made["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
        paper.put(made)
    for _ in range(2):
        paper.reconcile()
    assert paper.ungated == ["p0"] * 2
    [event] = {event for event in paper.events if event[1] == EVENT_WORKLOAD_REFUSED}
    assert event[0] == "ns/p1"
    [message] = {message for message in paper.messages if "stays gated" in message}
    assert "8 nvidia.com/gpu more than the pods that were admitted as main" in message


def limit_range(cpu: str) -> Obj:
    return {
        "metadata": {"name": "limits", "namespace": "ns", "uid": "uid-limits", "resourceVersion": "1"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu, "memory": "1Gi"}}]},
    }


def test_pod_that_requests_more_by_a_later_limit_range_than_was_admitted_stays_gated():
    """Quota was reserved for what its pods requested then."""
    paper = Ungated()
    paper.observed.limit_ranges.put(limit_range("8"))
    queue = cluster_queue_json("q", {"f": "100"})
    paper.observed.cluster_queues.put({**queue, "metadata": {**queue["metadata"], "uid": "uid-q", "resourceVersion": "1"}})
    admitted = workload()
    admitted["spec"]["podSets"][0]["template"] = {"spec": {"containers": [{"name": "c"}]}}
    given = {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}
    admitted["status"]["admission"]["podSetAssignments"][0] |= given
    paper.put(admitted)
    for i, requests in enumerate(({"cpu": "1"}, {"cpu": "8"})):
        made = pod(i)
        made["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
        paper.put(made)
    paper.reconcile()
    assert paper.ungated == ["p0"]
    assert any("requests 7 cpu more" in message for message in paper.messages), paper.messages


@pytest.mark.parametrize(("is_there", "told"), [(True, ["PodOutsideAssignment"]), (False, [])])
def test_a_pod_that_runs_elsewhere_is_told_of_unless_it_is_lost_with_its_node(is_there: bool, told: list[str]):
    paper = Ungated()
    if is_there:
        node = node_json(Node("other", {HOSTNAME_LABEL: "other"}, {"cpu": 1}))
        paper.observed.nodes.put({**node, "metadata": {**node["metadata"], "uid": "uid-other", "resourceVersion": "1"}})
    paper.put(workload())
    stray = pod(0)
    stray["spec"] = {"nodeName": "other", "nodeSelector": {HOSTNAME_LABEL: "other"}}
    paper.put(stray)
    paper.reconcile()
    assert [reason for _, reason, _ in paper.events if reason == "PodOutsideAssignment"] == told


def test_a_workload_that_goes_while_its_pods_are_ungated_is_no_failure():
    class Gone(Ungated):
        async def apply_workload_condition(self, *_: Any, **__: Any) -> Obj:
            raise NotFound(404, "NotFound", "it is gone")

    paper = Gone()
    paper.put(workload())
    paper.put(pod(0))
    paper.reconcile()
    assert paper.ungated == ["p0"]


def test_the_time_to_an_open_gate_is_told_since_the_pod_was_there_and_admitted():
    metrics = Metrics("test", OF_RECONCILER)
    paper = Ungated(Recorder(metrics))
    admitted = workload()
    for condition in admitted["status"]["conditions"]:
        condition["lastTransitionTime"] = "2026-01-01T00:16:30Z"  # ten seconds ago, by the paper's clock
    paper.put(admitted)
    for i, made in enumerate(("2026-01-01T00:16:00Z", "2026-01-01T00:16:36Z")):
        one = pod(i)
        paper.put({**one, "metadata": {**one["metadata"], "creationTimestamp": made}})
    paper.contradictory = {"p1"}
    with pytest.raises(Invalid):
        paper.reconcile()
    found = Scraped(metrics.expose()[0].decode())
    assert (found.value("topogate_ungate_latency_seconds_count"), found.value("topogate_ungate_latency_seconds_sum")) == (1, 10)
    paper.contradictory = set()
    paper.clock.time += 1
    paper.reconcile()
    # The first is still gated here, since nobody folds what was written: it is counted again, at 11 s.
    assert Scraped(metrics.expose()[0].decode()).value("topogate_ungate_latency_seconds_sum") == 10 + 11 + 5
    assert metrics.shutdown()


def test_pods_without_an_owner_are_not_ungated_for_a_workload_that_lost_its_own():
    """Who orphans a job could make pods of any size that name its workload."""
    paper = Ungated()
    orphan = workload(None)
    orphan["metadata"]["labels"] = {JOB_UID_LABEL: "uid-job"}
    paper.put(orphan)
    for i in range(2):
        paper.put(pod(i, None))
    paper.reconcile()
    assert paper.ungated == []


def test_what_orphaned_pods_of_a_part_use_is_counted_once():
    """Pods of a JobSet's Job: the JobSet is gone, the Job that made them is not."""
    paper = Ungated()
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "uid-set", "controller": True}
    running = pod(0)
    running["spec"] = {"nodeName": "n0", "nodeSelector": {HOSTNAME_LABEL: "n0"}}
    paper.put(running)
    paper.put(workload(job_set))
    orphan = workload(None)
    orphan["metadata"]["labels"] = {JOB_UID_LABEL: "uid-set"}
    paper.put(orphan)
    assert paper.observed.pod_facts["ns/p0"].owner_uid == paper.observed.state.workloads.facts["ns/w"].owner_uid
    paper.put({**pod(1), "spec": {"nodeName": "n1"}})
    assert paper.observed.pod_facts["ns/p1"].owner_uid is None, "also those that are seen later"


def test_a_pod_that_is_pinned_to_a_lost_node_is_left_to_node_health():
    """Found defect E13: it was deleted, so that no podFailurePolicy could match its end."""
    paper = Ungated()
    paper.ungater._waits_for_nodes = True
    deleted: list[str] = []

    async def delete_pod(facts: Any) -> None:
        deleted.append(facts.key)

    paper.delete_pod = delete_pod  # type: ignore[attr-defined]
    up = node_json(Node("up", {HOSTNAME_LABEL: "up"}, {"cpu": 1}))
    paper.observed.nodes.put({**up, "metadata": {**up["metadata"], "uid": "uid-up", "resourceVersion": "1"}})
    paper.put(workload())
    for index, host in enumerate(("gone", "up")):
        late = pod(index)
        late["metadata"]["labels"][f"{COORDINATE_PREFIXES[0]}rank"] = str(index)
        late["spec"] = {"nodeSelector": {HOSTNAME_LABEL: host}}
        paper.put(late)
    paper.reconcile()
    assert deleted == ["ns/p1"]


def test_a_pod_without_its_owner_keeps_its_place_from_the_one_made_instead():
    """Found defect C1."""
    paper = Ungated()
    paper.put(workload())
    freed = pod(0, owner=None)
    freed["spec"] = {"nodeName": "n0", "nodeSelector": {HOSTNAME_LABEL: "n0"}}
    paper.put({**freed, "metadata": {**freed["metadata"], "name": "freed"}})
    for index in range(2):
        paper.put(pod(index))
    paper.reconcile()
    assert len(paper.ungated) == 1


def requesting(gpus: int, pod: Obj) -> Obj:
    containers = [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def unowned(gpus: int = 1) -> Obj:
    made = workload(None)
    made["spec"]["podSets"][0]["template"] = {"spec": requesting(gpus, {"spec": {}})["spec"]}
    return made


def bound(pod: Obj, node: str) -> Obj:
    return {**pod, "spec": {**pod["spec"], "schedulingGates": [], "nodeName": node, "nodeSelector": {HOSTNAME_LABEL: node}}}


@pytest.mark.parametrize("owner", [None, OWNER])
@pytest.mark.parametrize("pods_first", [False, True])
def test_pods_that_name_an_unowned_workload_are_ungated_and_counted(owner: Mapping[str, Any] | None, pods_first: bool):
    """Found defect E12: they did not exist, so that they stayed gated and the node of one that ran was taken for lost."""
    paper = Ungated()
    pods = [bound(pod(0, owner), "n0"), *(pod(index, owner) for index in (1, 2))]
    for obj in (*pods, workload(None)) if pods_first else (workload(None), *pods):
        paper.put(obj)
    paper.reconcile()
    assert paper.ungated == ["p1"], "as many pods as were admitted, no more"
    key = ("ns/w", "main", paper.observed.state.workloads.facts["ns/w"].owner_uid)
    assert paper.observed.state.ledger._bound[key] == {"n0": 1}, "the running pod has the place that was reserved for it"


def test_pods_without_an_owner_stop_counting_when_a_job_adopts_their_workload():
    paper = Ungated()
    paper.put(workload(None))
    paper.put(pod(0, None))
    paper.put(workload(OWNER))
    paper.reconcile()
    assert paper.ungated == []
    assert paper.observed.pod_facts["ns/p0"].owner_uid is None


def test_pods_of_another_namespace_do_not_use_an_unowned_workload():
    paper = Ungated()
    paper.put(workload(None))
    other = pod(0, None)
    paper.put({**other, "metadata": {**other["metadata"], "namespace": "other"}})
    paper.reconcile()
    assert paper.ungated == []


@pytest.mark.parametrize(("gpus", "ungated"), [(1, ["p0"]), (8, [])])
def test_pod_that_requests_more_than_its_unowned_workload_stays_gated(gpus: int, ungated: list[str]):
    """A namespace user writes both: quota was reserved for what the Workload says."""
    paper = Ungated()
    paper.put(unowned(1))
    paper.put(requesting(gpus, pod(0, None)))
    paper.reconcile()
    assert paper.ungated == ungated


def test_deleted_unowned_workload_holds_its_quota_until_its_running_pods_have_ended():
    paper = Ungated()
    paper.put(unowned())
    for index in range(2):
        paper.put(requesting(1, pod(index, None)))
    paper.reconcile()
    assert paper.get("Workload", "w")["metadata"]["finalizers"] == [RESOURCE_IN_USE_FINALIZER]
    paper.put(bound(paper.get("Pod", "p0"), "n0"))
    paper.delete("Workload", "w")
    paper.ungated.clear()
    paper.reconcile()
    assert paper.ungated == [], "a deleted Workload starts no pods"
    paper.run(1)
    assert paper.observed.state.workloads.holding("ns/w") is not None
    paper.delete("Pod", "p0")
    paper.run(1)
    assert paper.all("Workload") == []
    assert paper.observed.state.workloads.holding("ns/w") is None


async def test_pod_is_ungated_once_its_node_is_ready_where_lost_nodes_are_replaced():
    """Found defect E19."""
    paper = Ungated()
    paper.ungater._waits_for_nodes = True

    def observe(name: str, ready: str) -> None:
        node = node_json(Node(name, {HOSTNAME_LABEL: name}, {"cpu": 1}))
        conditions = [{"type": "Ready", "status": ready}]
        metadata = {**node["metadata"], "uid": name, "resourceVersion": str(next(paper._versions))}
        paper.observed.nodes.put({**node, "metadata": metadata, "status": {**node["status"], "conditions": conditions}})

    flavor, topology = flavor_json("f", "t"), topology_json("t", [HOSTNAME_LABEL])
    for informer, obj in ((paper.observed.flavors, flavor), (paper.observed.topologies, topology)):
        informer.put({**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"], "resourceVersion": "1"}})
    admitted = workload()
    admitted["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "f"}
    observe("n0", "True")
    observe("n1", "Unknown")
    paper.put(admitted)
    for index in range(2):
        paper.put(pod(index))
    item = Item("ns/w", frozenset(), 0.0)
    assert await paper.ungater._reconcile(item) == RequeueAfter(HELD_S)
    assert paper.ungated == ["p0"]
    observe("n1", "True")
    paper.clock.time += 60
    assert await paper.ungater._reconcile(item) == Done()
    assert paper.ungated[1:] == ["p0", "p1"], "nothing has observed the first one"


def test_ungating_of_many_pods_begins_with_as_many_tasks_as_may_send():
    paper, most = Ungated(), [0]
    ungate = paper.ungate

    async def count_tasks(namespace: str, name: str, action: Ungate) -> Obj:
        most[0] = max(most[0], len(asyncio.all_tasks()))
        return await ungate(namespace, name, action)

    paper.ungate = count_tasks  # type: ignore[method-assign]
    many = workload()
    assignment = encode(TopologyAssignment((HOSTNAME_LABEL,), (DomainCount(("n0",), 200),)))
    many["spec"]["podSets"][0]["count"] = 200
    many["status"]["admission"]["podSetAssignments"][0] |= {"count": 200, "topologyAssignment": assignment}
    paper.put(many)
    for index in range(200):
        paper.put(pod(index))
    paper.reconcile()
    assert len(paper.ungated) == 200
    assert most[0] <= paper.ungater._throttle.most + 1  # and the one that waits for them
