"""The status that a decision writes: the whole set of fields owned by the field manager `kueue-admission`.

What one apply leaves out, the API server deletes, so every apply carries everything this manager
owns (KEP-2724; field manager of Kueue).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from core.model.admission import Admission, encode_admission
from core.model.configuration import ResourceRules
from core.model.quantity import format_quantity
from core.model.transformation import compute_quota_requests
from core.names import (
    ADMITTED,
    EVICTED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REASON_BACKOFF_FINISHED,
    REASON_DEACTIVATED_BY_TIME,
    REASON_NO_RESERVATION,
    REASON_ON_HOLD,
    REASON_PENDING_EVALUATION,
    REASON_PREEMPTED,
    REASON_SUSPENDED,
    REASON_WAIT_FOR_RECOVERY,
    REASON_WAIT_FOR_START,
    REQUEUED,
)
from core.placement.refusals import MAX_MESSAGE, truncate
from core.plan.steps.actions import to_time
from core.plan.steps.conditions import Condition, set_conditions
from core.plan.steps.eviction_counts import build_eviction_stats
from core.plan.steps.managed_status import read_managed_status
from core.plan.workloads.checks import build_admitted_condition, describe_awaited_checks, reset_checks, sync_checks
from core.queueing.ordering.partial_admission import Shortfall
from core.state.facts import WorkloadFacts, find_condition, is_condition_true, read_reclaimed_pods

Json = Mapping[str, Any]
PREVIOUSLY, WAS_ON, PLACED_AGAIN = "Previously: ", ". It was on ", ". Placed again on "
PLACED, BEFORE, FEWER = "; placed: ", "; before: ", "; fewer pods: "  # the parts of an admission event's message that follow these
MOST_OF_FORMER = 400  # characters, of an event that has no more than 1024
NOT_READY = "Not all pods are ready or succeeded"
MAX_ETCD_BYTES = 1_500_000  # etcd refuses a request above 1.5 MiB; metadata and spec share that


def _describe_fewer(workload: Json, admission: Admission) -> str:
    """Which pod sets with a `minCount` get fewer pods than they ask for."""
    reclaimed, asked = read_reclaimed_pods(workload), (workload.get("spec") or {}).get("podSets") or ()
    fewer = [
        Shortfall(given.name, given.count, wanted, int(pod_set["minCount"]))
        for pod_set, given in zip(asked, admission.pod_sets, strict=False)
        if pod_set.get("minCount") is not None and given.count < (wanted := int(pod_set.get("count") or 0) - reclaimed.get(given.name, 0))
    ]
    return f"; {', '.join(map(str, fewer))}" if fewer else ""


def build_admitted_status(
    workload: Json, admission: Admission, now: str, checks: Sequence[str] | None = None, place: str = ""
) -> dict[str, Any]:
    """Returns the status that decisions own, with quota reserved and no unhealthy nodes; a backoff over by `now` ends. Admitted if all
    checks (`checks`: names; None: those it has) are Ready and no place is to be found. An eviction, and a preemption, becomes False, with
    its reason; an eviction with its place, too. `place` is where it is now, as text. Raises InvalidAssignment where an assignment cannot be
    written."""
    status = read_managed_status(workload)
    known = status.pop("admissionChecks", ())
    entries = tuple(known) if checks is None else sync_checks(known, checks, now)
    if entries:
        status["admissionChecks"] = list(entries)
    status.pop("unhealthyNodes", None)
    status.pop("resourceRequests", None)
    status["admission"] = encode_admission(admission)
    awaited = describe_awaited_checks(entries)
    reserved = f"Quota reserved in ClusterQueue {admission.cluster_queue}{_describe_fewer(workload, admission)}{awaited}"
    conditions = [Condition(QUOTA_RESERVED, True, QUOTA_RESERVED, reserved)]
    for kind in (EVICTED, PREEMPTED, "BlockedOnPreemptionGates"):
        before = find_condition(workload, kind)
        if before is not None and before.get("status") == "True":
            text = f"{PREVIOUSLY}{before.get('message', '')}"
            text += _describe_new_place(text, place) if kind == EVICTED and place else ""
            conditions.append(Condition(kind, False, QUOTA_RESERVED, text))
        elif before is not None and kind == EVICTED and place and is_returning(workload):  # its place follows its quota
            text = str(before.get("message") or "")
            conditions.append(Condition(kind, False, QUOTA_RESERVED, text + _describe_new_place(text, place)))
    conditions.append(build_admitted_condition(entries, awaits_topology=admission.awaits_topology))
    conditions += _end_backoff(status, now)
    return _with(workload, status, conditions, now)


def is_returning(workload: Json) -> bool:
    """Returns whether a workload is evicted, or was evicted and is not admitted since, while its new place is not recorded in condition
    Evicted."""
    evicted = find_condition(workload, EVICTED) or {}
    if evicted.get("status") == "True":
        return True
    text = str(evicted.get("message") or "")
    return not is_condition_true(workload, ADMITTED) and text.startswith(PREVIOUSLY) and PLACED_AGAIN not in text


def find_former(status: Json, limit: int = MAX_MESSAGE) -> str:
    """Returns, by condition Evicted of a `status` (JSON), why the last admission of a workload ended and where it was. If it was admitted
    again, where it is now follows. Empty where there was none. Of a text with more than `limit` characters the end of the reason is left
    out before the places."""
    evicted = find_condition({"status": status}, EVICTED) or {}
    text = str(evicted.get("message") or "").removeprefix(PREVIOUSLY)
    why, known, places = text.partition(WAS_ON)
    return truncate(truncate(why, max(1, limit - len(known) - len(places))) + known + places, limit)


def _describe_new_place(before: str, place: str) -> str:
    return f"{PLACED_AGAIN}{'the same' if before.endswith(f'{WAS_ON}{place}') else place}"


def build_waiting_status(
    workload: Json, facts: WorkloadFacts, reason: str, message: str, now: str, rules: ResourceRules | None = None
) -> dict[str, Any]:
    """Returns a status without quota and admission, with what each pod set requests in all. `reason` and `message` are those of condition
    QuotaReserved; Admitted is False, and PodsReady, if it was True or was to recover. `rules` define how quota counts requests; None: the
    default ones. A backoff that is over by `now` ends."""
    status = read_managed_status(workload)
    status.pop("admission", None)
    status["resourceRequests"] = [
        {"name": pod_set.name, "resources": {name: format_quantity(name, amount * pod_set.count) for name, amount in counted.items()}}
        for pod_set in facts.pod_sets
        for counted in (compute_quota_requests(pod_set.counted_requests, rules or ResourceRules()),)
    ]
    return _with(workload, status, _list_waiting_conditions(workload, reason, message) + _end_backoff(status, now), now)


def build_evicted_status(
    workload: Json,
    reason: str,
    message: str,
    now: str,
    also: Sequence[Condition] = (),
    requeue_state: Json | None = None,
) -> dict[str, Any]:
    """Returns a status by which a workload is to be stopped, by condition Evicted with `reason` and `message`: quota is kept until the job
    has stopped. The eviction is counted, unless it is evicted already. Checks are reset, unhealthy nodes removed. `also`: further
    conditions. `requeue_state` replaces what there was, and removes it if it is empty; None keeps it."""
    state = requeue_state if requeue_state is not None else (workload.get("status") or {}).get("requeueState")
    status = build_amended_status(workload, [Condition(EVICTED, True, reason, message), *also], now, state)
    return _begin_eviction(workload, status, reason, now)


def build_amended_status(
    workload: Json,
    conditions: Sequence[Condition],
    now: str,
    requeue_state: Json | None,
    drops: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the status as it stands, but for conditions that are set or dropped, and for `requeue_state`; None or an empty one
    removes that."""
    status = read_managed_status(workload)
    status.pop("requeueState", None)
    if requeue_state:
        status["requeueState"] = dict(requeue_state)
    status["conditions"] = [condition for condition in status["conditions"] if condition["type"] not in drops]
    return _with(workload, status, list(conditions), now)


def build_preempted_status(workload: Json, reason: str, message: str, now: str) -> dict[str, Any]:
    """Returns a status to be stopped for another workload, as `build_evicted_status` does: quota is kept until the job has stopped.
    `reason` names the right by which it is preempted, in condition Preempted; that of Evicted is Preempted. Both have the `message`."""
    conditions = [Condition(EVICTED, True, REASON_PREEMPTED, message), Condition(PREEMPTED, True, reason, message)]
    return _begin_eviction(workload, _with(workload, read_managed_status(workload), conditions, now), REASON_PREEMPTED, now)


def build_returned_status(workload: Json, reason: str, message: str, now: str, requeue_at: str | None = None) -> dict[str, Any]:
    """Returns the status of a workload that is evicted before anything was started: quota is given back in the same write. The eviction is
    counted, unless it is evicted already; checks are reset. `requeue_at`, a time as the API writes it: it is not admitted before; None
    keeps such a time that it has."""
    state = dict((workload.get("status") or {}).get("requeueState") or {}) | ({"requeueAt": requeue_at} if requeue_at else {})
    status = build_evicted_status(workload, reason, message, now, requeue_state=state)
    status.pop("admission", None)
    until = f"Not to be admitted before {requeue_at}: " if requeue_at else ""
    return _with(workload, status, _list_waiting_conditions(workload, REASON_PENDING_EVALUATION, f"{until}{message}"), now)


def sync_status(workload: Json, checks: Sequence[Json], now: str) -> dict[str, Any]:
    """Returns the status that decisions own as it stands, with copies of these admission checks in place of its own. Condition Admitted is
    not changed."""
    return _with(workload, read_managed_status(workload) | {"admissionChecks": [dict(check) for check in checks]}, [], now)


def build_held_status(workload: Json, message: str, now: str, place: str = "") -> dict[str, Any]:
    """Returns the status of a workload that gives back quota and domains, and is not queued again while it asks for no pods (OnHold).
    Checks are reset, unhealthy nodes removed. `place` is where it was, as text, and is added to the reason of an eviction that stands."""
    return _end_admission(build_released_status(workload, message, now, place, REASON_ON_HOLD), now)


def _begin_eviction(workload: Json, status: dict[str, Any], reason: str, now: str) -> dict[str, Any]:
    """The eviction is counted, and the admission ends."""
    status["schedulingStats"] = build_eviction_stats(workload, reason)
    return _end_admission(status, now)


def _end_admission(status: dict[str, Any], now: str) -> dict[str, Any]:
    """Whatever checks were passed must be passed again, and no node is to be replaced any more."""
    status.pop("unhealthyNodes", None)
    if status.get("admissionChecks"):
        status["admissionChecks"] = reset_checks(status["admissionChecks"], now)
    return status


def build_released_status(workload: Json, message: str, now: str, place: str = "", reason: str | None = None) -> dict[str, Any]:
    """Returns a status without quota and domains, after the job has stopped; `reason` and `message` are those of QuotaReserved: by default
    PendingEvaluation, and Suspended where `spec.active` is false. `place` is where the workload was: it is added to the reason of an
    eviction that stands. A backoff that is not over by `now` is named in the message."""
    if reason is None:
        reason = REASON_SUSPENDED if workload["spec"].get("active", True) is False else REASON_PENDING_EVALUATION
    status = read_managed_status(workload)
    for condition in status["conditions"]:
        if place and condition["type"] == EVICTED and condition["status"] == "True":
            condition["message"] = f"{str(condition.get('message') or '').removesuffix('.')}{WAS_ON}{place}"
    until = (status.get("requeueState") or {}).get("requeueAt")
    if until and until > now:
        message = f"Not to be admitted before {until}: {message}"
    status.pop("admission", None)
    return _with(workload, status, _list_waiting_conditions(workload, reason, message), now)


def _list_waiting_conditions(workload: Json, reason: str, message: str) -> list[Condition]:
    conditions = [Condition(QUOTA_RESERVED, False, reason, message)]
    conditions.append(Condition(ADMITTED, False, REASON_NO_RESERVATION, "The workload has no reservation"))
    ready = find_condition(workload, PODS_READY) or {}
    if ready.get("status") == "True" or ready.get("reason") == REASON_WAIT_FOR_RECOVERY:
        conditions.append(Condition(PODS_READY, False, REASON_WAIT_FOR_START, NOT_READY))
    return conditions


def _end_backoff(status: dict[str, Any], now: str) -> list[Condition]:
    """Ends the backoff of a workload that is decided on again, and returns the condition that records it. The count of
    evictions is kept."""
    state = dict(status.get("requeueState") or {})
    until = state.pop("requeueAt", None)
    if until is None or until > now:
        return []
    status.pop("requeueState")
    if state:
        status["requeueState"] = state
    return [Condition(REQUEUED, True, REASON_BACKOFF_FINISHED, "The workload backoff was finished")]


def _with(workload: Json, status: dict[str, Any], conditions: list[Condition], now: str) -> dict[str, Any]:
    generation = int(workload["metadata"].get("generation") or 0)
    admitted = find_condition(workload, ADMITTED) or {}
    if admitted.get("status") == "True" and any(new.type == ADMITTED and not new.status for new in conditions):
        _add_admitted_time(status, admitted, find_condition(workload, EVICTED) or {}, now)
    return status | {"conditions": set_conditions(status["conditions"], conditions, now=now, generation=generation)}


def _add_admitted_time(status: dict[str, Any], admitted: Json, evicted: Json, now: str) -> None:
    """Adds the time (s) of an admission that ends to that of earlier ones. A workload that has used up its maximum
    starts again from 0 once it is reactivated."""
    past = int(status.pop("accumulatedPastExecutionTimeSeconds", 0))
    if evicted.get("status") == "True" and evicted.get("reason") == REASON_DEACTIVATED_BY_TIME:
        return
    since = admitted.get("lastTransitionTime") or now
    status["accumulatedPastExecutionTimeSeconds"] = past + max(0, int((to_time(now) - to_time(since)).total_seconds()))
