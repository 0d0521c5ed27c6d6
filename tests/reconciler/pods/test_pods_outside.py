"""Pods that run by a workload of pods and are none of its unit's, or only say that they are: its quota is not free before they end."""

from __future__ import annotations

import pytest

from core.jobs.contract import Defaults
from core.names import MANAGED, POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT, QUEUE_NAME_LABEL, ROLE_HASH, SUSPENDING_PARENT
from tests.reconciler.harness_pods import KINDS, Json, PodsHarness, admit, bind, build_pod, end, list_names, list_started, run_group

OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-of-s", "controller": True}


def holds_quota(harness: PodsHarness) -> bool:
    (workload,) = harness.all("Workload")
    conditions = {c["type"]: c["status"] for c in workload["status"]["conditions"]}
    return conditions.get("QuotaReserved") == "True" and conditions.get("Finished") != "True"


def evict(harness: PodsHarness, workload: Json) -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted for h"}
    harness.put({**workload, "status": {**workload["status"], "conditions": [*workload["status"]["conditions"], evicted]}})
    harness.run()


@pytest.fixture
def group() -> PodsHarness:
    return run_group(PodsHarness())


def put_set(harness: PodsHarness, replicas: int) -> None:
    template = {"metadata": {"labels": {"a": "s"}}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    metadata = {"name": "s", "namespace": "ns", "uid": OWNER["uid"], "labels": {QUEUE_NAME_LABEL: "main"}}
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"replicas": replicas, "template": template}}
    harness.put(KINDS["StatefulSet"].default(made, Defaults()))


@pytest.fixture
def stateful_set() -> PodsHarness:
    """Two replicas, running, of which the controller has released both."""
    harness = PodsHarness()
    put_set(harness, 2)
    for name in ("s-0", "s-1"):
        notes: Json = {SUSPENDING_PARENT: "statefulset"}
        harness.put(build_pod(name, group=None, notes=notes, ownerReferences=[OWNER]))
    harness.run()
    (workload,) = harness.all("Workload")
    admit(harness, workload["metadata"]["name"])
    harness.run()
    assert list_started(harness) == {"s-0", "s-1"}
    bind(harness, "s-0", "s-1")
    for name in ("s-0", "s-1"):
        found = harness.get("Pod", name)
        harness.put({**found, "metadata": {key: value for key, value in found["metadata"].items() if key != "ownerReferences"}})
    return harness


def test_stateful_set_scaled_to_0_keeps_quota_of_released_pods(stateful_set: PodsHarness):
    """A user changed a label of the selector: the pods ran on beyond quota."""
    put_set(stateful_set, 0)
    stateful_set.run()
    assert list_names(stateful_set) == {"s-0", "s-1"}
    assert holds_quota(stateful_set)
    end(stateful_set, "Failed", "s-0", "s-1")
    stateful_set.run()
    assert not holds_quota(stateful_set)


def test_evicted_stateful_set_takes_released_pods_along(stateful_set: PodsHarness):
    (workload,) = stateful_set.all("Workload")
    evict(stateful_set, workload)
    assert list_names(stateful_set) == set()
    assert holds_quota(stateful_set), "they still run"
    end(stateful_set, "Failed", "s-0", "s-1")
    stateful_set.run()
    assert not holds_quota(stateful_set)


def test_group_is_not_over_while_its_pods_run_whatever_others_say(group: PodsHarness):
    """Ended pods without a queue that got the labels of its pods afterwards."""
    labels = {QUEUE_NAME_LABEL: "main", MANAGED: "true", POD_GROUP_NAME: "g"}
    notes = {POD_GROUP_TOTAL_COUNT: "2", ROLE_HASH: group.get("Pod", "a")["metadata"]["annotations"][ROLE_HASH]}
    for name in ("x", "y"):
        fake = build_pod(name)
        fake["metadata"] |= {"labels": labels, "annotations": notes, "finalizers": []}
        fake["spec"] = {"nodeName": "n0", "containers": fake["spec"]["containers"]}
        group.put({**fake, "status": {"phase": "Succeeded"}})
    group.run()
    assert holds_quota(group)


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-of-j", "controller": True}


@pytest.fixture
def adopted(group: PodsHarness) -> PodsHarness:
    """A Job without a queue, whose selector is its user's, has adopted the running pods of the group."""
    for name in ("a", "b"):
        found = group.get("Pod", name)
        group.put({**found, "metadata": {**found["metadata"], "ownerReferences": [JOB]}})
    group.run()
    return group


def test_workload_of_a_group_with_adopted_pods_is_kept(adopted: PodsHarness):
    """It was deleted, and waited for pods that nothing ended: no other workload could preempt it."""
    assert holds_quota(adopted)
    (workload,) = adopted.all("Workload")
    assert not workload["metadata"].get("deletionTimestamp")


def test_evicted_group_with_adopted_pods_is_stopped(adopted: PodsHarness):
    (workload,) = adopted.all("Workload")
    evict(adopted, workload)
    assert list_names(adopted) == set()


def test_finalizers_of_adopted_pods_that_have_ended_are_removed(adopted: PodsHarness):
    end(adopted, "Succeeded", "a", "b")
    adopted.run()
    assert not any("kueue.x-k8s.io/managed" in (each["metadata"].get("finalizers") or ()) for each in adopted.all("Pod"))
