"""The root of a process: tasks that must not end, and ending on purpose."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Never

from core.runtime.clock import Clock, SystemClock

logger = logging.getLogger(__name__)


class EternalTaskEnded(Exception):
    """A task that has to run as long as the process does returned: that is as much a crash as an exception."""


def start_eternal(group: asyncio.TaskGroup, name: str, work: Coroutine[Any, Any, object]) -> asyncio.Task[Never]:
    """Starts a task that must end only by cancellation, and returns it. Any other end stops the group, and with it the process: by its own
    error, or by EternalTaskEnded where it returns."""

    async def run_guarded() -> Never:
        await work
        raise EternalTaskEnded(f"the task {name!r} has ended")

    return group.create_task(run_guarded(), name=name)


async def run_until_stopped(
    main: Callable[[asyncio.TaskGroup], Awaitable[None]],
    *,
    grace_s: float,
    before: Callable[[], Awaitable[None]] | None = None,
    on_stop: Callable[[], Awaitable[None]] | None = None,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
    abort: Callable[[int], object] = os._exit,
) -> None:
    """Runs `main` with the root TaskGroup until it and all tasks of the group end, or a signal asks to stop.

    `before` runs first, with signal handlers installed already, so that no signal kills the process at its start.

    On the first signal `on_stop` runs (readiness off, queues shut down, workers drained), then everything is cancelled; both together
    get `grace_s` seconds. Returns when all has ended in good order. A second signal, or tasks that outlive the grace, end the process
    at once through `abort`: a process that hangs at exit keeps its lease from the next. Raises the errors of tasks as a group,
    and what `before` raises as it is; what `on_stop` raises is logged.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            logger.warning("stopping at once", extra={"signal": number.name})
            abort(128 + number)
        logger.info("stopping", extra={"signal": number.name, "grace_s": grace_s})
        stop.set()

    async def run_root() -> None:
        async with asyncio.TaskGroup() as group:
            await main(group)

    async def watch_stop() -> None:
        await stop.wait()

    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    try:
        if before is not None:
            await before()
    except BaseException:
        for number in signals:
            loop.remove_signal_handler(number)
        raise
    running = asyncio.create_task(run_root(), name="root")
    waiting = asyncio.create_task(watch_stop(), name="wait for a signal")
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and not await _stop(running, on_stop, grace_s):
            logger.error("tasks outlive the grace period", extra={"grace_s": grace_s})
            abort(1)
    finally:
        # Also when we are cancelled ourselves: nothing may outlive this call.
        waiting.cancel()
        running.cancel()
        await asyncio.wait({running, waiting}, timeout=grace_s)
        for number in signals:
            loop.remove_signal_handler(number)
    if not running.cancelled():
        running.result()


async def _stop(running: asyncio.Task[None], on_stop: Callable[[], Awaitable[None]] | None, grace_s: float) -> bool:
    """Whether everything ended within the grace."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_s
    if on_stop is not None:
        try:
            async with asyncio.timeout_at(deadline):
                await on_stop()
        except TimeoutError:
            return False
        except Exception:
            logger.exception("stopping in good order failed")
    running.cancel()
    await asyncio.wait({running}, timeout=max(0.0, deadline - loop.time()))
    return running.done()


class LoopLag:
    """How late the event loop is, in seconds: what a blocking call anywhere costs all tasks. `on_lag` is called with
    each measurement."""

    def __init__(self, clock: Clock | None = None, *, interval_s: float = 0.5, on_lag: Callable[[float], None] | None = None) -> None:
        self._clock = clock or SystemClock()
        self._on_lag = on_lag
        self._interval_s = interval_s

    async def run(self) -> Never:
        """Measures every `interval_s` seconds how late the event loop is, and calls `on_lag` with that. Never returns."""
        while True:
            asked = self._clock.monotonic()
            await self._clock.sleep(self._interval_s)
            if self._on_lag is not None:
                self._on_lag(max(0.0, self._clock.monotonic() - asked - self._interval_s))
