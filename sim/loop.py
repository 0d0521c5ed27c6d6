"""An event loop in virtual time: it never waits, and time passes only when nothing is left to do now.

The processes of a world share it. What belongs to one is known by its context, so that a process can stand still while others go on.
"""

import asyncio
import contextvars
import heapq
import itertools
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

START = datetime(2026, 1, 1, tzinfo=UTC)
NOBODY = contextvars.Context()
"""Of what happens outside of all processes, as on the network."""
MOST_CANCELLED = 100
"""Timers that may be kept though they have been cancelled, and as many as there are others."""
Result = TypeVar("Result")


class Stuck(Exception):
    """Nothing is left to do, now or later, and the work has not ended."""


class _NothingToRead(selectors.BaseSelector):
    """What asyncio's loop asks for when it is made; nothing is ever read."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """What a thread would do is done at once, so that a run is the same each time."""

    _ready: deque["_Handle | _Timer"]  # of asyncio's base loop, as the next ones
    _stopping: bool
    _closed: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self._now, self._timers, self._numbers = 0.0, list[tuple[float, int, _Timer]](), itertools.count()
        self.turns = 0  # callbacks that have been called
        self.work_s = 0.0  # how long work takes that is measured (`VirtualClock.read_timer`)
        super().__init__(_NothingToRead())

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """As in every loop."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """As in every loop; a process that stands still does not notice the time."""
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As in every loop."""
        if self._closed:
            raise RuntimeError("the event loop is closed")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        """As that of asyncio's base loop, with nothing to read, until the loop is stopped: what is ready is done, and if nothing is, time
        passes. What is due at the same time is done in the order in which it was asked for."""
        timers, ready, pop = self._timers, self._ready, heapq.heappop
        while True:
            if self._timer_cancelled_count > MOST_CANCELLED and 2 * self._timer_cancelled_count > len(timers):
                timers[:] = [entry for entry in timers if not entry[2]._cancelled]
                heapq.heapify(timers)
                self._timer_cancelled_count = 0
            while timers:
                when, _, timer = timers[0]
                if timer._cancelled:
                    self._timer_cancelled_count -= 1
                elif when <= self._now:
                    ready.append(timer)
                elif ready or self._stopping:
                    break
                else:
                    self._now = when
                    ready.append(timer)
                pop(timers)
                timer._scheduled = False
            if not ready and not self._stopping:
                raise Stuck("nothing is left to do")
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    self._run_handle(handle)
            if self._stopping:
                return

    def _run_handle(self, handle: "_Handle | _Timer") -> None:
        context = handle._context
        self.turns += 1
        process = context.get(_PROCESS)
        if process is not None and process.is_frozen:
            process.held.append(handle)
            return
        try:
            context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle})

    def run_in_executor(self, executor: Any, func: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:  # type: ignore[override]
        """The result of a call, made now."""
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(contextvars.copy_context().run(func, *args))
        except Exception as error:
            future.set_exception(error)
        return future


class Process:
    """What is done in one process: it may stand still (SIGSTOP), and then nothing of it runs until it goes on."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.is_frozen = False
        self.is_dead = False
        self.held: list[_Handle | _Timer] = []

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begins work that belongs to the process, with all that comes of it."""
        context = contextvars.copy_context()
        context.run(_PROCESS.set, self)
        return self._loop.create_task(work, context=context)

    def freeze(self) -> None:
        """From now on nothing of it runs."""
        self.is_frozen = True

    def thaw(self) -> None:
        """What was due meanwhile runs now."""
        self.is_frozen = False
        self._loop._ready.extend(self.held)
        self.held = []

    def kill(self) -> None:
        """Nothing of it runs any more, not even what ends it."""
        self.is_dead = True
        self.freeze()


_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class _Handle(asyncio.Handle):
    """asyncio's own, without what is for debugging: there are dozens for each write."""

    __slots__ = ()
    _context: contextvars.Context
    _callback: Any

    def __init__(self, callback: Any, args: Any, loop: VirtualLoop, context: contextvars.Context | None) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None

    def cancel(self) -> None:
        self._cancelled, self._callback, self._args = True, None, ()


class _Timer(asyncio.TimerHandle):
    __slots__ = ()
    _context: contextvars.Context
    _callback: Any
    _loop: VirtualLoop

    def __init__(self, when: float, callback: Any, args: Any, loop: VirtualLoop, context: contextvars.Context | None) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args, self._when, self._scheduled = loop, callback, args, when, True
        self._cancelled, self._repr, self._source_traceback = False, None, None

    def cancel(self) -> None:
        if not self._cancelled and self._scheduled:
            self._loop._timer_cancelled_count += 1
        self._cancelled, self._callback, self._args = True, None, ()


class VirtualClock:
    """The time of a loop in virtual time; `skew` is by how much the wall clock of one process is off."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew = timedelta()
        self._worked_s = 0.0

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._loop.time()

    def read_timer(self) -> float:
        """Seconds that work has taken, and the time: each question comes `VirtualLoop.work_s` after the one before."""
        self._worked_s += self._loop.work_s
        return self._loop.time() + self._worked_s

    def now(self) -> datetime:
        """The wall clock."""
        return START + timedelta(seconds=self._loop.time()) + self.skew

    async def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
