"""Pods alone and in groups on paper: what starts, what never does, and what is told."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, MANAGED, REQUIRED_TOPOLOGY, ROLE_HASH, SLICE_CONSTRAINTS
from core.plan.pod_units import unit_of_pod
from tests.reconciler.paper import Paper
from tests.reconciler.paper_pods import Json, admit, end, names, pod, started


@pytest.fixture
def paper() -> Paper:
    return Paper()


@pytest.fixture
def admitted(paper: Paper) -> Paper:
    """A group of two, running."""
    for name in ("a", "b"):
        paper.put(pod(name))
    paper.run()
    admit(paper, "g")
    paper.run()
    assert started(paper) == {"a", "b"}
    return paper


def test_nothing_is_queued_before_all_are_there_and_after_a_while_it_is_told(paper: Paper):
    paper.put(pod("a", total=3))
    paper.run()
    assert paper.all("Workload") == []
    assert paper.messages == []
    paper.clock.time += 11
    paper.run(1)
    assert paper.messages == ["group g waits for 2 more pods; it is queued when all are there"]
    assert [reason for _, reason, _ in paper.events] == ["WaitingForPods"]


def test_a_group_waits_behind_its_gates_until_it_is_admitted(paper: Paper):
    paper.put(pod("a"))
    paper.put(pod("b"))
    paper.run()
    assert [w["metadata"]["name"] for w in paper.all("Workload")] == ["g"]
    assert started(paper) == set()
    assert paper.get("Workload", "g")["metadata"]["ownerReferences"] == [], "it outlives its first pods"


@pytest.mark.parametrize("size", [100_000, 300_000])
def test_group_of_pods_that_are_too_large_together_is_not_queued(paper: Paper, size: int):
    """Near what etcd takes, their Workload could be admitted, and not be evicted: the conditions of that would not fit."""
    for name, cpu in (("a", "1"), ("b", "2")):
        paper.put(pod(name, cpu=cpu, notes={"example.com/long": "x" * size}))
    paper.run()
    is_queued = bool(paper.all("Workload"))
    assert is_queued == (size == 100_000)
    assert any("is too large: at most 500000 bytes" in message for message in paper.messages) != is_queued


def test_a_start_without_a_topology_takes_both_gates_off(admitted: Paper):
    assert admitted.get("Pod", "a")["spec"]["schedulingGates"] == []
    assert admitted.get("Pod", "a")["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "g"


@pytest.mark.parametrize("many", [1, 5])
def test_pods_beyond_the_total_are_deleted_and_never_start(admitted: Paper, many: int):
    for i in range(many):
        admitted.put(pod(f"more-{i}"))
    admitted.run()
    assert names(admitted) == {"a", "b"}
    assert {reason for key, reason, _ in admitted.events if key.startswith("ns/more")} == {"ExcessPodDeleted"}


def test_pod_beyond_the_total_that_has_a_controller_stays_gated(admitted: Paper):
    """A ReplicaSet would make another at once, and another: two writes for each, without end."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "twenty", "uid": "u", "controller": True}
    admitted.put(pod("more", ownerReferences=[owner]))
    admitted.run()
    assert names(admitted) == {"a", "b", "more"}
    assert started(admitted) == {"a", "b"}
    assert {reason for key, reason, _ in admitted.events if key == "ns/more"} == {"WorkloadRefused"}


def test_a_pod_with_another_total_does_not_change_what_was_admitted(admitted: Paper):
    admitted.put(pod("liar", total=100))
    admitted.run()
    assert started(admitted) == {"a", "b"}
    assert admitted.get("Workload", "g")["spec"]["podSets"][0]["count"] == 2


def test_a_pod_of_another_role_does_not_start_in_a_place_of_an_admitted_one(admitted: Paper):
    end(admitted, "a", "Failed")
    admitted.put(pod("huge", cpu="64"))
    admitted.run()
    assert started(admitted) == {"a", "b"}
    assert any("was admitted without pods like huge" in message for message in admitted.messages)


def test_a_pod_that_asks_for_more_than_its_role_does_not_start(admitted: Paper):
    """Marked by hand, past our webhook: the hash of a small one on a large one."""
    end(admitted, "a", "Failed")
    forged, honest = pod("forged", cpu="64"), pod("any")
    forged["metadata"]["annotations"] = honest["metadata"]["annotations"]
    admitted.put(forged)
    admitted.run()
    assert "forged" not in started(admitted)
    [message] = {message for message in admitted.messages if "stays gated" in message}
    assert "63 cpu more" in message
    assert "admission webhook" in message


def test_a_pod_whose_gate_somebody_took_off_is_deleted_before_it_is_admitted(paper: Paper):
    paper.put(pod("a"))
    thief = pod("b")
    thief["spec"]["schedulingGates"] = []
    paper.put(thief)
    paper.run()
    assert names(paper) == {"a"}


def test_a_failed_pod_is_replaced_and_one_that_succeeded_is_not(admitted: Paper):
    end(admitted, "a", "Failed")
    end(admitted, "b", "Succeeded")
    admitted.put(pod("c"))
    admitted.put(pod("d"))
    admitted.run()
    assert started(admitted) == {"a", "b", "c"}
    assert "d" not in names(admitted)


def test_a_group_ends_when_all_have_succeeded_and_its_finalizers_go(admitted: Paper):
    for name in ("a", "b"):
        end(admitted, name, "Succeeded")
    admitted.run()
    (finished,) = [c for c in admitted.get("Workload", "g")["status"]["conditions"] if c["type"] == "Finished"]
    assert (finished["reason"], finished["message"]) == ("Succeeded", "Pods succeeded: 2/2")
    assert not any(MANAGED in p["metadata"]["finalizers"] for p in admitted.all("Pod"))


def test_the_name_of_a_group_that_is_over_is_free_when_its_pods_are_gone(admitted: Paper):
    for name in ("a", "b"):
        end(admitted, name, "Succeeded")
    admitted.run()
    admitted.put(pod("c"))
    admitted.put(pod("d"))
    admitted.run()
    assert "group g has finished; delete its pods to use its name again" in admitted.messages
    for name in ("a", "b"):
        admitted.drop("Pod", name)
    admitted.run()
    assert "status" not in admitted.get("Workload", "g"), "another one"
    admit(admitted, "g")
    admitted.run()
    assert started(admitted) == {"c", "d"}


def test_a_group_that_may_not_be_retried_ends_with_its_last_pod(paper: Paper):
    for name in ("a", "b"):
        paper.put(pod(name, notes={"kueue.x-k8s.io/retriable-in-group": "false"}))
    paper.run()
    admit(paper, "g")
    paper.run()
    end(paper, "a", "Failed")
    paper.run()
    assert not [c for c in paper.get("Workload", "g")["status"]["conditions"] if c["type"] == "Finished"]
    end(paper, "b", "Succeeded")
    paper.run()
    (finished,) = [c for c in paper.get("Workload", "g")["status"]["conditions"] if c["type"] == "Finished"]
    assert finished["reason"] == "Failed"


def test_deactivated_its_pods_go_then_its_quota(admitted: Paper):
    workload = admitted.get("Workload", "g")
    admitted.put({**workload, "spec": {**workload["spec"], "active": False}})
    admitted.run()
    assert admitted.all("Pod") == []
    assert admitted.all("Workload") == [] or "admission" not in admitted.get("Workload", "g")["status"]


def evict(paper: Paper) -> None:
    """Preempted, with pods that run."""
    workload = paper.get("Workload", "g")
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted for h"}
    paper.put({**workload, "status": {**workload["status"], "conditions": [*workload["status"]["conditions"], evicted]}})
    paper.run()


def quota_reserved(paper: Paper) -> tuple[str, str]:
    (found,) = (c for c in paper.get("Workload", "g")["status"]["conditions"] if c["type"] == "QuotaReserved")
    return found["status"], found["reason"]


def waiting(paper: Paper) -> list[str]:
    return [facts.key for facts in paper.observed.state.workloads.pending()]


def test_evicted_group_keeps_workload_until_all_its_pods_are_replaced(admitted: Paper):
    """Found defect E24: its pods were gone as soon as they had failed, and the Workload with the last of them."""
    evict(admitted)
    assert names(admitted) == set(), "all are deleted"
    assert quota_reserved(admitted)[0] == "True", "they still run"
    for name in ("a", "b"):
        end(admitted, name, "Failed")
    admitted.run()
    assert {p["metadata"]["name"] for p in admitted.all("Pod")} == {"a", "b"}, "what replaces them sees them fail"
    assert quota_reserved(admitted) == ("False", "OnHold")
    assert "admission" not in admitted.get("Workload", "g")["status"]
    admitted.put(pod("c"))
    admitted.run()
    assert quota_reserved(admitted) == ("False", "OnHold")
    assert waiting(admitted) == []
    admitted.put(pod("d"))
    admitted.run()
    assert {p["metadata"]["name"] for p in admitted.all("Pod")} == {"c", "d"}
    assert quota_reserved(admitted) == ("False", "PendingEvaluation")
    assert waiting(admitted) == ["ns/g"]
    assert [c["reason"] for c in admitted.get("Workload", "g")["status"]["conditions"] if c["type"] == "Evicted"] == ["Preempted"]


@pytest.mark.parametrize("change", [{"spec": {"active": False}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}])
def test_failed_pods_of_evicted_group_go_when_it_is_not_queued_again(admitted: Paper, change: Json):
    evict(admitted)
    for name in ("a", "b"):
        end(admitted, name, "Failed")
    admitted.run()
    workload = admitted.get("Workload", "g")
    admitted.put({**workload, **{part: {**workload[part], **changed} for part, changed in change.items()}})
    admitted.run()
    assert admitted.all("Pod") == []


def test_pod_of_evicted_group_deleted_by_force_is_not_kept(admitted: Paper):
    """Its kubelet, which may be gone, need not report how it ends. The API server deletes a pod without a node so, too."""
    evict(admitted)
    for each in admitted.all("Pod"):
        admitted.put({**each, "metadata": {**each["metadata"], "deletionGracePeriodSeconds": 0}})
    admitted.run()
    assert admitted.all("Pod") == []


def test_a_workload_that_is_deleted_takes_its_pods_along(admitted: Paper):
    workload = admitted.get("Workload", "g")
    admitted.put({**workload, "metadata": {**workload["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    admitted.run()
    assert admitted.all("Pod") == []
    assert admitted.all("Workload") == []


def test_what_a_gated_pod_asks_for_may_change(paper: Paper):
    paper.put(pod("alone", group=None, notes={REQUIRED_TOPOLOGY: "nowhere"}))
    paper.run()
    (workload,) = paper.all("Workload")
    assert workload["spec"]["podSets"][0]["topologyRequest"]["required"] == "nowhere"
    asked = paper.get("Pod", "alone")
    notes = {**asked["metadata"]["annotations"], REQUIRED_TOPOLOGY: "rack"}
    paper.put({**asked, "metadata": {**asked["metadata"], "annotations": notes}})
    paper.run()
    (workload,) = paper.all("Workload")
    assert workload["spec"]["podSets"][0]["topologyRequest"]["required"] == "rack"


def test_pods_that_are_alike_must_ask_for_the_same(paper: Paper):
    paper.put(pod("a", notes={REQUIRED_TOPOLOGY: "rack"}))
    paper.put(pod("b", notes={REQUIRED_TOPOLOGY: "block"}))
    paper.run()
    assert paper.all("Workload") == []
    assert paper.messages[0] == (
        "pods a and b of group g are alike, but ask for different topologies: "
        f"{REQUIRED_TOPOLOGY} is rack (pod a), block (pod b); delete those that are wrong"
    )


def test_it_is_told_which_pod_asks_for_nothing_and_long_values_are_cut(paper: Paper):
    paper.put(pod("a", notes={SLICE_CONSTRAINTS: "x" * 200, REQUIRED_TOPOLOGY: "rack"}))
    paper.put(pod("b", notes={REQUIRED_TOPOLOGY: "rack"}))
    paper.run()
    (differing,) = [part for part in paper.messages[0].split(": ")[1].split("; ") if " is " in part]
    assert differing == f"{SLICE_CONSTRAINTS} is {'x' * 97}... (pod a), not set (pod b)"


def going(paper: Paper, name: str) -> None:
    """Being deleted; its containers take their time to end, which a finalizer stands for."""
    asked = paper.get("Pod", name)
    metadata = {**asked["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [*asked["metadata"]["finalizers"], "slow"]}
    paper.put({**asked, "metadata": metadata})


def test_a_replacement_of_a_running_pod_starts_when_that_is_gone(admitted: Paper):
    going(admitted, "a")
    admitted.put(pod("c"))
    admitted.run()
    assert started(admitted) == {"a", "b"}, "a still runs"
    assert names(admitted) == {"b", "c"}, "c is no excess, it waits"
    admitted.drop("Pod", "a")
    admitted.run()
    assert started(admitted) == {"b", "c"}


def test_a_pod_that_is_no_part_of_what_was_admitted_is_deleted_once(admitted: Paper):
    thief = pod("thief", cpu="64")
    thief["spec"]["schedulingGates"] = []
    admitted.put(thief)
    going(admitted, "thief")
    admitted.run()
    assert not [reason for key, reason, _ in admitted.events if key == "ns/thief" and reason == "Stopped"]


def test_a_pod_that_succeeded_is_remembered_while_its_group_lives_and_goes_with_it(admitted: Paper):
    end(admitted, "a", "Succeeded")
    admitted.delete("Pod", "a")
    admitted.run()
    assert [p["metadata"]["name"] for p in admitted.all("Pod")] == ["a", "b"], "it counts"
    admitted.delete("Pod", "b")
    admitted.run()
    assert admitted.all("Pod") == []
    assert admitted.all("Workload") == []


def test_a_pod_that_succeeded_goes_where_nothing_was_queued(paper: Paper):
    paper.put(pod("a"))
    paper.put(pod("other", total=3))
    end(paper, "a", "Succeeded")
    paper.delete("Pod", "a")
    paper.run()
    assert [p["metadata"]["name"] for p in paper.all("Pod")] == ["other"]


@pytest.mark.parametrize("excess", [False, True])
def test_pods_are_deleted_before_anyone_is_told(admitted: Paper, monkeypatch: pytest.MonkeyPatch, excess: bool):
    seen: list[tuple[str, int]] = []
    tell = admitted.event

    async def event(resource: Any, obj: Json, reason: str, message: str, *, warning: bool = False) -> None:
        seen.append((reason, len(names(admitted))))
        await tell(resource, obj, reason, message, warning=warning)

    monkeypatch.setattr(admitted, "event", event)
    if excess:
        for i in range(3):
            admitted.put(pod(f"more-{i}"))
    else:
        workload = admitted.get("Workload", "g")
        admitted.put({**workload, "spec": {**workload["spec"], "active": False}})
    admitted.run()
    reason, left = ("ExcessPodDeleted", 2) if excess else ("Stopped", 0)
    assert {count for told, count in seen if told == reason} == {left}


def test_a_group_is_not_called_as_the_workload_of_another(paper: Paper):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    paper.put({"kind": "Workload", "metadata": {"name": "g", "ownerReferences": [owner]}, "spec": {"podSets": []}})
    paper.put(pod("a"))
    paper.put(pod("b"))
    paper.run()
    assert started(paper) == set()
    assert "the name of group g is that of the Workload of another; choose another name" in paper.messages


def test_a_group_that_went_away_before_it_was_whole_is_not_remembered(paper: Paper):
    paper.put(pod("a"))
    paper.run()
    assert len(paper.pods._wanted) == 1
    gone = unit_of_pod(paper.get("Pod", "a"))
    paper.drop("Pod", "a")
    paper.run(1, gone)
    assert len(paper.pods._wanted) == 0


def test_group_of_pods_without_role_hash_keeps_its_roles_when_it_runs(paper: Paper):
    """Found defect E24: a pod that was marked by another has none, and what a start adds to it changed its role."""
    for name, cpu in (("a", "1"), ("b", "2")):
        made = pod(name, cpu=cpu)
        del made["metadata"]["annotations"][ROLE_HASH]
        paper.put(made)
    paper.run()
    (workload,) = paper.all("Workload")
    assert [pod_set["count"] for pod_set in workload["spec"]["podSets"]] == [1, 1]
    admit(paper, "g")
    paper.run()
    for name in "ab":
        bound = paper.get("Pod", name)
        paper.put({**bound, "spec": {**bound["spec"], "nodeSelector": {HOSTNAME_LABEL: "n0"}, "nodeName": "n0"}})
    paper.run()
    assert started(paper) == names(paper) == {"a", "b"}
    assert "WorkloadRefused" not in {reason for _, reason, _ in paper.events}
