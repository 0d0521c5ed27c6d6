"""The ungater on an API server in memory: what is told although a pod cannot be ungated, and which pods it passes over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from core.metric_names import OF_RECONCILER
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import encode
from core.names import (
    ADMISSION_GATE,
    COORDINATE_PREFIXES,
    EVENT_STAYS_GATED,
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
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime.controller import Done, RequeueAfter
from core.runtime.http.errors import Forbidden, Invalid, ServerError
from core.runtime.report.metrics import Metrics
from core.runtime.workqueue import Item
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.measure.latency_metrics import Milestones
from reconciler.pods.ungater import Ungater
from sim.apiserver.server import Refused, Request
from tests.builders import Node, build_cluster_queue_json, build_flavor_json, build_node_json, build_topology_json
from tests.reconciler.harness_pods import PodsHarness
from tests.scraped import Scraped

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-job", "controller": True}


class Ungated(PodsHarness):
    """An API server that takes the gate off no pod that is `contradictory`."""

    def __init__(self, recorder: Recorder = UNRECORDED) -> None:
        super().__init__()
        self.ungater = Ungater(self.observed, self.executor, self.clock)
        Milestones(self.observed, self.clock, recorder)
        self.contradictory: set[str] = set()
        self.on_write = self.check

    def check(self, request: Request) -> None:
        if request.name in self.contradictory:
            raise Refused(422, "Invalid", "its own selector contradicts the domain")

    @property
    def ungated(self) -> list[str]:
        """Pods without their gate, in the order in which they lost it."""
        return [request.name for request in self.writes if request.kind.kind == "Pod" and "schedulingGates" in request.body.get("spec", ())]

    def reconcile(self) -> None:
        self.wait_for(self.ungater._reconcile(Item("ns/w", frozenset(), 0.0)))


def build_pod(index: int, owner: Mapping[str, Any] | None = OWNER) -> Obj:
    metadata = {
        "name": f"p{index}",
        "labels": {PODSET_LABEL: "main", JOB_COMPLETION_INDEX_LABEL: str(index)},
        "annotations": {WORKLOAD_ANNOTATION: "w"},
        "ownerReferences": [owner] if owner is not None else [],
    }
    return {"kind": "Pod", "metadata": metadata, "spec": {"schedulingGates": [{"name": TOPOLOGY_GATE}]}}


def build_workload(owner: Mapping[str, Any] | None = OWNER) -> Obj:
    pod_set = {"name": "main", "count": 2, "template": {}, "topologyRequest": {"podIndexLabel": JOB_COMPLETION_INDEX_LABEL}}
    assignment = encode(TopologyAssignment((HOSTNAME_LABEL,), (DomainCount(("n0",), 1), DomainCount(("n1",), 1))))
    given = {"name": "main", "count": 2, "flavors": {}, "topologyAssignment": assignment}
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    return {
        "kind": "Workload",
        "metadata": {"name": "w", "ownerReferences": [owner] if owner is not None else []},
        "spec": {"podSets": [pod_set]},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}, "conditions": conditions},
    }


def test_rank_order_is_reported_although_one_pod_cannot_be_ungated():
    harness = Ungated()
    harness.put(build_workload())
    for i in range(2):
        harness.put(build_pod(i))
    harness.contradictory = {"p1"}
    with pytest.raises(Invalid):
        harness.reconcile()
    assert harness.ungated == ["p0"]
    assert [c["status"] for c in harness.get("Workload", "w")["status"]["conditions"] if c["type"] == RANK_ORDER_KEPT] == ["True"]
    [event] = [event for event in harness.events if event.reason == EVENT_STAYS_GATED]
    assert event.key.endswith("/p1")
    assert "its own selector contradicts the domain" in event.message


def test_order_of_ranks_is_reported_although_the_api_server_fails_for_one_pod():
    """By a review: the order was not reported, and once the pod had gone it was never known again."""
    harness = Ungated()
    harness.put(build_workload())
    for i in range(2):
        harness.put(build_pod(i))

    def fail(request: Request) -> None:
        if request.name == "p1":
            raise Refused(500, "InternalError", "away")

    harness.on_write = fail
    with pytest.raises(ServerError):
        harness.reconcile()
    assert harness.ungated == ["p0"]
    assert [c["status"] for c in harness.get("Workload", "w")["status"]["conditions"] if c["type"] == RANK_ORDER_KEPT] == ["True"]


def test_pod_loses_its_gate_although_its_node_cannot_be_named():
    """By a review: one nomination that failed kept all pods of its workload gated."""
    harness = Ungated()
    harness.ungater._nominates = True
    harness.put({"kind": "Topology", **build_topology_json("t", [HOSTNAME_LABEL])})
    harness.put({"kind": "ResourceFlavor", **build_flavor_json("f", "t")})
    for name in ("n0", "n1"):
        harness.put({"kind": "Node", **build_node_json(Node(name, {HOSTNAME_LABEL: name}, {"cpu": 1}))})
    admitted = build_workload()
    admitted["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "f"}
    harness.put(admitted)
    for index in range(2):
        harness.put(build_pod(index))
    refused = list[str]()

    def refuse(request: Request) -> None:
        if "nominatedNodeName" in (request.body.get("status") or ()):
            refused.append(request.name)
            raise Refused(403, "Forbidden", "by a policy")

    harness.on_write = refuse
    with pytest.raises(Forbidden):
        harness.reconcile()
    assert (sorted(refused), sorted(harness.ungated)) == (["p0", "p1"], ["p0", "p1"])


def test_a_pod_that_requests_more_than_was_admitted_stays_gated_with_an_event_on_it():
    """Containers that another webhook or a controller added are in no quota."""
    harness = Ungated()
    harness.put(build_workload())
    for i, requests in enumerate(({"cpu": "200m", "memory": "256Mi"}, {"nvidia.com/gpu": "8"})):
        made = build_pod(i)
        made["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
        harness.put(made)
    for _ in range(2):
        harness.reconcile()
    assert harness.ungated == ["p0"]
    [event] = [event for event in harness.events if event.reason == EVENT_WORKLOAD_REFUSED]
    assert event.key == "ns/p1"
    assert all(part in event.message for part in ("8 nvidia.com/gpu more", "as main"))


def limit_range(cpu: str) -> Obj:
    return {
        "kind": "LimitRange",
        "metadata": {"name": "limits"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu, "memory": "1Gi"}}]},
    }


def test_pod_that_requests_more_by_a_later_limit_range_than_was_admitted_stays_gated():
    """Quota was reserved for what its pods requested then."""
    harness = Ungated()
    harness.put(limit_range("8"))
    harness.put({"kind": "ClusterQueue", **build_cluster_queue_json("q", {"f": "100"})})
    admitted = build_workload()
    admitted["spec"]["podSets"][0]["template"] = {"spec": {"containers": [{"name": "c"}]}}
    given = {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}
    admitted["status"]["admission"]["podSetAssignments"][0] |= given
    harness.put(admitted)
    for i, requests in enumerate(({"cpu": "1"}, {"cpu": "8"})):
        made = build_pod(i)
        made["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
        harness.put(made)
    harness.reconcile()
    assert harness.ungated == ["p0"]
    assert any("requests 7 cpu more" in message for message in harness.messages), harness.messages


@pytest.mark.parametrize(("is_there", "told"), [(True, ["PodOutsideAssignment"]), (False, [])])
def test_pod_outside_its_assignment_is_reported_unless_its_node_is_lost(is_there: bool, told: list[str]):
    harness = Ungated()
    if is_there:
        harness.put({"kind": "Node", **build_node_json(Node("other", {HOSTNAME_LABEL: "other"}, {"cpu": 1}))})
    harness.put(build_workload())
    stray = build_pod(0)
    stray["spec"] = {"nodeName": "other", "nodeSelector": {HOSTNAME_LABEL: "other"}}
    harness.put(stray)
    harness.reconcile()
    assert [event.reason for event in harness.events if event.reason == "PodOutsideAssignment"] == told


@pytest.mark.parametrize("bound", [False, True])
def test_pod_of_another_assignment_is_deleted_only_where_it_is_not_bound_by_then(bound: bool):
    """Its watch is behind: it runs when the request to delete it arrives."""
    harness = Ungated()
    harness.put({"kind": "Node", **build_node_json(Node("other", {HOSTNAME_LABEL: "other"}, {"cpu": 1}))})
    harness.put(build_workload())
    stray = build_pod(0)
    stray["spec"] = {"nodeSelector": {HOSTNAME_LABEL: "other"}}
    harness.put(stray)
    harness.late = {"Pod"}
    if bound:
        harness.put({**stray, "spec": {**stray["spec"], "nodeName": "other"}})
    harness.reconcile()
    reasons = [event.reason for event in harness.events if event.reason == "PodOutsideAssignment"]
    assert ([pod["metadata"]["name"] for pod in harness.all("Pod")], reasons) == ((["p0"], []) if bound else ([], ["PodOutsideAssignment"]))


def test_a_workload_that_goes_while_its_pods_are_ungated_is_no_failure():
    harness = Ungated()
    harness.put(build_workload())
    harness.put(build_pod(0))
    harness.on_write = lambda request: harness.drop("Workload", "w") if request.name == "p0" else None
    harness.reconcile()
    assert harness.ungated == ["p0"]


def test_ungate_latency_is_recorded_since_pod_creation_and_admission():
    metrics = Metrics("test", OF_RECONCILER)
    harness = Ungated(Recorder(metrics))
    admitted = build_workload()
    for condition in admitted["status"]["conditions"]:
        condition["lastTransitionTime"] = "2026-01-01T00:16:30Z"  # ten seconds ago, by its clock
    harness.put(admitted)
    for i, made in enumerate(("2026-01-01T00:16:00Z", "2026-01-01T00:16:36Z")):
        one = build_pod(i)
        harness.put({**one, "metadata": {**one["metadata"], "creationTimestamp": made}})
    harness.contradictory = {"p1"}
    with pytest.raises(Invalid):
        harness.reconcile()
    found = Scraped(metrics.expose()[0].decode())
    assert (found.value("topogate_ungate_latency_seconds_count"), found.value("topogate_ungate_latency_seconds_sum")) == (1, 10)
    labels = {"cluster_queue": "q", "name": TOPOLOGY_GATE, "is_group": "false", "replica_role": "leader"}
    assert found.value("kueue_pod_scheduling_gate_removal_seconds_sum", **labels) == 10
    harness.contradictory = set()
    harness.clock.time += 1
    harness.reconcile()
    assert Scraped(metrics.expose()[0].decode()).value("topogate_ungate_latency_seconds_sum") == 10 + 5
    assert metrics.shutdown()


def test_pod_that_is_started_without_a_place_adds_no_time_to_an_open_gate():
    """By a review: it loses both gates at once, and counted among those that had waited for their place."""
    metrics = Metrics("test", OF_RECONCILER)
    harness = Ungated(Recorder(metrics))
    harness.put(build_workload())
    started = build_pod(0)
    started["spec"]["schedulingGates"].append({"name": ADMISSION_GATE})
    harness.put(started)
    harness.put({**started, "spec": {"schedulingGates": []}})
    assert Scraped(metrics.expose()[0].decode()).sum("topogate_ungate_latency_seconds_count") == 0
    assert metrics.shutdown()


def test_pods_without_an_owner_are_not_ungated_for_a_workload_that_lost_its_own():
    """Who orphans a job could make pods of any size that name its workload."""
    harness = Ungated()
    orphan = build_workload(None)
    orphan["metadata"]["labels"] = {JOB_UID_LABEL: "uid-job"}
    harness.put(orphan)
    for i in range(2):
        harness.put(build_pod(i, None))
    harness.reconcile()
    assert harness.ungated == []


def test_usage_of_orphaned_pods_of_a_child_job_is_counted_once():
    """Pods of a JobSet's Job: the JobSet is gone, the Job that made them is not."""
    harness = Ungated()
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "uid-set", "controller": True}
    running = build_pod(0)
    running["spec"] = {"nodeName": "n0", "nodeSelector": {HOSTNAME_LABEL: "n0"}}
    harness.put(running)
    harness.put(build_workload(job_set))
    orphan = build_workload(None)
    orphan["metadata"]["labels"] = {JOB_UID_LABEL: "uid-set"}
    harness.put(orphan)
    assert harness.observed.pod_facts["ns/p0"].owner_uid == harness.observed.state.workloads.facts["ns/w"].owner_uid
    harness.put({**build_pod(1), "spec": {"nodeName": "n1"}})
    assert harness.observed.pod_facts["ns/p1"].owner_uid is None, "also those that are seen later"


def test_a_pod_that_is_pinned_to_a_lost_node_is_left_to_node_health():
    """Former defect: it was deleted, so that no podFailurePolicy could match its end."""
    harness = Ungated()
    harness.ungater._waits_for_nodes = True
    harness.put({"kind": "Node", **build_node_json(Node("up", {HOSTNAME_LABEL: "up"}, {"cpu": 1}))})
    harness.put(build_workload())
    for index, host in enumerate(("gone", "up")):
        late = build_pod(index)
        late["metadata"]["labels"][f"{COORDINATE_PREFIXES[0]}rank"] = str(index)
        late["spec"] = {"nodeSelector": {HOSTNAME_LABEL: host}}
        harness.put(late)
    harness.reconcile()
    assert [pod["metadata"]["name"] for pod in harness.all("Pod")] == ["p0"]


@pytest.mark.parametrize(
    ("unhealthy", "ungated"), [("first", ["p1"]), ("n0", ["p1"]), ("second", ["p0"]), ("n1", ["p0"]), ("other", ["p0", "p1"])]
)
def test_pods_of_a_lost_node_stay_gated_whether_its_name_or_its_hostname_is_reported(unhealthy: str, ungated: list[str]):
    """Kueue 0.20: where names and hostnames differ nodes are matched by the label. Until another node is found, as for long where
    TASFailedNodeReplacementFailFast is off, the pods wait."""
    harness = Ungated()
    for name, host in (("first", "n0"), ("second", "n1"), ("other", "n2")):
        harness.put({"kind": "Node", **build_node_json(Node(name, {HOSTNAME_LABEL: host}, {"cpu": 1}))})
    admitted = build_workload()
    admitted["status"]["unhealthyNodes"] = [{"name": unhealthy}]
    harness.put(admitted)
    for index in range(2):
        harness.put(build_pod(index))
    harness.reconcile()
    assert sorted(harness.ungated) == ungated


def test_pods_of_a_node_are_ungated_although_its_name_is_the_hostname_of_a_lost_node():
    harness = Ungated()
    for name, host in (("n1", "n0"), ("n0", "n1")):
        harness.put({"kind": "Node", **build_node_json(Node(name, {HOSTNAME_LABEL: host}, {"cpu": 1}))})
    admitted = build_workload()
    admitted["status"]["unhealthyNodes"] = [{"name": "n1"}]
    harness.put(admitted)
    for index in range(2):
        harness.put(build_pod(index))
    harness.reconcile()
    assert harness.ungated == ["p0"]


def test_pinned_pod_is_left_to_node_health_although_a_node_that_is_up_is_named_like_its_lost_one():
    harness = Ungated()
    harness.ungater._waits_for_nodes = True
    down = build_node_json(Node("down", {HOSTNAME_LABEL: "host"}, {"cpu": 1}, ready=False))
    for node in (down, build_node_json(Node("host", {HOSTNAME_LABEL: "elsewhere"}, {"cpu": 1}))):
        harness.put({"kind": "Node", **node})
    harness.put(build_workload())
    late = build_pod(0)
    late["metadata"]["labels"][f"{COORDINATE_PREFIXES[0]}rank"] = "0"
    late["spec"] = {"nodeSelector": {HOSTNAME_LABEL: "host"}}
    harness.put(late)
    harness.reconcile()
    assert [pod["metadata"]["name"] for pod in harness.all("Pod")] == ["p0"]


def test_a_pod_without_its_owner_keeps_its_place_from_the_one_made_instead():
    harness = Ungated()
    harness.put(build_workload())
    freed = build_pod(0, owner=None)
    freed["spec"] = {"nodeName": "n0", "nodeSelector": {HOSTNAME_LABEL: "n0"}}
    harness.put({**freed, "metadata": {**freed["metadata"], "name": "freed"}})
    for index in range(2):
        harness.put(build_pod(index))
    harness.reconcile()
    assert len(harness.ungated) == 1


def requesting(gpus: int, pod: Obj) -> Obj:
    containers = [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def unowned(gpus: int = 1) -> Obj:
    made = build_workload(None)
    made["spec"]["podSets"][0]["template"] = {"spec": requesting(gpus, {"spec": {}})["spec"]}
    return made


def bound(pod: Obj, node: str) -> Obj:
    return {**pod, "spec": {**pod["spec"], "schedulingGates": [], "nodeName": node, "nodeSelector": {HOSTNAME_LABEL: node}}}


@pytest.mark.parametrize("owner", [None, OWNER])
@pytest.mark.parametrize("pods_first", [False, True])
def test_pods_that_name_an_unowned_workload_are_ungated_and_counted(owner: Mapping[str, Any] | None, pods_first: bool):
    """Former defect: they did not exist, so that they stayed gated and the node of one that ran was taken for lost."""
    harness = Ungated()
    pods = [bound(build_pod(0, owner), "n0"), *(build_pod(index, owner) for index in (1, 2))]
    for obj in (*pods, build_workload(None)) if pods_first else (build_workload(None), *pods):
        harness.put(obj)
    harness.reconcile()
    assert harness.ungated == ["p1"], "as many pods as were admitted, no more"
    key = ("ns/w", "main", harness.observed.state.workloads.facts["ns/w"].owner_uid)
    assert harness.observed.state.ledger._bound[key] == {"n0": 1}, "the running pod has the place that was reserved for it"


def test_pods_without_an_owner_stop_counting_when_a_job_adopts_their_workload():
    harness = Ungated()
    harness.put(build_workload(None))
    harness.put(build_pod(0, None))
    harness.put(build_workload(OWNER))
    harness.reconcile()
    assert harness.ungated == []
    assert harness.observed.pod_facts["ns/p0"].owner_uid is None


def test_pods_of_another_namespace_do_not_use_an_unowned_workload():
    harness = Ungated()
    harness.put(build_workload(None))
    other = build_pod(0, None)
    harness.put({**other, "metadata": {**other["metadata"], "namespace": "other"}})
    harness.reconcile()
    assert harness.ungated == []


@pytest.mark.parametrize(("gpus", "ungated"), [(1, ["p0"]), (8, [])])
def test_pod_that_requests_more_than_its_unowned_workload_stays_gated(gpus: int, ungated: list[str]):
    """A namespace user writes both: quota was reserved for what the Workload says."""
    harness = Ungated()
    harness.put(unowned(1))
    harness.put(requesting(gpus, build_pod(0, None)))
    harness.reconcile()
    assert harness.ungated == ungated


def test_deleted_unowned_workload_holds_its_quota_until_its_running_pods_have_ended():
    harness = Ungated()
    harness.put(unowned())
    for index in range(2):
        harness.put(requesting(1, build_pod(index, None)))
    harness.reconcile()
    assert harness.get("Workload", "w")["metadata"]["finalizers"] == [RESOURCE_IN_USE_FINALIZER]
    harness.put(bound(harness.get("Pod", "p0"), "n0"))
    harness.delete("Workload", "w")
    harness.put(requesting(1, build_pod(1, None)))
    harness.writes.clear()
    harness.reconcile()
    assert harness.ungated == [], "a deleted Workload starts no pods"
    harness.run(1)
    assert harness.observed.state.workloads.find_holding("ns/w") is not None
    harness.delete("Pod", "p0", gracePeriodSeconds=0)
    harness.run(1)
    assert harness.all("Workload") == []
    assert harness.observed.state.workloads.find_holding("ns/w") is None


async def test_pod_is_ungated_once_its_node_is_ready_where_lost_nodes_are_replaced():
    harness = Ungated()
    harness.ungater._waits_for_nodes = True

    def observe(name: str, ready: str) -> None:
        node = build_node_json(Node(name, {HOSTNAME_LABEL: name}, {"cpu": 1}))
        conditions = [{"type": "Ready", "status": ready}]
        harness.put({"kind": "Node", **node, "status": {**node["status"], "conditions": conditions}})

    harness.put({"kind": "ResourceFlavor", **build_flavor_json("f", "t")})
    harness.put({"kind": "Topology", **build_topology_json("t", [HOSTNAME_LABEL])})
    admitted = build_workload()
    admitted["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "f"}
    observe("n0", "True")
    observe("n1", "Unknown")
    harness.put(admitted)
    for index in range(2):
        harness.put(build_pod(index))
    item = Item("ns/w", frozenset(), 0.0)
    assert await harness.ungater._reconcile(item) == RequeueAfter(pacing.PODS_HELD_S)
    assert harness.ungated == ["p0"]
    observe("n1", "True")
    harness.clock.time += 60
    assert await harness.ungater._reconcile(item) == Done()
    assert harness.ungated == ["p0", "p1"]


def test_ungating_of_many_pods_begins_with_as_many_tasks_as_may_send():
    harness, tasks = Ungated(), list[int]()
    harness.on_write = lambda _: tasks.append(len(asyncio.all_tasks()))
    many = build_workload()
    assignment = encode(TopologyAssignment((HOSTNAME_LABEL,), (DomainCount(("n0",), 200),)))
    many["spec"]["podSets"][0]["count"] = 200
    many["status"]["admission"]["podSetAssignments"][0] |= {"count": 200, "topologyAssignment": assignment}
    harness.put(many)
    for index in range(200):
        harness.put(build_pod(index))
    harness.reconcile()
    assert len(harness.ungated) == 200
    assert max(tasks) <= harness.executor._throttle.most + 1  # and the one that waits for them
