"""Pods that wait and are to go: one that is bound meanwhile runs on, one that has changed otherwise goes, and one that must not be changed
keeps nothing else from being done."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.node_health_rules import HealthRules
from core.names import HOSTNAME_LABEL
from core.plan.steps.steps import make_plan
from core.plan.workloads.verdict_steps import end_stuck
from core.runtime.controller import RequeueAfter
from core.runtime.http.errors import Conflict, Forbidden
from reconciler.nodes.stuck_pods import find_moved
from sim.apiserver.server import Refused, Request
from sim.harness import Harness
from tests.builders import Node, build_node_json
from tests.reconciler.harness_nodes import KEY, NodesHarness
from tests.reconciler.pods.test_ungater import Ungated, build_pod, build_workload

DELAY_S = HealthRules().unschedulable_delay_s


def bind_other(harness: Harness) -> None:
    """Has the other one of two pods that wait be bound, and seen so, while the first is written."""
    waiting = {each["metadata"]["name"]: each for each in harness.all("Pod") if not each["spec"].get("nodeName")}

    def note(request: Request) -> None:
        if waiting.pop(request.name, None) is not None:
            for other in waiting.values():
                spec = {**other["spec"], "nodeName": other["spec"]["nodeSelector"][HOSTNAME_LABEL]}
                harness.put({**other, "spec": spec, "status": {"phase": "Running"}})
            waiting.clear()

    harness.on_write = note


def change_before(harness: Harness, name: str, times: int = 1) -> None:
    """Has a pod be changed just before it is written, and not be seen so."""
    left = [None] * times

    def note(request: Request) -> None:
        if request.name == name and left:
            left.pop()
            found = harness.get("Pod", name)
            changed = {**found["metadata"], "labels": {**found["metadata"]["labels"], "changed": str(len(left))}}
            harness.put({**found, "metadata": changed})

    harness.late = {"Pod"}
    harness.on_write = note


def refuse(harness: Harness, name: str) -> None:
    """Has a policy refuse whatever is written of a pod."""

    def note(request: Request) -> None:
        if request.kind.kind == "Pod" and request.name == name:
            raise Refused(403, "Forbidden", "a policy says no")

    harness.on_write = note


def lose_nodes(cordoned: bool = True) -> NodesHarness:
    """Two nodes that are lost for a workload, and a pod that waits for each."""
    harness = NodesHarness()
    for name in ("n0", "n1"):
        harness.node(name, unschedulable=cordoned)
    harness.workload("n0", "n1")
    for name in ("n0", "n1"):
        refused: dict[str, Any] = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
        refused["lastTransitionTime"] = harness.now()
        harness.pod(f"for-{name}", pinned=name, phase="Pending", conditions=[refused])
    return harness


def read_phases(harness: Harness) -> dict[str, str]:
    """By name of a pod; `Ending` of one that is being deleted."""
    return {p["metadata"]["name"]: "Ending" if p["metadata"].get("deletionTimestamp") else p["status"]["phase"] for p in harness.all("Pod")}


@pytest.mark.parametrize("cordoned", [False, True])
def test_pod_that_is_bound_while_another_is_ended_runs_on(cordoned: bool):
    """By a review: where the waiting pod alone showed that its node is lost, the node was not named, and its place was given out again."""
    harness = lose_nodes(cordoned)
    harness.clock.time += 0 if cordoned else DELAY_S
    bind_other(harness)
    assert isinstance(harness.look(), RequeueAfter)
    assert sorted(read_phases(harness).values()) == ["Failed", "Running"]
    [ended] = [name for name, phase in read_phases(harness).items() if phase == "Failed"]
    assert harness.unhealthy == [ended.removeprefix("for-")]


def test_pod_that_has_changed_and_still_waits_is_ended_and_its_node_named():
    harness = lose_nodes()
    change_before(harness, "for-n0")
    harness.look()
    assert read_phases(harness) == {"for-n0": "Failed", "for-n1": "Failed"}
    assert harness.unhealthy == ["n0", "n1"]


@pytest.mark.parametrize("cordoned", [False, True])
def test_pod_that_changes_all_the_time_keeps_no_other_pod_from_being_ended_and_its_node_from_being_named(cordoned: bool):
    harness = lose_nodes(cordoned)
    harness.clock.time += 0 if cordoned else DELAY_S
    change_before(harness, "for-n0", times=100)
    assert isinstance(harness.look(), RequeueAfter)
    assert read_phases(harness)["for-n1"] == "Failed"
    assert harness.unhealthy == ["n1"]


def test_all_pods_that_wait_for_lost_nodes_are_ended_before_these_are_named():
    """By a review: what showed that the nodes of the first are lost had ended with these when the others' were named."""
    harness = lose_nodes(cordoned=False)
    harness.clock.time += DELAY_S
    harness.look()
    assert read_phases(harness) == {"for-n0": "Failed", "for-n1": "Failed"}
    assert harness.unhealthy == ["n0", "n1"]


def test_pod_of_the_same_name_that_has_come_meanwhile_is_not_ended():
    harness = lose_nodes()
    waiting = {each["metadata"]["name"]: each for each in harness.all("Pod")}

    def replace_other(request: Request) -> None:
        if waiting.pop(request.name, None) is not None:
            for other in waiting.values():
                harness.put({**other, "metadata": {**other["metadata"], "uid": "another"}})
            waiting.clear()

    harness.on_write = replace_other
    harness.look()
    assert sorted(read_phases(harness).values()) == ["Failed", "Pending"]
    assert harness.unhealthy == ["n0", "n1"]


def test_lost_nodes_are_named_where_a_policy_keeps_a_pod_from_being_ended():
    harness = lose_nodes()
    refuse(harness, "for-n0")
    with pytest.raises(Forbidden):
        harness.look()
    assert harness.unhealthy == ["n0", "n1"]
    assert read_phases(harness) == {"for-n0": "Pending", "for-n1": "Failed"}


def test_node_is_named_though_its_workload_was_changed_while_pods_were_ended():
    """Only the pod that was ended had said that its node does not take it."""
    harness = lose_nodes(cordoned=False)
    harness.clock.time += DELAY_S

    def change_workload(request: Request) -> None:
        if request.name == "for-n0":
            found = harness.get("Workload", "w")
            harness.put({**found, "metadata": {**found["metadata"], "labels": {"changed": "yes"}}})

    harness.on_write = change_workload
    harness.look()
    assert harness.unhealthy == ["n0", "n1"]
    assert read_phases(harness) == {"for-n0": "Failed", "for-n1": "Failed"}


def make_strays() -> Ungated:
    """Two pods that wait for a node which their workload's assignment does not name."""
    harness = Ungated()
    harness.put({"kind": "Node", **build_node_json(Node("other", {HOSTNAME_LABEL: "other"}, {"cpu": 1}))})
    harness.put(build_workload())
    for index in range(2):
        harness.put({**build_pod(index), "spec": {"nodeSelector": {HOSTNAME_LABEL: "other"}}, "status": {"phase": "Pending"}})
    return harness


def test_pod_of_another_assignment_that_is_bound_while_another_is_deleted_runs_on():
    harness = make_strays()
    bind_other(harness)
    harness.reconcile()
    assert list(read_phases(harness).values()) == ["Running"]


def test_pods_are_ungated_where_a_policy_keeps_a_stray_from_being_deleted():
    harness = make_strays()
    harness.put(build_pod(1))
    refuse(harness, "p0")
    with pytest.raises(Forbidden):
        harness.reconcile()
    assert harness.ungated == ["p1"]


def make_waiting() -> NodesHarness:
    """A pod that runs, and two that wait for their nodes."""
    harness = NodesHarness()
    for name in ("n0", "n1", "n2", "n3", "n4"):
        harness.node(name)
    harness.workload("n0", "n1", "n2")
    harness.pod("runs", "n0")
    harness.pod("waits", pinned="n1", phase="Pending")
    harness.pod("waits-too", pinned="n2", phase="Pending")
    return harness


def delete_moved(harness: NodesHarness) -> None:
    """Deletes pods before their places on other nodes are written."""
    state = harness.observed.state.workloads
    facts = state.facts[KEY]
    harness.workload("n0", "n3", "n4")
    admission = state.facts[KEY].admission
    assert admission is not None
    moved = find_moved(harness.observed, facts, admission)
    harness.wait_for(harness.executor.execute(make_plan(*end_stuck(moved))))


def test_stuck_pod_that_is_bound_while_another_is_deleted_runs_on():
    harness = make_waiting()
    bind_other(harness)
    with pytest.raises(Conflict):
        delete_moved(harness)
    assert read_phases(harness) == {"runs": "Running", "waits-too": "Running"}


def test_stuck_pod_that_has_changed_and_still_waits_is_deleted():
    harness = make_waiting()
    change_before(harness, "waits")
    delete_moved(harness)
    assert read_phases(harness) == {"runs": "Running"}
