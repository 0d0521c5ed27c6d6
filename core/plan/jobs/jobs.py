"""Jobs and their Workloads: created together, started when admitted, stopped when evicted, finished together.

Each plan looks at job and Workload as they are and takes one step towards where they should be:

    job                     workload                 step
    finished, pods left     not finished             wait for them; end them where it is evicted, deactivated or deleted
    finished                not finished             finish it; quota and domains are given back
    being deleted           evicted or deactivated   end its pods, since its controller does not, and give back quota
    suspended               none                     create the workload
    running                 none, or not admitted    suspend: no job slips past placement
    suspended               asks for something else  update it, or make a new one if it was admitted
    suspended               admitted                 start: templates made exact and unsuspended in one write
    stopped by topogate     admitted                 restore templates: it is started anew for this admission
    suspended by its user   admitted                 evict: capacity goes back, the job stays stopped
    suspended by its user   evicted, not stopped yet evict for that, too: it is not to be started again
    running, pods older     admitted                 evict: they would wait for ever, and are made again
    running                 evicted or deactivated   stop; once no pod is left, restore templates, give back quota

Jobs that name a Workload which was made beforehand, or will be, wait for that one:

    the Workload                            the job
    is not there (yet)                      stays suspended; an event says what it waits for
    is another's: a job's, a pod group's,   stays suspended; an event says what has it
    or of pods that a deleted job has left
    belongs to nothing                      takes it: from then on it goes with the job
    asks for something else than the job    the Workload is finished, OutOfSync; the job stays suspended
"""

from collections.abc import Sequence
from typing import Any

from core import trace_names as t
from core.jobs.contract import Referring
from core.jobs.execution_time import parse_execution_time
from core.jobs.templates import has_gate
from core.model.configuration import ResourceRules
from core.names import (
    ADMITTED,
    CLUSTER_QUEUE_LABEL,
    DEACTIVATION_TARGET,
    EVENT_CREATED_WORKLOAD,
    EVENT_DELETED_WORKLOAD,
    EVENT_FINISHED_WORKLOAD,
    EVENT_PODS_LEFT,
    EVENT_STARTED,
    EVENT_STOPPED,
    EVENT_UPDATED_WORKLOAD,
    EVENT_WAITING_FOR_PODS,
    EVENT_WAITING_FOR_WORKLOAD,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    FIELD_MANAGER,
    FINISHED,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    REASON_FAILED,
    REASON_JOB_CHANGED,
    REASON_MISCONFIGURED,
    REASON_OUT_OF_SYNC,
    REASON_START_REFUSED,
    REASON_SUCCEEDED,
    REASON_SUSPENDED_BY_USER,
    WORKLOAD_ANNOTATION,
)
from core.plan.jobs.job_facts import JobFacts
from core.plan.jobs.prebuilt import build_adoption, find_difference, list_originals
from core.plan.jobs.resize import mark_first, plan_one_workload, plan_resize
from core.plan.jobs.workload_priority import MissingClass, find_changed_priority, find_priority
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.actions import Amend
from core.plan.steps.conditions import Condition
from core.plan.steps.reserved import CHANGED_WHILE_RESERVED, must_ask_anew
from core.plan.steps.steps import NOTHING, Event, Log, Plan, Span, Step, Then, describe_owner, make_plan, report, wait
from core.plan.workloads.activity import DEACTIVATED
from core.plan.workloads.admission_status import build_waiting_status
from core.plan.workloads.desired_workload import (
    MissingFlavor,
    build_workload,
    build_workload_name,
    describe_changes,
    find_changed_annotations,
    get_admitted_counts,
    has_other_counts,
    has_other_pod_sets,
    list_restored_pod_sets,
    start_infos,
)
from core.plan.workloads.workload_steps import (
    drop_finalizer,
    end_pods,
    finish,
    give_back,
    hold,
    may_run,
    plan_action,
    plan_deactivation,
    plan_deletion,
    plan_eviction_of,
)
from core.resource import Obj
from core.state.facts import build_object_key, find_condition, find_controller, is_condition_true

SUSPENDED_BY_USER = "The job was suspended by its user; unsuspend it to queue it again"
SUSPEND, START, RESTORE, UPDATE, CREATE, PODS_LEFT = "suspend", "start", "restore", "update workload", "create workload", "pods left"
FREE_SUSPENSIONS = 5  # within minutes, before a job waits for its turn to be suspended


def plan_job(f: JobFacts) -> Plan:
    """Returns what is to be done with a job now: it is suspended, started or restored, and its Workload made, updated, evicted, finished or
    deleted. Without steps nothing is to be done; it may still have `again_s`. Its `problem` is why a job cannot go on, as without its
    priority class or a flavor. Raises InvalidQuantity where requests of a job that names a Workload, or of that, cannot be read."""
    workload = f.workload
    if workload is not None and workload["metadata"].get("deletionTimestamp"):
        return _plan_release(f, workload)
    if not f.is_queued:  # it has left its queue, or is part of another that is queued
        return make_plan(plan_deletion(workload)) if workload is not None else NOTHING
    if f.kind.find_finish(f.job) is not None:
        return _finish(f, workload) if workload is not None else NOTHING
    if f.is_going:
        return _stop_going(f, workload) if workload is not None else NOTHING
    if f.missing and (workload is None or f.suspended):
        return Plan(problem=f.missing)  # a running job continues, and can be stopped, whatever its templates are
    if workload is None:
        return _plan_without_workload(f)
    if not is_condition_true(workload, FINISHED):
        return _with_workload(f, workload)
    if f.prebuilt is None:
        return make_plan(plan_deletion(workload))  # a job that runs again under a finished workload needs a new one
    if f.suspended and not f.started:
        return make_plan(_refuse_finished(f, workload), drop_finalizer(workload))
    return _stop_without_workload(f)


# --- without a Workload -------------------------------------------------------------------------------------------


def _plan_without_workload(f: JobFacts) -> Plan:
    if not f.suspended or f.started:
        return _stop_without_workload(f)
    if f.prebuilt is not None:
        return _use_prebuilt(f)
    try:
        priority, priority_class = find_priority(f.classes, f.labels, lambda: f.kind.find_priority_class(f.job))
    except MissingClass as error:
        return Plan(problem=str(error))
    name = build_workload_name(f.kind, f.job)
    made = build_workload(f.kind, f.job, priority=priority, priority_class=priority_class, copied_labels=f.copied_labels)
    workload = mark_first(f, made)
    event = f.build_event(EVENT_CREATED_WORKLOAD, f"Created Workload: {f.job['metadata']['namespace']}/{name}")
    span = Span(t.CREATE, f.job, {**_describe_owner(f), t.WORKLOAD: name})
    return make_plan(Step(CREATE, w.create_workload(workload), (event,), Log("workload created", {"workload": name}), span))


def _use_prebuilt(f: JobFacts) -> Plan:
    workload, name = f.named.workload, f"{f.job['metadata']['namespace']}/{f.prebuilt}"
    if workload is None or workload["metadata"].get("deletionTimestamp"):
        message = f"waits for the Workload {name}, which does not exist{'' if workload is None else ' any more'}"
        return make_plan(report(f.build_event(EVENT_WAITING_FOR_WORKLOAD, message, warning=True)))
    if f.named.held_by:
        message = f"the Workload {name} is that of {f.named.held_by}; name another, or none to have one made"
        return make_plan(report(f.build_event(EVENT_WORKLOAD_REFUSED, message, warning=True)), again_s=pacing.OTHERS_HELD_S)
    log = Log("prebuilt workload taken", {"workload": build_object_key(workload), "job": f.key})
    return make_plan(Step("take workload", w.patch_workload(workload, build_adoption(f.kind, f.job, workload)), log=log))


def _refuse_finished(f: JobFacts, workload: Obj) -> Step:
    """Reports to a job that does not end with its Workload why it is refused, and what to do."""
    why = (find_condition(workload, FINISHED) or {}).get("message") or ""
    message = f"the Workload {build_object_key(workload)} is finished: {why}. Delete it and make another one, or name another one"
    return report(f.build_event(EVENT_WORKLOAD_REFUSED, message, warning=True))


def _stop_without_workload(f: JobFacts) -> Plan:
    if f.suspended:
        return _restore(f, None)
    return _suspend(f, "Suspended: it had not been admitted yet", may_wait=not f.started)


# --- with a Workload ----------------------------------------------------------------------------------------------


def _with_workload(f: JobFacts, workload: Obj) -> Plan:
    admitted = is_condition_true(workload, ADMITTED) and not is_condition_true(workload, EVICTED)
    active = workload["spec"].get("active", True) is not False
    before: tuple[Step, ...] = ()
    if not (admitted and active) or f.suspended:
        before, is_replaced = plan_one_workload(f, workload)
        if is_replaced:
            return Plan(before)  # its event leads to the next
    if f.suspended:
        plan = _plan_while_suspended(f, workload, admitted=admitted, active=active)
    elif admitted and active:
        plan = _plan_while_running(f, workload)
    elif admitted:
        plan = make_plan(plan_eviction_of(workload, REASON_DEACTIVATED, DEACTIVATED, f.now))
    else:
        plan = _stop(f, workload, active=active)
    return plan.begin_with(*before)


def _plan_while_suspended(f: JobFacts, workload: Obj, *, admitted: bool, active: bool) -> Plan:
    is_evicted = is_condition_true(workload, EVICTED)
    if admitted and not active:
        reason, message = (REASON_SUSPENDED_BY_USER, SUSPENDED_BY_USER) if f.started else (REASON_DEACTIVATED, DEACTIVATED)
        return make_plan(plan_eviction_of(workload, reason, message, f.now))
    if admitted and f.started:
        # Stopped by topogate, for an admission before this one, or else by its user.
        return _restore(f, workload) if FIELD_MANAGER in f.writers else _plan_user_suspension(f, workload)
    if admitted and _has_changed(f, workload):
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, "the job's pod sets have changed", f.now))
    if admitted:
        return _start(f, workload)
    if active and f.started and is_evicted and f.is_suspended_by_another:
        return _plan_early_suspension(f, workload)
    return _plan_after_stop(f, workload) if f.started or is_evicted else _plan_in_step(f, workload)


def _plan_while_running(f: JobFacts, workload: Obj) -> Plan:
    resized = plan_resize(f, workload)
    if resized is not None:
        return resized
    if isinstance(f.kind, Referring) and (excess := f.pods.excess):
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, excess, f.now))
    if _is_resized(f, workload):
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, "the job's pod counts have changed while it ran", f.now))
    unmarked = f.pods.unmarked
    return _stop_unmarked(f, workload, unmarked) if unmarked else NOTHING


def _stop(f: JobFacts, workload: Obj, *, active: bool) -> Plan:
    """A running job without an admission."""
    activate = None
    if not active and _is_evicted_for(workload, REASON_SUSPENDED_BY_USER) and find_condition(workload, QUOTA_RESERVED):
        activate = Step("activate", w.set_active(workload))  # the user unsuspended the job again: back into the queue
    evicted = find_condition(workload, EVICTED) if is_condition_true(workload, EVICTED) else None
    may_wait = "admission" not in (workload.get("status") or {}) and not f.started
    plan = _suspend(f, (evicted or {}).get("message") or "Suspended: it is not admitted", may_wait=may_wait)
    return plan.begin_with(activate)


# --- start and stop -----------------------------------------------------------------------------------------------


def _start(f: JobFacts, workload: Obj) -> Plan:
    if f.facts is None or f.facts.admission is None:
        return NOTHING
    # Pods made while it was unsuspended by hand have no gates, or gates that would never be taken off.
    if f.pods.has_any:
        why = "it has its place, and starts when the pods of before are gone"
        return make_plan(report(f.build_event(EVENT_WAITING_FOR_PODS, why)), again_s=pacing.STOP_POLL_S)
    if f.pods.may_have_run:
        return wait(pacing.STOP_POLL_S)
    try:
        infos = start_infos(workload, f.facts.admission, f.flavors, workload["spec"].get("queueName") or "")
    except MissingFlavor as error:
        return Plan(problem=str(error))
    attributes = {**_describe_owner(f), t.WORKLOAD: workload["metadata"]["name"]}
    start = Step(
        START,
        w.change_job(f.kind, f.job, f.kind.start(f.job, infos)),
        (f.build_event(EVENT_STARTED, f"Admitted by clusterQueue {f.facts.admission.cluster_queue}"),),
        Log("job started", {"job": f.key}),
        Span(t.START, workload, attributes, follows_decision=True),
    )
    return make_plan(_reset_status(f), start)


def plan_refused_start(f: JobFacts, workload: Obj, error: str, *, is_invalid: bool, deactivates: bool, shown: str) -> Plan:
    """Returns what follows where the API server or a webhook refuses the start of a job: warning events with `error` on the job and on its
    Workload. A job that is invalid (`is_invalid`) has its event anyway, and gets none here. Only if it `deactivates`, the Workload also
    gets the condition DeactivationTarget, with `shown` as its text of the error."""
    name = f"{f.kind.kind} {f.job['metadata']['name']}"
    events = [Event(r.WORKLOADS, workload, EVENT_WORKLOAD_REFUSED, f"the start of {name} is refused: {error}", True)]
    if not is_invalid:
        events.insert(0, f.build_event(EVENT_WORKLOAD_REFUSED, error, warning=True))
    plan = make_plan(Step("report refused start", events=tuple(events)))
    return _deactivate(f, workload, f"the start of {name} is refused: {shown}", plan.steps) if deactivates else plan


def is_start_refused(workload: Obj) -> bool:
    """Returns whether the latest eviction of a Workload was its deactivation since its job could not be started, whether it is active again
    or not."""
    return _is_evicted_for(workload, f"{REASON_DEACTIVATED}DueTo{REASON_START_REFUSED}")


def _stop_unmarked(f: JobFacts, workload: Obj, pods: Sequence[Obj]) -> Plan:
    """Stops a running job with gated pods that name no Workload."""
    changed = next((pod for pod in pods if _is_of_started_template(pod)), None)
    if changed is None:
        # Its controller made them of the templates as they were before the start, and will again once they are gone.
        message = "pods were made of the job's templates before it was started; it starts again without them"
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, message, f.now))
    message = (
        f"pod {changed['metadata']['name']} has no annotation {WORKLOAD_ANNOTATION}, and the template of its {f.kind.kind} has one:"
        " another admission webhook removes it, and without it no pod gets a node"
    )
    return _deactivate(f, workload, message, (report(f.build_event(EVENT_WORKLOAD_REFUSED, message, warning=True)),))


def _deactivate(f: JobFacts, workload: Obj, message: str, before: tuple[Step, ...]) -> Plan:
    target = Condition(DEACTIVATION_TARGET, True, REASON_START_REFUSED, message)
    plan = plan_action(workload, Amend((target,), (workload.get("status") or {}).get("requeueState")), f.now)
    return plan.begin_with(*before)


def _plan_user_suspension(f: JobFacts, workload: Obj) -> Plan:
    """Suspending a running job by hand gives its capacity back; it asks again when unsuspended."""
    evict = plan_eviction_of(workload, REASON_SUSPENDED_BY_USER, SUSPENDED_BY_USER, f.now, follows=True)
    event = report(f.build_event(EVENT_STOPPED, SUSPENDED_BY_USER))
    return make_plan(plan_deactivation(workload, REASON_SUSPENDED_BY_USER), evict, event)


def _plan_early_suspension(f: JobFacts, workload: Obj) -> Plan:
    """Plans the eviction of a running job that was about to be stopped and started again, and that its user suspended
    before.

    One step each time, from the result of the last one, so that a crash between them loses nothing: deactivated first,
    it would be taken for a workload that an administrator has deactivated.
    """
    if not _is_evicted_for(workload, REASON_SUSPENDED_BY_USER):
        return make_plan(plan_eviction_of(workload, REASON_SUSPENDED_BY_USER, SUSPENDED_BY_USER, f.now))
    return make_plan(plan_deactivation(workload, REASON_SUSPENDED_BY_USER))


def _suspend(f: JobFacts, why: str, *, may_wait: bool) -> Plan:
    """Suspends a job; after `FREE_SUSPENSIONS` times within minutes only once its turn has come, if it `may_wait`: it has no quota, and was
    not started. Until then its pods wait behind their gates: a job with any template without a gate is suspended at once in any case.

    The controller of a JobSet resumes its Jobs. Where a Job of it has the queue label and the JobSet does not, each of the two programs
    would undo at once what the other has written.
    """
    if may_wait and f.suspension_wait_s > 0 and all(has_gate(pod_set.template) for pod_set in f.kind.list_pod_sets(f.job)):
        return wait(f.suspension_wait_s)
    message = why + (_explain_resumption(f) if f.suspensions + 1 >= FREE_SUSPENSIONS else "")
    return make_plan(Step(SUSPEND, w.change_job(f.kind, f.job, f.kind.suspend(f.job)), (f.build_event(EVENT_STOPPED, message),)))


def _explain_resumption(f: JobFacts) -> str:
    owner = find_controller(f.job)
    if owner is None:
        return ". It is resumed again and again"
    return f". {owner['kind']} {owner['name']} resumes it again and again: the label {QUEUE_NAME_LABEL} belongs on that"


def _plan_after_stop(f: JobFacts, workload: Obj) -> Plan:
    """Plans to restore the templates of a job that creates no more pods, and then to release quota and domains.

    Both in one plan, since its user may unsuspend it in between, and again after each stop: pods that are created from
    its own templates wait behind their gates.
    """
    if f.pods.has_any:
        return make_plan(*_end_pods_of_going_parts(f, workload), again_s=pacing.STOP_POLL_S)
    if f.pods.may_be_unseen:
        return wait(pacing.STOP_POLL_S)
    released = give_back(workload, f.place, f.now)
    if f.started:
        return _restore(f, workload).extend(released)
    return make_plan(released) if released is not None else _plan_in_step(f, workload)


def _restore(f: JobFacts, workload: Obj | None) -> Plan:
    if f.pods.has_any:
        return wait(pacing.STOP_POLL_S)
    pod_sets = list_restored_pod_sets(f.kind, f.job, workload) if workload is not None else None
    if workload is not None and f.prebuilt is not None:
        pod_sets = list_originals(f.kind, f.job, workload)
    return make_plan(_reset_status(f), Step(RESTORE, w.change_job(f.kind, f.job, f.kind.restore(f.job, pod_sets))))


def _reset_status(f: JobFacts) -> Step | None:
    """The stopped job as its templates may change: before Kubernetes 1.36 not those of a Job with a start time, as one has that was
    stopped, or unsuspended by its user while it waited."""
    reset = f.kind.build_status_reset(f.job)
    return Step("reset status", w.patch_job_status(f.kind, f.job, reset)) if reset is not None else None


# --- keeping the Workload in step ---------------------------------------------------------------------------------


def _has_changed(f: JobFacts, workload: Obj) -> bool:
    """Whether a stopped job asks for something else than its workload."""
    if f.prebuilt is not None:
        return find_difference(f.kind.list_pod_sets(f.job), workload) is not None
    return has_other_pod_sets(f.kind.list_pod_sets(f.job), workload)


def _plan_in_step(f: JobFacts, workload: Obj) -> Plan:
    if f.prebuilt is not None and f.prebuilt != workload["metadata"]["name"]:
        return make_plan(plan_deletion(workload))  # made for it before it named another
    if f.prebuilt is not None and (difference := find_difference(f.kind.list_pod_sets(f.job), workload)) is not None:
        over = Condition(FINISHED, True, REASON_OUT_OF_SYNC, f"the prebuilt Workload is out of step with its job: {difference}")
        return make_plan(finish(workload, over, f.now, "prebuilt workload is out of step"))
    try:
        changes = _find_changes(f, workload)
    except MissingClass as error:
        return Plan(problem=str(error))
    notes = {} if f.prebuilt is not None else find_changed_annotations(f.job["metadata"].get("annotations") or {}, workload)
    if not changes and not notes:
        return NOTHING
    if must_ask_anew(workload, changes):
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, CHANGED_WHILE_RESERVED, f.now))
    waits = find_condition(workload, QUOTA_RESERVED) or {}
    is_wrong = waits.get("reason") == REASON_MISCONFIGURED or is_start_refused(workload)
    if ("podSets" in changes or notes) and is_wrong:
        changes["active"] = True  # what was wrong with it has been changed
    event = f.build_event(EVENT_UPDATED_WORKLOAD, describe_changes(workload, changes, notes))
    return make_plan(Step(UPDATE, w.patch_workload(workload, {"spec": changes, "metadata": {"annotations": notes}}), (event,)))


def _find_changes(f: JobFacts, workload: Obj) -> dict[str, Any]:
    """Returns the fields of a waiting workload's spec that differ from those of its job; of a prebuilt one only the
    queue. Raises MissingClass."""
    changes: dict[str, Any] = {}
    queue = f.labels[QUEUE_NAME_LABEL]
    if workload["spec"].get("queueName") != queue:
        changes["queueName"] = queue
    if f.prebuilt is not None:
        return changes
    if has_other_pod_sets(f.kind.list_pod_sets(f.job), workload):
        changes["podSets"] = [pod_set.to_wire() for pod_set in f.kind.list_pod_sets(f.job)]
    changes |= find_changed_priority(f.classes, workload, f.labels, lambda: f.kind.find_priority_class(f.job))
    seconds = parse_execution_time(f.labels)
    if workload["spec"].get("maximumExecutionTimeSeconds") != seconds:
        changes["maximumExecutionTimeSeconds"] = seconds
    return changes


def plan_refused_update(f: JobFacts, workload: Obj, error: str, rules: ResourceRules | None) -> Plan:
    """Returns the plan for a job with pod sets that the API server refuses. Its Workload is deactivated, if it is active. Then its status
    without quota gets `error` as the reason (rule h of docs/decisions/0004), but not where `f.facts` is None. With neither the plan is
    empty. `rules`: how quota counts requests; None: the default ones."""
    is_active = workload["spec"].get("active", True) is not False
    deactivate = plan_deactivation(workload, REASON_MISCONFIGURED) if is_active else None
    facts, message = f.facts, f"the job's pod sets are refused: {error}"
    if facts is None:
        return make_plan(deactivate)

    def build(seen: Obj) -> w.Write:
        return w.apply_admission(seen, build_waiting_status(seen, facts, REASON_MISCONFIGURED, message, f.now, rules))

    return make_plan(deactivate, Step("report refused update", Then(r.WORKLOADS, workload, build)))


# --- the end ------------------------------------------------------------------------------------------------------


def _finish(f: JobFacts, workload: Obj) -> Plan:
    over = f.kind.find_finish(f.job)
    assert over is not None
    steps: list[Step | None] = []
    if not is_condition_true(workload, FINISHED):
        left = _wait_for_pods_left(f, workload)
        if left is not None:
            return left
        reason = REASON_SUCCEEDED if over.succeeded else REASON_FAILED
        event = f.build_event(EVENT_FINISHED_WORKLOAD, f"Workload '{build_object_key(workload)}' is declared finished")
        steps += [finish(workload, Condition(FINISHED, True, reason, over.message), f.now), report(event)]
    steps.append(drop_finalizer(workload))
    # Of an elastic job: a process that ended between the two writes left it.
    others = (one for one in f.owned if is_condition_true(one, FINISHED) and one["metadata"]["uid"] != workload["metadata"]["uid"])
    return make_plan(*steps, *map(drop_finalizer, others))


def _wait_for_pods_left(f: JobFacts, workload: Obj) -> Plan | None:
    """A finished job may have pods that run on, as with `cleanPodPolicy: None`: what they use is not given to others. None where it has
    none."""
    pods = f.pods.left
    if not pods:
        return wait(pacing.STOP_POLL_S) if f.pods.may_be_unseen else None
    if not may_run(workload):
        ended = end_pods(workload, pods, "Workload is deactivated or deleted, and its job has finished")
        return make_plan(*ended, Step(PODS_LEFT), again_s=pacing.LEFT_POLL_S)
    message = (
        f"it has finished, and {len(pods)} of its pods still run: its quota and its nodes are free once they have ended. "
        "If its controller leaves them (runPolicy.cleanPodPolicy: None), delete them or the job"
    )
    events = () if f.pods_left_are_reported else (f.build_event(EVENT_PODS_LEFT, message),)
    return make_plan(Step(PODS_LEFT, events=events), again_s=pacing.LEFT_POLL_S)


def _stop_going(f: JobFacts, workload: Obj) -> Plan:
    """The job is being deleted, and a finalizer of others keeps it. It never starts again, so its workload is not queued again."""
    if may_run(workload):
        return NOTHING
    steps, is_held = _stop_held_by_pods(f, workload)
    if is_held or f.pods.may_be_unseen:
        return Plan(steps, pacing.STOP_POLL_S)
    return make_plan(*steps, hold(workload, f"its {f.kind.kind} is being deleted", f.place, f.now))


def _stop_held_by_pods(f: JobFacts, workload: Obj) -> tuple[tuple[Step, ...], bool]:
    """Steps that stop a job which is being deleted, and whether it has pods. Its controller neither makes nor ends them any more, suspended
    or not: where its workload may not run they are ended here."""
    running = f.pods.running
    if may_run(workload):
        return (), bool(running)
    stopped, is_held = _stop_parts(f)
    ended = end_pods(workload, running, "Workload is deactivated or deleted, and its job is being deleted")
    return (*stopped, *ended), is_held or bool(running)


def _stop_parts(f: JobFacts) -> tuple[tuple[Step, ...], bool]:
    """Suspends the objects below a job that is being deleted, such as the Jobs of a JobSet: its controller does not stop them any more,
    and they make pods as long as they exist. Returns also whether one of them may still have pods."""
    steps, is_held = list[Step](), False
    for part in f.pods.parts:
        if part.kind.find_finish(part.obj) is not None or part.obj["metadata"].get("deletionTimestamp"):
            continue
        if not part.kind.is_suspended(part.obj):
            steps.append(Step("suspend part", w.change_job(part.kind, part.obj, part.kind.suspend(part.obj))))
            is_held = True
        else:
            is_held = is_held or part.has_pods
    return tuple(steps), is_held


def _end_pods_of_going_parts(f: JobFacts, workload: Obj) -> tuple[Step, ...]:
    """Deletes the pods of objects below a stopped job that are being deleted and kept by a finalizer: their controllers do not."""
    going = (part for part in f.pods.parts if part.obj["metadata"].get("deletionTimestamp"))
    why = "Workload is deactivated or deleted, and what made the pod is being deleted"
    return tuple(step for part in going for step in end_pods(workload, part.live_pods, why))


def _plan_release(f: JobFacts, workload: Obj) -> Plan:
    """The workload was deleted: its job is stopped first, then it may go."""
    is_over, is_done = f.kind.find_finish(f.job) is not None, is_condition_true(workload, FINISHED)
    steps: tuple[Step, ...] = ()
    if not is_over and f.is_going:
        steps, is_held = _stop_held_by_pods(f, workload)
        if is_held:
            return Plan(steps, pacing.STOP_POLL_S)
    if not is_over and not f.is_going:
        if not f.suspended:
            event = f.build_event(EVENT_STOPPED, "Workload is deleted")
            return make_plan(Step("stop", w.change_job(f.kind, f.job, f.kind.suspend(f.job)), (event,)))
        if f.pods.has_any:
            return wait(pacing.STOP_POLL_S)
        if f.started:
            return _restore(f, workload)
        if QUEUE_NAME_LABEL not in f.labels and f.kind.has_gate(f.job):
            steps = (Step("ungate templates", w.change_job(f.kind, f.job, f.kind.ungate(f.job))),)  # nothing else takes it off its pods
    elif not is_done and (left := _wait_for_pods_left(f, workload)) is not None:
        return Plan((*steps, *left.steps), pacing.STOP_POLL_S)
    if not is_done and f.pods.may_be_unseen:
        return Plan(steps, pacing.STOP_POLL_S)
    deleted = report(f.build_event(EVENT_DELETED_WORKLOAD, f"Deleted Workload: {build_object_key(workload)}"))
    return make_plan(*steps, drop_finalizer(workload), deleted)


# --- small things -------------------------------------------------------------------------------------------------


def _describe_owner(f: JobFacts) -> dict[str, str]:
    return describe_owner(f.kind.kind, f.job["metadata"]["name"])


def _is_resized(f: JobFacts, workload: Obj) -> bool:
    """Whether a running job asks for another number of pods than it was admitted with. What it only refers to may be edited
    for jobs to come, and its controller does not follow that while the job runs."""
    if not isinstance(f.kind, Referring):
        return has_other_counts(f.kind.list_pod_sets(f.job), workload)
    admitted = get_admitted_counts(workload)
    return any(admitted.get(name, count) != count for name, count in f.kind.count_own_pods(f.job).items())


def _is_evicted_for(workload: Obj, reason: str) -> bool:
    return (find_condition(workload, EVICTED) or {}).get("reason") == reason


def _is_of_started_template(pod: Obj) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return PODSET_LABEL in labels and CLUSTER_QUEUE_LABEL in labels
