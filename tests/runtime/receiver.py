"""A collector that speaks OTLP over HTTP, as tests need it: it keeps what it gets, and refuses or hangs on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Generic, TypeVar

Request = TypeVar("Request")


class Receiver(Generic[Request]):
    """`release`: it answers; while that is cleared it hangs."""

    def __init__(self, read: Callable[[bytes], Request]) -> None:
        self.requests: list[Request] = []
        self.paths: list[str] = []
        self.status = 200
        self.release = Event()
        self.release.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.release.wait()
                receiver.paths.append(self.path)
                receiver.requests.append(read(body))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def receiving(read: Callable[[bytes], Request]) -> Iterator[Receiver[Request]]:
    receiver = Receiver(read)
    thread = Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.release.set()
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()
