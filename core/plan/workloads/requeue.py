"""Workloads that lose their nodes time after time: each time they wait longer before they are queued again.

The first time there is no wait, since another domain may have room. A node that rejects pods, although its status shows
room, would otherwise be chosen at once again and again.

The number in a row is that of `status.schedulingStats`, which only goes up, without the evictions before the workload
last ran well: an annotation has their number. It is written before the eviction which ends such a run, and is the same
number if it is written again, so that a restart between the two changes nothing. `requeueState.count` is the number by
which waitForPodsReady deactivates, and is left alone.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from core.model.node_health_rules import RequeueRules
from core.model.quantity import show_count
from core.names import ADMITTED, FORGOTTEN_FAILURES, PODS_READY, REASON_NODE_FAILURES, REASON_WAIT_FOR_START, REQUEUED
from core.placement.refusals import MAX_MESSAGE, truncate
from core.plan.steps.actions import Evict, format_rounded_up, to_time
from core.plan.steps.conditions import Condition
from core.plan.steps.eviction_counts import count_evictions
from core.state.facts import find_condition, is_condition_true, read_index

Json = Mapping[str, Any]


def evict_for_lost_nodes(workload: Json, why: str, rules: RequeueRules, now: datetime) -> Evict:
    """Returns the eviction of a workload that has lost nodes for which there are no others. It is queued again at once, or with `requeueAt`
    after the seconds by `rules` for how often this came in a row. If it has run well before, it counts as the first time, and earlier times
    are forgotten by an annotation."""
    ran_well = _has_run_well(workload, rules, now)
    times, forgotten = (1, build_reset(workload)) if ran_well else (count_in_a_row(workload) + 1, {})
    state = {name: value for name, value in _requeue_state(workload).items() if name != "requeueAt"}
    wait = rules.wait_s(times)
    if not wait:
        return Evict(REASON_NODE_FAILURES, why, (), state, forgotten)
    until = format_rounded_up(now + timedelta(seconds=wait))
    then = f". It is queued again at {until}: it has lost its nodes {show_count(times, 'time')} in a row"
    message = truncate(why.removesuffix("."), MAX_MESSAGE - len(then)) + then
    requeued = Condition(REQUEUED, False, REASON_NODE_FAILURES, message)
    return Evict(REASON_NODE_FAILURES, message, (requeued,), {**state, "requeueAt": until}, forgotten)


def count_in_a_row(workload: Json) -> int:
    """Returns how often a workload was evicted for lost nodes since it last ran well, at least 0. It is the number in its statistics less
    that in annotation FORGOTTEN_FAILURES, which counts as 0 where it cannot be read."""
    text = (workload["metadata"].get("annotations") or {}).get(FORGOTTEN_FAILURES, "")
    return max(0, count_evictions(workload, REASON_NODE_FAILURES) - (read_index(text) or 0))


def build_reset(workload: Json) -> dict[str, str]:
    """Returns the annotation FORGOTTEN_FAILURES with the number of all evictions for lost nodes so far, by which these count no more; empty
    where none counts."""
    return {FORGOTTEN_FAILURES: str(count_evictions(workload, REASON_NODE_FAILURES))} if count_in_a_row(workload) else {}


def _has_run_well(workload: Json, rules: RequeueRules, now: datetime) -> bool:
    """Whether the admission that ends has lasted, and its pods were ready, where that is known."""
    admitted = find_condition(workload, ADMITTED) or {}
    if not is_condition_true(workload, ADMITTED) or not admitted.get("lastTransitionTime"):
        return False
    if (find_condition(workload, PODS_READY) or {}).get("reason") == REASON_WAIT_FOR_START:
        return False
    return now - to_time(admitted["lastTransitionTime"]) >= timedelta(seconds=rules.forget_after_s)


def _requeue_state(workload: Json) -> Json:
    return (workload.get("status") or {}).get("requeueState") or {}
