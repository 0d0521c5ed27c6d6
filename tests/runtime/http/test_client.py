"""The client against a real HTTP server on this machine that answers what it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import aclosing
from threading import Thread
from typing import Any

import pytest
from aiohttp import web

from core.runtime.http import errors
from core.runtime.http.client import Client, Obj, PatchKind, Resource
from core.runtime.http.transport import Endpoint, LineSplitter, Transport
from tests.runtime.fakes import CONFIG_MAP, connect_to, make_obj

LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NODE = Resource("", "v1", "nodes", "Node", namespaced=False)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers with `handlers` in turn, the last for ever, and remembers what it was asked."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.seen: list[tuple[str, str, dict[str, str], Any, str]] = []
        self.url = ""

    def answer(self, *bodies: Any) -> None:
        for body in bodies:
            self.handlers.append(_json(body))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body = json.loads(data) if data else None
        self.seen.append((request.method, request.path, dict(request.query), body, request.headers.get("Content-Type", "")))
        handler = self.handlers.pop(0) if len(self.handlers) > 1 else self.handlers[0]
        return await handler(request)


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def failure(code: int, reason: str, **headers: str) -> Handler:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _json({"kind": "Status", "code": code, "reason": reason, "message": reason}, code, named)


@pytest.fixture
def server() -> Iterator[Server]:
    """In a thread with a loop of its own: its tasks per connection are not the test's."""
    server = Server()

    async def serve(started: Future[None], stop: asyncio.Event) -> None:
        app = web.Application(client_max_size=2**20)
        app.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set_result(None)
        await stop.wait()
        await runner.cleanup()

    with asyncio.Runner() as runner:
        loop, stop, started = runner.get_loop(), asyncio.Event(), Future[None]()
        thread = Thread(target=runner.run, args=(serve(started, stop),))
        thread.start()
        started.result(10)
        yield server
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with connect_to(server.url, token="secret", timeout_s=2.0) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (CONFIG_MAP.build_path(), "/api/v1/configmaps"),
        (CONFIG_MAP.build_path("ns", "a"), "/api/v1/namespaces/ns/configmaps/a"),
        (LEASE.build_path("ns", "a", "status"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a/status"),
        (NODE.build_path("ignored", "n"), "/api/v1/nodes/n"),
        (NODE.build_path(None, "system:x/../y"), "/api/v1/nodes/system:x%2F..%2Fy"),
    ],
)
def test_paths(path: str, wanted: str):
    assert path == wanted


def test_a_namespaced_object_cannot_be_named_without_its_namespace():
    with pytest.raises(ValueError, match="namespace"):
        CONFIG_MAP.build_path(None, "a")


async def test_client_reports_objects_of_server_answers_at_once(server: Server, client: Client):
    obj, told = make_obj("a", 1), list[tuple[Resource, Obj, str | None]]()
    client.on_reply = lambda *reply: told.append(reply)
    server.answer(obj)
    assert await client.get(CONFIG_MAP, "a", "ns") == obj
    await client.create(CONFIG_MAP, obj)
    await client.replace(CONFIG_MAP, obj)
    await client.apply(CONFIG_MAP, "a", "ns", {}, field_manager="me")
    assert told == [(CONFIG_MAP, obj, manager) for manager in (None, None, None, "me")]
    await client.delete(CONFIG_MAP, "a", "ns")
    server.handlers.clear()
    server.answer({**obj, "kind": "Scale"})
    await client.get(CONFIG_MAP, "a", "ns")
    assert len(told) == 4, "these are no state of the object"


async def test_client_sends_the_right_request_for_each_verb(server: Server, client: Client):
    obj = make_obj("a", 1)
    server.answer(obj)
    told: list[tuple[str, str, str | None]] = []
    client.on_request = lambda verb, resource, subresource: told.append((verb, str(resource), subresource))
    path = "/api/v1/namespaces/ns/configmaps"
    assert await client.get(CONFIG_MAP, "a", "ns") == obj
    await client.create(CONFIG_MAP, obj, field_manager="me")
    await client.replace(CONFIG_MAP, obj)
    await client.patch(CONFIG_MAP, "a", "ns", [{"op": "remove", "path": "/x"}], kind=PatchKind.JSON)
    await client.apply(CONFIG_MAP, "a", "ns", {"data": {"x": "y"}}, field_manager="me", subresource="status")
    await client.delete(CONFIG_MAP, "a", "ns", uid="u", resource_version="7")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y"}, "metadata": {"name": "a"}}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u", "resourceVersion": "7"}}
    assert server.seen == [
        ("GET", f"{path}/a", {}, None, ""),
        ("POST", path, {"fieldManager": "me"}, obj, "application/json"),
        ("PUT", f"{path}/a", {}, obj, "application/json"),
        ("PATCH", f"{path}/a", {}, [{"op": "remove", "path": "/x"}], "application/json-patch+json"),
        ("PATCH", f"{path}/a/status", {"fieldManager": "me", "force": "true"}, applied, "application/apply-patch+yaml"),
        ("DELETE", f"{path}/a", {}, options, "application/json"),
    ]
    assert told == [
        ("get", "configmaps", None),
        ("create", "configmaps", None),
        ("update", "configmaps", None),
        ("patch", "configmaps", None),
        ("patch", "configmaps", "status"),
        ("delete", "configmaps", None),
    ]


async def test_credentials_and_name_go_with_every_request(server: Server, client: Client):
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.headers["User-Agent"] == "topogate"
        return web.json_response({})

    server.handlers.append(answer)
    assert await client.request_raw("GET", "/version") == b"{}"


def page(*names: str, version: str = "9", token: str = "") -> dict[str, Any]:
    items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in names]
    return {"metadata": {"resourceVersion": version, "continue": token}, "items": items}


async def test_a_list_reads_all_pages_and_completes_its_items(server: Server, client: Client):
    server.answer(page("a", "b", token="t1"), page("c"))
    found = await client.list(CONFIG_MAP, "ns", field_selector="x=y", limit=2)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b", "c"]
    assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "ConfigMap")}
    assert found.resource_version == "9"
    assert [query for _, _, query, _, _ in server.seen] == [
        {"limit": "2", "fieldSelector": "x=y"},
        {"limit": "2", "fieldSelector": "x=y", "continue": "t1"},
    ]


async def test_a_stale_continue_token_starts_over_in_one_piece(server: Server, client: Client):
    server.handlers = [_json(page("a", token="t1")), failure(410, "Expired"), _json(page("b", "c", version="12"))]
    found = await client.list(CONFIG_MAP, "ns", limit=1)
    assert [item["metadata"]["name"] for item in found.items] == ["b", "c"]
    assert found.resource_version == "12"
    assert server.seen[-1][2] == {}


async def test_a_list_of_null_is_empty(server: Server, client: Client):
    server.answer({"metadata": {}, "items": None})
    assert (await client.list(CONFIG_MAP)).items == []


async def test_errors_are_typed(server: Server, client: Client):
    server.handlers = [failure(404, "NotFound"), failure(409, "AlreadyExists"), _json("text"), _json({}, 302)]
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAP, "a", "ns")
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAP, make_obj("a", 1))
    with pytest.raises(errors.ServerError, match="not a JSON object"):
        await client.get(CONFIG_MAP, "a", "ns")
    with pytest.raises(errors.KubeError):
        await client.get(CONFIG_MAP, "a", "ns")


async def test_too_many_requests_answer_is_retried_after_the_given_time_for_safe_requests(server: Server, client: Client):
    server.handlers = [failure(429, "TooManyRequests", Retry_After="0"), failure(429, "TooManyRequests", Retry_After="0"), _json(page("a"))]
    assert len((await client.list(CONFIG_MAP)).items) == 1
    server.seen.clear()
    server.handlers = [failure(429, "TooManyRequests", Retry_After="0")]
    with pytest.raises(errors.TooManyRequests):
        await client.apply(CONFIG_MAP, "a", "ns", {}, field_manager="me")
    assert len(server.seen) == 4, "three retries, no more"
    server.seen.clear()
    with pytest.raises(errors.TooManyRequests):
        await client.create(CONFIG_MAP, make_obj("a", 1))
    assert len(server.seen) == 1, "a create is not repeated"


async def test_a_long_retry_after_is_left_to_the_caller(server: Server, client: Client):
    server.handlers = [failure(429, "TooManyRequests", Retry_After="60")]
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(CONFIG_MAP, "a", "ns")
    assert caught.value.retry_after == 60
    assert len(server.seen) == 1


async def test_client_without_a_server_or_an_answer_raises_unreachable(server: Server):
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 1000
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with connect_to("http://127.0.0.1:1", timeout_s=0.2) as client:
        with pytest.raises(errors.Unreachable):
            await client.get(CONFIG_MAP, "a", "ns")
    async with connect_to(server.url, timeout_s=0.2) as client:
        server.handlers = [never]
        with pytest.raises(errors.Unreachable, match=r"within 0\.2 s"):
            await client.get(CONFIG_MAP, "a", "ns")
        with pytest.raises(errors.Unreachable, match="not answered"):
            await read_all(client)
        server.handlers = [cut]
        with pytest.raises(errors.Unreachable, match="broke off"):
            await client.get(CONFIG_MAP, "a", "ns")


async def read_all(client: Client) -> list[Any]:
    async with aclosing(client.watch(CONFIG_MAP, "ns", resource_version="5", timeout_seconds=60)) as events:
        return [event async for event in events]


def stream(*chunks: bytes, end: str = "close") -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if end == "abort":
            assert request.transport is not None
            request.transport.abort()
        if end == "hang":
            await asyncio.sleep(30)
        return response

    return answer


def line(**event: Any) -> bytes:
    return json.dumps(event).encode() + b"\n"


async def test_a_watch_yields_events_however_they_are_chunked(server: Server, client: Client):
    whole = b"".join(line(type="ADDED", object={"n": number}) for number in range(5))
    for size in (1, 7, 1000):
        server.handlers = [stream(*(whole[at : at + size] for at in range(0, len(whole), size)))]
        assert [event["object"]["n"] for event in await read_all(client)] == list(range(5))
    assert server.seen[-1][2] == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "5", "timeoutSeconds": "60"}


async def test_a_line_of_many_megabytes_is_an_event_like_any_other(server: Server, client: Client):
    big = "x" * (33 * 2**20)
    server.handlers = [stream(line(type="ADDED", object={"big": big}), line(type="DELETED", object={}))]
    first, second = await read_all(client)
    assert first["object"]["big"] == big
    assert second["type"] == "DELETED"


async def test_interrupted_watch_yields_its_events_then_raises_unreachable(server: Server, client: Client):
    server.handlers = [stream(line(type="ADDED", object={}), b'{"type":"ADD', end="abort")]
    seen: list[Any] = []
    with pytest.raises(errors.Unreachable):  # noqa: PT012
        async with aclosing(client.watch(CONFIG_MAP, "ns", resource_version="5", timeout_seconds=60)) as events:
            async for event in events:
                seen.append(event)
    assert len(seen) == 1


async def test_a_watch_refused_is_typed(server: Server, client: Client):
    server.handlers = [failure(410, "Expired")]
    with pytest.raises(errors.Gone):
        await read_all(client)


async def test_a_watch_that_is_given_up_leaves_no_connection_behind(server: Server, client: Client):
    server.handlers = [stream(line(type="ADDED", object={}), end="hang")]
    with pytest.raises(TimeoutError):  # noqa: PT012
        async with asyncio.timeout(0.3), aclosing(client.watch(CONFIG_MAP, resource_version="1", timeout_seconds=60)) as events:
            async for event in events:
                assert event["type"] == "ADDED"
    connector = client._transport._session.connector
    assert connector is not None
    assert not connector._acquired


async def test_a_broken_line_is_a_server_error(server: Server, client: Client):
    server.handlers = [stream(b"<html>\n")]
    with pytest.raises(errors.ServerError):
        await read_all(client)


def test_a_line_without_end_is_given_up():
    splitter = LineSplitter(max_line_bytes=10)
    assert splitter.feed(b"12345\n678") == [b"12345"]
    with pytest.raises(errors.ServerError):
        splitter.feed(b"90123456")


async def test_rejected_credentials_are_read_anew_once(server: Server, tmp_path: Any):
    async def guarded(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") == "Bearer new":
            return web.json_response({})
        return web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401)

    server.handlers = [guarded]
    token = tmp_path / "token"
    token.write_text("old\n")
    kubeconfig = tmp_path / "config"
    user = {"name": "u", "user": {"tokenFile": str(token)}}
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": server.url}}],
                "users": [user],
            }
        )
    )
    async with await Client.connect(str(kubeconfig), user_agent="test") as client:
        token.write_text("new\n")
        await asyncio.gather(*(client.request_raw("GET", "/version") for _ in range(5)))
        token.write_text("wrong\n")
        client._transport._reloaded_at = 0
        assert await client.request_raw("GET", "/version") == b"{}"


async def test_request_after_a_reload_has_no_credentials_of_the_load_before(server: Server, tmp_path: Any):
    seen: list[tuple[str, str | None, str | None]] = []

    async def record(request: web.Request) -> web.StreamResponse:
        seen.append((request.path, request.headers.get("Authorization"), request.headers.get("Impersonate-User")))
        return web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401 if request.path.startswith("/old/") else 200)

    def write(place: str, user: dict[str, str]) -> None:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": f"{server.url}/{place}"}}],
            "users": [{"name": "u", "user": user}],
        }
        kubeconfig.write_text(json.dumps(config))

    server.handlers = [record]
    kubeconfig = tmp_path / "config"
    write("old", {"token": "old", "as": "weak"})
    async with await Client.connect(str(kubeconfig), user_agent="test") as client:
        write("new", {})
        await client.request_raw("GET", "/version")
    assert seen == [("/old/version", "Bearer old", "weak"), ("/new/version", None, None)]


async def test_request_that_waits_for_its_token_during_a_reload_mixes_no_two_loads(server: Server):
    seen: list[tuple[str, str | None]] = []

    async def record(request: web.Request) -> web.StreamResponse:
        seen.append((request.path, request.headers.get("Authorization")))
        return web.json_response({})

    async def authorize() -> str:
        transport._endpoint = Endpoint(f"{server.url}/new")  # as by the reload of another request
        return "Bearer old"

    server.handlers = [record]
    transport = Transport(Endpoint(f"{server.url}/old", authorize=authorize), user_agent="test")
    async with Client(transport) as client:
        await client.request_raw("GET", "/version")
    assert seen == [("/old/version", "Bearer old")]


async def test_impersonation_of_a_kubeconfig_is_on_every_request(server: Server, tmp_path: Any):
    seen: list[tuple[str, list[str], list[str]]] = []

    async def record(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.headers.getall("Impersonate-User", []), request.headers.getall("Impersonate-Group", [])))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    server.handlers = [record]
    kubeconfig = tmp_path / "config"
    user = {"token": "t", "as": "dev", "as-groups": ["developers", "team-a"]}
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    async with await Client.connect(str(kubeconfig), user_agent="test") as client:
        await client.list(NODE)
        await client.patch(CONFIG_MAP, "a", "ns", {}, kind=PatchKind.MERGE)
        async with aclosing(client.watch(NODE, resource_version="1", timeout_seconds=1)) as events:
            async for _ in events:
                break
    assert [method for method, *_ in seen] == ["GET", "PATCH", "GET"]
    assert all((user, groups) == (["dev"], ["developers", "team-a"]) for _, user, groups in seen)


# An administrator's CRD or a ResourceClaim has room for JSON of any form, which API servers accept up to 10,000 levels.


@pytest.mark.parametrize("depth", [1_100, 9_990])
async def test_list_with_an_object_of_many_nested_levels_is_read(server: Server, client: Client, depth: int):
    deep = '{"a":' * depth + "1" + "}" * depth
    metadata = '{"name":"deep","namespace":"ns","resourceVersion":"1"}'
    body = f'{{"metadata":{{"resourceVersion":"7"}},"items":[{{"metadata":{metadata},"spec":{deep}}}]}}'

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body, content_type="application/json")

    server.handlers.append(answer)
    page = await client.list_page(CONFIG_MAP, "ns")
    assert [obj["metadata"]["name"] for obj in page.items] == ["deep"]


async def test_answer_with_more_levels_than_any_api_server_accepts_is_an_error_of_the_server(server: Server, client: Client):
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text='{"a":' * 50_000 + "1" + "}" * 50_000, content_type="application/json")

    server.handlers.append(answer)
    with pytest.raises(errors.ServerError, match="not JSON"):
        await client.get(CONFIG_MAP, "ns", "a")
