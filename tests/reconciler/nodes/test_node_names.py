"""Which node an assignment means, and nodes with clocks that are ahead (`reconciler.nodes.node_health`,
`reconciler.nodes.mass_not_ready`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from core.model.node_health_rules import HealthRules
from core.names import HOSTNAME_LABEL, PODSET_LABEL, RANK_ANNOTATION, WORKLOAD_ANNOTATION
from core.runtime.controller import Done, RequeueAfter
from tests.builders import RACK
from tests.reconciler.harness_nodes import OWNER, STRICT_STORMS, NodesHarness

AHEAD = "9999-12-31T23:59:59Z"


def two_nodes() -> NodesHarness:
    harness = NodesHarness()
    for name in ("n0", "n1"):
        harness.node(name)
    harness.workload("n0", "n1")
    harness.pod("on-n1", "n1")
    return harness


def test_node_with_a_clock_that_is_ahead_is_not_waited_for_anew_when_it_is_seen_again():
    harness = two_nodes()
    harness.node("n0", ready=False, since=AHEAD)
    harness.clock.time += 20
    harness.node("n0", ready=False, since=AHEAD, taints=[{"key": "any", "effect": "PreferNoSchedule"}])
    assert harness.look() == RequeueAfter(10.0)


def test_node_that_was_well_in_between_is_waited_for_from_when_it_is_not_ready_again():
    harness = two_nodes()
    harness.node("n0", ready=False, since=AHEAD)
    harness.clock.time += 10
    harness.node("n0")
    harness.clock.time += 100
    harness.node("n0", ready=False)
    assert harness.look() == RequeueAfter(30.0)


def wait_for_twin(*conditions: Mapping[str, Any]) -> NodesHarness:
    """Nodes h7 and twin have hostname h7, and a pod waits for the second."""
    harness = NodesHarness()
    harness.node("h7", rack="r1")
    harness.node("twin", host="h7", rack="r0")
    harness.workload("h7", rack="r0")
    metadata = {"name": "p", "creationTimestamp": harness.now(), "labels": {PODSET_LABEL: "main"}, "ownerReferences": [OWNER]}
    metadata |= {"annotations": {WORKLOAD_ANNOTATION: "w", RANK_ANNOTATION: "0"}}
    spec = {"containers": [], "nodeSelector": {RACK: "r0", HOSTNAME_LABEL: "h7"}}
    harness.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending", "conditions": [*conditions]}})
    return harness


def test_pod_that_waits_for_one_of_two_nodes_with_one_hostname_stays():
    harness = wait_for_twin()
    assert harness.look() == Done()
    assert harness.ended == []


def test_refusal_of_a_pod_before_its_node_was_well_does_not_count_where_another_node_has_its_hostname():
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    harness = wait_for_twin(refused)
    harness.node("twin", host="h7", rack="r0", ready=False)
    harness.clock.time += 20
    harness.node("twin", host="h7", rack="r0")
    assert harness.look() == RequeueAfter(HealthRules().unschedulable_delay_s)


def test_node_that_was_gone_before_the_start_is_lost_where_another_node_has_its_hostname_as_name():
    harness = NodesHarness()
    harness.node("n1", host="n2")
    harness.workload("n1")
    harness.look()
    ((reason, message),) = harness.told
    assert reason == "NodeUnhealthy"
    assert "node n1" in message


def test_node_with_a_name_that_is_the_hostname_of_another_is_reported_by_its_own_hostname():
    """Former defect: the name was taken for the other node, where pods ran well, and the lost node was never replaced."""
    harness = NodesHarness()
    harness.node("h0", host="a0", rack="r0")
    harness.node("b", host="h0", rack="r1")
    harness.workload("a0", "h0")
    for name, node in (("p0", "h0"), ("p1", "b")):
        harness.pod(name, node)
    harness.node("h0", host="a0", rack="r0", ready=False)
    harness.pod("p0", "h0", ending=True)
    harness.look()
    assert harness.unhealthy == ["a0"]


def test_report_of_lost_nodes_is_dropped_with_the_workload():
    harness = two_nodes()
    harness.lose("n0")
    harness.look()
    assert harness.unhealthy == ["n0"]
    harness.drop("Workload", "w")
    assert harness.health._users.reported == {}


def test_node_that_is_well_is_taken_out_at_once_each_time_it_is_named():
    harness = two_nodes()
    harness.pod("on-n0", "n0")
    for count in (1, 2):
        harness.workload("n0", "n1", unhealthy=["n0"])
        harness.look()
        assert len(harness.statuses) == count
        assert harness.unhealthy == []


def test_nodes_with_clocks_that_are_ahead_are_a_storm_from_when_they_were_seen():
    harness = NodesHarness(HealthRules(storm=STRICT_STORMS))
    for number in range(10):
        harness.node(f"n{number}", rack=f"r{number}")
    for number in range(10):
        harness.node(f"n{number}", rack=f"r{number}", ready=False, since=AHEAD)
    storm = harness.storms.find("t")
    assert storm is not None
    harness.clock.time += 5
    for number in range(10):
        harness.node(f"n{number}", rack=f"r{number}", ready=False, since=AHEAD, unschedulable=True)
    again = harness.storms.find("t")
    assert again is not None
    assert again.until == storm.until


@pytest.mark.looptime
async def test_storm_that_begins_and_ends_between_two_looks_is_reported_as_over():
    """A Topology said for ever that its nodes are not reachable: whoever wrote that had asked between two looks."""
    harness, heard = NodesHarness(HealthRules(storm=STRICT_STORMS)), list[bool]()
    harness.storms.on_change.append(lambda: heard.append(harness.storms.find("t") is not None))
    looks = asyncio.create_task(harness.storms.run())
    for is_ready in (True, False, True):
        for number in range(10):
            harness.node(f"n{number}", rack=f"r{number}", ready=is_ready)
        harness.clock.time += 1
        assert (harness.storms.find("t") is None) == is_ready
    await asyncio.sleep(10)
    looks.cancel()
    assert heard == [False]


def test_node_that_left_with_pods_that_run_is_not_lost_where_another_that_had_its_hostname_is_gone():
    """Seed 7581: the other one was taken for the node of these pods for as long as the process lived, and no lost node was replaced."""
    harness = NodesHarness()
    harness.node("h7")
    harness.workload("h7")
    harness.pod("on-h7", "h7")
    harness.look()
    harness.node("twin", host="h7")
    harness.node("h7", rack="")
    harness.look()
    harness.lose("twin")
    harness.look()
    assert harness.statuses == []


def test_node_with_another_hostname_and_pods_that_run_is_not_lost_after_a_start():
    harness = NodesHarness()
    harness.node("n0", host="other")
    harness.workload("n0")
    harness.pod("on-n0", "n0")
    harness.look()
    assert harness.statuses == []


def test_node_that_was_gone_before_the_start_is_lost_where_its_pod_names_it_and_another_node_has_its_hostname():
    harness = NodesHarness()
    harness.node("other", host="h7", rack="")
    harness.workload("h7")
    harness.pod("on-gone", "gone", pinned="h7")
    harness.look()
    assert harness.unhealthy == ["h7"]


def test_node_that_is_there_is_the_one_of_a_place_of_which_another_pod_is_on_a_node_that_is_gone():
    harness = NodesHarness()
    harness.node("h7", rack="")
    harness.workload("h7")
    harness.pod("on-h7", "h7")
    harness.pod("on-gone", "gone", pinned="h7")
    harness.look()
    assert harness.statuses == []


def test_pod_of_another_owner_does_not_say_which_node_a_place_is():
    harness = NodesHarness()
    harness.node("n0", host="other")
    harness.workload("n0")
    metadata = {"name": "p", "labels": {PODSET_LABEL: "main"}, "ownerReferences": [{**OWNER, "uid": "another"}]}
    metadata |= {"annotations": {WORKLOAD_ANNOTATION: "w", RANK_ANNOTATION: "0"}}
    spec = {"containers": [], "nodeName": "n0", "nodeSelector": {HOSTNAME_LABEL: "n0"}}
    harness.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    harness.look()
    assert harness.unhealthy == ["n0"]
