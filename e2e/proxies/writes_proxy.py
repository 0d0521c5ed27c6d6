"""A proxy before the API server that counts a client's writes, and can end the client at any of them.

So a process is killed at an exact point between its writes without a line about it in production
code: before a write is sent on (it never happened), or after the server has answered but before the
client hears of it (it happened, and nobody remembers).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector, web

WRITES = ("POST", "PUT", "PATCH", "DELETE")
_TURNS = 20
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "host", "content-length", "content-encoding")
_OF_THE_ANSWER = ("transfer-encoding", "content-length", "connection")
_Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


@dataclass(frozen=True)
class Cut:
    """At write number `at` (from 1), before it is sent on or after it was done, call `act`; that write is never answered.

    Of the writes whose method and path match `only` (a regular expression), if it is given. With `lasting` nothing that comes after it
    is done either, whatever it is: what was sent with it may still be on its way when the client is gone.
    """

    at: int
    after: bool
    act: Callable[[], None]
    only: str = ""
    lasting: bool = False


class WritesProxy:
    """Listens on a port of 127.0.0.1 in a thread of its own; `cut` may be set at any time, counting starts anew with it."""

    def __init__(self, server: str, ca_file: Path, token: str) -> None:
        self._server, self._ca_file, self._token = server, ca_file, token
        self.writes: list[str] = []
        self._cut: Cut | None = None
        self._sent = set[asyncio.Task[_Answer]]()  # writes that were sent on, and are not answered yet
        self.has_cut = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._watched: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writes proxy")
        self.port = 0

    def cut(self, cut: Cut | None) -> None:
        """Counts from zero again."""
        self.has_cut.clear()
        self.writes.clear()
        self._cut = cut

    @property
    def is_quiet(self) -> bool:
        """Whether all writes that were sent on are done: after a lasting cut the server changes nothing any more that the client wanted."""
        return not self._sent

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig that leads through the proxy, which adds the credentials itself."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        tls = ssl.create_default_context(cafile=str(self._ca_file))
        async with ClientSession(
            connector=TCPConnector(ssl=tls, limit=0), timeout=ClientTimeout(total=None), auto_decompress=False
        ) as session:
            self._session = session
            app = web.Application(client_max_size=16 * 1024 * 1024)
            app.router.add_route("*", "/{path:.*}", self._forward)
            # Whoever asked is gone when the proxy stops: its watches are cut, not waited for.
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            self._started.set()
            await self._stop.wait()
            await runner.cleanup()
            await self._end_handlers()
        # A watch that was cut would wait for the server's farewell; and a socket is closed by the loop, some turns later.
        for transport in self._watched:
            transport.abort()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    @staticmethod
    async def _end_handlers() -> None:
        """A handler that outlives the loop would be blamed on whichever test runs when it is collected."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:  # a client that does not read keeps it open when the proxy stops
            self._watched.add(request.transport)
        cut = self._count(request.method, request.path)
        if cut is not None and not cut.after:
            return self._answer(cut, request)
        if request.method in WRITES:
            # Done to its end, though who sent it may be gone meanwhile: as a server does with what it was sent.
            sending = asyncio.ensure_future(self._send(request))
            self._sent.add(sending)
            sending.add_done_callback(self._is_done)
            status, headers, content = await asyncio.shield(sending)
            if cut is not None:
                return self._answer(cut, request)
            return web.Response(status=status, headers=headers, body=content)
        async with self._session.request(request.method, self._server + request.raw_path, headers=self._headers(request)) as answer:
            self._watch(answer)
            reply = web.StreamResponse(status=answer.status, headers=_get_headers(answer))
            with contextlib.suppress(ConnectionError):
                await reply.prepare(request)
                async for chunk in answer.content.iter_any():
                    await reply.write(chunk)
                await reply.write_eof()
            return reply

    async def _send(self, request: web.Request) -> _Answer:
        body = await request.read()
        address = self._server + request.raw_path
        async with self._session.request(request.method, address, headers=self._headers(request), data=body or None) as answer:
            self._watch(answer)
            return answer.status, _get_headers(answer), await answer.read()

    def _is_done(self, sending: asyncio.Task[_Answer]) -> None:
        self._sent.discard(sending)
        if not sending.cancelled():
            sending.exception()  # who waits for it has it, if anybody does

    def _headers(self, request: web.Request) -> dict[str, str]:
        kept = {key: value for key, value in request.headers.items() if key.lower() not in _HOP_BY_HOP}
        return {**kept, "Authorization": f"Bearer {self._token}"}

    def _watch(self, answer: ClientResponse) -> None:
        if answer.connection is not None and answer.connection.transport is not None:
            self._watched.add(answer.connection.transport)

    def _count(self, method: str, path: str) -> Cut | None:
        if method not in WRITES:
            return None
        write = f"{method} {path}"
        self.writes.append(write)
        if self._cut is not None and self._cut.lasting and self.has_cut.is_set():
            return self._cut
        if self._cut is None or not re.search(self._cut.only, write):
            return None
        matching = sum(bool(re.search(self._cut.only, written)) for written in self.writes)
        return self._cut if matching == self._cut.at else None

    def _end(self, cut: Cut) -> None:
        if not self.has_cut.is_set():
            cut.act()
            self.has_cut.set()

    def _answer(self, cut: Cut, request: web.Request) -> web.StreamResponse:
        self._end(cut)
        if request.transport is not None:
            request.transport.close()
        return web.Response(status=503)


def _get_headers(answer: ClientResponse) -> dict[str, str]:
    return {key: value for key, value in answer.headers.items() if key.lower() not in _OF_THE_ANSWER}
