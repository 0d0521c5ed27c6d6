"""Evicted for lost nodes time after time: how long each wait is, what outlives a restart, and what is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.node_health_rules import RequeueRules
from core.names import (
    EVICTED,
    FORGOTTEN_FAILURES,
    PODS_READY,
    QUOTA_RESERVED,
    REASON_MAX_EXEC_TIME,
    REASON_WAIT_FOR_RECOVERY,
    REASON_WAIT_FOR_START,
    REQUEUED,
)
from core.plan.steps.actions import Amend, Evict
from core.plan.steps.eviction_counts import count_evictions
from core.plan.workloads.activity import plan_activity
from core.plan.workloads.admission_status import (
    build_admitted_status,
    build_evicted_status,
    build_preempted_status,
    build_released_status,
)
from core.plan.workloads.pods_ready import Seen, plan_pods_ready
from core.plan.workloads.requeue import count_in_a_row, evict_for_lost_nodes
from core.state.facts import find_condition, is_condition_true
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json
from tests.plan.workloads.carried import carry_out
from tests.plan.workloads.test_pods_ready import RULES as READINESS
from tests.plan.workloads.test_status import ADMISSION

Json = dict[str, Any]
T0 = datetime(2026, 1, 1, tzinfo=UTC)
RULES = RequeueRules(base_s=10, limit_s=60, forget_after_s=300)
WHY = "Workload was evicted as there was no replacement for unhealthy node(s): n1; nothing else has room."


def format_time(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Life:
    """A workload as the API has it; nothing else is known from one step to the next."""

    def __init__(self, rules: RequeueRules = RULES, **status: Any) -> None:
        self.rules, self.wire = rules, build_workload_json("w", [build_pod_set_json(count=2)])
        self.wire["status"] |= status

    def admit(self, now: float) -> None:
        self.wire["status"] = build_admitted_status(self.wire, ADMISSION, format_time(now))

    def say_ready(self, now: float, *, ready: bool, reason: str = "") -> None:
        conditions = [c for c in self.wire["status"]["conditions"] if c["type"] != PODS_READY]
        self.wire["status"]["conditions"] = [*conditions, build_condition_json(PODS_READY, ready, reason=reason, time=format_time(now))]

    def plan(self, now: float) -> Evict:
        return evict_for_lost_nodes(self.wire, WHY, self.rules, T0 + timedelta(seconds=now))

    def annotate(self, annotations: Mapping[str, str]) -> None:
        self.wire["metadata"]["annotations"] = {**self.wire["metadata"].get("annotations", {}), **annotations}

    def evict(self, now: float) -> float | None:
        """For how long it is held back."""
        step = self.plan(now)
        self.wire = carry_out(self.wire, step, format_time(now))
        self.wire["status"] = build_released_status(self.wire, step.message, format_time(now))
        until = self.wire["status"].get("requeueState", {}).get("requeueAt")
        return (datetime.fromisoformat(until) - T0).total_seconds() - now if until else None

    def message(self, kind: str) -> str:
        return str((find_condition(self.wire, kind) or {}).get("message"))


def test_the_first_is_queued_again_at_once_and_each_further_one_later():
    life, now, waits = Life(), 0.0, []
    for _ in range(6):
        life.admit(now)
        waits.append(life.evict(now + 5))
        now += 5 + (waits[-1] or 0)
    assert waits == [None, 10, 20, 40, 60, 60]


def test_evicted_workload_reports_its_requeue_time_and_reason():
    life = Life()
    life.admit(0)
    life.evict(5)
    assert life.message(EVICTED) == WHY
    assert find_condition(life.wire, REQUEUED) is None
    life.admit(6)
    life.evict(7)
    message = life.message(EVICTED)
    assert message == life.message(REQUEUED)
    assert message.startswith(WHY)
    assert all(part in message for part in (format_time(17), "2 times"))
    assert not is_condition_true(life.wire, REQUEUED)
    assert life.message(QUOTA_RESERVED).endswith(message)
    life.admit(17)
    assert is_condition_true(life.wire, REQUEUED)
    assert "requeueState" not in life.wire["status"]
    assert count_in_a_row(life.wire) == 2, "an admission alone is no end of it"


def test_eviction_message_of_any_length_names_the_requeue_time():
    life = Life(schedulingStats={"evictions": [{"reason": "NodeFailures", "underlyingCause": "", "count": 3}]})
    life.admit(0)
    step = evict_for_lost_nodes(life.wire, "no room " * 1000, RULES, T0)
    assert len(step.message) <= 1024
    assert all(part in step.message for part in (format_time(40), "4 times"))


@pytest.mark.parametrize(
    ("ran_s", "ready", "times"),
    [
        (299, None, 3),
        (300, None, 1),
        (300, (True, "Started"), 1),
        (300, (False, REASON_WAIT_FOR_RECOVERY), 1),
        (300, (False, REASON_WAIT_FOR_START), 3),
    ],
)
def test_failures_in_a_row_are_reset_after_a_long_ready_run(ran_s: float, ready: tuple[bool, str] | None, times: int):
    life = Life()
    for now in (0.0, 100.0):
        life.admit(now)
        life.evict(now + 1)
    life.admit(200)
    if ready is not None:
        life.say_ready(201, ready=ready[0], reason=ready[1])
    life.evict(200 + ran_s)
    assert count_in_a_row(life.wire) == times


def test_node_failures_do_not_count_as_pods_ready_timeouts():
    """Neither brings a workload nearer to its deactivation for the other, nor makes it wait longer."""
    life = Life(requeueState={"count": 1})
    for now, held in ((0, None), (2, 10), (20, 20)):
        life.admit(now)
        assert life.evict(now + 1) == held
    assert life.wire["status"]["requeueState"] == {"count": 1, "requeueAt": format_time(41)}
    life.admit(41)
    late = plan_pods_ready(life.wire, Seen(ready=False), READINESS, T0 + timedelta(seconds=1000), 0.0)
    assert isinstance(late, Evict)
    assert (late.reason, late.requeue_state["count"], late.annotations) == ("PodsReadyTimeout", 2, {})


def test_evictions_are_counted_by_reason_and_these_numbers_only_go_up():
    """As clients of the peer read them; what is in a row is told by them, and by nothing that goes down."""
    life = Life(schedulingStats={"evictions": [{"reason": "NodeFailures", "underlyingCause": "Else", "count": 7}]})
    life.admit(0)
    life.evict(1)
    life.admit(2)
    life.wire["status"] = build_preempted_status(life.wire, "InClusterQueue", "for another", format_time(3))
    life.admit(1000)
    life.evict(2000)
    assert count_in_a_row(life.wire) == 1, "it had run well in between"
    life.admit(2001)
    life.wire["status"] = build_evicted_status(life.wire, f"DeactivatedDueTo{REASON_MAX_EXEC_TIME}", "too long", format_time(2002))
    assert life.wire["status"]["schedulingStats"]["evictions"] == [
        {"reason": "NodeFailures", "underlyingCause": "Else", "count": 7},
        {"reason": "Preempted", "underlyingCause": "", "count": 1},
        {"reason": "NodeFailures", "underlyingCause": "", "count": 2},
        {"reason": "Deactivated", "underlyingCause": REASON_MAX_EXEC_TIME, "count": 1},
    ]
    assert [count_evictions(life.wire, reason) for reason in ("NodeFailures", "PodsReadyTimeout")] == [2, 0]


def test_one_that_is_being_stopped_is_not_counted_twice():
    life = Life()
    life.admit(0)
    for _ in range(2):
        life.wire["status"] = build_evicted_status(life.wire, "NodeFailures", WHY, format_time(1))
    assert count_in_a_row(life.wire) == 1


def test_a_restart_between_the_two_writes_changes_nothing():
    """What is forgotten is written first. Whoever starts anew then plans the same; and so it is where the node comes back instead."""
    life = Life()
    for now in (0.0, 100.0):
        life.admit(now)
        life.evict(now + 1)
    life.admit(200)
    life.annotate(life.plan(600).annotations)
    assert life.wire["metadata"]["annotations"] == {FORGOTTEN_FAILURES: "2"}
    assert life.evict(601) is None
    assert count_in_a_row(life.wire) == 1
    life.admit(602)
    assert life.evict(603) == 10


@pytest.mark.parametrize("text", ["many", "-1", "", "99"])
def test_forgotten_failures_annotation_with_any_text_is_read(text: str):
    life = Life(schedulingStats={"evictions": [{"reason": "NodeFailures", "underlyingCause": "", "count": 3}]})
    life.annotate({FORGOTTEN_FAILURES: text})
    assert count_in_a_row(life.wire) == (0 if text == "99" else 3)


def test_reactivated_workload_starts_failure_counting_anew():
    life = Life()
    for now in (0.0, 100.0):
        life.admit(now)
        life.evict(now + 1)
    life.wire["spec"]["active"] = False
    mark = plan_activity(life.wire, T0)
    assert isinstance(mark, Amend)
    life.wire = carry_out(life.wire, mark, format_time(200))
    assert count_in_a_row(life.wire) == 2
    life.wire["spec"]["active"] = True
    again = plan_activity(life.wire, T0)
    assert isinstance(again, Amend)
    life.wire = carry_out(life.wire, again, format_time(201))
    assert count_in_a_row(life.wire) == 0
    life.admit(202)
    assert life.evict(203) is None


@given(st.floats(0, 1000), st.floats(0, 1000), st.integers(1, 10_000))
def test_waits_grow_and_have_an_end(base_s: float, more_s: float, times: int):
    rules = RequeueRules(base_s, base_s + more_s)
    assert rules.wait_s(1) == 0
    assert rules.wait_s(2) == base_s
    assert rules.wait_s(times) <= rules.wait_s(times + 1) <= rules.limit_s
    assert rules.wait_s(times + 1) <= max(base_s, 2 * rules.wait_s(times))


def test_requeue_rules_with_base_zero_cause_no_wait():
    life = Life(RequeueRules(base_s=0))
    for now in range(5):
        life.admit(now * 2)
        assert life.evict(now * 2 + 1) is None


@pytest.mark.parametrize("text", ["9" * 5000, "x", "", "-1"])
def test_forgotten_failures_that_are_no_number_count_as_none(text: str):
    life = Life(schedulingStats={"evictions": [{"reason": "NodeFailures", "underlyingCause": "", "count": 3}]})
    life.wire["metadata"].setdefault("annotations", {})[FORGOTTEN_FAILURES] = text
    assert count_in_a_row(life.wire) == 3
