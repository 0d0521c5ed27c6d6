"""Deactivated and reactivated workloads, and those that have run for as long as they may.

Level-triggered, a workload at a time: what is to be done follows from its own statuses alone (`core.plan.workloads.activity`), which keep
the times, so that a restart or another leader changes none of them. Jobs are stopped by the controller of their kind.
"""

from core.names import QUOTA_RESERVED
from core.plan.steps import pacing
from core.plan.workloads.activity import plan_active_workload
from core.queueing.cycle.rules import can_be_activated
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import find_condition
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.observe.observed import Observed


class Activity:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self.controller = build_controller("activity", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        self._seen_changes = observed.state.config_changes
        observed.workloads.add_handler(self._on_workload)
        for informer in (observed.topologies, observed.flavors, observed.cluster_queues, observed.local_queues):
            informer.add_handler(self._on_configuration)

    def _on_configuration(self, change: Change) -> None:
        """A topology that has a level more may serve workloads that were deactivated for want of it."""
        state = self._observed.state
        if change.initial or state.config_changes == self._seen_changes:  # most changes are of statuses
            return
        self._seen_changes = state.config_changes
        for key, facts in state.workloads.facts.items():
            if not facts.active and not facts.finished:
                self._queue.add_after(key, pacing.ACTIVITY_SETTLE_S, "configuration changed")

    def _on_workload(self, change: Change) -> None:
        if change.new is not None:
            self._queue.add(build_object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    async def _reconcile(self, item: Item) -> Result:
        workload = self._observed.workloads.store.get(str(item.key))
        if workload is None:
            return Done()
        facts = self._observed.state.workloads.facts.get(str(item.key))
        reserved = find_condition(workload, QUOTA_RESERVED) or {}
        activated = facts is not None and can_be_activated(self._observed.state, facts, reserved)
        ended = self._has_ended(workload)
        return await self._executor.execute(plan_active_workload(workload, self._clock.now(), can_be_activated=activated, has_ended=ended))

    def _has_ended(self, workload: Obj) -> bool:
        """Whether the job is over, though the status of its workload does not show it yet."""
        found = self._observed.find_job(workload)
        return found is not None and found[0].find_finish(found[1]) is not None
