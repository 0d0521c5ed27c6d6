"""Spans by gRPC and HTTP, whole or in part; and a collector that fails, hangs or is not there slows nobody down."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceServicer, add_TraceServiceServicer_to_server

from core.runtime.report import telemetry
from core.runtime.report.sampling import HELD_S, Sampling
from core.runtime.report.telemetry import GRPC, HTTP, Telemetry
from e2e.audit.otlp import Receiver
from e2e.process import find_free_ports
from tests.runtime.fakes import ManualClock
from tests.runtime.report.test_telemetry import VARIABLES

RULES = Sampling(slow_s=0.25, keeps="refused", alone="begins", work=frozenset({"solve"}))
DROPPED = "spans cannot be exported and are dropped"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


class Collector(TraceServiceServicer):
    """A collector that speaks gRPC; `release` lets calls be answered that hang."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.release = threading.Event()
        self.release.set()
        self.refuses = False
        self.url = ""

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
        self.release.wait(30)
        if self.refuses:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        self.names += [span.name for of in request.resource_spans for scope in of.scope_spans for span in scope.spans]
        return ExportTraceServiceResponse()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield collector
    collector.release.set()
    server.stop(None).wait()


def tell(*names: str, **attributes: Any) -> None:
    for name in names:
        telemetry.make_tracer("t").start_span(name, attributes=attributes).end()


@pytest.mark.parametrize("by_variable", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", ""])
def test_grpc_is_spoken_where_that_is_asked_for(collector: Collector, by_variable: str, monkeypatch: pytest.MonkeyPatch):
    if by_variable:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv(by_variable, "grpc")
        sending = telemetry.set_up("x")
    else:
        sending = telemetry.set_up("x", endpoint=collector.url, protocol=GRPC)
    tell("a", "b")
    assert sending.shutdown()
    assert sorted(collector.names) == ["a", "b"]


def test_unknown_otlp_protocol_is_logged_and_http_is_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    with Receiver() as receiver:
        sending = telemetry.set_up("x", endpoint=receiver.endpoint)
        tell("a")
        assert sending.shutdown()
        assert [span.name for span in receiver.list_spans()] == ["a"]
    (told,) = caplog.records
    assert (vars(told)["variable"], vars(told)["value"], vars(told)["accepted"]) == (
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "http/json",
        "grpc, http/protobuf",
    )


@pytest.mark.parametrize("name", ["OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER"])
def test_traces_alone_can_be_turned_off(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "none" if name.endswith("EXPORTER") else "parentbased_always_off")
    assert not telemetry.set_up("x", endpoint="http://127.0.0.1:1").enabled


@pytest.mark.parametrize(
    ("sampler", "argument", "expected"),
    [
        ("", "", 1.0),
        ("", "0.1", 1.0),
        ("always_on", "", 1.0),
        ("parentbased_always_on", "0.1", 1.0),
        ("always_off", "", None),
        ("traceidratio", "0.1", 0.1),
        ("parentbased_traceidratio", "0", 0.0),
        ("traceidratio", "", 1.0),
    ],
)
def test_sampling_ratio_follows_the_standard_variables(sampler: str, argument: str, expected: float | None):
    assert telemetry.read_ratio({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}) == expected


@pytest.mark.parametrize(
    ("sampler", "argument", "variable", "accepted"),
    [
        ("jaeger_remote", "", "OTEL_TRACES_SAMPLER", "traceidratio"),
        ("traceidratio", "2", "OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1"),
        ("traceidratio", "nan", "OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1"),
        ("traceidratio", "most", "OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1"),
    ],
)
def test_invalid_sampler_variable_is_logged_once_and_all_traces_are_sampled(
    sampler: str, argument: str, variable: str, accepted: str, caplog: pytest.LogCaptureFixture
):
    assert telemetry.read_ratio({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}) == 1.0
    (told,) = caplog.records
    assert vars(told)["variable"] == variable
    assert accepted in vars(told)["accepted"]


# --- sampling ---------------------------------------------------------------------------------------------


@contextmanager
def sampled(ratio: float, clock: ManualClock | None = None) -> Iterator[Callable[[], list[Any]]]:
    """While it is so, traces go to a receiver; the function gives what came."""
    with Receiver() as receiver:
        sending = telemetry.set_up(
            "x", endpoint=receiver.endpoint, ratio=ratio, sampling=RULES, monotonic=(clock or ManualClock()).monotonic
        )

        def stop() -> list[Any]:
            assert sending.shutdown()
            return receiver.list_spans()

        yield stop
        sending.shutdown()


def test_by_default_everything_is_sent():
    with Receiver() as receiver:
        sending = telemetry.set_up("x", endpoint=receiver.endpoint)
        tell(*(str(number) for number in range(100)))
        assert sending.shutdown()
        assert len(receiver.list_spans()) == 100


def test_a_share_is_sent_and_the_same_share_by_every_process():
    with sampled(0.25) as stop:
        tell(*(str(number) for number in range(1000)))
        spans = stop()
    assert 150 < len(spans) < 350
    with sampled(0.25) as stop:
        for span in spans:  # another process joins the stories
            carried = f"00-{span.trace_id}-{span.span_id}-01"
            with telemetry.make_tracer("t").start_as_current_span("joins", context=telemetry.build_context(carried)):
                pass
        assert len(stop()) == len(spans)


def test_unsampled_trace_with_a_refusal_is_sent_completely():
    with sampled(0.0) as stop:
        tracer = telemetry.make_tracer("t")
        with tracer.start_as_current_span("review", attributes={"begins": True}):
            story = telemetry.get_current_traceparent()
        assert story is not None
        assert not int(story.split("-")[3], 16) & 1, "it is not said to be sampled"
        for name, attributes in (("create", {}), ("solve", {"refused": True}), ("queued", {}), ("bound", {})):
            tracer.start_span(name, telemetry.build_context(story), attributes=attributes, links=telemetry.build_links(story)).end()
        tell("another")
        spans = stop()
    assert [span.name for span in spans] == ["review", "create", "solve", "queued", "bound"]
    assert {span.trace_id for span in spans} == {story.split("-")[1]}
    assert {span.parent_id for span in spans[1:]} == {spans[0].span_id}
    assert spans[2].attributes == {"refused": True}
    assert spans[2].links == [(spans[0].trace_id, spans[0].span_id)]


def test_a_slow_decision_is_sent_by_its_own_times():
    with sampled(0.0) as stop:
        tracer = telemetry.make_tracer("t")
        for name, took_ms in (("solve", 249), ("wait", 9000), ("solve", 250)):
            tracer.start_span(name, start_time=1_000_000).end(1_000_000 + took_ms * 1_000_000)
        (span,) = stop()
    assert span.end_ns - span.start_ns == 250_000_000


def test_span_held_longer_than_the_limit_is_not_sent():
    clock = ManualClock()
    with sampled(0.0, clock) as stop:
        tracer = telemetry.make_tracer("t")
        with tracer.start_as_current_span("early"):
            story = telemetry.get_current_traceparent()
        clock.time += HELD_S
        tracer.start_span("solve", telemetry.build_context(story), attributes={"refused": True}).end()
        assert [span.name for span in stop()] == ["solve"]


# --- collectors that fail -----------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING and record.name == telemetry.__name__]


def tell_many(sending: Telemetry) -> float:
    """How many seconds it takes to tell more than the queue holds. If each of 5,000 waited for the collector these were 500 and more."""
    began = time.monotonic()
    tell(*(str(number) for number in range(5000)))
    assert sending.enabled
    return time.monotonic() - began


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_unreachable_trace_collector_is_logged_once_with_its_endpoint(
    protocol: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")  # of one batch, ten seconds else
    (nobody,) = find_free_ports(1)
    sending = telemetry.set_up("x", endpoint=f"http://user:secret@127.0.0.1:{nobody}", protocol=protocol)
    assert tell_many(sending) < 60
    assert sending._provider is not None
    sending._provider.force_flush(10_000)
    sending.shutdown()
    (told,) = lines(caplog)
    assert told.message == DROPPED
    assert vars(told)["endpoint"] == f"http://127.0.0.1:{nobody}", "and no password"
    assert vars(told)["protocol"] == protocol


def test_grpc_collector_that_refuses_spans_is_reported_once_and_on_recovery(collector: Collector, caplog: pytest.LogCaptureFixture):
    collector.refuses = True
    with caplog.at_level(logging.INFO):
        sending = telemetry.set_up("x", endpoint=collector.url, protocol=GRPC)
        tell("a")
        assert sending._provider is not None
        sending._provider.force_flush(10_000)
        tell("b")
        sending._provider.force_flush(10_000)
        collector.refuses = False
        tell("c")
        assert sending.shutdown()
    assert [record.message for record in caplog.records if record.name == telemetry.__name__] == [DROPPED, "spans are exported again"]
    assert collector.names == ["c"]


def test_a_grpc_collector_that_hangs_costs_callers_nothing_and_the_exit_little(collector: Collector):
    collector.release.clear()
    sending = telemetry.set_up("x", endpoint=collector.url, protocol=GRPC)
    assert tell_many(sending) < 60
    assert not sending.shutdown(timeout_s=0.2), "it hangs still"
