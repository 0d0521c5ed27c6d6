"""Admission checks: workloads that have quota are admitted once all their checks are Ready, and lose it where one says no.

Level-triggered, a workload at a time; what is to be done is told from the statuses alone (`core.plan.checks`). The checks
themselves are judged by others, who write their state. One that is withdrawn later evicts what was admitted by it.
"""

import logging
from datetime import datetime, timedelta
from typing import assert_never

from core import trace_names as t
from core.model.configuration import SecondPass
from core.names import ADMITTED, EVICTED, PROVISIONING_CONTROLLER, QUOTA_RESERVED, REASON_ADMISSION_CHECK, REASON_DEACTIVATED
from core.plan import resources as r
from core.plan import writes as w
from core.plan.admission import BEFORE, MOST_OF_FORMER, admitted_status, find_former, returned_status, sync_status
from core.plan.checks import Admit, GiveBack, Sync, Wait, plan_checks, plan_refused
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.store import Change, object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.check_facts import RetryStrategy
from core.state.facts import WorkloadFacts, condition_is_true, find_condition
from reconciler import tracing
from reconciler.controllers import build_controller
from reconciler.execute import Executor
from reconciler.observed import Observed
from reconciler.steps import WorkloadSteps

logger = logging.getLogger(__name__)
REASON_REJECTED = f"{REASON_DEACTIVATED}DueToAdmissionCheckRejected"


class Checks:
    """Reconciles one workload at a time by namespace/name."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock, second_pass: SecondPass) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self._second_pass = second_pass
        self._is_paused = False
        self._looked_since: datetime | None = None  # None: ever since this process runs
        self._steps = WorkloadSteps(observed, executor)
        self.controller = build_controller("admission checks", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.cluster_queues.add_handler(self._on_cluster_queue)
        observed.pauses.add_handler(self._on_pause)

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            return
        holds, admitted = (condition_is_true(change.new, kind) for kind in (QUOTA_RESERVED, ADMITTED))
        if (holds and (not admitted or plan_refused(_checks_of(change.new)) is not None)) or _is_to_deactivate(change.new):
            self._queue.add(object_key(change.obj), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_pause(self, _change: Change) -> None:
        """While admissions are paused nobody looks for a place: the time in which one must be found begins with their end."""
        if self._is_paused and self._observed.state.pause.admissions is None:
            self._looked_since = self._clock.now()
        self._is_paused = self._observed.state.pause.admissions is not None

    def _on_cluster_queue(self, change: Change) -> None:
        for facts in self._observed.state.workloads.holders(change.obj["metadata"]["name"]):
            if not facts.admitted:
                self._queue.add(facts.key, "queue changed")

    async def _reconcile(self, item: Item) -> Result:
        key = str(item.key)
        workload, facts = self._observed.workloads.store.get(key), self._observed.state.workloads.facts.get(key)
        if workload is not None and _is_to_deactivate(workload):
            await self._executor.do(w.deactivate(workload, REASON_REJECTED))
            return Done()
        if workload is None or facts is None or facts.admission is None or not facts.quota_reserved:
            return Done()
        if facts.evicted or facts.finished or facts.deleting or self._observed.state.workloads.is_assumed(key):
            return Done()  # the event of what is on its way brings us back
        checks = _checks_of(workload)
        if facts.admitted:
            return await self._stop(workload, plan_refused(checks))
        if not facts.active:
            return await self._give_back(workload, GiveBack("The workload is deactivated"), REASON_DEACTIVATED)
        needed = self._needed(facts)
        action = plan_checks(
            checks,
            needed,
            awaits_topology=facts.admission.awaits_topology,
            now=self._clock.now(),
            timeout_s=self._second_pass.timeout_s,
            retries={name: strategy for name in needed if (strategy := self._retry_of(name)) is not None},
            looked_since=self._clock.now() if self._is_paused else self._looked_since,
        )
        match action:
            case Wait(seconds):
                return Done() if seconds is None else RequeueAfter(seconds)
            case Sync(entries):
                await self._executor.do(w.apply_admission(workload, sync_status(workload, entries, self._executor.now())))
            case Admit():
                await self._admit(workload, facts, needed)
            case GiveBack():
                return await self._give_back(workload, action, REASON_REJECTED if action.deactivates else REASON_ADMISSION_CHECK)
            case _:
                assert_never(action)
        return Done()

    def _needed(self, facts: WorkloadFacts) -> list[str]:
        """What its queue asks for, by the flavors that it was given; where the queue is gone what it has."""
        assert facts.admission is not None
        queue = self._observed.state.cluster_queues.get(facts.admission.cluster_queue)
        if queue is None:
            return [check.name for check in facts.checks]
        return queue.checks_for({flavor for pod_set in facts.admission.pod_sets for flavor in pod_set.flavors.values()})

    def _retry_of(self, check: str) -> RetryStrategy | None:
        """How often a check that brings nodes may try again; None for any other."""
        facts = self._observed.state.checks.get(check)
        if facts is None or facts.controller != PROVISIONING_CONTROLLER:
            return None
        config = self._observed.provisioning.get(facts.provisioning_config or "")
        return config.retry if config is not None else RetryStrategy()

    async def _stop(self, workload: Obj, refused: GiveBack | None) -> Result:
        """What runs by a check that holds no more is evicted; its job gives the quota back once it has stopped.

        It is deactivated after that, not before: whoever stops what is deactivated would tell users so, and not why it was.
        """
        if refused is None:
            return Done()
        reason = REASON_REJECTED if refused.deactivates else REASON_ADMISSION_CHECK
        requeue_at = self._requeue_at(refused)
        state = dict((workload.get("status") or {}).get("requeueState") or {}) | ({"requeueAt": requeue_at} if requeue_at else {})
        await self._steps.evict(workload, reason, refused.message, requeue_state=state)
        return Done()

    def _requeue_at(self, action: GiveBack) -> str | None:
        return (self._clock.now() + timedelta(seconds=action.after_s)).strftime("%Y-%m-%dT%H:%M:%SZ") if action.after_s else None

    async def _admit(self, workload: Obj, facts: WorkloadFacts, needed: list[str]) -> None:
        assert facts.admission is not None
        queue = facts.admission.cluster_queue
        attributes: dict[str, str | int] = {t.WORKLOAD: workload["metadata"]["name"], t.CLUSTER_QUEUE: queue}
        tracing.tell_of_checks(workload, facts, attributes)
        before = find_former(workload.get("status") or {}, MOST_OF_FORMER)
        with tracing.step(t.ADMIT, workload, attributes | ({t.FORMER: before} if before else {})):
            status = admitted_status(workload, facts.admission, self._executor.now(), needed)
            await self._executor.do(w.apply_admission(workload, status))
        logger.info("workload admitted", extra={"workload": facts.key, "cluster_queue": queue})
        reserved = tracing.parse_time(facts.reserved_at)
        waited = max(0, int((self._clock.now() - reserved).total_seconds())) if reserved is not None else 0
        message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s{f'{BEFORE}{before}' if before else ''}"
        self._executor.reporter.event(r.WORKLOADS, workload, ADMITTED, message)

    async def _give_back(self, workload: Obj, action: GiveBack, reason: str) -> Result:
        """Nothing of it runs: evicted and free of its quota in one write, deactivated before where it is not to come back."""
        if action.deactivates:
            workload = await self._executor.do(w.deactivate(workload, reason))
        status = returned_status(workload, reason, action.message, self._executor.now(), self._requeue_at(action))
        evicted = {t.WORKLOAD: workload["metadata"]["name"], t.REASON: reason, t.MESSAGE: action.message}
        with tracing.step(t.EVICT, workload, evicted):
            await self._executor.do(w.apply_admission(workload, status))
        logger.info("workload gave its quota back", extra={"workload": object_key(workload), "reason": reason})
        self._executor.reporter.event(r.WORKLOADS, workload, f"EvictedDueTo{reason}", action.message)
        return Done()


def _checks_of(workload: Obj) -> list[Obj]:
    return list((workload.get("status") or {}).get("admissionChecks") or ())


def _is_to_deactivate(workload: Obj) -> bool:
    """Whether a workload is evicted for good, and still active as it was then: who was activated again since has another generation."""
    evicted = find_condition(workload, EVICTED) or {}
    return (
        evicted.get("status") == "True"
        and evicted.get("reason") == REASON_REJECTED
        and workload["spec"].get("active", True) is not False
        and evicted.get("observedGeneration") == workload["metadata"].get("generation")
    )
