"""At most so many requests a second: for administrators who want their API server spared, whatever it says itself."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.runtime.clock import Clock

YIELDING_SHARE = 0.1  # of all turns, where others want every one
_yields: ContextVar[bool] = ContextVar("yields", default=False)


@contextmanager
def yielding() -> Iterator[None]:
    """What is asked for within (an event, a counter) is of less use just now than all else, and lets that pass where turns are short."""
    token = _yields.set(True)
    try:
        yield
    finally:
        _yields.reset(token)


class Pace:
    """Each `turn` takes its place in a line that moves on `per_second`; up to `burst` need not wait after a quiet time.

    Requests that are `yielding` step into the line when it is empty, one after the other, or when a tenth of all turns would be theirs.
    """

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock = clock
        self._apart_s = 1 / per_second
        self._ahead_s = (burst - 1) / per_second
        self._next = float("-inf")
        self._yielding = asyncio.Lock()
        self._next_yielding = float("-inf")

    async def turn(self) -> None:
        """Returns when it is this request's turn."""
        if not _yields.get():
            await self._take()
            return
        async with self._yielding:
            while (now := self._clock.monotonic()) < (first := min(self._next, self._next_yielding)):
                await self._clock.sleep(first - now)
            self._next_yielding = now + self._apart_s / YIELDING_SHARE
            await self._take()

    async def _take(self) -> None:
        now = self._clock.monotonic()
        mine = max(self._next, now - self._ahead_s)
        self._next = mine + self._apart_s
        if mine > now:
            await self._clock.sleep(mine - now)
