"""Pods that are queued themselves, and their workloads: alone, in groups, of StatefulSets and LeaderWorkerSets.

Level-triggered, a unit at a time (`core.plan.pod_units`): each run looks at pods, parent and workload as they are.

    pods or parent            workload                 step
    all there                 none                     create the workload
    ask for something else    waits                    update it
    past the admission gate   not admitted             delete them: nobody slips past placement
    gated                     admitted                 start: gate off, labels and selectors on, in one write a pod
    more than admitted        admitted                 those beyond stay behind their gate; of a plain group they are deleted
    scaled                    admitted                 evict: what was admitted is another number of pods
    running                   evicted or deactivated   delete them; once none is left, give back quota
    ended                     admitted                 say so; quota and domains are given back, finalizers taken off
    gone                      any                      let it go
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from core.jobs.contract import PodSetStart, PodSetTemplate
from core.jobs.pod import Pod, has_admission_gate, pod_topology_request
from core.jobs.pod_kinds import POD_SETS
from core.jobs.pod_parents import PodParent
from core.model.resources import pod_requests
from core.names import (
    ADMITTED,
    EVENT_CREATED_WORKLOAD,
    EVENT_EXCESS_POD_DELETED,
    EVENT_FINISHED_WORKLOAD,
    EVENT_STARTED,
    EVENT_STOPPED,
    EVENT_UPDATED_WORKLOAD,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    FINISHED,
    MAIN_POD_SET,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    REASON_FAILED,
    REASON_MISCONFIGURED,
    REASON_SUCCEEDED,
)
from core.plan.conditions import Condition
from core.plan.pod_units import (
    ALONE,
    GROUP,
    PARENTS,
    UNKNOWN,
    Unit,
    Wanted,
    asks_otherwise,
    build_workload_of_pods,
    excess_of_group,
    finish_of,
    is_going,
    is_terminal,
    matters,
    plan_start,
    plan_stop,
    queue_to_follow,
    read_group,
    role_of_pod,
    still_running,
    to_release,
    unit_of_pod,
    unit_of_workload,
    wanted_alone,
    wanted_of_group,
    wanted_of_parent,
    with_requests,
)
from core.plan.workload import MissingFlavor, pod_sets_differ, start_infos
from core.runtime.clock import Clock
from core.runtime.controller import Controller, Done, RequeueAfter, Result, Retryable
from core.runtime.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
from core.runtime.expectations import Expectations
from core.runtime.resource import Obj
from core.runtime.store import Change, object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item, WorkQueue
from core.state.facts import condition_is_true, controller_of, find_condition
from reconciler import resources as r
from reconciler import tracing
from reconciler.apply import Writer
from reconciler.observed import Observed
from reconciler.steps import WorkloadSteps

logger = logging.getLogger(__name__)
BATCH_S = 0.3  # pods of one unit come one by one
STOP_POLL_S = 1.0
PATIENCE_S = 10.0  # before anyone is told that pods of a group are missing
MAX_RETRY_S = 30.0
WRITES_AT_ONCE = 16


class Pods:
    """Reconciles one unit at a time."""

    def __init__(self, observed: Observed, writer: Writer, clock: Clock) -> None:
        self._observed = observed
        self._writer = writer
        self._clock = clock
        self._steps = WorkloadSteps(observed, writer)
        self._pod = Pod(tuple(observed.kinds.values()))
        self._parents = {parent.kind: parent for parent in POD_SETS}
        self._created = Expectations()  # workloads made and not seen yet
        self._written = Expectations()  # pods started or deleted and not seen so yet
        self._waiting_since: dict[str, float] = {}
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)
        self._queue = WorkQueue(clock, max_delay_s=MAX_RETRY_S)
        self.controller = Controller("pods", self._reconcile, self._queue, workers=8, clock=clock)
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
            if change.new is None or not has_admission_gate(change.new):
                self._written.observe(unit, change.obj["metadata"]["uid"])
            self._queue.add_after(unit, BATCH_S, "pod changed")

    def _on_owner(self, pod: Obj) -> None:
        unit = unit_of_pod(pod)
        if unit is not None and unit.source in PARENTS:
            self._queue.add_after(unit, BATCH_S, "its pods are known")

    def _on_workload(self, change: Change) -> None:
        unit = unit_of_workload(change.obj)
        if unit is not None:
            self._created.forget(unit)
            self._queue.add(unit, "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_parent(self, kind: str, change: Change) -> None:
        """Its workloads are looked at when what it asks for changes, not with every change of its status."""
        if change.old is not None and change.new is not None and _asked(change.old) == _asked(change.new):
            return
        for unit in self._units_of(self._parents[kind], change.obj):
            self._queue.add(unit, "parent changed", INITIAL_PRIORITY if change.initial else 0)

    def _units_of(self, parent: PodParent, obj: Obj) -> set[Unit]:
        metadata = obj["metadata"]
        units = {
            unit
            for workload in self._observed.workloads.store.by_index("owner", metadata["uid"])
            if (unit := unit_of_workload(workload)) is not None
        }
        if "spec" not in obj:
            return units
        if parent.several:
            return units | {Unit(parent.kind, metadata["namespace"], metadata["name"], i) for i in range(parent.workloads(obj))}
        return units | {Unit(parent.kind, metadata["namespace"], metadata["name"])}

    # --- one unit -----------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        unit = cast("Unit", item.key)
        now = self._clock.monotonic()
        if not self._written.satisfied(unit, now):
            return RequeueAfter(max(STOP_POLL_S, self._written.retry_in(unit, now) or STOP_POLL_S))
        pods = self._observed.pods.store.by_index("unit", str(unit))
        if unit.source == UNKNOWN:
            await self._release(unit, to_release(pods, finished=False, remembers=False))
            return Done()
        source = self._source(unit, pods)
        workload = self._find_workload(unit, source)
        leaves = workload is not None and workload["metadata"].get("deletionTimestamp")
        finished = workload is not None and condition_is_true(workload, FINISHED)
        if source is None:
            self._waiting_since.pop(str(unit), None)
        lives = workload is not None and not leaves and not all(is_going(pod) for pod in pods)
        await self._release(unit, to_release(pods, finished=finished, remembers=unit.source == GROUP and lives))
        if workload is not None and leaves:
            return await self._let_go(unit, workload, pods)
        if source is None:
            return await self._without_source(unit, workload, pods)
        if unit.source in PARENTS:
            # What runs holds a place, whoever made it.
            pods = [pod for pod in pods if not has_admission_gate(pod) or self._observed.is_of(source, pod)]
        if workload is not None and finished:
            await self._steps.drop_finalizer(workload)
            return await self._after_the_end(unit, workload, pods)
        if workload is None:
            return await self._without_workload(unit, source, pods)
        return await self._with_workload(unit, source, workload, pods)

    def _source(self, unit: Unit, pods: list[Obj]) -> Obj | None:
        """What the workload is made of: its parent, else one of the pods; None where it is gone."""
        if unit.source in PARENTS:
            obj = self._observed.parents[unit.source].store.get(f"{unit.namespace}/{unit.name}")
            return obj if obj is not None and "spec" in obj else None
        return pods[0] if pods else None

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
        if not condition_is_true(workload, FINISHED) and still_running(pods):
            await self._delete(plan_stop(pods, "Workload is deleted"))
            return RequeueAfter(STOP_POLL_S)
        await self._steps.drop_finalizer(workload)
        return Done()

    async def _after_the_end(self, unit: Unit, workload: Obj, pods: list[Obj]) -> Result:
        """A group that is over may be made anew under its name once its ended pods are gone."""
        late = [pod for pod in pods if has_admission_gate(pod) and not is_going(pod)]
        if unit.source == GROUP and late:
            if len(late) == len(pods):
                await self._writer.delete_workload(workload)
            else:
                message = f"group {unit.name} has finished; delete its pods to use its name again"
                await self._tell(unit, late[0], EVENT_WORKLOAD_REFUSED, message, warning=True)
        return Done()

    async def _without_source(self, unit: Unit, workload: Obj | None, pods: list[Obj]) -> Result:
        await self._release(unit, to_release(pods, finished=True, remembers=False))
        if workload is not None:
            await self._writer.delete_workload(workload)
        return Done()

    # --- the workload ---------------------------------------------------------------------------------

    async def _without_workload(self, unit: Unit, source: Obj, pods: list[Obj]) -> Result:
        if unit.source in PARENTS and is_going(source):
            return Done()  # the garbage collector takes its pods, or has been told to leave them alone
        await self._delete(plan_stop(pods, "Not admitted, but past its admission gate"))
        wanted = await self._wanted(unit, source, pods)
        if wanted is None or (unit.source == ALONE and (is_terminal(source) or is_going(source))):
            return self._look_again(unit)
        now = self._clock.monotonic()
        if not self._created.satisfied(unit, now):
            return RequeueAfter(max(STOP_POLL_S, self._created.retry_in(unit, now) or 0.0))
        priority, priority_class = self._steps.priority(wanted.labels, lambda: _class_of(wanted.pod_sets))
        workload = build_workload_of_pods(wanted, unit.namespace, priority=priority, priority_class=priority_class)
        attributes: dict[str, Any] = {tracing.JOB_NAME: unit.name, tracing.WORKLOAD: wanted.name}
        with tracing.step(tracing.CREATE, source, **attributes):
            self._created.expect(unit, [wanted.name], now)
            try:
                await self._writer.create_workload(workload)
            except AlreadyExists:
                self._created.forget(unit)
                other = self._observed.workloads.store.get(f"{unit.namespace}/{wanted.name}")
                if other is None or unit_of_workload(other) == unit:
                    return RequeueAfter(STOP_POLL_S)  # of one of this name that is still going away
                message = f"the name of group {unit.name} is that of the Workload of another; choose another name"
                await self._tell(unit, source, EVENT_WORKLOAD_REFUSED, message, warning=True)
                return RequeueAfter(MAX_RETRY_S)
            except KubeError as error:
                self._created.forget(unit)
                if isinstance(error, Invalid):
                    await self._tell(unit, source, EVENT_WORKLOAD_REFUSED, str(error), warning=True)
                raise
        logger.info("workload created", extra={"workload": wanted.name})
        await self._tell(unit, source, EVENT_CREATED_WORKLOAD, f"Created Workload: {unit.namespace}/{wanted.name}")
        return Done()

    async def _wanted(self, unit: Unit, source: Obj, pods: list[Obj]) -> Wanted | None:
        """The workload that the unit asks for, None where it cannot have one (yet)."""
        if unit.source in PARENTS:
            return wanted_of_parent(self._parents[unit.source], source, unit)
        if unit.source == ALONE:
            try:
                return wanted_alone(await self._writer.read_pod(unit.namespace, unit.name), self._pod)
            except NotFound:
                return None
        if all(is_terminal(pod) or is_going(pod) for pod in pods):
            return None  # nobody waits for anything
        group = read_group(unit, pods)
        if group.problem is not None:
            await self._tell(unit, source, EVENT_WORKLOAD_REFUSED, group.problem, warning=True)
            return None
        if group.missing:
            await self._tell_missing(unit, source, group.missing)
            return None
        self._waiting_since.pop(str(unit), None)
        await self._delete_excess(unit, excess_of_group(pods, sum(group.roles.values())))
        try:
            examples = {role: await self._writer.read_pod(unit.namespace, name) for role, name in group.examples.items()}
        except NotFound as error:
            raise Retryable(f"a pod of group {unit.name} is gone") from error
        return wanted_of_group(unit, group, [pod for pod in pods if not is_going(pod)], examples)

    async def _tell_missing(self, unit: Unit, source: Obj, missing: int) -> None:
        now = self._clock.monotonic()
        since = self._waiting_since.setdefault(str(unit), now)
        if now - since >= PATIENCE_S:
            message = f"group {unit.name} waits for {missing} more pod{'s' if missing > 1 else ''}; it is queued when all are there"
            await self._tell(unit, source, EVENT_WORKLOAD_REFUSED, message, warning=True)

    def _look_again(self, unit: Unit) -> Result:
        since = self._waiting_since.get(str(unit))
        if since is None:
            return Done()
        rest = since + PATIENCE_S - self._clock.monotonic()
        return RequeueAfter(rest + 0.1) if rest > 0 else Done()

    async def _with_workload(self, unit: Unit, source: Obj, workload: Obj, pods: list[Obj]) -> Result:
        admitted = condition_is_true(workload, ADMITTED) and not condition_is_true(workload, EVICTED)
        active = workload["spec"].get("active", True) is not False
        counts = {pod_set["name"]: int(pod_set["count"]) for pod_set in workload["spec"]["podSets"]}
        finish = finish_of(unit, counts, pods)
        if finish is not None:
            reason = REASON_SUCCEEDED if finish.succeeded else REASON_FAILED
            await self._steps.finish(workload, Condition(FINISHED, True, reason, finish.message))
            await self._tell(unit, source, EVENT_FINISHED_WORKLOAD, f"Workload '{object_key(workload)}' is declared finished")
            return Done()  # its event brings us back to take the finalizers off
        if unit.source in PARENTS:
            wanted = wanted_of_parent(self._parents[unit.source], source, unit)
            if wanted is None:  # scaled away
                if not [pod for pod in pods if not is_terminal(pod)]:
                    await self._writer.delete_workload(workload)
                return Done()
        else:
            wanted = None
        if not admitted:
            return await self._while_waiting(unit, source, workload, pods, wanted)
        if not active:
            await self._steps.evict(workload, REASON_DEACTIVATED, "The workload is deactivated")
            return Done()
        if wanted is not None and asks_otherwise(wanted, workload):
            message = f"{unit} was changed while it ran: the number of its pods, or what they ask for"
            await self._steps.evict(workload, "DeactivatedDueToJobChanged", message)
            return Done()
        return await self._start(unit, source, workload, pods, counts)

    async def _while_waiting(self, unit: Unit, source: Obj, workload: Obj, pods: list[Obj], wanted: Wanted | None) -> Result:
        running = still_running(pods)
        if running:
            evicted = find_condition(workload, EVICTED) if condition_is_true(workload, EVICTED) else None
            reason = (evicted or {}).get("message") or "Not admitted, but past its admission gate"
            await self._delete(plan_stop(pods, reason))
            return RequeueAfter(STOP_POLL_S)
        if await self._steps.give_back(workload):
            return Done()
        requests: Mapping[str, Obj | None] = {}
        if unit.source == ALONE and has_admission_gate(source):
            requests = {MAIN_POD_SET: pod_topology_request(source)}
        if unit.source == GROUP:
            group = read_group(unit, pods)
            if group.problem is not None:
                await self._tell(unit, source, EVENT_WORKLOAD_REFUSED, group.problem, warning=True)
                return Done()
            await self._delete_excess(unit, excess_of_group(pods, sum(int(pod_set["count"]) for pod_set in workload["spec"]["podSets"])))
            if not group.missing and group.roles != {p["name"]: p["count"] for p in workload["spec"]["podSets"]}:
                await self._writer.delete_workload(workload)  # its pods are others by now
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
            if (find_condition(workload, QUOTA_RESERVED) or {}).get("reason") == REASON_MISCONFIGURED:
                changes["active"] = True  # what was wrong with it has been changed
        if not changes:
            return Done()
        await self._writer.patch_workload(workload, {"spec": changes})
        if pod_sets is not None:
            await self._tell(unit, source, EVENT_UPDATED_WORKLOAD, f"Updated Workload: {', '.join(sorted(changes))}")
        return Done()

    # --- pods -----------------------------------------------------------------------------------------

    async def _start(self, unit: Unit, source: Obj, workload: Obj, pods: list[Obj], counts: Mapping[str, int]) -> Result:
        facts = self._observed.state.workloads.facts.get(object_key(workload))
        if facts is None or facts.admission is None:
            return Done()
        plan = plan_start(counts, [(pod, self._role_of(unit, source, pod)) for pod in pods], deletes_excess=unit.source == GROUP)
        for problem in plan.problems:
            await self._tell(unit, source, EVENT_WORKLOAD_REFUSED, problem, warning=True)
        await self._delete(plan.delete)
        await self._delete_excess(unit, plan.excess)
        admitted = {pod_set.name: pod_set.requests for pod_set in facts.pod_sets}
        start = []
        for pod, role in plan.start:
            if _exceeds(pod_requests(pod["spec"]), admitted[role]):
                message = f"pod asks for more than the pods that were admitted as {role}; delete it"
                await self._writer.event(r.PODS, pod, EVENT_WORKLOAD_REFUSED, message, warning=True)
            else:
                start.append((pod, role))
        if not start:
            return Done()
        try:
            queue = workload["spec"].get("queueName") or ""
            infos = {info.name: info for info in start_infos(workload, facts.admission, self._observed.state.flavors, queue)}
        except MissingFlavor as error:
            raise Retryable(str(error)) from error
        attributes = {tracing.JOB_NAME: unit.name, tracing.WORKLOAD: workload["metadata"]["name"]}
        self._written.expect(unit, [pod["metadata"]["uid"] for pod, _ in start], self._clock.monotonic())
        with tracing.step(tracing.START, workload, **attributes):
            results = await asyncio.gather(*(self._start_pod(unit, pod, infos[role]) for pod, role in start))
        logger.info("pods started", extra={"workload": object_key(workload), "count": len(start)})
        failed = [error for error in results if error is not None]
        if failed:
            raise failed[0]
        await self._tell(unit, source, EVENT_STARTED, f"Admitted by clusterQueue {facts.admission.cluster_queue}")
        return Done()

    def _role_of(self, unit: Unit, source: Obj, pod: Obj) -> str:
        if unit.source in PARENTS:
            return self._parents[unit.source].role_of(source, pod)
        return role_of_pod(pod) if unit.source == GROUP else MAIN_POD_SET

    async def _start_pod(self, unit: Unit, pod: Obj, start: PodSetStart) -> KubeError | None:
        try:
            async with self._writes:
                await self._writer.start_pod(pod, start)
        except (NotFound, Conflict):
            self._written.observe(unit, pod["metadata"]["uid"])
        except KubeError as error:
            self._written.observe(unit, pod["metadata"]["uid"])
            return error
        return None

    async def _delete(self, pods: Sequence[tuple[Obj, str]], event: str = EVENT_STOPPED) -> None:
        """Deletes them all, then tells of each why."""
        results = await asyncio.gather(*(self._remove(pod) for pod, _ in pods))
        for (pod, reason), error in zip(pods, results, strict=True):
            if error is None:
                await self._writer.event(r.PODS, pod, event, reason)
        failed = [error for error in results if error is not None]
        if failed:
            raise failed[0]

    async def _remove(self, pod: Obj) -> KubeError | None:
        try:
            async with self._writes:
                await self._writer.remove_pod(pod)
        except (NotFound, Conflict):
            return None
        except KubeError as error:
            return error
        return None

    async def _delete_excess(self, unit: Unit, pods: Sequence[Obj]) -> None:
        message = f"Group {unit.name} has all of its pods without this one"
        await self._delete([(pod, message) for pod in pods], EVENT_EXCESS_POD_DELETED)

    async def _release(self, unit: Unit, pods: tuple[Obj, ...]) -> None:
        results = await asyncio.gather(*(self._drop_finalizer(pod) for pod in pods))
        failed = [error for error in results if error is not None]
        if failed:
            raise failed[0]

    async def _drop_finalizer(self, pod: Obj) -> KubeError | None:
        try:
            async with self._writes:
                await self._writer.release_pod(pod)
        except (NotFound, Conflict):
            return None  # gone, or another of its name: its event is on the way
        except KubeError as error:
            return error
        return None

    async def _tell(self, unit: Unit, source: Obj, reason: str, message: str, *, warning: bool = False) -> None:
        resource = r.resource_of(self._parents[unit.source]) if unit.source in PARENTS else r.PODS
        await self._writer.event(resource, source, reason, message, warning=warning)


def _asked(obj: Obj) -> tuple[Any, ...]:
    metadata = obj["metadata"]
    return metadata["uid"], metadata.get("generation"), metadata.get("labels"), bool(metadata.get("deletionTimestamp"))


def _class_of(pod_sets: tuple[PodSetTemplate, ...]) -> str | None:
    names = ((pod_set.template.get("spec") or {}).get("priorityClassName") for pod_set in pod_sets)
    return next((name for name in names if name), None)


def _exceeds(asked: Mapping[str, int], admitted: Mapping[str, int]) -> bool:
    return any(amount > admitted.get(name, 0) for name, amount in asked.items())
