"""The admission and conversion server: aiohttp over TLS.

Two channels of error are kept apart: a body that is no review is answered with 400, an object that
breaks a rule with 200 and `allowed: false`; a bug of ours is a 500 with an id that the log has, too.
"""

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from core.api.admission_review import MAX_REVIEW_BYTES, parse_review
from core.api.body import MalformedReview
from core.api.conversion_review import CONVERT_PATH, MAX_CONVERSION_BYTES, parse_conversion
from core.metric_names import ALLOWED, DENIED, FAILED, MALFORMED, REVIEW_DURATION, REVIEWS_ANSWERED
from core.runtime.clock import Clock, SystemClock
from core.runtime.http.parsing import encode
from core.runtime.report.metrics import Sink, Unmeasured
from core.runtime.serving import http_port
from core.runtime.serving.connections import Connections
from core.runtime.serving.http_port import find_descriptor
from core.runtime.serving.shared_limits import SharedLimit, estimate_memory, give_memory_back
from webhook import conversion
from webhook.intake import BodyTooLarge, GivenUp, Intake, NoRoom
from webhook.review import Reviews

logger = logging.getLogger(__name__)
# Above this, parsing and judging would keep other reviews waiting; they go to a thread.
LARGE_BODY_BYTES = 256 * 1024
AT_ONCE = 2  # on threads, of each lane
# Bodies that arrive, wait or are judged. Large ones and conversions have lanes of their own, so that they keep no small ones waiting.
SMALL_BODIES_BYTES, LARGE_BODIES_BYTES, CONVERSION_BODIES_BYTES = 8 * 1024 * 1024, 2 * MAX_REVIEW_BYTES, MAX_CONVERSION_BYTES
# Memory for parsed bodies at once, by `estimate_memory`; with the above and the connections less than the chart's
# limit.
SMALL_JUDGED_BYTES, LARGE_JUDGED_BYTES, CONVERSIONS_JUDGED_BYTES = (mebibytes * 1024 * 1024 for mebibytes in (80, 128, 224))
_OF_CONVERSION = 160  # bytes of memory by a byte that is converted: an assignment grows
# API servers give a review 10 s in all.
READ_S, WAIT_S = 4.0, 4.0
_BUSY = "too many reviews at once; try again"
_CLOSES = (401, 408, 413, 415, 503)  # answers to what was not read: the connection cannot be used any more
# Converting is more work than parsing, and a small body may hold a large assignment.
LARGE_CONVERSION_BYTES = 16 * 1024
# Endpoints of a Service learn within a second or so that a pod stops. A client that has sent no request until then will
# not send any later. A client that sends requests, or did a moment ago, may pause longer than between two of them, on a
# busy machine, with a review on its way already.
LINGER_S = 4.0
LATELY_S = 5.0
QUIET_S, QUIET_WHERE_ASKED_S = 0.25, 1.0
_LOOK_S = 0.05


Judge = Callable[[str, bytes], Coroutine[Any, Any, tuple[str, web.Response]]]


@dataclass(frozen=True, slots=True)
class _Lane:
    """Limits on the bytes of bodies, on the memory for parsed objects, and on the threads of reviews."""

    bodies: Intake
    judged: SharedLimit
    threads: SharedLimit


class AdmissionServer:
    """Routes of the webhook; `ready` is the answer of `/readyz`, and `why_not_ready` may have a reason against it while
    it is true.

    `connections` count the requests that come by them; `asks_for_certificate`: only clients with a certificate, which
    TLS has verified, are reviewed.
    """

    def __init__(
        self,
        reviews: Reviews,
        why_not_ready: Callable[[], str] = str,
        sink: Sink | None = None,
        clock: Clock | None = None,
        *,
        connections: Connections | None = None,
        asks_for_certificate: bool = False,
    ) -> None:
        self._reviews = reviews
        self._connections = connections
        self._asks_for_certificate = asks_for_certificate
        self._clock = clock if clock is not None else SystemClock()
        self._asked_at = -math.inf
        self._sink = sink if sink is not None else Unmeasured()
        self._why_not_ready = why_not_ready
        self.ready = False
        self._stops = False
        self._asked = 0
        self.small = _Lane(Intake(SMALL_BODIES_BYTES), SharedLimit(SMALL_JUDGED_BYTES), SharedLimit(AT_ONCE))
        self.large = _Lane(Intake(LARGE_BODIES_BYTES), SharedLimit(LARGE_JUDGED_BYTES), SharedLimit(AT_ONCE))
        self.conversions = _Lane(Intake(CONVERSION_BODIES_BYTES), SharedLimit(CONVERSIONS_JUDGED_BYTES), SharedLimit(AT_ONCE))
        self.app = web.Application(client_max_size=MAX_REVIEW_BYTES, middlewares=[self._count_request])
        for path in reviews.handlers:
            self.app.router.add_post(path, self._answer_review)
        self.app.router.add_post(CONVERT_PATH, self._convert)
        self.app.router.add_get("/healthz", self._answer_healthz)
        self.app.router.add_get("/readyz", self._answer_readyz)

    def make_runner(self, *, shutdown_timeout_s: float) -> web.AppRunner:
        """Returns the runner that serves the routes; at its end reviews get `shutdown_timeout_s` seconds. A review is dropped when its
        client has gone; a body that is not read yet takes little memory.
        """
        return http_port.make_runner(self.app, shutdown_timeout_s=shutdown_timeout_s)

    async def retire(self, connections: Callable[[], int] = int) -> None:
        """Reports not ready from now on, and lets clients leave before the port closes: each answer ends its connection. `connections`
        returns the number of open ones. API servers keep connections for the next review. If one is closed while a review is on its way,
        that review is lost, and an API server does not send it again. So it returns after a quiet moment. While reviews come, it waits
        until none is open, for `LINGER_S` seconds at most."""
        self.ready, self._stops = False, True
        began = self._clock.monotonic()
        asked, is_busy = self._asked, self._asked_at > began - LATELY_S
        until = began + (QUIET_WHERE_ASKED_S if is_busy else QUIET_S)
        while (now := self._clock.monotonic()) < began + LINGER_S and (now < until or (is_busy and connections())):
            await self._clock.sleep(_LOOK_S)
            if self._asked != asked:
                asked, until, is_busy = self._asked, now + QUIET_WHERE_ASKED_S, True

    def find_unready_reason(self) -> str:
        """Returns the reason for which `/readyz` answers 503; empty where it is ready."""
        return self._why_not_ready() if self.ready else "starting or stopping"

    @web.middleware
    async def _count_request(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.method == "POST":  # not a probe
            self._asked += 1
            self._asked_at = self._clock.monotonic()
        fd, status = find_descriptor(request), 0
        if self._connections is not None:
            self._connections.begin(fd)
        try:
            response = await handler(request)
            status = response.status
        finally:
            if self._connections is not None:
                self._connections.end(fd, reviewed=request.method == "POST" and status == 200)
        if self._stops or status in _CLOSES:
            response.force_close()
        return response

    async def _answer_healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _answer_readyz(self, _request: web.Request) -> web.Response:
        why_not = self.find_unready_reason()
        return web.Response(status=503, text=f"not ready: {why_not}") if why_not else web.Response(text="ok")

    async def _answer_review(self, http: web.Request) -> web.Response:
        began = time.perf_counter()
        result, response, is_read = await self._serve(http, MAX_REVIEW_BYTES, self._judge)
        self._sink.add(REVIEWS_ANSWERED, http.path, result)
        if is_read:
            self._sink.record(REVIEW_DURATION, time.perf_counter() - began, http.path)
        return response

    async def _convert(self, http: web.Request) -> web.Response:
        _, response, _ = await self._serve(http, MAX_CONVERSION_BYTES, self._judge_conversion)
        return response

    async def _serve(self, http: web.Request, most: int, judge: Judge) -> tuple[str, web.Response, bool]:
        """Reads a body and has it judged: what became of it, the answer, and whether it was read."""
        refusal = self._refuse_unread(http, most)
        if refusal is not None:
            return MALFORMED, refusal, False
        size = most if http.content_length is None else http.content_length
        lane = self.small if size <= LARGE_BODY_BYTES else self.large
        if judge == self._judge_conversion:
            lane = self.conversions
        fd = find_descriptor(http)
        try:
            async with lane.bodies.read(http.content, most, READ_S) as body:
                if self._connections is not None:
                    self._connections.has_arrived(fd)
                return (*await self._judge_within(lane, http.path, body, judge, http.remote or ""), True)
        except BodyTooLarge:
            return MALFORMED, _refuse(413, f"the body is larger than {most} bytes"), False
        except (GivenUp, TimeoutError):
            return MALFORMED, _refuse(408, f"the body stood still, or did not arrive within {READ_S:g} s"), False
        except NoRoom:
            return FAILED, _refuse(503, _BUSY), False

    def _refuse_unread(self, http: web.Request, most: int) -> web.Response | None:
        """What the headers alone show."""
        if self._asks_for_certificate and not _has_certificate(http):
            return _refuse(401, "a client certificate is needed (--client-ca-file)")
        if http.headers.get("Content-Encoding", "identity").lower() != "identity":
            return _refuse(415, "a body without Content-Encoding is expected")
        if http.content_length is not None and http.content_length > most:
            return _refuse(413, f"the body is larger than {most} bytes")
        return None

    async def _judge_within(self, lane: _Lane, path: str, body: bytes, judge: Judge, client: str) -> tuple[str, web.Response]:
        """Has a body judged once there is memory for it: on the loop, or a large one on a thread, so that it keeps no others waiting.

        What a thread has is given back when it is through, also where its client has gone.
        """
        converts = judge == self._judge_conversion
        cost = estimate_memory(body)
        if cost > lane.judged.limit:
            return MALFORMED, _refuse(413, "the body has too many parts to be judged")
        if converts:
            cost = min(max(cost, _OF_CONVERSION * len(body)), lane.judged.limit)  # what it grows to at most; the largest are alone
        is_large = len(body) >= (LARGE_CONVERSION_BYTES if converts else LARGE_BODY_BYTES)
        took = 0
        try:
            async with asyncio.timeout(WAIT_S):
                await lane.judged.wait_for(cost, client)
                took = cost
                if is_large:
                    await lane.threads.wait_for(1, client)
        except TimeoutError:
            lane.judged.give(took)
            return FAILED, _refuse(503, _BUSY)
        except asyncio.CancelledError:
            lane.judged.give(took)
            raise
        if not is_large:
            try:
                return await judge(path, body)
            finally:
                lane.judged.give(cost)
        work = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(judge(path, body))))
        work.add_done_callback(lambda _: self._end_large(lane, cost))
        return await asyncio.shield(work)

    def _end_large(self, lane: _Lane, cost: int) -> None:
        lane.threads.give(1)
        lane.judged.give(cost)
        if not lane.threads.used:
            give_memory_back()

    async def _judge(self, path: str, body: bytes) -> tuple[str, web.Response]:
        """What became of a review, and the answer."""
        try:
            request = parse_review(body)
        except MalformedReview as error:
            return MALFORMED, _refuse(400, str(error))
        try:
            answer = await self._reviews.answer(path, request)
            written = _encode_answer(answer)
        except Exception:
            return FAILED, _fail(path, request.uid)
        return ALLOWED if answer["response"]["allowed"] else DENIED, web.Response(body=written, content_type="application/json")

    async def _judge_conversion(self, path: str, body: bytes) -> tuple[str, web.Response]:
        try:
            return ALLOWED, web.Response(body=_answer_conversion(body), content_type="application/json")
        except MalformedReview as error:
            return MALFORMED, _refuse(400, str(error))
        except Exception:
            return FAILED, _fail(path)


def _has_certificate(http: web.Request) -> bool:
    return http.transport is not None and bool(http.transport.get_extra_info("peercert"))


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
    written = _encode_answer(answer)
    if objects is None:
        return written
    # One by one: the encoder blocks all other tasks until it has encoded what it was given.
    return b'%b,"convertedObjects":[%b]}}' % (written.removesuffix(b"}}"), b",".join(map(_encode_answer, objects)))


def _encode_answer(answer: dict[str, Any]) -> bytes:
    return encode(answer)
