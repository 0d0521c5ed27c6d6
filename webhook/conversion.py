"""One conversion review: from the request to the answer. `core.api.convert` converts the objects."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import SpanKind, Status, StatusCode

from core import trace_names as t
from core.api.conversion_review import ConversionRequest, build_converted, build_failed
from core.api.convert import CONVERTED, Unconvertible, check_size, convert
from core.runtime.report.telemetry import make_tracer
from webhook.review import TRACER


def answer(request: ConversionRequest) -> dict[str, Any]:
    """Returns the answer to a conversion review, as JSON: all converted objects, or a failure with its reason. Opens a span. It waits for
    nothing, so that it can be called on any thread.
    """
    kinds = {kind if (kind := obj.get("kind")) in CONVERTED else "another" for obj in request.objects}
    attributes: dict[str, Any] = {
        t.CONVERSION_UID: request.uid,
        t.CONVERSION_VERSION: request.desired_api_version,
        t.CONVERSION_COUNT: len(request.objects),
        t.CONVERSION_KINDS: ", ".join(sorted(kinds)),
    }
    with make_tracer(TRACER).start_as_current_span(t.CONVERSION, kind=SpanKind.SERVER, attributes=attributes) as span:
        try:
            check_size(request.objects, request.desired_api_version)
            return build_converted(request, [convert(obj, request.desired_api_version) for obj in request.objects])
        except (Unconvertible, RecursionError) as error:
            message = str(error) if isinstance(error, Unconvertible) else "an object is nested too deeply to be converted"
            span.set_attributes({t.REFUSED: True, t.MESSAGE: message})
            span.set_status(Status(StatusCode.ERROR, message))
            return build_failed(request, message)
