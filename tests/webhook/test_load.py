"""What a flood of reviews, of half-sent bodies or of idle connections may take: memory and connections are bounded, small reviews go on."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import ClientSession, StreamReader, TCPConnector
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given

from certs import pki
from certs.pki import KeyPair
from core.runtime.serving.connections import IDLE_S, Connections
from core.runtime.serving.paced_site import PacedSite
from core.runtime.serving.shared_limits import SharedLimit, estimate_memory
from core.runtime.serving.tls import HeldCertificate, ServingCertificate
from e2e import manifests
from tests.runtime.fakes import ManualClock
from tests.webhook.asking import MUTATE_JOB, VALIDATE_JOB, Webhook, build_body, get_causes
from tests.webhook.reviews.test_misshapen import JSON
from tests.webhook.test_tls import CA, FIRST, NOW, Connection
from webhook import server as server_module
from webhook.intake import BodyTooLarge, GivenUp, Intake, NoRoom
from webhook.lookup import run_on_own_loop
from webhook.review import Reviews
from webhook.server import CONVERSION_BODIES_BYTES, LARGE_BODY_BYTES, AdmissionServer

SMALL = build_body(manifests.build_job("train", "team-a", pods=1))
LARGE = build_body(manifests.build_job("train", "team-a", pods=1, annotations={"filler": "x" * 2**20}, queue=None))


@asynccontextmanager
async def listening(
    reviews: Reviews | None = None, *, most: int = 128, client_ca: Path | None = None
) -> AsyncIterator[tuple[AdmissionServer, Connections, int]]:
    """The server as the process has it, with TLS where there is a CA of clients; and its port."""
    clock = ManualClock()
    connections = Connections(clock, most)
    server = AdmissionServer(reviews or Webhook().reviews, clock=clock, connections=connections, asks_for_certificate=client_ca is not None)
    runner = server.make_runner(shutdown_timeout_s=0.1)
    await runner.setup()
    held = HeldCertificate(client_ca)
    held.use_pair(FIRST.certificate, FIRST.key)
    bound = connections.listen("127.0.0.1", 0)
    site = PacedSite(runner, bound, connections, ssl_context=held.context if client_ca is not None else None)
    await site.start()
    try:
        yield server, connections, bound.getsockname()[1]
    finally:
        await runner.cleanup()


async def wait_until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(600):
        while not holds():  # noqa: ASYNC110 - of another's state
            await asyncio.sleep(0.005)


async def send(
    port: int, path: str, sent: bytes, length: int | None = None, more: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request of which perhaps only a part of the body is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent) if length is None else length}\r\n{more}\r\n"
    writer.write(head.encode() + sent)
    return reader, writer


async def get_status(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split()[1])


async def post(port: int, sent: bytes = SMALL, path: str = VALIDATE_JOB) -> int:
    reader, writer = await send(port, path, sent)
    status = await get_status(reader)
    writer.close()
    return status


# --- budgets --------------------------------------------------------------------------------------------------------


async def test_budget_is_granted_in_order_and_given_back() -> None:
    budget, granted = SharedLimit(10), list[str]()

    async def take(name: str, amount: int) -> None:
        await budget.wait_for(amount)
        granted.append(name)

    tasks = [asyncio.ensure_future(take(name, amount)) for name, amount in (("a", 6), ("b", 6), ("c", 1))]
    await wait_until(lambda: budget.waiting == 2)
    assert granted == ["a"], "c waits behind b, or large ones would wait for ever"
    tasks[1].cancel()
    await wait_until(lambda: granted == ["a", "c"])
    budget.give(6)
    assert (budget.used, budget.waiting) == (1, 0)
    with pytest.raises(ValueError, match="11 is more than 10"):
        await budget.wait_for(11)
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_budget_is_granted_to_clients_in_turn() -> None:
    """One client with sixty reviews kept those of the API server waiting for more than ten seconds."""
    budget, granted = SharedLimit(1), list[str]()
    await budget.wait_for(1)

    async def ask(name: str, client: str) -> None:
        await budget.wait_for(1, client)
        granted.append(name)
        budget.give(1)

    tasks = [asyncio.ensure_future(ask(*each)) for each in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"))]
    await asyncio.sleep(0)
    assert budget.waiting == 4
    budget.give(1)
    await asyncio.gather(*tasks)
    assert granted == ["a1", "b1", "a2", "a3"]
    assert (budget.used, budget.waiting) == (0, 0)


async def test_budget_granted_to_cancelled_waiter_is_not_lost() -> None:
    budget = SharedLimit(1)
    await budget.wait_for(1)
    waiter = asyncio.ensure_future(budget.wait_for(1))
    await wait_until(lambda: budget.waiting == 1)
    budget.give(1)
    waiter.cancel()  # it has been granted, and has not run since
    await asyncio.gather(waiter, return_exceptions=True)
    assert budget.used == 0


def compute_size(value: Any) -> int:
    """Bytes of a parsed value and all in it; keys of objects are one object each."""
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = [part for pair in value.items() for part in pair]
    elif isinstance(value, list):
        inner = value
    return sys.getsizeof(value) + sum(map(compute_size, inner))


@given(value=JSON)
def test_estimate_is_at_least_the_size_of_the_parsed_value(value: Any) -> None:
    assert estimate_memory(json.dumps([value]).encode()) >= compute_size([value])


@pytest.mark.parametrize(
    "value",
    [
        [{}] * 9999,
        [[]] * 9999,
        {str(i): i for i in range(9999)},
        [str(i) for i in range(9999)],
        [{"name": str(i), "value": ""} for i in range(9999)],
    ],
    ids=["objects", "lists", "entries", "texts", "variables"],
)
def test_estimate_of_dense_value_is_at_least_its_size(value: Any) -> None:
    """Former defect: of a body of 3 MB that is all `{}` there were 230 MB."""
    assert estimate_memory(json.dumps(value, separators=(",", ":")).encode()) >= compute_size(json.loads(json.dumps(value)))


# --- bodies ---------------------------------------------------------------------------------------------------------


async def test_half_sent_bodies_are_not_read_beyond_budget_and_small_reviews_are_answered() -> None:
    """Former defect: 36 half-sent bodies of 14 MB were read at once."""
    async with listening() as (server, _, port):
        bodies = server.conversions.bodies
        half = [await send(port, "/convert", b" " * 2**20, 14 * 2**20) for _ in range(36)]
        given_up = [asyncio.ensure_future(get_status(reader)) for reader, _ in half]
        await wait_until(lambda: sum(each.done() for each in given_up) == 36 - CONVERSION_BODIES_BYTES // 2**20)
        assert {each.result() for each in given_up if each.done()} == {408}
        assert bodies.used <= CONVERSION_BODIES_BYTES
        assert await post(port) == 200
        for _, writer in half:
            writer.close()
        await wait_until(lambda: bodies.used == 0)
        await asyncio.gather(*given_up, return_exceptions=True)


@pytest.mark.parametrize(("count", "length", "sent"), [(300, 256 * 1024, SMALL), (40, 4 * 2**20, LARGE)], ids=["small", "large"])
async def test_review_beside_stalled_bodies_of_any_client_is_answered(
    count: int, length: int, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is of the same address as that of the API server: as many bodies as fill the lane several times stand still."""
    monkeypatch.setattr(server_module, "READ_S", 600.0)
    async with listening(most=512) as (server, _, port):
        bodies = (server.small if length <= LARGE_BODY_BYTES else server.large).bodies
        stalled = [await send(port, VALIDATE_JOB, b" " * (length - 1000), length) for _ in range(count)]
        ended = [asyncio.ensure_future(reader.read(20)) for reader, _ in stalled]
        await wait_until(lambda: bodies.used > 0.8 * bodies.limit)
        assert [await post(port, sent) for _ in range(5)] == [200] * 5
        assert bodies.used <= bodies.limit
        for _, writer in stalled:
            writer.close()
        await asyncio.gather(*ended, return_exceptions=True)
        await wait_until(lambda: bodies.used == 0)


async def test_bodies_that_wait_for_each_other_lose_the_oldest() -> None:
    """Two halves fill the intake: one must go, or both would wait for ever."""
    intake, readers = Intake(1000), [StreamReader(Mock(connected=True), 2**16) for _ in range(2)]

    async def read(reader: StreamReader) -> int:
        async with intake.read(reader, 1000, 600) as body:
            return len(body)

    tasks = []
    for reader in readers:
        tasks.append(asyncio.ensure_future(read(reader)))
        reader.feed_data(b"x" * 500)
        await wait_until(lambda: intake.used == 500 * len(tasks))
    for reader in readers:
        reader.feed_data(b"x" * 500)
        reader.feed_eof()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert 1000 in results
    assert isinstance(next(each for each in results if each != 1000), GivenUp | NoRoom)
    assert intake.used == 0


@pytest.mark.looptime  # a process that stands still for seconds would make the body late
@pytest.mark.parametrize("why", [GivenUp, NoRoom, BodyTooLarge, TimeoutError])
async def test_body_that_is_refused_leaves_nothing_for_the_collector_of_cycles(why: type[Exception]) -> None:
    """Former defect: a flood of refused bodies took 1.5 GiB, since each was in a cycle and the webhook looks for those seldom."""

    async def read(intake: Intake, content: StreamReader, within_s: float = 60) -> None:
        async with intake.read(content, 1000, within_s):
            pytest.fail("it was read")

    intake, readers = Intake(900), [StreamReader(Mock(connected=True), 2**16) for _ in range(2)]
    gc.collect()
    gc.disable()
    try:
        first = asyncio.create_task(read(intake, readers[0], 0 if why is TimeoutError else 60))
        readers[0].feed_data(b"x" * (1001 if why is BodyTooLarge else 600))
        if why in (GivenUp, NoRoom):
            await wait_until(lambda: intake.used == 600)
            second = asyncio.create_task(read(intake, readers[1]))
            readers[1].feed_data(b"x" * 600)
            if why is NoRoom:
                await wait_until(lambda: intake._waiting)
                readers[0].feed_data(b"x" * 390)
        with pytest.raises(why):
            await first
        if why in (GivenUp, NoRoom):
            second.cancel()
            await asyncio.wait([second])
            del second
        del first
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [each for each in gc.garbage if isinstance(each, list) and any(isinstance(part, bytes) for part in each)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_conversions_that_are_judged_keep_no_review_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversions of 16 to 256 KiB used the bytes and the memory of small reviews."""
    ends, body_of_conversion = threading.Event(), b"{" + b" " * 150 * 1024 + b"}"

    def answer(body: bytes) -> bytes:
        ends.wait()
        return b"{}"

    monkeypatch.setattr(server_module, "_answer_conversion", answer)
    async with listening(most=512) as (server, _, port):
        sent = [await send(port, "/convert", body_of_conversion) for _ in range(90)]
        await wait_until(lambda: server.conversions.bodies.used > 13 * 2**20)
        assert await post(port) == 200
        assert await post(port, LARGE) == 200
        ends.set()
        assert {await get_status(reader) for reader, _ in sent} == {200}
        for _, writer in sent:
            writer.close()


async def test_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "READ_S", 0.05)
    async with listening() as (server, _, port):
        reader, writer = await send(port, VALIDATE_JOB, SMALL[:100], len(SMALL))
        assert await get_status(reader) == 408
        await reader.read()  # to its end: the connection is closed
        writer.close()
        assert server.small.bodies.used == 0


async def test_review_that_waits_too_long_is_answered_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "WAIT_S", 0.05)
    async with listening() as (server, _, port):
        await server.small.judged.wait_for(server.small.judged.limit)
        assert await post(port) == 503
        server.small.judged.give(server.small.judged.limit)
        assert await post(port) == 200
        assert (server.small.judged.used, server.small.bodies.used) == (0, 0)


@pytest.mark.parametrize(
    ("sent", "more", "status"),
    [
        (b'{"a":' + b"[{}," * 700_000 + b"1", "", 413),
        (b"\x1f\x8b garbage", "Content-Encoding: gzip\r\n", 415),
        (b"\x1f\x8b garbage", "", 400),
    ],
    ids=["too many parts", "compressed", "garbage"],
)
async def test_body_that_is_not_judged_is_refused_by_its_signs_and_headers(sent: bytes, more: str, status: int) -> None:
    """Former defect: compressed garbage was a 500."""
    async with listening() as (server, _, port):
        for path in (MUTATE_JOB, "/convert"):
            reader, writer = await send(port, path, sent, more=more)
            assert await get_status(reader) == status
            writer.close()
        await wait_until(lambda: server.large.bodies.used == server.small.bodies.used == server.conversions.bodies.used == 0)
        assert server.large.judged.used == server.conversions.judged.used == 0


async def test_memory_of_large_review_is_held_until_its_thread_ends() -> None:
    """A review whose client has gone still takes what it takes."""
    began, ends = threading.Event(), threading.Event()

    async def has_default_queue(namespace: str) -> bool:
        began.set()
        await asyncio.to_thread(ends.wait)
        return False

    async with listening(Reviews(run_on_own_loop(has_default_queue))) as (server, _, port):
        _, writer = await send(port, MUTATE_JOB, LARGE)
        await wait_until(began.is_set)
        assert server.large.judged.used >= len(LARGE)
        writer.close()
        await wait_until(lambda: server.large.bodies.used == 0)
        assert server.large.judged.used >= len(LARGE)
        ends.set()
        await wait_until(lambda: server.large.judged.used == 0)


# --- connections ----------------------------------------------------------------------------------------------------


async def test_connections_beyond_cap_replace_those_without_review() -> None:
    """Former defect: 1,000 idle connections took 416 MB, and none was ever cut."""
    async with listening(most=4) as (_, connections, port):
        reader, writer = await send(port, VALIDATE_JOB, SMALL)
        assert await get_status(reader) == 200
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        await wait_until(lambda: len(connections) == 4)
        cut = [asyncio.ensure_future(each.read()) for each, _ in idle]
        await wait_until(lambda: sum(task.done() for task in cut) == 17)
        writer.write(f"POST {VALIDATE_JOB} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(SMALL)}\r\n\r\n".encode() + SMALL)
        await wait_until(lambda: b"HTTP/1.1 200" in bytes(reader._buffer).rpartition(b"}}")[0] or reader.at_eof())  # type: ignore[attr-defined]
        assert not reader.at_eof(), "a connection that has brought a review stays"
        for _, each in idle:
            each.close()
        writer.close()
        await asyncio.gather(*cut)
        await wait_until(lambda: len(connections) == 0)


async def test_cut_connections_are_logged_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    """A new user's burst of 1,200 pods made 337 requests fail, and the webhook's log did not say why."""
    connections, pairs = Connections(ManualClock(), 2), [socket.socketpair() for _ in range(5)]
    watching = asyncio.ensure_future(connections.watch())
    with caplog.at_level(logging.WARNING):
        for ours, _ in pairs:
            assert connections.add(ours, "10.0.0.1")
        await wait_until(lambda: bool(caplog.records))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["count"], record.__dict__["most"]) == ("connections cut, there were too many", 3, 2)
    for each in itertools.chain.from_iterable(pairs):
        each.close()


def test_new_connection_where_all_review_is_refused() -> None:
    clock = ManualClock()
    connections = Connections(clock, 2)
    pairs = [socket.socketpair() for _ in range(4)]
    first, second, third, fourth = (pair[0] for pair in pairs)
    assert connections.add(first)
    assert connections.add(second)
    for each in (first, second):
        connections.end(each.fileno(), reviewed=True)
        connections.begin(each.fileno())
        connections.has_arrived(each.fileno())
    assert not connections.add(third)
    clock.time += 1
    connections.end(second.fileno(), reviewed=True)
    assert connections.add(fourth), "an idle one goes for it"
    assert pairs[1][1].recv(1) == b""
    for pair in pairs:
        for each in pair:
            each.close()


def test_connection_with_stalled_body_is_cut_before_idle_one_of_api_server() -> None:
    """A client may bring one review by each connection, and then half of another one."""
    clock = ManualClock()
    connections = Connections(clock, 3)
    pairs = [socket.socketpair() for _ in range(6)]
    idle, judged, stalled, *new = (pair[0] for pair in pairs)
    for each in (idle, judged, stalled):
        connections.add(each)
        connections.end(each.fileno(), reviewed=True)
    for each in (judged, stalled):
        connections.begin(each.fileno())
    connections.has_arrived(judged.fileno())
    clock.time += 1
    assert connections.add(new[0])
    assert pairs[2][1].recv(1) == b""
    connections.end(new[0].fileno(), reviewed=True)
    connections.begin(new[0].fileno())
    assert connections.add(new[1]), "a body that has just begun to arrive is given time: the idle one goes"
    assert pairs[0][1].recv(1) == b""
    for pair in pairs:
        for each in pair:
            each.close()


def test_client_with_most_connections_loses_one_for_a_new_one() -> None:
    """A client with many connections, each of which has brought a review, does not push out those that an API server keeps."""
    clock = ManualClock()
    connections = Connections(clock, 8)
    pairs = [socket.socketpair() for _ in range(9)]
    for i, (each, _) in enumerate(pairs):
        assert connections.add(each, "10.0.0.1" if i in (0, 1) else "10.0.0.2")
        connections.end(each.fileno(), reviewed=True)
        clock.time += 1
    assert [pair[0].fileno() in connections._open for pair in pairs[:3]] == [True, True, False]
    for pair in pairs:
        for each in pair:
            each.close()


def test_client_with_more_than_half_of_all_busy_connections_loses_one_for_another() -> None:
    connections = Connections(ManualClock(), 8)
    pairs = [socket.socketpair() for _ in range(10)]
    for i, (each, _) in enumerate(pairs[:8]):
        assert connections.add(each, "10.0.0.1" if i in (0, 1) else "10.0.0.2")
        connections.end(each.fileno(), reviewed=True)
        connections.begin(each.fileno())
        connections.has_arrived(each.fileno())
    assert not connections.add(pairs[8][0], "10.0.0.2")
    assert connections.add(pairs[9][0], "10.0.0.1")
    assert [pair[0].fileno() in connections._open for pair in pairs[:3]] == [True, True, False]
    for pair in pairs:
        for each in pair:
            each.close()


def test_idle_connection_is_cut_after_its_client_would_have_closed_it() -> None:
    """API servers keep connections that they have never used, so that none is cut sooner for that."""
    clock = ManualClock()
    connections = Connections(clock)
    pairs = [socket.socketpair() for _ in range(3)]
    silent, reviewed, busy = (pair[0].fileno() for pair in pairs)
    for each, _ in pairs:
        connections.add(each)
    clock.time += IDLE_S
    connections.close_overdue()
    assert len(connections) == 3
    connections.end(reviewed, reviewed=True)
    connections.begin(busy)
    clock.time += 1
    connections.close_overdue()
    assert len(connections) == 2
    assert pairs[0][1].recv(1) == b""
    clock.time += IDLE_S
    connections.close_overdue()
    assert len(connections) == 1, "one that is busy has deadlines of its own"
    for pair in pairs:
        for each in pair:
            each.close()
    assert silent != busy


# --- client certificates --------------------------------------------------------------------------------------------


def client_pair(ca: KeyPair = CA) -> bytes:
    """A client certificate by a CA, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    issuer = x509.load_pem_x509_certificate(ca.certificate).subject
    ca_key = serialization.load_pem_private_key(ca.key, None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    made = x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number(), NOW - timedelta(1), NOW + timedelta(1))
    made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + text


@pytest.mark.parametrize(("shows", "statuses"), [(None, (401, 200)), ("ours", (200, 200))])
async def test_reviews_are_answered_to_clients_with_certificate_only(shows: str | None, statuses: tuple[int, int], tmp_path: Path) -> None:
    """Probes show none, and are answered."""
    (tmp_path / "ca.crt").write_bytes(CA.certificate)
    context = ssl.create_default_context(cadata=CA.certificate.decode())
    if shows is not None:
        (tmp_path / "pair.pem").write_bytes(client_pair())
        context.load_cert_chain(tmp_path / "pair.pem")
    async with listening(client_ca=tmp_path / "ca.crt") as (_, _, port), ClientSession(connector=TCPConnector(ssl=context)) as client:
        reviewed = await client.post(f"https://127.0.0.1:{port}{VALIDATE_JOB}", data=SMALL)
        probed = await client.get(f"https://127.0.0.1:{port}/healthz")
        assert (reviewed.status, probed.status) == statuses


@pytest.mark.parametrize("is_held", [True, False], ids=["own certificates", "certificate files"])
def test_changed_ca_of_clients_is_used_for_new_handshakes(is_held: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It was read at the start only: after a rotation every review was refused until a restart."""
    other = pki.issue_ca("other", NOW)
    file = tmp_path / "ca.crt"
    file.write_bytes(CA.certificate)
    if is_held:
        serving: HeldCertificate | ServingCertificate = HeldCertificate(file)
        serving.use_pair(FIRST.certificate, FIRST.key)  # type: ignore[union-attr]
    else:
        (tmp_path / "tls.crt").write_bytes(FIRST.certificate)
        (tmp_path / "tls.key").write_bytes(FIRST.key)
        serving = ServingCertificate(tmp_path / "tls.crt", tmp_path / "tls.key", file)
    for name, ca in (("first", CA), ("second", other)):
        (tmp_path / name).write_bytes(client_pair(ca))

    def is_accepted(name: str) -> bool:
        try:
            return Connection(serving.context, shows=tmp_path / name).server.getpeercert() is not None
        except ssl.SSLError:
            return False

    assert [is_accepted("first"), is_accepted("second")] == [True, False]
    assert not serving.reload(), "nothing has changed"
    file.write_bytes(b"no PEM")
    assert [serving.reload(), serving.reload(), is_accepted("first")] == [False, False, True]
    (record,) = caplog.records
    assert str(file) in vars(record)["error"]
    file.write_bytes(CA.certificate)
    assert not serving.reload()
    file.write_bytes(b"no PEM")
    assert not serving.reload()
    assert len(caplog.records) == 2, "the next outage is logged, too"
    file.write_bytes(other.certificate)
    assert serving.reload()
    assert [is_accepted("first"), is_accepted("second")] == [False, True]


def test_cohort_of_wrong_shape_is_refused_with_its_field() -> None:
    """Former defect: it was a 500."""
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "c"}, "spec": {"resourceGroups": ["str"]}}
    assert list(get_causes(Webhook().validate(cohort))) == ["spec.resourceGroups[0]"]
