"""Jobs and their Workloads: created together, started when admitted, stopped when evicted, finished together.

Level-triggered: each run looks at job and workload as they are and takes one step towards where they
should be. The steps, by what is observed:

    job                     workload                 step
    finished, pods left     not finished             wait for them; end them where it is evicted, deactivated or deleted
    finished                not finished             say so; quota and domains are given back
    being deleted           evicted or deactivated   end its pods, since its controller does not, and give back quota
    suspended               none                     create the workload
    running                 none, or not admitted    suspend: nobody slips past placement
    suspended               asks for something else  update it, or make a new one if it was admitted
    suspended               admitted                 start: templates made exact and unsuspended in one write
    stopped by us, started  admitted                 restore templates: it is started anew for this admission
    suspended by the user   admitted                 evict: capacity goes back, the job stays stopped
    suspended by the user   evicted, not stopped yet evict for that, too: it is not to be started again
    running, pods older     admitted                 evict: they would wait for ever, and are made again
    running                 evicted or deactivated   stop; once no pod is left, restore templates, give back quota
"""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from core import trace_names as t
from core.jobs.contract import JobKind, Reference, Referring, ResizedByPart
from core.jobs.execution_time import execution_time
from core.jobs.prebuilt import prebuilt_name
from core.names import (
    ADMITTED,
    EVENT_CREATED_WORKLOAD,
    EVENT_DELETED_WORKLOAD,
    EVENT_FINISHED_WORKLOAD,
    EVENT_PODS_LEFT,
    EVENT_STARTED,
    EVENT_STOPPED,
    EVENT_UPDATED_WORKLOAD,
    EVENT_WAITING_FOR_PODS,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    FIELD_MANAGER,
    FINISHED,
    QUEUE_NAME_LABEL,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    REASON_FAILED,
    REASON_JOB_CHANGED,
    REASON_MISCONFIGURED,
    REASON_SUCCEEDED,
    REASON_SUSPENDED_BY_USER,
)
from core.plan import resources as r
from core.plan import writes as w
from core.plan.admission import waiting_status
from core.plan.conditions import Condition
from core.plan.prebuilt import find_difference, originals
from core.plan.reserved import CHANGED_WHILE_RESERVED, must_ask_anew
from core.plan.workload import (
    MissingFlavor,
    admitted_counts,
    build_workload,
    changed_annotations,
    counts_differ,
    list_restored_pod_sets,
    pod_sets_differ,
    start_infos,
    workload_name,
)
from core.runtime.client import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result, Retryable, Terminal
from core.runtime.errors import AlreadyExists, Invalid, KubeError
from core.runtime.store import Change, object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import condition_is_true, controller_of, family_of, find_condition
from reconciler import tracing
from reconciler.controllers import build_controller
from reconciler.elastic import Elastic
from reconciler.execute import Executor
from reconciler.indexes import find_owned, is_unmarked, show_as_owner, workloads_of_pod
from reconciler.job_facts import is_suspended_by_another, list_references
from reconciler.observed import Observed
from reconciler.parts import find_excess_of_parts, find_parts
from reconciler.prebuilt import Prebuilt
from reconciler.refused_starts import RefusedStarts, is_start_refused
from reconciler.slim import writers
from reconciler.steps import WorkloadSteps, may_run
from reconciler.suspensions import Suspensions

logger = logging.getLogger(__name__)
SUSPENDED_BY_USER = "The job was suspended by its user; unsuspend it to queue it again"
STOP_POLL_S = 1.0
LEFT_POLL_S = 30.0  # a safety net: events of the pods lead to the next reconcile
ADDED_AT_ONCE = 1_000  # jobs that refer to one object


@dataclass(frozen=True, slots=True)
class _JobsOf:
    """The jobs that refer to an object, in one namespace or (None) in all."""

    changed: Reference
    namespace: str | None


class Jobs:
    """Reconciles one job at a time by (kind, namespace/name); jobs that refer to an object that has changed are added in portions first."""

    def __init__(
        self, observed: Observed, executor: Executor, clock: Clock, *, is_elastic: bool = False, with_topology: bool = False
    ) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self._steps = WorkloadSteps(observed, executor)
        self._elastic = Elastic(observed, executor, self._steps, clock, is_on=is_elastic, with_topology=with_topology)
        self._prebuilt = Prebuilt(observed, executor, self._steps)
        self._suspensions = Suspensions(executor, clock)
        self._refused_starts = RefusedStarts(self._steps, executor, clock)
        self._left: dict[str, tuple[str, str]] = {}  # by family of workloads: finished jobs of which pods run on
        self.controller = build_controller("jobs", self._reconcile, clock, workers=8)
        self._queue = self.controller.queue
        for key, informer in observed.jobs.items():
            informer.add_handler(partial(self._on_job, key))
            kind = observed.kinds[key]
            if isinstance(kind, Referring):
                informer.store.add_index("reference", partial(list_references, kind))
        observed.workloads.add_handler(self._on_workload)
        observed.related.on_change(self._on_related)
        observed.pods.add_handler(self._on_pod)

    def _on_job(self, kind_key: str, change: Change) -> None:
        self._queue.add((kind_key, object_key(change.obj)), "job changed", INITIAL_PRIORITY if change.initial else 0)
        owner = controller_of(change.obj)
        above = self._observed.kinds.get(r.key_of_owner(owner)) if owner is not None else None
        if owner is not None and isinstance(above, Referring | ResizedByPart):
            self._queue.add((r.key_of(above), f"{change.obj['metadata']['namespace']}/{owner['name']}"), "a part changed")

    def _on_pod(self, change: Change) -> None:
        """Jobs of whose pods somebody must take care; others tell of their pods by their status."""
        for left in (self._left[family] for family in workloads_of_pod(change.obj) if family in self._left):
            self._queue.add(left, "pod of a finished job changed")
        key = self._observed.job_of_pod(change.new) if change.new is not None and is_unmarked(change.new) else None
        if key is not None:
            self._queue.add(key, "pod without a workload")

    def _on_related(self, changed: Reference, namespace: str | None) -> None:
        self._queue.add(_JobsOf(changed, namespace), f"{changed} changed")

    async def _add_jobs(self, of: _JobsOf) -> None:
        """Queues all jobs that refer to an object, in portions: a user chooses how many do."""
        added = 0
        for kind_key, kind in self._observed.kinds.items():
            if not isinstance(kind, Referring) or of.changed.related not in kind.related:
                continue
            for job in self._observed.jobs[kind_key].store.by_index("reference", f"{of.namespace}/{of.changed}"):
                self._queue.add((kind_key, object_key(job)), f"{of.changed} changed")
                added += 1
                if added % ADDED_AT_ONCE == 0:
                    await self._clock.sleep(0)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            self._left.pop(family_of(change.obj), None)
        for key in self._prebuilt.jobs_of(change.obj):
            self._queue.add(key, "workload changed", INITIAL_PRIORITY if change.initial else 0)
        owner = controller_of(change.obj)
        if owner is None or r.key_of_owner(owner) not in self._observed.kinds:
            return  # of pods, or of nobody
        namespace = change.obj["metadata"]["namespace"]
        key = r.key_of_owner(owner), f"{namespace}/{owner['name']}"
        self._queue.add(key, "workload changed", INITIAL_PRIORITY if change.initial else 0)

    # --- one job ------------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        if isinstance(item.key, _JobsOf):
            await self._add_jobs(item.key)
            return Done()
        kind_key, key = cast("tuple[str, str]", item.key)
        kind = self._observed.kinds[kind_key]
        job = self._observed.jobs[kind_key].store.get(key)
        if job is None:
            return Done()
        try:
            return await self._reconcile_job(kind, job)
        except (Invalid, Retryable) as error:
            # Nobody reads our log: what keeps a job from going on is told on the job.
            self._executor.reporter.event(r.resource_of(kind), job, EVENT_WORKLOAD_REFUSED, str(error), warning=True)
            raise

    async def _reconcile_job(self, kind: JobKind, job: Obj) -> Result:
        job, missing = self._observed.related.expanded(kind, job)
        job = self._elastic.read_size(kind, job)
        workload, prebuilt = self._find_workload(kind, job), prebuilt_name(job) is not None
        if workload is not None and workload["metadata"].get("deletionTimestamp"):
            return await self._let_go(kind, job, workload)
        key = show_as_owner(job)
        if QUEUE_NAME_LABEL not in (job["metadata"].get("labels") or {}) or self._observed.owners.queued_root(key) != key:
            if workload is not None:
                await self._executor.do(w.delete_workload(workload))  # the job has left its queue, or is part of another that is queued
            return Done()
        if kind.finished(job) is not None:
            return await self._finish(kind, job, workload)
        if job["metadata"].get("deletionTimestamp"):
            return await self._stop_going(kind, job, workload)
        if missing is not None and (workload is None or kind.is_suspended(job)):
            raise Retryable(missing)  # what runs goes on, and can be stopped, whatever its templates are
        if workload is None:
            return await self._without_workload(kind, job)
        if condition_is_true(workload, FINISHED) and prebuilt and kind.is_suspended(job) and not kind.is_started(job):
            await self._prebuilt.after_the_end(kind, job, workload)
            await self._steps.drop_finalizer(workload)
            return Done()
        if condition_is_true(workload, FINISHED) and prebuilt:
            return await self._stop_without_workload(kind, job)
        if condition_is_true(workload, FINISHED):
            # A job that runs again under a finished workload needs a new one.
            await self._executor.do(w.delete_workload(workload))
            return Done()
        return await self._with_workload(kind, job, workload)

    def _find_workload(self, kind: JobKind, job: Obj) -> Obj | None:
        owned = find_owned(self._observed.workloads.store, job)
        present = self._elastic.find_present(owned)
        if present is not None:
            return present
        name = prebuilt_name(job) or workload_name(kind, job)
        return next((workload for workload in owned if workload["metadata"]["name"] == name), owned[0] if owned else None)

    async def _without_workload(self, kind: JobKind, job: Obj) -> Result:
        if not kind.is_suspended(job) or kind.is_started(job):
            return await self._stop_without_workload(kind, job)
        if prebuilt_name(job) is not None:
            return await self._prebuilt.take(kind, job)
        name = workload_name(kind, job)
        priority, priority_class = self._priority(kind, job)
        with tracing.step(t.CREATE, job, tracing.made_for(kind.kind, job["metadata"]["name"]) | {t.WORKLOAD: name}):
            workload = build_workload(kind, job, priority=priority, priority_class=priority_class)
            workload = self._elastic.marks(kind, job, workload)
            try:
                await self._executor.do(w.create_workload(workload))
            except AlreadyExists:
                return RequeueAfter(STOP_POLL_S)  # ours, from before this process, or of a job of this name that is still going away
        logger.info("workload created", extra={"workload": name})
        await self._event(kind, job, EVENT_CREATED_WORKLOAD, f"Created Workload: {job['metadata']['namespace']}/{name}")
        return Done()

    async def _stop_without_workload(self, kind: JobKind, job: Obj) -> Result:
        if kind.is_suspended(job):
            return await self._restore(kind, job, None)
        return await self._suspensions.suspend(kind, job, "Suspended: it had not been admitted yet", may_wait=not kind.is_started(job))

    def _priority(self, kind: JobKind, job: Obj) -> tuple[int, dict[str, str] | None]:
        labels: dict[str, str] = job["metadata"].get("labels") or {}
        return self._steps.priority(labels, lambda: kind.priority_class(job))

    async def _with_workload(self, kind: JobKind, job: Obj, workload: Obj) -> Result:
        admitted = condition_is_true(workload, ADMITTED) and not condition_is_true(workload, EVICTED)
        active = workload["spec"].get("active", True) is not False
        if (not (admitted and active) or kind.is_suspended(job)) and await self._elastic.drop_successor(workload):
            return Done()  # its event brings us back
        if kind.is_suspended(job):
            if admitted and not active:
                reason = REASON_SUSPENDED_BY_USER if kind.is_started(job) else REASON_DEACTIVATED
                return await self._evict(workload, reason, "The workload is deactivated")
            if admitted and active:
                if kind.is_started(job):
                    if FIELD_MANAGER in writers(job):  # we have stopped it, for an admission before this one
                        return await self._restore(kind, job, workload)
                    return await self._suspended_by_user(kind, job, workload)
                if self._differs(kind, job, workload):
                    return await self._evict(workload, REASON_JOB_CHANGED, "the job's pod sets have changed")
                return await self._start(kind, job, workload)
            if active and kind.is_started(job) and condition_is_true(workload, EVICTED) and is_suspended_by_another(job):
                return await self._suspended_before_its_stop(workload)
            if kind.is_started(job) or condition_is_true(workload, EVICTED):
                return await self._after_stop(kind, job, workload)
            return await self._keep_in_step(kind, job, workload)
        if admitted and active:
            resized = await self._elastic.resize(kind, job, workload)
            if resized is not None:
                return resized
            if isinstance(kind, Referring) and (excess := find_excess_of_parts(self._observed, job, workload)):
                return await self._evict(workload, REASON_JOB_CHANGED, excess)
            if _is_resized(kind, job, workload):
                return await self._evict(workload, REASON_JOB_CHANGED, "the job's pod counts have changed while it ran")
            if unmarked := self._observed.find_unmarked_pods(job):
                await self._refused_starts.stop_unmarked(kind, job, workload, unmarked)
            return Done()
        if admitted:
            return await self._evict(workload, REASON_DEACTIVATED, "The workload is deactivated")
        if not active and _evicted_for(workload, REASON_SUSPENDED_BY_USER) and find_condition(workload, QUOTA_RESERVED):
            # The user unsuspended the job again: back into the queue, by the front door.
            await self._executor.do(w.patch_workload(workload, {"spec": {"active": True}}))
        evicted = find_condition(workload, EVICTED) if condition_is_true(workload, EVICTED) else None
        may_wait = "admission" not in (workload.get("status") or {}) and not kind.is_started(job)
        why = (evicted or {}).get("message") or "Suspended: it is not admitted"
        return await self._suspensions.suspend(kind, job, why, may_wait=may_wait)

    # --- start and stop -----------------------------------------------------------------------------

    async def _start(self, kind: JobKind, job: Obj, workload: Obj) -> Result:
        facts = self._observed.state.workloads.facts.get(object_key(workload))
        if facts is None or facts.admission is None:
            return Done()
        # Pods made while it was unsuspended by hand have no gates, or gates that would never be taken off.
        if self._has_pods(kind, job):
            await self._event(kind, job, EVENT_WAITING_FOR_PODS, "it has its place, and starts when the pods of before are gone")
            return RequeueAfter(STOP_POLL_S)
        if self._steps.may_have_run(job):
            return RequeueAfter(STOP_POLL_S)
        attributes = tracing.made_for(kind.kind, job["metadata"]["name"]) | {t.WORKLOAD: workload["metadata"]["name"]}
        with tracing.step(t.START, workload, attributes, links=[tracing.decision_of(workload)]):
            try:
                infos = start_infos(workload, facts.admission, self._observed.state.flavors, workload["spec"].get("queueName") or "")
            except MissingFlavor as error:
                raise Retryable(str(error)) from error
            try:
                job = await self._reset_status(kind, job)
                await self._executor.do(w.change_job(kind, job, kind.start(job, infos)))
            except KubeError as error:
                await self._refused_starts.report(kind, job, workload, error)
                raise
        self._refused_starts.forget(workload)
        logger.info("job started", extra={"job": object_key(job)})
        await self._event(kind, job, EVENT_STARTED, f"Admitted by clusterQueue {facts.admission.cluster_queue}")
        return Done()

    async def _suspended_by_user(self, kind: JobKind, job: Obj, workload: Obj) -> Result:
        """Suspending a running job by hand gives its capacity back; it asks again when unsuspended."""
        # As the first write left it: what was written meanwhile, a replacement of nodes for example, must not be undone.
        workload = await self._executor.do(w.deactivate(workload, REASON_SUSPENDED_BY_USER))
        return await self._evict(workload, REASON_SUSPENDED_BY_USER, SUSPENDED_BY_USER)

    async def _suspended_before_its_stop(self, workload: Obj) -> Result:
        """We were about to stop a running job, to start it anew; its user was faster, and does not want that.

        One step a run, each from what the last has left, so that a crash between them loses nothing: deactivated first, it would
        be taken for what an administrator has deactivated.
        """
        if not _evicted_for(workload, REASON_SUSPENDED_BY_USER):
            return await self._evict(workload, REASON_SUSPENDED_BY_USER, SUSPENDED_BY_USER)
        await self._executor.do(w.deactivate(workload, REASON_SUSPENDED_BY_USER))
        return Done()

    async def _evict(self, workload: Obj, reason: str, message: str) -> Result:
        await self._steps.evict(workload, reason, message)
        return Done()

    async def _after_stop(self, kind: JobKind, job: Obj, workload: Obj) -> Result:
        """The job makes no more pods: give its own templates back, then quota and domains. Both in one run, since its user may unsuspend
        it in between, and again after each of our stops: pods that are made of its own templates wait behind their gates."""
        if self._has_pods(kind, job):
            await self._end_pods_of_going_parts(job, workload)
            return RequeueAfter(STOP_POLL_S)
        if self._may_have_unseen_pods(job, workload):
            return RequeueAfter(STOP_POLL_S)
        is_started = kind.is_started(job)
        if is_started:
            await self._restore(kind, job, workload)
        if await self._steps.give_back(workload) or is_started:
            return Done()
        return await self._keep_in_step(kind, job, workload)

    async def _restore(self, kind: JobKind, job: Obj, workload: Obj | None) -> Result:
        if self._has_pods(kind, job):
            return RequeueAfter(STOP_POLL_S)
        job = await self._reset_status(kind, job)
        pod_sets = list_restored_pod_sets(kind, job, workload) if workload is not None else None
        if workload is not None and prebuilt_name(job) is not None:
            pod_sets = originals(kind, job, workload)
        await self._executor.do(w.change_job(kind, job, kind.restore(job, pod_sets)))
        return Done()

    async def _reset_status(self, kind: JobKind, job: Obj) -> Obj:
        """The stopped job as its templates may change: before Kubernetes 1.36 not those of a Job with a start time, as one has that was
        stopped, or unsuspended by its user while it waited."""
        reset = kind.status_reset(job)
        return job if reset is None else await self._executor.do(w.patch_job_status(kind, job, reset))

    def _has_pods(self, kind: JobKind, job: Obj) -> bool:
        """Whether a stopped job still has pods: by its own status, and by those that are seen."""
        live, left_alone = self._observed.count_live_pods(job)
        if live or kind.active_pods(job, left_alone) == 0:
            return live > 0
        # The status of a part that a finalizer keeps from being deleted is never written again, and the job's status counts it.
        parts = find_parts(self._observed, job)
        staying = [(of_part, part) for of_part, part in parts if not part["metadata"].get("deletionTimestamp")]
        return len(staying) == len(parts) or any(of_part.active_pods(part) > 0 for of_part, part in staying)

    def _may_have_unseen_pods(self, job: Obj, workload: Obj) -> bool:
        """Whether a job that makes no more pods may have made some that run and have not been observed yet."""
        return self._steps.may_have_unseen_pods(workload, job["metadata"]["resourceVersion"], job["metadata"].get("generation"))

    # --- keeping the workload in step -------------------------------------------------------------------

    @staticmethod
    def _differs(kind: JobKind, job: Obj, workload: Obj) -> bool:
        """Whether a stopped job asks for something else than its workload."""
        if prebuilt_name(job) is not None:
            return find_difference(kind.pod_sets(job), workload) is not None
        return pod_sets_differ(kind.pod_sets(job), workload)

    async def _keep_in_step(self, kind: JobKind, job: Obj, workload: Obj) -> Result:
        prebuilt = prebuilt_name(job)
        if prebuilt is not None and prebuilt != workload["metadata"]["name"]:
            await self._executor.do(w.delete_workload(workload))  # made for it before it named another
            return Done()
        if prebuilt is not None and not await self._prebuilt.is_in_step(kind, job, workload):
            return Done()
        changes = self._changes(kind, job, workload)
        notes = {} if prebuilt is not None else changed_annotations(job["metadata"].get("annotations") or {}, workload)
        if not changes and not notes:
            return Done()
        if must_ask_anew(workload, changes):
            return await self._evict(workload, REASON_JOB_CHANGED, CHANGED_WHILE_RESERVED)
        waits = find_condition(workload, QUOTA_RESERVED) or {}
        is_wrong = waits.get("reason") == REASON_MISCONFIGURED or is_start_refused(workload)
        if ("podSets" in changes or notes) and is_wrong:
            changes["active"] = True  # what was wrong with it has been changed
        try:
            await self._executor.do(w.patch_workload(workload, {"spec": changes, "metadata": {"annotations": notes}}))
        except Invalid as error:
            return await self._set_aside(workload, error)
        await self._event(kind, job, EVENT_UPDATED_WORKLOAD, f"Updated Workload: {', '.join(sorted((*changes, *notes)))}")
        return Done()

    def _changes(self, kind: JobKind, job: Obj, workload: Obj) -> dict[str, Any]:
        """What of a waiting workload's spec is to be as its job says; of a prebuilt one only the queue."""
        changes: dict[str, Any] = {}
        queue = job["metadata"]["labels"][QUEUE_NAME_LABEL]
        if workload["spec"].get("queueName") != queue:
            changes["queueName"] = queue
        if prebuilt_name(job) is not None:
            return changes
        if pod_sets_differ(kind.pod_sets(job), workload):
            changes["podSets"] = [pod_set.to_wire() for pod_set in kind.pod_sets(job)]
        changes |= self._steps.find_changed_priority(workload, job["metadata"]["labels"], lambda: kind.priority_class(job))
        seconds = execution_time(job["metadata"]["labels"])
        if workload["spec"].get("maximumExecutionTimeSeconds") != seconds:
            changes["maximumExecutionTimeSeconds"] = seconds
        return changes

    async def _set_aside(self, workload: Obj, error: Invalid) -> Result:
        """Deactivates the Workload of a job that breaks a rule until the job changes (rule h of docs/decisions/0004)."""
        if workload["spec"].get("active", True) is not False:
            workload = await self._executor.do(w.deactivate(workload, REASON_MISCONFIGURED))
        facts = self._observed.state.workloads.facts.get(object_key(workload))
        if facts is not None:
            message = f"the job's pod sets are refused: {error}"
            status = waiting_status(
                workload, facts, REASON_MISCONFIGURED, message, self._executor.now(), self._observed.state.resource_rules
            )
            await self._executor.do(w.apply_admission(workload, status))
        raise Terminal(str(error)) from error

    # --- the end ------------------------------------------------------------------------------------

    async def _finish(self, kind: JobKind, job: Obj, workload: Obj | None) -> Result:
        finish = kind.finished(job)
        if workload is None or finish is None:
            return Done()
        if not condition_is_true(workload, FINISHED):
            if await self._has_pods_left(kind, job, workload):
                return RequeueAfter(LEFT_POLL_S if family_of(workload) in self._left else STOP_POLL_S)
            reason = REASON_SUCCEEDED if finish.succeeded else REASON_FAILED
            workload = await self._steps.finish(workload, Condition(FINISHED, True, reason, finish.message))
            name = object_key(workload)
            logger.info("workload finished", extra={"workload": name, "reason": reason})
            await self._event(kind, job, EVENT_FINISHED_WORKLOAD, f"Workload '{name}' is declared finished")
        await self._steps.drop_finalizer(workload)
        for other in find_owned(self._observed.workloads.store, job):
            # Of an elastic job: a process that ended between the two writes left it.
            if condition_is_true(other, FINISHED) and other["metadata"]["uid"] != workload["metadata"]["uid"]:
                await self._steps.drop_finalizer(other)
        return Done()

    async def _has_pods_left(self, kind: JobKind, job: Obj, workload: Obj) -> bool:
        """Whether a finished job has pods that run on, as with `cleanPodPolicy: None`: what they use is not given to others."""
        family = family_of(workload)
        running = self._observed.find_running_pods(job)
        pods = [pod for pod in running if not (pod.terminating and self._observed.is_lost_node(pod.node))]
        if not pods:
            self._left.pop(family, None)
            return self._may_have_unseen_pods(job, workload)
        if not may_run(workload):
            await self._steps.end_pods(workload, pods, "Workload is deactivated or deleted, and its job has finished")
        elif family not in self._left:
            message = (
                f"it has finished, and {len(pods)} of its pods still run: its quota and its nodes are free once they have ended. "
                "If its controller leaves them (runPolicy.cleanPodPolicy: None), delete them or the job"
            )
            await self._event(kind, job, EVENT_PODS_LEFT, message)
        self._left[family] = r.key_of(kind), object_key(job)
        return True

    async def _stop_going(self, kind: JobKind, job: Obj, workload: Obj | None) -> Result:
        """The job is being deleted, and a finalizer of others keeps it. It never starts again, so its workload is not queued again."""
        if workload is None or may_run(workload):
            return Done()
        if await self._is_held_by_pods(job, workload) or self._may_have_unseen_pods(job, workload):
            return RequeueAfter(STOP_POLL_S)
        await self._steps.hold(workload, f"its {kind.kind} is being deleted")
        return Done()

    async def _is_held_by_pods(self, job: Obj, workload: Obj) -> bool:
        """Whether a job that is being deleted has pods. Its controller neither makes nor ends them any more, suspended or not: where its
        workload may not run they are ended here."""
        is_held = not may_run(workload) and await self._stop_parts(job)
        pods = self._observed.find_running_pods(job)
        if not may_run(workload):
            await self._steps.end_pods(workload, pods, "Workload is deactivated or deleted, and its job is being deleted")
        return is_held or bool(pods)

    async def _stop_parts(self, job: Obj) -> bool:
        """Suspends the objects below a job that is being deleted, such as the Jobs of a JobSet: its controller does not stop them any more,
        and they make pods as long as they exist. Returns whether one of them may still have pods."""
        is_held = False
        for kind, part in find_parts(self._observed, job):
            if kind.finished(part) is not None or part["metadata"].get("deletionTimestamp"):
                continue
            if not kind.is_suspended(part):
                await self._executor.do(w.change_job(kind, part, kind.suspend(part)))
                is_held = True
            elif self._has_pods(kind, part):
                is_held = True
        return is_held

    async def _end_pods_of_going_parts(self, job: Obj, workload: Obj) -> None:
        """Deletes the pods of objects below a stopped job that are being deleted and kept by a finalizer: their controllers do not."""
        for _, part in find_parts(self._observed, job):
            if part["metadata"].get("deletionTimestamp"):
                pods = self._observed.find_live_pods(part)
                await self._steps.end_pods(workload, pods, "Workload is deactivated or deleted, and what made the pod is being deleted")

    async def _let_go(self, kind: JobKind, job: Obj, workload: Obj) -> Result:
        """The workload was deleted: its job is stopped first, then it may go."""
        if kind.finished(job) is None and job["metadata"].get("deletionTimestamp") and await self._is_held_by_pods(job, workload):
            return RequeueAfter(STOP_POLL_S)
        if kind.finished(job) is None and not job["metadata"].get("deletionTimestamp"):
            if not kind.is_suspended(job):
                await self._executor.do(w.change_job(kind, job, kind.suspend(job)))
                await self._event(kind, job, EVENT_STOPPED, "Workload is deleted")
                return Done()
            if self._has_pods(kind, job):
                return RequeueAfter(STOP_POLL_S)
            if kind.is_started(job):
                return await self._restore(kind, job, workload)
            if QUEUE_NAME_LABEL not in (job["metadata"].get("labels") or {}) and kind.has_gate(job):
                await self._executor.do(w.change_job(kind, job, kind.ungate(job)))  # nobody would take it off its pods
        elif not condition_is_true(workload, FINISHED) and await self._has_pods_left(kind, job, workload):
            return RequeueAfter(STOP_POLL_S)
        if not condition_is_true(workload, FINISHED) and self._may_have_unseen_pods(job, workload):
            return RequeueAfter(STOP_POLL_S)
        await self._steps.drop_finalizer(workload)
        await self._event(kind, job, EVENT_DELETED_WORKLOAD, f"Deleted Workload: {object_key(workload)}")
        return Done()

    async def _event(self, kind: JobKind, job: Obj, reason: str, message: str) -> None:
        self._executor.reporter.event(r.resource_of(kind), job, reason, message)


def _is_resized(kind: JobKind, job: Obj, workload: Obj) -> bool:
    """Whether a running job asks for another number of pods than it was admitted with. What it only refers to may be edited
    for jobs to come, and its controller does not follow that while the job runs."""
    if not isinstance(kind, Referring):
        return counts_differ(kind.pod_sets(job), workload)
    admitted = admitted_counts(workload)
    return any(admitted.get(name, count) != count for name, count in kind.own_counts(job).items())


def _evicted_for(workload: Obj, reason: str) -> bool:
    return (find_condition(workload, EVICTED) or {}).get("reason") == reason
