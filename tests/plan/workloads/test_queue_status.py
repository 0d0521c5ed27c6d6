"""What is reported of queues, flavors and topologies, and what is held or let go: tables, without any double."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.model.quota_tree import Share
from core.names import (
    ACTIVE,
    EVENT_STILL_IN_USE,
    EVENT_UNKNOWN_PROFILE,
    EVICTIONS_PAUSED,
    NODES_PLACED,
    NODES_REACHABLE,
    PLACEMENT_PROFILE,
    REASON_ADMISSIONS_PAUSED,
    RESOURCE_IN_USE_FINALIZER,
)
from core.placement.topology.tree import LeftOut
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.steps import Hold, MadeSteps, Overtaken, ParallelSteps, Plan, Step
from core.plan.workloads.queue_status import (
    ClusterQueueState,
    LocalQueueState,
    TopologyState,
    Users,
    WorkloadCounts,
    plan_cluster_queue,
    plan_cohort,
    plan_evictions,
    plan_flavor,
    plan_local_queue,
    plan_topology,
)
from core.plan.workloads.workload_steps import EVICT
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import build_cluster_queue_json, build_pod_set_json, build_workload_json

NOW = "2026-01-01T00:00:00Z"
NO_ONE, SOME = Users(r.WORKLOADS, []), Users(r.WORKLOADS, ["ns/b", "ns/a"])
COUNTED = WorkloadCounts(3, 2, 1, {("gpu", "cpu"): 12_000}, {("gpu", "cpu"): 8_000})


def made(name: str = "x", **metadata: Any) -> dict[str, Any]:
    return {"kind": "X", "metadata": {"name": name, "uid": "u", "resourceVersion": "1", "generation": 1, **metadata}}


def queue(cohort: str | None = None) -> ClusterQueueFacts:
    made = build_cluster_queue_json("cq", {"gpu": "10"})
    made["spec"] |= {"cohortName": cohort} if cohort is not None else {}
    return ClusterQueueFacts.read(made)


def running(name: str) -> dict[str, Any]:
    made = build_workload_json(name, [build_pod_set_json()])
    return {**made, "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": []}}}


def get_status(plan: Plan) -> dict[str, Any]:
    (step,) = [step for step in plan.steps if step.name == "report status"]
    assert isinstance(step.write, w.Apply)
    assert step.write.yields, "counters are of less use than what starts jobs"
    return dict(step.write.body["status"])


def get_conditions(plan: Plan) -> dict[str, tuple[str, str, str]]:
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in get_status(plan)["conditions"]}


@pytest.mark.parametrize("users", [NO_ONE, SOME])
@pytest.mark.parametrize("finalizers", [[], [RESOURCE_IN_USE_FINALIZER], ["other", RESOURCE_IN_USE_FINALIZER]])
@pytest.mark.parametrize("is_deleting", [False, True])
@pytest.mark.parametrize("is_reported", [False, True])
def test_flavor_in_use_has_the_finalizer_and_says_once_why_its_deletion_waits(
    users: Users, finalizers: list[str], is_deleting: bool, is_reported: bool
):
    users = Users(users.resource, users.names, is_reported)
    flavor = made(finalizers=finalizers, **({"deletionTimestamp": NOW} if is_deleting else {}))
    steps: list[Step] = list(plan_flavor(flavor, users).steps)
    is_held, is_used = RESOURCE_IN_USE_FINALIZER in finalizers, bool(users.names)
    writes = [step.write.body["metadata"]["finalizers"] for step in steps if isinstance(step.write, w.Patch)]
    if is_used:
        assert writes == ([[*finalizers, RESOURCE_IN_USE_FINALIZER]] if not is_held and not is_deleting else [])
    else:
        assert writes == ([finalizers[:-1]] if is_held else [])
    events = [event for step in steps for event in step.events]
    is_said = is_used and is_held and is_deleting and not is_reported
    assert [event.reason for event in events] == ([EVENT_STILL_IN_USE] if is_said else [])
    if is_said:
        assert "Workloads ns/a, ns/b" in events[0].message


@pytest.mark.parametrize(
    ("problem", "paused", "conditions"),
    [
        (None, None, {ACTIVE: ("True", "Ready", "Can admit new workloads")}),
        (("Stopped", "why"), None, {ACTIVE: ("False", "Stopped", "why")}),
        (
            None,
            "paused by me",
            {ACTIVE: ("True", "Ready", "Can admit new workloads"), EVICTIONS_PAUSED: ("True", "Paused", "paused by me")},
        ),
    ],
    ids=["it admits", "it does not", "no evictions"],
)
def test_cluster_queue_says_whether_it_admits(problem: tuple[str, str] | None, paused: str | None, conditions: Any):
    plan = plan_cluster_queue(ClusterQueueState(made(), queue(), problem, NO_ONE, COUNTED, paused), NOW)
    assert get_conditions(plan) == conditions


@pytest.mark.parametrize(("problem", "is_reported"), [(None, True), (("Stopped", "why"), False)])
def test_cluster_queue_reports_flavors_of_which_no_node_takes_pods(problem: tuple[str, str] | None, is_reported: bool):
    """It read as a queue that admits, and all that it could admit had no node."""
    plan = plan_cluster_queue(ClusterQueueState(made(), queue(), problem, NO_ONE, COUNTED, idle_flavors=["gpu", "a100"]), NOW)
    status, _, message = get_conditions(plan)[ACTIVE]
    assert status == ("True" if problem is None else "False")
    assert message.endswith("flavor a100, gpu") is is_reported


@pytest.mark.parametrize("cohort", [None, "all"])
@pytest.mark.parametrize("share", [None, Share(False, Fraction(1, 10))])
def test_cluster_queue_counts_and_says_how_much_is_borrowed_in_a_cohort(cohort: str | None, share: Share | None):
    status = get_status(plan_cluster_queue(ClusterQueueState(made(), queue(cohort), None, NO_ONE, COUNTED, share=share), NOW))
    assert (status["pendingWorkloads"], status["reservingWorkloads"], status["admittedWorkloads"]) == (3, 2, 1)
    borrowed = [({"borrowed": amount} if cohort is not None else {}) for amount in ("2", "0")]
    for name, total, more in zip(("flavorsReservation", "flavorsUsage"), ("12", "8"), borrowed, strict=True):
        assert status[name] == [{"name": "gpu", "resources": [{"name": "cpu", "total": total, **more}]}]
    assert status.get("fairSharing") == ({"weightedShare": 100} if share is not None else None)


def test_status_that_says_it_already_is_not_written_again():
    known = ClusterQueueState(made(), queue(), None, NO_ONE, COUNTED)
    written = get_status(plan_cluster_queue(known, NOW))
    again = ClusterQueueState({**made(), "status": written}, queue(), None, NO_ONE, COUNTED)
    assert plan_cluster_queue(again, "2026-01-02T00:00:00Z").names == ()
    borrowing = ClusterQueueState({**made(), "status": {**written, "fairSharing": {"weightedShare": 1}}}, queue(), None, NO_ONE, COUNTED)
    assert plan_cluster_queue(borrowing, NOW).names == ("report status",), "it has no share any more"


def test_workloads_that_are_to_go_are_evicted_whatever_becomes_of_one():
    why = "The ClusterQueue is stopped: cq"
    evict = plan_evictions([running("a"), running("b")], "Stopped", why, NOW)
    assert evict is not None
    assert evict.holds_up is Hold.UNLESS_REFUSED, "the status of the queue is written all the same"
    assert isinstance(evict.write, ParallelSteps)
    (steps,) = evict.write.steps
    assert isinstance(steps, MadeSteps)
    assert [step.name for step in steps] == [EVICT, EVICT]
    for step in steps:
        assert step.passes == frozenset(Overtaken), "it has changed, is gone, or is paused"
        assert step.holds_up is Hold.UNLESS_REFUSED, "one that is too large for another condition keeps the others from nothing"
        assert why in step.events[0].message


@pytest.mark.parametrize(
    ("known", "reason", "message"),
    [
        ({"queue": None}, "ClusterQueueDoesNotExist", "ClusterQueue cq doesn't exist"),
        ({"is_stopped": True}, "Stopped", "LocalQueue is stopped"),
        ({"problem": ("Stopped", "why")}, "ClusterQueueIsInactive", "ClusterQueue cq can't admit new workloads"),
        (
            {"problem": (REASON_ADMISSIONS_PAUSED, "why"), "admissions_paused": "paused by me"},
            "ClusterQueueIsInactive",
            "ClusterQueue cq can't admit new workloads: paused by me",
        ),
        ({}, "Ready", "Can submit new workloads to ClusterQueue"),
    ],
    ids=["no queue", "stopped", "problem", "pause", "well"],
)
def test_local_queue_says_whether_it_admits(known: dict[str, Any], reason: str, message: str):
    status = replace(LocalQueueState(made(namespace="ns"), "cq", queue(), None, COUNTED), **known)
    condition = get_conditions(plan_local_queue(status, NOW))[ACTIVE]
    assert condition == ("True" if not known else "False", reason, message)


@pytest.mark.parametrize("share", [None, Share(False, Fraction(1, 10))])
def test_cohort_has_a_status_where_sharing_is_fair(share: Share | None):
    plan = plan_cohort(made(), share)
    assert plan.names == (("report status",) if share is not None else ())


LEFT_OUT = LeftOut({"rack": ("n1", "n2", "n3", "n4", "n5", "n6")}, (("n7", "n8"),))


@pytest.mark.parametrize(
    ("left_out", "nodes", "reason", "message"),
    [
        ((), 1, "AllNodesPlaced", "1 node carries all level labels"),
        ((), 4, "AllNodesPlaced", "4 nodes carry all level labels"),
        (
            (("gpu", LEFT_OUT),),
            4,
            "NodesLeftOut",
            "Left out, because their place in the topology is unknown: "
            'flavor "gpu": 6 nodes without the label rack: n1, n2, n3, n4, n5 and 1 more; '
            'flavor "gpu": nodes n7, n8 share every level value',
        ),
    ],
)
def test_topology_names_nodes_without_a_place(left_out: Any, nodes: int, reason: str, message: str):
    plan = plan_topology(TopologyState(made(), Users(r.RESOURCE_FLAVORS, ["gpu"], True), nodes, left_out), NOW)
    assert get_conditions(plan)[NODES_PLACED][1:] == (reason, message)


@pytest.mark.parametrize(
    ("was_known", "storm", "said"),
    [(False, None, None), (True, None, "Calm"), (False, "many nodes", "Storm"), (True, "many nodes", "Storm")],
)
def test_topology_says_of_storms_where_there_has_been_one(was_known: bool, storm: str | None, said: str | None):
    before = (
        {"status": {"conditions": [{"type": NODES_REACHABLE, "status": "False", "reason": "Storm", "lastTransitionTime": NOW}]}}
        if was_known
        else {}
    )
    plan = plan_topology(TopologyState({**made(), **before}, NO_ONE, 4, storm=storm), NOW)
    assert get_conditions(plan).get(NODES_REACHABLE, (None, None))[1] == said


@pytest.mark.parametrize(("profile", "is_known"), [("MostFree", False), (None, True), ("compact", True)])
def test_profile_that_does_not_exist_is_reported(profile: str | None, is_known: bool):
    topology = made(annotations={PLACEMENT_PROFILE: profile} if profile is not None else {})
    plan = plan_topology(TopologyState(topology, NO_ONE, 4), NOW)
    events = [event.reason for step in plan.steps for event in step.events]
    assert events == ([] if is_known else [EVENT_UNKNOWN_PROFILE])
