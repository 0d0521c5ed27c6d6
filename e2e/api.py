"""A small blocking client for what fixtures and scenarios do to the cluster: JSON verbs, nothing else.

Not `core.runtime.http.client` on purpose: what arranges and checks a test must not share faults with what is tested.
"""

from __future__ import annotations

import builtins
import contextlib
import http.client
import json
import queue
import re
import ssl
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from e2e.clock import CLOCK

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# 429 says "come back soon", as while the storage of a new CRD is being set up; 504 with this cause that a server's cache is behind.
BEHIND = "ResourceVersionTooLarge"
# A webhook that had no answer in time, from its own requests or at all: on a crowded machine that is no failure, and clients repeat it.
LATE = re.compile("; try again$|failed calling webhook .*context deadline exceeded")
BUSY_TIMEOUT_S = 60.0
# What comes in a second may take minutes where others have the processors: only what never comes is to fail.
PATIENCE_S = 600.0

T = TypeVar("T")


class ApiError(Exception):
    """The API server refused; `status` is the code, the message the server's own."""

    def __init__(self, status: int, message: str, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.body = body

    @property
    def causes(self) -> list[dict[str, str]]:
        """Field errors: dicts of `reason`, `field` and `message`."""
        return list((self.body.get("details") or {}).get("causes") or [])


class Api:
    """Usable from many threads at once: each request borrows a kept connection or opens another. Close it at the end."""

    judges_rights = True
    """Whether some users may do less than others there."""

    def __init__(self, server: str, ca_file: Path, token: str) -> None:
        self._server, self._ca_file = server, ca_file
        parts = urllib.parse.urlsplit(server)
        assert parts.hostname is not None
        self._host, self._port, self._token = parts.hostname, parts.port, token
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._idle: queue.LifoQueue[http.client.HTTPSConnection] = queue.LifoQueue()

    def for_token(self, token: str) -> Api:
        """The same server, as somebody else."""
        return Api(self._server, self._ca_file, token)

    def get(self, path: str) -> dict[str, Any]:
        return self.request("GET", path)

    def find(self, path: str) -> dict[str, Any] | None:
        """The object, or None if there is none of that name."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str) -> list[dict[str, Any]]:
        return list(self.get(path)["items"])

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.request("POST", path, body)

    def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> dict[str, Any]:
        return self.request("PATCH", path, body, content_type)

    def delete(self, path: str, grace_period_s: int | None = None) -> None:
        """Gone or already gone: both are what the caller wants."""
        query = "" if grace_period_s is None else f"?gracePeriodSeconds={grace_period_s}"
        try:
            self.request("DELETE", path + query)
        except ApiError as error:
            if error.status != 404:
                raise

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> dict[str, Any]:
        return self.request_with_warnings(method, path, body, content_type)[0]

    def request_with_warnings(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> tuple[dict[str, Any], builtins.list[str]]:
        """The answer, and the texts of its warnings in their order."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": JSON, "Content-Type": content_type}
        deadline = CLOCK.monotonic() + BUSY_TIMEOUT_S
        while True:
            status, text, warnings = self._send(method, path, payload, headers)
            parsed: dict[str, Any] = json.loads(text) if text[:1] == b"{" else {"message": text.decode(errors="replace")}
            if status < 400:
                return parsed, [_read_warning(warning) for warning in warnings]
            error = ApiError(status, str(parsed.get("message", "")), parsed)
            is_busy = status == 429 or (status == 504 and any(cause.get("reason") == BEHIND for cause in error.causes))
            is_busy = is_busy or (status in {500, 503} and LATE.search(str(error)) is not None)
            if not is_busy or CLOCK.monotonic() > deadline:
                raise error
            CLOCK.sleep(0.1)

    def text(self, path: str) -> str:
        """What is no JSON, as /metrics."""
        status, text, _ = self._send("GET", path, None, {"Authorization": f"Bearer {self._token}", "Accept": "text/plain"})
        if status >= 400:
            raise ApiError(status, text.decode(errors="replace"), {})
        return text.decode()

    def close(self) -> None:
        """Close every kept connection."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def _send(self, method: str, path: str, payload: bytes | None, headers: dict[str, str]) -> tuple[int, bytes, builtins.list[str]]:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=PATIENCE_S, context=self._context)
        try:
            try:
                reply = self._exchange(connection, method, path, payload, headers)
            except (http.client.HTTPException, OSError):
                # The server may have been restarted since this connection was used; a fresh one decides.
                connection.close()
                reply = self._exchange(connection, method, path, payload, headers)
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)
        return reply

    @staticmethod
    def _exchange(
        connection: http.client.HTTPSConnection, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes, builtins.list[str]]:
        connection.request(method, path, payload, headers)
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.headers.get_all("Warning") or []


def _read_warning(header: str) -> str:
    """The text of a header `299 - "text"`, in which quotes and backslashes are escaped."""
    return re.sub(r"\\(.)", r"\1", header.partition('"')[2].rpartition('"')[0])


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float = PATIENCE_S, poll_s: float = 0.15) -> T:
    """The first truthy answer of `probe`; a `TimeoutError` that says what was waited for, and the last answer, else.

    It is called every `poll_s`; what takes seconds less often, up to three times that.
    """
    began = CLOCK.monotonic()
    while True:
        answer = probe()
        if answer:
            return answer
        waited = CLOCK.monotonic() - began
        if waited >= timeout_s:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}; the last answer was {answer!r}")
        CLOCK.sleep(min(max(poll_s, waited / 20), 3 * poll_s))
