"""The HTTP side: what is no review gets 400, what is too large 413, our own bug 500 with an id; probes tell the truth."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from io import BytesIO
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from core.api.admission_review import MAX_REVIEW_BYTES, AdmissionRequest
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.jobs.objects import OBJECTS
from core.jobs.podgroup_annotation import Grouping
from core.metric_names import OF_WEBHOOK
from core.names import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY
from core.runtime.report.metrics import Metrics
from e2e import manifests
from tests.runtime.fakes import ManualClock
from tests.scraped import Scraped
from tests.webhook.asking import MUTATE_JOB, VALIDATE_JOB, Webhook, build_body, build_review, serving
from webhook.lookup import run_on_own_loop
from webhook.review import Reviews
from webhook.server import LARGE_BODY_BYTES, LATELY_S, LINGER_S, QUIET_S, QUIET_WHERE_ASKED_S

JOB = manifests.build_job("train", "team-a", pods=4, required="rack")


def without(field: str) -> bytes:
    whole = build_review(JOB)
    del whole["request"][field]
    return json.dumps(whole).encode()


MALFORMED = {
    "nothing": b"",
    "no JSON": b"queue: main",
    "no UTF-8": b'"\xff"',
    "a list": b"[]",
    "deeply nested": b"[" * 100_000,
    "no request": b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
    "wrong version": json.dumps({**build_review(JOB), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    "another kind": json.dumps({**build_review(JOB), "kind": "ConversionReview"}).encode(),
    "missing uid": without("uid"),
    "empty uid": build_body(JOB, uid=""),
    "missing kind": without("kind"),
    "unknown operation": build_body(JOB, operation="READ"),
    "object is a text": build_body("x" * 100_000),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_review_is_answered_with_400_and_a_short_message(name: str):
    async with serving(Webhook().reviews) as (client, _):
        reply = await client.post(VALIDATE_JOB, data=MALFORMED[name])
        text = await reply.text()
    assert reply.status == 400
    assert text.startswith("the body is ")
    assert len(text) < 400


async def test_reviews_are_counted_by_their_answer_and_timed():
    metrics, both = Metrics("test", OF_WEBHOOK), {"annotations": {REQUIRED_TOPOLOGY: "a", PREFERRED_TOPOLOGY: "b"}}
    bad = {**JOB, "spec": {**JOB["spec"], "template": {**JOB["spec"]["template"], "metadata": both}}}

    async def has_default_queue(namespace: str) -> bool:
        raise ValueError("a bug")

    async with serving(Webhook().reviews, metrics) as (client, _):
        for path, data in (
            (MUTATE_JOB, build_body(JOB)),
            (VALIDATE_JOB, build_body(JOB)),
            (VALIDATE_JOB, build_body(bad)),
            (VALIDATE_JOB, b"queue: main"),
        ):
            await client.post(path, data=data)
        await client.post(MUTATE_JOB, data=BytesIO(b" " * (MAX_REVIEW_BYTES + 1)))
    unqueued = {**JOB, "metadata": {"name": "train", "namespace": "team-a"}}
    async with serving(Reviews(run_on_own_loop(has_default_queue)), metrics) as (client, _):
        assert (await client.post(MUTATE_JOB, data=build_body(unqueued))).status == 500
    found = Scraped(metrics.expose()[0].decode())
    assert metrics.shutdown()
    assert found.rows("topogate_reviews_total", "path", "result") == {
        (MUTATE_JOB, "allowed"): 1,
        (VALIDATE_JOB, "allowed"): 1,
        (VALIDATE_JOB, "denied"): 1,
        (VALIDATE_JOB, "malformed"): 1,
        (MUTATE_JOB, "malformed"): 1,
        (MUTATE_JOB, "failed"): 1,
    }
    assert found.rows("topogate_review_duration_seconds_count", "path") == {(MUTATE_JOB,): 2, (VALIDATE_JOB,): 3}


async def test_a_body_over_8_mib_is_refused_before_it_is_all_read():
    async with serving(Webhook().reviews) as (client, _):
        reply = await client.post(MUTATE_JOB, data=BytesIO(b" " * (MAX_REVIEW_BYTES + 1)))
        assert (reply.status, await reply.text()) == (413, "the body is larger than 8388608 bytes")


@pytest.mark.parametrize("size", [200 * 1024, 7 * 1024 * 1024], ids=["parsed at once", "parsed on a thread"])
async def test_a_body_below_the_limit_is_answered(size: int):
    large = {**JOB, "metadata": {**JOB["metadata"], "annotations": {"filler": "x" * size}}}
    async with serving(Webhook().reviews) as (client, _):
        reply = await client.post(MUTATE_JOB, data=BytesIO(build_body(large)))
        answer = await reply.json()
    assert reply.status == 200
    assert reply.content_type == "application/json"
    assert answer["response"]["uid"] == "4f0c"
    assert answer["response"]["patchType"] == "JSONPatch"
    assert len(json.dumps(answer)) < 2000, "the patch says what changes, not the object again"


async def test_a_large_job_without_a_queue_is_judged_on_a_loop_of_its_own_and_looks_up_on_ours():
    home = asyncio.get_running_loop()
    loops: list[bool] = []

    async def has_default_queue(namespace: str) -> bool:
        loops.append(asyncio.get_running_loop() is home)
        return True

    large = {**JOB, "metadata": {"name": "train", "namespace": "team-a", "annotations": {"filler": "x" * LARGE_BODY_BYTES}}}
    async with serving(Reviews(run_on_own_loop(has_default_queue))) as (client, _):
        reply = await client.post(MUTATE_JOB, data=BytesIO(build_body(large)))
        answer = await reply.json()
    assert loops == [True]
    assert b"queue-name" in base64.b64decode(answer["response"]["patch"])


async def test_a_bug_of_ours_is_answered_with_500_and_an_id_that_the_log_has(caplog: pytest.LogCaptureFixture):
    async def fails(request: AdmissionRequest) -> dict[str, Any]:
        raise KeyError("secret detail")

    webhook = Webhook()
    webhook.reviews.handlers[MUTATE_JOB] = fails
    async with serving(webhook.reviews) as (client, _):
        with caplog.at_level(logging.ERROR):
            reply = await client.post(MUTATE_JOB, data=build_body(JOB))
            text = await reply.text()
        again = await client.post(VALIDATE_JOB, data=build_body(JOB))
    assert reply.status == 500
    assert "secret detail" not in text
    (record,) = caplog.records
    fields = vars(record)
    assert len(fields["error_id"]) >= 8
    assert fields["error_id"] in text
    assert (fields["path"], fields["uid"]) == (MUTATE_JOB, "4f0c")
    assert record.exc_info is not None, "the log has the traceback"
    assert again.status == 200, "other reviews go on"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/mutate-batch-v1-pod", 404), ("POST", "/", 404), ("GET", MUTATE_JOB, 405)]
)
async def test_an_unknown_path_is_not_found(method: str, path: str, status: int):
    async with serving(Webhook().reviews) as (client, _):
        assert (await client.request(method, path, data=build_body(JOB))).status == status


async def test_it_is_healthy_from_the_start_and_ready_only_when_it_serves():
    async with serving(Webhook().reviews) as (client, server):
        assert (await client.get("/healthz")).status == 200
        before = await client.get("/readyz")
        assert (before.status, await before.text()) == (503, "not ready: starting or stopping")
        server.ready = True
        assert (await client.get("/readyz")).status == 200
        server.ready = False
        assert (await client.get("/readyz")).status == 503
        assert (await client.get("/healthz")).status == 200


class AskingClock(ManualClock):
    """Somebody asks in each pause, so many times."""

    client: TestClient

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times
        self.answers: set[tuple[int, str | None]] = set()

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self._left:
            self._left -= 1
            reply = await self.client.post(MUTATE_JOB, data=build_body(JOB))
            self.answers.add((reply.status, reply.headers.get("Connection")))


@pytest.mark.parametrize(
    ("times", "lasts_s"),
    [(0, QUIET_S), (4, 4 * 0.05 + QUIET_WHERE_ASKED_S), (1000, LINGER_S)],
    ids=["nobody asks", "some ask", "many ask"],
)
async def test_stopping_server_answers_while_requests_arrive_and_closes_each_connection(times: int, lasts_s: float):
    clock = AskingClock(times)
    async with serving(Webhook().reviews, clock=clock) as (clock.client, server):
        client, server.ready = clock.client, True
        assert "Connection" not in (await client.post(MUTATE_JOB, data=build_body(JOB))).headers
        clock.time += LATELY_S
        began = clock.time
        await server.retire()
        assert clock.time - began == pytest.approx(lasts_s, abs=0.11)
        assert clock.answers == ({(200, "close")} if times else set())
        assert (await client.get("/readyz")).status == 503


@pytest.mark.parametrize(("times", "lasts_s"), [(0, QUIET_S), (1, LINGER_S)], ids=["nobody asks", "somebody asks"])
async def test_stopping_server_waits_for_open_connections_only_if_reviews_came(times: int, lasts_s: float):
    clock = AskingClock(times)
    async with serving(Webhook().reviews, clock=clock) as (clock.client, server):
        began = clock.time
        await server.retire(lambda: 3)
        assert clock.time - began == pytest.approx(lasts_s, abs=0.11)


@pytest.mark.parametrize(
    ("ago_s", "connections", "lasts_s"),
    [(LATELY_S - 0.1, 3, LINGER_S), (LATELY_S - 0.1, 0, QUIET_WHERE_ASKED_S), (LATELY_S, 3, QUIET_S)],
    ids=["lately, by connections that are open", "lately, by none that is left", "long ago"],
)
async def test_stopping_server_waits_for_a_recent_client_that_is_silent(ago_s: float, connections: int, lasts_s: float):
    """18 of 4,069 reviews failed where nothing came for the first quarter of a second, and then all at once."""
    clock = AskingClock(0)
    async with serving(Webhook().reviews, clock=clock) as (client, server):
        await client.post(MUTATE_JOB, data=build_body(JOB))
        clock.time += ago_s
        began = clock.time
        await server.retire(lambda: connections)
        assert clock.time - began == pytest.approx(lasts_s, abs=0.11)


async def test_every_registered_path_answers():
    webhook = Webhook()
    grouping = [kind for kind in (*KINDS, *list_pod_kinds()) if isinstance(kind, Grouping)]  # which can be asked about as groups, too
    pairs = len(KINDS) + len(list_pod_kinds()) + len(OBJECTS) + len(grouping)
    judged_only = 1 + sum(rules.default is None for rules in OBJECTS)  # scale, and our own objects without defaults
    assert len(webhook.reviews.handlers) == 2 * (pairs - judged_only + 1) + judged_only
    async with serving(webhook.reviews) as (client, _):
        for path in webhook.reviews.handlers:
            reply = await client.post(path, data=build_body(None, operation="DELETE"))
            assert (await reply.json())["response"] == {"uid": "4f0c", "allowed": True}, path


def test_the_limit_leaves_room_for_the_largest_review_of_the_api_server():
    """Object and old object of up to 3 MiB each (house-style pitfall 11: aiohttp's own limit is 1 MiB)."""
    assert MAX_REVIEW_BYTES > 7 * 1024 * 1024
