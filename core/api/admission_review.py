"""AdmissionReview v1: what the API server asks a webhook, and how it is answered.

Two channels of error are kept apart. A request that is no review at all is refused as such (`core.api.body`). An object that
breaks a rule is a good review with the answer no: `deny`, with every field error at once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from core.api.body import MAX_MESSAGE_CHARS, MalformedReview, cut_text, parse_body
from core.api.kinds.meta import Wire

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
# A review may hold object and old object of up to 3 MiB each, and comes with a megabyte of the rest at most.
MAX_REVIEW_BYTES = 8 * 1024 * 1024
MAX_WARNING_CHARS = 256
MAX_CAUSES = 64
UNPROCESSABLE = 422
UNAVAILABLE = 503
_REASONS = {UNPROCESSABLE: "Invalid", UNAVAILABLE: "ServiceUnavailable"}


class GroupVersionKind(Wire):
    group: str = ""
    version: str
    kind: str


class GroupVersionResource(Wire):
    group: str = ""
    version: str
    resource: str


class UserInfo(Wire):
    username: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class AdmissionRequest(Wire):
    """A request of a client to change an object. `object` is None on DELETE, `old_object` on CREATE."""

    uid: str = Field(min_length=1)
    kind: GroupVersionKind
    resource: GroupVersionResource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    user_info: UserInfo = Field(default_factory=UserInfo)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = None


class AdmissionReview(Wire):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


@dataclass(frozen=True, slots=True)
class Cause:
    """One broken rule: where, by JSON path, and what would be right."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def parse_review(body: bytes) -> AdmissionRequest:
    """Returns the request in the body of a review. Raises `MalformedReview` with a short message for any other body, also for one that is
    too large.
    """
    if len(body) > MAX_REVIEW_BYTES:
        raise MalformedReview(f"the body has {len(body)} bytes, more than the {MAX_REVIEW_BYTES} that a review may have")
    return parse_body(body, AdmissionReview, f"an {KIND} of {API_VERSION}").request


def allow(request: AdmissionRequest, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the answer to a review that allows the request, perhaps with warnings that kubectl shows to the user, each cut to
    `MAX_WARNING_CHARS`."""
    return _build_review(request, {"allowed": True}, warnings)


def build_patched(request: AdmissionRequest, patch: Sequence[Mapping[str, Any]], warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the answer to a review that allows the request with these JSON Patch operations; an empty patch changes nothing. Warnings are
    cut as in `allow`."""
    if not patch:
        return allow(request, warnings)
    encoded = base64.b64encode(json.dumps(list(patch), separators=(",", ":")).encode()).decode()
    return _build_review(request, {"allowed": True, "patchType": "JSONPatch", "patch": encoded}, warnings)


def patch_of(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the JSON Patch operations of the `response` object of an answer, as `build_patched` encodes them; empty where it has none."""
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response.get("patch") or "W10="))
    return operations


def deny(
    request: AdmissionRequest,
    message: str,
    causes: Sequence[Cause] = (),
    warnings: Sequence[str] = (),
    code: int = UNPROCESSABLE,
    retry_after_s: int | None = None,
) -> dict[str, Any]:
    """Returns the answer to a review that refuses the request, with its reason. Newer kubectl lists the causes, other clients show the
    message alone, so both have all of it: `MAX_CAUSES` causes, and `MAX_MESSAGE_CHARS` characters of the message, at most. Warnings are cut
    as in `allow`. `code` is the HTTP status, by default 422; the reason is Invalid for 422, ServiceUnavailable for 503, else Forbidden.
    With `retry_after_s` the API server asks clients to come again after these seconds, and client-go does so by itself."""
    listed = causes[:MAX_CAUSES]
    lines = [message, *(f"{cause.field}: {cause.message}" for cause in listed)]
    status: dict[str, Any] = {
        "status": "Failure",
        "reason": _REASONS.get(code, "Forbidden"),
        "code": code,
        "message": cut_text("\n".join(line for line in lines if line), MAX_MESSAGE_CHARS),
    }
    if listed:
        status["details"] = {
            "name": request.name,
            "group": request.kind.group,
            "kind": request.kind.kind,
            "causes": [
                {"reason": cause.reason, "field": cause.field, "message": cut_text(cause.message, MAX_MESSAGE_CHARS)} for cause in listed
            ],
        }
    if retry_after_s is not None:
        status.setdefault("details", {})["retryAfterSeconds"] = retry_after_s
    return _build_review(request, {"allowed": False, "status": status}, warnings)


def _build_review(request: AdmissionRequest, response: dict[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    # The API server refuses an answer that does not name the version, the kind and the request it is for.
    answer = {"uid": request.uid, **response}
    if warnings:
        # Longer ones the API server may drop without a word.
        answer["warnings"] = [cut_text(warning, MAX_WARNING_CHARS) for warning in warnings]
    return {"apiVersion": API_VERSION, "kind": KIND, "response": answer}
