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
from e2e.writes_proxy import WritesProxy


class Watched(BaseHTTPRequestHandler):
    """Begins an endless answer, as to a watch."""

    ended = threading.Event()

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
    Watched.ended.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Watched) as running:
        running.socket = tls.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{running.server_address[1]}", tmp_path / "ca.crt"
        Watched.ended.set()
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
