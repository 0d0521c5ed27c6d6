"""Spans arrive at a real OTLP receiver; without one nothing is loaded; a broken one disturbs nobody."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from core.runtime.report import telemetry
from tests.runtime.receiver import Receiver, receiving

Collector = Receiver[ExportTraceServiceRequest]
ROOT = Path(__file__).parents[3]
PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


VARIABLES = (
    *telemetry.ENDPOINT_VARIABLES,
    *telemetry.PROTOCOL_VARIABLES,
    telemetry.EXPORTER_VARIABLE,
    telemetry.SAMPLER_VARIABLE,
    telemetry.RATIO_VARIABLE,
)


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with receiving(ExportTraceServiceRequest.FromString) as receiver:
        yield receiver


@pytest.mark.parametrize("by_variable", [False, True])
def test_spans_arrive_with_parent_link_and_service(receiver: Collector, by_variable: bool, monkeypatch: pytest.MonkeyPatch):
    if by_variable:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    sending = telemetry.set_up("topogate-test", endpoint=None if by_variable else receiver.url)
    assert sending.enabled
    tracer = telemetry.make_tracer("t")
    with tracer.start_as_current_span("outer", context=telemetry.build_context(PARENT)):
        carried = telemetry.get_current_traceparent()
    with tracer.start_as_current_span("later", links=telemetry.build_links(carried)):
        pass
    assert sending.shutdown()
    assert sending.shutdown(), "twice is fine"
    assert receiver.paths == ["/v1/traces"]
    (resource,) = receiver.requests[0].resource_spans
    service = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert service["service.name"] == "topogate-test"
    outer, later = sorted((span for scope in resource.scope_spans for span in scope.spans), key=lambda span: span.name, reverse=True)
    assert (outer.name, outer.trace_id.hex(), outer.parent_span_id.hex()) == ("outer", PARENT[3:35], PARENT[36:52])
    assert carried == f"00-{PARENT[3:35]}-{outer.span_id.hex()}-01"
    assert [link.span_id for link in later.links] == [outer.span_id]
    assert later.trace_id != outer.trace_id


def test_without_an_endpoint_nothing_is_traced():
    off = telemetry.set_up("x")
    assert not off.enabled
    with telemetry.make_tracer("t").start_as_current_span("s") as span:
        assert not span.is_recording()
        assert telemetry.get_current_traceparent() is None
    assert off.shutdown()


def test_without_an_endpoint_nothing_is_loaded():
    program = """
import sys
from core.runtime import controller, lease, tasks
from core.runtime.http import client
from core.runtime.report import telemetry
from core.runtime.watch import informer
telemetry.set_up("x")
heavy = [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "kubernetes_asyncio"))]
assert not heavy, heavy
"""
    environment = {name: value for name, value in os.environ.items() if name not in telemetry.ENDPOINT_VARIABLES}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, env=environment)


MALFORMED = [
    None,
    "",
    "x",
    PARENT[:-1],
    PARENT + "-extra",
    PARENT.upper(),
    "ff" + PARENT[2:],
    "00-" + "0" * 32 + "-0123456789abcdef-01",
    "00-0123456789abcdef0123456789abcdef-" + "0" * 16 + "-01",
    PARENT + "x" * 10_000,
    "00-0123456789abcdef0123456789abcdeg-0123456789abcdef-01",
]


@pytest.mark.parametrize("traceparent", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_traceparent_counts_as_none(traceparent: str | None):
    assert telemetry.build_links(traceparent) == []
    assert telemetry.build_context(traceparent) is None


def test_a_traceparent_of_a_later_version_is_read():
    (link,) = telemetry.build_links("01" + PARENT[2:] + "-new")
    assert trace.format_trace_id(link.context.trace_id) == PARENT[3:35]
    assert link.context.is_remote


def test_a_collector_that_hangs_costs_callers_nothing_and_exit_little(receiver: Collector):
    receiver.release.clear()
    sending = telemetry.set_up("x", endpoint=receiver.url)
    for _ in range(5000):
        telemetry.make_tracer("t").start_span("s").end()
    assert not sending.shutdown(timeout_s=0.2), "it hangs still"
    assert receiver.requests == []


def test_collector_that_refuses_spans_is_reported_once(receiver: Collector, caplog: pytest.LogCaptureFixture):
    receiver.status = 400
    with caplog.at_level(logging.DEBUG):
        sending = telemetry.set_up("x", endpoint=receiver.url + "/v1/traces")
        for _ in range(1500):
            telemetry.make_tracer("t").start_span("s").end()
        sending.shutdown()
    assert len(receiver.requests) >= 3
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    of_here = [
        record.message for record in warnings if vars(record).get("endpoint", "").startswith(receiver.url)
    ]  # an earlier test's may end now
    assert of_here == ["spans cannot be exported and are dropped"]


def test_tracer_created_before_setup_records_during_and_not_after_setup(receiver: Collector):
    kept, ordinary = telemetry.make_tracer("kept"), trace.get_tracer("ordinary")
    assert not kept.start_span("before").is_recording()
    for _ in range(2):
        sending = telemetry.set_up("x", endpoint=receiver.url)
        for tracer in (kept, ordinary):
            with tracer.start_as_current_span("during") as span:
                assert span.is_recording()
        sending.shutdown()
        for tracer in (kept, ordinary):
            assert not tracer.start_span("after").is_recording()
    assert len(receiver.requests) == 2
