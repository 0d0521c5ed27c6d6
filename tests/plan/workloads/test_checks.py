"""Admission checks of a workload: what is done when they are refused, passed, or passed for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.plan.workloads.checks import (
    Admit,
    GiveBack,
    Sync,
    WaitForChecks,
    describe_awaited_checks,
    plan_checks,
    plan_refused,
    reset_checks,
)
from core.state.check_facts import RetryStrategy

Json = dict[str, Any]
READY_AT = datetime(2026, 1, 1, tzinfo=UTC)
UPDATES = [{"name": "main", "annotations": {"by": "nodes"}}]
RETRIES = {"nodes": RetryStrategy(limit=1, base_s=7)}


def check(name: str = "nodes", state: str = "Ready", **more: Any) -> Json:
    return {"name": name, "state": state, "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m", **more}


def plan(*checks: Mapping[str, Any], after_s: float = 0.0, awaits: bool = True, retries: dict[str, RetryStrategy] | None = None) -> Any:
    now = READY_AT + timedelta(seconds=after_s)
    return plan_checks(checks, [c["name"] for c in checks], awaits_topology=awaits, now=now, timeout_s=10, retries=retries)


def test_all_ready_is_admitted_unless_a_place_is_to_be_found():
    assert plan(check(), awaits=False) == Admit()
    assert plan(check(), check("other", "Pending"), awaits=False) == WaitForChecks()
    assert plan(check(), after_s=4) == WaitForChecks(7.0), "whole seconds: what began at 0 may have begun almost at 1"


def test_checks_that_are_awaited_are_named():
    """A workload with quota that waits for its checks said no more than that it has quota."""
    assert describe_awaited_checks([check(), check("b", "Pending"), check("c", "Retry")]).endswith(": b, c")
    assert describe_awaited_checks([check()]) == ""


def test_checks_that_brought_no_nodes_give_the_quota_back_when_no_place_is_found():
    assert isinstance(plan(check(), after_s=11), GiveBack)
    assert isinstance(plan(check(), after_s=11, retries=RETRIES), GiveBack), "it was passed without asking for any"


def test_nodes_on_which_there_is_no_place_count_as_a_failed_attempt():
    action = plan(check(podSetUpdates=UPDATES), check("other"), after_s=11, retries=RETRIES)
    assert isinstance(action, Sync)
    nodes, other = action.checks
    assert other == check("other")
    assert (nodes["state"], nodes["retryCount"], nodes["requeueAfterSeconds"]) == ("Retry", 1, 7)
    assert "within 10 s" in nodes["message"]
    assert "podSetUpdates" not in nodes
    refused = plan(nodes, other, after_s=12, retries=RETRIES)
    assert isinstance(refused, GiveBack)
    assert (refused.after_s, refused.deactivates) == (7, False)


def test_when_all_attempts_are_spent_the_workload_is_deactivated():
    action = plan(check(podSetUpdates=UPDATES, retryCount=1), after_s=11, retries=RETRIES)
    assert isinstance(action, Sync)
    (spent,) = action.checks
    assert spent["state"] == "Rejected"
    assert "2 attempts" in spent["message"]
    refused = plan(spent, after_s=12, retries=RETRIES)
    assert isinstance(refused, GiveBack)
    assert refused.deactivates


@pytest.mark.parametrize(("state", "counted"), [("Retry", {"retryCount": 2}), ("Ready", {"retryCount": 2}), ("Rejected", {})])
def test_attempts_are_remembered_until_they_are_all_spent(state: str, counted: Json):
    (reset,) = reset_checks([check(state=state, retryCount=2)], "2026-02-02T00:00:00Z")
    assert reset["state"] == "Pending"
    assert {name: reset[name] for name in ("retryCount",) if name in reset} == counted


def test_rejected_outweighs_retry_and_the_longest_pause_counts():
    refused = plan_refused([check("a", "Retry", requeueAfterSeconds=3), check("b", "Retry", requeueAfterSeconds=9)])
    assert refused is not None
    assert (refused.after_s, refused.deactivates) == (9, False)
    refused = plan_refused([check("a", "Retry", requeueAfterSeconds=3), check("b", "Rejected")])
    assert refused is not None
    assert refused.deactivates
    assert plan_refused([check(), check("b", "Pending")]) is None
