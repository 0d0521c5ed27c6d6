"""AdmissionReview: any body is parsed or refused in a short message; any answer is one the API server takes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.api.admission_review import (
    MAX_CAUSES,
    MAX_REVIEW_BYTES,
    MAX_WARNING_CHARS,
    AdmissionRequest,
    Cause,
    allow,
    build_patched,
    deny,
    parse_review,
)
from core.api.body import MAX_MESSAGE_CHARS, MAX_QUOTE_CHARS, MalformedReview

REQUEST: dict[str, Any] = {
    "uid": "u-1",
    "kind": {"group": "batch", "version": "v1", "kind": "Job"},
    "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
    "requestKind": {"group": "batch", "version": "v1", "kind": "Job"},
    "name": "j",
    "namespace": "n",
    "operation": "CREATE",
    "userInfo": {"username": "alice", "groups": ["g"], "extra": {"x": ["y"]}},
    "object": {"kind": "Job"},
    "oldObject": None,
    "dryRun": False,
    "options": {"kind": "CreateOptions"},
}


def build_body(request: Any = REQUEST, **envelope: Any) -> bytes:
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request, **envelope}).encode()


def request() -> AdmissionRequest:
    return parse_review(build_body())


def test_admission_review_of_the_api_server_is_parsed():
    read = request()
    assert (read.uid, read.operation, read.kind.kind, read.resource.resource) == ("u-1", "CREATE", "Job", "jobs")
    assert read.user_info.groups == ("g",)
    assert read.object == {"kind": "Job"}
    assert read.old_object is None


MALFORMED = {
    "nothing": b"",
    "no JSON": b"<html>",
    "no UTF-8": b'{"a": "\xff"}',
    "a number": b"3",
    "no request": json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode(),
    "another kind": build_body(kind="Pod"),
    "another version": build_body(apiVersion="admission.k8s.io/v1beta1"),
    "no uid": build_body({**REQUEST, "uid": ""}),
    "unknown operation": build_body({**REQUEST, "operation": "PATCH"}),
    "object of text": build_body({**REQUEST, "object": "x" * 10_000}),
    "deeply nested": b"[" * 200_000,
    "a number that is none": build_body({**REQUEST, "object": {"spec": float("nan")}}),
    "a number without end": build_body({**REQUEST, "object": {"spec": "@"}}).replace(b'"@"', b"1e400"),
    "a number of too many digits": build_body({**REQUEST, "object": {"spec": "@"}}).replace(b'"@"', b"1" * 5000),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_review_is_refused_in_a_short_message(body):
    with pytest.raises(MalformedReview) as refused:
        parse_review(body)
    assert 10 < len(str(refused.value)) < MAX_QUOTE_CHARS + 100


def test_a_body_over_the_limit_is_not_even_parsed():
    with pytest.raises(MalformedReview, match="more than the 8388608"):
        parse_review(b" " * (MAX_REVIEW_BYTES + 1))


@given(st.binary(max_size=200))
def test_no_body_makes_parsing_fail_in_another_way(body):
    with pytest.raises(MalformedReview):
        parse_review(body)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_no_request_of_the_wrong_shape_makes_parsing_fail_in_another_way(value):
    with pytest.raises(MalformedReview):
        parse_review(build_body(value))


def answers() -> dict[str, dict[str, Any]]:
    return {
        "allowed": allow(request()),
        "denied": deny(request(), "no"),
        "patched": build_patched(request(), [{"op": "add", "path": "/a", "value": 1}]),
    }


@pytest.mark.parametrize("kind", ["allowed", "denied", "patched"])
def test_every_answer_names_version_kind_and_request(kind):
    answer = answers()[kind]
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["kind"] == "AdmissionReview"
    assert answer["response"]["uid"] == "u-1"
    assert answer["response"]["allowed"] is (kind != "denied")
    json.dumps(answer)


def test_a_patch_is_base64_of_json_patch():
    operations = [{"op": "add", "path": "/metadata/annotations/a~1b", "value": "é"}]
    response = build_patched(request(), operations)["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == operations


def test_an_empty_patch_is_a_plain_yes():
    assert build_patched(request(), []) == allow(request())


def test_a_denial_lists_every_cause_for_programs_and_for_people():
    causes = [Cause("spec.a", "must be 1"), Cause("spec.b", "is unknown", "FieldValueNotSupported")]
    status = deny(request(), "two mistakes", causes)["response"]["status"]
    assert status["code"] == 422
    assert status["reason"] == "Invalid"
    assert status["message"] == "two mistakes\nspec.a: must be 1\nspec.b: is unknown"
    assert status["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "field": "spec.a", "message": "must be 1"},
        {"reason": "FieldValueNotSupported", "field": "spec.b", "message": "is unknown"},
    ]
    assert (status["details"]["kind"], status["details"]["group"], status["details"]["name"]) == ("Job", "batch", "j")


def test_a_denial_stays_small_however_much_is_wrong():
    status = deny(request(), "many", [Cause(f"spec.f{i}", "x" * 10_000) for i in range(500)])["response"]["status"]
    assert len(status["message"]) == MAX_MESSAGE_CHARS
    assert len(status["details"]["causes"]) == MAX_CAUSES


def test_warnings_are_passed_on_shortened():
    response = allow(request(), ["short", "y" * 1000])["response"]
    assert response["warnings"][0] == "short"
    assert len(response["warnings"][1]) == MAX_WARNING_CHARS
    assert "warnings" not in allow(request())["response"]
