"""Takes new connections of a port, and begins few TLS handshakes of a client at once.

An API server gives a request to whichever connection is free first, opens another one where none is, and keeps 25. If requests come faster
than they are answered, it opens hundreds: most handshakes are for nothing, and each is as dear as a review. Those that have not begun cost
nothing, and become fewer as others get on.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Never

from aiohttp import web
from yarl import URL

from core.runtime.serving.connections import Connections
from core.runtime.serving.shared_limits import allow_files

logger = logging.getLogger(__name__)
AT_ONCE = 4
"""Handshakes of a client, by address, that are under way."""
STANDS_STILL_S = 3.0
"""A handshake that takes longer leaves its place to another one of the client, and goes on."""
CLIENT_WAITS_S = 10.0
"""No API server waits longer for a handshake: a connection that has waited for so long is closed when its turn comes."""
MOST_WAITING = 2_048
"""Connections of all clients that have not begun their handshake, each a file and a kilobyte; fewer where so many files are not allowed."""
_OTHER_FILES = 768  # connections that have begun, and all else
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_AGAIN_S = 1.0  # after an error of the system, as asyncio has it


@dataclass(slots=True)
class _Client:
    waiting: deque[tuple[socket.socket, float]] = field(default_factory=deque)  # with the time of acceptance, the oldest first
    begun: int = 0


class PacedSite(web.BaseSite):
    """As `web.SockSite`, of a socket that `Connections.listen` has given. Connections are counted there from the handshake on."""

    def __init__(
        self, runner: web.BaseRunner, listening: socket.socket, connections: Connections, *, ssl_context: ssl.SSLContext | None
    ) -> None:
        super().__init__(runner, ssl_context=ssl_context, backlog=512)
        self._listening, self._connections = listening, connections
        self._clients = dict[str, _Client]()  # that wait, or have begun
        self._waiting, self._most_waiting = 0, MOST_WAITING
        self._tasks = set[asyncio.Task[object]]()

    @property
    def name(self) -> str:
        """The address as a URL."""
        host, port = self._listening.getsockname()[:2]
        return str(URL.build(scheme="https" if self._ssl_context else "http", host=host, port=port))

    async def start(self) -> None:
        """Listens from now on, and lets the process have as many open files as that may take. Raises OSError."""
        await super().start()
        self._most_waiting = max(1, min(MOST_WAITING, allow_files(MOST_WAITING + _OTHER_FILES) - _OTHER_FILES))
        self._listening.setblocking(False)
        self._listening.listen(self._backlog)
        self._begin(self._accept_all())

    async def stop(self) -> None:
        """Closes the port, and connections without a finished handshake."""
        for client in self._clients.values():
            for accepted, _ in client.waiting:
                accepted.close()
            client.waiting.clear()
        for task in (running := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._listening.close()
        await super().stop()

    def _begin(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_all(self) -> Never:
        """Nothing that goes wrong with one connection keeps others out."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._add(*await loop.sock_accept(self._listening))
                for _ in range(self._backlog):
                    accepted, address = self._listening.accept()
                    accepted.setblocking(False)
                    self._add(accepted, address)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    logger.warning("no connection can be accepted", extra={"error": str(error)})
                    await asyncio.sleep(_AGAIN_S)

    def _add(self, accepted: socket.socket, address: tuple[object, ...]) -> None:
        name = str(address[0])
        client = self._clients.setdefault(name, _Client())
        if self._waiting >= self._most_waiting:  # the oldest of the client with most has the least to lose
            max(self._clients.values(), key=lambda each: len(each.waiting)).waiting.popleft()[0].close()
            self._waiting -= 1
        client.waiting.append((accepted, asyncio.get_running_loop().time()))
        self._waiting += 1
        self._begin_waiting(name, client)

    def _begin_waiting(self, name: str, client: _Client) -> None:
        now = asyncio.get_running_loop().time()
        while client.waiting and client.begun < AT_ONCE:
            accepted, since = client.waiting.popleft()
            self._waiting -= 1
            if now - since > CLIENT_WAITS_S or not self._connections.add(accepted, name):
                accepted.close()
                continue
            client.begun += 1
            self._begin(self._serve(name, client, accepted))
        if not client.waiting and not client.begun:
            self._clients.pop(name, None)

    async def _serve(self, name: str, client: _Client, accepted: socket.socket) -> None:
        """Returns at the end of the handshake."""
        loop, server = asyncio.get_running_loop(), self._runner.server
        assert server is not None
        stands_still = loop.call_later(STANDS_STILL_S, self._leave_place, name, client)
        try:
            with suppress(OSError):  # of a client that has gone, or speaks otherwise
                await loop.connect_accepted_socket(server, accepted, ssl=self._ssl_context)
        except Exception:
            logger.exception("a connection could not be taken")
            accepted.close()
        finally:
            if loop.time() < stands_still.when():
                stands_still.cancel()
                self._leave_place(name, client)

    def _leave_place(self, name: str, client: _Client) -> None:
        client.begun -= 1
        self._begin_waiting(name, client)
