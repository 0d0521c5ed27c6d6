"""Status bodies: everything the field manager owns is carried over, and times change only with a status."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.admission import Admission, PodSetAdmission
from core.model.configuration import ResourceRules, Transformation
from core.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    QUOTA_RESERVED,
    REASON_PENDING_EVALUATION,
    REASON_SUSPENDED,
    REQUEUED,
)
from core.plan.steps.conditions import Condition, has_condition, set_conditions
from core.plan.steps.managed_status import MANAGED_CONDITIONS, read_managed_status
from core.plan.workloads.admission_status import (
    build_admitted_status,
    build_evicted_status,
    build_preempted_status,
    build_released_status,
    build_waiting_status,
    find_former,
)
from core.state.facts import WorkloadFacts
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json

NOW, BEFORE = "2026-02-02T00:00:00Z", "2026-01-01T00:00:00Z"
ADMISSION = Admission("cq", (PodSetAdmission("main", {"cpu": "f"}, {"cpu": 2000}, 2),))
OWNED: dict[str, Any] = {
    "requeueState": {"count": 2},
    "admissionChecks": [{"name": "check", "state": "Pending"}],
    "accumulatedPastExecutionTimeSeconds": 7,
    "schedulingStats": {"evictions": []},
    "clusterName": "far",
    "nominatedClusterNames": ["far"],
    "preemptionGates": [{"name": "g"}],
}


def build_workload(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    wire = build_workload_json("w", [build_pod_set_json(count=2)], conditions=conditions)
    wire["status"] |= status
    return wire


def group_by_type(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in status["conditions"]}


def test_every_body_carries_all_that_the_manager_owns():
    old = build_workload(
        build_condition_json(PODS_READY, False), build_condition_json("topogate.dev/Other"), **OWNED, admission={"clusterQueue": "cq"}
    )
    facts = WorkloadFacts.read(build_workload())
    bodies = [
        read_managed_status(old),
        build_admitted_status(old, ADMISSION, NOW),
        build_waiting_status(old, facts, "R", "m", NOW),
        build_evicted_status(old, "R", "m", NOW),
        build_released_status(old, "m", NOW),
    ]
    once = {"schedulingStats": {"evictions": [{"reason": "R", "underlyingCause": "", "count": 1}]}}
    for i, body in enumerate(bodies):
        assert {name: body.get(name) for name in OWNED} == (OWNED | once if i == 3 else OWNED)
        assert group_by_type(body)[PODS_READY] == build_condition_json(PODS_READY, False)
        assert set(group_by_type(body)) <= set(MANAGED_CONDITIONS), "another manager's condition is not ours to write"
    assert ["admission" in body for body in bodies] == [True, True, False, True, False]


def test_admitted_status_sets_both_conditions_and_clears_eviction_and_unhealthy_nodes():
    old = build_workload(
        build_condition_json(EVICTED, message="no room"), build_condition_json(QUOTA_RESERVED, False), unhealthyNodes=[{"name": "n"}]
    )
    status = build_admitted_status(old, ADMISSION, NOW)
    conditions = group_by_type(status)
    assert {kind: condition["status"] for kind, condition in conditions.items()} == {
        QUOTA_RESERVED: "True",
        ADMITTED: "True",
        EVICTED: "False",
    }
    assert conditions[EVICTED]["message"] == "Previously: no room"
    assert status["admission"]["podSetAssignments"][0]["resourceUsage"] == {"cpu": "2"}
    assert "unhealthyNodes" not in status


def lived_through(why: str, was: str, then: str) -> dict[str, Any]:
    """The condition Evicted of a workload that was evicted, stopped and admitted again, each by what the API has of it."""
    wire = build_workload(build_condition_json(ADMITTED), admission={"clusterQueue": "cq"})
    wire = {**wire, "status": build_evicted_status(wire, "NodeFailures", why, NOW)}
    wire = {**wire, "status": build_released_status(wire, why, NOW, was)}
    return {**wire, "status": build_admitted_status(wire, ADMISSION, NOW, place=then)}


@pytest.mark.parametrize(("then", "said"), [("rack r2 (node c)", "rack r2 (node c)"), ("rack r1 (node a)", "the same"), ("rack", "rack")])
def test_readmitted_workload_status_names_its_former_and_its_new_place(then: str, said: str):
    wire = lived_through("node a was lost.", "rack r1 (node a)", then)
    told = f"node a was lost. It was on rack r1 (node a). Placed again on {said}"
    assert group_by_type(wire["status"])[EVICTED] | {"lastTransitionTime": ""} == {
        **build_condition_json(EVICTED, False, reason="QuotaReserved", message=f"Previously: {told}"),
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }
    assert find_former(wire["status"]) == told


def test_long_eviction_reason_is_cut_and_both_places_are_reported():
    wire = lived_through("too long. " * 300, "rack r1 (node a)", "rack r2 (node c)")
    former = find_former(wire["status"], 200)
    assert len(former) == 200
    assert former.index("…") < former.index("rack r1 (node a)") < former.index("rack r2 (node c)")


def test_former_place_is_added_only_to_the_eviction_condition():
    since = {**build_condition_json(EVICTED, reason="Preempted", message="for another"), "observedGeneration": 3}
    status = build_released_status(build_workload(since, generation=7), "stopped", NOW, "rack r1 (node a)")
    evicted = group_by_type(status)[EVICTED]
    assert {**evicted, "message": since["message"]} == since
    assert evicted["message"].startswith("for another")
    assert "rack r1 (node a)" in evicted["message"]
    assert group_by_type(status)[QUOTA_RESERVED]["message"] == "stopped"
    over = build_condition_json(EVICTED, False, message="Previously: for another")
    assert group_by_type(build_released_status(build_workload(over), "stopped", NOW, "rack r1"))[EVICTED] == over, "it was not evicted"


@pytest.mark.parametrize(("active", "reason"), [(True, REASON_PENDING_EVALUATION), (False, REASON_SUSPENDED)])
def test_released_workload_is_suspended_where_nothing_considers_it(active: bool, reason: str):
    wire = build_workload()
    wire["spec"]["active"] = active
    reserved = group_by_type(build_released_status(wire, "stopped", NOW))[QUOTA_RESERVED]
    assert (reserved["status"], reserved["reason"], reserved["message"]) == ("False", reason, "stopped")


def test_waiting_status_contains_the_resource_requests():
    status = build_waiting_status(build_workload(), WorkloadFacts.read(build_workload()), "NoRoom", "why", NOW)
    assert status["resourceRequests"] == [{"name": "main", "resources": {"cpu": "2"}}]
    assert (
        group_by_type(status)[QUOTA_RESERVED] | {"status": "False", "reason": "NoRoom", "message": "why"}
        == group_by_type(status)[QUOTA_RESERVED]
    )
    assert (group_by_type(status)[ADMITTED]["status"], group_by_type(status)[ADMITTED]["reason"]) == ("False", "NoReservation")
    again = build_waiting_status(build_workload(build_condition_json(ADMITTED)), WorkloadFacts.read(build_workload()), "NoRoom", "why", NOW)
    assert group_by_type(again)[ADMITTED]["status"] == "False"


def test_waiting_status_contains_transformed_resource_requests():
    rules = ResourceRules((), (Transformation("cpu", True, {"credits": 2000}),))
    status = build_waiting_status(build_workload(), WorkloadFacts.read(build_workload()), "NoRoom", "why", NOW, rules)
    assert status["resourceRequests"] == [{"name": "main", "resources": {"cpu": "2", "credits": "4"}}]


def test_evicted_status_contains_no_unhealthy_nodes():
    old = build_workload(build_condition_json(ADMITTED), unhealthyNodes=[{"name": "n"}], admission={"clusterQueue": "cq"})
    for status in (build_evicted_status(old, "R", "m", NOW), build_preempted_status(old, "R", "m", NOW)):
        assert "unhealthyNodes" not in status
        assert group_by_type(status)[EVICTED]["status"] == "True"
    assert "unhealthyNodes" in build_waiting_status(old, WorkloadFacts.read(old), "R", "m", NOW)


def test_a_time_changes_only_with_its_status():
    old = [build_condition_json(QUOTA_RESERVED, time=BEFORE), build_condition_json(FINISHED, time=BEFORE)]
    new = [Condition(QUOTA_RESERVED, True, "Other", "words"), Condition(EVICTED, True, "E", ""), Condition(FINISHED, False, "F", "")]
    merged = {condition["type"]: condition for condition in set_conditions(old, new, now=NOW, generation=3)}
    assert {kind: condition["lastTransitionTime"] for kind, condition in merged.items()} == {
        QUOTA_RESERVED: BEFORE,
        EVICTED: NOW,
        FINISHED: NOW,
    }
    assert merged[QUOTA_RESERVED]["reason"] == "Other"
    assert {condition["observedGeneration"] for condition in merged.values()} == {3}


def test_a_message_is_cut_and_still_recognised():
    condition = Condition(REQUEUED, True, "R", "x" * 10_000)
    stored = set_conditions([], [condition], now=NOW, generation=1)
    assert len(stored[0]["message"]) == 4096
    assert has_condition(stored, condition)
    assert not has_condition(stored, Condition(REQUEUED, False, "R", "x" * 10_000))
