"""Time as a dependency, so that tests decide what time it is."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the runtime needs of time. Durations are measured with `monotonic`, never with `now`, which may jump."""

    def monotonic(self) -> float: ...

    def read_timer(self) -> float:
        """Seconds, of any beginning, for how long work takes that does not wait."""
        ...

    def now(self) -> datetime: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The running event loop's time, so that a loop with virtual time carries everything built on this clock along.

    Outside a loop (a metrics callback on another thread) the process' monotonic clock answers; it is the one that asyncio's own loops use.
    """

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    def read_timer(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
