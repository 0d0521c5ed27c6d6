"""Evicts workloads that are preempted."""

import asyncio
import logging
from collections.abc import Callable

from core.plan.workloads.verdict_steps import plan_preemption
from core.queueing.flavors.outcome import Preempting, Victim
from core.runtime.http.errors import Conflict, KubeError
from core.runtime.http.errors import NotFound as ObjectNotFound
from core.state.facts import WorkloadFacts
from reconciler.execute.executor import Executor, Paused
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.observe.observed import Observed

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
        """Evicts all victims and returns once each is written, gone, or reported to `spare` since it could not be evicted. Raises what is
        no KubeError and no Paused, in an exception group."""
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
        workloads = self._observed.workloads.store
        seen = workloads.get(victim.workload.key)
        if seen is None:
            return
        paths = self._build_path(preemptor), self._build_path(victim.workload)
        plan = plan_preemption(seen, victim, preemptor, workloads.get(preemptor.key), paths, self._executor.format_now())
        await self._executor.execute(plan)
        if plan.steps:
            queue = self._observed.state.find_cluster_queue(preemptor)
            self._recorder.record_preemption(queue.name if queue is not None else None, victim.reason)

    def _build_path(self, workload: WorkloadFacts) -> str:
        """Where a workload's queue stands among the cohorts: /root/.../queue."""
        queue = self._observed.state.find_cluster_queue(workload)
        if queue is None:
            return "/"
        return "/" + "/".join([*reversed(self._observed.state.quota.list_ancestors(queue.name)), queue.name])
