"""What is done with the pods of an admitted Workload, and in which order: tables, without any double."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from core import trace_names as t
from core.model.admission import Admission, PodSetAdmission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import COORDINATE_PREFIXES, EVENT_POD_OUTSIDE_ASSIGNMENT, HOSTNAME_LABEL, RESOURCE_IN_USE_FINALIZER
from core.plan.pods.pod_units import get_owner_of_named
from core.plan.pods.ungate_steps import UngatingFacts, plan_pods
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.steps import Hold, ParallelSteps, Plan, Step
from core.state.facts import PodFacts, WorkloadFacts
from core.state.flavor_view import AssignedPlaces
from tests.builders import build_pod_json, build_pod_set_json, build_workload_json

OWNER = "uid-job"
UNGATED = ("pods are there", "ungate pods")
NODES = {name: {"status": {"conditions": [{"type": "Ready", "status": str(name != "other")}]}} for name in ("n0", "n1", "other")}
HOSTS = {name: {name} for name in NODES}


def build_gated_pod(index: int, cpu: str = "1") -> dict[str, Any]:
    return build_pod_json(f"p{index}", workload="w", owner=OWNER, gated=True, cpu=cpu)


def build_running_pod(index: int, node: str) -> dict[str, Any]:
    return build_pod_json(f"p{index}", workload="w", owner=OWNER, node=node, node_selector={HOSTNAME_LABEL: node})


def sent(index: int, node: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Without a gate, and bound to no node yet."""
    made = build_pod_json(f"p{index}", workload="w", owner=OWNER, node_selector={HOSTNAME_LABEL: node})
    made["metadata"]["labels"] |= labels or {}
    return made


def build_facts(*pods: dict[str, Any], owner: str | None = OWNER, **more: Any) -> UngatingFacts:
    workload = build_workload_json("w", [build_pod_set_json(count=2)], owner=owner)
    hosts = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((node,), 1) for node in ("n0", "n1")))
    admission = Admission("cq", (PodSetAdmission("main", {"cpu": "f"}, {}, 2, hosts),))
    seen = {f"ns/{pod['metadata']['name']}": pod for pod in pods}
    read = WorkloadFacts.read(workload)
    naming = [replace(PodFacts.read(pod), owner_uid=read.owner_uid) for pod in pods]
    places = AssignedPlaces({"main": None})
    given = UngatingFacts(workload, read, admission, naming, places, seen, NODES, HOSTS, "2026-01-01T00:00:00Z")
    return replace(given, **more)


def plan(f: UngatingFacts) -> Plan:
    return plan_pods(f).plan


BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pods", "more", "names", "again_s"),
    [
        ([], {}, (), None),
        ([build_gated_pod(0), build_gated_pod(1)], {}, UNGATED, None),
        ([build_gated_pod(0), build_gated_pod(1)], {"began": BEGAN}, ("ungate pods",), None),
        ([build_running_pod(0, "n0"), build_gated_pod(1)], {}, UNGATED, None),
        ([build_running_pod(0, "n0"), build_running_pod(1, "n1")], {}, (), None),
        ([build_running_pod(0, "n0"), build_running_pod(1, "n1")], {"began": BEGAN}, ("all pods are bound",), None),
        ([build_running_pod(0, "n0")], {"began": BEGAN}, (), None),
        ([build_gated_pod(0, "9")], {}, ("report",), pacing.EXCESS_S),
        ([build_gated_pod(0)], {"waits_for_nodes": True}, (), pacing.PODS_HELD_S),
    ],
    ids=["none", "all new", "again", "one runs", "all run", "all are bound", "one is not there", "more than admitted", "no node is ready"],
)
def test_pods_of_a_workload_lead_to_these_steps(
    pods: Sequence[dict[str, Any]], more: Mapping[str, Any], names: tuple[str, ...], again_s: float | None
):
    found = plan(build_facts(*pods, **more))
    assert (found.names, found.again_s) == (names, again_s)


def test_unowned_workload_with_a_pod_that_requests_more_is_looked_at_again():
    f = build_facts(build_gated_pod(0, "9"))
    unowned = {**f.workload, "metadata": {**f.workload["metadata"], "ownerReferences": []}}
    f = replace(f, workload=unowned)
    assert f.is_unowned
    assert (plan(f).names, plan(f).again_s) == ((), pacing.EXCESS_S)


@pytest.mark.parametrize(
    ("stray", "waits_for_nodes", "write"),
    [
        (build_running_pod(0, "other"), False, None),
        (build_running_pod(0, "gone"), False, ...),
        (sent(0, "other"), False, w.Delete),
        (sent(0, "other", {f"{COORDINATE_PREFIXES[0]}rank": "0"}), True, ...),
        (sent(0, "n0", {f"{COORDINATE_PREFIXES[0]}rank": "0"}), True, ...),
    ],
    ids=["it runs", "its node is gone", "it is not bound", "node health ends it", "it is where it should be"],
)
def test_stray_pod_is_deleted_reported_or_left_alone(stray: dict[str, Any], waits_for_nodes: bool, write: Any):
    found = [step for step in plan(build_facts(stray, waits_for_nodes=waits_for_nodes)).steps if "stray" in step.name]
    if write is ...:
        assert found == []
        return
    (step,) = found
    if write is not None:
        assert step.holds_up is Hold.NEVER, "the others are ungated"
        assert isinstance(step.write, ParallelSteps)
        (step,) = (one for one in step.write.steps if isinstance(one, Step))
        assert isinstance(step.write, w.Delete)
        assert step.write.guard is w.Guard.WAITING
    else:
        assert step.write is None
    assert [event.reason for event in step.events] == [EVENT_POD_OUTSIDE_ASSIGNMENT]


def test_strays_that_run_leave_room_for_those_that_are_deleted():
    """By a review: many of the first, which never go, kept the others from being deleted."""
    running = [build_running_pod(index, "other") for index in range(pacing.MOST_EXCESSIVE + 1)]
    sent_there = [sent(len(running) + index, "other") for index in range(pacing.MOST_PLANNED + 1)]
    found = plan(build_facts(*running, *sent_there))
    assert found.names == (*["report stray"] * pacing.MOST_EXCESSIVE, "delete strays")
    together = found.steps[-1].write
    assert isinstance(together, ParallelSteps)
    assert len(together.steps) == pacing.MOST_PLANNED


@pytest.mark.parametrize("owner", [None, OWNER])
@pytest.mark.parametrize("finalizers", [[], [RESOURCE_IN_USE_FINALIZER], ["other"]])
def test_unowned_workload_gets_its_finalizer_before_the_first_gate_goes(owner: str | None, finalizers: list[str]):
    f = build_facts(build_gated_pod(0), owner=owner)
    f.workload["metadata"]["finalizers"] = finalizers
    if owner is None:
        named = get_owner_of_named("ns/w")
        f = replace(f, facts=replace(f.facts, owner_uid=named), naming=[replace(pod, owner_uid=named) for pod in f.naming])
    steps = plan(f).steps
    kept = [step for step in steps if step.name == "keep until pods end"]
    if owner is not None or RESOURCE_IN_USE_FINALIZER in finalizers:
        assert kept == []
        return
    (step,) = kept
    assert isinstance(step.write, w.Patch)
    assert step.write.body["metadata"]["finalizers"] == [*finalizers, RESOURCE_IN_USE_FINALIZER]
    assert [each.name for each in steps][:1] == ["keep until pods end"]
    assert step.holds_up is Hold.ALWAYS, "no pod runs without it"


def test_ungating_says_where_the_pods_go_and_why_one_stays():
    f = build_facts(build_gated_pod(0), build_gated_pod(1))
    (step,) = [step for step in plan(f).steps if step.name == "ungate pods"]
    assert isinstance(step.write, ParallelSteps)
    assert step.span is not None
    assert step.span.attributes[t.DOMAIN_COUNT] == 2
    assert [(name, about[t.DOMAIN], about[t.POD_COUNT]) for name, about, _ in step.span.events] == [
        (t.DOMAIN_UNGATED, "n0", 1),
        (t.DOMAIN_UNGATED, "n1", 1),
    ]
    each = step.write.steps[0]
    assert isinstance(each, Step)
    assert each.if_refused is not None
    event = each.if_refused("it contradicts")
    assert event.obj["metadata"]["name"] == "p0"
    assert all(part in event.message for part in (f"{HOSTNAME_LABEL}=n0", "it contradicts"))


@pytest.mark.parametrize("nominates", [False, True])
def test_node_of_a_pod_is_named_before_its_gate_goes_where_its_domain_is_one_node(nominates: bool):
    class OneNode(AssignedPlaces):
        def list_domain_nodes(self, given: PodSetAdmission, values: tuple[str, ...]) -> tuple[str, ...]:
            return values if values == ("n0",) else ("n1", "n2")

    found = plan(replace(build_facts(build_gated_pod(0), build_gated_pod(1), nominates=nominates), places=OneNode({"main": None})))
    assert found.names == UNGATED
    together = found.steps[-1].write
    assert isinstance(together, ParallelSteps)
    first, second = together.steps
    assert isinstance(second, Step), "its domain has two nodes"
    if not nominates:
        assert isinstance(first, Step)
        return
    assert isinstance(first, tuple)
    named, ungated = first
    assert (named.name, ungated.name) == ("name node", "ungate pod"), "and others of the workload do not wait for it"
    assert isinstance(named.write, w.Patch)
    assert named.write.body == {"status": {"nominatedNodeName": "n0"}}
    assert named.holds_up is Hold.NEVER, "the gate goes all the same"


def test_event_of_a_pod_that_is_gone_is_left_out():
    assert plan(replace(build_facts(build_gated_pod(0, "9")), pods={})).names == ()
