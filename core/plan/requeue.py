"""Workloads that lose their nodes time after time: each time they wait longer before they are queued again.

The first time there is no wait, since another domain may have room. A node that rejects pods, though it says that it has room, would
else be chosen again at once, and again. How often it was in a row stands in `status.schedulingStats.evictions` under the cause `InARow`,
and so outlives whoever counts; `requeueState.count` is what waitForPodsReady deactivates by, and is left alone.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from core.model.node_health import RequeueRules
from core.names import ADMITTED, PODS_READY, REASON_NODE_FAILURES, REASON_WAIT_FOR_START, REQUEUED
from core.placement.explain import MAX_MESSAGE, truncate
from core.plan.actions import Evict, rounded_up, to_time
from core.plan.conditions import Condition
from core.state.facts import condition_is_true, find_condition

Json = Mapping[str, Any]
IN_A_ROW = "InARow"


def plan_eviction(workload: Json, why: str, rules: RequeueRules, now: datetime) -> Evict:
    """A workload that has lost nodes for which there are no others is to be stopped, and queued again: at once, or after a while."""
    times = 1 if _ran_well(workload, rules, now) else count_in_a_row(workload) + 1
    state = {name: value for name, value in _status(workload, "requeueState").items() if name != "requeueAt"}
    stats = stats_with(workload, times)
    wait = rules.wait_s(times)
    if not wait:
        return Evict(REASON_NODE_FAILURES, why, (), state, stats)
    until = rounded_up(now + timedelta(seconds=wait))
    then = f". It is queued again at {until}: it has lost its nodes {times} times in a row"
    message = truncate(why.removesuffix("."), MAX_MESSAGE - len(then)) + then
    requeued = Condition(REQUEUED, False, REASON_NODE_FAILURES, message)
    return Evict(REASON_NODE_FAILURES, message, (requeued,), {**state, "requeueAt": until}, stats)


def count_in_a_row(workload: Json) -> int:
    """How often a workload was evicted for lost nodes, and did not run well in between."""
    entries = _status(workload, "schedulingStats").get("evictions") or ()
    return next((int(entry["count"]) for entry in entries if _is_ours(entry)), 0)


def stats_with(workload: Json, times: int) -> dict[str, Any]:
    """`status.schedulingStats` with another count in a row."""
    stats = _status(workload, "schedulingStats")
    others = [dict(entry) for entry in stats.get("evictions") or () if not _is_ours(entry)]
    ours = [{"reason": REASON_NODE_FAILURES, "underlyingCause": IN_A_ROW, "count": times}] if times else []
    return {**stats, "evictions": others + ours}


def _is_ours(entry: Json) -> bool:
    return (entry.get("reason"), entry.get("underlyingCause")) == (REASON_NODE_FAILURES, IN_A_ROW)


def _ran_well(workload: Json, rules: RequeueRules, now: datetime) -> bool:
    """Whether the admission that ends has lasted, and its pods were ready, where that is known."""
    admitted = find_condition(workload, ADMITTED) or {}
    if not condition_is_true(workload, ADMITTED) or not admitted.get("lastTransitionTime"):
        return False
    if (find_condition(workload, PODS_READY) or {}).get("reason") == REASON_WAIT_FOR_START:
        return False
    return now - to_time(admitted["lastTransitionTime"]) >= timedelta(seconds=rules.forget_after_s)


def _status(workload: Json, name: str) -> Json:
    return (workload.get("status") or {}).get(name) or {}
