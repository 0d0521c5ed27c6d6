"""What is said of nodes, and what is done to pods, by what is seen; time is set by hand."""

from __future__ import annotations

import pytest

from core.model.node_health import HealthRules, StormRules
from core.plan.requeue import count_in_a_row
from core.runtime.controller import Done, RequeueAfter
from tests.reconciler.paper_nodes import OWNER, STRICT_STORMS, PaperNodes


def spread(paper: PaperNodes, nodes: int = 4) -> list[str]:
    """A workload with a running pod on each of some nodes, in two racks."""
    names = [f"n{i}" for i in range(nodes)]
    for i, name in enumerate(names):
        paper.node(name, rack=f"r{i % 2}")
    paper.workload(*names)
    for name in names:
        paper.pod(f"on-{name}", name)
    return names


def test_while_all_is_well_nothing_is_written():
    paper = PaperNodes()
    spread(paper)
    assert paper.look() == Done()
    assert (paper.statuses, paper.ended, paper.events) == ([], [], [])


def test_all_lost_nodes_are_named_in_one_write():
    paper = PaperNodes()
    spread(paper)
    for name in ("n1", "n3"):
        paper.node(name, ready=False, rack="r1")
        paper.pod(f"on-{name}", name, ending=True)
    paper.drop_node("n2")
    paper.look()
    assert len(paper.statuses) == 1
    assert paper.unhealthy == ["n1", "n2", "n3"]
    why = {"n1": "it is not ready", "n2": "it is gone", "n3": "it is not ready"}
    assert paper.events == [("NodeUnhealthy", f"node {name}: {said}") for name, said in why.items()]


def test_a_node_that_is_well_again_is_taken_out():
    paper = PaperNodes()
    names = spread(paper)
    paper.workload(*names, unhealthy=["n1"])
    paper.look()
    assert paper.unhealthy == []


def test_what_is_said_already_is_not_said_again():
    paper = PaperNodes()
    names = spread(paper)
    paper.drop_node("n1")
    paper.workload(*names, unhealthy=["n1"])
    paper.look()
    assert paper.statuses == []


def test_a_pod_that_is_all_of_its_workload_ends_with_its_node_and_nothing_is_replaced():
    """Nobody makes it anew: named as lost it would be placed where it is, and named again, for ever."""
    paper = PaperNodes(owner={**OWNER, "apiVersion": "v1", "kind": "Pod"})
    paper.node("n0")
    paper.workload("n0")
    paper.pod("job", "n0", ending=True)
    paper.drop_node("n0")
    paper.look()
    assert paper.statuses == []


def test_a_share_is_one_of_all_nodes_that_a_workload_has():
    paper = PaperNodes(HealthRules(max_share=0.5))
    names = spread(paper, 4)
    paper.drop_node("n1")
    paper.drop_node("n2")
    paper.look()
    assert paper.unhealthy == ["n1", "n2"]
    paper.workload(*names, unhealthy=["n1", "n2"])
    paper.drop_node("n3")
    paper.look()
    (reason, message) = paper.events[-1]
    assert reason == "EvictedDueToNodeFailures"
    assert "3 of 4, nodeReplacement.maxShare is 0.5: n1 (it is gone), n2 (it is gone), n3 (it is gone)" in message
    assert count_in_a_row({"metadata": {}, "status": paper.statuses[-1]}) == 1


def test_a_hostname_that_is_not_the_nodes_name():
    paper = PaperNodes()
    paper.node("machine-7", host="h7")
    paper.workload("h7")
    paper.pod("p", "machine-7")
    assert paper.look() == Done()
    paper.drop_node("machine-7")
    paper.look()
    assert paper.unhealthy == ["machine-7"]


def test_a_flap_before_the_pods_are_bound_changes_nothing_and_a_failure_does():
    paper = PaperNodes()
    paper.node("n0")
    paper.workload("n0")
    paper.pod("waiting", pinned="n0", phase="Pending")
    paper.clock.time += 1
    paper.node("n0", ready=False)
    assert paper.look() == RequeueAfter(30.0)
    assert (paper.statuses, paper.ended) == ([], [])
    paper.clock.time += 30
    paper.look()
    assert (paper.unhealthy, paper.ended) == (["n0"], ["waiting"])


def test_the_taints_that_kubernetes_gives_a_node_that_is_not_ready_make_no_loss_of_a_flap():
    """A second after its condition, and taken off as long after it."""
    taints = [{"key": key, "effect": "NoSchedule"} for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")]
    paper = PaperNodes()
    paper.node("n0")
    paper.workload("n0")
    paper.pod("waiting", pinned="n0", phase="Pending")
    paper.node("n0", ready=False, taints=taints)
    assert paper.look() == RequeueAfter(30.0)
    paper.clock.time += 10
    paper.node("n0", taints=taints)
    assert paper.look() == Done()
    assert (paper.statuses, paper.ended) == ([], [])


def test_a_node_whose_pod_is_gone_altogether_is_lost_at_once():
    paper = PaperNodes()
    spread(paper)
    paper.node("n1", ready=False, rack="r1")
    paper.drop_pod("on-n1")
    paper.look()
    assert paper.unhealthy == ["n1"]


def test_unschedulable_counts_from_when_the_scheduler_said_so_and_not_from_when_the_gate_did():
    """The API keeps one time for both."""
    paper = PaperNodes()
    paper.node("n0")
    paper.workload("n0")
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    refused["lastTransitionTime"] = paper.now()
    paper.clock.time += 600
    paper.pod("waiting", pinned="n0", phase="Pending", conditions=[refused])
    assert paper.look() == RequeueAfter(60.0)
    paper.clock.time += 60
    paper.look()
    assert paper.unhealthy == ["n0"]
    assert paper.events[0] == ("NodeUnhealthy", "node n0: pod waiting cannot be scheduled there: 0/1 nodes")


def test_a_taint_without_a_time_counts_from_when_it_was_seen():
    paper = PaperNodes(HealthRules(on_pod_termination=False))
    paper.node("n0")
    paper.workload("n0")
    paper.pod("p", "n0")
    paper.node("n0", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
    assert paper.look() == RequeueAfter(300.0)
    paper.clock.time += 100
    assert paper.look() == RequeueAfter(200.0)
    paper.clock.time += 200
    paper.look()
    assert paper.unhealthy == ["n0"]


def test_in_a_storm_no_node_is_lost_until_all_that_it_took_are_back():
    paper = PaperNodes(HealthRules(storm=STRICT_STORMS))
    names = spread(paper, 10)
    for i, name in enumerate(names[:5]):
        paper.node(name, ready=False, rack=f"r{i % 2}")
        paper.pod(f"on-{name}", name, ending=True)
    assert isinstance(paper.look(), RequeueAfter)
    paper.clock.time += 1
    for i, name in enumerate(names[:4]):
        paper.node(name, rack=f"r{i % 2}")
    assert isinstance(paper.look(), RequeueAfter)  # one of ten is no storm by itself, but this one is not over
    assert paper.statuses == []
    paper.clock.time += 1800
    paper.look()
    assert paper.unhealthy == ["n4"]


@pytest.mark.parametrize("on_pod_termination", [True, False])
@pytest.mark.parametrize("storms", [True, False])
def test_six_of_ten_nodes_that_are_away_for_90_s_while_their_pods_run(on_pod_termination: bool, storms: bool):
    """Nobody is evicted or moved. Where time alone makes a loss it is the storm that keeps it back."""
    storm = StormRules() if storms else StormRules(share=1)
    paper = PaperNodes(HealthRules(on_pod_termination=on_pod_termination, storm=storm))
    names = spread(paper, 10)
    away = {name: f"r{i % 2}" for i, name in enumerate(names[:6])}
    for name, rack in away.items():
        taints = [
            {"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": paper.now()} for effect in ("NoSchedule", "NoExecute")
        ]
        paper.node(name, ready=False, taints=taints, rack=rack)
    for _ in range(9):
        paper.look()
        paper.clock.time += 10
    for name, rack in away.items():
        paper.node(name, rack=rack)
    assert paper.look() == Done()
    if on_pod_termination or storms:
        assert (paper.statuses, paper.ended, paper.events) == ([], [], [])
    else:
        assert paper.events, "by time alone they were lost"


def test_a_rack_that_goes_as_a_whole_is_no_storm():
    paper = PaperNodes(HealthRules(storm=STRICT_STORMS))
    names = spread(paper, 10)
    for name in names[::2]:
        paper.node(name, ready=False, rack="r0")
        paper.pod(f"on-{name}", name, ending=True)
    paper.look()
    assert paper.unhealthy == names[::2]


def test_pods_of_a_workload_without_an_admission_that_have_a_place_are_ended():
    paper = PaperNodes()
    paper.node("n0")
    paper.workload("n0")
    paper.pod("waiting", pinned="n9", phase="Pending")
    paper.look()
    assert (paper.ended, paper.statuses) == (["waiting"], [])


def test_pods_that_their_user_pinned_to_a_node_are_nobody_elses_business():
    """In a flavor without a topology, where nothing is assigned: each of them looked like one that waits for a node of no use."""
    paper = PaperNodes()
    paper.node("n9", unschedulable=True)
    paper.workload()
    paper.pod("waiting", pinned="n9", by_us=False, phase="Pending")
    paper.look()
    assert (paper.ended, paper.statuses) == ([], [])


@pytest.mark.parametrize("is_admitted", [True, False])
def test_pods_ungated_by_kueue_outside_of_the_assignment_are_ended(is_admitted: bool):
    """Found defect E16: without coordinates of topogate's they were taken for pods that their user had pinned."""
    paper = PaperNodes()
    paper.node("n0")
    paper.node("n9")
    paper.workload("n0", is_admitted=is_admitted)
    paper.pod("inside", pinned="n0", by_us=False, phase="Pending")
    paper.pod("outside", pinned="n9", by_us=False, phase="Pending")
    paper.look()
    assert sorted(paper.ended) == (["outside"] if is_admitted else ["inside", "outside"])


def test_pods_that_wait_on_the_host_of_their_template_are_not_ended():
    paper = PaperNodes()
    paper.node("n0")
    paper.workload("n0", host_in_template="n9")
    paper.pod("waiting", pinned="n9", by_us=False, phase="Pending")
    paper.look()
    assert paper.ended == []
