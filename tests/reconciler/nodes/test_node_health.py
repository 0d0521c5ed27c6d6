"""What is said of nodes, and what is done to pods, by what is seen; time is set by hand."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.node_health_rules import HealthRules, StormRules
from core.plan.pods.node_health import NodeVerdict, judge_node
from core.plan.steps import pacing
from core.plan.workloads.requeue import count_in_a_row
from core.runtime.controller import Done, RequeueAfter, Result
from reconciler.nodes import node_health
from tests.reconciler.harness_nodes import OWNER, STRICT_STORMS, NodesHarness


def spread(harness: NodesHarness, nodes: int = 4) -> list[str]:
    """A workload with a running pod on each of some nodes, in two racks."""
    names = [f"n{i}" for i in range(nodes)]
    for i, name in enumerate(names):
        harness.node(name, rack=f"r{i % 2}")
    harness.workload(*names)
    for name in names:
        harness.pod(f"on-{name}", name)
    return names


def test_while_all_is_well_nothing_is_written():
    harness = NodesHarness()
    spread(harness)
    assert harness.look() == Done()
    assert (harness.statuses, harness.ended, harness.told) == ([], [], [])


def test_all_lost_nodes_are_named_in_one_write():
    harness = NodesHarness()
    spread(harness)
    for name in ("n1", "n3"):
        harness.node(name, ready=False, rack="r1")
        harness.pod(f"on-{name}", name, ending=True)
    harness.lose("n2")
    harness.look()
    assert len(harness.statuses) == 1
    assert harness.unhealthy == ["n1", "n2", "n3"]
    why = {"n1": "it is not ready", "n2": "it is gone", "n3": "it is not ready"}
    assert harness.told == [("NodeUnhealthy", f"node {name}: {said}") for name, said in why.items()]


def test_node_that_cannot_be_judged_leaves_other_nodes_to_be_reported(monkeypatch: pytest.MonkeyPatch):
    """Former defect: one date out of range, and no lost node of the workload was replaced."""

    def judge(node: dict[str, Any] | None, *rest: Any) -> NodeVerdict:
        if node is not None and node["metadata"]["name"] == "n0":
            raise OverflowError("date value out of range")
        return judge_node(node, *rest)

    harness = NodesHarness()
    spread(harness)
    for name in ("n0", "n1"):
        harness.node(name, ready=False, rack="r0")
        harness.pod(f"on-{name}", name, ending=True)
    monkeypatch.setattr(node_health, "judge_node", judge)
    harness.look()
    assert harness.unhealthy == ["n1"]


def test_a_node_that_is_well_again_is_taken_out():
    harness = NodesHarness()
    names = spread(harness)
    harness.workload(*names, unhealthy=["n1"])
    harness.look()
    assert harness.unhealthy == []


def test_unhealthy_node_that_is_already_in_the_status_is_not_written_again():
    harness = NodesHarness()
    names = spread(harness)
    harness.lose("n1")
    harness.workload(*names, unhealthy=["n1"])
    harness.look()
    assert harness.statuses == []


def test_a_pod_that_is_all_of_its_workload_ends_with_its_node_and_nothing_is_replaced():
    """Nobody makes it anew: named as lost it would be placed where it is, and named again, for ever."""
    harness = NodesHarness(owner={**OWNER, "apiVersion": "v1", "kind": "Pod"})
    harness.node("n0")
    harness.workload("n0")
    harness.pod("job", "n0", ending=True)
    harness.lose("n0")
    harness.look()
    assert harness.statuses == []


def test_a_share_is_one_of_all_nodes_that_a_workload_has():
    harness = NodesHarness(HealthRules(max_share=0.5))
    names = spread(harness, 4)
    harness.lose("n1")
    harness.lose("n2")
    harness.look()
    assert harness.unhealthy == ["n1", "n2"]
    harness.workload(*names, unhealthy=["n1", "n2"])
    harness.lose("n3")
    harness.look()
    (reason, message) = harness.told[-1]
    assert reason == "EvictedDueToNodeFailures"
    assert all(part in message for part in ("3 of 4", "nodeReplacement.maxShare is 0.5", "n1 (", "n2 (", "n3 ("))
    assert count_in_a_row({"metadata": {}, "status": harness.statuses[-1]}) == 1


def test_a_hostname_that_is_not_the_nodes_name():
    harness = NodesHarness()
    harness.node("machine-7", host="h7")
    harness.workload("h7")
    harness.pod("p", "machine-7")
    assert harness.look() == Done()
    harness.node("machine-7", host="h7", ready=False)
    harness.pod("p", "machine-7", ending=True)
    harness.look()
    assert harness.unhealthy == ["machine-7"]


def test_node_in_another_rack_with_the_same_hostname_is_not_judged_in_place_of_the_assigned_one():
    """Found by seed 717: the other node was cordoned. It was reported, the same place was found again, and so on twice a second."""
    harness = NodesHarness()
    harness.node("h7", rack="r1", unschedulable=True)
    harness.node("twin", host="h7", rack="r0")
    harness.workload("h7", rack="r0")
    assert harness.look() == Done()
    assert harness.statuses == []
    harness.node("twin", host="h7", rack="r0", ready=False)
    harness.pod("p", "twin", pinned="h7", ending=True)
    harness.look()
    assert harness.unhealthy == ["twin"]


def test_lost_node_that_is_no_longer_named_though_its_place_is_the_same_is_reported_again_after_a_while():
    """Whatever the reason for which the same place is found: two writes each half a second for ever are none."""
    harness = NodesHarness()
    names = spread(harness)
    harness.lose("n1")
    harness.look()
    assert harness.unhealthy == ["n1"]
    harness.workload(*names)
    assert harness.look() == RequeueAfter(pacing.LOST_AGAIN_S)
    assert len(harness.statuses) == 1
    harness.clock.time += pacing.LOST_AGAIN_S
    harness.look()
    assert len(harness.statuses) == 2


def test_lost_node_is_reported_at_once_where_the_place_is_another_or_the_node_was_well_in_between():
    harness = NodesHarness()
    names = spread(harness)
    harness.lose("n1")
    harness.look()
    harness.workload(*names[1:])
    harness.look()
    assert len(harness.statuses) == 2
    harness.workload(*names[1:], unhealthy=["n1"])
    harness.node("n1")
    harness.look()
    assert harness.unhealthy == []
    harness.workload(*names[1:])
    harness.lose("n1")
    harness.look()
    assert harness.unhealthy == ["n1"]


def test_pods_on_both_nodes_with_one_hostname_are_judged_each_by_its_own_node():
    harness = NodesHarness()
    for lost, other in (("h7", "twin"), ("twin", "h7")):
        harness.node("h7", rack="r1", ready=lost != "h7")
        harness.node("twin", host="h7", rack="r0", ready=lost != "twin")
        harness.workload("h7", "h7", racks=("r1", "r0"))
        harness.pod("on-h7", "h7", pinned="h7", ending=lost == "h7")
        harness.pod("on-twin", "twin", pinned="h7", ending=lost == "twin")
        harness.look()
        assert harness.unhealthy == [lost], other


@pytest.mark.parametrize("lost", ["h7", "twin"])
def test_node_that_is_gone_is_no_other_node_with_its_hostname(lost: str):
    """Review 29: the other one stood in for it, so that nothing was reported."""
    harness = NodesHarness()
    harness.node("h7", rack="r1")
    harness.node("twin", host="h7", rack="r0")
    harness.workload("h7", rack="r1" if lost == "h7" else "r0")
    harness.pod("p", lost, pinned="h7")
    assert harness.look() == Done()
    harness.lose(lost)
    harness.drop("Pod", "p")
    harness.look()
    assert harness.unhealthy == ["h7"]
    ((reason, message),) = harness.told
    assert reason == "NodeUnhealthy"
    assert "node h7" in message


@pytest.mark.parametrize("state", [{"unschedulable": True}, {"ready": False}])
def test_node_that_is_named_like_the_hostname_of_another_is_not_judged_in_its_place(state: dict[str, Any]):
    """Review 29: the workload has n0, whose hostname is n1, and node n1 was judged."""
    harness = NodesHarness()
    harness.node("n0", host="n1")
    harness.node("n1", host="n2")
    harness.workload("n1")
    harness.pod("p", "n0", pinned="n1")
    assert harness.look() == Done()
    harness.node("n1", host="n2", **state)
    assert harness.look() == Done()
    assert harness.statuses == []
    harness.lose("n0")
    harness.drop("Pod", "p")
    harness.look()
    assert harness.unhealthy == ["n1"]


@pytest.mark.parametrize("time", ["2026-01-02T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_node_with_a_clock_that_is_ahead_is_lost_as_long_after_it_was_seen_not_ready_as_any_other(time: str):
    """Former defect: the job waited for as long as that clock was ahead."""
    harness = NodesHarness()
    for name in ("n0", "n1"):
        harness.node(name)
    harness.workload("n0", "n1")
    harness.pod("on-n1", "n1")
    harness.node("n0", ready=False, since=time)
    assert harness.look() == RequeueAfter(30.0)
    harness.clock.time += 20
    harness.node("n0", ready=False, since=time, unschedulable=True)  # it is seen again
    assert harness.unhealthy is None
    harness.clock.time += 10
    harness.look()
    assert harness.unhealthy == ["n0"]
    harness.node("n0")
    harness.look()
    assert harness.unhealthy == []


def test_node_with_a_clock_that_is_behind_is_not_lost_sooner_than_any_other():
    """Former defect: a place that no pod had taken yet was lost at the first flap."""
    harness = NodesHarness()
    for name in ("n0", "n1"):
        harness.node(name)
    harness.workload("n0", "n1")
    harness.pod("on-n1", "n1")
    harness.node("n0", ready=False, since="2020-01-01T00:00:00Z")
    assert harness.look() == RequeueAfter(30.0)
    harness.clock.time += 30
    harness.look()
    assert harness.unhealthy == ["n0"]


def test_report_of_lost_nodes_of_a_workload_that_is_deleted_meanwhile_is_not_kept(monkeypatch: pytest.MonkeyPatch):
    harness = NodesHarness()
    spread(harness)
    harness.lose("n1")
    execute = harness.executor.execute

    async def delete(*asked: Any) -> Result:
        result = await execute(*asked)
        if harness.all("Workload"):
            harness.drop("Workload", "w")
        return result

    monkeypatch.setattr(harness.executor, "execute", delete)
    harness.look()
    assert harness.health._users.reported == {}
    assert harness.health._users.placed == {}


def test_deleted_node_is_reported_by_its_hostname_label():
    """Told by its own name it was known to no assignment: its pods waited for another place until the reconciler was started anew."""
    harness = NodesHarness()
    harness.node("machine-7", host="h7")
    harness.workload("h7")
    harness.pod("p", "machine-7")
    harness.lose("machine-7")
    harness.look()
    assert harness.unhealthy == ["h7"]
    harness.workload("h7", unhealthy=["h7"])
    assert harness.look() == Done()
    assert len(harness.statuses) == 1


def test_a_flap_before_the_pods_are_bound_changes_nothing_and_a_failure_does():
    harness = NodesHarness()
    harness.node("n0")
    harness.workload("n0")
    harness.pod("waiting", pinned="n0", phase="Pending")
    harness.clock.time += 1
    harness.node("n0", ready=False)
    assert harness.look() == RequeueAfter(30.0)
    assert (harness.statuses, harness.ended) == ([], [])
    harness.clock.time += 30
    harness.look()
    assert (harness.unhealthy, harness.ended) == (["n0"], ["waiting"])


def test_the_taints_that_kubernetes_gives_a_node_that_is_not_ready_make_no_loss_of_a_flap():
    """A second after its condition, and taken off as long after it."""
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")]
    harness = NodesHarness()
    harness.node("n0")
    harness.workload("n0")
    harness.pod("waiting", pinned="n0", phase="Pending")
    harness.node("n0", ready=False, taints=taints)
    assert harness.look() == RequeueAfter(30.0)
    harness.clock.time += 10
    harness.node("n0", taints=taints)
    assert harness.look() == Done()
    assert (harness.statuses, harness.ended) == ([], [])


def test_unready_node_of_a_deleted_pod_is_lost_at_once():
    harness = NodesHarness()
    spread(harness)
    harness.node("n1", ready=False, rack="r1")
    harness.drop("Pod", "on-n1")
    harness.look()
    assert harness.unhealthy == ["n1"]


def test_unschedulable_counts_from_when_the_scheduler_said_so_and_not_from_when_the_gate_did():
    """The API keeps one time for both."""
    harness = NodesHarness()
    harness.node("n0")
    harness.workload("n0")
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    refused["lastTransitionTime"] = harness.now()
    harness.clock.time += 600
    harness.pod("waiting", pinned="n0", phase="Pending", conditions=[refused])
    assert harness.look() == RequeueAfter(60.0)
    harness.clock.time += 60
    harness.look()
    assert harness.unhealthy == ["n0"]
    assert any(
        reason == "NodeUnhealthy" and all(part in message for part in ("node n0", "pod waiting", "0/1 nodes"))
        for reason, message in harness.told
    )


def test_a_taint_without_a_time_counts_from_when_it_was_seen():
    harness = NodesHarness(HealthRules(on_pod_termination=False))
    harness.node("n0")
    harness.workload("n0")
    harness.pod("p", "n0")
    harness.node("n0", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
    assert harness.look() == RequeueAfter(300.0)
    harness.clock.time += 100
    assert harness.look() == RequeueAfter(200.0)
    harness.clock.time += 200
    harness.look()
    assert harness.unhealthy == ["n0"]


def test_in_a_storm_no_node_is_lost_until_all_that_it_took_are_back():
    harness = NodesHarness(HealthRules(storm=STRICT_STORMS))
    names = spread(harness, 10)
    for i, name in enumerate(names[:5]):
        harness.node(name, ready=False, rack=f"r{i % 2}")
        harness.pod(f"on-{name}", name, ending=True)
    assert isinstance(harness.look(), RequeueAfter)
    harness.clock.time += 1
    for i, name in enumerate(names[:4]):
        harness.node(name, rack=f"r{i % 2}")
    assert isinstance(harness.look(), RequeueAfter)  # one of ten is no storm by itself, but this one is not over
    assert harness.statuses == []
    harness.clock.time += 1800
    harness.look()
    assert harness.unhealthy == ["n4"]


@pytest.mark.parametrize("on_pod_termination", [True, False])
@pytest.mark.parametrize("storms", [True, False])
def test_six_of_ten_nodes_that_are_away_for_90_s_while_their_pods_run(on_pod_termination: bool, storms: bool):
    """Nobody is evicted or moved. Where time alone makes a loss it is the storm that keeps it back."""
    storm = StormRules() if storms else StormRules(share=1)
    harness = NodesHarness(HealthRules(on_pod_termination=on_pod_termination, storm=storm))
    names = spread(harness, 10)
    away = {name: f"r{i % 2}" for i, name in enumerate(names[:6])}
    for name, rack in away.items():
        taints = [
            {"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": harness.now()}
            for effect in ("NoSchedule", "NoExecute")
        ]
        harness.node(name, ready=False, taints=taints, rack=rack)
    for _ in range(9):
        harness.look()
        harness.clock.time += 10
    for name, rack in away.items():
        harness.node(name, rack=rack)
    assert harness.look() == Done()
    if on_pod_termination or storms:
        assert (harness.statuses, harness.ended, harness.told) == ([], [], [])
    else:
        assert harness.told, "by time alone they were lost"


def test_a_rack_that_goes_as_a_whole_is_no_storm():
    harness = NodesHarness(HealthRules(storm=STRICT_STORMS))
    names = spread(harness, 10)
    for name in names[::2]:
        harness.node(name, ready=False, rack="r0")
        harness.pod(f"on-{name}", name, ending=True)
    harness.look()
    assert harness.unhealthy == names[::2]


def test_pods_of_a_workload_without_an_admission_that_have_a_place_are_ended():
    harness = NodesHarness()
    harness.node("n0")
    harness.workload("n0")
    harness.pod("waiting", pinned="n9", phase="Pending")
    harness.look()
    assert (harness.ended, harness.statuses) == (["waiting"], [])


def test_pod_pinned_to_a_cordoned_node_by_its_user_is_not_ended():
    """In a flavor without a topology, where nothing is assigned: each of them looked like one that waits for a node of no use."""
    harness = NodesHarness()
    harness.node("n9", unschedulable=True)
    harness.workload()
    harness.pod("waiting", pinned="n9", by_us=False, phase="Pending")
    harness.look()
    assert (harness.ended, harness.statuses) == ([], [])


@pytest.mark.parametrize("is_admitted", [True, False])
def test_pods_ungated_by_kueue_outside_of_the_assignment_are_ended(is_admitted: bool):
    """Former defect: without coordinates of topogate's they were taken for pods that their user had pinned."""
    harness = NodesHarness()
    harness.node("n0")
    harness.node("n9")
    harness.workload("n0", is_admitted=is_admitted)
    harness.pod("inside", pinned="n0", by_us=False, phase="Pending")
    harness.pod("outside", pinned="n9", by_us=False, phase="Pending")
    harness.look()
    assert sorted(harness.ended) == (["outside"] if is_admitted else ["inside", "outside"])


def test_pods_that_wait_on_the_host_of_their_template_are_not_ended():
    harness = NodesHarness()
    harness.node("n0")
    harness.workload("n0", host_in_template="n9")
    harness.pod("waiting", pinned="n9", by_us=False, phase="Pending")
    harness.look()
    assert harness.ended == []


def test_node_that_is_gone_is_given_its_time_when_another_event_brings_a_look():
    """Another node of the workload fails in the seconds in which the first one may be made anew."""
    harness = NodesHarness()
    spread(harness, 2)
    harness.drop("Node", "n0")
    harness.node("n1", ready=False, rack="r1")
    assert isinstance(harness.look(), RequeueAfter)
    assert harness.statuses == []
    harness.clock.time += pacing.NODE_GONE_S
    harness.look()
    assert harness.unhealthy == ["n0"]
