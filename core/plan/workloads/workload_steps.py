"""Steps in the life of a Workload that are the same whatever it stands for."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, assert_never

from core import trace_names as t
from core.names import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVENT_STOPPED,
    EVICTED,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    REASON_ON_HOLD,
    RESOURCE_IN_USE_FINALIZER,
)
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.actions import Action, Amend, Deactivate, Evict, Wait
from core.plan.steps.conditions import Condition, set_conditions
from core.plan.steps.steps import NOTHING, PASSED_OVER, Event, Log, Overtaken, Plan, Span, Step, Then, make_plan, wait
from core.plan.workloads.admission_status import build_amended_status, build_evicted_status, build_held_status, build_released_status
from core.resource import Obj
from core.state.facts import PodFacts, build_object_key, find_condition, is_condition_true

Json = Mapping[str, Any]
EVICT, END_POD, RELEASE, FINISH, DROP_FINALIZER, DEACTIVATE = "evict", "end pod", "release", "finish", "drop finalizer", "deactivate"


def plan_eviction_of(
    workload: Obj,
    reason: str,
    message: str,
    now: str,
    also: Sequence[Condition] = (),
    requeue_state: Json | None = None,
    *,
    follows: bool = False,
    follows_decision: bool = False,
) -> Step:
    """Returns the step by which a workload is to be stopped, with event, log and span; quota and domains are kept until it has. The same
    write sets the conditions `also`, and `requeue_state` as `build_evicted_status` does. `follows`: another step of the plan writes the
    workload before; `follows_decision`: a decision on it has led here."""

    def build(seen: Obj) -> w.Write:
        return w.apply_admission(seen, build_evicted_status(seen, reason, message, now, also, requeue_state))

    queue = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue")
    attributes = {t.WORKLOAD: workload["metadata"]["name"]} | ({t.CLUSTER_QUEUE: queue} if queue else {})
    return Step(
        EVICT,
        Then(r.WORKLOADS, workload, build) if follows else build(workload),
        (Event(r.WORKLOADS, workload, f"EvictedDueTo{reason}", message),),
        Log("workload evicted", {"workload": build_object_key(workload), "reason": reason, "why": message}),
        Span(t.EVICT, workload, attributes | {t.REASON: reason, t.MESSAGE: message}, follows_decision),
    )


def plan_deactivation(workload: Obj, reason: str) -> Step:
    """Returns the step that sets `spec.active` of a workload to false; it fails if the Workload has changed since. `reason`: that of the
    eviction which begins by this."""
    return Step(DEACTIVATE, w.deactivate(workload, reason), log=Log("workload deactivated", {"workload": build_object_key(workload)}))


def plan_deletion(workload: Obj, guard: w.Guard = w.Guard.SAME) -> Step:
    """Returns the step that deletes a Workload, which stays while it has finalizers; its event leads to what follows. By default it may
    have changed since it was seen; `guard`: see `Guard`."""
    return Step("delete workload", w.delete_workload(workload, guard))


def end_pods(workload: Obj, pods: Sequence[PodFacts], otherwise: str) -> tuple[Step, ...]:
    """Returns steps that delete pods that no controller ends, without those that are being deleted already. The event on each has the
    message of the workload's eviction, `otherwise` where it is not evicted."""
    evicted = find_condition(workload, EVICTED) if is_condition_true(workload, EVICTED) else None
    why = (evicted or {}).get("message") or otherwise
    ended = (w.name_pod(pod) for pod in pods if not pod.terminating)
    return tuple(Step(END_POD, w.delete_pod(pod), (Event(r.PODS, pod, EVENT_STOPPED, why),), passes=PASSED_OVER) for pod in ended)


def plan_action(workload: Obj, action: Action | None, now: str, *, follows_decision: bool = False) -> Plan:
    """Returns the plan for an action that was found by the workload's own statuses; the event of its write leads to the next. It is empty
    for None; to wait has no steps, but the object is looked at again after that time. `follows_decision`: it comes of a decision on the
    workload."""
    match action:
        case None:
            return NOTHING
        case Wait(seconds):
            return wait(seconds)
        case Amend(conditions, state, drop, annotations):
            before = _plan_annotations(workload, annotations)
            build = partial(_build_amendment, conditions=conditions, now=now, state=state, drop=drop)
            log = Log(
                "workload amended", {"workload": build_object_key(workload), "reasons": [condition.reason for condition in conditions]}
            )
            write: w.Write | Then = build(workload) if before is None else Then(r.WORKLOADS, workload, build)
            return make_plan(before, Step("amend", write, log=log))
        case Evict(reason, message, also, state, annotations):
            before = _plan_annotations(workload, annotations)
            follows = before is not None
            evict = plan_eviction_of(workload, reason, message, now, also, state, follows=follows, follows_decision=follows_decision)
            return make_plan(before, evict)
        case Deactivate():
            target = find_condition(workload, DEACTIVATION_TARGET) or {}
            return make_plan(plan_deactivation(workload, f"{REASON_DEACTIVATED}DueTo{target.get('reason') or 'Unknown'}"))
        case _:
            assert_never(action)


def _build_amendment(workload: Obj, conditions: Sequence[Condition], now: str, state: Json | None, drop: Sequence[str]) -> w.Write:
    return w.apply_admission(workload, build_amended_status(workload, conditions, now, state, drop))


def _plan_annotations(workload: Obj, annotations: Mapping[str, str]) -> Step | None:
    """Before the status that goes with them."""
    return Step("annotate", w.set_annotations(r.WORKLOADS, workload, annotations)) if annotations else None


def give_back(workload: Obj, place: str, now: str) -> Step | None:
    """Returns the step that gives back quota and domains of what has stopped; None where it has no quota. `place`: where it was, as text,
    which is added to the reason of its eviction, if it is evicted."""
    if not is_condition_true(workload, QUOTA_RESERVED):
        return None
    before = find_condition(workload, EVICTED) or {}
    return _release(workload, before.get("message") or "The workload was stopped", build_released_status, place, now)


def _is_on_hold(workload: Obj) -> bool:
    """Whether it has given its quota back and is not to be queued."""
    return bool((find_condition(workload, QUOTA_RESERVED) or {}).get("reason") == REASON_ON_HOLD)


def hold(workload: Obj, why: str, place: str, now: str) -> Step | None:
    """Returns the step that gives back quota and domains of a workload that asks for no pods: it is not queued until `end_hold`. None where
    it is on hold already. `place`: where it was, as text."""
    return None if _is_on_hold(workload) else _release(workload, why, build_held_status, place, now)


def end_hold(workload: Obj, now: str) -> Step | None:
    """Returns the step by which a workload that is on hold waits for quota again, with reason PendingEvaluation; None where it is not on
    hold."""
    return _release(workload, "The workload is no longer on hold", build_released_status, "", now) if _is_on_hold(workload) else None


def _release(workload: Obj, why: str, build_status: Callable[[Obj, str, str, str], dict[str, Any]], place: str, now: str) -> Step:
    span = Span(t.RELEASE, workload, {t.WORKLOAD: workload["metadata"]["name"], t.MESSAGE: why})
    return Step(RELEASE, w.apply_admission(workload, build_status(workload, why, now, place)), span=span)


def finish(workload: Obj, condition: Condition, now: str, message: str = "workload finished") -> Step:
    """Returns the step that sets the condition given, of type Finished, whatever else of the Workload has changed; what the workload held
    is free. `message`: the line of the log."""
    generation = int(workload["metadata"].get("generation") or 0)
    wire = set_conditions([], [condition], now=now, generation=generation)[0]
    attributes = {t.WORKLOAD: workload["metadata"]["name"], t.REASON: condition.reason, t.MESSAGE: condition.message}
    log = Log(message, {"workload": build_object_key(workload), "reason": condition.reason})
    return Step(FINISH, w.apply_workload_condition(workload, wire), log=log, span=Span(t.FINISH, workload, attributes))


def drop_finalizer(workload: Obj) -> Step | None:
    """Returns the step that removes topogate's finalizer, and no other, from a Workload; None where it has none. A Workload that is gone is
    no failure."""
    finalizers = workload["metadata"].get("finalizers") or []
    if RESOURCE_IN_USE_FINALIZER not in finalizers:
        return None

    def build(seen: Obj) -> w.Write:
        there = seen["metadata"].get("finalizers") or []
        return w.set_finalizers(r.WORKLOADS, seen, [finalizer for finalizer in there if finalizer != RESOURCE_IN_USE_FINALIZER])

    return Step(DROP_FINALIZER, Then(r.WORKLOADS, workload, build), passes=frozenset({Overtaken.GONE}))


def may_run(workload: Obj) -> bool:
    """Returns whether pods of a workload may be there: it is admitted, and neither evicted, inactive (`spec.active` false) nor being
    deleted. Whether it is finished is not looked at."""
    admitted = is_condition_true(workload, ADMITTED) and not is_condition_true(workload, EVICTED)
    return admitted and workload["spec"].get("active", True) is not False and not workload["metadata"].get("deletionTimestamp")
