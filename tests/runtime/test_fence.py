"""Writes of a leader: none is sent once its lease is over, and none waits for its answer longer than that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from core.runtime.http import errors
from core.runtime.http.client import Client, PatchKind
from tests.runtime.fakes import CONFIG_MAP, make_obj
from tests.runtime.http.test_client import Server, client, server

__all__ = ["client", "server"]
Write = Callable[[Client], Awaitable[Any]]
OBJ = make_obj("a", 1)
WRITES: dict[str, Write] = {
    "create": lambda client: client.create(CONFIG_MAP, OBJ),
    "replace": lambda client: client.replace(CONFIG_MAP, OBJ),
    "patch": lambda client: client.patch(CONFIG_MAP, "a", "ns", {"data": {}}, kind=PatchKind.MERGE),
    "apply": lambda client: client.apply(CONFIG_MAP, "a", "ns", {"data": {}}, field_manager="me", subresource="status"),
    "delete": lambda client: client.delete(CONFIG_MAP, "a", "ns"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("left", [[0.0], [5.0, -1.0]], ids=["before", "when a connection is at hand"])
async def test_write_of_a_leader_without_lease_is_not_sent(server: Server, client: Client, write: str, left: list[float]):
    server.answer(OBJ)
    remaining = list(left)
    client.fence = lambda: remaining.pop(0) if len(remaining) > 1 else remaining[0]
    with pytest.raises(errors.NotLeading):
        await WRITES[write](client)
    assert await client.get(CONFIG_MAP, "a", "ns") == OBJ
    assert [method for method, *_ in server.seen] == ["GET"]
    client.fence = lambda: 5.0
    await WRITES[write](client)
    assert len(server.seen) == 2


async def test_write_waits_for_its_answer_no_longer_than_the_lease_lasts(server: Server, client: Client):
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    server.handlers = [never]
    client.fence = lambda: 0.2
    before = time.monotonic()
    with pytest.raises(errors.Unreachable, match=r"within 0\.2 s"):
        await client.create(CONFIG_MAP, OBJ)
    assert time.monotonic() - before < 20, "of the 30 s that the answer takes"


async def test_write_that_is_repeated_is_not_sent_again_without_lease(server: Server, client: Client):
    """The API server asks for another attempt; meanwhile the lease may have ended."""

    async def put_off(request: web.Request) -> web.StreamResponse:
        client.fence = lambda: 0.0
        body = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later"}
        return web.json_response(body, status=429, headers={"Retry-After": "0"})

    server.handlers = [put_off]
    client.fence = lambda: 5.0
    with pytest.raises((errors.NotLeading, errors.TooManyRequests)):
        await WRITES["apply"](client)
    assert len(server.seen) == 1
