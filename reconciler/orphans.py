"""Workloads whose job is gone: they hold quota and nodes as long as a pod that names them lives, and no longer.

A job that is deleted leaves its pods behind until they have ended; one deleted with `--cascade=orphan` for as long as they
run, and its workload with nobody who owns it. Level-triggered, whatever kind the job was of:

    workload                         pods that name it   step
    any                              some live           wait: what they use is not free
    orphaned, and may not run        some run            delete them; those that wait behind their gates never start
    admitted, or waiting             none                finished, once the watch of its job's kind is known to have seen as
                                                         much as the one of Workloads; quota and domains are given back
    deleted                          none                let it go
    deleted, never had an owner      some wait gated     let it go: they never start
    orphaned, finished               any                 delete it: no garbage collector takes it
"""

import logging

from core.names import FINISHED, REASON_OWNER_NOT_FOUND
from core.plan import writes as w
from core.plan.conditions import Condition
from core.plan.pod_units import is_unowned
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import Conflict, NotFound
from core.runtime.store import Change, object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import condition_is_true, controller_of, family_of
from core.state.owners import is_orphaned
from reconciler.controllers import build_controller
from reconciler.execute import Executor
from reconciler.indexes import find_owned, workloads_of_pod
from reconciler.observed import Observed
from reconciler.steps import WorkloadSteps, may_run
from reconciler.watch_progress import WatchProgress

logger = logging.getLogger(__name__)
STOP_POLL_S = 1.0


class Orphans:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self._steps = WorkloadSteps(observed, executor)
        self._progress = {informer.resource: WatchProgress(informer.watcher) for informer in observed.owning}
        self.controller = build_controller("orphans", self._reconcile, clock, workers=2)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.pods.add_handler(self._on_pod)
        for informer in observed.owning:
            informer.add_handler(self._on_owner)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            self._add_family(family_of(change.obj), "another of its job is gone")
        else:
            self._queue.add(object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_pod(self, change: Change) -> None:
        if change.new is not None and (change.new.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            return
        for family in workloads_of_pod(change.obj):
            self._add_family(family, "pod is over")

    def _add_family(self, family: str, why: str) -> None:
        """Of an elastic job also the workload by which it grows: what waits with it for the last pod is woken by nothing else."""
        for workload in self._observed.workloads.store.by_index("family", family):
            self._queue.add(object_key(workload), why)

    def _on_owner(self, change: Change) -> None:
        if change.new is None:
            for workload in find_owned(self._observed.workloads.store, change.obj):
                self._queue.add(object_key(workload), "job is gone")

    def _may_have_unseen_owner(self, workload: Obj) -> bool:
        """Returns whether the owner of a workload may exist without having been observed.

        The watch of its kind may be behind the one of Workloads, as that of a process which has just begun to lead. Within seconds it is
        known: look again then.
        """
        owner = controller_of(workload)
        informer = self._observed.find_owning(owner) if owner is not None else None
        if informer is None or informer.resource not in self._progress:
            return False
        metadata = workload["metadata"]
        return not self._progress[informer.resource].has_passed(metadata["uid"], metadata["resourceVersion"])

    async def _reconcile(self, item: Item) -> Result:
        key = str(item.key)
        workload = self._observed.workloads.store.get(key)
        if workload is None:
            return Done()
        there, leaves = self._observed.owner_exists(workload), bool(workload["metadata"].get("deletionTimestamp"))
        if there or (there is None and not leaves):
            return Done()
        finished, orphaned = condition_is_true(workload, FINISHED), is_orphaned(workload)
        pods = [] if finished else self._observed.live_pods(family_of(workload))
        if orphaned and not may_run(workload):
            # The garbage collector leaves them alone. What is made anew is gated, and holds nothing that is given back.
            pods = [pod for pod in pods if not pod.gated]
            await self._steps.end_pods(workload, pods, "Workload is deleted or deactivated, and its job is gone")
        if is_unowned(workload):
            pods = [pod for pod in pods if not pod.gated]
        if pods:
            return RequeueAfter(STOP_POLL_S) if orphaned and not may_run(workload) else Done()
        if not finished and self._steps.may_have_unseen_pods(workload, self._find_version()):
            return RequeueAfter(STOP_POLL_S)
        if not finished and not leaves and self._may_have_unseen_owner(workload):
            return RequeueAfter(STOP_POLL_S)
        if not finished and not leaves:
            gone = Condition(FINISHED, True, REASON_OWNER_NOT_FOUND, "what it was made for does not exist any more, nor does a pod of it")
            workload = await self._steps.finish(workload, gone)
            logger.info("workload of what is gone is finished", extra={"workload": key})
        await self._steps.drop_finalizer(workload)
        if orphaned and not leaves:
            try:
                await self._executor.do(w.delete_workload(workload))
            except (NotFound, Conflict):
                return Done()  # gone, or another one of its name
        return Done()

    def _find_version(self) -> str:
        """Up to which resource version any job or Workload has been observed: the deletion of an owner among them."""
        versions = (informer.watcher.version for informer in (*self._observed.owning, self._observed.workloads))
        return max((version for version in versions if version.isdecimal()), key=int, default="")
