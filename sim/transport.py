"""What a process sends to the API server in memory, and what comes back; and what may go wrong on the way."""

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.runtime.errors import NotLeading, Unreachable, error_for
from core.runtime.transport import Fence, Transport
from sim.routes import carry_out, find_request
from sim.server import Change, Refused, Request, Server, to_bytes

Json = dict[str, Any]
LATENCY_S = 0.001
REFRESH_S, BOOKMARK_S = 2.0, 60.0  # before the end of a stream, and between two bookmarks


@dataclass(slots=True)
class Faults:
    """What goes wrong between one process and the API server, by chance; 0 is never."""

    chance: random.Random
    lost_request: float = 0.0  # it does not arrive
    lost_answer: float = 0.0  # it is carried out, and nobody is told
    shed: float = 0.0  # 429
    is_slow: float = 0.0  # it takes seconds
    is_silent: bool = False  # watches deliver nothing
    is_cut: bool = False  # nothing arrives at all
    late_s: dict[str, float] = field(default_factory=dict)  # by plural of a resource: by how much an open stream of it is behind


Dies = Callable[[Request], bool]
"""Asked before each write and after it: whether the process ends at this moment."""


class SimTransport(Transport):
    """One process's way to the API server. Once the process has ended nothing arrives there, and nothing comes back."""

    def __init__(
        self, server: Server, user: str, faults: Faults, dies: Dies = lambda _: False, end: Callable[[], None] = lambda: None
    ) -> None:
        """`end` is called when the process ends."""
        self._server, self._user, self.faults, self._dies, self._end = server, user, faults, dies, end
        self._is_dead = False

    @property
    def address(self) -> str:
        return "in memory"

    async def aclose(self) -> None:
        """Nothing is open."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
        fence: Fence | None = None,
    ) -> bytes:
        faults, chance = self.faults, self.faults.chance
        await self._live_on()
        await asyncio.sleep(LATENCY_S * (1 + chance.random()) + (chance.uniform(0, 20) if chance.random() < faults.is_slow else 0))
        if faults.is_cut or chance.random() < faults.lost_request:
            raise Unreachable(f"{method} {path}: the connection was refused")
        if fence is not None and fence() <= 0:
            raise NotLeading
        try:
            request = find_request(self._server, method, path, params or {}, body, content_type, self._user)
            if chance.random() < faults.shed:
                raise Refused(429, "TooManyRequests", "too many requests, please try again later", retryAfterSeconds=1)
            is_write = request.verb not in ("get", "list", "watch")
            await self._live_on(request if is_write else None)
            answer = carry_out(self._server, request)
            await self._live_on(request if is_write else None)
        except Refused as refused:
            raise error_for(refused.code, json.dumps(refused.status).encode()) from refused
        if chance.random() < faults.lost_answer:
            raise Unreachable(f"{method} {path}: the answer broke off")
        await asyncio.sleep(LATENCY_S * chance.random())
        return to_bytes(answer)

    async def _live_on(self, written: Request | None = None) -> None:
        """Returns only in a process that lives."""
        if written is not None and not self._is_dead and self._dies(written):
            self._is_dead = True
            self._end()
        if self._is_dead:
            await asyncio.get_running_loop().create_future()

    async def lines(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The events of a watch, with bookmarks, until its time is over."""
        await asyncio.sleep(LATENCY_S)
        if self.faults.is_cut:
            raise Unreachable(f"GET {path}: the connection was refused")
        loop = asyncio.get_running_loop()
        try:
            request = find_request(self._server, "GET", path, params, None, "", self._user)
        except Refused as refused:
            raise error_for(refused.code, json.dumps(refused.status).encode()) from refused
        end, version = loop.time() + float(params.get("timeoutSeconds") or 3600), int(params.get("resourceVersion") or 0)
        bookmark, has_news = loop.time() + BOOKMARK_S, asyncio.Event()
        told, to_tell = self._server.version, deque[tuple[float, int]]()  # what there is when a stream is opened is never late

        def wake(change: Change) -> None:
            if change.resource == request.kind.resource:
                late_s = self.faults.late_s.get(request.kind.plural, 0.0)
                to_tell.append((loop.time() + late_s, change.version))
                if late_s:
                    loop.call_later(late_s, has_news.set)
                else:
                    has_news.set()

        self._server.on_change.append(wake)
        try:
            while loop.time() < end:
                await self._live_on()
                has_news.clear()
                while to_tell and to_tell[0][0] <= loop.time() + LATENCY_S:
                    told = to_tell.popleft()[1]
                if not to_tell:
                    told = self._server.version
                if not self.faults.is_silent:
                    try:
                        events = self._server.read_changes(request, version)
                    except Refused as refused:
                        yield to_bytes({"type": "ERROR", "object": refused.status})
                        return
                    for number, event in events:
                        if number <= told:
                            yield to_bytes(event)
                            version = number
                    version = max(version, told)
                until = min(bookmark, end - REFRESH_S if loop.time() < end - REFRESH_S else end)
                try:
                    async with asyncio.timeout_at(until):
                        await has_news.wait()
                except TimeoutError:
                    bookmark = loop.time() + BOOKMARK_S
                    if loop.time() < end and not self.faults.is_silent:
                        yield to_bytes(self._make_bookmark(request, version))
                if self.faults.is_cut:
                    raise Unreachable(f"GET {path}: the watch broke")
        finally:
            self._server.on_change.remove(wake)

    @staticmethod
    def _make_bookmark(request: Request, version: int) -> Json:
        obj = {"kind": request.kind.kind, "apiVersion": request.kind.api_version, "metadata": {"resourceVersion": str(version)}}
        return {"type": "BOOKMARK", "object": obj}
