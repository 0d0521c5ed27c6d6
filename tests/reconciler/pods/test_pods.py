"""Pods alone and in groups on an API server in memory: what starts, what never does, and what is told."""

from __future__ import annotations

import pytest

from core.names import MANAGED, REQUIRED_TOPOLOGY, ROLE_HASH, SLICE_CONSTRAINTS
from core.plan.pods.pod_units import find_pod_unit
from sim.apiserver.server import Request
from tests.reconciler.harness_pods import Json, PodsHarness, admit, bind, build_pod, end, list_names, list_started, run_group


@pytest.fixture
def harness() -> PodsHarness:
    return PodsHarness()


@pytest.fixture
def admitted(harness: PodsHarness) -> PodsHarness:
    return run_group(harness)


def test_incomplete_pod_group_is_not_queued_and_reported_after_a_while(harness: PodsHarness):
    harness.put(build_pod("a", total=3))
    harness.run()
    assert harness.all("Workload") == []
    assert harness.messages == []
    harness.clock.time += 11
    harness.run(1)
    (message,) = harness.messages
    assert all(part in message for part in ("group g", "2 more pods"))
    assert [event.reason for event in harness.events] == ["WaitingForPods"]


def test_a_group_waits_behind_its_gates_until_it_is_admitted(harness: PodsHarness):
    harness.put(build_pod("a"))
    harness.put(build_pod("b"))
    harness.run()
    assert [w["metadata"]["name"] for w in harness.all("Workload")] == ["g"]
    assert list_started(harness) == set()
    assert harness.get("Workload", "g")["metadata"].get("ownerReferences") is None, "it outlives its first pods"


@pytest.mark.parametrize("size", [100_000, 300_000])
def test_group_of_pods_that_are_too_large_together_is_not_queued(harness: PodsHarness, size: int):
    """Near what etcd takes, their Workload could be admitted, and not be evicted: the conditions of that would not fit."""
    for name, cpu in (("a", "1"), ("b", "2")):
        harness.put(build_pod(name, cpu=cpu, notes={"example.com/long": "x" * size}))
    harness.run()
    is_queued = bool(harness.all("Workload"))
    assert is_queued == (size == 100_000)
    assert any("500000 bytes" in message for message in harness.messages) != is_queued


def test_a_start_without_a_topology_takes_both_gates_off(admitted: PodsHarness):
    assert "schedulingGates" not in admitted.get("Pod", "a")["spec"]
    assert admitted.get("Pod", "a")["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "g"


@pytest.mark.parametrize("many", [1, 5])
def test_pods_beyond_the_total_are_deleted_and_never_start(admitted: PodsHarness, many: int):
    for i in range(many):
        admitted.put(build_pod(f"more-{i}"))
    admitted.run()
    assert list_names(admitted) == {"a", "b"}
    assert {event.reason for event in admitted.events if event.key.startswith("ns/more")} == {"ExcessPodDeleted"}


def test_pod_beyond_the_total_that_has_a_controller_stays_gated(admitted: PodsHarness):
    """A ReplicaSet would make another at once, and another: two writes for each, without end."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "twenty", "uid": "u", "controller": True}
    admitted.put(build_pod("more", ownerReferences=[owner]))
    admitted.run()
    assert list_names(admitted) == {"a", "b", "more"}
    assert list_started(admitted) == {"a", "b"}
    assert {event.reason for event in admitted.events if event.key == "ns/more"} == {"WorkloadRefused"}


def test_pod_with_another_total_count_does_not_change_the_admitted_workload(admitted: PodsHarness):
    admitted.put(build_pod("liar", total=100))
    admitted.run()
    assert list_started(admitted) == {"a", "b"}
    assert admitted.get("Workload", "g")["spec"]["podSets"][0]["count"] == 2


def test_a_pod_of_another_role_does_not_start_in_a_place_of_an_admitted_one(admitted: PodsHarness):
    end(admitted, "Failed", "a")
    admitted.put(build_pod("huge", cpu="64"))
    admitted.run()
    assert list_started(admitted) == {"a", "b"}
    assert any("pods like huge" in message for message in admitted.messages)


def test_a_pod_that_asks_for_more_than_its_role_does_not_start(admitted: PodsHarness):
    """Marked by hand, past our webhook: the hash of a small one on a large one."""
    end(admitted, "Failed", "a")
    forged, honest = build_pod("forged", cpu="64"), build_pod("any")
    forged["metadata"]["annotations"] = honest["metadata"]["annotations"]
    admitted.put(forged)
    admitted.run()
    assert "forged" not in list_started(admitted)
    [message] = {message for message in admitted.messages if "stays gated" in message}
    assert "63 cpu more" in message
    assert "admission webhook" in message


def test_pod_of_a_group_without_its_gate_is_deleted_before_admission(harness: PodsHarness):
    harness.put(build_pod("a"))
    thief = build_pod("b")
    thief["spec"]["schedulingGates"] = []
    harness.put(thief)
    harness.run()
    assert list_names(harness) == {"a"}


def test_a_failed_pod_is_replaced_and_one_that_succeeded_is_not(admitted: PodsHarness):
    end(admitted, "Failed", "a")
    end(admitted, "Succeeded", "b")
    admitted.put(build_pod("c"))
    admitted.put(build_pod("d"))
    admitted.run()
    assert list_started(admitted) == {"a", "b", "c"}
    assert "d" not in list_names(admitted)


def test_a_group_ends_when_all_have_succeeded_and_its_finalizers_go(admitted: PodsHarness):
    end(admitted, "Succeeded", "a", "b")
    admitted.run()
    (finished,) = [c for c in admitted.get("Workload", "g")["status"]["conditions"] if c["type"] == "Finished"]
    assert (finished["reason"], finished["message"]) == ("Succeeded", "Pods succeeded: 2/2")
    assert not any(MANAGED in p["metadata"].get("finalizers", ()) for p in admitted.all("Pod"))


def test_the_name_of_a_group_that_is_over_is_free_when_its_pods_are_gone(admitted: PodsHarness):
    end(admitted, "Succeeded", "a", "b")
    admitted.run()
    admitted.put(build_pod("c"))
    admitted.put(build_pod("d"))
    admitted.run()
    assert any("group g has finished" in message for message in admitted.messages)
    for name in ("a", "b"):
        admitted.drop("Pod", name)
    admitted.run()
    assert "status" not in admitted.get("Workload", "g"), "another one"
    admit(admitted, "g")
    admitted.run()
    assert list_started(admitted) == {"c", "d"}


def test_a_group_that_may_not_be_retried_ends_with_its_last_pod(harness: PodsHarness):
    for name in ("a", "b"):
        harness.put(build_pod(name, notes={"kueue.x-k8s.io/retriable-in-group": "false"}))
    harness.run()
    admit(harness, "g")
    harness.run()
    end(harness, "Failed", "a")
    harness.run()
    assert not [c for c in harness.get("Workload", "g")["status"]["conditions"] if c["type"] == "Finished"]
    end(harness, "Succeeded", "b")
    harness.run()
    (finished,) = [c for c in harness.get("Workload", "g")["status"]["conditions"] if c["type"] == "Finished"]
    assert finished["reason"] == "Failed"


def test_deactivated_its_pods_go_then_its_quota(admitted: PodsHarness):
    workload = admitted.get("Workload", "g")
    admitted.put({**workload, "spec": {**workload["spec"], "active": False}})
    admitted.run()
    assert "admission" in admitted.get("Workload", "g")["status"], "they still run"
    end(admitted, "Failed", "a", "b")
    admitted.run()
    assert admitted.all("Pod") == []
    assert admitted.all("Workload") == [] or "admission" not in admitted.get("Workload", "g")["status"]


def evict(harness: PodsHarness) -> None:
    """Preempted, with pods that run."""
    workload = harness.get("Workload", "g")
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted for h"}
    harness.put({**workload, "status": {**workload["status"], "conditions": [*workload["status"]["conditions"], evicted]}})
    harness.run()


def quota_reserved(harness: PodsHarness) -> tuple[str, str]:
    (found,) = (c for c in harness.get("Workload", "g")["status"]["conditions"] if c["type"] == "QuotaReserved")
    return found["status"], found["reason"]


def waiting(harness: PodsHarness) -> list[str]:
    return [facts.key for facts in harness.observed.state.workloads.list_pending()]


def test_evicted_group_keeps_workload_until_all_its_pods_are_replaced(admitted: PodsHarness):
    """Former defect: its pods were gone as soon as they had failed, and the Workload with the last of them."""
    evict(admitted)
    assert list_names(admitted) == set(), "all are deleted"
    assert quota_reserved(admitted)[0] == "True", "they still run"
    end(admitted, "Failed", "a", "b")
    admitted.run()
    assert {p["metadata"]["name"] for p in admitted.all("Pod")} == {"a", "b"}, "what replaces them sees them fail"
    assert quota_reserved(admitted) == ("False", "OnHold")
    assert "admission" not in admitted.get("Workload", "g")["status"]
    admitted.put(build_pod("c"))
    admitted.run()
    assert quota_reserved(admitted) == ("False", "OnHold")
    assert waiting(admitted) == []
    admitted.put(build_pod("d"))
    admitted.run()
    assert {p["metadata"]["name"] for p in admitted.all("Pod")} == {"c", "d"}
    assert quota_reserved(admitted) == ("False", "PendingEvaluation")
    assert waiting(admitted) == ["ns/g"]
    assert [c["reason"] for c in admitted.get("Workload", "g")["status"]["conditions"] if c["type"] == "Evicted"] == ["Preempted"]


@pytest.mark.parametrize("change", [{"spec": {"active": False}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}])
def test_failed_pods_of_evicted_group_go_when_it_is_not_queued_again(admitted: PodsHarness, change: Json):
    evict(admitted)
    end(admitted, "Failed", "a", "b")
    admitted.run()
    workload = admitted.get("Workload", "g")
    admitted.put({**workload, **{part: {**workload[part], **changed} for part, changed in change.items()}})
    admitted.run()
    assert admitted.all("Pod") == []


def test_pod_of_evicted_group_deleted_by_force_is_not_kept(admitted: PodsHarness):
    """Its kubelet, which may be gone, need not report how it ends. The API server deletes a pod without a node so, too."""
    evict(admitted)
    for each in admitted.all("Pod"):
        admitted.put({**each, "metadata": {**each["metadata"], "deletionGracePeriodSeconds": 0}})
    admitted.run()
    assert admitted.all("Pod") == []


def test_a_workload_that_is_deleted_takes_its_pods_along(admitted: PodsHarness):
    workload = admitted.get("Workload", "g")
    admitted.put({**workload, "metadata": {**workload["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    admitted.run()
    end(admitted, "Failed", "a", "b")
    admitted.run()
    assert admitted.all("Pod") == []
    assert admitted.all("Workload") == []


def test_topology_request_of_a_gated_pod_may_change(harness: PodsHarness):
    harness.put(build_pod("alone", group=None, notes={REQUIRED_TOPOLOGY: "nowhere"}))
    harness.run()
    (workload,) = harness.all("Workload")
    assert workload["spec"]["podSets"][0]["topologyRequest"]["required"] == "nowhere"
    asked = harness.get("Pod", "alone")
    notes = {**asked["metadata"]["annotations"], REQUIRED_TOPOLOGY: "rack"}
    harness.put({**asked, "metadata": {**asked["metadata"], "annotations": notes}})
    harness.run()
    (workload,) = harness.all("Workload")
    assert workload["spec"]["podSets"][0]["topologyRequest"]["required"] == "rack"


def test_pods_that_are_alike_must_ask_for_the_same(harness: PodsHarness):
    harness.put(build_pod("a", notes={REQUIRED_TOPOLOGY: "rack"}))
    harness.put(build_pod("b", notes={REQUIRED_TOPOLOGY: "block"}))
    harness.run()
    assert harness.all("Workload") == []
    named = ("pods a and b of group g", f"{REQUIRED_TOPOLOGY} is rack (pod a), block (pod b)")
    assert all(part in harness.messages[0] for part in named)


def test_pod_group_difference_message_names_pods_and_cuts_long_values(harness: PodsHarness):
    harness.put(build_pod("a", notes={SLICE_CONSTRAINTS: "x" * 200, REQUIRED_TOPOLOGY: "rack"}))
    harness.put(build_pod("b", notes={REQUIRED_TOPOLOGY: "rack"}))
    harness.run()
    (differing,) = [part for part in harness.messages[0].split(": ")[1].split("; ") if " is " in part]
    assert differing == f"{SLICE_CONSTRAINTS} is {'x' * 97}... (pod a), not set (pod b)"


def going(harness: PodsHarness, name: str) -> None:
    """Being deleted; its containers take their time to end, which a finalizer stands for."""
    asked = harness.get("Pod", name)
    metadata = {**asked["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [*asked["metadata"]["finalizers"], "slow"]}
    harness.put({**asked, "metadata": metadata})


def test_a_replacement_of_a_running_pod_starts_when_that_is_gone(admitted: PodsHarness):
    going(admitted, "a")
    admitted.put(build_pod("c"))
    admitted.run()
    assert list_started(admitted) == {"a", "b"}, "a still runs"
    assert list_names(admitted) == {"b", "c"}, "c is no excess, it waits"
    admitted.drop("Pod", "a")
    admitted.run()
    assert list_started(admitted) == {"b", "c"}


def test_ungated_pod_outside_the_admitted_pods_is_deleted_once(admitted: PodsHarness):
    thief = build_pod("thief", cpu="64")
    thief["spec"]["schedulingGates"] = []
    admitted.put(thief)
    going(admitted, "thief")
    admitted.run()
    assert not [event for event in admitted.events if (event.key, event.reason) == ("ns/thief", "Stopped")]


def test_a_pod_that_succeeded_is_remembered_while_its_group_lives_and_goes_with_it(admitted: PodsHarness):
    end(admitted, "Succeeded", "a")
    admitted.delete("Pod", "a")
    admitted.run()
    assert [p["metadata"]["name"] for p in admitted.all("Pod")] == ["a", "b"], "it counts"
    admitted.delete("Pod", "b")
    end(admitted, "Failed", "b")
    admitted.run()
    assert admitted.all("Pod") == []
    assert admitted.all("Workload") == []


def test_a_pod_that_succeeded_goes_where_nothing_was_queued(harness: PodsHarness):
    harness.put(build_pod("a"))
    harness.put(build_pod("other", total=3))
    end(harness, "Succeeded", "a")
    harness.delete("Pod", "a")
    harness.run()
    assert [p["metadata"]["name"] for p in harness.all("Pod")] == ["other"]


@pytest.mark.parametrize("excess", [False, True])
def test_pods_are_deleted_before_event_is_recorded(admitted: PodsHarness, excess: bool):
    seen: list[tuple[str, int]] = []

    def note(request: Request) -> None:
        if request.kind.kind == "Event":
            seen.append((request.body["reason"], len(list_names(admitted))))

    admitted.on_write = note
    if excess:
        for i in range(3):
            admitted.put(build_pod(f"more-{i}"))
    else:
        workload = admitted.get("Workload", "g")
        admitted.put({**workload, "spec": {**workload["spec"], "active": False}})
    admitted.run()
    reason, left = ("ExcessPodDeleted", 2) if excess else ("Stopped", 0)
    assert {count for found, count in seen if found == reason} == {left}


def test_a_group_is_not_called_as_the_workload_of_another(harness: PodsHarness):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    harness.put({"kind": "Workload", "metadata": {"name": "g", "ownerReferences": [owner]}, "spec": {"podSets": []}})
    harness.put(build_pod("a"))
    harness.put(build_pod("b"))
    harness.run()
    assert list_started(harness) == set()
    assert any("name of group g" in message for message in harness.messages)


def test_a_group_that_went_away_before_it_was_whole_is_not_remembered(harness: PodsHarness):
    harness.put(build_pod("a"))
    harness.run()
    assert len(harness.pods._waiting_since) == 1
    gone = find_pod_unit(harness.get("Pod", "a"))
    harness.drop("Pod", "a")
    harness.run(1, gone)
    assert len(harness.pods._waiting_since) == 0


def test_group_of_pods_without_role_hash_keeps_its_roles_when_it_runs(harness: PodsHarness):
    """Former defect: a pod that was marked by another has none, and what a start adds to it changed its role."""
    for name, cpu in (("a", "1"), ("b", "2")):
        made = build_pod(name, cpu=cpu)
        del made["metadata"]["annotations"][ROLE_HASH]
        harness.put(made)
    harness.run()
    (workload,) = harness.all("Workload")
    assert [pod_set["count"] for pod_set in workload["spec"]["podSets"]] == [1, 1]
    admit(harness, "g")
    harness.run()
    bind(harness, "a", "b")
    harness.run()
    assert list_started(harness) == list_names(harness) == {"a", "b"}
    assert "WorkloadRefused" not in {event.reason for event in harness.events}


@pytest.mark.parametrize("is_ready", [True, False], ids=["node is ready", "node is lost"])
def test_pod_that_is_force_deleted_in_the_foreground_holds_its_quota_while_its_node_is_not_lost(harness: PodsHarness, is_ready: bool):
    """The garbage collector keeps it until its Workload is gone, and no kubelet of a lost node says that it has ended."""
    harness.put(build_pod("alone", group=None))
    harness.run()
    [workload] = harness.all("Workload")
    admit(harness, workload["metadata"]["name"])
    harness.run()
    bind(harness, "alone")
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    harness.put({"kind": "Node", "metadata": {"name": "n0"}, "status": {"conditions": conditions}})
    harness.delete("Pod", "alone", propagationPolicy="Foreground", gracePeriodSeconds=0)
    harness.delete("Workload", workload["metadata"]["name"])
    harness.run()
    assert len(harness.all("Pod")) == 1
    assert bool(harness.all("Workload")) == is_ready
