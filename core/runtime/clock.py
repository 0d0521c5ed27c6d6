"""Time as a dependency, so that tests decide what time it is."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the runtime needs of time. Durations are measured with `monotonic`, never with `now`, which may jump."""

    def monotonic(self) -> float:
        """Returns seconds from any beginning, which never go back."""

    def read_timer(self) -> float:
        """Returns seconds from any beginning, to measure how long work takes that does not wait."""
        ...

    def now(self) -> datetime:
        """Returns the wall time in UTC; it may jump."""

    async def sleep(self, seconds: float) -> None:
        """Waits for so many seconds; returns in the next turn of the event loop for 0 or less."""


class SystemClock:
    """The running event loop's time, so that a loop with virtual time carries everything built on this clock along.

    Outside a loop (a metrics callback on another thread) the process' monotonic clock answers; it is the one that asyncio's own loops use.
    """

    def monotonic(self) -> float:
        """Returns the seconds of the running event loop's clock, outside a loop those of the process; see `Clock.monotonic`."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    def read_timer(self) -> float:
        """Returns the monotonic seconds of the process, also where the event loop has virtual time; see `Clock.read_timer`."""
        return time.monotonic()

    def now(self) -> datetime:
        """Returns the present wall time in UTC; see `Clock.now`."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Waits for so many seconds of the event loop's clock; for 0 or less until its next turn. See `Clock.sleep`."""
        await asyncio.sleep(max(0.0, seconds))
