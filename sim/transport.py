"""What a process sends to the API server in memory, and what comes back; and what may go wrong on the way."""

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from core.runtime.http.errors import KubeError, NotLeading, Unreachable, build_error
from core.runtime.http.transport import Fence, Transport
from sim.apiserver.routes import find_request, find_served, handle_request
from sim.apiserver.server import Refused, Request, Server, to_bytes
from sim.loop import NOBODY, Process

Json = dict[str, Any]
LATENCY_S, TIMEOUT_S = 0.001, 30.0
REFRESH_S, BOOKMARK_S = 2.0, 60.0  # before the end of a stream, and between two bookmarks
LATE_S = 1.0  # after which a watch that is late is looked at again


@dataclass(slots=True)
class Faults:
    """What goes wrong between one process and the API server, by chance; 0 is never."""

    chance: random.Random
    lost_request: float = 0.0  # it does not arrive
    lost_answer: float = 0.0  # it is carried out, and nobody is told
    shed: float = 0.0  # 429
    is_slow: float = 0.0  # it takes seconds
    eviction_s: float = 0.0  # by how much an eviction arrives later than it is sent; not by chance
    dies: float = 0.0  # the process ends before a write, or after it
    is_silent: bool = False  # watches deliver nothing
    is_cut: bool = False  # nothing arrives at all
    late_s: dict[str, float] = field(default_factory=dict)  # by plural of a resource: by how much an open watch of it is behind

    def end(self) -> None:
        """From now on nothing goes wrong."""
        self.lost_request = self.lost_answer = self.shed = self.is_slow = self.eviction_s = self.dies = 0.0
        self.is_silent = self.is_cut = False
        self.late_s.clear()

    def find_delay(self, request: Request) -> float:
        """By how many seconds a watch is behind now; infinite where it delivers nothing."""
        return inf if self.is_silent else self.late_s.get(request.kind.plural, 0.0)


@dataclass(frozen=True, slots=True)
class Sender:
    """The process that sends: as whom, and what is done when it dies, when it sends a write, and before and after that is carried
    out. What it had sent arrives nevertheless. Both of the latter may raise what comes in place of the answer."""

    user: str
    process: Process | None = None
    die: Callable[[], None] = lambda: None
    on_send: Callable[[Request], None] = lambda _: None
    on_write: Callable[[Request], None] = lambda _: None
    before_write: Callable[[Request], None] = lambda _: None


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
        if method == "GET" and (served := find_served(self._server, path)) is not None:
            await asyncio.sleep(delay)
            return to_bytes(served)
        try:
            request = find_request(self._server, method, path, params or {}, body, content_type, self._sender.user)
        except Refused as refused:
            raise _explain(refused) from refused
        if request.verb not in ("get", "list"):
            self._sender.on_send(request)
            delay += faults.eviction_s if _is_eviction(request) else 0.0
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
        result: bytes | Exception
        try:
            if chance.random() < faults.shed:
                raise Refused(429, "TooManyRequests", "too many requests, please try again later", retryAfterSeconds=1)
            if is_write:
                self._sender.before_write(request)
            answered = handle_request(self._server, request)
            if request.verb == "list":
                result = self._server.write_list(answered)
            else:
                result = self._server.to_bytes(answered) if "name" in answered["metadata"] else to_bytes(answered)
            if is_write:
                self._sender.on_write(request)
        except Refused as refused:
            result = _explain(refused)
        except Exception as error:  # raised by `before_write` or `on_write`
            result = error
        if is_write and self._dies():
            return
        if chance.random() < faults.lost_answer:
            result = Unreachable("the answer broke off")
        answer.get_loop().call_later(LATENCY_S * chance.random(), _tell, answer, result, context=NOBODY)

    def _dies(self) -> bool:
        process = self._sender.process
        if process is not None and not process.is_dead and self.faults.chance.random() < self.faults.dies:
            self._sender.die()
        return self._is_dead()

    def _is_dead(self) -> bool:
        return self._sender.process is not None and self._sender.process.is_dead

    async def read_lines(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
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
        bookmark, news = loop.time() + BOOKMARK_S, _News(loop)
        told, to_tell = self._server.version, deque[tuple[float, int]]()  # what there is when a stream is opened is late only if all is

        def wake() -> None:
            to_tell.append((loop.time(), self._server.version))
            news.set()

        self._server.watchers[request.kind.resource].append(wake)
        now = loop.time()
        try:
            while now < end:
                if self._is_dead():  # what it would have been told while it lived no longer is nobody's business
                    return
                news.clear()
                late_s = self.faults.find_delay(request)
                while to_tell and to_tell[0][0] + late_s <= loop.time() + LATENCY_S:
                    told = to_tell.popleft()[1]
                if not to_tell:
                    told = self._server.version
                if late_s < inf:
                    try:
                        events = self._server.read_changes(request, version)
                    except Refused as refused:
                        yield to_bytes({"type": "ERROR", "object": refused.status})
                        return
                    for number, event in events:
                        if number <= told:
                            yield b'{"type":"%s","object":%s}' % (event["type"].encode(), self._server.to_bytes(event["object"]))
                            version = number
                    version = max(version, told)
                due = min(bookmark, end - REFRESH_S if now < end - REFRESH_S else end)
                until = min(due, now + LATE_S) if late_s else due
                is_early = await news.wait_until(until)
                now = loop.time() if is_early else max(loop.time(), until)  # other loops call a timer early, by a rounding error
                if not is_early:
                    if due <= now < end and self.faults.find_delay(request) < inf:
                        yield to_bytes(self._make_bookmark(request, version))
                    bookmark = now + BOOKMARK_S if due <= now else bookmark
                if self.faults.is_cut:
                    raise Unreachable(f"GET {path}: the watch broke")
        finally:
            self._server.watchers[request.kind.resource].remove(wake)

    @staticmethod
    def _make_bookmark(request: Request, version: int) -> Json:
        obj = {"kind": request.kind.kind, "apiVersion": request.kind.api_version, "metadata": {"resourceVersion": str(version)}}
        return {"type": "BOOKMARK", "object": obj}


class _News:
    """What a watch waits for: as `asyncio.Event` within `asyncio.timeout_at`, at less cost."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._is_set, self._is_late = loop, False, False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """There are some."""
        self._is_set = True
        self._wake()

    def clear(self) -> None:
        """They have been read."""
        self._is_set = False

    async def wait_until(self, when: float) -> bool:
        """Whether there are some before a time."""
        self._is_late = False
        end = self._loop.call_at(when, self._end) if when > self._loop.time() else self._loop.call_soon(self._end)
        try:
            if not self._is_set:
                self._waiter = self._loop.create_future()
                await self._waiter
        finally:
            self._waiter = None
            end.cancel()
        return not self._is_late

    def _end(self) -> None:
        self._is_late = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _is_eviction(request: Request) -> bool:
    conditions = ((request.body or {}).get("status") or {}).get("conditions") or ()
    return request.kind.plural == "workloads" and any((each["type"], each["status"]) == ("Evicted", "True") for each in conditions)


def _tell(answer: asyncio.Future[bytes], result: bytes | Exception) -> None:
    if answer.done():
        return
    if isinstance(result, bytes):
        answer.set_result(result)
    else:
        answer.set_exception(result)


def _explain(refused: Refused) -> KubeError:
    return build_error(refused.code, json.dumps(refused.status).encode())
