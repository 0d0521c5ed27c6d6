"""Deactivation, reactivation and the time that a workload may be admitted: the table, and lives of it in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.names import ADMITTED, DEACTIVATION_TARGET, EVICTED, FINISHED, QUOTA_RESERVED, REQUEUED
from core.plan.steps.actions import RESOLUTION_S, Action, Amend, Deactivate, Evict, Wait
from core.plan.workloads.activity import DEACTIVATED, plan_active_workload, plan_activity
from core.plan.workloads.admission_status import build_admitted_status, build_amended_status, build_evicted_status, build_released_status
from core.queueing.cycle.rules import REMEDY
from core.state.facts import find_condition
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json
from tests.plan.workloads.carried import carry_out
from tests.plan.workloads.test_status import ADMISSION

Json = dict[str, Any]
T0 = datetime(2026, 1, 1, tzinfo=UTC)
BY_TIME = "DeactivatedDueToMaximumExecutionTimeExceeded"


def format_time(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_condition(kind: str, status: bool = True, *, reason: str = "", since: float = 0, message: str = "") -> Json:
    return build_condition_json(kind, status, reason=reason, time=format_time(since), message=message)


def build_workload(*conditions: Json, active: bool = True, limit: int | None = None, **status: Any) -> Json:
    wire = build_workload_json("w", [build_pod_set_json(count=2)], conditions=conditions, active=active)
    wire["status"] |= status
    wire["spec"] |= {"maximumExecutionTimeSeconds": limit} if limit is not None else {}
    return wire


def build_admitted_workload(*conditions: Json, since: float = 0, **more: Any) -> Json:
    return build_workload(build_condition(QUOTA_RESERVED), build_condition(ADMITTED, since=since), *conditions, **more)


def plan(wire: Json, now_s: float) -> Action | None:
    return plan_activity(wire, T0 + timedelta(seconds=now_s))


OVER = build_admitted_workload(limit=60)
TARGET = build_condition(DEACTIVATION_TARGET, reason="Other")


@pytest.mark.parametrize(
    ("wire", "facts", "names", "reasons"),
    [
        (build_admitted_workload(), {}, (), []),
        (build_workload(active=False), {"can_be_activated": True}, ("activate",), []),
        (build_workload(active=False), {}, ("amend",), []),
        (OVER, {}, ("evict", "report"), [f"EvictedDueTo{BY_TIME}", "MaximumExecutionTimeExceeded"]),
        (OVER, {"has_ended": True}, (), []),
        (
            build_admitted_workload(build_condition(DEACTIVATION_TARGET, reason="Other")),
            {},
            ("evict",),
            ["EvictedDueToDeactivatedDueToOther"],
        ),
        (build_workload(TARGET), {"has_ended": True}, ("deactivate",), []),
    ],
)
def test_plan_of_an_active_or_deactivated_workload_has_the_steps(
    wire: Json, facts: dict[str, bool], names: tuple[str, ...], reasons: list[str]
):
    plan = plan_active_workload(wire, T0 + timedelta(seconds=1000), **{"can_be_activated": False, "has_ended": False} | facts)
    assert plan.names == names
    assert [event.reason for step in plan.steps for event in step.events if not event.on_job] == reasons


def test_workload_without_maximum_execution_time_runs_without_limit():
    assert plan(build_admitted_workload(), 1e6) is None


@pytest.mark.parametrize("past", [None, 40])
def test_the_time_of_all_admissions_counts(past: int | None):
    wire = build_admitted_workload(since=100, limit=60, **({"accumulatedPastExecutionTimeSeconds": past} if past else {}))
    end = 100 + 60 - (past or 0) + RESOLUTION_S
    assert plan(wire, 100) == Wait(end - 100)
    assert plan(wire, end - 0.5) == Wait(0.5)
    action = plan(wire, end)
    assert isinstance(action, Evict)
    assert action.reason == BY_TIME
    assert "maximumExecutionTimeSeconds of 60" in action.message
    assert "ClusterRole topogate-batch-admin" in action.message
    assert [(c.type, c.status, c.reason) for c in action.also] == [
        (DEACTIVATION_TARGET, True, "MaximumExecutionTimeExceeded"),
        (REQUEUED, False, BY_TIME),
    ]


def test_time_that_was_used_up_by_an_older_process_is_over_at_once():
    assert isinstance(plan(build_admitted_workload(limit=60, accumulatedPastExecutionTimeSeconds=1000), RESOLUTION_S), Evict)


@pytest.mark.parametrize(
    "wire",
    [
        build_workload(limit=1),
        build_workload(build_condition(QUOTA_RESERVED), build_condition(ADMITTED, False), limit=1),
        build_admitted_workload(build_condition(EVICTED), limit=1),
        build_admitted_workload(build_condition(FINISHED), limit=1),
        {**build_admitted_workload(limit=1), "metadata": {**build_admitted_workload()["metadata"], "deletionTimestamp": format_time(0)}},
        build_admitted_workload(active=False, limit=1),
    ],
    ids=["waits", "has quota only", "is being stopped", "is over", "is deleted", "is deactivated by hand"],
)
def test_workload_that_does_not_run_is_not_evicted_for_execution_time(wire: Json):
    assert plan(wire, 1000) is None or isinstance(plan(wire, 1000), Amend)
    assert not isinstance(plan(wire, 1000), Evict)


def test_deactivation_goes_on_from_wherever_it_stopped():
    target = build_condition(
        DEACTIVATION_TARGET, reason="MaximumExecutionTimeExceeded", message="exceeding the maximum execution time of 60 s"
    )
    stop = plan(build_admitted_workload(target), 0)
    assert isinstance(stop, Evict), "whoever set the target"
    assert stop.reason == BY_TIME
    evicted, mark = build_condition(EVICTED, reason=BY_TIME), build_condition(REQUEUED, False, reason=BY_TIME)
    assert plan(build_admitted_workload(target, evicted, mark), 0) == Deactivate()
    assert plan(build_workload(target, evicted, mark), 0) == Deactivate()
    assert plan(build_workload(target, evicted, mark, active=False), 0) == Amend((), {}, (DEACTIVATION_TARGET,))
    assert plan(build_workload(evicted, mark, active=False), 0) is None


def test_waiting_workload_that_is_deactivated_by_hand_does_not_keep_its_former_reason():
    waits = build_condition(QUOTA_RESERVED, False, reason="WaitingForQuota", message="needs 40 more")
    amend = plan(build_workload(waits, active=False), 0)
    assert isinstance(amend, Amend)
    assert {condition.type: condition.reason for condition in amend.set} == {REQUEUED: "Deactivated", QUOTA_RESERVED: "Suspended"}
    assert {condition.message for condition in amend.set} == {DEACTIVATED}
    broken = build_condition(QUOTA_RESERVED, False, reason="Misconfigured", message=f"no level x; {REMEDY}")
    for by_topogate in ((waits, build_condition(DEACTIVATION_TARGET)), (broken,)):
        refused = plan(build_workload(*by_topogate, active=False), 0)
        assert isinstance(refused, Amend)
        assert [condition.type for condition in refused.set] == [REQUEUED], "the reason that stands there is why it is deactivated"


def test_manually_deactivated_workload_is_marked_after_its_stop_and_reset_by_reactivation():
    state = {"count": 2, "requeueAt": format_time(60)}
    assert plan(build_admitted_workload(active=False, requeueState=state), 0) is None, "its job is to be stopped first"
    assert plan(build_workload(build_condition(QUOTA_RESERVED), active=False), 0) is None, "whoever judges its checks gives its quota back"
    wire = build_admitted_workload(
        build_condition(EVICTED, reason="Deactivated", message="The workload is deactivated"), active=False, requeueState=state
    )
    mark = plan(wire, 0)
    assert isinstance(mark, Amend)
    assert (mark.set[0].type, mark.set[0].status, mark.set[0].reason, mark.requeue_state) == (REQUEUED, False, "Deactivated", {"count": 2})
    wire = carry_out(wire, mark, format_time(0))
    assert plan(wire, 0) is None
    wire["spec"]["active"] = True
    again = plan(wire, 0)
    assert isinstance(again, Amend)
    assert (again.set[0].status, again.set[0].reason, again.requeue_state) == (True, "Reactivated", None)
    wire = carry_out(wire, again, format_time(0))
    assert "requeueState" not in wire["status"]
    assert plan(wire, 0) is None


def test_a_mark_has_no_reason_of_an_eviction_for_something_else():
    mark = plan(build_workload(build_condition(EVICTED, reason="Preempted"), active=False), 0)
    assert isinstance(mark, Amend)
    assert mark.set[0].reason == "Deactivated"


# --- accumulated time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "left"), [("Preempted", 12 + 30), (BY_TIME, None)], ids=["kept", "begins anew"])
def test_released_workload_adds_its_execution_time_unless_it_used_all_of_it(reason: str, left: int | None):
    wire = build_admitted_workload(
        build_condition(EVICTED, reason=reason), since=20, accumulatedPastExecutionTimeSeconds=12, admission={"clusterQueue": "q"}
    )
    assert build_released_status(wire, "m", format_time(50)).get("accumulatedPastExecutionTimeSeconds") == left
    assert build_evicted_status(wire, reason, "m", format_time(50))["accumulatedPastExecutionTimeSeconds"] == 12, "it still runs"


class Life:
    """A workload that is admitted and stopped again and again."""

    def __init__(self, limit: int) -> None:
        self.wire, self.now, self.used, self.admissions = build_workload(limit=limit), 0.0, 0.0, 0

    def write(self, status: Json) -> None:
        self.wire = {**self.wire, "status": status}

    def admit(self) -> None:
        self.write(build_admitted_status(self.wire, ADMISSION, format_time(self.now)))
        self.admissions += 1

    def run(self, seconds: float) -> bool:
        """Whether its time is over before that."""
        action = plan(self.wire, self.now)
        assert isinstance(action, Wait | Evict)
        rest = action.seconds if isinstance(action, Wait) else 0.0
        self.now += min(seconds, rest)
        self.used += min(seconds, rest)
        if seconds >= rest:
            over = plan(self.wire, self.now + 1e-3)
            assert isinstance(over, Evict)
            self.wire = carry_out(self.wire, over, format_time(self.now))
            return True
        return False

    def stop(self) -> None:
        if (find_condition(self.wire, EVICTED) or {}).get("status") != "True":
            self.write(build_evicted_status(self.wire, "Preempted", "", format_time(self.now)))
        self.write(build_released_status(self.wire, "stopped", format_time(self.now)))


@given(st.integers(1, 200), st.lists(st.tuples(st.floats(0, 80), st.floats(0, 80)), min_size=1, max_size=20))
def test_it_runs_for_its_time_whatever_it_was_evicted_for_and_for_as_long_once_reactivated(limit: int, stays: list[tuple[float, float]]):
    life = Life(limit)
    for runs, waits in stays:
        life.admit()
        over = life.run(runs)
        # Times of the API have whole seconds: each admission that was ended early may be counted a second too long or too short.
        if over:
            assert limit - life.admissions <= life.used <= limit + 1 + life.admissions
        else:
            assert life.used <= limit + 1 + life.admissions
        life.now += 0.3
        life.stop()
        life.now += waits
        if over:
            assert "accumulatedPastExecutionTimeSeconds" not in life.wire["status"]
            assert plan(life.wire, life.now) == Deactivate()
            life.wire["status"] = build_amended_status(life.wire, (), format_time(life.now), None, (DEACTIVATION_TARGET,))
            again = plan(life.wire, life.now)
            assert isinstance(again, Amend)
            life.wire = carry_out(life.wire, again, format_time(life.now))
            life.used, life.admissions = 0.0, 0
