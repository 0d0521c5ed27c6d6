"""Steps in the life of the pods of a unit, many at once: started, deleted, let go of; and what is told of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from core.jobs.contract import PodSetStart
from core.jobs.pod_kinds import POD_SETS
from core.jobs.pod_parents import PodParent
from core.names import EVENT_EXCESS_POD_DELETED, EVENT_STOPPED, EVENT_WORKLOAD_REFUSED
from core.plan import resources as r
from core.plan import writes as w
from core.plan.pod_units import Unit
from core.plan.writes import Write
from core.resource import Obj
from core.runtime.errors import Conflict, KubeError, NotFound
from core.state.facts import controller_of
from reconciler.execute import Executor

WRITES_AT_ONCE = 16
PARENTS_BY_KIND: dict[str, PodParent] = {parent.kind: parent for parent in POD_SETS}


class UnitSteps:
    """Writes to pods by what was observed of them. Pods that are gone, or others of their names, are passed over: their
    events are on the way."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)

    async def tell(self, unit: Unit, source: Obj, reason: str, message: str, *, warning: bool = False) -> None:
        """An event on what the unit's workload is made of: its parent, or a pod."""
        parent = PARENTS_BY_KIND.get(unit.source)
        self._executor.reporter.event(r.PODS if parent is None else r.resource_of(parent), source, reason, message, warning=warning)

    async def start(self, pods: Sequence[tuple[Obj, PodSetStart]]) -> None:
        """Takes the admission gate off them all."""
        await _all(partial(self._attempt, w.start_pod(pod, info)) for pod, info in pods)

    async def delete(self, pods: Sequence[tuple[Obj, str]], event: str = EVENT_STOPPED) -> None:
        """Deletes them all, then tells of each why."""
        gone: list[tuple[Obj, str]] = []

        async def delete(pod: Obj, reason: str) -> KubeError | None:
            error = await self._attempt(w.delete_pod(pod))
            if error is None:
                gone.append((pod, reason))
            return error

        try:
            await _all(partial(delete, pod, reason) for pod, reason in pods)
        finally:
            for pod, reason in gone:
                self._executor.reporter.event(r.PODS, pod, event, reason)

    async def delete_excess(self, unit: Unit, pods: Sequence[Obj]) -> None:
        """Deletes pods that their plain group has no place for. One that has a controller would be made again, without end: it stays
        behind its gates."""
        message = f"Group {unit.name} has all of its pods without this one"
        await self.delete([(pod, message) for pod in pods if controller_of(pod) is None], EVENT_EXCESS_POD_DELETED)
        made = next((pod for pod in pods if controller_of(pod) is not None), None)
        if made is not None:
            owner = controller_of(made) or {}
            reason = f"{owner['kind']} {owner['name']} would make another: give that as many replicas as the group has"
            self._executor.reporter.event(r.PODS, made, EVENT_WORKLOAD_REFUSED, f"{message}. It stays gated, since {reason}", warning=True)

    async def release(self, pods: Iterable[Obj]) -> None:
        """Takes our finalizer off them."""
        await _all(partial(self._attempt, w.release_pod(pod)) for pod in pods)

    async def _attempt(self, write: Write) -> KubeError | None:
        """A write at its turn; returns the error worth another attempt."""
        try:
            async with self._writes:
                await self._executor.do(write)
        except (NotFound, Conflict):
            return None
        except KubeError as error:
            return error
        return None


async def _all(writes: Iterable[Callable[[], Awaitable[KubeError | None]]]) -> None:
    """Makes them all, some at once; raises the first error once all have been attempted."""
    left, failed = iter(writes), list[KubeError]()

    async def work() -> None:
        for write in left:
            error = await write()
            if error is not None:
                failed.append(error)

    # No task for each: of 50,000 the event loop would do nothing else until all of them had begun.
    await asyncio.gather(*(work() for _ in range(WRITES_AT_ONCE)))
    if failed:
        raise failed[0]
