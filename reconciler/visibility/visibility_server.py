"""The HTTP side of the visibility API: only the API server is answered, for users that may read what they ask for.

Health endpoints are open. All else needs the certificate of the API server's front proxy (`front_proxy`) and a SubjectAccessReview
(`access_reviews`). Requests have no body; answers are written a piece at a time, and pieces of all answers take turns, each followed by a
pause that is longer than the piece, so that decisions get most of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from aiohttp import web

from core.runtime.clock import Clock
from core.runtime.http.parsing import encode
from core.runtime.serving.connections import Connections
from core.runtime.serving.http_port import find_descriptor
from core.runtime.serving.tls import ServingCertificate
from reconciler.visibility import api_documents as documents
from reconciler.visibility.access_reviews import Access, AccessReviews, ReviewFailed
from reconciler.visibility.front_proxy import FrontProxyRules, ProxiedUser, Unauthenticated
from reconciler.visibility.pending_pages import PendingPages

logger = logging.getLogger(__name__)
ANSWERS_AT_ONCE, ANSWERS_OF_A_USER = 32, 8
ANSWER_S = 30.0
"""For one answer: API servers give a request 60 s."""
SILENT_S = 75.0
"""An API server sends each watch a bookmark roughly every minute; one that has received nothing for so long may lag behind."""
PAUSE = 2.0  # times what a piece has taken
HEALTH = ("/healthz", "/livez", "/readyz")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NAME = "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_QUEUE = re.compile(
    f"{re.escape(documents.ROOT)}/(namespaces/(?P<namespace>{_NAME})/)?(?P<plural>clusterqueues|localqueues)/(?P<name>{_NAME})/"
    f"{documents.SUBRESOURCE}"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Verified = Callable[[web.Request], bytes | None]
"""Returns the certificate (DER) of the client that is verified by the CA in use now; None where it has shown none. Raises
ConnectionResetError where it was verified by an earlier CA."""


class _Refused(Exception):
    """The Status to answer with."""

    def __init__(self, code: int, message: str, status: documents.Json | None = None) -> None:
        self.code = code
        self.status = status if status is not None else documents.build_status(code, message)


class VisibilityServer:
    """Routes of the visibility API. `rules` is None until the ConfigMap of the front proxy has been read."""

    def __init__(
        self, pages: PendingPages, reviews: AccessReviews, clock: Clock, get_certificate: Verified, connections: Connections | None = None
    ) -> None:
        self._pages, self._reviews, self._clock = pages, reviews, clock
        self._get_certificate, self._connections = get_certificate, connections
        self.rules: FrontProxyRules | None = None
        self._documents = {path: encode(document) for path, document in documents.build_documents().items()}
        self._aggregated = encode(documents.build_aggregated_discovery())
        self._answered: Counter[str] = Counter()  # answers that are being written, by user
        self._turn = asyncio.Lock()
        self.app = web.Application(client_max_size=1, middlewares=[self._count_request])
        self.app.router.add_route("*", "/{path:.*}", self._answer)

    @web.middleware
    async def _count_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        fd, status = find_descriptor(request), 0
        if self._connections is not None:
            self._connections.begin(fd)
            self._connections.has_arrived(fd)
        try:
            response = await handler(request)
            status = response.status
        finally:
            if self._connections is not None:
                self._connections.end(fd, reviewed=status == 200 and request.path not in HEALTH)
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer_allowed(request)
        except _Refused as refused:
            headers = {"Retry-After": "1"} if refused.code in (429, 503) else {}
            response = _build_response(encode(refused.status), refused.code, headers)
            if refused.code in (401, 413):
                response.force_close()
            return response
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:
            error_id = uuid.uuid4().hex[:12]
            logger.exception("visibility request failed", extra={"error_id": error_id, "path": request.path[:300]})
            text = f"internal error {error_id}; the log of the reconciler has it"
            return _build_response(encode(documents.build_status(500, text)), 500)

    async def _answer_allowed(self, request: web.Request) -> web.StreamResponse:
        if request.can_read_body:
            raise _Refused(413, "a request without a body is expected")
        if request.path in HEALTH:
            return self._answer_health(request)
        user = self._find_user(request)
        if request.method != "GET":
            raise _Refused(405, f"{request.method} is not supported; only GET is")
        access = _find_access(request.path)
        await self._authorize(user, access)
        if access.plural:
            return await self._answer_queue(request, user, access)
        if request.path == "/apis" and documents.AGGREGATED in request.headers.get("Accept", "").replace(" ", ""):
            return _build_response(self._aggregated, content_type=documents.AGGREGATED)
        body = self._documents.get(request.path)
        if body is None:
            raise _Refused(404, "the server could not find the requested resource")
        return _build_response(body)

    def _answer_health(self, request: web.Request) -> web.Response:
        if request.path == "/readyz" and (why := self.find_unready_reason()):
            return web.Response(status=503, text=f"not ready: {why}")
        return web.Response(text="ok")

    def find_unready_reason(self) -> str:
        """Returns why requests cannot be answered yet, as text; empty where they can."""
        if self.rules is None:
            return "the front proxy's ConfigMap is not read yet"
        return "" if self._pages.is_complete else "workloads are not listed yet"

    def _find_user(self, request: web.Request) -> ProxiedUser:
        if self.rules is None:
            raise _Refused(503, "the rules of the front proxy are not known yet; try again")
        try:
            return self.rules.find_user(self._get_certificate(request), request.headers.items(), self._clock.now())
        except Unauthenticated as error:
            raise _Refused(401, f"Unauthorized: {error}") from None

    async def _authorize(self, user: ProxiedUser, access: Access) -> None:
        try:
            if await self._reviews.is_allowed(user, access):
                return
        except ReviewFailed as error:
            raise _Refused(503, f"whether the request is allowed could not be asked: {error}; try again") from None
        if access.path:
            raise _Refused(403, f'forbidden: User "{user.name}" cannot get path "{access.path}"')
        where = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
        what = f'resource "{access.plural}/{documents.SUBRESOURCE}" in API group "{documents.GROUP}" {where}'
        message = f'{access.plural}.{documents.GROUP} "{access.name}" is forbidden: User "{user.name}" cannot get {what}'
        details = {"name": access.name, "group": documents.GROUP, "kind": access.plural}
        raise _Refused(403, message, documents.build_status(403, message, details))

    async def _answer_queue(self, request: web.Request, user: ProxiedUser, access: Access) -> web.StreamResponse:
        limit = _read_number(request, "limit", documents.DEFAULT_LIMIT)
        offset = max(0, _read_number(request, "offset", 0))
        if not self._pages.is_complete:
            raise _Refused(503, "workloads are not listed yet; try again")
        if not self._pages.has_queue(access):
            raise _Refused(404, "", documents.build_not_found(access.plural, access.name))
        async with self._count_answer(_find_client(user.name)):
            limit = documents.DEFAULT_LIMIT if limit == 0 else min(max(0, limit), documents.MOST_LISTED)
            return await self._write(request, self._pages.encode_page(access, offset, limit))

    @asynccontextmanager
    async def _count_answer(self, user: str) -> AsyncIterator[None]:
        if self._answered[user] >= ANSWERS_OF_A_USER or self._answered.total() >= ANSWERS_AT_ONCE:
            if not self._answered[user]:
                del self._answered[user]
            raise _Refused(429, "too many answers are being read at once; try again")
        self._answered[user] += 1
        try:
            yield
        finally:
            self._answered[user] -= 1
            if not self._answered[user]:
                del self._answered[user]

    async def _write(self, request: web.Request, pieces: Iterator[bytes]) -> web.StreamResponse:
        """Writes an answer. A client that takes `ANSWER_S` seconds in all to read it loses its connection: an answer that is cut off must
        not look whole. What it waits for its turns does not count."""
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        silent_s = self._pages.compute_silence()
        if silent_s > SILENT_S:
            old = f"this may be {silent_s:.0f} s old: the reconciler that answers has received nothing from a watch for so long"
            response.headers["Warning"] = f'299 topogate "{old}"'
        try:
            async with asyncio.timeout(ANSWER_S) as limit:
                await response.prepare(request)
                while (piece := await self._encode_in_turn(pieces, limit)) is not None:
                    await response.write(piece)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(f"an answer was not read within {ANSWER_S:g} s") from None
        return response

    async def _encode_in_turn(self, pieces: Iterator[bytes], limit: asyncio.Timeout) -> bytes | None:
        """Returns the next piece; None at the end. `limit` is put off by as long as that takes."""
        loop, until = asyncio.get_running_loop(), limit.when()
        assert until is not None
        left_s = until - loop.time()
        limit.reschedule(None)
        piece = await self._encode_next(pieces)
        limit.reschedule(loop.time() + left_s)
        return piece

    async def _encode_next(self, pieces: Iterator[bytes]) -> bytes | None:
        async with self._turn:
            began = self._clock.read_timer()
            piece = next(pieces, None)
            await self._clock.sleep(PAUSE * (self._clock.read_timer() - began))
        return piece


def make_certificate_reader(certificate: ServingCertificate) -> Verified:
    """Returns the function that reads the client's certificate of a request from its TLS connection. A connection with a certificate that
    an earlier CA has verified is cut: its client sends the request again by a new one."""

    def read(request: web.Request) -> bytes | None:
        found: ssl.SSLObject | None = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
        shown = found.getpeercert(binary_form=True) if found is not None else None
        if found is None or shown is None:
            return None
        if not certificate.is_verified_now(found):
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError("the CA of clients has changed since the connection began")
        return shown

    return read


def _find_client(user: str) -> str:
    """Returns the name by which answers are counted: a user's own, or that of all service accounts of a namespace."""
    return user.rpartition(":")[0] if user.startswith("system:serviceaccount:") else user


def _find_access(path: str) -> Access:
    """Returns what is read at a path: a queue, or a document, which may not exist."""
    found = _QUEUE.fullmatch(path)
    if found is None or (found["namespace"] is not None) != (found["plural"] == documents.LOCAL_QUEUES):
        return Access(path=path)
    return Access(found["plural"], found["namespace"] or "", found["name"])


def _read_number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if text and not _NUMBER.fullmatch(text):
        raise _Refused(400, f"{name}: {text[:40]!r} is not accepted; a whole number with at most 18 digits is expected")
    return int(text) if text else default


def _build_response(
    body: bytes, code: int = 200, headers: dict[str, str] | None = None, content_type: str = "application/json"
) -> web.Response:
    own = {"Content-Type": content_type, "Cache-Control": "no-cache, private"}
    return web.Response(body=body, status=code, headers={**own, **(headers or {})})
