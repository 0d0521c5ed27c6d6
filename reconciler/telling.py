"""Events on workloads, and on what they were made for: who waits for an admission does not wait for them."""

import asyncio
import logging

from core.plan import resources as r
from core.plan.pod_units import seniority, unit_of_workload
from core.resource import Obj, Resource
from core.runtime.pace import yielding
from core.state.facts import controller_of
from reconciler.apply import Writer
from reconciler.metrics import UNRECORDED, Recorder
from reconciler.observed import Observed

logger = logging.getLogger(__name__)
AT_ONCE, MOST_WAITING = 2, 256


class Events:
    """Writes events beside everything else; where too many wait to be written, more are left out."""

    def __init__(self, observed: Observed, writer: Writer, recorder: Recorder = UNRECORDED) -> None:
        self._observed, self._writer, self._recorder = observed, writer, recorder
        self._writes = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, resource: Resource, obj: Obj, reason: str, message: str, *, warning: bool = False, is_minor: bool = False) -> None:
        """An event on an object, soon; see `Writer.event`."""
        if len(self._tasks) >= (MOST_WAITING // 2 if is_minor else MOST_WAITING):
            logger.debug("event left out", extra={"reason": reason, "object": obj["metadata"]["name"]})
            self._recorder.event_dropped()
            return
        work = self._write(resource, obj, reason, message, warning=warning, is_minor=is_minor)
        task = asyncio.create_task(work, name=f"tell of {reason}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def tell_maker(self, workload: Obj, reason: str, message: str, *, warning: bool = True) -> None:
        """Who made a job looks at the job, and need not know that there is a Workload."""
        made_for = self._made_for(workload)
        if made_for is not None:
            self.tell(*made_for, reason, message, warning=warning)

    async def settle(self) -> None:
        """Until all are written."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Leaves out all that are not written yet."""
        for task in self._tasks:
            task.cancel()

    async def _write(self, resource: Resource, obj: Obj, reason: str, message: str, *, warning: bool, is_minor: bool) -> None:
        async with self._writes:
            with yielding():
                await self._writer.event(resource, obj, reason, message, warning=warning, is_minor=is_minor)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an event ended in a fault of ours", extra={"task": task.get_name()}, exc_info=error)

    def _made_for(self, workload: Obj) -> tuple[Resource, Obj] | None:
        """What a Workload stands for: its owner. A pod group has none: its oldest pod, which is one event however many they are."""
        owner = controller_of(workload)
        if owner is None:
            unit = unit_of_workload(workload)
            pods = self._observed.pods.store.by_index("unit", str(unit)) if unit is not None else []
            return (r.PODS, min(pods, key=seniority)) if pods else None
        group, key = owner["apiVersion"].rpartition("/")[0], f"{workload['metadata']['namespace']}/{owner['name']}"
        for informer in self._observed.owning:
            if (informer.resource.group, informer.resource.kind) == (group, owner["kind"]):
                obj = informer.store.get(key)
                return (informer.resource, obj) if obj is not None and obj["metadata"]["uid"] == owner["uid"] else None
        return None
