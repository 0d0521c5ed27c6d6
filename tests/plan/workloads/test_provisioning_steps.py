"""What is written to ask for nodes: tables of what is there before, and what each plan does about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.names import ACTIVE, CHECK_PENDING, CHECK_READY, FINISHED, QUOTA_RESERVED
from core.plan.steps import pacing
from core.plan.steps.conditions import Condition
from core.plan.steps.steps import Plan
from core.plan.steps.writes import Apply, Create, Delete
from core.plan.workloads.provisioning import Make, SetState, WaitForProvider
from core.plan.workloads.provisioning_steps import ProvisionedWorkload, ProvisioningDecision, decide, plan_check, plan_request, plan_rest
from core.state.check_facts import ProvisioningConfig
from core.state.facts import WorkloadFacts
from tests.builders import build_condition_json
from tests.plan.workloads.test_provisioning import CONFIG, FLAVORS, NOW, build_admission, build_workload, entry, request

Json = dict[str, Any]


def read(
    wire: Json,
    *checks: Json,
    requests: tuple[Json, ...] = (),
    config: ProvisioningConfig | None = CONFIG,
    reserved: bool = True,
    **facts: Any,
) -> ProvisionedWorkload:
    """A workload that has quota, with one check that brings nodes."""
    wire = {**wire, "status": {**wire["status"], "admissionChecks": list(checks or (entry(),))}}
    if not reserved:
        wire["status"]["conditions"] = [build_condition_json(QUOTA_RESERVED, False)]
    seen = replace(WorkloadFacts.read(wire), admission=build_admission(wire), quota_reserved=reserved, **facts)
    by_name = {found["metadata"]["name"]: found for found in requests}
    return ProvisionedWorkload(wire, seen, {"nodes": config}, by_name, FLAVORS, NOW)


def make_templates(f: ProvisionedWorkload, **metadata: Any) -> dict[str, Json]:
    """The PodTemplates that a workload asks with, as they are there."""
    templates = [template for wanted in decide(replace(f, requests={})).wanted.values() for template in wanted.templates]
    return {
        template["metadata"]["name"]: {**template, "metadata": {**template["metadata"], "uid": "t", "resourceVersion": "1", **metadata}}
        for template in templates
    }


def list_writes(plan: Plan) -> list[tuple[type, str]]:
    """What a plan writes, by kind of write and name of the object."""
    return [(type(step.write), step.write.seen["metadata"]["name"]) for step in plan.steps if step.write is not None]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("facts", "asks"),
    [
        ({}, True),
        ({"evicted": True}, False),
        ({"finished": True}, False),
        ({"deleting": True}, False),
        ({"active": False}, False),
        ({"reserved": False}, False),
    ],
)
def test_workload_that_is_over_asks_for_nothing(facts: Json, asks: bool):
    decided = decide(read(build_workload(), **facts))
    assert bool(decided.actions) is asks


def test_request_is_made_after_its_templates():
    f = read(build_workload())
    decided = decide(f)
    plan = plan_request(f.workload, decided.wanted["nodes"], {})
    assert list_writes(plan) == [(Create, "ppt-w-nodes-1-main"), (Create, "w-nodes-1")]
    assert [event.message for event in plan.steps[-1].events] == ["Created ProvisioningRequest: w-nodes-1"]


def test_template_that_is_there_is_not_made_again():
    f = read(build_workload())
    plan = plan_request(f.workload, decide(f).wanted["nodes"], make_templates(f))
    assert list_writes(plan) == [(Create, "w-nodes-1")]


@pytest.mark.parametrize("metadata", [{"annotations": {}}, {"ownerReferences": []}])
def test_template_of_another_request_goes_before_anything_is_made(metadata: Json):
    f = read(build_workload())
    plan = plan_request(f.workload, decide(f).wanted["nodes"], make_templates(f, **metadata))
    assert list_writes(plan) == [(Delete, "ppt-w-nodes-1-main")]
    assert "ppt-w-nodes-1-main" in plan.problem


def test_refused_request_is_said_once_on_its_check_and_made_again_later():
    f = read(build_workload())
    why = "ProvisioningRequest w-nodes-1 is refused: no"
    plan = plan_rest(f, decide(f), {}, {"nodes": why})
    (step,) = plan.steps
    assert isinstance(step.write, Apply)
    (check,) = step.write.body["status"]["admissionChecks"]
    assert (check["state"], check["message"], plan.again_s) == (CHECK_PENDING, why, pacing.REQUEST_REFUSED_S)
    assert not step.events, "its state has not changed"
    again = read(build_workload(), check)
    assert plan_rest(again, decide(again), {}, {"nodes": why}) == Plan(again_s=pacing.REQUEST_REFUSED_S)


def test_states_of_all_checks_are_one_write_with_an_event_for_each_that_changed():
    wire = build_workload()
    other = entry(CHECK_READY) | {"name": "other"}
    f = read(wire, entry(), other, requests=(request(wire, build_condition_json("Provisioned", message="here")),))
    decided = decide(f)
    assert isinstance(decided.actions["nodes"], SetState)
    (step,) = plan_rest(f, decided, {}, {}).steps
    assert isinstance(step.write, Apply)
    assert [check["state"] for check in step.write.body["status"]["admissionChecks"]] == [CHECK_READY, CHECK_READY]
    (event,) = step.events
    assert all(part in event.message for part in ("check nodes", "from Pending to Ready", "here"))


def test_request_that_ends_takes_its_own_templates_along():
    wire = build_workload()
    there = request(wire)
    wire["status"]["conditions"].append(build_condition_json(FINISHED))
    f = read(wire, requests=(there,), finished=True)
    templates = make_templates(read(build_workload()))
    assert list_writes(plan_rest(f, decide(f), templates, {})) == [(Delete, "ppt-w-nodes-1-main"), (Delete, "w-nodes-1")]
    (name,) = templates
    others = {name: {**templates[name], "metadata": {**templates[name]["metadata"], "ownerReferences": []}}}
    assert list_writes(plan_rest(f, decide(f), others, {})) == [(Delete, "w-nodes-1")], "a user may write requests that name others"


def test_request_for_something_else_is_dropped_and_made_anew_once_it_is_gone():
    wire = build_workload()
    f = read(wire, requests=(request(wire, config=replace(CONFIG, parameters={"a": "2"})),))
    decided = decide(f)
    assert [found["metadata"]["name"] for found in decided.ending] == ["w-nodes-1"]
    assert not decided.wanted
    gone = replace(f, requests={})
    assert isinstance(decide(gone).actions["nodes"], Make)


def test_nothing_to_do_writes_nothing():
    wire = build_workload()
    f = read(wire, entry(message="ProvisioningRequest w-nodes-1 is pending"), requests=(request(wire),))
    assert decide(f) == ProvisioningDecision({"nodes": WaitForProvider()})
    assert plan_rest(f, decide(f), {}, {}) == Plan()


def test_check_without_its_flavor_keeps_no_other_from_being_judged():
    wire = build_workload()
    f = read(wire, entry(), entry() | {"name": "ready"}, requests=())
    f = replace(f, configs={"nodes": CONFIG, "ready": None}, flavors={})
    decided = decide(f)
    assert "ResourceFlavor gpu" in decided.problem
    plan = plan_rest(f, decided, {}, {})
    assert plan.names == ("judge checks",)
    assert plan.problem == decided.problem


def test_condition_of_a_check_is_written_where_it_differs():
    check = {"metadata": {"name": "nodes", "generation": 2}}
    condition = Condition(ACTIVE, False, "NotInstalled", "ProvisioningRequests are not installed")
    (step,) = plan_check(check, condition, NOW).steps
    assert isinstance(step.write, Apply)
    assert step.log is not None
    assert step.log.fields == {"check": "nodes", "Active": False, "why": condition.message}
    (written,) = step.write.body["status"]["conditions"]
    assert (written["status"], written["observedGeneration"], written["lastTransitionTime"]) == ("False", 2, NOW)
    assert plan_check({**check, "status": {"conditions": [written]}}, condition, NOW) == Plan()
