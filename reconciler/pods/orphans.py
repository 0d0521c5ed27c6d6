"""Workloads of jobs that are gone: reconciled one at a time, whenever one of them has changed. `core.plan.pods.orphans`
plans what is to be done."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from core.plan.pods.orphans import OrphanFacts, plan_orphan
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import find_controller, find_family
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.jobs.read_jobs import may_have_unseen_pods
from reconciler.observe.indexes import find_owned, list_workloads_of_pod
from reconciler.observe.observed import Observed
from reconciler.observe.watch_progress import WatchProgress


class Orphans:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self._progress = {informer.resource: WatchProgress(informer.watcher) for informer in observed.owning}
        self.controller = build_controller("orphans", self._reconcile, clock, workers=2)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.pods.add_handler(self._on_pod)
        for informer in observed.owning:
            informer.add_handler(self._on_owner)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            self._add_family(find_family(change.obj), "another of its job is gone")
        else:
            self._queue.add(build_object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_pod(self, change: Change) -> None:
        if change.new is not None and (change.new.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            return
        for family in list_workloads_of_pod(change.obj):
            self._add_family(family, "pod is over")

    def _add_family(self, family: str, why: str) -> None:
        """Of an elastic job also the workload by which it grows: what waits with it for the last pod is woken by nothing else."""
        for workload in self._observed.workloads.store.list_by_index("family", family):
            self._queue.add(build_object_key(workload), why)

    def _on_owner(self, change: Change) -> None:
        if change.new is None:
            for workload in find_owned(self._observed.workloads.store, change.obj):
                self._queue.add(build_object_key(workload), "job is gone")

    async def _reconcile(self, item: Item) -> Result:
        workload = self._observed.workloads.store.get(str(item.key))
        if workload is None:
            return Done()
        return await self._executor.execute(plan_orphan(self._read(workload)))

    def _read(self, workload: Obj) -> OrphanFacts:
        has_owner = self._observed.has_owner(workload)
        pods = self._observed.list_live_pods(find_family(workload)) if not has_owner else ()
        return _OrphanFacts(self._observed, self._progress, workload, self._executor.format_now(), has_owner, pods)


class _OrphanFacts(OrphanFacts):
    """Finds what may be unseen when it is first asked for."""

    _observed: Observed
    _progress: Mapping[Resource, WatchProgress]

    def __init__(self, observed: Observed, progress: Mapping[Resource, WatchProgress], workload: Obj, now: str, *seen: Any) -> None:
        vars(self).update(zip(("has_owner", "pods"), seen, strict=True), workload=workload, now=now, _observed=observed, _progress=progress)

    @cached_property
    def may_have_unseen_pods(self) -> bool:
        # Up to which resource version any job or Workload has been observed: the deletion of an owner among them.
        versions = (informer.watcher.version for informer in (*self._observed.owning, self._observed.workloads))
        version = max((version for version in versions if version.isdecimal()), key=int, default="")
        return may_have_unseen_pods(self._observed, self.workload, version)

    @cached_property
    def may_have_unseen_owner(self) -> bool:
        """The watch of its kind may be behind the one of Workloads, as that of a process which has just begun to lead. Within seconds it is
        known: look again then."""
        owner = find_controller(self.workload)
        informer = self._observed.find_owning(owner) if owner is not None else None
        if informer is None or informer.resource not in self._progress:
            return False
        metadata = self.workload["metadata"]
        return not self._progress[informer.resource].has_passed(metadata["uid"], metadata["resourceVersion"])
