"""HTTP to one API server: a session, credentials, time limits, and aiohttp's failures turned into ours.

Requests go through aiohttp directly and stay bytes: a generated model costs twenty times what `json.loads` does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from core.runtime.http.errors import NotLeading, ServerError, Unauthorized, Unreachable, build_error, remove_credentials

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 * 2**20
"""etcd's default limit for an object is 1.5 MiB, but aggregated servers may have larger ones. A line beyond this is a broken stream, not an
event."""

CONNECT_TIMEOUT_S = 10.0

MAX_CONNECTIONS = 256
"""Each watch holds one, the rest is bounded by the number of workers; the limit only stops a runaway."""

MAX_ERROR_BYTES = 2**20

RELOAD_INTERVAL_S = 10.0
"""Credentials are read again at most this often, so that a revoked token does not start many exec plugins."""


Authorize = Callable[[], Awaitable[str | None]]
"""Gives the value of the Authorization header; called before every request, so that rotated tokens are picked up."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API server is, how it is trusted, and as which user requests act: all of one load, so that no request mixes two.

    `server_hostname` overrides the name that its certificate must have; `headers` are those of impersonation, sent with every request.
    """

    url: str
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    authorize: Authorize | None = None


Fence = Callable[[], float]
"""Seconds for which writes may be made; none are left at 0 or less."""


class LineSplitter:
    """Splits chunks of any size into whole lines. Only the new chunk is searched, so that a long line costs no more
    than its length."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the lines that end in a chunk, without their ends, and without blank ones; keeps what follows them for the next chunk.
        Raises ServerError where a line, also one that has not ended, is longer than the limit."""
        head, *rest = chunk.split(b"\n")
        if not rest:
            self._append(head)
            return []
        self._append(head)
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts, self._size = [], 0
        self._append(rest[-1])
        return [line for line in lines if line.strip()]

    def get_rest(self) -> bytes:
        """Returns the bytes that came after the last line end."""
        return b"".join(self._parts)

    def _append(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max:
            raise ServerError(0, "LineTooLong", f"a watch line is longer than {self._max} bytes")
        if part:
            self._parts.append(part)


class Transport:
    """One keep-alive session. Every failure leaves as a `KubeError`; every response is released, whatever happens."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        user_agent: str,
        reload: Callable[[], Awaitable[Endpoint]] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._endpoint = endpoint
        self._reload = reload
        self._reloaded_at = float("-inf")
        self._reloading = asyncio.Lock()
        self._generation = 0
        self._timeout_s = timeout_s
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, socket_factory=_make_keepalive_socket),
            headers={"User-Agent": user_agent, "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            read_bufsize=2**18,
        )

    @property
    def address(self) -> str:
        """Returns the URL to which requests go, without credentials, for messages."""
        return remove_credentials(self._endpoint.url)

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        fence: Fence | None = None,
    ) -> bytes:
        """Returns the body of an answer with a status below 300. Raises the KubeError of any other; after a 401 it tries once more where
        credentials can be read anew. Raises Unreachable where no whole answer comes within `timeout_s` seconds of the transport. `fence`
        returns the seconds for which the request may still be made: it is called just before the request is sent on a connection, and
        bounds the wait for the answer. Raises NotLeading where none is left; then nothing was sent."""
        limit = self._timeout_s if fence is None else min(self._timeout_s, _check_fence(fence))
        try:
            async with asyncio.timeout(limit):
                async with await self._open(method, path, params, body, content_type, fence) as response:
                    try:
                        return await response.read()
                    except (aiohttp.ClientError, OSError) as error:
                        raise Unreachable(f"{method} {path}: the answer broke off: {_describe_error(error)}") from error
        except TimeoutError as error:
            raise Unreachable(f"{method} {path}: no answer within {limit:g} s") from error

    async def read_lines(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yields the lines of an endless answer without their ends and without blank ones; what follows the last end, too. Only its
        beginning is bounded in time; the reader decides how long a silence may last. Raises the KubeError of a refusal, Unreachable where
        the answer breaks off, and ServerError for a line that is too long."""
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._open("GET", path, params, None, "", None)
        except TimeoutError as error:
            raise Unreachable(f"GET {path}: the watch was not answered within {self._timeout_s:g} s") from error
        splitter = LineSplitter()
        try:
            async for chunk in response.content.iter_any():
                for line in splitter.feed(chunk):
                    yield line
            if splitter.get_rest().strip():
                yield splitter.get_rest()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"GET {path}: the watch broke: {_describe_error(error)}") from error
        finally:
            # Closed, not released: what is left of an endless answer cannot be drained to reuse the connection.
            response.close()

    async def _open(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str, fence: Fence | None
    ) -> aiohttp.ClientResponse:
        """Returns the beginning of a good answer. A 401 is tried once more with credentials that are read again: such a
        request was not carried out."""
        generation = self._generation
        try:
            return await self._send_once(method, path, params, body, content_type, fence)
        except Unauthorized:
            if not await self._reload_credentials(generation):
                raise
            return await self._send_once(method, path, params, body, content_type, fence)

    async def _send_once(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str, fence: Fence | None
    ) -> aiohttp.ClientResponse:
        endpoint = self._endpoint
        authorization = await endpoint.authorize() if endpoint.authorize is not None else None
        headers = list(endpoint.headers)
        headers += [("Content-Type", content_type)] if body is not None else []
        headers += [("Authorization", authorization)] if authorization else []
        try:
            response = await self._session.request(
                method,
                endpoint.url + path,
                params=params,
                data=body if body is None or fence is None else _Fenced(body, fence),
                headers=headers,
                ssl=endpoint.tls if endpoint.tls is not None else True,
                server_hostname=endpoint.server_hostname,
                proxy=endpoint.proxy,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, NotLeading):
                raise NotLeading from error
            raise Unreachable(f"{method} {endpoint.url}{path}: {_describe_error(error)}") from error
        if response.status < 300:
            return response
        async with response:
            try:
                text = (await response.read())[:MAX_ERROR_BYTES]
            except (aiohttp.ClientError, OSError):
                text = b""
            raise build_error(response.status, text, response.headers)

    async def _reload_credentials(self, generation: int) -> bool:
        """Returns whether another try makes sense: credentials have been read again since `generation`, by this or by
        another request meanwhile."""
        if self._reload is None:
            return False
        async with self._reloading:
            if self._generation != generation:
                return True
            now = asyncio.get_running_loop().time()
            if now - self._reloaded_at < RELOAD_INTERVAL_S:
                return False
            self._reloaded_at = now
            try:
                self._endpoint = await self._reload()
            except Exception as error:  # whatever a file or an exec plugin does: the 401 is what the caller should see
                logger.warning("credentials could not be read anew", extra={"error": str(error)})
                return False
            self._generation += 1
            return True


class Nowhere(Transport):
    """No API server at all."""

    def __init__(self) -> None:
        self._endpoint = Endpoint("nowhere")
        self._timeout_s = 1.0  # no request waits
        self._generation, self._reload = 0, None

    async def aclose(self) -> None:
        """Does nothing: there are no connections."""

    async def _open(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, content_type: str, fence: Fence | None
    ) -> aiohttp.ClientResponse:
        raise Unreachable(f"{method} {path}: there is no API server here")


def _check_fence(fence: Fence) -> float:
    if (left := fence()) <= 0:
        raise NotLeading
    return left


class _Fenced(aiohttp.BytesPayload):
    """A body that is sent only while its fence leaves time: until a connection is at hand much time may pass."""

    def __init__(self, body: bytes, fence: Fence) -> None:
        super().__init__(body)
        self._fence = fence

    async def write(self, writer: AbstractStreamWriter) -> None:
        _check_fence(self._fence)
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        _check_fence(self._fence)
        await super().write_with_length(writer, content_length)


def _describe_error(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _make_keepalive_socket(info: tuple[Any, ...]) -> socket.socket:
    """Returns a socket with keepalive: the kernel detects a lost connection in about 45 s, far earlier than the limit
    of any watch."""
    family, kind, protocol, _name, _address = info
    sock = socket.socket(family=family, type=kind, proto=protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return sock
