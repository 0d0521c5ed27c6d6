"""Which workloads may run: `spec.active`, and the time for which one may be admitted (`spec.maximumExecutionTimeSeconds`, KEP-3125).

The fields of the workload decide everything, so that a restarted reconciler continues where another stopped:

    workload                                        what is done
    admitted for longer than its maximum            to be stopped and deactivated, in one write
    to be deactivated (DeactivationTarget), runs    to be stopped, for the reason of that condition
    to be deactivated, and stopped or not begun     `spec.active` is false
    inactive, and stopped or not begun              marked as deactivated (Requeued=False)
    marked as deactivated, active                   reactivated: what was counted of earlier tries is forgotten

Seconds count from `Admitted=True`; those of earlier admissions are in `status.accumulatedPastExecutionTimeSeconds`, to which
every write that ends an admission adds (`core.plan.workloads.admission_status`).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from core.names import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    REASON_DEACTIVATED_BY_TIME,
    REASON_MAX_EXEC_TIME,
    REASON_REACTIVATED,
    REASON_SUSPENDED,
    REQUEUED,
)
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.actions import RESOLUTION_S, Action, Amend, Deactivate, Evict, Wait, from_time, to_time
from core.plan.steps.conditions import Condition
from core.plan.steps.steps import NOTHING, Event, Log, Plan, Step, make_plan, report
from core.plan.workloads.requeue import build_reset
from core.plan.workloads.workload_steps import plan_action
from core.queueing.cycle.rules import has_broken_rule
from core.resource import Obj
from core.state.facts import build_object_key, find_condition, is_condition_true

Json = Mapping[str, Any]
_IS_DEACTIVATED = "The workload is deactivated"
ACTIVATE = (
    "To run it again, delete its job and create it again; or have an administrator (ClusterRole topogate-batch-admin) set spec.active of "
    "the Workload to true"
)
DEACTIVATED = f"{_IS_DEACTIVATED}: its spec.active is false. {ACTIVATE}"


def plan_active_workload(workload: Obj, now: datetime, *, can_be_activated: bool, has_ended: bool) -> Plan:
    """Returns the plan for what `plan_activity` finds at `now`. A workload that `can_be_activated` by topogate, which deactivated it, is
    activated instead. One with a job that `has_ended` is not evicted: it ended in time, and the controller of the job reports that."""
    if can_be_activated:
        log = Log("workload activated again", {"workload": build_object_key(workload)})
        return make_plan(Step("activate", w.set_active(workload), log=log))
    action = plan_activity(workload, now)
    if isinstance(action, Evict) and has_ended:
        return NOTHING
    plan = plan_action(workload, action, from_time(now))
    if isinstance(action, Evict) and action.reason == REASON_DEACTIVATED_BY_TIME:
        plan = plan.extend(report(Event(r.WORKLOADS, workload, REASON_MAX_EXEC_TIME, action.message, warning=True)))
    return plan


def plan_activity(workload: Json, now: datetime) -> Action | None:
    """Returns what `spec.active`, DeactivationTarget and the maximum execution time ask for at `now` (with time zone): Evict, Deactivate,
    Amend (marks it as deactivated or reactivated), or Wait for the seconds that are left. None where nothing is due until the workload
    changes, as when it is finished or being deleted."""
    if is_condition_true(workload, FINISHED) or workload["metadata"].get("deletionTimestamp"):
        return None
    state: Json = (workload.get("status") or {}).get("requeueState") or {}
    active = workload["spec"].get("active", True) is not False
    target = find_condition(workload, DEACTIVATION_TARGET) if is_condition_true(workload, DEACTIVATION_TARGET) else None
    runs = is_condition_true(workload, ADMITTED) and not is_condition_true(workload, EVICTED)
    if target is not None and runs:
        return _stop(target, state)
    if target is not None and active:
        return Deactivate()
    if not active:
        # A workload that still runs, or has quota, is stopped by the code that knows its pods or checks, with the
        # reason in the same write.
        holds = is_condition_true(workload, QUOTA_RESERVED) and not is_condition_true(workload, EVICTED)
        return None if runs or holds or (target is None and _is_marked(workload)) else _mark(workload, state)
    if _is_marked(workload):
        reactivated = Condition(REQUEUED, True, REASON_REACTIVATED, "The workload was reactivated")
        return Amend((reactivated,), None, annotations=build_reset(workload))
    return _time(workload, state, now) if runs else None


def _stop(target: Json, state: Json) -> Evict:
    reason = f"{REASON_DEACTIVATED}DueTo{target.get('reason') or 'Unknown'}"
    message = f"{_IS_DEACTIVATED} due to {target.get('message') or 'its condition DeactivationTarget'}. {ACTIVATE}"
    return Evict(reason, message, (Condition(REQUEUED, False, reason, message),), _read_counted(state))


def _time(workload: Json, state: Json, now: datetime) -> Evict | Wait | None:
    limit = workload["spec"].get("maximumExecutionTimeSeconds")
    since = (find_condition(workload, ADMITTED) or {}).get("lastTransitionTime")
    if limit is None or not since:
        return None
    past = int((workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0)
    deadline = to_time(since) + timedelta(seconds=max(0, int(limit) - past) + RESOLUTION_S)
    if now < deadline:
        return Wait((deadline - now).total_seconds())
    before = f", {past} s of them before it was last queued again" if past else ""
    over = f"it was admitted for its maximumExecutionTimeSeconds of {limit}{before}"
    message = f"{_IS_DEACTIVATED}: {over}. {ACTIVATE}; both give it this time again"
    target = Condition(DEACTIVATION_TARGET, True, REASON_MAX_EXEC_TIME, f"exceeding the maximum execution time of {limit} s")
    requeued = Condition(REQUEUED, False, REASON_DEACTIVATED_BY_TIME, message)
    return Evict(REASON_DEACTIVATED_BY_TIME, message, (target, requeued), _read_counted(state))


def _is_marked(workload: Json) -> bool:
    requeued = find_condition(workload, REQUEUED) or {}
    return requeued.get("status") == "False" and str(requeued.get("reason") or "").startswith(REASON_DEACTIVATED)


def _mark(workload: Json, state: Json) -> Amend:
    evicted = find_condition(workload, EVICTED) or {}
    of_it = evicted.get("status") == "True" and str(evicted.get("reason") or "").startswith(REASON_DEACTIVATED)
    reason, message = (evicted["reason"], evicted.get("message") or DEACTIVATED) if of_it else (REASON_DEACTIVATED, DEACTIVATED)
    mark = () if _is_marked(workload) else (Condition(REQUEUED, False, reason, message),)
    by_topogate = find_condition(workload, DEACTIVATION_TARGET) is not None or has_broken_rule(
        find_condition(workload, QUOTA_RESERVED) or {}
    )
    if not by_topogate and not is_condition_true(workload, EVICTED):
        # A user has deactivated what waits: what it lacked before is no longer why it waits, and is not kept up to date.
        mark = (*mark, Condition(QUOTA_RESERVED, False, REASON_SUSPENDED, message))
    return Amend(mark, _read_counted(state), (DEACTIVATION_TARGET,))


def _read_counted(state: Json) -> dict[str, Any]:
    """Without a time of requeuing: a backoff that ends would take the mark away, and with it the new beginning."""
    return {name: value for name, value in state.items() if name != "requeueAt"}
