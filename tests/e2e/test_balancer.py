"""The balancer that stands for a Service: who gets connections, and who does not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs import pki
from e2e.api import wait_for
from e2e.process import find_free_ports
from e2e.proxies.balancer import Balancer

NOW = datetime.now(UTC)


class Echo:
    """Over TLS: what comes, with a mark before it; 200 or 503 to who asks for anything by HTTP."""

    def __init__(self, mark: str, port: int, pair: Path) -> None:
        self.mark, self.ready, self.mute = mark.encode(), True, False
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair)
        self._context.num_tickets = 0  # as the webhook: what a replica says after the handshake is an answer
        self._listening = socket.create_server(("127.0.0.1", port))
        self.taken = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):  # who probes may be gone already
                self._answer(self._context.wrap_socket(plain, server_side=True))

    def _answer(self, connection: ssl.SSLSocket) -> None:
        self._open.append(connection)
        text = connection.recv(4096)
        if text.startswith(b"GET"):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" if self.ready else b"HTTP/1.1 503 No\r\n\r\n")
        elif not self.mute:
            connection.sendall(self.mark + text)
        self.taken += not text.startswith(b"GET")


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    made = pki.issue_serving(pki.issue_ca("test", NOW), ["127.0.0.1"], NOW)
    path = tmp_path / "pair.pem"
    path.write_bytes(made.certificate + made.key)
    return path


@pytest.fixture
def echoes(pair: Path) -> Iterator[list[Echo]]:
    made = [Echo(mark, port, pair) for mark, port in zip("ab", find_free_ports(2), strict=True)]
    yield made
    for one in made:
        one.close()


@pytest.fixture
def balancer(echoes: list[Echo]) -> Iterator[Balancer]:
    with Balancer([one._listening.getsockname()[1] for one in echoes], probe_s=0.02) as running:
        wait_for("both to be ready", lambda: all(map(running.is_ready, (0, 1))), poll_s=0.01)
        yield running


def connect(balancer: Balancer) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", balancer.port), timeout=120))


def ask(balancer: Balancer) -> str:
    with connect(balancer) as connection:
        connection.sendall(b"hello")
        return connection.recv(100).decode()


def test_connections_go_to_one_after_the_other(balancer: Balancer):
    assert sorted(ask(balancer) for _ in range(4)) == ["ahello", "ahello", "bhello", "bhello"]
    assert balancer.passed == [2, 2]


def test_balancer_gives_no_connection_to_an_unready_or_withdrawn_replica(balancer: Balancer, echoes: list[Echo]):
    echoes[0].ready = False
    wait_for("it to be noticed", lambda: not balancer.is_ready(0), poll_s=0.01)
    assert {ask(balancer) for _ in range(3)} == {"bhello"}
    echoes[0].ready = True
    wait_for("it to be noticed", lambda: balancer.is_ready(0), poll_s=0.01)
    balancer.withdraw(1)
    assert {ask(balancer) for _ in range(3)} == {"ahello"}
    balancer.withdraw(1, back=True)
    assert {ask(balancer) for _ in range(3)} == {"ahello", "bhello"}


def test_balancer_without_a_listening_replica_uses_the_other(balancer: Balancer, echoes: list[Echo]):
    echoes.pop(0).close()
    assert {ask(balancer) for _ in range(4)} == {"bhello"}
    assert balancer.refused <= 1, "afterwards it is known"


def test_balancer_counts_requests_that_a_replica_leaves_unanswered(balancer: Balancer, echoes: list[Echo]):
    request = b"x" * 100
    echoes[0].mute = True
    balancer.withdraw(1)
    with connect(balancer) as connection:
        connection.sendall(request)
        wait_for("it to be taken", lambda: echoes[0].taken >= 1, poll_s=0.01)
        echoes.pop(0).close()
        assert connection.recv(1) == b""
    wait_for("it to be counted", lambda: balancer.broken == [1, 0], poll_s=0.01)


def test_a_connection_that_ends_in_good_order_is_not_broken_unless_a_request_is_on_its_way(balancer: Balancer, echoes: list[Echo]):
    balancer.withdraw(1)
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(2):
            opened.append(stack.enter_context(connect(balancer)))
            opened[-1].sendall(b"x" * 100)
            assert opened[-1].recv(200) == b"a" + b"x" * 100
        idle, late = opened
        echoes.pop(0).close()
        assert idle.recv(1) == b""
        late.sendall(b"x" * 100)
    wait_for("it to be counted", lambda: balancer.broken == [1, 0], poll_s=0.01)


def test_balancer_without_replicas_closes_a_connection(balancer: Balancer):
    balancer.withdraw(0)
    balancer.withdraw(1)
    with socket.create_connection(("127.0.0.1", balancer.port), timeout=120) as connection:
        assert connection.recv(1) == b""
