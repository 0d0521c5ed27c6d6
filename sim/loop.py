"""An event loop in virtual time: it never waits, and time passes only when nothing is left to do now."""

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

START = datetime(2026, 1, 1, tzinfo=UTC)
Result = TypeVar("Result")


class Stuck(Exception):
    """Nothing is left to do, now or later, and the work has not ended."""


class _NothingToRead(selectors.BaseSelector):
    """Passes the time that the loop would wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nothing is left to do")
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """What a thread would do is done at once, so that a run is the same each time."""

    def __init__(self) -> None:
        self._time = _NothingToRead()
        super().__init__(self._time)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._time.now

    def run_in_executor(self, executor: Any, func: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:  # type: ignore[override]
        """The result of a call, made now."""
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(contextvars.copy_context().run(func, *args))
        except Exception as error:
            future.set_exception(error)
        return future


class VirtualClock:
    """The time of a loop in virtual time; `skew` is by how much the wall clock of one process is off."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew = timedelta()

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._loop.time()

    def now(self) -> datetime:
        """The wall clock."""
        return START + timedelta(seconds=self._loop.time()) + self.skew

    async def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        await asyncio.sleep(max(0.0, seconds))
