"""How new connections of a port are taken: few handshakes of a client at once, on real sockets."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from certs.pki import issue_ca, issue_serving
from core.runtime.serving import paced_site
from core.runtime.serving.connections import Connections
from core.runtime.serving.paced_site import AT_ONCE, PacedSite
from core.runtime.serving.shared_limits import allow_files
from core.runtime.serving.tls import HeldCertificate
from tests.runtime.fakes import ManualClock

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FIRST, SECOND = "127.0.0.2", "127.0.0.3"
CA = issue_ca("test", datetime.now(UTC))
SERVING = issue_serving(CA, ["localhost"], datetime.now(UTC))
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def answer(_: web.Request) -> web.Response:
    return web.Response(text="here")


@asynccontextmanager
async def open_site(*, tls: bool = True, most: int = 512) -> AsyncIterator[tuple[PacedSite, Connections, int]]:
    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    held = HeldCertificate()
    held.use_pair(SERVING.certificate, SERVING.key)
    connections = Connections(ManualClock(), most)
    listening = connections.listen("127.0.0.1", 0)
    site = PacedSite(runner, listening, connections, ssl_context=held.context if tls else None)
    await site.start()
    try:
        yield site, connections, listening.getsockname()[1]
    finally:
        await runner.cleanup()


async def connect(port: int, source: str = FIRST, *, tls: bool = True) -> Client:
    context = ssl.create_default_context(cadata=CA.certificate.decode()) if tls else None
    name = "localhost" if tls else None
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0), ssl=context, server_hostname=name)


def connect_silently(port: int, source: str = FIRST) -> socket.socket:
    """A client that begins no handshake."""
    return socket.create_connection(("127.0.0.1", port), source_address=(source, 0))


async def is_answered(client: Client) -> bool:
    """Whether an answer comes, and not the end of the connection."""
    reader, writer = client
    async with asyncio.timeout(60):
        try:
            writer.write(ASK)
            return b"200" in await reader.readline()
        except ConnectionError:
            return False


async def close(*clients: Client | socket.socket) -> None:
    for client in clients:
        if isinstance(client, socket.socket):
            client.close()
            continue
        client[1].close()
        with suppress(OSError):
            await client[1].wait_closed()


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - of another's state
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
async def test_many_connections_of_one_client_are_all_served(tls: bool) -> None:
    async with open_site(tls=tls) as (site, connections, port):
        clients = await asyncio.gather(*(connect(port, tls=tls) for _ in range(50)))
        assert all(await asyncio.gather(*(is_answered(client) for client in clients)))
        assert len(connections) == 50
        assert not site._clients
        await close(*clients)
        await wait_until(lambda: not len(connections))


async def test_few_handshakes_of_a_client_begin_and_others_wait_uncounted() -> None:
    """At 400 reviews a second an API server opened 500 connections. They were cut for new ones, and their reviews lost."""
    async with open_site() as (site, connections, port):
        silent = [connect_silently(port) for _ in range(40)]
        await wait_until(lambda: site._waiting == 40 - AT_ONCE)
        assert len(connections) == AT_ONCE
        other = await connect(port, SECOND)
        assert await is_answered(other), "another client waits for none of these"
        await close(*silent, other)


async def test_handshake_that_stands_still_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced_site, "STANDS_STILL_S", 0.01)
    async with open_site() as (_, connections, port):
        silent = [connect_silently(port) for _ in range(3 * AT_ONCE)]
        client = await connect(port)
        assert await is_answered(client)
        assert len(connections) == 3 * AT_ONCE + 1, "they may still go on"
        await close(*silent, client)


async def test_connection_that_has_waited_for_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_site() as (site, connections, port):
        silent = [connect_silently(port) for _ in range(AT_ONCE + 1)]
        await wait_until(lambda: site._waiting == 1)
        monkeypatch.setattr(paced_site, "CLIENT_WAITS_S", -1.0)
        silent[0].close()
        await wait_until(lambda: not site._waiting)
        silent[-1].setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(silent[-1], 1) == b""
        await wait_until(lambda: len(connections) == AT_ONCE - 1)
        await close(*silent)


async def test_client_with_most_waiting_connections_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced_site, "MOST_WAITING", 10)
    async with open_site() as (site, _, port):
        many = [connect_silently(port) for _ in range(AT_ONCE + 10)]
        await wait_until(lambda: site._waiting == 10)
        few = [connect_silently(port, SECOND) for _ in range(AT_ONCE + 2)]
        await wait_until(lambda: len(site._clients) == 2 and len(site._clients[SECOND].waiting) == 2)
        assert {name: len(client.waiting) for name, client in site._clients.items()} == {FIRST: 8, SECOND: 2}
        lost = many[AT_ONCE]
        lost.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(lost, 1) == b""
        await close(*many, *few)


async def test_connection_for_which_there_is_no_room_is_closed() -> None:
    async with open_site(most=1) as (_, connections, port):
        client = await connect(port)
        assert await is_answered(client)
        connections.begin(next(iter(connections._open)))
        connections.end(next(iter(connections._open)), reviewed=True)
        connections.begin(next(iter(connections._open)))
        refused = connect_silently(port)
        refused.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(refused, 1) == b""
        await close(client, refused)


async def test_end_of_the_site_closes_the_port_and_connections_that_wait() -> None:
    async with open_site() as (site, connections, port):
        silent = [connect_silently(port) for _ in range(AT_ONCE + 3)]
        await wait_until(lambda: site._waiting == 3)
    for each in silent:
        each.settimeout(60)
        with suppress(ConnectionResetError):
            assert each.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connect_silently(port)
    await wait_until(lambda: not len(connections))
    await close(*silent)


async def test_nothing_that_fails_keeps_other_connections_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(paced_site, "_AGAIN_S", 0.01)
    loop = asyncio.get_running_loop()
    accept, take = loop.sock_accept, loop.connect_accepted_socket
    fails = [OSError(errno.EMFILE, "too many open files"), OSError(errno.ECONNABORTED, "gone")]
    breaks: list[Exception] = [RuntimeError("a bug"), ConnectionResetError()] * AT_ONCE

    async def sock_accept(listening: socket.socket) -> Any:
        if fails:
            raise fails.pop(0)
        return await accept(listening)

    async def connect_accepted_socket(*args: Any, **options: Any) -> Any:
        if breaks:
            args[1].close()
            raise breaks.pop(0)
        return await take(*args, **options)

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    monkeypatch.setattr(loop, "connect_accepted_socket", connect_accepted_socket)
    with caplog.at_level(logging.WARNING):
        async with open_site() as (_, _, port):
            lost = [connect_silently(port) for _ in range(2 * AT_ONCE)]
            await wait_until(lambda: not breaks)
            client = await connect(port)
            assert await is_answered(client)
            await close(*lost, client)
    assert "no connection can be accepted" in caplog.text
    assert "a connection could not be taken" in caplog.text


def test_limit_of_open_files_is_raised_as_far_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(256, 4096), (256, 300), (5000, 5000), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)]
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: written.append(limit))
    found = []
    while limits:
        found.append(allow_files(1000))
        limits.pop(0)
    assert found == [1000, 300, 5000, 1000]
    assert written == [(1000, 4096), (300, 300)]
