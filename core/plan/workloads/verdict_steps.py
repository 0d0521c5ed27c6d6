"""What is written and reported of a decision, as a plan; and what of a write that had no answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from core import trace_names as t
from core.model.admission import Admission, decode_admission, encode_admission
from core.model.configuration import ResourceRules, SecondPass
from core.model.node_health_rules import RequeueRules
from core.model.spare_nodes import must_be_named, show_borrowed, show_held_spares
from core.model.wire.encoding import compute_encoded_size
from core.names import (
    ADMITTED,
    BORROWED_SPARES,
    EVENT_PODS_MOVED,
    EVENT_SECOND_PASS_FAILED,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    PREEMPTED,
    QUOTA_RESERVED,
    REASON_PENDING_EVALUATION,
    REASON_PENDING_TOPOLOGY,
    REASON_PREEMPTED,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    SPARES,
)
from core.placement.explain.choice import show_choices
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.actions import from_time, to_time
from core.plan.steps.conditions import Condition, has_condition
from core.plan.steps.steps import NOTHING, Event, Log, Overtaken, Plan, Span, Step, make_plan
from core.plan.workloads.admission_status import (
    BEFORE,
    FEWER,
    MAX_ETCD_BYTES,
    MOST_OF_FORMER,
    PLACED,
    build_admitted_status,
    build_amended_status,
    build_preempted_status,
    build_waiting_status,
    find_former,
    is_returning,
)
from core.plan.workloads.check_steps import build_checked_span
from core.plan.workloads.checks import describe_awaited_checks, find_ready_time
from core.plan.workloads.requeue import evict_for_lost_nodes
from core.plan.workloads.workload_steps import plan_action
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible, Victim
from core.queueing.flavors.spare_lending import show_loans
from core.queueing.ordering.partial_admission import describe_shortfalls
from core.resource import Obj
from core.state.facts import WorkloadFacts, build_object_key, find_controller, is_condition_true
from core.state.whereabouts import describe_move

LOST_ANSWER = "the answer to the last write was lost; it is decided on anew"


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and when the decision on it began and ended."""

    verdict: Verdict
    began: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class VerdictRules:
    """What an administrator has set of how verdicts are written."""

    resources: ResourceRules
    second_pass: SecondPass
    requeue: RequeueRules


@dataclass(frozen=True, slots=True)
class PresentVictim:
    """A workload that was found to have to go for another one. `seen`: the Workload as it is now; `path`: where its queue is among the
    cohorts."""

    victim: Victim
    seen: Obj
    path: str

    @property
    def must_go(self) -> bool:
        """Returns whether it is still the workload that was found, and is not evicted already."""
        return bool(self.seen["metadata"]["uid"] == self.victim.workload.uid) and not is_condition_true(self.seen, EVICTED)


@dataclass(frozen=True, slots=True)
class DecidedWorkload:
    """A workload as it is now, and what was decided on it.

    `outcome`: that of the verdict, or why it cannot be written (`refuse_too_large`). `queue`: its ClusterQueue, empty
    where it has none. `place`: where it will be, as text, if it was evicted before (`is_place_reported`). `moved`: pods
    that get another place by this. `healthy`: those of its failed nodes that run: they reject its pods. `path`: where its
    queue is among the cohorts. `victims`: those that go for it.
    """

    workload: Obj
    judged: Judged
    outcome: Admissible | NotAdmissible
    now: datetime
    rules: VerdictRules
    queue: str = ""
    place: str = ""
    moved: tuple[Obj, ...] = ()
    healthy: frozenset[str] = frozenset()
    path: str = "/"
    victims: tuple[PresentVictim, ...] = ()

    @property
    def facts(self) -> WorkloadFacts:
        """Returns the workload as it was when it was decided on."""
        return self.judged.verdict.workload

    @property
    def written_now(self) -> str:
        """Returns the time of the write (`now`) as the API writes it."""
        return from_time(self.now)

    @property
    def attributes(self) -> dict[str, str | int]:
        """Returns the attributes of every span, as a new map: the workload's name and its ClusterQueue, by the admission if there is
        one."""
        queue = self.outcome.admission.cluster_queue if isinstance(self.outcome, Admissible) else self.queue
        return {t.WORKLOAD: self.workload["metadata"]["name"], t.CLUSTER_QUEUE: queue}


def plan_verdict(f: DecidedWorkload) -> Plan:
    """Returns what is written and reported of a decision: it is admitted, evicted, or waits with the reason; one that breaks a rule is
    deactivated. A failed second pass writes nothing, and is repeated after `again_s` seconds, if that is not None. Where a pod that was to
    move is bound by now, there is only a `problem`. All writes are guarded by the workload as it is now: if it was deactivated, changed or
    deleted since, the decision is void. Raises InvalidAssignment where an assignment cannot be
    written."""
    outcome = f.outcome
    if isinstance(outcome, Admissible):
        return _admit(f, outcome)
    plan_refusal = _evict if outcome.evicts else _try_again if f.judged.verdict.is_second_pass else _plan_waiting
    return plan_refusal(f, outcome)


def is_place_reported(workload: Obj, outcome: Admissible | NotAdmissible) -> bool:
    """Returns whether the status reports where a workload is now: it was evicted before, and is admissible with a place that is not still
    to be found."""
    return isinstance(outcome, Admissible) and is_returning(workload) and not outcome.admission.awaits_topology


def refuse_too_large(workload: Obj, outcome: Admissible | NotAdmissible) -> NotAdmissible | None:
    """Returns a refusal of a place that etcd would not take, with its size in bytes; None where etcd takes it, or there is no place. The
    place is one to be written now, or one for which others would have to go first. Raises InvalidAssignment where its assignment cannot be
    written."""
    found = outcome if isinstance(outcome, Admissible) else None
    if isinstance(outcome, NotAdmissible) and outcome.preempting is not None and not outcome.evicts:
        found = outcome.preempting.found
    if found is None:
        return None
    status = {key: value for key, value in (workload.get("status") or {}).items() if key != "admission"}
    size = compute_encoded_size({**workload, "status": status}) + compute_encoded_size(encode_admission(found.admission))
    if size <= MAX_ETCD_BYTES:
        return None
    message = f"the Workload with its assignment would have {size} bytes; etcd takes {MAX_ETCD_BYTES}"
    return NotAdmissible(REASON_TOPOLOGY_PLACEMENT_FAILED, message, found.attempts)


def plan_lost_answer(verdict: Verdict, now: Obj, at: str, rules: ResourceRules) -> Plan:
    """Returns the plan for a write without an answer, after which the workload was read (`now`). It is empty where the workload has what
    was written. For a first pass that is any admission. For a second pass no place may be still to be found and no node named as unhealthy.
    The admission must be another than before, unless the workload was not admitted then or had unhealthy nodes.

    Else it makes that write fail, which may still be on its way, as it changes the version that guards it: it sets condition Admitted anew,
    or without an admission lets the workload wait; nothing else changes. `at`: the time as the API writes it. Raises InvalidAssignment or
    InvalidQuantity where the admission cannot be read."""
    if _is_written(verdict, now):
        return NOTHING
    if verdict.is_second_pass and _read_admission(now) is not None:
        lost = Condition(ADMITTED, False, REASON_PENDING_TOPOLOGY, LOST_ANSWER)
        if is_condition_true(now, ADMITTED):
            lost = Condition(ADMITTED, True, ADMITTED, LOST_ANSWER)
        status = build_amended_status(now, [lost], at, (now.get("status") or {}).get("requeueState"))
    else:
        status = build_waiting_status(now, verdict.workload, REASON_PENDING_EVALUATION, LOST_ANSWER, at, rules)
    return make_plan(Step("cancel write", w.apply_admission(now, status)))


def _is_written(verdict: Verdict, now: Obj) -> bool:
    admission, facts = _read_admission(now), verdict.workload
    if admission is None or not verdict.is_second_pass:
        return admission is not None
    is_as_before = facts.admitted and not facts.unhealthy_nodes and admission == facts.admission
    return not (is_as_before or admission.awaits_topology or bool((now.get("status") or {}).get("unhealthyNodes")))


def end_stuck(pods: Sequence[Obj]) -> tuple[Step, ...]:
    """Returns steps that delete waiting pods, one each, so that replacements are created for another place. A pod that is gone is no
    failure. One that is bound meanwhile runs on, and its workload needs no other place: then the plan ends there, and the others keep
    waiting."""
    gone = frozenset({Overtaken.GONE})
    return tuple(Step("end stuck pod", w.delete_pod(pod, w.Guard.WAITING), passes=gone) for pod in pods)


def list_swapped_in(workload: WorkloadFacts, outcome: Admissible | NotAdmissible) -> list[str]:
    """Returns the names, sorted, of nodes that were kept free for a workload and are not any more by the outcome: they take pods of lost
    nodes. Empty where no place was found or it had no admission."""
    if not isinstance(outcome, Admissible) or workload.admission is None:
        return []
    before, now = (
        {(given.name, node) for given in admission.pod_sets for node in given.spares}
        for admission in (workload.admission, outcome.admission)
    )
    return sorted({node for _, node in before - now})


# --- a place -----------------------------------------------------------------------------------------------------


def _admit(f: DecidedWorkload, found: Admissible) -> Plan:
    workload, facts = f.workload, f.facts
    bound = next((pod for pod in f.moved if pod["spec"].get("nodeName")), None)
    if bound is not None:
        return Plan(problem=f"pod {build_object_key(bound)} is bound by now, and needs no other place")
    notes = _name_spares(f, found)
    status = build_admitted_status(workload, found.admission, f.written_now, found.checks, f.place)
    before = find_former(status, MOST_OF_FORMER) if is_returning(workload) else ""
    attributes = f.attributes | ({t.FORMER: before} if before else {})
    is_admitted = is_condition_true({"status": status}, ADMITTED)
    awaited = describe_awaited_checks(status.get("admissionChecks") or ())
    events = [] if f.judged.verdict.is_second_pass else _report_quota(f, awaited, is_minor=is_admitted)
    if facts.admitted:
        events += _report_move(f, found)
    elif is_admitted:
        events.append(Event(r.WORKLOADS, workload, ADMITTED, _describe_admission(f, found, before)))
    return make_plan(
        _trace_wait(f),
        _trace_decision(f),
        *end_stuck(f.moved),
        # Before the admission by which they are held, so that the next leader holds the same.
        Step("name spares", w.set_annotations(r.WORKLOADS, workload, notes)) if notes else None,
        Step(
            "admit", w.apply_admission(workload, status), tuple(events), _log_of(f, found, is_admitted), Span(t.ADMIT, workload, attributes)
        ),
    )


def _name_spares(f: DecidedWorkload, found: Admissible) -> dict[str, str | None]:
    said, notes = f.workload["metadata"].get("annotations") or {}, dict[str, str | None]()
    asked = {pod_set.name: pod_set.spares for pod_set in f.facts.pod_sets}
    replaces = _find_pass(f.judged.verdict) == t.REPLACEMENT  # its assignment shows for both which of them count no more
    if must_be_named(found.admission, said.get(SPARES), asked, replaces=replaces):
        notes[SPARES] = show_held_spares(found.admission)
    borrowed = show_borrowed(found.admission)
    if not replaces and borrowed != said.get(BORROWED_SPARES):
        notes[BORROWED_SPARES] = borrowed
    return notes


def _report_quota(f: DecidedWorkload, awaited: str, *, is_minor: bool) -> list[Event]:
    """`awaited`: which checks it waits for, as text; then what it was made for shows that, too."""
    waited = _count_seconds_since(f, f.facts.queued_since)
    message = f"Quota reserved in ClusterQueue {f.attributes[t.CLUSTER_QUEUE]}, wait time since queued was {waited}s{awaited}"
    if awaited:
        return _report_on_both(f.workload, QUOTA_RESERVED, QUOTA_RESERVED, message, warning=False)
    return [Event(r.WORKLOADS, f.workload, QUOTA_RESERVED, message, is_minor=is_minor)]


def _report_move(f: DecidedWorkload, found: Admissible) -> list[Event]:
    """Pods of a job end, and others come elsewhere: its maker sees it on the job."""
    before, failed = f.facts.admission, f.facts.unhealthy_nodes
    moved = describe_move(before, found.admission, failed, f.healthy) if before is not None else ""
    return _report_on_both(f.workload, EVENT_PODS_MOVED, EVENT_PODS_MOVED, moved, warning=False) if moved else []


def _describe_admission(f: DecidedWorkload, found: Admissible, before: str) -> str:
    waited = _count_seconds_since(f, f.facts.reserved_at if f.judged.verdict.is_second_pass else None)
    message = f"Admitted by ClusterQueue {found.admission.cluster_queue}, wait time since reservation was {waited}s"
    fewer = describe_shortfalls(f.facts, found)
    placed = [text for text in (found.together, show_choices(found.choices), show_loans(found.loans, f.facts)) if text]
    message += f"{FEWER}{fewer}" if fewer else ""
    message += f"{PLACED}{'; '.join(placed)}" if placed else ""
    return message + (f"{BEFORE}{before}" if before else "")


def _log_of(f: DecidedWorkload, found: Admissible, is_admitted: bool) -> Log:
    facts = f.facts
    if facts.admitted:
        what = "failed nodes replaced" if facts.unhealthy_nodes else "another place for pods that were stuck"
        return Log(what, {"workload": facts.key, "nodes": sorted(facts.unhealthy_nodes), "spares": list_swapped_in(facts, found)})
    what = "workload admitted" if is_admitted else "workload waits for its checks"
    return Log(what, {"workload": facts.key, "cluster_queue": found.admission.cluster_queue})


# --- no place ----------------------------------------------------------------------------------------------------


def _try_again(f: DecidedWorkload, outcome: NotAdmissible) -> Plan:
    """It keeps its quota, and is tried again when something that could help has changed, or after a pause that doubles."""
    events = _report_on_both(f.workload, EVENT_SECOND_PASS_FAILED, EVENT_SECOND_PASS_FAILED, outcome.message)
    pause = compute_next_pass_s(f.workload, f.now, f.rules.second_pass)
    return make_plan(_trace_decision(f), Step("report failed pass", events=tuple(events)), again_s=pause)


def _evict(f: DecidedWorkload, outcome: NotAdmissible) -> Plan:
    """There is no other place for pods that have lost theirs: all of it is to be stopped, and queued again."""
    evict = evict_for_lost_nodes(f.workload, outcome.message, f.rules.requeue, to_time(f.written_now))
    return plan_action(f.workload, evict, f.written_now, follows_decision=True).begin_with(_trace_decision(f))


def _plan_waiting(f: DecidedWorkload, outcome: NotAdmissible) -> Plan:
    """One that breaks a rule is deactivated: after what is wrong is written, so that no deactivated workload is without a reason."""
    workload = f.workload
    deactivate = Step("deactivate", w.deactivate(workload, outcome.reason)) if outcome.breaks_rule else None
    condition = Condition(QUOTA_RESERVED, False, outcome.reason, outcome.message)
    if has_condition((workload.get("status") or {}).get("conditions") or (), condition):
        return make_plan(deactivate)
    reason = EVENT_WORKLOAD_REFUSED if outcome.breaks_rule else outcome.reason
    status = build_waiting_status(workload, f.facts, outcome.reason, outcome.message, f.written_now, f.rules.resources)
    return make_plan(
        _trace_decision(f),
        Step("let wait", w.apply_admission(workload, status)),
        deactivate,
        Step(
            "report refusal",
            events=tuple(_report_on_both(workload, outcome.reason, reason, outcome.message)),
            log=Log("workload waits", {"workload": f.facts.key, "reason": outcome.reason, "why": outcome.message}),
        ),
    )


# --- workloads that have to go ------------------------------------------------------------------------------------


def plan_preemption(f: DecidedWorkload, present: PresentVictim, now: str) -> Plan:
    """Returns the plan that evicts a victim, at a time as the API writes it, so that the preemptor has its room. It is empty where it need
    not go any more (`PresentVictim.must_go`). The write fails if what decisions are made by has changed of the victim since."""
    if not present.must_go:
        return NOTHING
    victim, seen, owner = present.victim, present.seen, find_controller(f.workload)
    message = (
        f"Preempted to accommodate a workload (UID: {f.facts.uid}, JobUID: {owner['uid'] if owner is not None else 'UNKNOWN'}) "
        f"due to {victim.why}; preemptor path: {f.path}; preemptee path: {present.path}"
    )
    write = w.apply_admission(seen, build_preempted_status(seen, victim.reason, message, now))
    attributes = {t.WORKLOAD: seen["metadata"]["name"], t.REASON: victim.reason, t.MESSAGE: message, t.PREEMPTOR: f.facts.key}
    step = Step(
        "preempt",
        replace(write, guard=w.Guard.AS_JUDGED),
        (Event(r.WORKLOADS, seen, PREEMPTED, message), Event(r.WORKLOADS, seen, f"EvictedDueTo{REASON_PREEMPTED}", message)),
        Log("workload preempted", {"workload": victim.workload.key, "reason": victim.reason, "by": f.facts.key}),
        Span(t.EVICT, seen, attributes, decided_on=f.workload),
    )
    return make_plan(step)


# --- the status ---------------------------------------------------------------------------------------------------


def compute_next_pass_s(workload: Mapping[str, Any], now: datetime, second_pass: SecondPass) -> float | None:
    """Returns the seconds from `now` until a failed second pass is repeated. None where only an event can help: without admission checks,
    with unhealthy nodes, or where the time is up and the workload is evicted before. They count from when the last check became Ready, so
    that a restarted process keeps to it."""
    status = workload.get("status") or {}
    checks = status.get("admissionChecks") or ()
    if not checks or status.get("unhealthyNodes"):
        return None
    waited = (now - find_ready_time(checks, now)).total_seconds()
    return second_pass.compute_wait_s(max(0.0, waited))


# --- what both are made of ---------------------------------------------------------------------------------------


def _trace_wait(f: DecidedWorkload) -> Step | None:
    """What it has waited for until now: quota, or with quota for its checks. Where nodes are replaced nothing waits."""
    facts, attributes = f.facts, f.attributes
    if f.judged.verdict.is_second_pass:
        return Step("report checks", span=build_checked_span(f.workload, facts, attributes)) if not facts.admitted else None
    requeued = ((f.workload.get("status") or {}).get("requeueState") or {}).get("count")
    if requeued:
        attributes[t.REQUEUE_COUNT] = int(requeued)
    return Step("report wait", span=Span(t.QUEUED, f.workload, attributes, start=facts.queued_since))


def _trace_decision(f: DecidedWorkload) -> Step:
    attributes = f.attributes | {t.PASS: _find_pass(f.judged.verdict)}
    swapped = list_swapped_in(f.facts, f.outcome)
    if swapped:
        attributes[t.SPARES] = ", ".join(swapped)
    span = Span(t.SOLVE, f.workload, attributes, start=f.judged.began, end=f.judged.ended, explains=f.outcome)
    return Step("report decision", span=span)


def _report_on_both(workload: Obj, reason: str, reason_on_job: str, message: str, *, warning: bool = True) -> list[Event]:
    """On the Workload and on what it was made for."""
    return [
        Event(r.WORKLOADS, workload, reason, message, warning),
        Event(r.WORKLOADS, workload, reason_on_job, message, warning, on_job=True),
    ]


def _count_seconds_since(f: DecidedWorkload, moment: str | None) -> int:
    return max(0, int((f.now - to_time(moment)).total_seconds())) if moment else 0


def _read_admission(workload: Obj) -> Admission | None:
    return decode_admission((workload.get("status") or {}).get("admission"))


def _find_pass(verdict: Verdict) -> str:
    if not verdict.is_second_pass:
        return t.FIRST_PASS
    return t.REPLACEMENT if verdict.workload.unhealthy_nodes or verdict.workload.admitted else t.SECOND_PASS
