"""Elastic jobs: a running Job that is resized is not stopped (annotation `kueue.x-k8s.io/elastic-job`, workload slices).

the Job asks for                step
more pods                       a second Workload asks for all of them; until it is admitted the new pods wait, gated
more, and that is admitted      the first is finished, WorkloadSliceReplaced; its pods run on under the second
fewer than are admitted         the Workload's count, and once the pods are gone its admission, are reduced in place
more of one pod set and         first the latter, then the former
fewer of another
as many again as are admitted   a second Workload that waits is deleted

A job that is resized through an object below it, as a RayJob by the autoscaler of its RayCluster, asks for as many pods as that does.
"""

from collections.abc import Mapping

from core.jobs.templates import has_gate
from core.model.admission import Admission, encode_admission
from core.names import ADMITTED, EVENT_CREATED_WORKLOAD, EVENT_UPDATED_WORKLOAD, EVICTED, FINISHED, REASON_SLICE_REPLACED, SLICE_NAME
from core.plan.jobs.job_facts import JobFacts
from core.plan.jobs.workload_priority import MissingClass, find_changed_priority
from core.plan.jobs.workload_slices import build_successor, count_pods, find_successor, is_alike, shrink, with_counts
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.conditions import Condition
from core.plan.steps.managed_status import read_managed_status
from core.plan.steps.reserved import must_ask_anew
from core.plan.steps.steps import Log, Plan, Step, make_plan, wait
from core.plan.workloads.workload_steps import drop_finalizer, finish, give_back, plan_deletion
from core.resource import Obj
from core.state.facts import build_object_key, find_condition, is_condition_true

MOST_REPLACED = 4  # Workloads of one job that are over, beside the first
GIVE_BACK, GROW, SHRINK = "reduce admission", "create successor", "shrink"


def mark_first(f: JobFacts, workload: Obj) -> Obj:
    """Returns a copy of a new Workload of an elastic job with the annotation SLICE_NAME, its own name, which marks it as the first one. For
    any other job it returns the same object."""
    if not f.is_resizable:
        return workload
    metadata = workload["metadata"]
    return {**workload, "metadata": {**metadata, "annotations": {**metadata["annotations"], SLICE_NAME: metadata["name"]}}}


def is_slice(workload: Obj) -> bool:
    """Returns whether a Workload is one of an elastic job, by its annotation SLICE_NAME; whether the job still is elastic is not looked
    at."""
    return SLICE_NAME in (workload["metadata"].get("annotations") or {})


def plan_one_workload(f: JobFacts, workload: Obj) -> tuple[tuple[Step, ...], bool]:
    """Returns the steps by which a job that does not run (any more) asks by one Workload, and whether its successor takes over. They are
    empty and False for a Workload that is none of an elastic job (`is_slice`). A successor that is admitted takes over: then the first is
    finished, and the job is to be judged by the other. Any other successor is deleted. Finalizers of Workloads that were replaced before
    are removed in any case."""
    if not is_slice(workload):
        return (), False
    steps = _drop_finalizers_of_left(f, workload)
    successor = _find_successor(f, workload)
    if successor is None:
        return steps, False
    if successor["metadata"].get("deletionTimestamp"):
        return (*steps, *_filter(drop_finalizer(successor))), False
    if is_condition_true(successor, ADMITTED) and not is_condition_true(successor, EVICTED):
        return (*steps, *_replace(f, workload, successor)), True
    return (*steps, plan_deletion(successor, w.Guard.AS_SEEN)), False


def plan_resize(f: JobFacts, workload: Obj) -> Plan | None:
    """Returns the next step by which the Workloads of a running elastic job follow its number of pods: writes, a wait, or a `problem` (a
    priority class that is missing). It also cleans up (drops finalizers, deletes or finishes a Workload) where the size is as admitted or
    may not change. None where nothing is left to do, and for a Workload that is none of an elastic job (`is_slice`)."""
    if not is_slice(workload):
        return None
    steps = _drop_finalizers_of_left(f, workload)
    plan = _plan_resize(f, workload, _find_successor(f, workload))
    if plan is None:
        return Plan(steps) if steps else None
    return plan.begin_with(*steps)


def _plan_resize(f: JobFacts, workload: Obj, successor: Obj | None) -> Plan | None:
    if successor is not None and successor["metadata"].get("deletionTimestamp"):
        return make_plan(drop_finalizer(successor))
    if successor is not None and is_condition_true(successor, ADMITTED):
        return make_plan(*_replace(f, workload, successor))
    if f.facts is None or f.facts.admission is None:
        return None
    if not _may_resize(f, f.facts.admission):
        return make_plan(plan_deletion(successor, w.Guard.AS_SEEN)) if successor is not None else None
    # No pod names it before it is admitted: what it held while it waited for its admission checks is free at once.
    if successor is not None and is_condition_true(successor, EVICTED) and (released := give_back(successor, "", f.now)) is not None:
        return make_plan(released)
    wanted, has = {p.name: p.count for p in f.kind.list_pod_sets(f.job)}, count_pods(workload)
    if wanted.keys() != has.keys() or not any(wanted.values()):
        return None
    grows = any(wanted[name] > has[name] for name in has)
    if successor is not None and not grows:
        return make_plan(plan_deletion(successor, w.Guard.AS_SEEN))
    kept = {name: min(wanted[name], has[name]) for name in has}
    if kept != has:
        return make_plan(Step(SHRINK, w.patch_workload(workload, {"spec": {"podSets": with_counts(workload, kept)}})))
    less = _find_less(f, f.facts.admission, has, wanted)
    if less is None:
        return wait(pacing.STOP_POLL_S)  # what they hold is theirs until they are gone
    if less:
        return _reduce_admission(f, workload, f.facts.admission, less)
    return _grow(f, workload, successor) if grows else None


def _find_successor(f: JobFacts, workload: Obj) -> Obj | None:
    found = find_successor(workload, f.owned)
    return dict(found) if found is not None else None


def _may_resize(f: JobFacts, admission: Admission) -> bool:
    """Whether a job that is admitted runs by a start of topogate's, so that pods that come wait behind the gate of its templates."""
    if not f.is_resizable or not f.started or not all(has_gate(pod_set.template) for pod_set in f.kind.list_pod_sets(f.job)):
        return False
    return f.is_elastic_with_topology or all(given.assignment is None for given in admission.pod_sets)


def _find_less(f: JobFacts, admission: Admission, has: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int] | None:
    """By pod set to how many pods its admission is to be reduced; None while pods are still there that are to go, by which it is known
    which places are given back. A pod set that is to grow again keeps what its pods have."""
    less: dict[str, int] = {}
    past_gates = [pod for pod in f.pods.of_workload if not pod.gated]
    for given in admission.pod_sets:
        held = [pod for pod in past_gates if pod.pod_set == given.name]
        if given.count <= has[given.name]:
            continue
        if len(held) > wanted[given.name] or any(pod.terminating for pod in held):
            return None
        if max(has[given.name], len(held)) < given.count:
            less[given.name] = max(has[given.name], len(held))
    return less


def _grow(f: JobFacts, workload: Obj, successor: Obj | None) -> Plan:
    made = build_successor(f.kind, f.job, workload)
    try:
        changes = find_changed_priority(f.classes, successor or made, f.labels, lambda: f.kind.find_priority_class(f.job))
    except MissingClass as error:
        return Plan(problem=str(error))
    if successor is not None and count_pods(successor) != count_pods(made):
        changes["podSets"] = made["spec"]["podSets"]
    key = build_object_key(made)
    if successor is None:
        made["spec"] = {name: value for name, value in (made["spec"] | changes).items() if value is not None}
        message = f"Created Workload: {key}, to grow; what runs goes on"
        return make_plan(Step(GROW, w.create_workload(made), (f.build_event(EVENT_CREATED_WORKLOAD, message),)))
    if not is_alike(successor, workload) or (changes and must_ask_anew(successor, changes)):
        return make_plan(plan_deletion(successor, w.Guard.AS_SEEN))  # its event leads to another
    if changes:
        update = w.patch_workload(successor, {"spec": changes})
        return make_plan(Step("update successor", update, (f.build_event(EVENT_UPDATED_WORKLOAD, f"Updated Workload: {key}"),)))
    return make_plan()


def _replace(f: JobFacts, workload: Obj, successor: Obj) -> tuple[Step, ...]:
    steps: list[Step | None] = []
    if not is_condition_true(workload, FINISHED):
        message = f"its pods run on under Workload {build_object_key(successor)}"
        steps.append(finish(workload, Condition(FINISHED, True, REASON_SLICE_REPLACED, message), f.now, "workload replaced"))
    steps.append(drop_finalizer(workload))
    return (*_filter(*steps), *_delete_replaced(f, workload))


def _delete_replaced(f: JobFacts, workload: Obj) -> tuple[Step, ...]:
    """Of the Workloads that were replaced before this one the first, those which pods name, and the last ones are kept: a job may be
    resized thousands of times."""
    named = f.pods.named | {f.family.partition("/")[2]}
    others = (each for each in f.owned if each["metadata"]["uid"] != workload["metadata"]["uid"] and _is_replaced(each))
    replaced = [each for each in (*others, workload) if each["metadata"]["name"] not in named]
    replaced.sort(key=lambda each: (each["metadata"].get("creationTimestamp") or "", each["metadata"]["name"]))
    return tuple(map(plan_deletion, replaced[:-MOST_REPLACED]))


def _reduce_admission(f: JobFacts, workload: Obj, admission: Admission, counts: Mapping[str, int]) -> Plan:
    left = shrink(admission, counts, f.pods.of_workload)
    if left is None:
        return wait(pacing.STOP_POLL_S)  # what they hold is theirs until they are gone
    status = read_managed_status(workload) | {"admission": encode_admission(left)}
    event = f.build_event(EVENT_UPDATED_WORKLOAD, f"Updated Workload: {build_object_key(workload)}, it gave back what it needs no more")
    log = Log("workload shrunk", {"workload": build_object_key(workload), "pods": count_pods(workload)})
    return make_plan(Step(GIVE_BACK, w.apply_admission(workload, status), (event,), log))


def _drop_finalizers_of_left(f: JobFacts, workload: Obj) -> tuple[Step, ...]:
    """Workloads before this one that are finished and keep their finalizer: a process ended between the two writes."""
    return _filter(*(drop_finalizer(each) for each in f.owned if _is_over(each)))


def _filter(*steps: Step | None) -> tuple[Step, ...]:
    return tuple(step for step in steps if step is not None)


def _is_replaced(workload: Obj) -> bool:
    return _is_over(workload) and not (workload["metadata"].get("deletionTimestamp") or workload["metadata"].get("finalizers"))


def _is_over(workload: Obj) -> bool:
    """Whether another has taken over its pods."""
    found = find_condition(workload, FINISHED) or {}
    return found.get("status") == "True" and found.get("reason") == REASON_SLICE_REPLACED
