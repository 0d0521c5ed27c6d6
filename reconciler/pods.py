"""Pods that are queued themselves, and their workloads: alone, in groups, of StatefulSets and LeaderWorkerSets.

Level-triggered, a unit at a time (`core.plan.pod_units`): each run looks at pods, parent and workload as they are.

    pods or parent            workload                 step
    all there                 none                     create the workload
    ask for something else    waits                    update it
    past the admission gate   not admitted             delete them: nobody slips past placement
    gated                     admitted                 start: gate off, labels and selectors on, in one write a pod
    more than admitted        admitted                 those beyond stay behind their gate; of a plain group they are deleted
    scaled                    admitted                 evict: what was admitted is another number of pods
    scaled to 0               any                      once none runs, give back quota and put it on hold; of an LWS replica delete it
    running                   evicted or deactivated   delete them; once none is left, give back quota
    ended                     admitted                 say so; quota and domains are given back, finalizers taken off
    gone                      any                      let it go
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from core import trace_names as t
from core.jobs.execution_time import execution_time
from core.jobs.pod import Pod, has_admission_gate, pod_topology_request
from core.jobs.pod_parents import PodParent
from core.jobs.pod_rules import check_size
from core.model.resources import pod_requests
from core.names import (
    ADMITTED,
    EVENT_CREATED_WORKLOAD,
    EVENT_FINISHED_WORKLOAD,
    EVENT_STARTED,
    EVENT_UPDATED_WORKLOAD,
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
from core.plan import resources as r
from core.plan import writes as w
from core.plan.conditions import Condition
from core.plan.excess import explain_excess
from core.plan.pod_plan import PodPlan, excess_of_group, finish_of, plan_start, plan_stop, still_running, to_release
from core.plan.pod_units import (
    ALONE,
    GROUP,
    PARENTS,
    UNKNOWN,
    Unit,
    is_going,
    matters,
    note_of,
    queue_to_follow,
    role_of_pod,
    unit_of_pod,
    unit_of_workload,
)
from core.plan.pod_workloads import Wanted, asks_otherwise, build_workload_of_pods, read_group, read_parent, with_requests
from core.plan.reserved import CHANGED_WHILE_RESERVED, must_ask_anew
from core.plan.workload import MissingFlavor, changed_annotations, pod_sets_differ, start_infos
from core.resource import Obj
from core.runtime.apart import run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result, Retryable
from core.runtime.errors import AlreadyExists, Invalid
from core.runtime.store import Change, object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import PodFacts, condition_is_true, controller_of, find_condition, reclaimed_pods
from reconciler import tracing
from reconciler.controllers import MAX_RETRY_S, build_controller
from reconciler.execute import Executor
from reconciler.indexes import find_owned
from reconciler.observed import Observed
from reconciler.parts import limit_facts
from reconciler.steps import WorkloadSteps, may_run
from reconciler.unit_steps import PARENTS_BY_KIND, UnitSteps
from reconciler.wanted import WantedWorkloads

logger = logging.getLogger(__name__)
BATCH_S = 0.3  # pods of one unit come one by one
PODS_A_BATCH_S = 4_000  # a unit of so many pods is looked at once a second
MOST_STARTED = 5_000  # at once
MOST_TOLD = 100  # pods with an event on each that stays gated for what it requests
STOP_POLL_S = 1.0
OUTSIDE_POLL_S = 30.0  # no event of a pod that is in no unit leads here


class Pods:
    """Reconciles one unit at a time."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self._steps = WorkloadSteps(observed, executor)
        self._unit_steps = UnitSteps(executor)
        self._wanted = WantedWorkloads(executor, self._unit_steps, clock, Pod(tuple(observed.kinds.values())))
        self.controller = build_controller("pods", self._reconcile, clock, workers=8)
        self._queue = self.controller.queue
        observed.pods.add_handler(self._on_pod)
        observed.workloads.add_handler(self._on_workload)
        observed.on_owner.append(self._on_owner)
        for kind, parent in observed.parents.items():
            parent.add_handler(partial(self._on_parent, kind))

    def _on_pod(self, change: Change) -> None:
        if change.old is not None and change.new is not None and matters(change.old) == matters(change.new):
            return
        units = {unit for obj in (change.old, change.new) if obj is not None and (unit := unit_of_pod(obj)) is not None}
        for unit in units:
            count = self._observed.pods.store.count_by_index("unit", str(unit))
            self._queue.add_after(unit, max(BATCH_S, count / PODS_A_BATCH_S), "pod changed")

    def _on_owner(self, pod: Obj) -> None:
        unit = unit_of_pod(pod)
        if unit is not None and unit.source in PARENTS:
            self._queue.add_after(unit, BATCH_S, "its pods are known")

    def _on_workload(self, change: Change) -> None:
        unit = unit_of_workload(change.obj)
        if unit is not None:
            self._queue.add(unit, "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_parent(self, kind: str, change: Change) -> None:
        """Its workloads are looked at when what it asks for changes, not with every change of its status."""
        parent = PARENTS_BY_KIND[kind]
        if change.old is not None and change.new is not None and _asked(parent, change.old) == _asked(parent, change.new):
            return
        for unit in self._units_of(parent, change.obj):
            self._queue.add(unit, "parent changed", INITIAL_PRIORITY if change.initial else 0)

    def _units_of(self, parent: PodParent, obj: Obj) -> set[Unit]:
        metadata = obj["metadata"]
        units = {unit for workload in find_owned(self._observed.workloads.store, obj) if (unit := unit_of_workload(workload)) is not None}
        if "spec" not in obj:
            return units
        if parent.several:
            return units | {Unit(parent.kind, metadata["namespace"], metadata["name"], i) for i in range(parent.workloads(obj))}
        return units | {Unit(parent.kind, metadata["namespace"], metadata["name"])}

    # --- one unit -----------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        unit = cast("Unit", item.key)
        pods = self._observed.pods.store.by_index("unit", str(unit))
        if unit.source == UNKNOWN:
            await self._unit_steps.release(to_release(pods, finished=False, remembers=False))
            return Done()
        source = self._source(unit, pods)
        workload = self._find_workload(unit, source)
        if source is not None and unit.source in PARENTS and "spec" not in source:
            source = None  # it has left its queue
        leaves = workload is not None and workload["metadata"].get("deletionTimestamp")
        finished = workload is not None and condition_is_true(workload, FINISHED)
        if source is None:
            self._wanted.forget(unit)
        await self._unit_steps.release(await run_apart(len(pods), partial(self._find_released, unit, workload, pods)))
        if workload is not None and leaves:
            return await self._let_go(unit, workload, pods)
        if source is None:
            return await self._without_source(unit, workload, pods)
        if unit.source in PARENTS:
            # What runs holds a place, whoever made it.
            pods = await run_apart(len(pods), partial(self._find_own, source, pods))
        if workload is not None and finished:
            await self._steps.drop_finalizer(workload)
            return await self._after_the_end(unit, workload, pods)
        if workload is None:
            return await self._without_workload(unit, source, pods)
        return await self._with_workload(unit, source, workload, pods)

    def _source(self, unit: Unit, pods: list[Obj]) -> Obj | None:
        """What the workload is made of: its parent, else one of the pods; None where it is gone."""
        if unit.source in PARENTS:
            return self._observed.parents[unit.source].store.get(f"{unit.namespace}/{unit.name}")
        return pods[0] if pods else None

    def _find_released(self, unit: Unit, workload: Obj | None, pods: list[Obj]) -> tuple[Obj, ...]:
        leaves = workload is not None and bool(workload["metadata"].get("deletionTimestamp"))
        finished = workload is not None and condition_is_true(workload, FINISHED)
        lives = workload is not None and not leaves and not all(is_going(pod) for pod in pods)
        is_evicted = workload is not None and not (leaves or finished) and self._has_lost_pods(unit, workload, pods)
        return to_release(pods, finished=finished, remembers=unit.source == GROUP and lives, is_evicted=is_evicted)

    def _find_own(self, source: Obj, pods: list[Obj]) -> list[Obj]:
        return [pod for pod in pods if not has_admission_gate(pod) or self._observed.is_of(source, pod)]

    def _has_lost_pods(self, unit: Unit, workload: Obj, pods: list[Obj]) -> bool:
        """Whether a plain group was evicted to be queued again, and has fewer pods than it needs."""
        is_queued_again = condition_is_true(workload, EVICTED) and workload["spec"].get("active", True) is not False
        serves = any(note_of(pod, POD_GROUP_SERVING) == "true" for pod in pods)  # its controller gives the next pod the same name
        return unit.source == GROUP and is_queued_again and not serves and read_group(unit, pods).missing > 0

    def _find_workload(self, unit: Unit, source: Obj | None) -> Obj | None:
        """The unit's workload, none of what was called so before."""
        uid = source["metadata"]["uid"] if source is not None else None
        for workload in self._observed.workloads.store.by_index("unit", str(unit)):
            owner = controller_of(workload)
            if owner is None or owner["uid"] == uid:
                return workload
        return None

    async def _let_go(self, unit: Unit, workload: Obj, pods: list[Obj]) -> Result:
        """The workload was deleted: its pods first, then it may go."""
        keys = {object_key(pod) for pod in still_running(pods)} | {pod.key for pod in self._observed.live_pods(object_key(workload))}
        if any(not self._is_over_but_for_finalizers(key) for key in keys) and not condition_is_true(workload, FINISHED):
            await self._unit_steps.delete(plan_stop(pods, "Workload is deleted"))
            return RequeueAfter(STOP_POLL_S)
        await self._steps.drop_finalizer(workload)
        return Done()

    def _is_over_but_for_finalizers(self, key: str) -> bool:
        """Whether a pod was deleted without a grace period on a node that is lost. Where that was in the foreground, the garbage collector
        keeps it until its Workload is gone, and no kubelet says that it has ended."""
        pod = self._observed.pod_facts.get(key)
        return pod is not None and pod.dropped and self._observed.is_lost_node(pod.node)

    async def _after_the_end(self, unit: Unit, workload: Obj, pods: list[Obj]) -> Result:
        """A group that is over may be made anew under its name once its ended pods are gone."""
        late = [pod for pod in pods if has_admission_gate(pod) and not is_going(pod)]
        if unit.source == GROUP and late:
            if len(late) == len(pods):
                await self._executor.do(w.delete_workload(workload))
            else:
                message = f"group {unit.name} has finished; delete its pods to use its name again"
                await self._unit_steps.tell(unit, late[0], EVENT_WORKLOAD_REFUSED, message, warning=True)
        return Done()

    async def _without_source(self, unit: Unit, workload: Obj | None, pods: list[Obj]) -> Result:
        await self._unit_steps.release(to_release(pods, finished=True, remembers=False))
        if workload is not None:
            await self._executor.do(w.delete_workload(workload))
        return Done()

    # --- the workload ---------------------------------------------------------------------------------

    async def _without_workload(self, unit: Unit, source: Obj, pods: list[Obj]) -> Result:
        if unit.source in PARENTS and is_going(source):
            return Done()  # the garbage collector takes its pods, or has been told to leave them alone
        await self._unit_steps.delete(plan_stop(pods, "Not admitted, but past its admission gate"))
        wanted = await self._wanted.find(unit, source, pods)
        if wanted is None:
            return self._wanted.look_again(unit)
        too_large = next(check_size("", (pod_set.template for pod_set in wanted.pod_sets), of_pods=True), None)
        if too_large is not None:  # near what etcd takes its Workload could be admitted, and not be evicted
            resource = r.resource_of(PARENTS_BY_KIND[unit.source]) if unit.source in PARENTS else r.PODS
            message = f"{unit} is too large: {too_large.accepted}"
            self._executor.reporter.event(resource, source, EVENT_WORKLOAD_REFUSED, message, warning=True)
            return RequeueAfter(MAX_RETRY_S)
        priority, priority_class = await self._find_priority(unit, source, wanted)
        workload = build_workload_of_pods(wanted, unit.namespace, priority=priority, priority_class=priority_class)
        attributes = tracing.made_for(unit.source, unit.name) | {t.WORKLOAD: wanted.name}
        with tracing.step(t.CREATE, workload, attributes, links=tracing.other_stories(pods, than=workload)):
            try:
                await self._executor.do(w.create_workload(workload))
            except AlreadyExists:
                other = self._observed.workloads.store.get(f"{unit.namespace}/{wanted.name}")
                if other is None or unit_of_workload(other) == unit:
                    return RequeueAfter(STOP_POLL_S)  # of one of this name that is still going away
                message = f"the name of group {unit.name} is that of the Workload of another; choose another name"
                await self._unit_steps.tell(unit, source, EVENT_WORKLOAD_REFUSED, message, warning=True)
                return RequeueAfter(MAX_RETRY_S)
            except Invalid as error:
                await self._unit_steps.tell(unit, source, EVENT_WORKLOAD_REFUSED, str(error), warning=True)
                raise
        logger.info("workload created", extra={"workload": wanted.name})
        await self._unit_steps.tell(unit, source, EVENT_CREATED_WORKLOAD, f"Created Workload: {unit.namespace}/{wanted.name}")
        return Done()

    async def _with_workload(self, unit: Unit, source: Obj, workload: Obj, pods: list[Obj]) -> Result:
        admitted = condition_is_true(workload, ADMITTED) and not condition_is_true(workload, EVICTED)
        active = workload["spec"].get("active", True) is not False
        counts = {pod_set["name"]: int(pod_set["count"]) for pod_set in workload["spec"]["podSets"]}
        finish = await run_apart(len(pods), partial(finish_of, unit, counts, pods))
        if finish is not None and not still_running(pods) and not await self._find_outside(workload, pods):
            reason = REASON_SUCCEEDED if finish.succeeded else REASON_FAILED
            await self._steps.finish(workload, Condition(FINISHED, True, reason, finish.message))
            await self._unit_steps.tell(unit, source, EVENT_FINISHED_WORKLOAD, f"Workload '{object_key(workload)}' is declared finished")
            return Done()  # its event brings us back to take the finalizers off
        wanted = self._wanted.of_parent(unit, source)
        if unit.source in PARENTS and is_going(source) and not may_run(workload):
            return await self._stop_going(unit, workload, pods)
        if unit.source in PARENTS and wanted is None:  # scaled away, or deleted: then the garbage collector decides
            if is_going(source) or still_running(pods):
                return Done()
            if await self._find_outside(workload, pods):
                return RequeueAfter(OUTSIDE_POLL_S)
            if PARENTS_BY_KIND[unit.source].several:
                await self._executor.do(w.delete_workload(workload))
            else:
                await self._steps.hold(workload, f"{unit.source} {unit.name} has no replicas")
                await self._follow_labels(unit, source, workload)
            return Done()
        if not admitted:
            return await self._while_waiting(unit, source, workload, pods, wanted)
        if not active:
            await self._steps.evict(workload, REASON_DEACTIVATED, "The workload is deactivated")
            return Done()
        if wanted is not None and asks_otherwise(wanted, workload):
            message = f"{unit} was changed while it ran: its queue, the number of its pods, or what they ask for"
            await self._steps.evict(workload, REASON_JOB_CHANGED, message)
            return Done()
        return await self._start(unit, source, workload, pods, counts)

    async def _stop_going(self, unit: Unit, workload: Obj, pods: list[Obj]) -> Result:
        """The parent is being deleted, a finalizer of others keeps it, and its pods may not run. Their controller does nothing any more, so
        the workload is not queued again."""
        if await self._end_running(workload, pods):
            return RequeueAfter(STOP_POLL_S)
        await self._steps.hold(workload, f"{unit.source} {unit.name} is being deleted")
        return Done()

    async def _find_outside(self, workload: Obj, pods: list[Obj]) -> list[PodFacts]:
        """Pods that run by a workload and are none of its unit's, as one that its controller has released: they use its quota."""
        naming = self._observed.live_pods(object_key(workload))

        def find() -> list[PodFacts]:
            own = {object_key(pod) for pod in pods}
            return [pod for pod in naming if not (pod.gated or pod.dropped or pod.key in own)]

        return await run_apart(len(naming), find)

    async def _end_running(self, workload: Obj, pods: list[Obj]) -> bool:
        """Deletes pods that are past their admission gate; says whether there are any, those that end included."""
        running, outside = still_running(pods), await self._find_outside(workload, pods)
        if outside:
            await self._steps.end_pods(workload, outside, "The workload that it names is not admitted")
        if running:
            evicted = find_condition(workload, EVICTED) if condition_is_true(workload, EVICTED) else None
            reason = (evicted or {}).get("message") or "Not admitted, but past its admission gate"
            await self._unit_steps.delete(plan_stop(pods, reason))
        return bool(running or outside)

    async def _while_waiting(self, unit: Unit, source: Obj, workload: Obj, pods: list[Obj], wanted: Wanted | None) -> Result:
        if await self._end_running(workload, pods):
            return RequeueAfter(STOP_POLL_S)
        if await run_apart(len(pods), partial(self._has_lost_pods, unit, workload, pods)):
            await self._steps.hold(workload, f"group {unit.name} was evicted and waits for the pods that replace its own")
            return Done()
        if condition_is_true(workload, EVICTED) and await self._steps.give_back(workload):
            return Done()
        requests: Mapping[str, Obj | None] = {}
        if unit.source == ALONE and has_admission_gate(source):
            requests = {MAIN_POD_SET: pod_topology_request(source)}
        if unit.source == GROUP:
            group = await run_apart(len(pods), partial(read_group, unit, pods))
            if group.problem is not None:
                await self._unit_steps.tell(unit, source, EVENT_WORKLOAD_REFUSED, group.problem, warning=True)
                return Done()
            total = sum(int(pod_set["count"]) for pod_set in workload["spec"]["podSets"])
            await self._unit_steps.delete_excess(unit, await run_apart(len(pods), partial(excess_of_group, pods, total)))
            if not group.missing and group.roles != {p["name"]: p["count"] for p in workload["spec"]["podSets"]}:
                await self._executor.do(w.delete_workload(workload))  # its pods are others by now
                return Done()
            requests = group.requests
        return await self._keep_in_step(unit, source, workload, wanted, requests)

    async def _keep_in_step(
        self, unit: Unit, source: Obj, workload: Obj, wanted: Wanted | None, requests: Mapping[str, Obj | None]
    ) -> Result:
        queue = wanted.queue if wanted is not None else queue_to_follow(source)
        changes: dict[str, Any] = {}
        if queue and workload["spec"].get("queueName") != queue:
            changes["queueName"] = queue
        pod_sets = with_requests(workload, requests)
        if wanted is not None and pod_sets_differ(wanted.pod_sets, workload):
            pod_sets = [pod_set.to_wire() for pod_set in wanted.pod_sets]
        if pod_sets is not None:
            changes["podSets"] = pod_sets
        if wanted is not None:
            changes |= await self._find_changes(unit, source, workload, wanted)
        # Of what has no parent nobody keeps them: a pod can be made again.
        notes = {} if wanted is None else changed_annotations(wanted.annotations, workload)
        if not changes and not notes:
            await self._steps.end_hold(workload)
            return Done()
        if must_ask_anew(workload, changes):
            await self._steps.evict(workload, REASON_JOB_CHANGED, CHANGED_WHILE_RESERVED)
            return Done()
        asks_anew = pod_sets is not None or bool(notes)
        if asks_anew and (find_condition(workload, QUOTA_RESERVED) or {}).get("reason") == REASON_MISCONFIGURED:
            changes["active"] = True  # what was wrong with it has been changed
        await self._executor.do(w.patch_workload(workload, {"spec": changes, "metadata": {"annotations": notes}}))
        if asks_anew:
            told = f"Updated Workload: {', '.join(sorted((*changes, *notes)))}"
            await self._unit_steps.tell(unit, source, EVENT_UPDATED_WORKLOAD, told)
        return Done()

    async def _follow_labels(self, unit: Unit, source: Obj, workload: Obj) -> None:
        """A workload on hold is in the queue and has the priority and the time limit that its parent names now."""
        asked = read_parent(PARENTS_BY_KIND[unit.source], source, unit)
        if asked is None or condition_is_true(workload, QUOTA_RESERVED):
            return
        changes = await self._find_changes(unit, source, workload, asked)
        if workload["spec"].get("queueName") != asked.queue:
            changes["queueName"] = asked.queue
        if changes:
            await self._executor.do(w.patch_workload(workload, {"spec": changes}))

    async def _find_priority(self, unit: Unit, source: Obj, wanted: Wanted) -> tuple[int, dict[str, str] | None]:
        """Value and class of a unit's priority. Raises Retryable, with an event, where its class does not exist."""
        try:
            return self._steps.priority(wanted.labels, lambda: wanted.priority_class)
        except Retryable as error:
            await self._report_missing_class(unit, source, error)
            raise

    async def _report_missing_class(self, unit: Unit, source: Obj, error: Retryable) -> None:
        await self._unit_steps.tell(unit, source, EVENT_WORKLOAD_REFUSED, str(error), warning=True)

    async def _find_changes(self, unit: Unit, source: Obj, workload: Obj, wanted: Wanted) -> dict[str, Any]:
        """What of a waiting workload's spec is another by the labels of its parent: priority and time limit. Raises Retryable."""
        try:
            changes = self._steps.find_changed_priority(workload, wanted.labels, lambda: wanted.priority_class)
        except Retryable as error:
            await self._report_missing_class(unit, source, error)
            raise
        seconds = execution_time(wanted.labels)
        if workload["spec"].get("maximumExecutionTimeSeconds") != seconds:
            changes["maximumExecutionTimeSeconds"] = seconds
        return changes

    # --- pods -----------------------------------------------------------------------------------------

    async def _start(self, unit: Unit, source: Obj, workload: Obj, pods: list[Obj], counts: Mapping[str, int]) -> Result:
        facts = self._observed.state.workloads.facts.get(object_key(workload))
        if facts is None or facts.admission is None:
            return Done()
        admitted = {pod_set.name: pod_set.requests for pod_set in limit_facts(self._observed, facts).pod_sets}

        def plan_pods() -> tuple[PodPlan, list[tuple[Obj, str, str]]]:
            roles = [(pod, self._role_of(unit, source, pod)) for pod in pods]
            plan = plan_start(counts, roles, deletes_excess=unit.source == GROUP, reclaimed=reclaimed_pods(workload))
            return plan, [(pod, role, explain_excess(pod_requests(pod["spec"]), admitted[role], role)) for pod, role in plan.start]

        plan, judged = await run_apart(len(pods), plan_pods)
        if self._observed.workloads.store.get(object_key(workload)) is not workload:
            return Done()  # its event brings us back
        for problem in plan.problems:
            await self._unit_steps.tell(unit, source, EVENT_WORKLOAD_REFUSED, problem, warning=True)
        await self._unit_steps.delete(plan.delete)
        await self._unit_steps.delete_excess(unit, plan.excess)
        for pod, excess in [(pod, excess) for pod, _, excess in judged if excess][:MOST_TOLD]:
            self._executor.reporter.event(r.PODS, pod, EVENT_WORKLOAD_REFUSED, excess, warning=True)
        start = [(pod, role) for pod, role, excess in judged if not excess][:MOST_STARTED]  # those that are seen started bring us back
        if not start:
            return Done()
        try:
            queue = workload["spec"].get("queueName") or ""
            infos = {info.name: info for info in start_infos(workload, facts.admission, self._observed.state.flavors, queue)}
        except MissingFlavor as error:
            raise Retryable(str(error)) from error
        attributes = tracing.made_for(unit.source, unit.name) | {t.WORKLOAD: workload["metadata"]["name"]}
        causes = [tracing.decision_of(workload), *tracing.other_stories((pod for pod, _ in start), than=workload)]
        with tracing.step(t.START, workload, attributes, links=causes):
            await self._unit_steps.start([(pod, infos[role]) for pod, role in start])
        logger.info("pods started", extra={"workload": object_key(workload), "count": len(start)})
        await self._unit_steps.tell(unit, source, EVENT_STARTED, f"Admitted by clusterQueue {facts.admission.cluster_queue}")
        return Done()

    def _role_of(self, unit: Unit, source: Obj, pod: Obj) -> str:
        if unit.source in PARENTS:
            return PARENTS_BY_KIND[unit.source].role_of(source, pod)
        return role_of_pod(pod) if unit.source == GROUP else MAIN_POD_SET


def _asked(parent: PodParent, obj: Obj) -> tuple[Any, ...]:
    metadata, number = obj["metadata"], parent.workloads(obj) if "spec" in obj else 0
    return metadata["uid"], metadata.get("generation"), metadata.get("labels"), bool(metadata.get("deletionTimestamp")), number
