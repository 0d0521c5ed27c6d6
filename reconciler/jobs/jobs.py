"""Jobs and their Workloads: reconciled one at a time, whenever one of them has changed. `core.plan.jobs.jobs` plans
what is to be done."""

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from core.jobs.contract import JobKind, Reference, Referring, ResizedByPart
from core.jobs.prebuilt_label import find_prebuilt_name
from core.names import EVENT_WORKLOAD_REFUSED
from core.plan.jobs.job_facts import JobFacts
from core.plan.jobs.jobs import PODS_LEFT, START, SUSPEND, UPDATE, plan_job, plan_refused_start, plan_refused_update
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.steps import Event, Plan, make_plan, report
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result, Retryable, Terminal
from core.runtime.http.errors import BadRequest, Forbidden, Invalid, truncate
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import find_controller, find_family
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.jobs.read_jobs import read_job
from reconciler.jobs.refused_starts import MAX_REASON, RefusedStarts
from reconciler.jobs.suspensions import Suspensions
from reconciler.observe.indexes import is_unmarked, list_workloads_of_pod
from reconciler.observe.observed import Observed


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
        self._is_elastic_on, self._is_elastic_with_topology = is_elastic, with_topology
        self._suspensions = Suspensions(clock)
        self._refused_starts = RefusedStarts(clock)
        self._left: dict[str, tuple[str, str]] = {}  # by family of workloads: finished jobs with pods that run on
        self.controller = build_controller("jobs", self._reconcile, clock, workers=8)
        self._queue = self.controller.queue
        for key, informer in observed.jobs.items():
            informer.add_handler(partial(self._on_job, key))
            kind = observed.kinds[key]
            informer.store.add_index("prebuilt", _find_prebuilt)
            if isinstance(kind, Referring):
                informer.store.add_index("reference", partial(_list_references, kind))
        observed.workloads.add_handler(self._on_workload)
        observed.related.on_change(self._on_related)
        observed.pods.add_handler(self._on_pod)

    def _on_job(self, kind_key: str, change: Change) -> None:
        self._queue.add((kind_key, build_object_key(change.obj)), "job changed", INITIAL_PRIORITY if change.initial else 0)
        owner = find_controller(change.obj)
        above = self._observed.kinds.get(r.build_owner_key(owner)) if owner is not None else None
        if owner is not None and isinstance(above, Referring | ResizedByPart):
            self._queue.add((r.build_key(above), f"{change.obj['metadata']['namespace']}/{owner['name']}"), "a part changed")

    def _on_pod(self, change: Change) -> None:
        """Queues the jobs with pods that need an action; the status of other jobs describes their pods."""
        for left in (self._left[family] for family in list_workloads_of_pod(change.obj) if family in self._left):
            self._queue.add(left, "pod of a finished job changed")
        key = self._observed.find_job_of_pod(change.new) if change.new is not None and is_unmarked(change.new) else None
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
            for job in self._observed.jobs[kind_key].store.list_by_index("reference", f"{of.namespace}/{of.changed}"):
                self._queue.add((kind_key, build_object_key(job)), f"{of.changed} changed")
                added += 1
                if added % pacing.REFERRING_AT_ONCE == 0:
                    await self._clock.sleep(0)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            self._left.pop(find_family(change.obj), None)
        for kind_key, informer in self._observed.jobs.items():
            for job in informer.store.list_by_index("prebuilt", build_object_key(change.obj)):
                self._queue.add((kind_key, build_object_key(job)), "workload changed", INITIAL_PRIORITY if change.initial else 0)
        owner = find_controller(change.obj)
        if owner is None or r.build_owner_key(owner) not in self._observed.kinds:
            return  # owned by pods, or without an owner
        namespace = change.obj["metadata"]["namespace"]
        key = r.build_owner_key(owner), f"{namespace}/{owner['name']}"
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
            # Users do not read the log of topogate, so the obstacle is reported on the job.
            await self._executor.execute(
                make_plan(report(Event(r.get_resource(kind), job, EVENT_WORKLOAD_REFUSED, str(error), warning=True)))
            )
            raise

    async def _reconcile_job(self, kind: JobKind, job: Obj) -> Result:
        f = self._read(kind, job)
        plan = plan_job(f)
        try:
            result = await self._executor.execute(plan)
        except (BadRequest, Forbidden, Invalid) as error:
            await self._handle_refusal(f, plan, error)
            raise
        self._record_outcome(f, plan)
        return result

    def _read(self, kind: JobKind, job: Obj) -> JobFacts:
        f = read_job(self._observed, kind, job, is_elastic_on=self._is_elastic_on, is_elastic_with_topology=self._is_elastic_with_topology)
        uid = job["metadata"]["uid"]
        return replace(
            f,
            now=self._executor.format_now(),
            suspensions=self._suspensions.count(uid),
            suspension_wait_s=self._suspensions.find_wait(uid),
            pods_left_are_reported=f.family in self._left,
        )

    def _record_outcome(self, f: JobFacts, plan: Plan) -> None:
        if SUSPEND in plan.names:
            self._suspensions.note(f.job["metadata"]["uid"])
        if START in plan.names and f.workload is not None:
            self._refused_starts.remove(f.workload)
        if PODS_LEFT in plan.names:
            self._left[f.family] = r.build_key(f.kind), f.key
        else:
            self._left.pop(f.family, None)

    async def _handle_refusal(self, f: JobFacts, plan: Plan, error: BadRequest | Forbidden | Invalid) -> None:
        """What follows where the API server, a policy or a webhook does not take what a plan has of a job. Raises Terminal where only a
        change of the job can help."""
        if f.workload is None:
            return
        if START in plan.names:
            is_lasting = self._refused_starts.has_lasted(f.workload, error)
            shown, is_invalid = truncate(str(error), MAX_REASON), isinstance(error, Invalid)
            refused = plan_refused_start(f, f.workload, str(error), is_invalid=is_invalid, deactivates=is_lasting, shown=shown)
            await self._executor.execute(refused)
        if UPDATE in plan.names and isinstance(error, Invalid):
            rules = self._observed.state.resource_rules
            await self._executor.execute(plan_refused_update(f, f.workload, str(error), rules))
            raise Terminal(str(error)) from error


def _find_prebuilt(job: Obj) -> list[str]:
    """Key of the Workload that a job names, for an index."""
    name = find_prebuilt_name(job)
    return [f"{job['metadata']['namespace']}/{name}"] if name is not None else []


def _list_references(kind: Referring, job: Obj) -> list[str]:
    """The object that a job refers to, with its namespace (None: it is in none), for an index."""
    reference = kind.find_reference(job)
    if reference is None:
        return []
    return [f"{job['metadata']['namespace'] if reference.related.namespaced else None}/{reference}"]
