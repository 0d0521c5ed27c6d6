"""Bytes of bodies that arrive, and of those that are judged.

A client that holds connections with half-sent bodies may have the address of an API server, so that addresses decide nothing.
A body counts by the bytes that have arrived. Where there is no room, a body that stands still is given up; one that arrives as fast
as those of API servers waits for it at most `GRACE_S`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import StreamReader

# A body is late by the time that it took beyond this, once others need its room.
GRACE_S = 0.05
BYTES_PER_SECOND = 16 * 1024 * 1024


class GivenUp(Exception):
    """The body stood still while others needed its room."""


class NoRoom(Exception):
    """Bodies that have arrived, or arrive fast, fill the intake."""


class BodyTooLarge(Exception):
    """The body has more bytes than it may have."""


@dataclass(slots=True, eq=False)
class _Arriving:
    """A body; times are seconds of the event loop."""

    began: float
    since: float  # the same without the time of waiting for room
    deadline: asyncio.Timeout
    size: int = 0
    waits: bool = False
    given_up: type[Exception] | None = None  # no exception: its traceback would refer to this again

    def compute_overdue(self) -> float:
        """When the body is late."""
        return self.since + self.size / BYTES_PER_SECOND + GRACE_S


class Intake:
    """At most `limit` bytes at once, those of bodies that are read and not released included."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._arriving: dict[_Arriving, None] = {}
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def read(self, content: StreamReader, most: int, within_s: float) -> AsyncIterator[bytes]:
        """Yields a whole body and releases its bytes at the end. Raises BodyTooLarge for more bytes than `most`, and TimeoutError after
        `within_s` seconds, of which waiting for room is a part. Raises GivenUp where it is overdue and another body needs its room. Raises
        NoRoom where it is the oldest of bodies that all wait for room."""
        now = asyncio.get_running_loop().time()
        body = _Arriving(now, now, asyncio.timeout(within_s))
        self._arriving[body] = None
        chunks, chunk = list[bytes](), b""
        try:
            try:
                async with body.deadline:
                    while chunk := await content.readany():
                        if body.size + len(chunk) > most:
                            raise BodyTooLarge
                        await self._add(body, len(chunk))
                        chunks.append(chunk)
            except TimeoutError:
                raise body.given_up or TimeoutError from None
            if body.given_up:
                raise body.given_up
            self._arriving.pop(body)
            whole = b"".join(chunks)
            chunks.clear()
            yield whole
        finally:
            chunks.clear()  # whatever holds on to this frame, as the traceback of a refusal does
            chunk = b""
            self._arriving.pop(body, None)
            self._release(body)

    async def _add(self, body: _Arriving, size: int) -> None:
        """Counts bytes that have arrived for a body once there is room for them."""
        loop = asyncio.get_running_loop()
        while not body.given_up and self.used + size > self.limit:
            holding = [each for each in self._arriving if each.size]
            moving = [each for each in holding if each is not body and not each.waits]
            latest = min(moving, key=_Arriving.compute_overdue, default=None)
            if latest is not None and latest.compute_overdue() <= loop.time():
                self._give_up(latest, GivenUp)
            elif latest is not None:
                await self._wait(body, latest.compute_overdue())
            elif self.used > sum(each.size for each in holding):
                await self._wait(body, None)  # for bodies that are judged
            else:  # all wait for each other; many that begin at once must not end one that begins later
                self._give_up(min([*holding, body], key=lambda each: each.began), NoRoom)
        if body.given_up:
            raise body.given_up
        body.size += size
        self.used += size

    async def _wait(self, body: _Arriving, until: float | None) -> None:
        """Waits until bytes are released, or a time of the event loop; the time does not count as the body's."""
        loop = asyncio.get_running_loop()
        began, released = loop.time(), loop.create_future()
        self._waiting.append(released)
        body.waits = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await released
        finally:
            body.waits = False
            body.since += loop.time() - began
            if released in self._waiting:
                self._waiting.remove(released)

    def _give_up(self, body: _Arriving, why: type[Exception]) -> None:
        body.given_up = why
        self._release(body)
        if not body.deadline.expired():
            body.deadline.reschedule(asyncio.get_running_loop().time())

    def _release(self, body: _Arriving) -> None:
        self.used -= body.size
        body.size = 0
        waiting, self._waiting = self._waiting, []
        for released in waiting:
            if not released.done():
                released.set_result(None)
