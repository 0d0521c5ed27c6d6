"""What a Service is to the replicas behind it, for a machine on which no proxy routes Services: connections, one replica after the other.

Bytes are passed on as they are, TLS and all, so that a connection stays with its replica to the end. A replica gets new ones while its
readiness probe succeeds and it was not withdrawn, as an endpoint that is ready and not terminating.

One thing is not as kube-proxy does it: where nobody listens any more (connection refused) the next replica is tried at once, and the one
that refused is left out until its probe succeeds. With a real Service an API server is refused as long as the endpoint of a replica that
was killed is there, which is a second or so. `refused` counts how often that would have been.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from e2e.process import trust_anybody

HOST = "127.0.0.1"
_CHUNK = 65536
_SMALLEST_REQUEST = 64  # bytes; what says farewell in TLS is shorter
_FAREWELL_S = 1.0
_LATE = 3  # probes in a row, as a Deployment's failureThreshold
_TURNS, _LOOK_S = 20, 0.05


@dataclass(eq=False)
class _Replica:
    port: int
    is_ready: bool = False
    is_withdrawn: bool = False


class _Connection:
    """`waits`: the replica was asked, and has not answered; `has_ended`: it has closed the connection, and `is_broken` if it should not."""

    def __init__(self) -> None:
        self._waits = self.has_ended = self.is_broken = False

    async def ask(self, client: asyncio.StreamReader, replica: asyncio.StreamWriter) -> None:
        while chunk := await client.read(_CHUNK):
            if len(chunk) >= _SMALLEST_REQUEST:
                self._waits = True
                self.is_broken = self.has_ended
            with contextlib.suppress(OSError):  # that it has ended is noticed by who reads its answers
                replica.write(chunk)
                await replica.drain()

    async def answer(self, replica: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await replica.read(_CHUNK):
                self._waits = False
                client.write(chunk)
                await client.drain()
        self.has_ended, self.is_broken = True, self._waits


class Balancer:
    """Listens on a port of 127.0.0.1 in a thread of its own. `probe_s` is how often readiness is asked for; one failure is
    enough, or three probes in a row that are not answered in time.
    """

    def __init__(self, ports: Sequence[int], *, path: str = "/readyz", probe_s: float = 0.25) -> None:
        self._replicas = [_Replica(port) for port in ports]
        self._path, self._probe_s = path, probe_s
        self._turns = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.WriteTransport] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), name="balancer")
        self.passed: list[int] = [0 for _ in ports]
        """Connections by replica."""
        self.broken: list[int] = [0 for _ in ports]
        """Connections that a replica closed while it was being asked, or with a request on its way, by replica."""
        self.refused = 0
        self.turned_away = 0
        """Connections for which no replica was ready."""
        self.port = 0

    def __enter__(self) -> Balancer:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def withdraw(self, number: int, *, back: bool = False) -> None:
        """As when a pod is deleted: no new connections, whatever its probe says; what is open stays."""
        self._replicas[number].is_withdrawn = not back

    def is_ready(self, number: int) -> bool:
        replica = self._replicas[number]
        return replica.is_ready and not replica.is_withdrawn

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, HOST, 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        probing = [asyncio.create_task(self._probe(replica)) for replica in self._replicas]
        await self._stop.wait()
        server.close()
        # Nobody is cancelled: a task that has not begun, or a handshake in its first turn, would leave its connection open.
        await asyncio.gather(*probing)
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for transport in self._open:
                transport.abort()
            await asyncio.wait(left, timeout=_LOOK_S)
        for _ in range(_TURNS):  # a socket is closed by the loop, some turns later
            await asyncio.sleep(0)

    # --- connections --------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._opened(writer), contextlib.suppress(OSError):
            await self._pass(reader, writer)

    @contextlib.contextmanager
    def _opened(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._open.add(writer.transport)
        try:
            yield
        finally:
            self._open.discard(writer.transport)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = await self._connect()
        if found is None:
            return
        number, from_replica, to_replica = found
        self.passed[number] += 1
        connection = _Connection()
        with self._opened(to_replica):
            asking = asyncio.create_task(connection.ask(reader, to_replica))
            answering = asyncio.create_task(connection.answer(from_replica, writer))
            await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
            if connection.has_ended and not asking.done():
                with contextlib.suppress(OSError):
                    writer.write_eof()
                await asyncio.wait({asking}, timeout=_FAREWELL_S)
            for pump in (asking, answering):
                pump.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)
            self.broken[number] += connection.is_broken

    async def _connect(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter] | None:
        """To the replica whose turn it is; None where there is none."""
        first = next(self._turns)
        for turn in range(len(self._replicas)):
            number = (first + turn) % len(self._replicas)
            if not self.is_ready(number):
                continue
            try:
                return number, *await asyncio.open_connection(HOST, self._replicas[number].port)
            except ConnectionRefusedError:
                self._replicas[number].is_ready = False
                self.refused += 1
            except OSError:  # it ended between the one and the other
                self.broken[number] += 1
                return None
        self.turned_away += 1
        return None

    # --- readiness ----------------------------------------------------------------------------------

    async def _probe(self, replica: _Replica) -> None:
        anybody = trust_anybody()
        request = f"GET {self._path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
        late = 0
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(2):
                    reader, writer = await asyncio.open_connection(HOST, replica.port, ssl=anybody)
                    try:
                        writer.write(request)
                        replica.is_ready = b" 200 " in await reader.readline()
                        late = 0
                    finally:
                        writer.transport.abort()
            except TimeoutError:  # which is an OSError; the machine is busy
                late += 1
                replica.is_ready = replica.is_ready and late < _LATE
            except OSError:
                replica.is_ready = False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._probe_s)
