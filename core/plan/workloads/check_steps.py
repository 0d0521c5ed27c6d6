"""Admission checks of a workload that has quota: what is written when they are passed, refused, or other ones than its queue asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

from core import trace_names as t
from core.names import ADMITTED, EVICTED, REASON_ADMISSION_CHECK, REASON_DEACTIVATED
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.actions import from_time, to_time
from core.plan.steps.steps import NOTHING, Event, Log, Plan, Span, Step, Then, make_plan, wait
from core.plan.workloads.activity import DEACTIVATED
from core.plan.workloads.admission_status import (
    BEFORE,
    MOST_OF_FORMER,
    build_admitted_status,
    build_returned_status,
    find_former,
    sync_status,
)
from core.plan.workloads.checks import Admit, GiveBack, Sync, WaitForChecks, plan_checks, plan_refused
from core.plan.workloads.workload_steps import plan_deactivation, plan_eviction_of
from core.resource import Obj
from core.state.check_facts import RetryStrategy
from core.state.facts import WorkloadFacts, build_object_key, find_condition

REASON_REJECTED = f"{REASON_DEACTIVATED}DueToAdmissionCheckRejected"
MOST_CHECKS = 64  # on a span


@dataclass(frozen=True, slots=True)
class CheckedWorkload:
    """A workload with what it must pass: the checks that its queue asks for by the flavors that it was given. `retries`: how often those
    that bring nodes may try again. Before `looked_since` no place was looked for."""

    workload: Obj
    facts: WorkloadFacts | None
    now: datetime
    timeout_s: float
    needed: Sequence[str] = ()
    retries: Mapping[str, RetryStrategy] = field(default_factory=dict)
    looked_since: datetime | None = None
    is_assumed: bool = False  # a decision on it is on its way

    @property
    def written_now(self) -> str:
        """Returns the time of the decision (`now`) as the API writes it."""
        return from_time(self.now)


def plan_checked(f: CheckedWorkload) -> Plan:
    """Returns the next step of a workload by its admission checks: it is admitted, gives back its quota, is evicted while it runs, or
    deactivated, or its checks are corrected. The plan is empty without quota, after an eviction, once finished or being deleted, and while
    a decision is on its way. It has no step, but perhaps `again_s`, while the checks are waited for."""
    workload, facts = f.workload, f.facts
    if is_to_deactivate(workload):
        return make_plan(plan_deactivation(workload, REASON_REJECTED))
    if facts is None or facts.admission is None or not facts.quota_reserved:
        return NOTHING
    if facts.evicted or facts.finished or facts.deleting or f.is_assumed:
        return NOTHING  # the event of what is on its way leads here again
    checks = list_checks(workload)
    if facts.admitted:
        return _stop(f, plan_refused(checks))
    if not facts.active:
        return _give_back(f, GiveBack(DEACTIVATED), REASON_DEACTIVATED)
    action = plan_checks(
        checks,
        f.needed,
        awaits_topology=facts.admission.awaits_topology,
        now=f.now,
        timeout_s=f.timeout_s,
        retries=f.retries,
        looked_since=f.looked_since,
    )
    match action:
        case WaitForChecks(seconds):
            return NOTHING if seconds is None else wait(seconds)
        case Sync(entries):
            return make_plan(Step("sync checks", w.apply_admission(workload, sync_status(workload, entries, f.written_now))))
        case Admit():
            return _admit(f, facts)
        case GiveBack():
            return _give_back(f, action, REASON_REJECTED if action.deactivates else REASON_ADMISSION_CHECK)
        case _:
            assert_never(action)


def list_checks(workload: Obj) -> list[Obj]:
    """Returns the admission checks (JSON, not copied) of a workload as a new list; empty where it has none."""
    return list((workload.get("status") or {}).get("admissionChecks") or ())


def is_to_deactivate(workload: Obj) -> bool:
    """Returns whether a workload is evicted since a check rejected it, and still active as it was then: one that was changed or activated
    since has another generation."""
    evicted = find_condition(workload, EVICTED) or {}
    return (
        evicted.get("status") == "True"
        and evicted.get("reason") == REASON_REJECTED
        and workload["spec"].get("active", True) is not False
        and evicted.get("observedGeneration") == workload["metadata"].get("generation")
    )


def _stop(f: CheckedWorkload, refused: GiveBack | None) -> Plan:
    """Plans the eviction of a running workload with a check that holds no more; its job releases the quota once it has
    stopped.

    It is deactivated after that, not before: otherwise the deactivation would be reported to users, and not its reason.
    """
    if refused is None:
        return NOTHING
    reason = REASON_REJECTED if refused.deactivates else REASON_ADMISSION_CHECK
    at = _requeue_at(f, refused)
    state = dict((f.workload.get("status") or {}).get("requeueState") or {}) | ({"requeueAt": at} if at else {})
    return make_plan(plan_eviction_of(f.workload, reason, refused.message, f.written_now, requeue_state=state))


def _requeue_at(f: CheckedWorkload, action: GiveBack) -> str | None:
    return from_time(f.now + timedelta(seconds=action.after_s)) if action.after_s else None


def _admit(f: CheckedWorkload, facts: WorkloadFacts) -> Plan:
    assert facts.admission is not None
    workload, queue = f.workload, facts.admission.cluster_queue
    attributes: dict[str, str | int] = {t.WORKLOAD: workload["metadata"]["name"], t.CLUSTER_QUEUE: queue}
    before = find_former(workload.get("status") or {}, MOST_OF_FORMER)
    waited = max(0, int((f.now - to_time(facts.reserved_at)).total_seconds())) if facts.reserved_at else 0
    message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s{f'{BEFORE}{before}' if before else ''}"
    return make_plan(
        Step("checked", span=build_checked_span(workload, facts, attributes)),
        Step(
            "admit",
            w.apply_admission(workload, build_admitted_status(workload, facts.admission, f.written_now, f.needed)),
            (Event(r.WORKLOADS, workload, ADMITTED, message),),
            Log("workload admitted", {"workload": facts.key, "cluster_queue": queue}),
            Span(t.ADMIT, workload, attributes | ({t.FORMER: before} if before else {})),
        ),
    )


def build_checked_span(workload: Obj, facts: WorkloadFacts, attributes: Mapping[str, str | int]) -> Span:
    """Returns the span of the wait that has just ended: from when it had quota until its admission checks were passed. It has an event for
    the state of each check, of 64 at most."""
    events = tuple((t.CHECK_STATE, {t.CHECK: check.name, t.STATE: check.state}, check.since) for check in facts.checks[:MOST_CHECKS])
    return Span(t.CHECKED, workload, attributes, start=facts.reserved_at, events=events)


def _give_back(f: CheckedWorkload, action: GiveBack, reason: str) -> Plan:
    """Nothing of it runs: evicted and free of its quota in one write, deactivated before where it is not to come back."""
    at = _requeue_at(f, action)

    def build(seen: Obj) -> w.Write:
        status: dict[str, Any] = build_returned_status(seen, reason, action.message, f.written_now, at)
        return w.apply_admission(seen, status)

    evicted: dict[str, str | int] = {t.WORKLOAD: f.workload["metadata"]["name"], t.REASON: reason, t.MESSAGE: action.message}
    return make_plan(
        plan_deactivation(f.workload, reason) if action.deactivates else None,
        Step(
            "give back",
            Then(r.WORKLOADS, f.workload, build),
            (Event(r.WORKLOADS, f.workload, f"EvictedDueTo{reason}", action.message),),
            Log("workload gave its quota back", {"workload": build_object_key(f.workload), "reason": reason}),
            Span(t.EVICT, f.workload, evicted),
        ),
    )
