"""Pods that are queued themselves, and their workloads: alone, in groups, of StatefulSets and LeaderWorkerSets.

A plan for one unit at a time (`core.plan.pods.pod_units`), by its pods, its parent and its workload as they are:

    pods or parent            workload                 step
    all there                 none                     create the workload
    ask for something else    waits                    update it
    past the admission gate   not admitted             delete them: no pod slips past placement
    gated                     admitted                 start: gate off, labels and selectors on, in one write a pod
    more than admitted        admitted                 those beyond stay behind their gate; of a plain group they are deleted
    scaled                    admitted                 evict: what was admitted is another number of pods
    scaled to 0               any                      once none runs, give back quota and put it on hold; of an LWS replica delete it
    running                   evicted or deactivated   delete them; once none is left, give back quota
    ended                     admitted                 finish it; quota and domains are given back, finalizers taken off
    gone                      any                      let it go
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core import trace_names as t
from core.jobs.execution_time import parse_execution_time
from core.jobs.kinds.pod import Pod, build_pod_topology_request, has_admission_gate
from core.jobs.kinds.pod_kinds import POD_SETS
from core.jobs.kinds.pod_parents import PodParent
from core.jobs.pod_rules import check_size
from core.model.pod_resources import Resources, compute_pod_requests
from core.names import (
    ADMITTED,
    EVENT_CREATED_WORKLOAD,
    EVENT_EXCESS_POD_DELETED,
    EVENT_FINISHED_WORKLOAD,
    EVENT_STARTED,
    EVENT_STOPPED,
    EVENT_UPDATED_WORKLOAD,
    EVENT_WAITING_FOR_PODS,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    FINISHED,
    MAIN_POD_SET,
    POD_GROUP_SERVING,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    REASON_FAILED,
    REASON_JOB_CHANGED,
    REASON_MISCONFIGURED,
    REASON_SUCCEEDED,
)
from core.plan.jobs.workload_priority import Classes, MissingClass, find_changed_priority, find_priority
from core.plan.pods.node_health import is_node_lost
from core.plan.pods.pod_plan import finish_of, list_excess, list_running, plan_start, plan_stop, to_release
from core.plan.pods.pod_units import (
    ALONE,
    GROUP,
    PARENTS,
    UNKNOWN,
    Unit,
    find_pod_role,
    find_workload_unit,
    is_going,
    is_made_for,
    is_terminal,
    note_of,
    queue_to_follow,
)
from core.plan.pods.pod_workloads import (
    DesiredWorkload,
    build_group_workload,
    build_parent_workload,
    build_pod_workload,
    build_workload_of_pods,
    describe_missing_pods,
    has_other_request,
    read_group,
    read_parent,
    with_requests,
)
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.conditions import Condition
from core.plan.steps.excess import explain_excess
from core.plan.steps.reserved import CHANGED_WHILE_RESERVED, must_ask_anew
from core.plan.steps.steps import NOTHING, PASSED_OVER, Event, Log, ParallelSteps, Plan, Span, Step, describe_owner, make_plan, report, wait
from core.plan.workloads.desired_workload import MissingFlavor, describe_changes, find_changed_annotations, has_other_pod_sets, start_infos
from core.plan.workloads.workload_steps import (
    drop_finalizer,
    end_hold,
    end_pods,
    finish,
    give_back,
    hold,
    may_run,
    plan_deletion,
    plan_eviction_of,
)
from core.resource import Obj
from core.state.facts import (
    FlavorFacts,
    PodFacts,
    WorkloadFacts,
    build_object_key,
    find_condition,
    find_controller,
    is_condition_true,
    read_reclaimed_pods,
)

CREATE, START, WAITING = "create workload", "start pods", "wait for pods"
PARENTS_BY_KIND: dict[str, PodParent] = {parent.kind: parent for parent in POD_SETS}


@dataclass(frozen=True, slots=True)
class PodsToRead:
    """Pods that have to be read as the API server has them before anything can be planned, by role: more of them is needed than is kept."""

    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit. `source`: what its workload is made of: its parent, else one of its pods; None where that is gone.

    `naming`: pods that name the workload and are not over. `examples`: what was read of `PodsToRead`. `waited_s`: for how long a group
    waits for the rest of its pods.
    """

    unit: Unit
    now: str
    whole: Pod
    source: Obj | None = None
    workload: Obj | None = None
    pods: Sequence[Obj] = ()
    naming: Sequence[PodFacts] = ()
    facts: WorkloadFacts | None = None
    admitted: Mapping[str, Resources] = field(default_factory=dict)  # requests of one pod by pod set, as they were admitted
    flavors: Mapping[str, FlavorFacts] = field(default_factory=dict)
    classes: Classes = field(default_factory=lambda: Classes({}, {}))
    place: str = ""
    seen: Mapping[str, PodFacts] = field(default_factory=dict)  # all pods, by key
    nodes: Mapping[str, Obj] = field(default_factory=dict)  # all Nodes, by name
    examples: Mapping[str, Obj] | None = None
    waited_s: float = 0.0
    copied_labels: Sequence[str] = ()  # that the workload gets from what it is made of

    def find_claimed(self, pod: Obj) -> Resources:
        """Returns the devices that the claims of a pod ask for, by class."""
        seen = self.seen.get(build_object_key(pod))
        return seen.claimed if seen is not None and seen.uid == pod["metadata"]["uid"] else {}

    def is_own(self, pod: Obj) -> bool:
        """Returns whether a pod was made for the source; True where that is gone."""
        return self.source is None or is_made_for(self.source, pod, self.seen.get(build_object_key(pod)))

    def is_over_but_for_finalizers(self, key: str) -> bool:
        """Returns whether the pod of a key was deleted without a grace period on a node that is lost. Where that was in the foreground, the
        garbage collector keeps the pod until its Workload is gone, and no kubelet reports that it has ended."""
        pod = self.seen.get(key)
        return pod is not None and pod.dropped and is_node_lost(self.nodes, pod.node)

    @property
    def has_parent(self) -> bool:
        """Returns whether the unit is one of a StatefulSet or a LeaderWorkerSet."""
        return self.unit.source in PARENTS

    @property
    def lives(self) -> bool:
        """Returns whether there is still what the workload is made of; of a parent it also must have its spec here, as it has only while it
        is in a queue."""
        return self.source is not None and not (self.has_parent and "spec" not in self.source)

    @property
    def made_of(self) -> Obj:
        """Returns the source: the parent, else one of the pods. Raises AssertionError where it is gone (None)."""
        assert self.source is not None
        return self.source

    def build_event(self, reason: str, message: str, *, warning: bool = False) -> Event:
        """Returns an event on what the workload is made of; emitting it is left to the plan's executor. Raises AssertionError where that is
        gone."""
        parent = PARENTS_BY_KIND.get(self.unit.source)
        return Event(r.PODS if parent is None else r.get_resource(parent), self.made_of, reason, message, warning)


def plan_unit(f: UnitFacts) -> Plan | PodsToRead:
    """Returns what is to be done with a unit now: its workload is created, updated, evicted, held, finished or deleted, its pods are
    started, deleted or lose their finalizer. Or it returns the pods that have to be read before; then it is called again with them as
    `examples`. Raises InvalidQuantity where requests of a parent's templates, of its workload or of a pod to be started cannot be read."""
    if f.unit.source == UNKNOWN:
        return make_plan(_release(to_release(f.pods, finished=False, remembers=False)))
    released, workload = _release(_find_released(f)), f.workload
    planned: Plan | PodsToRead
    if workload is not None and workload["metadata"].get("deletionTimestamp"):
        planned = _plan_release(f, workload)
    elif not f.lives:
        planned = _plan_without_source(f)
    else:
        if f.has_parent:  # what runs holds a place, whatever made it
            f = _with_pods(f, [pod for pod in f.pods if not has_admission_gate(pod) or f.is_own(pod)])
        if workload is not None and is_condition_true(workload, FINISHED):
            planned = _plan_after_end(f, workload)
        else:
            planned = _plan_without_workload(f) if workload is None else _with_workload(f, workload)
    if isinstance(planned, PodsToRead):
        return planned
    return planned.begin_with(released)


def _with_pods(f: UnitFacts, pods: Sequence[Obj]) -> UnitFacts:
    values = {name: getattr(f, name) for name in UnitFacts.__slots__}
    return UnitFacts(**{**values, "pods": pods})


def _find_released(f: UnitFacts) -> tuple[Obj, ...]:
    workload = f.workload
    leaves = workload is not None and bool(workload["metadata"].get("deletionTimestamp"))
    finished = workload is not None and is_condition_true(workload, FINISHED)
    lives = workload is not None and not leaves and not all(is_going(pod) for pod in f.pods)
    is_evicted = workload is not None and not (leaves or finished) and _has_lost_pods(f, workload)
    return to_release(f.pods, finished=finished, remembers=f.unit.source == GROUP and lives, is_evicted=is_evicted)


def _has_lost_pods(f: UnitFacts, workload: Obj) -> bool:
    """Whether a plain group was evicted to be queued again, and has fewer pods than it needs."""
    is_queued_again = is_condition_true(workload, EVICTED) and workload["spec"].get("active", True) is not False
    serves = any(note_of(pod, POD_GROUP_SERVING) == "true" for pod in f.pods)  # its controller gives the next pod the same name
    return f.unit.source == GROUP and is_queued_again and not serves and read_group(f.unit, f.pods).missing > 0


def _plan_release(f: UnitFacts, workload: Obj) -> Plan:
    """The workload was deleted: its pods first, then it may go."""
    keys = {build_object_key(pod) for pod in list_running(f.pods)} | {pod.key for pod in f.naming}
    if any(not f.is_over_but_for_finalizers(key) for key in keys) and not is_condition_true(workload, FINISHED):
        return make_plan(_delete(plan_stop(f.pods, "Workload is deleted")), again_s=pacing.STOP_POLL_S)
    return make_plan(drop_finalizer(workload))


def _plan_after_end(f: UnitFacts, workload: Obj) -> Plan:
    """Plans for a finished group: a new one may be made under its name once its ended pods are gone."""
    late = [pod for pod in f.pods if has_admission_gate(pod) and not is_going(pod)]
    then: Step | None = None
    if f.unit.source == GROUP and late and len(late) == len(f.pods):
        then = plan_deletion(workload)
    elif f.unit.source == GROUP and late:
        message = f"group {f.unit.name} has finished; delete its pods to use its name again"
        then = report(Event(r.PODS, late[0], EVENT_WORKLOAD_REFUSED, message, True))
    return make_plan(drop_finalizer(workload), then)


def _plan_without_source(f: UnitFacts) -> Plan:
    released = _release(to_release(f.pods, finished=True, remembers=False))
    return make_plan(released, plan_deletion(f.workload) if f.workload is not None else None)


# --- the workload -------------------------------------------------------------------------------------------------


def _plan_without_workload(f: UnitFacts) -> Plan | PodsToRead:
    if f.has_parent and is_going(f.made_of):
        return NOTHING  # the garbage collector takes its pods, or is to leave them alone
    stopped = _delete(plan_stop(f.pods, "Not admitted, but past its admission gate"))
    steps: list[Step | None] = [stopped]
    wanted: DesiredWorkload | None = None
    if f.has_parent:
        wanted = _read_wanted(f)
    elif f.unit.source == ALONE:
        if is_terminal(f.made_of) or is_going(f.made_of):
            return make_plan(stopped)
        if f.examples is None:
            return _stop_before_reading(stopped) or PodsToRead({MAIN_POD_SET: f.unit.name})
        wanted = build_pod_workload(f.examples[MAIN_POD_SET], f.whole) if MAIN_POD_SET in f.examples else None
    else:
        found = _gather(f)
        if isinstance(found, PodsToRead):
            return _stop_before_reading(stopped) or found
        if isinstance(found, Plan):
            return found.begin_with(stopped)
        wanted = found
        total = sum(pod_set.count for pod_set in wanted.pod_sets)
        steps += _delete_excess(f, list_excess(f.pods, total))
    if wanted is None:
        return make_plan(*steps)
    too_large = next(check_size("", (pod_set.template for pod_set in wanted.pod_sets), of_pods=True), None)
    if too_large is not None:  # near what etcd takes its Workload could be admitted, and not be evicted
        message = f"{f.unit} is too large: {too_large.accepted}"
        return make_plan(*steps, report(f.build_event(EVENT_WORKLOAD_REFUSED, message, warning=True)), again_s=pacing.TOO_LARGE_S)
    try:
        priority, priority_class = find_priority(f.classes, wanted.labels, lambda: wanted.priority_class)
    except MissingClass as error:
        return _refuse_class(f, error, *steps)
    workload = build_workload_of_pods(
        wanted, f.unit.namespace, priority=priority, priority_class=priority_class, copied_labels=f.copied_labels
    )
    attributes = {**describe_owner(f.unit.source, f.unit.name), t.WORKLOAD: wanted.name}
    create = Step(
        CREATE,
        w.create_workload(workload),
        (f.build_event(EVENT_CREATED_WORKLOAD, f"Created Workload: {f.unit.namespace}/{wanted.name}"),),
        Log("workload created", {"workload": wanted.name}),
        Span(t.CREATE, workload, attributes, causes=tuple(f.pods)),
    )
    return make_plan(*steps, create)


def _stop_before_reading(stopped: Step | None) -> Plan | None:
    """Pods that are past their gate without a Workload are stopped whether the API server can be asked for others or not."""
    return make_plan(stopped, again_s=pacing.STOP_POLL_S) if stopped is not None else None


def _read_wanted(f: UnitFacts) -> DesiredWorkload | None:
    """What the parent asks for; None where it asks for nothing (any more), or there is no parent."""
    return build_parent_workload(PARENTS_BY_KIND[f.unit.source], f.made_of, f.unit) if f.has_parent else None


def _gather(f: UnitFacts) -> DesiredWorkload | Plan | PodsToRead:
    """The workload of a plain group, once all of its pods are there."""
    if all(is_terminal(pod) or is_going(pod) for pod in f.pods):
        return NOTHING  # no pod waits for anything
    group = read_group(f.unit, f.pods, f.copied_labels)
    if group.problem is not None:
        return make_plan(report(f.build_event(EVENT_WORKLOAD_REFUSED, group.problem, warning=True)))
    if group.missing:
        message = describe_missing_pods(f.unit, group)
        events = (f.build_event(EVENT_WAITING_FOR_PODS, message, warning=True),) if f.waited_s >= pacing.GROUP_PATIENCE_S else ()
        rest_s = pacing.GROUP_PATIENCE_S - f.waited_s
        return make_plan(Step(WAITING, events=events), again_s=rest_s + 0.1 if rest_s > 0 else None)
    if f.examples is None:
        return PodsToRead(group.examples)
    gone = [name for role, name in group.examples.items() if role not in f.examples]
    if gone:
        return Plan(problem=f"a pod of group {f.unit.name} is gone")
    return build_group_workload(f.unit, group, [pod for pod in f.pods if not is_going(pod)], f.examples)


def plan_refused_name(f: UnitFacts, name: str, other: Obj | None) -> Plan:
    """Returns what follows where the name that the unit's Workload was to have is taken by the Workload `other`; None: that has gone since.
    If it is gone, or that of the unit itself, the unit is looked at again after 1 s. Else an event reports the `name`, and it is looked at
    again after 30 s. Raises AssertionError where it has to report and the source is gone."""
    if other is None or find_workload_unit(other) == f.unit:
        return wait(pacing.STOP_POLL_S)  # of one of this name that is still going away
    message = f"the name of group {name} is that of the Workload of another; choose another name"
    return make_plan(report(f.build_event(EVENT_WORKLOAD_REFUSED, message, warning=True)), again_s=pacing.TOO_LARGE_S)


def _refuse_class(f: UnitFacts, error: MissingClass, *before: Step | None) -> Plan:
    steps = (*before, report(f.build_event(EVENT_WORKLOAD_REFUSED, str(error), warning=True)))
    return Plan(tuple(step for step in steps if step is not None), problem=str(error))


def _with_workload(f: UnitFacts, workload: Obj) -> Plan:
    admitted = is_condition_true(workload, ADMITTED) and not is_condition_true(workload, EVICTED)
    active = workload["spec"].get("active", True) is not False
    counts = {pod_set["name"]: int(pod_set["count"]) for pod_set in workload["spec"]["podSets"]}
    over = finish_of(f.unit, counts, f.pods)
    if over is not None and not list_running(f.pods) and not _find_outside(f):
        reason = REASON_SUCCEEDED if over.succeeded else REASON_FAILED
        event = f.build_event(EVENT_FINISHED_WORKLOAD, f"Workload '{build_object_key(workload)}' is declared finished")
        # Its event leads to the plan that takes the finalizers off.
        return make_plan(finish(workload, Condition(FINISHED, True, reason, over.message), f.now), report(event))
    wanted = _read_wanted(f)
    if f.has_parent and is_going(f.made_of) and not may_run(workload):
        return _stop_going(f, workload)
    if f.has_parent and wanted is None:
        return _scale_to_zero(f, workload)
    if not admitted:
        return _plan_while_waiting(f, workload, wanted)
    if not active:
        return make_plan(plan_eviction_of(workload, REASON_DEACTIVATED, "The workload is deactivated", f.now))
    if wanted is not None and has_other_request(wanted, workload):
        message = f"{f.unit} was changed while it ran: its queue, the number of its pods, or what they ask for"
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, message, f.now))
    return _start(f, workload, counts)


def _scale_to_zero(f: UnitFacts, workload: Obj) -> Plan:
    """A parent without replicas, or one that is deleted: then the garbage collector decides."""
    if is_going(f.made_of) or list_running(f.pods):
        return NOTHING
    if _find_outside(f):
        return wait(pacing.OUTSIDE_POLL_S)
    if PARENTS_BY_KIND[f.unit.source].several:
        return make_plan(plan_deletion(workload))
    held = hold(workload, f"{f.unit.source} {f.unit.name} has no replicas", f.place, f.now)
    return _follow_labels(f, workload, held)


def _stop_going(f: UnitFacts, workload: Obj) -> Plan:
    """The parent is being deleted, a finalizer of others keeps it, and its pods may not run. Their controller does nothing any more, so
    the workload is not queued again."""
    ended = _end_running(f, workload)
    if ended is not None:
        return ended
    return make_plan(hold(workload, f"{f.unit.source} {f.unit.name} is being deleted", f.place, f.now))


def _find_outside(f: UnitFacts) -> list[PodFacts]:
    """Pods that run by a workload and are none of its unit's, as one that its controller has released: they use its quota."""
    own = {build_object_key(pod) for pod in f.pods}
    return [pod for pod in f.naming if not (pod.gated or pod.dropped or pod.key in own)]


def _end_running(f: UnitFacts, workload: Obj) -> Plan | None:
    """Deletes pods that are past their admission gate; None where there are none, those that end included."""
    running, outside = list_running(f.pods), _find_outside(f)
    if not (running or outside):
        return None
    evicted = find_condition(workload, EVICTED) if is_condition_true(workload, EVICTED) else None
    reason = (evicted or {}).get("message") or "Not admitted, but past its admission gate"
    ended = end_pods(workload, outside, "The workload that it names is not admitted")
    return make_plan(*ended, _delete(plan_stop(f.pods, reason)) if running else None, again_s=pacing.STOP_POLL_S)


def _plan_while_waiting(f: UnitFacts, workload: Obj, wanted: DesiredWorkload | None) -> Plan:
    ended = _end_running(f, workload)
    if ended is not None:
        return ended
    if _has_lost_pods(f, workload):
        return make_plan(hold(workload, f"group {f.unit.name} was evicted and waits for the pods that replace its own", f.place, f.now))
    if is_condition_true(workload, EVICTED) and (released := give_back(workload, f.place, f.now)) is not None:
        return make_plan(released)
    requests: Mapping[str, Any] = {}
    before: list[Step | None] = []
    if f.unit.source == ALONE and has_admission_gate(f.made_of):
        requests = {MAIN_POD_SET: build_pod_topology_request(f.made_of)}
    if f.unit.source == GROUP:
        group = read_group(f.unit, f.pods)
        if group.problem is not None:
            return make_plan(report(f.build_event(EVENT_WORKLOAD_REFUSED, group.problem, warning=True)))
        total = sum(int(pod_set["count"]) for pod_set in workload["spec"]["podSets"])
        before += _delete_excess(f, list_excess(f.pods, total))
        if not group.missing and group.roles != {p["name"]: p["count"] for p in workload["spec"]["podSets"]}:
            return make_plan(*before, plan_deletion(workload))  # its present pods are others
        requests = group.requests
    plan = _plan_in_step(f, workload, wanted, requests)
    return plan.begin_with(*before)


def _plan_in_step(f: UnitFacts, workload: Obj, wanted: DesiredWorkload | None, requests: Mapping[str, Any]) -> Plan:
    queue = wanted.queue if wanted is not None else queue_to_follow(f.made_of)
    changes: dict[str, Any] = {}
    if queue and workload["spec"].get("queueName") != queue:
        changes["queueName"] = queue
    pod_sets = with_requests(workload, requests)
    if wanted is not None and has_other_pod_sets(wanted.pod_sets, workload):
        pod_sets = [pod_set.to_wire() for pod_set in wanted.pod_sets]
    if pod_sets is not None:
        changes["podSets"] = pod_sets
    if wanted is not None:
        try:
            changes |= _find_changes(f, workload, wanted)
        except MissingClass as error:
            return _refuse_class(f, error)
    # Of what has no parent they are not kept: a pod can be made again.
    notes = {} if wanted is None else find_changed_annotations(wanted.annotations, workload)
    if not changes and not notes:
        return make_plan(end_hold(workload, f.now))
    if must_ask_anew(workload, changes):
        return make_plan(plan_eviction_of(workload, REASON_JOB_CHANGED, CHANGED_WHILE_RESERVED, f.now))
    asks_anew = pod_sets is not None or bool(notes)
    if asks_anew and (find_condition(workload, QUOTA_RESERVED) or {}).get("reason") == REASON_MISCONFIGURED:
        changes["active"] = True  # what was wrong with it has been changed
    event = f.build_event(EVENT_UPDATED_WORKLOAD, describe_changes(workload, changes, notes))
    update = w.patch_workload(workload, {"spec": changes, "metadata": {"annotations": notes}})
    return make_plan(Step("update workload", update, (event,) if asks_anew else ()))


def _follow_labels(f: UnitFacts, workload: Obj, held: Step | None) -> Plan:
    """A workload on hold is in the queue and has the priority and the time limit that its parent names now."""
    asked = read_parent(PARENTS_BY_KIND[f.unit.source], f.made_of, f.unit)
    if asked is None or is_condition_true(workload, QUOTA_RESERVED):
        return make_plan(held)
    try:
        changes = _find_changes(f, workload, asked)
    except MissingClass as error:
        return _refuse_class(f, error, held)
    if workload["spec"].get("queueName") != asked.queue:
        changes["queueName"] = asked.queue
    event = f.build_event(EVENT_UPDATED_WORKLOAD, describe_changes(workload, changes, ()))
    return make_plan(held, Step("update workload", w.patch_workload(workload, {"spec": changes}), (event,)) if changes else None)


def _find_changes(f: UnitFacts, workload: Obj, wanted: DesiredWorkload) -> dict[str, Any]:
    """What of a waiting workload's spec is another by the labels of its parent: priority and time limit. Raises MissingClass."""
    changes = find_changed_priority(f.classes, workload, wanted.labels, lambda: wanted.priority_class)
    seconds = parse_execution_time(wanted.labels)
    if workload["spec"].get("maximumExecutionTimeSeconds") != seconds:
        changes["maximumExecutionTimeSeconds"] = seconds
    return changes


# --- pods ---------------------------------------------------------------------------------------------------------


def _start(f: UnitFacts, workload: Obj, counts: Mapping[str, int]) -> Plan:
    if f.facts is None or f.facts.admission is None:
        return NOTHING
    roles = [(pod, _find_role(f, pod)) for pod in f.pods]
    plan = plan_start(counts, roles, deletes_excess=f.unit.source == GROUP, reclaimed=read_reclaimed_pods(workload))
    asked = ((pod, role, {**compute_pod_requests(pod["spec"]), **f.find_claimed(pod)}) for pod, role in plan.start)
    judged = [(pod, role, explain_excess(requests, f.admitted[role], role)) for pod, role, requests in asked]
    steps: list[Step | None] = [report(f.build_event(EVENT_WORKLOAD_REFUSED, problem, warning=True)) for problem in plan.problems]
    steps += [_delete(plan.delete), *_delete_excess(f, plan.excess)]
    excessive = [(pod, excess) for pod, _, excess in judged if excess][: pacing.MOST_EXCESSIVE]
    steps += [report(Event(r.PODS, pod, EVENT_WORKLOAD_REFUSED, excess, True)) for pod, excess in excessive]
    start = [(pod, role) for pod, role, excess in judged if not excess][: pacing.MOST_STARTED]
    again_s = pacing.EXCESS_S if excessive else None  # what a pod requests may be known late
    if not start:
        return make_plan(*steps, again_s=again_s)
    try:
        infos = {info.name: info for info in start_infos(workload, f.facts.admission, f.flavors, workload["spec"].get("queueName") or "")}
    except MissingFlavor as error:
        return Plan(tuple(step for step in steps if step is not None), problem=str(error))
    attributes = {**describe_owner(f.unit.source, f.unit.name), t.WORKLOAD: workload["metadata"]["name"]}
    started = Step(
        START,
        ParallelSteps(tuple(Step("start pod", w.start_pod(pod, infos[role]), passes=PASSED_OVER) for pod, role in start)),
        (f.build_event(EVENT_STARTED, f"Admitted by clusterQueue {f.facts.admission.cluster_queue}"),),
        Log("pods started", {"workload": build_object_key(workload), "count": len(start)}),
        Span(t.START, workload, attributes, follows_decision=True, causes=tuple(pod for pod, _ in start)),
    )
    return make_plan(*steps, started, again_s=again_s)


def _find_role(f: UnitFacts, pod: Obj) -> str:
    if f.has_parent:
        return PARENTS_BY_KIND[f.unit.source].find_role(f.made_of, pod)
    return find_pod_role(pod) if f.unit.source == GROUP else MAIN_POD_SET


def _delete(pods: Sequence[tuple[Obj, str]], reason: str = EVENT_STOPPED) -> Step | None:
    """Deletes pods, each with the message of its event; None where there are none."""
    steps = (Step("delete pod", w.delete_pod(pod), (Event(r.PODS, pod, reason, why),), passes=PASSED_OVER) for pod, why in pods)
    return Step("delete pods", ParallelSteps(tuple(steps))) if pods else None


def _delete_excess(f: UnitFacts, pods: Sequence[Obj]) -> list[Step | None]:
    """Deletes pods that their plain group has no place for. One that has a controller would be made again, without end: it stays
    behind its gates."""
    message = f"Group {f.unit.name} has all of its pods without this one"
    steps = [_delete([(pod, message) for pod in pods if find_controller(pod) is None], EVENT_EXCESS_POD_DELETED)]
    made = next((pod for pod in pods if find_controller(pod) is not None), None)
    if made is not None:
        owner = find_controller(made) or {}
        reason = f"{owner['kind']} {owner['name']} would make another: give that as many replicas as the group has"
        steps.append(report(Event(r.PODS, made, EVENT_WORKLOAD_REFUSED, f"{message}. It stays gated, since {reason}", True)))
    return steps


def _release(pods: Sequence[Obj]) -> Step | None:
    """Takes topogate's finalizer off pods; None where there are none."""
    steps = (Step("release pod", w.release_pod(pod), passes=PASSED_OVER) for pod in pods)
    return Step("release pods", ParallelSteps(tuple(steps))) if pods else None
