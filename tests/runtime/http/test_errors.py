"""Answers become the error that callers branch on, with the server's own words, and never too many of them."""

from __future__ import annotations

import json

import pytest

from core.runtime.http import errors
from core.runtime.http.errors import KubeError, build_error


def status(code: int, reason: str, message: str = "no", **details: object) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (415, "UnsupportedMediaType", KubeError),
    ],
)
def test_each_status_has_its_class(code: int, reason: str, kind: type[KubeError]):
    error = build_error(code, status(code, reason, "the words"))
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, "the words")


def test_a_name_that_is_taken_is_a_conflict_too():
    assert isinstance(build_error(409, status(409, "AlreadyExists")), errors.Conflict)


def test_a_body_that_is_no_status_is_quoted_and_cut():
    error = build_error(502, b"<html>" + b"x" * 10_000)
    assert isinstance(error, errors.ServerError)
    assert error.message.startswith("<html>xxx")
    assert len(error.message) <= errors.MAX_TEXT
    assert error.message.endswith("…")


def test_bytes_that_are_no_text_do_no_harm():
    assert build_error(500, b"\xff\xfe").status == 500


@pytest.mark.parametrize(
    ("headers", "body", "wanted"),
    [
        ({"Retry-After": "3"}, status(429, "TooManyRequests", retryAfterSeconds=9), 3.0),
        ({}, status(429, "TooManyRequests", retryAfterSeconds=9), 9.0),
        ({}, status(429, "TooManyRequests"), None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"", None),
        ({"Retry-After": "-1"}, b"", None),
        ({"Retry-After": "inf"}, b"", None),
        ({"Retry-After": "nan"}, b"", None),
    ],
)
def test_too_many_requests_error_has_the_retry_after_time(headers: dict[str, str], body: bytes, wanted: float | None):
    error = build_error(429, body, headers)
    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after == wanted


def test_details_name_causes():
    causes = [{"field": "spec.x", "message": "bad"}]
    assert build_error(422, status(422, "Invalid", causes=causes)).details["causes"] == causes
    assert build_error(422, b"nothing").details == {}


def test_a_status_of_a_watch_is_taken_as_it_is():
    assert isinstance(build_error(410, {"kind": "Status", "reason": "Expired", "message": "old"}), errors.Gone)


def test_unreachable_error_contains_no_proxy_password():
    error = errors.Unreachable("GET https://10.0.0.1/api: 407, message='...', url='http://user:hunter2@proxy.example:3128'")
    assert str(error) == error.message == "GET https://10.0.0.1/api: 407, message='...', url='http://proxy.example:3128'"


@pytest.mark.parametrize(("code", "message"), [(500, "etcdserver: request is too large"), (413, "limit is 3145728")])
def test_object_too_large_to_be_stored_is_invalid(code: int, message: str) -> None:
    """It is an answer: the write took no effect, and will not at any other attempt."""
    assert isinstance(build_error(code, status(code, "", message)), errors.Invalid)
