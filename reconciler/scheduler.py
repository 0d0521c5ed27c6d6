"""The decision loop: woken by changes, runs a cycle, writes the verdicts.

Deciding is synchronous and sees no half event; writing is concurrent. A verdict whose write fails is
taken back and decided again.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from core.names import ADMITTED, QUOTA_RESERVED
from core.placement.profile import Profile
from core.plan.admission import MAX_ETCD_BYTES, admitted_status, waiting_status
from core.plan.conditions import Condition, says
from core.queueing.cycle import Cycle, Verdict
from core.queueing.flavors import Found, NotFound
from core.runtime.clock import Clock
from core.runtime.errors import Conflict, KubeError
from core.runtime.errors import NotFound as ObjectNotFound
from core.runtime.resource import Obj
from core.runtime.store import Change
from reconciler import resources as r
from reconciler import tracing
from reconciler.apply import Writer
from reconciler.observed import Observed

logger = logging.getLogger(__name__)
BATCH_WINDOW_S = 0.02  # lets a burst of events be decided as one batch
CYCLE_BUDGET_S = 0.25  # then the loop writes and serves events before it goes on
WRITES_AT_ONCE = 16
RETRY_S = 1.0


class Scheduler:
    """Decides on waiting workloads whenever something changed that could help one."""

    def __init__(self, observed: Observed, writer: Writer, clock: Clock, profile: Profile) -> None:
        self._observed = observed
        self._writer = writer
        self._clock = clock
        self._cycle = Cycle(observed.state, profile)
        self._wake = asyncio.Event()
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)
        self._seen_changes = -1
        for informer in (
            observed.nodes,
            observed.pods,
            observed.topologies,
            observed.flavors,
            observed.cluster_queues,
            observed.local_queues,
            observed.namespaces,
        ):
            informer.add_handler(self._on_change)
        observed.workloads.add_handler(self._on_workload)

    def _on_change(self, _change: Change) -> None:
        if self._observed.state.changes != self._seen_changes:
            self._wake.set()

    def _on_workload(self, _change: Change) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(BATCH_WINDOW_S)
            self._wake.clear()
            self._seen_changes = self._observed.state.changes
            await self.run_cycle()

    async def run_cycle(self) -> None:
        """One batch of decisions, and their writes."""
        deadline = self._clock.monotonic() + CYCLE_BUDGET_S
        began = self._clock.now()
        with tracing.cycle() as span:
            verdicts = list(self._cycle.run(lambda: self._clock.monotonic() < deadline))
            span.set_attribute("topogate.verdict.count", len(verdicts))
            if self._clock.monotonic() >= deadline:
                self._wake.set()
            if verdicts:
                async with asyncio.TaskGroup() as group:
                    for verdict in verdicts:
                        group.create_task(self._write(verdict, began), name=f"write verdict on {verdict.workload.key}")

    async def _write(self, verdict: Verdict, began: Any) -> None:
        key = verdict.workload.key
        workload = self._observed.workloads.store.get(key)
        try:
            async with self._writes:
                if workload is None or workload["metadata"]["uid"] != verdict.workload.uid:
                    self._take_back(verdict, "it is gone")
                elif isinstance(verdict.outcome, Found):
                    await self._admit(workload, verdict, verdict.outcome, began)
                else:
                    await self._let_wait(workload, verdict, verdict.outcome, began)
        except (Conflict, ObjectNotFound) as error:
            self._take_back(verdict, str(error))
        except KubeError as error:
            logger.warning("verdict could not be written", extra={"workload": key, "error": str(error)})
            self._take_back(verdict, str(error))
            asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)
        except BaseException:
            self._take_back(verdict, "the write was cut off")
            raise

    def _take_back(self, verdict: Verdict, why: str) -> None:
        logger.debug("verdict taken back", extra={"workload": verdict.workload.key, "why": why})
        if isinstance(verdict.outcome, Found):
            self._observed.state.forget(verdict.workload.key)
        self._cycle.reconsider(verdict.workload.uid)
        self._wake.set()

    async def _admit(self, workload: Obj, verdict: Verdict, found: Found, began: Any) -> None:
        queue = found.admission.cluster_queue
        created = tracing.parse_time(workload["metadata"].get("creationTimestamp"))
        with tracing.step(tracing.QUEUED, workload, start=created, **self._attributes(workload, queue)):
            pass
        with tracing.step(tracing.SOLVE, workload, start=began, **self._attributes(workload, queue)) as span:
            tracing.explain(span, found)
        with tracing.step(tracing.ADMIT, workload, **self._attributes(workload, queue)):
            status = admitted_status(workload, found.admission, self._writer.now())
            _check_size(workload, status)
            # Strict: if the workload was deactivated, changed or deleted since it was seen, the decision is void.
            written = await self._writer.apply_admission(workload, status, strict=True)
        self._observed.state.confirm(verdict.workload.key, int(written["metadata"]["resourceVersion"]))
        waited = int((self._clock.now() - created).total_seconds()) if created is not None else 0
        logger.info("workload admitted", extra={"workload": verdict.workload.key, "cluster_queue": queue})
        message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s"
        await self._writer.event(r.WORKLOADS, workload, QUOTA_RESERVED, message)
        message = f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s"
        await self._writer.event(r.WORKLOADS, workload, ADMITTED, message)

    async def _let_wait(self, workload: Obj, verdict: Verdict, outcome: NotFound, began: Any) -> None:
        condition = Condition(QUOTA_RESERVED, False, outcome.reason, outcome.message)
        if says((workload.get("status") or {}).get("conditions") or (), condition):
            return
        queue = self._observed.state.find_cluster_queue(verdict.workload)
        with tracing.step(tracing.SOLVE, workload, start=began, **self._attributes(workload, queue.name if queue else "")) as span:
            tracing.explain(span, outcome)
            status = waiting_status(workload, verdict.workload, outcome.reason, outcome.message, self._writer.now())
            await self._writer.apply_admission(workload, status, strict=True)
        logger.info("workload waits", extra={"workload": verdict.workload.key, "reason": outcome.reason, "why": outcome.message})
        await self._writer.event(r.WORKLOADS, workload, outcome.reason, outcome.message, warning=True)

    @staticmethod
    def _attributes(workload: Obj, queue: str) -> dict[str, Any]:
        return {tracing.WORKLOAD: workload["metadata"]["name"], tracing.CLUSTER_QUEUE: queue}


def _check_size(workload: Obj, status: Mapping[str, Any]) -> None:
    """An assignment too large for etcd is refused before any write, with its size."""
    size = len(json.dumps(workload)) + len(json.dumps(status))
    if size > MAX_ETCD_BYTES:
        raise KubeError(413, "TooLarge", f"the Workload would have {size} bytes; etcd takes {MAX_ETCD_BYTES}")
