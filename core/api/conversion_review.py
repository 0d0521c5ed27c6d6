"""ConversionReview v1: what the API server asks about objects that it has in one version and needs in another.

As with admission, a body that is no review is refused as such (`core.api.body`); objects that cannot be converted are a good review with
the answer that they cannot. One answer is for all objects of a review: the API server takes all or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from core.api.body import MAX_MESSAGE_CHARS, cut_text, parse_body
from core.api.kinds.meta import Wire

API_VERSION = "apiextensions.k8s.io/v1"
KIND = "ConversionReview"
CONVERT_PATH = "/convert"
# The API server takes writes of up to 3 MiB and stores half of that. But an assignment is several times as long in v1beta1, so that a
# review of one object with 200,000 domains, or of a list, is larger than any review of admission.
MAX_CONVERSION_BYTES = 16 * 1024 * 1024


class ConversionRequest(Wire):
    """Objects, and the version that all of them are wanted in."""

    uid: str = Field(min_length=1)
    desired_api_version: str = Field(alias="desiredAPIVersion")
    objects: tuple[dict[str, Any], ...]


class ConversionReview(Wire):
    api_version: Literal["apiextensions.k8s.io/v1"]
    kind: Literal["ConversionReview"]
    request: ConversionRequest


def parse_conversion(body: bytes) -> ConversionRequest:
    """Returns the request in the body of a review. Raises `MalformedReview` with a short message for any other body. Its size is not
    checked: the caller keeps to `MAX_CONVERSION_BYTES`."""
    return parse_body(body, ConversionReview, f"a {KIND} of {API_VERSION}").request


def build_converted(request: ConversionRequest, objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the answer to a review with all converted objects, which are in the order of the request."""
    return _build_review({"uid": request.uid, "result": {"status": "Success"}, "convertedObjects": list(objects)})


def build_failed(request: ConversionRequest, message: str) -> dict[str, Any]:
    """Returns the answer to a review that fails for all objects, with the reason, cut to `MAX_MESSAGE_CHARS`: the API server shows it to
    the client that requested them."""
    return _build_review({"uid": request.uid, "result": {"status": "Failure", "message": cut_text(message, MAX_MESSAGE_CHARS)}})


def _build_review(response: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}
