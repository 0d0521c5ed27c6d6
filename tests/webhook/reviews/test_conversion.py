"""The HTTP side of conversion: batches in order, all or nothing, any body answered, large ones without holding others up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.api.body import MalformedReview
from core.api.conversion_review import CONVERT_PATH, MAX_CONVERSION_BYTES, parse_conversion
from core.api.convert import CONVERTED
from core.names import API_VERSION, OLD_API_VERSION
from tests.api.converting import json_values
from tests.webhook.asking import MUTATE_JOB, Webhook, build_body, serving
from webhook import conversion as answering
from webhook.conversion import answer
from webhook.registration import build_conversion

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {}}}}


def queue(name: str = "q", version: str = OLD_API_VERSION) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {"cohort": "all"}}


def build_workload(domains: Any, filler: int = 0) -> dict[str, Any]:
    given = [{"name": "main", "topologyAssignment": {"levels": ["h"], "domains": domains}}]
    status = {"admission": {"clusterQueue": "c", "podSetAssignments": given}}
    metadata = {"name": "w", "annotations": {"filler": "x" * filler}}
    return {"apiVersion": OLD_API_VERSION, "kind": "Workload", "metadata": metadata, "spec": {"podSets": []}, "status": status}


def build_review(objects: Any, desired: str = API_VERSION, **changes: Any) -> bytes:
    request = {"uid": "7a", "desiredAPIVersion": desired, "objects": objects}
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return json.dumps({**whole, **changes}).encode()


async def ask(sent: bytes) -> dict[str, Any]:
    async with serving(Webhook().reviews) as (client, _):
        reply = await client.post(CONVERT_PATH, data=BytesIO(sent))
        assert reply.status == 200, await reply.text()
        assert reply.content_type == "application/json"
        answer = await reply.json()
    assert (answer["apiVersion"], answer["kind"], answer["response"]["uid"]) == ("apiextensions.k8s.io/v1", "ConversionReview", "7a")
    response: dict[str, Any] = answer["response"]
    return response


async def test_all_objects_of_a_review_are_converted_in_their_order():
    response = await ask(build_review([queue("a"), queue("b", API_VERSION), queue("c")]))
    assert response["result"] == {"status": "Success"}
    assert [(obj["metadata"]["name"], obj["apiVersion"]) for obj in response["convertedObjects"]] == [(n, API_VERSION) for n in "abc"]
    assert response["convertedObjects"][0]["spec"] == {"cohortName": "all"}


async def test_an_empty_review_is_converted_too():
    assert (await ask(build_review([])))["convertedObjects"] == []


async def test_one_object_that_cannot_be_converted_fails_the_review_with_the_reason():
    response = await ask(build_review([queue("a"), build_workload([{"values": [], "count": 1}])]))
    assert "convertedObjects" not in response
    assert response["result"]["status"] == "Failure"
    where = "status.admission.podSetAssignments[0].topologyAssignment.domains[0].values"
    assert all(part in response["result"]["message"] for part in ("Workload 'w'", API_VERSION, where))


async def test_conversion_of_an_unknown_kind_or_version_fails_with_a_short_message():
    for asked in (build_review([{**queue(), "kind": "K" * 10_000}]), build_review([queue()], "kueue.x-k8s.io/v7")):
        message = (await ask(asked))["result"]["message"]
        assert "kueue.x-k8s.io/v" in message
        assert len(message) < 600


MALFORMED = {
    "nothing": b"",
    "no JSON": b"kind: ConversionReview",
    "no UTF-8": b'"\xff"',
    "a list": b"[]",
    "deeply nested": b"[" * 100_000,
    "another kind": build_review([], kind="AdmissionReview"),
    "another version": build_review([], apiVersion="apiextensions.k8s.io/v1beta1"),
    "no request": build_review([], request=None),
    "no uid": build_review([], request={"desiredAPIVersion": API_VERSION, "objects": []}),
    "objects that are none": build_review([3]),
    "admission": build_body(JOB),
    "a number that is none": build_review([{"spec": float("nan")}]),
    "a number without end": build_review([{"spec": "@"}]).replace(b'"@"', b"-1e400"),
    "a number of too many digits": build_review([{"spec": "@"}]).replace(b'"@"', b"1" * 5000),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_review_is_answered_with_400_and_a_short_message(name: str):
    async with serving(Webhook().reviews) as (client, _):
        reply = await client.post(CONVERT_PATH, data=MALFORMED[name])
        text = await reply.text()
    assert reply.status == 400
    assert text.startswith("the body is not")
    assert len(text) < 400


@given(
    st.binary(max_size=60)
    | json_values.map(lambda value: json.dumps(value).encode())
    | json_values.map(lambda value: build_review([value]))
)
def test_any_body_is_answered_or_refused_in_words(sent: bytes):
    with contextlib.suppress(MalformedReview):
        json.dumps(answer(parse_conversion(sent)))


async def test_a_list_of_7_mib_is_converted():
    objects = [build_workload([{"values": [f"n{i}"], "count": 1}], filler=100_000) for i in range(75)]
    sent = build_review(objects)
    assert 7 * 1024 * 1024 < len(sent) < MAX_CONVERSION_BYTES
    response = await ask(sent)
    assert response["result"]["status"] == "Success"
    assert len(response["convertedObjects"]) == 75


async def test_a_workload_of_120_000_domains_is_converted_both_ways_and_other_reviews_are_answered_meanwhile():
    large = build_workload([{"values": [f"gke-pool-of-gpus-{i:06}"], "count": 8} for i in range(120_000)])
    async with serving(Webhook().reviews) as (client, _):
        converting = asyncio.create_task(client.post(CONVERT_PATH, data=BytesIO(build_review([large]))))
        while not converting.done():
            reply = await client.post(MUTATE_JOB, data=build_body(JOB))
            assert reply.status == 200
            await asyncio.sleep(0.01)
        stored = (await (await converting).json())["response"]["convertedObjects"][0]
        assert len(json.dumps(stored)) < 1_500_000, "it is stored in one object"
        back = await client.post(CONVERT_PATH, data=build_review([stored], OLD_API_VERSION))
        assert (await back.json())["response"]["convertedObjects"] == [large]


async def test_a_body_over_16_mib_is_refused():
    async with serving(Webhook().reviews) as (client, _):
        reply = await client.post(CONVERT_PATH, data=BytesIO(b" " * (MAX_CONVERSION_BYTES + 1)))
        assert (reply.status, await reply.text()) == (413, "the body is larger than 16777216 bytes")


async def test_a_bug_of_ours_is_answered_with_500_and_an_id_that_the_log_has(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fails(obj: Any, version: str) -> Any:
        raise KeyError("secret detail")

    monkeypatch.setattr(answering, "convert", fails)
    async with serving(Webhook().reviews) as (client, _):
        with caplog.at_level(logging.ERROR):
            reply = await client.post(CONVERT_PATH, data=build_review([queue()]))
            text = await reply.text()
    assert reply.status == 500
    assert "secret detail" not in text
    (record,) = caplog.records
    assert vars(record)["error_id"] in text


def test_conversion_client_config_names_a_url_or_a_service():
    by_url = build_conversion("Q0E=", {"url": "https://127.0.0.1:9443/"})
    assert by_url["webhook"]["clientConfig"] == {"caBundle": "Q0E=", "url": "https://127.0.0.1:9443/convert"}
    service = {"namespace": "n", "name": "s", "port": 443}
    by_service = build_conversion("Q0E=", {"service": service})["webhook"]
    assert by_service["clientConfig"] == {"caBundle": "Q0E=", "service": {**service, "path": "/convert"}}
    assert by_service["conversionReviewVersions"] == ["v1"]
    assert CONVERTED == ("ClusterQueue", "Cohort", "LocalQueue", "Workload")
