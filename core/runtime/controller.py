"""Workers that take keys off a queue and reconcile them, and what each outcome means for the key.

=====================  ==========================================================================
`Done`                 forgotten: its next failure counts as its first
`RequeueAfter(n)`      forgotten, and back after n seconds
raises `Terminal`      forgotten and logged as an error: trying again unchanged would fail again
raises `Deferred`      put aside until `resume` is called, or something changes
raises `Conflict`      back by its own backoff, at debug level: the copy was stale, which is expected
raises anything else   back by its own backoff; with a traceback unless it is a `Retryable` or an
                       answer of the API server, which explain themselves
=====================  ==========================================================================

Waiting for an event is `Done`: it queues the key.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from core.runtime.clock import Clock, SystemClock
from core.runtime.http.errors import Conflict, KubeError
from core.runtime.report import logs
from core.runtime.workqueue import Item, QueueShutDown, WorkQueue

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something changes."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Time itself will change something: look again after `seconds`."""

    seconds: float


Result = Done | RequeueAfter
Reconcile = Callable[[Item], Awaitable[Result]]


class Retryable(Exception):
    """The reconcile failed this time; the message has the reason."""


class Hindered(Retryable):
    """The object cannot go on as its user or an administrator has written it, or others; the message has the reason. It is no failure of
    this process. It is tried again, since the change that helps may be one of another object."""


class Terminal(Exception):
    """It cannot work out until the object changes."""


class Deferred(Exception):
    """The key is not to be reconciled now; the message says why. `Controller.resume` allows it again."""


OUTCOMES = ("conflict", "deferred", "done", "error", "requeue_after", "retry", "terminal")
"""The bounded label of the reconcile metric."""


class Controller:
    """Runs `workers` reconciles at a time, never two for one key (the queue ensures that). `results` counts runs by outcome from zero."""

    def __init__(self, name: str, reconcile: Reconcile, queue: WorkQueue, workers: int = 1, *, clock: Clock | None = None) -> None:
        self.name = name
        self.queue = queue
        self.results = dict.fromkeys(OUTCOMES, 0)
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock or SystemClock()
        self.finished_at = self._clock.monotonic()
        """When the last run ended, or we began."""
        self._deferred: set[Hashable] = set()
        self._hindered: dict[Hashable, str] = {}  # keys that could not go on in their last run, with the reason
        self._busy = 0  # workers that have a key
        self._has_ended = asyncio.Event()  # one of their runs

    def resume(self) -> None:
        """Adds all deferred keys to the queue, due at once: those with a last reconcile that raised Deferred. None is deferred then."""
        for key in self._deferred:
            self.queue.add(key, "resumed")
        self._deferred.clear()

    async def run(self) -> None:
        """Reconciles keys until the queue is stopped and the last worker has finished its key, or until cancelled. Errors of a reconcile do
        not end it."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._run_worker(), name=f"{self.name} worker {number}")

    async def drain(self) -> None:
        """Stops the queue, and returns once the keys that are worked on have had their run. No other key is reconciled any more: those that
        are queued stay in the queue."""
        self.queue.stop()
        while self._busy:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def _run_worker(self) -> None:
        while True:
            try:
                item = await self.queue.get()
            except QueueShutDown:
                return
            self._busy += 1
            try:
                with logs.add_fields(controller=self.name, key=str(item.key), reconcile_id=uuid.uuid4().hex[:12]):
                    await self._run(item)
            finally:
                self.queue.finish(item.key)
                self._busy -= 1
                self._has_ended.set()
            # A reconcile that never had to wait must not keep other tasks off the event loop.
            await asyncio.sleep(0)

    async def _run(self, item: Item) -> None:
        before = self._hindered.pop(item.key, None)
        was_deferred = item.key in self._deferred
        self._deferred.discard(item.key)
        try:
            result = await self._reconcile(item)
        except Deferred as error:
            self.queue.reset_failures(item.key)
            self._deferred.add(item.key)
            logger.log(logging.DEBUG if was_deferred else logging.INFO, "reconcile is put aside", extra={"why": str(error)})
            outcome = "deferred"
        except Exception as error:
            if isinstance(error, Hindered):
                self._hindered[item.key] = str(error)
            outcome = self._handle_failure(item, error, is_logged=self._hindered.get(item.key, "") != before)
        else:
            self.queue.reset_failures(item.key)
            if isinstance(result, RequeueAfter):
                self.queue.add_after(item.key, result.seconds, "requeue after")
                outcome = "requeue_after"
            else:
                outcome = "done"
        self.results[outcome] += 1
        self.finished_at = self._clock.monotonic()

    def _handle_failure(self, item: Item, error: Exception, *, is_logged: bool) -> str:
        """Returns the outcome of a run that raised. `is_logged`: a reason of Hindered is logged, once while it stays the same."""
        if isinstance(error, Terminal):
            self.queue.reset_failures(item.key)
            logger.error("reconcile failed for good", extra={"error": str(error)})
            return "terminal"
        delay_s = round(self.queue.add_rate_limited(item.key, "retry", item.priority), 3)
        if isinstance(error, Conflict):
            logger.debug("reconcile met a conflict", extra={"error": str(error), "retry_in_s": delay_s})
            return "conflict"
        if isinstance(error, Hindered):
            logger.log(logging.INFO if is_logged else logging.DEBUG, "reconcile cannot go on", extra={"why": str(error)})
            return "retry"
        if isinstance(error, Retryable | KubeError):
            logger.warning("reconcile failed", extra={"error": str(error), "retry_in_s": delay_s})
            return "retry"
        logger.error("reconcile failed", extra={"error": str(error), "retry_in_s": delay_s}, exc_info=error)
        return "error"
