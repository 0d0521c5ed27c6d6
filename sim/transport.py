"""What a process sends to the API server in memory, and what comes back; and what may go wrong on the way."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.runtime.errors import KubeError, NotLeading, Unreachable, error_for
from core.runtime.transport import Fence, Transport
from sim.loop import NOBODY, Process
from sim.routes import carry_out, find_request
from sim.server import Refused, Request, Server, to_bytes

Json = dict[str, Any]
LATENCY_S, TIMEOUT_S = 0.001, 30.0
REFRESH_S, BOOKMARK_S = 2.0, 60.0  # before the end of a stream, and between two bookmarks
LATE_S = 1.0  # after which a watch that delivers nothing is looked at again


@dataclass(slots=True)
class Faults:
    """What goes wrong between one process and the API server, by chance; 0 is never."""

    chance: random.Random
    lost_request: float = 0.0  # it does not arrive
    lost_answer: float = 0.0  # it is carried out, and nobody is told
    shed: float = 0.0  # 429
    is_slow: float = 0.0  # it takes seconds
    dies: float = 0.0  # the process ends before a write, or after it
    is_silent: bool = False  # watches deliver nothing
    lagging: str = ""  # the watch of this resource delivers nothing
    is_cut: bool = False  # nothing arrives at all

    def end(self) -> None:
        """From now on nothing goes wrong."""
        self.lost_request = self.lost_answer = self.shed = self.is_slow = self.dies = 0.0
        self.is_silent, self.lagging, self.is_cut = False, "", False

    def is_late(self, request: Request) -> bool:
        """Whether a watch delivers nothing now."""
        return self.is_silent or self.lagging == request.kind.plural


@dataclass(frozen=True, slots=True)
class Sender:
    """The process that sends: as whom, and what is done when it dies, or has written. What it had sent arrives nevertheless."""

    user: str
    process: Process | None = None
    die: Callable[[], None] = lambda: None
    on_write: Callable[[Request], None] = lambda _: None


class SimTransport(Transport):
    """One process's way to the API server."""

    def __init__(self, server: Server, sender: Sender, faults: Faults) -> None:
        self._server, self._sender, self.faults = server, sender, faults

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
        faults, chance, loop = self.faults, self.faults.chance, asyncio.get_running_loop()
        limit = TIMEOUT_S if timeout_s is None else timeout_s
        if fence is not None and (limit := min(limit, fence())) <= 0:
            raise NotLeading
        delay = LATENCY_S * (1 + chance.random()) + (chance.uniform(0, 20) if chance.random() < faults.is_slow else 0)
        is_lost = faults.is_cut or chance.random() < faults.lost_request
        if is_lost or delay >= limit:
            await asyncio.sleep(min(delay, limit))
            raise Unreachable(f"{method} {path}: {'the connection was refused' if is_lost else f'no answer within {limit:g} s'}")
        try:
            request = find_request(self._server, method, path, params or {}, body, content_type, self._sender.user)
        except Refused as refused:
            raise _explain(refused) from refused
        answer: asyncio.Future[bytes] = loop.create_future()
        loop.call_later(delay, self._arrive, request, answer, context=NOBODY)
        return await answer

    def _arrive(self, request: Request, answer: asyncio.Future[bytes]) -> None:
        """What the API server does with a request, whatever has become of the sender; nothing if the connection was closed meanwhile."""
        if answer.done():
            return
        is_write = request.verb not in ("get", "list")
        if is_write and self._dies():
            return
        chance, faults = self.faults.chance, self.faults
        result: bytes | KubeError
        try:
            if chance.random() < faults.shed:
                raise Refused(429, "TooManyRequests", "too many requests, please try again later", retryAfterSeconds=1)
            answered = carry_out(self._server, request)
            result = self._server.to_bytes(answered) if "name" in answered["metadata"] else to_bytes(answered)
        except Refused as refused:
            result = _explain(refused)
        else:
            if is_write:
                self._sender.on_write(request)
        if is_write and self._dies():
            return
        if chance.random() < faults.lost_answer:
            result = Unreachable("the answer broke off")
        answer.get_loop().call_later(LATENCY_S * chance.random(), _tell, answer, result, context=NOBODY)

    def _dies(self) -> bool:
        process = self._sender.process
        if process is not None and not process.is_dead and self.faults.chance.random() < self.faults.dies:
            self._sender.die()
        return process is not None and process.is_dead

    async def lines(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The events of a watch, with bookmarks, until its time is over."""
        await asyncio.sleep(LATENCY_S)
        if self.faults.is_cut:
            raise Unreachable(f"GET {path}: the connection was refused")
        loop = asyncio.get_running_loop()
        try:
            request = find_request(self._server, "GET", path, params, None, "", self._sender.user)
        except Refused as refused:
            raise _explain(refused) from refused
        end, version = loop.time() + float(params.get("timeoutSeconds") or 3600), int(params.get("resourceVersion") or 0)
        bookmark, has_news = loop.time() + BOOKMARK_S, asyncio.Event()
        self._server.watchers[request.kind.resource].append(has_news.set)
        try:
            while loop.time() < end:
                has_news.clear()
                if not self.faults.is_late(request):
                    try:
                        events = self._server.read_changes(request, version)
                    except Refused as refused:
                        yield to_bytes({"type": "ERROR", "object": refused.status})
                        return
                    for number, event in events:
                        yield b'{"type":"%s","object":%s}' % (event["type"].encode(), self._server.to_bytes(event["object"]))
                        version = number
                    version = max(version, self._server.version)
                until = min(bookmark, end - REFRESH_S if loop.time() < end - REFRESH_S else end)
                if self.faults.is_late(request):
                    until = min(until, loop.time() + LATE_S)
                try:
                    async with asyncio.timeout_at(until):
                        await has_news.wait()
                except TimeoutError:
                    bookmark = loop.time() + BOOKMARK_S
                    if loop.time() < end and not self.faults.is_late(request):
                        yield to_bytes(self._make_bookmark(request, version))
                if self.faults.is_cut:
                    raise Unreachable(f"GET {path}: the watch broke")
        finally:
            self._server.watchers[request.kind.resource].remove(has_news.set)

    @staticmethod
    def _make_bookmark(request: Request, version: int) -> Json:
        obj = {"kind": request.kind.kind, "apiVersion": request.kind.api_version, "metadata": {"resourceVersion": str(version)}}
        return {"type": "BOOKMARK", "object": obj}


def _tell(answer: asyncio.Future[bytes], result: bytes | KubeError) -> None:
    if answer.done():
        return
    if isinstance(result, bytes):
        answer.set_result(result)
    else:
        answer.set_exception(result)


def _explain(refused: Refused) -> KubeError:
    return error_for(refused.code, json.dumps(refused.status).encode())
