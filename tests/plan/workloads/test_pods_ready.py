"""What is done with workloads whose pods are, or are not, ready: the table, and a model that lives through it in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.model.pods_ready_rules import PodsReadyRules
from core.names import ADMITTED, DEACTIVATION_TARGET, EVICTED, FINISHED, PODS_READY, PODSET_LABEL, QUOTA_RESERVED, REQUEUED
from core.plan.steps.actions import RESOLUTION_S, Action, Amend, Deactivate, Evict, Wait, to_time
from core.plan.steps.managed_status import read_managed_status
from core.plan.workloads.activity import plan_activity
from core.plan.workloads.admission_status import (
    build_admitted_status,
    build_evicted_status,
    build_released_status,
    build_waiting_status,
)
from core.plan.workloads.pods_ready import REASON_DEACTIVATED_BY_LIMIT, Seen, are_pods_ready, plan_pods_ready
from core.state.facts import WorkloadFacts, find_condition, is_condition_true
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json
from tests.plan.workloads.carried import carry_out
from tests.plan.workloads.test_status import ADMISSION

Json = dict[str, Any]
T0 = datetime(2026, 1, 1, tzinfo=UTC)
RULES = PodsReadyRules(timeout_s=10, recovery_timeout_s=5, backoff_base_s=20, backoff_max_s=100, backoff_limit=2)
JITTER = st.floats(0.0, 0.1)
READY, NOT_READY = Seen(ready=True), Seen(ready=False)


def format_time(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_condition(kind: str, status: bool = True, *, reason: str = "", since: float = 0, message: str = "") -> Json:
    return build_condition_json(kind, status, reason=reason, time=format_time(since), message=message)


def build_workload(*conditions: Json, active: bool = True, requeue_state: Json | None = None) -> Json:
    wire = build_workload_json("w", [build_pod_set_json(count=2)], conditions=conditions, active=active)
    wire["status"] |= {"requeueState": requeue_state} if requeue_state is not None else {}
    return wire


def build_admitted_workload(*conditions: Json, since: float = 0, requeue_state: Json | None = None) -> Json:
    return build_workload(build_condition(QUOTA_RESERVED), build_condition(ADMITTED, since=since), *conditions, requeue_state=requeue_state)


def plan(wire: Json, seen: Seen, now_s: float, rules: PodsReadyRules = RULES, jitter: float = 0.0) -> Action | None:
    """What is due of both: readiness, and what follows a deactivation."""
    now = T0 + timedelta(seconds=now_s)
    return plan_activity(wire, now) or plan_pods_ready(wire, seen, rules, now, jitter)


WAITS = build_condition(PODS_READY, False, reason="WaitForStart", message="Not all pods are ready or succeeded")
LOST = build_condition(PODS_READY, False, reason="WaitForRecovery", since=100, message="At least one pod has failed, waiting for recovery")
RUNS = build_condition(PODS_READY, reason="Started", message="All pods reached readiness and the workload is running")
AGAIN = {**RUNS, "reason": "Recovered"}
TARGET = build_condition(DEACTIVATION_TARGET, reason="RequeuingLimitExceeded")
MARK = build_condition(REQUEUED, False, reason=REASON_DEACTIVATED_BY_LIMIT)


# --- the condition ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "seen", "status", "reason"),
    [
        ((), NOT_READY, False, "WaitForStart"),
        ((), READY, True, "Started"),
        ((WAITS,), READY, True, "Started"),
        ((RUNS,), NOT_READY, False, "WaitForRecovery"),
        ((AGAIN,), NOT_READY, False, "WaitForRecovery"),
        ((LOST,), READY, True, "Recovered"),
        ((build_condition(PODS_READY, False, reason="PodsReady"),), NOT_READY, False, "WaitForStart"),
    ],
)
def test_pods_ready_condition_has_status_and_reason_of_the_pods(before: tuple[Json, ...], seen: Seen, status: bool, reason: str):
    action = plan(build_admitted_workload(*before), seen, 1)
    assert isinstance(action, Amend)
    (said,) = action.set
    assert (said.type, said.status, said.reason) == (PODS_READY, status, reason)


@pytest.mark.parametrize(("stands", "seen"), [(RUNS, READY), (AGAIN, READY)])
def test_a_condition_that_stands_is_not_written_again(stands: Json, seen: Seen):
    assert plan(build_admitted_workload(stands), seen, 10_000) is None


@pytest.mark.parametrize(
    "wire",
    [
        build_workload(),
        build_workload(build_condition(QUOTA_RESERVED), build_condition(ADMITTED, False), WAITS),
        build_admitted_workload(build_condition(EVICTED), WAITS),
        build_admitted_workload(build_condition(FINISHED), WAITS),
        {**build_admitted_workload(), "metadata": {**build_admitted_workload()["metadata"], "deletionTimestamp": format_time(0)}},
        build_workload(build_condition(ADMITTED), active=False),
    ],
)
def test_workload_that_does_not_run_gets_no_pods_ready_action(wire: Json):
    assert plan(wire, NOT_READY, 10_000) is None


def test_a_job_that_has_ended_is_left_to_finish():
    assert plan(build_admitted_workload(RUNS), Seen(ready=False, over=True), 10_000) is None


# --- timers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("admitted_at", "started", "since"),
    [(3, None, 3), (3, format_time(7), 7), (30, format_time(7), 30)],
    ids=["admission", "the job's own start", "admission, as the start is that of an earlier run"],
)
def test_the_timeout_runs_from_the_start(admitted_at: float, started: str | None, since: float):
    wire, seen = build_admitted_workload(WAITS, since=admitted_at), Seen(ready=False, started=started)
    end = since + RULES.timeout_s + RESOLUTION_S
    assert plan(wire, seen, since) == Wait(end - since)
    assert plan(wire, seen, end - 0.25) == Wait(0.25)
    assert isinstance(plan(wire, seen, end), Evict)


def test_the_recovery_timeout_runs_from_when_pods_were_lost():
    assert plan(build_admitted_workload(LOST), NOT_READY, 102) == Wait(4)
    assert isinstance(plan(build_admitted_workload(LOST), NOT_READY, 106), Evict)
    assert plan(build_admitted_workload(LOST), NOT_READY, 10_000, PodsReadyRules(timeout_s=10)) is None, (
        "without a limit they may take for ever"
    )
    assert isinstance(plan(build_admitted_workload(RUNS), NOT_READY, 10_000), Amend), "the time of its transition is not known yet"


def test_a_reconciler_that_was_away_for_long_evicts_at_once():
    assert isinstance(plan(build_admitted_workload(), NOT_READY, 10_000), Evict)


# --- evicted, held back, deactivated ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "jitter", "until"),
    [(0, 0.0, 1020), (0, 0.01, 1021), (1, 0.0, 1040), (9, 0.0, 1100)],
    ids=["1st", "rounded up", "2nd", "longest"],
)
def test_an_eviction_is_counted_and_holds_back_longer_each_time(count: int, jitter: float, until: float):
    rules = PodsReadyRules(timeout_s=10, backoff_base_s=20, backoff_max_s=100)
    action = plan(build_admitted_workload(WAITS, requeue_state={"count": count} if count else None), NOT_READY, 1000, rules, jitter)
    assert isinstance(action, Evict)
    assert (action.reason, action.requeue_state) == ("PodsReadyTimeout", {"count": count + 1, "requeueAt": format_time(until)})
    assert format_time(until) in action.message
    (requeued,) = action.also
    assert (requeued.type, requeued.status, requeued.reason) == (REQUEUED, False, "PodsReadyTimeout")


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_workload_beyond_the_backoff_limit_gets_a_deactivation_target_with_the_remedy(limit: int):
    rules = PodsReadyRules(timeout_s=10, backoff_limit=limit)
    action = plan(build_admitted_workload(WAITS, requeue_state={"count": limit}), NOT_READY, 1000, rules)
    assert isinstance(action, Evict)
    assert action.reason == REASON_DEACTIVATED_BY_LIMIT == "DeactivatedDueToRequeuingLimitExceeded"
    assert f"backoffLimitCount is {limit}" in action.message
    assert f"{limit} {'time' if limit == 1 else 'times'}" in action.message
    assert "ClusterRole topogate-batch-admin" in action.message
    assert action.requeue_state == ({"count": limit} if limit else {})
    assert [c.type for c in action.also] == [DEACTIVATION_TARGET, REQUEUED]


def test_deactivation_goes_on_from_wherever_it_stopped():
    evicted = build_condition(EVICTED, reason=REASON_DEACTIVATED_BY_LIMIT)
    assert plan(build_admitted_workload(evicted, TARGET, MARK), NOT_READY, 0) == Deactivate()
    assert plan(build_workload(evicted, TARGET, MARK), NOT_READY, 0) == Deactivate(), "also once its job has stopped"
    marked = plan(build_workload(evicted, TARGET, MARK, active=False, requeue_state={"count": 2}), NOT_READY, 0)
    assert marked == Amend((), {"count": 2}, (DEACTIVATION_TARGET,))
    assert plan(build_workload(evicted, MARK, active=False, requeue_state={"count": 2}), NOT_READY, 0) is None
    again = plan(build_workload(evicted, MARK, requeue_state={"count": 2}), NOT_READY, 0)
    assert isinstance(again, Amend)
    assert (again.requeue_state, again.set[0].reason) == (None, "Reactivated")


def test_manually_deactivated_workload_in_requeue_backoff_starts_anew():
    held = build_workload(
        build_condition(EVICTED, reason="PodsReadyTimeout"), active=False, requeue_state={"count": 1, "requeueAt": format_time(60)}
    )
    mark = plan(held, NOT_READY, 0)
    assert isinstance(mark, Amend)
    assert (mark.set[0].type, mark.set[0].reason, mark.requeue_state) == (REQUEUED, "Deactivated", {"count": 1})
    held = carry_out(held, mark, format_time(0))
    assert plan(held, NOT_READY, 0) is None
    held["spec"]["active"] = True
    assert isinstance(plan(held, NOT_READY, 0), Amend)


def test_workload_with_a_deactivation_target_is_not_active():
    assert not WorkloadFacts.read(build_workload(TARGET)).active
    facts = WorkloadFacts.read(
        build_workload(build_condition(EVICTED, reason="PodsReadyTimeout"), requeue_state={"requeueAt": format_time(5)})
    )
    assert (facts.active, facts.evicted_for, facts.requeue_at) == (True, "PodsReadyTimeout", format_time(5))
    assert WorkloadFacts.read(build_workload(build_condition(EVICTED, False, reason="PodsReadyTimeout"))).evicted_for is None


# --- statuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [RUNS, LOST])
def test_released_workload_waits_for_start_and_reports_its_requeue_time(before: Json):
    state = {"count": 1, "requeueAt": format_time(60)}
    wire = build_admitted_workload(before, requeue_state=state)
    wire["status"] = build_released_status(wire, "why", format_time(20))
    ready = find_condition(wire, PODS_READY) or {}
    assert (ready["status"], ready["reason"]) == ("False", "WaitForStart")
    message = (find_condition(wire, QUOTA_RESERVED) or {})["message"]
    assert format_time(60) in message
    assert message.endswith(": why")
    assert wire["status"]["requeueState"] == state
    late = build_admitted_workload(before, requeue_state=state)
    late["status"] = build_released_status(late, "why", format_time(60))
    assert (find_condition(late, QUOTA_RESERVED) or {})["message"] == "why", "its pods took longer than its backoff"


@pytest.mark.parametrize("writes", ["admission", "refusal"])
def test_whatever_is_decided_after_the_backoff_ends_it(writes: str):
    wire = build_workload(
        build_condition(REQUEUED, False, reason="PodsReadyTimeout"), requeue_state={"count": 2, "requeueAt": format_time(60)}
    )
    facts = WorkloadFacts.read(wire)
    for now, ends in ((59, False), (60, True)):
        status = (
            build_admitted_status(wire, ADMISSION, format_time(now))
            if writes == "admission"
            else build_waiting_status(wire, facts, "R", "m", format_time(now))
        )
        assert status["requeueState"] == ({"count": 2} if ends else {"count": 2, "requeueAt": format_time(60)})
        (requeued,) = [c for c in status["conditions"] if c["type"] == REQUEUED]
        assert (requeued["status"], requeued["reason"]) == (("True", "BackoffFinished") if ends else ("False", "PodsReadyTimeout"))


# --- pods ---------------------------------------------------------------------------------------------


def build_pod(pod_set: str = "main", *, phase: str = "Running", ready: bool = True, going: bool = False) -> Json:
    metadata = {"labels": {PODSET_LABEL: pod_set}} | ({"deletionTimestamp": format_time(0)} if going else {})
    return {"metadata": metadata, "status": {"phase": phase} | ({"conditions": [{"type": "Ready", "status": "True"}]} if ready else {})}


@pytest.mark.parametrize(
    ("pods", "ready"),
    [
        ([], False),
        ([build_pod()], False),
        ([build_pod(), build_pod()], True),
        ([build_pod(), build_pod(ready=False)], False),
        ([build_pod(), build_pod(phase="Succeeded", ready=False)], True),
        ([build_pod(), build_pod(phase="Succeeded", ready=False, going=True)], True),
        ([build_pod(), build_pod(phase="Failed", ready=False)], False),
        ([build_pod(), build_pod(going=True)], False),
        ([build_pod(), build_pod("other")], False),
        ([build_pod(), build_pod(), build_pod(ready=False)], True),
    ],
)
def test_pods_count_while_they_are_ready_or_once_they_have_succeeded(pods: list[Json], ready: bool):
    assert are_pods_ready({"main": 2}, pods) is ready


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.booleans())), st.integers(0, 4), st.integers(0, 4), st.integers(0, 8))
def test_tolerated_pods_may_be_missing_of_all_pod_sets_together(pods: list[tuple[str, bool]], a: int, b: int, tolerated: int):
    ready = [name for name, is_ready in pods if is_ready]
    missing = max(0, a - ready.count("a")) + max(0, b - ready.count("b"))
    built = [build_pod(name, ready=is_ready) for name, is_ready in pods]
    assert are_pods_ready({"a": a, "b": b}, built, tolerated) is (missing <= tolerated)


# --- a life -------------------------------------------------------------------------------------------


class Life(RuleBasedStateMachine):
    """One workload and its job; reconciler, scheduler and user take turns, each reading the status as it stands. Time is the model's.

    What really happened, to a fraction of a second, is kept beside: the status has whole seconds only.
    """

    @initialize(limit=st.sampled_from([None, 0, 1, 3]), recovery=st.sampled_from([None, 5.0]))
    def begin(self, limit: int | None, recovery: float | None) -> None:
        self.limits = PodsReadyRules(timeout_s=10, recovery_timeout_s=recovery, backoff_base_s=8, backoff_max_s=30, backoff_limit=limit)
        self.wire = build_workload()
        self.now = 0.0
        self.runs = self.ready = False
        self.admitted_at = self.lost_at = 0.0
        self.evictions = 0
        self.is_down = False
        self.idle_until: float | None = None  # when the reconciler looks again by itself

    def write(self, status: Json) -> None:
        self.wire = {**self.wire, "status": status}

    @property
    def count(self) -> int:
        return int((self.wire["status"].get("requeueState") or {}).get("count") or 0)

    @property
    def active(self) -> bool:
        return bool(self.wire["spec"].get("active", True))

    @rule(seconds=st.floats(0.01, 40.0), jitter=JITTER)
    def time_passes(self, seconds: float, jitter: float) -> None:
        """Until something is due, at most."""
        if self.is_down or self.idle_until is None or self.now + seconds < self.idle_until:
            self.now += seconds
        else:
            self.now = self.idle_until
            self.reconcile(jitter)

    @rule(ready=st.booleans(), jitter=JITTER)
    @precondition(lambda self: self.runs)
    def pods_change(self, ready: bool, jitter: float) -> None:
        # Pods that come back and are lost again before anybody has looked were never back.
        if self.ready and not ready and (find_condition(self.wire, PODS_READY) or {}).get("reason") != "WaitForRecovery":
            self.lost_at = self.now
        self.ready = ready
        self.reconcile(jitter)

    def reconcile(self, jitter: float) -> None:
        """What is changed brings the reconciler back, while it is there."""
        before: Json | None = None
        while not self.is_down and self.wire is not before:
            before, self.idle_until = self.wire, None
            self.step(jitter)

    def step(self, jitter: float) -> None:
        action = plan(self.wire, Seen(self.ready), self.now, self.limits, jitter)
        former, self.wire = self.wire, carry_out(self.wire, action, format_time(self.now))
        match action:
            case Amend():
                assert self.count in (int((former["status"].get("requeueState") or {}).get("count") or 0), 0)
                if not self.count:
                    self.evictions = 0
            case Evict(reason=reason, requeue_state=state):
                began = self.lost_at if condition_lost(former) else self.admitted_at
                limit = (self.limits.recovery_timeout_s or 0.0) if condition_lost(former) else self.limits.timeout_s
                assert not self.ready, "who is ready is left alone"
                assert self.now - began >= limit - 1e-6, "never early"
                if reason == "PodsReadyTimeout":
                    self.evictions += 1
                    pause = (to_time(state["requeueAt"]) - T0).total_seconds() - self.now
                    assert pause >= min(self.limits.backoff_max_s, self.limits.backoff_base_s * 2 ** (self.evictions - 1)) - 1e-6
                else:
                    assert self.limits.backoff_limit is not None
                    assert self.evictions == self.limits.backoff_limit
            case Wait(seconds):
                assert seconds > 0
                self.idle_until = self.now + seconds
            case None:
                assert not is_condition_true(self.wire, DEACTIVATION_TARGET), "no deactivation is left half done"
                waits = is_condition_true(self.wire, ADMITTED) and not is_condition_true(self.wire, EVICTED) and self.active
                limited = not condition_lost(self.wire) or self.limits.recovery_timeout_s is not None
                assert self.ready or not waits or not limited, "no timer is lost"

    @rule(jitter=JITTER)
    @precondition(lambda self: not is_condition_true(self.wire, ADMITTED) and WorkloadFacts.read(self.wire).active)
    def schedule(self, jitter: float) -> None:
        """The scheduler's timer is the workload's own."""
        until = WorkloadFacts.read(self.wire).requeue_at
        self.now = max(self.now, (to_time(until) - T0).total_seconds() if until else 0.0)
        self.write(build_admitted_status(self.wire, ADMISSION, format_time(self.now)))
        self.runs, self.ready, self.admitted_at = True, False, self.now
        self.reconcile(jitter)

    @rule(jitter=JITTER)
    @precondition(lambda self: is_condition_true(self.wire, ADMITTED) and is_condition_true(self.wire, EVICTED))
    def stop(self, jitter: float) -> None:
        self.runs = self.ready = False
        self.write(build_released_status(self.wire, "stopped", format_time(self.now)))
        self.reconcile(jitter)

    @rule(jitter=JITTER, does=st.sampled_from([True, False, False, False]))
    @precondition(lambda self: is_condition_true(self.wire, ADMITTED) and not is_condition_true(self.wire, EVICTED))
    def preempt(self, jitter: float, does: bool) -> None:
        if does:
            self.write(build_evicted_status(self.wire, "Preempted", "", format_time(self.now)))
            self.reconcile(jitter)

    @rule(jitter=JITTER, does=st.sampled_from([True, False, False, False]))
    @precondition(lambda self: not is_condition_true(self.wire, ADMITTED))  # what runs is evicted by another controller
    def user(self, jitter: float, does: bool) -> None:
        """Deactivates what waits, now and then, and activates what is deactivated."""
        if does or not self.active:
            self.wire = {**self.wire, "spec": {**self.wire["spec"], "active": not self.active}}
            self.reconcile(jitter)

    @rule()
    def crash(self) -> None:
        """All that the reconciler had in mind is gone."""
        self.is_down, self.idle_until = True, None

    @rule(jitter=JITTER)
    @precondition(lambda self: self.is_down)
    def restart(self, jitter: float) -> None:
        self.is_down = False
        self.reconcile(jitter)

    @invariant()
    def every_eviction_is_counted_once(self) -> None:
        if hasattr(self, "wire"):
            assert self.count == self.evictions

    @invariant()
    def whoever_is_held_back_says_until_when(self) -> None:
        if hasattr(self, "wire") and (WorkloadFacts.read(self.wire).requeue_at or "") > format_time(self.now) and not self.runs:
            until = WorkloadFacts.read(self.wire).requeue_at or ""
            assert until in (find_condition(self.wire, QUOTA_RESERVED) or {})["message"]

    @invariant()
    def what_does_not_run_is_not_ready(self) -> None:
        if hasattr(self, "wire") and not self.runs:
            assert not is_condition_true(self.wire, PODS_READY)
            assert read_managed_status(self.wire)["conditions"] == self.wire["status"]["conditions"]


def condition_lost(wire: Json) -> bool:
    return (find_condition(wire, PODS_READY) or {}).get("reason") in ("WaitForRecovery", "Started", "Recovered")


TestLife = Life.TestCase
