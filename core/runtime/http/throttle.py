"""How many requests may be under way at once: more while the server keeps up, half as many when it sheds load."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from core.runtime.clock import Clock
from core.runtime.http.errors import TooManyRequests

Answer = TypeVar("Answer")
MOST_SHED = 20  # times in a row that one request may be refused with 429


class Throttle:
    """Used as `async with throttle:` around one request; `record_success` or `record_refusal` records its outcome.

    The limit grows by one for each round of requests that all succeed, up to `most`. After a 429 it is halved, and no
    request begins before the server's Retry-After has passed. Of the requests that were under way together only the
    first 429 halves it.
    """

    def __init__(self, clock: Clock, *, start: int = 8, most: int = 64) -> None:
        self._clock = clock
        self.most = most
        self.limit = start
        self._running = 0
        self._successes = 0
        self._not_before = float("-inf")
        self._halved_at = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> Self:
        while self._running >= self.limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                self._wake()  # it may have been this one's turn
                raise
        self._running += 1
        try:
            while (pause := self._not_before - self._clock.monotonic()) > 0:
                await self._clock.sleep(pause)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave()

    async def run(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """Runs a request at the pace that the server can take, and returns its answer. A request that it sheds (429) is sent again when the
        server allows it: after `MOST_SHED` refusals in a row once more, with no regard to the pace. Raises what `request` raises,
        TooManyRequests only from that last try."""
        for _ in range(MOST_SHED):
            async with self:
                try:
                    answer = await request()
                except TooManyRequests as error:
                    self.record_refusal(error.retry_after)
                    continue
                self.record_success()
                return answer
        return await request()

    def record_success(self) -> None:
        """Records that a request was answered: after as many answers as the limit of requests at once, it grows by one, up to `most`."""
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.most:
            self.limit += 1
            self._successes = 0

    def record_refusal(self, retry_after_s: float | None) -> None:
        """Records that a request was refused with 429: no request begins for `retry_after_s` seconds (None: 1 s), and the limit is halved.
        Of refusals within that time the first halves it.
        """
        now = self._clock.monotonic()
        self._not_before = max(self._not_before, now + (1.0 if retry_after_s is None else retry_after_s))
        if now >= self._halved_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._halved_at = self._not_before

    def _leave(self) -> None:
        self._running -= 1
        self._wake()

    def _wake(self) -> None:
        for _ in range(self.limit - self._running):
            while self._waiting and self._waiting[0].done():
                self._waiting.popleft()
            if not self._waiting:
                return
            self._waiting.popleft().set_result(None)
