"""At most so many a second: requests where an administrator wants the API server spared, events, messages."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.runtime.clock import Clock

YIELDING_SHARE = 0.1  # of all turns, where others want every one
_yields: ContextVar[bool] = ContextVar("yields", default=False)


@contextmanager
def yield_to_others() -> Iterator[None]:
    """Marks turns that are asked for within as less important (an event, a counter): `RateLimiter.wait_turn` lets others pass where turns
    are short.
    """
    token = _yields.set(True)
    try:
        yield
    finally:
        _yields.reset(token)


class RateLimiter:
    """`per_second` from a monotonic clock, and up to `burst` at once after a quiet time. `wait_turn` waits, `try_turn` does not.

    Requests inside `yield_to_others` step into the line when it is empty, one by one, or when a tenth of all turns would be theirs.
    """

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock = clock
        self._burst = burst
        self._apart_s = 1 / per_second
        self._ahead_s = (burst - 1) / per_second
        self._next = float("-inf")
        self._yielding = asyncio.Lock()
        self._next_yielding = float("-inf")

    def try_turn(self, least_share: float = 0) -> bool:
        """Takes a turn and returns True, if there is one now. Otherwise it takes none and returns False, and so it does while fewer turns
        are there than the share `least_share`, from 0 to 1, of a full burst; the turn that would be taken is one of these."""
        now, mine = self._find_turn()
        if (now - mine) / self._apart_s + 1 < max(1.0, least_share * self._burst):
            return False
        self._next = mine + self._apart_s
        return True

    async def wait_turn(self) -> None:
        """Takes the next free turn and returns when it has come; inside `yield_to_others` later, where turns are short."""
        if not _yields.get():
            await self._wait()
            return
        async with self._yielding:
            while (now := self._clock.monotonic()) < (first := min(self._next, self._next_yielding)):
                await self._clock.sleep(first - now)
            self._next_yielding = now + self._apart_s / YIELDING_SHARE
            await self._wait()

    async def _wait(self) -> None:
        now, mine = self._find_turn()
        self._next = mine + self._apart_s
        if mine > now:
            await self._clock.sleep(mine - now)

    def _find_turn(self) -> tuple[float, float]:
        """The time now and that of the next turn, which is earlier where part of a burst is left."""
        now = self._clock.monotonic()
        return now, max(self._next, now - self._ahead_s)
