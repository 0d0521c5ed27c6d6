"""waitForPodsReady: what is to be done with a workload when its pods are ready, or are not (KEP-349).

The statuses of workload and job decide everything, so that a restarted reconciler continues where
another stopped:

    workload                                          what is done
    admitted, condition PodsReady not as it is        it is set; the timers start at the time of its transition
    not ready for `timeout_s` since its start         evicted, counted and held back, all in one write
    not ready for `recovery_timeout_s` since it was   the same
    evicted so more often than `backoff_limit`        to be deactivated (DeactivationTarget), in the write that evicts it

What follows once it is to be deactivated is in `core.plan.workloads.activity`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core.model.pods_ready_rules import PodsReadyRules
from core.model.quantity import show_count
from core.names import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PODS_READY,
    PODSET_LABEL,
    REASON_DEACTIVATED,
    REASON_LIMIT_EXCEEDED,
    REASON_PODS_READY_TIMEOUT,
    REASON_RECOVERED,
    REASON_STARTED,
    REASON_WAIT_FOR_RECOVERY,
    REASON_WAIT_FOR_START,
    REQUEUED,
)
from core.plan.steps.actions import RESOLUTION_S, Action, Amend, Evict, Wait, format_rounded_up, to_time
from core.plan.steps.conditions import Condition, has_condition
from core.plan.workloads.activity import ACTIVATE
from core.plan.workloads.admission_status import NOT_READY
from core.state.facts import find_condition, is_condition_true

Json = Mapping[str, Any]
REASON_DEACTIVATED_BY_LIMIT = f"{REASON_DEACTIVATED}DueTo{REASON_LIMIT_EXCEEDED}"
_READY = "All pods reached readiness and the workload is running"
_LOST = "At least one pod has failed, waiting for recovery"


@dataclass(frozen=True, slots=True)
class Seen:
    """The progress of the job of a workload. `started`: its own time of start, where it has one; `over`: it has ended,
    though the status of its workload does not show it yet."""

    ready: bool
    started: str | None = None
    over: bool = False


def plan_pods_ready(workload: Json, seen: Seen, rules: PodsReadyRules, now: datetime, jitter: float) -> Action | None:
    """Returns the next step: Amend (sets PodsReady), Evict after a timeout, or Wait for the seconds until then. None while nothing is to be
    done until something changes, and for a workload that is not admitted, evicted, inactive or over. `jitter`: the share by which the
    backoff is longer (`PodsReadyRules.compute_backoff_s`)."""
    if is_condition_true(workload, FINISHED) or workload["metadata"].get("deletionTimestamp"):
        return None
    state: Json = (workload.get("status") or {}).get("requeueState") or {}
    if workload["spec"].get("active", True) is False or is_condition_true(workload, DEACTIVATION_TARGET):
        return None
    if seen.over or not is_condition_true(workload, ADMITTED) or is_condition_true(workload, EVICTED):
        return None
    return _plan_while_admitted(workload, state, seen, rules, now, jitter)


def are_pods_ready(counts: Mapping[str, int], pods: Iterable[Json], tolerated: int = 0) -> bool:
    """Returns whether, of each pod set, at least as many pods (JSON) as `counts` has are ready and not being deleted, or have succeeded;
    `tolerated` of all of them together may be missing. Pods belong to a pod set by their label PODSET_LABEL; True without counts."""
    found: Counter[str] = Counter()
    for pod in pods:
        metadata, status = pod["metadata"], pod.get("status") or {}
        if status.get("phase") == "Succeeded" or (is_condition_true(pod, "Ready") and not metadata.get("deletionTimestamp")):
            found[(metadata.get("labels") or {}).get(PODSET_LABEL, "")] += 1
    return sum(max(0, count - found[name]) for name, count in counts.items()) <= tolerated


def _plan_while_admitted(workload: Json, state: Json, seen: Seen, rules: PodsReadyRules, now: datetime, jitter: float) -> Action | None:
    condition = _build_condition(find_condition(workload, PODS_READY) or {}, ready=seen.ready)
    stands = has_condition((workload.get("status") or {}).get("conditions") or (), condition)
    timer = None if seen.ready else _compute_deadline(workload, condition, seen, rules)
    if timer is None or (not stands and condition.reason == REASON_WAIT_FOR_RECOVERY):
        # The time from which a recovery counts is that of the very transition which is written now.
        return None if stands else Amend((condition,), state)
    deadline, why = timer
    if now >= deadline:
        return _evict(state, why, rules, now, jitter)
    return Wait((deadline - now).total_seconds()) if stands else Amend((condition,), state)


def _build_condition(before: Json, *, ready: bool) -> Condition:
    """PodsReady as it should stand, by what it was before."""
    was_ready = before.get("status") == "True" or before.get("reason") == REASON_WAIT_FOR_RECOVERY
    if not ready:
        return Condition(PODS_READY, False, REASON_WAIT_FOR_RECOVERY, _LOST) if was_ready else NOT_STARTED
    if before.get("status") == "True":
        return Condition(PODS_READY, True, str(before.get("reason") or REASON_STARTED), _READY)
    return Condition(PODS_READY, True, REASON_RECOVERED if was_ready else REASON_STARTED, _READY)


NOT_STARTED = Condition(PODS_READY, False, REASON_WAIT_FOR_START, NOT_READY)


def _compute_deadline(workload: Json, condition: Condition, seen: Seen, rules: PodsReadyRules) -> tuple[datetime, str] | None:
    """Returns until when pods may take to be ready, and the message if they take longer; None if they may for ever."""
    admitted = str((find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or "")
    if condition.reason == REASON_WAIT_FOR_START:
        # A job may still have the time of an earlier start, from before this admission.
        since, limit, why = max(admitted, seen.started or ""), rules.timeout_s, "Not all pods were ready within {} of the start"
    elif rules.recovery_timeout_s is not None:
        since = str((find_condition(workload, PODS_READY) or {}).get("lastTransitionTime") or admitted)
        limit, why = rules.recovery_timeout_s, "A pod was lost, and not all were ready again within {}"
    else:
        return None
    if not since:
        return None  # written by hand: the API server takes no condition without its time
    return to_time(since) + timedelta(seconds=limit + RESOLUTION_S), why.format(f"{limit:g} s")


def _evict(state: Json, why: str, rules: PodsReadyRules, now: datetime, jitter: float) -> Evict:
    times = int(state.get("count") or 0)
    if rules.backoff_limit is not None and times >= rules.backoff_limit:
        message = (
            f"{why}. The workload is deactivated: it has been queued again {show_count(times, 'time')} already, and backoffLimitCount is "
            f"{rules.backoff_limit}. {ACTIVATE}"
        )
        target = Condition(DEACTIVATION_TARGET, True, REASON_LIMIT_EXCEEDED, "exceeding the maximum number of re-queuing retries")
        requeued = Condition(REQUEUED, False, REASON_DEACTIVATED_BY_LIMIT, message)
        return Evict(REASON_DEACTIVATED_BY_LIMIT, message, (target, requeued), {"count": times} if times else {})
    until = format_rounded_up(now + timedelta(seconds=rules.compute_backoff_s(times + 1, jitter)))
    of = "" if rules.backoff_limit is None else f" of {rules.backoff_limit}"
    message = f"{why}. It is queued again at {until} (requeue {times + 1}{of})"
    requeued = Condition(REQUEUED, False, REASON_PODS_READY_TIMEOUT, message)
    return Evict(REASON_PODS_READY_TIMEOUT, message, (requeued,), {"count": times + 1, "requeueAt": until})
