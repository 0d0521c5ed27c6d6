"""Follows a collection of the API server: what is there, then every change, in the order in which the server made them.

A thread with a connection of its own. Like `e2e.api` it is not `core.runtime`: what judges a test must not share faults with
what is judged.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from e2e.api import JSON, Api

Obj = dict[str, Any]
Tell = Callable[[str, Obj], None]
_CHUNK, _TIMEOUT_S = 1 << 18, 120.0


class Follower:
    """`send_message` hears of each object once (ADDED) and of every change (ADDED, MODIFIED, DELETED), never of two at once."""

    def __init__(self, server: str, ca_file: Path, token: str, path: str, tell: Tell) -> None:
        parts = urllib.parse.urlsplit(server)
        assert parts.hostname is not None
        self._host, self._port, self._path, self._tell = parts.hostname, parts.port, path, tell
        self._api = Api(server, ca_file, token)
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._headers = {"Authorization": f"Bearer {token}", "Accept": JSON}
        self._connection: http.client.HTTPSConnection | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {path}", daemon=True)
        self.fault: BaseException | None = None

    def start(self) -> Follower:
        """Returns once all that is there has been told."""
        listed = self._api.get(self._path)
        for item in listed["items"]:
            self._tell("ADDED", item)
        self._version = str(listed["metadata"]["resourceVersion"])
        self._thread.start()
        return self

    def stop(self) -> None:
        """Raises what ended it before its time: what it has told until then has a gap."""
        self._ends.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            # Below TLS: the thread that reads finds the end of the stream, and nobody else touches its state.
            with contextlib.suppress(OSError), socket.socket(fileno=socket.dup(connection.sock.fileno())) as below:
                below.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=_TIMEOUT_S)
        self._api.close()
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                with contextlib.suppress(http.client.HTTPException, OSError):  # from where it was, on a new connection
                    self._watch()
        except BaseException as fault:
            self.fault = fault

    def _watch(self) -> None:
        query = {"watch": "1", "allowWatchBookmarks": "1", "resourceVersion": self._version}
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._context)
        self._connection = connection
        try:
            connection.request("GET", f"{self._path}?{urllib.parse.urlencode(query)}", headers=self._headers)
            for line in _read_lines(connection.getresponse()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(f"the watch of {self._path} has a gap: {event['object'].get('message')}")
                self._version = str(event["object"]["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    self._tell(event["type"], event["object"])
        finally:
            connection.close()


def _read_lines(reply: http.client.HTTPResponse) -> Iterator[bytes]:
    rest = b""
    while chunk := reply.read1(_CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
