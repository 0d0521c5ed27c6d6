"""Deactivated and reactivated workloads, and those that have run for as long as they may.

Level-triggered, a workload at a time: what is to be done is told from its own statuses alone (`core.plan.activity`), which
keep the times, so that a restart or another leader changes none of them. Jobs are stopped by who knows their kind.
"""

from core.names import REASON_DEACTIVATED_BY_TIME, REASON_MAX_EXEC_TIME
from core.plan.actions import Evict
from core.plan.activity import plan_activity
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.resource import Obj
from core.runtime.store import Change, object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from reconciler import resources as r
from reconciler.apply import Writer
from reconciler.controllers import build_controller
from reconciler.observed import Observed
from reconciler.steps import WorkloadSteps


class Activity:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(self, observed: Observed, writer: Writer, clock: Clock) -> None:
        self._observed = observed
        self._writer = writer
        self._clock = clock
        self._steps = WorkloadSteps(observed, writer)
        self.controller = build_controller("activity", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)

    def _on_workload(self, change: Change) -> None:
        if change.new is not None:
            self._queue.add(object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    async def _reconcile(self, item: Item) -> Result:
        workload = self._observed.workloads.store.get(str(item.key))
        if workload is None:
            return Done()
        action = plan_activity(workload, self._clock.now())
        if isinstance(action, Evict) and self._has_ended(workload):
            return Done()  # it made it in time; whoever watches the job says so
        result = await self._steps.take(workload, action)
        if isinstance(action, Evict) and action.reason == REASON_DEACTIVATED_BY_TIME:
            await self._writer.event(r.WORKLOADS, workload, REASON_MAX_EXEC_TIME, action.message, warning=True)
        return result

    def _has_ended(self, workload: Obj) -> bool:
        """Whether the job is over, though its workload does not say so yet."""
        found = self._observed.job_of(workload)
        return found is not None and found[0].finished(found[1]) is not None
