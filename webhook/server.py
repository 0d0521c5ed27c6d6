"""The admission and conversion server: aiohttp over TLS.

Two channels of error are kept apart: a body that is no review is answered with 400, an object that
breaks a rule with 200 and `allowed: false`; a bug of ours is a 500 with an id that the log has, too.
"""

import asyncio
import json
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from core.api.admission import MAX_REVIEW_BYTES, AdmissionRequest, parse_review
from core.api.body import MalformedReview
from core.api.conversion import CONVERT_PATH, MAX_CONVERSION_BYTES, parse_conversion
from core.metric_names import ALLOWED, DENIED, FAILED, MALFORMED, REVIEW_DURATION, REVIEWS_ANSWERED
from core.runtime.clock import Clock, SystemClock
from core.runtime.metrics import Sink, Unmeasured
from webhook import conversion
from webhook.review import Reviews

logger = logging.getLogger(__name__)
# Above this, parsing and judging would keep other reviews waiting; they go to a thread.
LARGE_BODY_BYTES = 256 * 1024
LARGE_AT_ONCE = 2
# Converting is more work than parsing, and a small body may hold a large assignment.
LARGE_CONVERSION_BYTES = 16 * 1024
# Endpoints of a Service learn within a second or so that a pod stops. Who then asks no more will not ask later, either; whoever asks
# at all, or did a moment ago, may pause longer than between two of its questions, on a busy machine, with a review on its way already.
LINGER_S = 4.0
LATELY_S = 5.0
QUIET_S, QUIET_WHERE_ASKED_S = 0.25, 1.0
_LOOK_S = 0.05


class AdmissionServer:
    """Routes of the webhook; `ready` is what `/readyz` says, and `why_not_ready` may have a reason against it while it is true."""

    def __init__(
        self, reviews: Reviews, why_not_ready: Callable[[], str] = str, sink: Sink | None = None, clock: Clock | None = None
    ) -> None:
        self._reviews = reviews
        self._clock = clock if clock is not None else SystemClock()
        self._asked_at = -math.inf
        self._sink = sink if sink is not None else Unmeasured()
        self._why_not_ready = why_not_ready
        self.ready = False
        self._stops = False
        self._asked = 0
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self.app = web.Application(client_max_size=MAX_REVIEW_BYTES, middlewares=[self._counted])
        for path in reviews.handlers:
            self.app.router.add_post(path, self._review)
        self.app.router.add_post(CONVERT_PATH, self._convert)
        self.app.router.add_get("/healthz", self._healthz)
        self.app.router.add_get("/readyz", self._readyz)

    async def retire(self, connections: Callable[[], int] = int) -> None:
        """Is not ready from now on, and lets clients go before nobody listens any more: each answer ends its connection, and `connections`
        says how many are open.

        API servers keep connections for the next review. One that is closed while a review is on its way takes that along, and an API
        server does not ask twice. So where reviews come all are waited for that may come by a connection, for `LINGER_S` at most.
        """
        self.ready, self._stops = False, True
        began = self._clock.monotonic()
        asked, is_busy = self._asked, self._asked_at > began - LATELY_S
        until = began + (QUIET_WHERE_ASKED_S if is_busy else QUIET_S)
        while (now := self._clock.monotonic()) < began + LINGER_S and (now < until or (is_busy and connections())):
            await self._clock.sleep(_LOOK_S)
            if self._asked != asked:
                asked, until, is_busy = self._asked, now + QUIET_WHERE_ASKED_S, True

    @web.middleware
    async def _counted(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        if request.method == "POST":  # not a probe
            self._asked += 1
            self._asked_at = self._clock.monotonic()
        response = await handler(request)
        if self._stops:
            response.force_close()
        return response

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _request: web.Request) -> web.Response:
        why_not = self._why_not_ready() if self.ready else "starting or stopping"
        return web.Response(status=503, text=f"not ready: {why_not}") if why_not else web.Response(text="ok")

    async def _review(self, http: web.Request) -> web.Response:
        try:
            body = await http.read()
        except web.HTTPRequestEntityTooLarge:
            self._sink.add(REVIEWS_ANSWERED, http.path, MALFORMED)
            return _refuse(413, f"the body is larger than {MAX_REVIEW_BYTES} bytes")
        began = time.perf_counter()
        result, response = await self._judge(http.path, body)
        self._sink.add(REVIEWS_ANSWERED, http.path, result)
        self._sink.record(REVIEW_DURATION, time.perf_counter() - began, http.path)
        return response

    async def _judge(self, path: str, body: bytes) -> tuple[str, web.Response]:
        """What became of it, and the answer."""
        try:
            request = await self._parse(body)
        except MalformedReview as error:
            return MALFORMED, _refuse(400, str(error))
        try:
            result, answer = await self._answer(path, request, len(body))
        except Exception:
            return FAILED, _fail(path, request.uid)
        return result, web.Response(body=answer, content_type="application/json")

    async def _convert(self, http: web.Request) -> web.Response:
        try:
            body = await http.clone(client_max_size=MAX_CONVERSION_BYTES).read()
        except web.HTTPRequestEntityTooLarge:
            return _refuse(413, f"the body is larger than {MAX_CONVERSION_BYTES} bytes")
        try:
            answer = await self._answer_conversion(body)
        except MalformedReview as error:
            return _refuse(400, str(error))
        except Exception:
            return _fail(http.path)
        return web.Response(body=answer, content_type="application/json")

    async def _answer(self, path: str, request: AdmissionRequest, size: int) -> tuple[str, bytes]:
        """A large review is judged on a thread, on a loop of its own, so that it keeps no others waiting."""
        if size < LARGE_BODY_BYTES:
            return _write(await self._reviews.answer(path, request))
        async with self._large:
            return await asyncio.to_thread(lambda: _write(asyncio.run(self._reviews.answer(path, request))))

    async def _answer_conversion(self, body: bytes) -> bytes:
        if len(body) < LARGE_CONVERSION_BYTES:
            return _answer_conversion(body)
        async with self._large:
            return await asyncio.to_thread(_answer_conversion, body)

    @staticmethod
    async def _parse(body: bytes) -> AdmissionRequest:
        return parse_review(body) if len(body) < LARGE_BODY_BYTES else await asyncio.to_thread(parse_review, body)


def _refuse(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text)


def _fail(path: str, uid: str | None = None) -> web.Response:
    """A bug of ours, inside of its `except`."""
    error_id = uuid.uuid4().hex[:12]
    logger.exception("review failed", extra={"error_id": error_id, "path": path, "uid": uid})
    return _refuse(500, f"internal error {error_id}; the log of the webhook has it")


def _answer_conversion(body: bytes) -> bytes:
    answer = conversion.answer(parse_conversion(body))
    objects = answer["response"].pop("convertedObjects", None)
    written = _dump(answer)
    if objects is None:
        return written
    # One by one: the encoder lets nobody else run until it is through with what it was given.
    return b'%b,"convertedObjects":[%b]}}' % (written.removesuffix(b"}}"), b",".join(map(_dump, objects)))


def _write(answer: dict[str, Any]) -> tuple[str, bytes]:
    """Whether the object was allowed, and the answer that says so."""
    return ALLOWED if answer["response"]["allowed"] else DENIED, _dump(answer)


def _dump(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()
