"""The span of a conversion review: what was asked for, and why it failed if it did."""

from __future__ import annotations

from typing import Any

from core.api.conversion_review import ConversionRequest
from core.names import API_VERSION, OLD_API_VERSION
from core.trace_names import CONVERSION
from tests.traces.conftest import Collect
from webhook.conversion import answer

QUEUE = {"apiVersion": OLD_API_VERSION, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {}}


def ask(*objects: dict[str, Any]) -> dict[str, Any]:
    request = {"uid": "7a", "desiredAPIVersion": API_VERSION, "objects": objects}
    response: dict[str, Any] = answer(ConversionRequest.from_wire(request))["response"]
    return response


def test_conversion_span_has_version_kinds_and_object_count(collect: Collect):
    assert ask(QUEUE, QUEUE, {**QUEUE, "kind": "Cohort"})["result"]["status"] == "Success"
    span = collect()[CONVERSION]
    assert span.attributes == {
        "topogate.conversion.uid": "7a",
        "topogate.conversion.desired": API_VERSION,
        "topogate.conversion.objects": 3,
        "topogate.conversion.kinds": "ClusterQueue, Cohort",
    }
    assert not span.is_error


def test_a_conversion_that_fails_is_an_error_with_the_message(collect: Collect):
    message = ask(QUEUE, {**QUEUE, "kind": ["x"]})["result"]["message"]
    span = collect()[CONVERSION]
    assert span.is_error
    assert span.attributes["topogate.message"] == message
    assert span.attributes["topogate.conversion.kinds"] == "ClusterQueue, another"
