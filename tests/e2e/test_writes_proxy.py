"""The proxy that cuts a client's writes leaves nothing open, or whichever test runs when that is collected is blamed."""

from __future__ import annotations

import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from certs import pki
from e2e.api import wait_for
from e2e.proxies.writes_proxy import Cut, WritesProxy


class Watched(BaseHTTPRequestHandler):
    """Begins an endless answer, as to a watch."""

    ended = threading.Event()
    asked, answers = threading.Event(), threading.Event()
    written: list[str] = []  # noqa: RUF012  # of the one server of a test

    def do_PATCH(self) -> None:
        """Is asked, and answers when it may."""
        self.asked.set()
        self.answers.wait(30)
        self.written.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"1\r\na\r\n")
        self.wfile.flush()
        self.ended.wait(30)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and CA of a server that answers for ever."""
    now = datetime.now(UTC)
    ca = pki.issue_ca("test", now)
    serving = pki.issue_serving(ca, ["127.0.0.1"], now)
    for name, content in (("tls.crt", serving.certificate), ("tls.key", serving.key), ("ca.crt", ca.certificate)):
        (tmp_path / name).write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    for event in (Watched.ended, Watched.asked, Watched.answers):
        event.clear()
    Watched.written.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Watched) as running:
        running.socket = tls.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{running.server_address[1]}", tmp_path / "ca.crt"
        Watched.ended.set()
        Watched.answers.set()
        running.shutdown()
        thread.join()


def test_watches_that_run_when_it_stops_leave_no_socket(server: tuple[str, Path]):
    address, authority = server
    with warnings.catch_warnings(record=True) as told, ExitStack() as sockets:
        warnings.simplefilter("always")
        with WritesProxy(address, authority, "token") as proxy:
            for number in range(6):
                client = sockets.enter_context(closing(socket.create_connection(("127.0.0.1", proxy.port))))
                client.sendall(b"GET /watch HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(100)
                if number % 2:
                    client.close()
        del proxy
        gc.collect()
    assert [str(warning.message) for warning in told if "unclosed" in str(warning.message)] == []


def send(proxy: WritesProxy, path: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port))
    client.sendall(f"PATCH {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
    return client


def test_writes_proxy_after_a_lasting_cut_completes_only_earlier_writes(server: tuple[str, Path]):
    address, authority = server
    with WritesProxy(address, authority, "token") as proxy:
        proxy.cut(Cut(1, after=False, act=lambda: None, only="PATCH /pods/a$", lasting=True))
        with closing(send(proxy, "/pods/a/status")):
            assert Watched.asked.wait(10)
            assert not proxy.is_quiet
        with closing(send(proxy, "/pods/a")) as cut:
            assert proxy.has_cut.wait(10)
            cut.settimeout(120)
            assert cut.recv(100) == b""
        with closing(send(proxy, "/pods/b/status")) as later:
            later.settimeout(120)
            assert later.recv(100) == b""
        assert not proxy.is_quiet, "the first is not done yet"
        Watched.answers.set()
        wait_for("the first to be done", lambda: proxy.is_quiet)
    assert Watched.written == ["/pods/a/status"]
