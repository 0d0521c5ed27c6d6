"""Evicts workloads that are preempted."""

import asyncio
import logging
from collections.abc import Callable

from core import trace_names as t
from core.names import EVICTED, PREEMPTED, REASON_PREEMPTED
from core.plan import resources as r
from core.plan import writes as w
from core.plan.admission import preempted_status
from core.queueing.outcome import Preempting, Victim
from core.runtime.errors import Conflict, KubeError
from core.runtime.errors import NotFound as ObjectNotFound
from core.state.facts import WorkloadFacts, condition_is_true, controller_of
from reconciler import tracing
from reconciler.execute import Executor, Paused
from reconciler.metrics import UNRECORDED, Recorder
from reconciler.observed import Observed

logger = logging.getLogger(__name__)


class Preemptions:
    """Evicts victims; `spare` is called with the key of one that could not be evicted. Of `writes` each takes one."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        writes: asyncio.Semaphore,
        spare: Callable[[str], None],
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self._observed, self._executor, self._writes, self._spare = observed, executor, writes, spare
        self._recorder = recorder

    async def evict_all(self, preemptor: WorkloadFacts, preempting: Preempting) -> None:
        """One that cannot be evicted is spared until the preemptor has been judged anew."""
        async with asyncio.TaskGroup() as group:
            for victim in preempting.victims:
                group.create_task(self._preempt(preemptor, victim), name=f"preempt {victim.workload.key}")

    async def _preempt(self, preemptor: WorkloadFacts, victim: Victim) -> None:
        key = victim.workload.key
        try:
            async with self._writes:
                await self._evict_victim(preemptor, victim)
        except BaseException as error:
            self._spare(key)
            if not isinstance(error, KubeError | Paused):
                raise
            if not isinstance(error, Conflict | ObjectNotFound | Paused):
                logger.warning("a workload could not be preempted", extra={"workload": key, "error": str(error)})

    async def _evict_victim(self, preemptor: WorkloadFacts, victim: Victim) -> None:
        seen = self._observed.workloads.store.get(victim.workload.key)
        if seen is None or seen["metadata"]["uid"] != victim.workload.uid or condition_is_true(seen, EVICTED):
            return
        cause = self._observed.workloads.store.get(preemptor.key)
        owner = controller_of(cause) if cause is not None else None
        job = owner["uid"] if owner is not None else "UNKNOWN"
        message = (
            f"Preempted to accommodate a workload (UID: {preemptor.uid}, JobUID: {job}) due to {victim.why}; "
            f"preemptor path: {self._path(preemptor)}; preemptee path: {self._path(victim.workload)}"
        )
        # Strict: one that has ended or changed since may not have to go any more.
        status = preempted_status(seen, victim.reason, message, self._executor.now())
        evicted = {t.WORKLOAD: seen["metadata"]["name"], t.REASON: victim.reason, t.MESSAGE: message, t.PREEMPTOR: preemptor.key}
        with tracing.step(t.EVICT, seen, evicted, links=[tracing.decision_of(cause) if cause is not None else None]):
            await self._executor.write(w.apply_admission(seen, status))
        logger.info("workload preempted", extra={"workload": victim.workload.key, "reason": victim.reason, "by": preemptor.key})
        queue = self._observed.state.find_cluster_queue(preemptor)
        self._recorder.preempted(queue.name if queue is not None else None, victim.reason)
        self._executor.reporter.event(r.WORKLOADS, seen, PREEMPTED, message)
        self._executor.reporter.event(r.WORKLOADS, seen, f"EvictedDueTo{REASON_PREEMPTED}", message)

    def _path(self, workload: WorkloadFacts) -> str:
        """Where a workload's queue stands among the cohorts: /root/.../queue."""
        queue = self._observed.state.find_cluster_queue(workload)
        if queue is None:
            return "/"
        return "/" + "/".join([*reversed(self._observed.state.quota.ancestors(queue.name)), queue.name])
