"""Admission checks: workloads that have quota are admitted once all their checks are Ready, and lose the quota where
one is Rejected or Retry.

Level-triggered, a workload at a time; the statuses alone decide what is done (`core.plan.workloads.check_steps`). Other
controllers evaluate the checks and write their state. A check that is withdrawn later evicts the workloads that were
admitted by it.
"""

from datetime import datetime

from core.model.configuration import SecondPass
from core.names import ADMITTED, PROVISIONING_CONTROLLER, QUOTA_RESERVED
from core.plan.workloads.check_steps import CheckedWorkload, is_to_deactivate, list_checks, plan_checked
from core.plan.workloads.checks import plan_refused
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.check_facts import RetryStrategy
from core.state.facts import WorkloadFacts, is_condition_true
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.observe.observed import Observed


class Checks:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock, second_pass: SecondPass) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self._second_pass = second_pass
        self._is_paused = False
        self._looked_since: datetime | None = None  # None: ever since this process runs
        self.controller = build_controller("admission checks", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.cluster_queues.add_handler(self._on_cluster_queue)
        observed.pauses.add_handler(self._on_pause)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            return
        holds, admitted = (is_condition_true(change.new, kind) for kind in (QUOTA_RESERVED, ADMITTED))
        if (holds and (not admitted or plan_refused(list_checks(change.new)) is not None)) or is_to_deactivate(change.new):
            self._queue.add(build_object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_pause(self, _change: Change) -> None:
        """Restarts the time in which a place must be found when a pause of admissions ends: no place is searched during it."""
        if self._is_paused and self._observed.state.pause.admissions is None:
            self._looked_since = self._clock.now()
        self._is_paused = self._observed.state.pause.admissions is not None

    def _on_cluster_queue(self, change: Change) -> None:
        for facts in self._observed.state.workloads.list_holders(change.obj["metadata"]["name"]):
            if not facts.admitted:
                self._queue.add(facts.key, "queue changed")

    async def _reconcile(self, item: Item) -> Result:
        key = str(item.key)
        workload, facts = self._observed.workloads.store.get(key), self._observed.state.workloads.facts.get(key)
        if workload is None:
            return Done()
        now, needed = self._clock.now(), self._list_needed(facts) if facts is not None else []
        checked = CheckedWorkload(
            workload,
            facts,
            now,
            self._second_pass.timeout_s,
            needed,
            {name: strategy for name in needed if (strategy := self._retry_of(name)) is not None},
            now if self._is_paused else self._looked_since,
            self._observed.state.workloads.is_assumed(key),
        )
        return await self._executor.execute(plan_checked(checked))

    def _list_needed(self, facts: WorkloadFacts) -> list[str]:
        """What its queue asks for, by the flavors that it was given; where the queue is gone what it has."""
        if facts.admission is None:
            return []
        queue = self._observed.state.cluster_queues.get(facts.admission.cluster_queue)
        if queue is None:
            return [check.name for check in facts.checks]
        return queue.list_checks({flavor for pod_set in facts.admission.pod_sets for flavor in pod_set.flavors.values()})

    def _retry_of(self, check: str) -> RetryStrategy | None:
        """How often a check that brings nodes may try again; None for any other."""
        facts = self._observed.state.checks.get(check)
        if facts is None or facts.controller != PROVISIONING_CONTROLLER:
            return None
        config = self._observed.provisioning.get(facts.provisioning_config or "")
        return config.retry if config is not None else RetryStrategy()
