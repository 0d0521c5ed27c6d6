"""Metrics as a scraper and as a collector gets them: bounded, with examples, and nobody waits for an exporter."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc  # type: ignore[import-untyped]
import pytest
from aiohttp import ClientSession
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics

from core.runtime.report import metrics
from core.runtime.report.metrics import MOST_SERIES, OTHER, Instrument, Kind, Label, Metrics, Values
from core.runtime.report.probes import serve_probes
from e2e.process import find_free_ports
from tests.runtime.fakes import ManualClock
from tests.runtime.receiver import Receiver, receiving
from tests.scraped import Scraped

THINGS = Instrument("t_things_total", Kind.COUNTER, "things", (Label("result", frozenset({"good", "bad"})),))
BY_QUEUE = Instrument("t_by_queue_total", Kind.COUNTER, "things", (Label("queue"), Label("result", frozenset({"good", "bad"}))))
WAIT = Instrument("t_wait_seconds", Kind.HISTOGRAM, "a wait", (Label("queue"),), (1.0, 2.5, 10.0))
NOW = Instrument("t_now", Kind.GAUGE, "so many", (Label("queue"),))
AGE = Instrument("t_age_seconds", Kind.GAUGE, "so old", (Label("queue"),), together=max)
RESTARTS = Instrument("t_restarts_total", Kind.TOTAL, "counted elsewhere", (Label("resource"),))
Collector = Receiver[ExportMetricsServiceRequest]
ALL = (THINGS, BY_QUEUE, WAIT, NOW, AGE, RESTARTS)
SAMPLED = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
NOT_SAMPLED = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*metrics.ENDPOINT_VARIABLES, *metrics.PROTOCOL_VARIABLES, metrics.EXPORTER_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def made() -> Iterator[Metrics]:
    made = Metrics("test", ALL)
    yield made
    assert made.shutdown()


def scrape(made: Metrics) -> Scraped:
    made.refresh()
    return Scraped(made.expose()[0].decode())


def test_metrics_are_exported_while_the_wall_clock_jumps(made: Metrics, monkeypatch: pytest.MonkeyPatch):
    """A scrape failed when the clock of a virtual machine was set right meanwhile: the SDK took that for its time limit."""
    jumping = itertools.count(0, 60_000_000_000)
    monkeypatch.setattr("opentelemetry.sdk.metrics._internal.measurement_consumer.time_ns", lambda: next(jumping))
    made.read_by(lambda: {NOW: {("a",): 3}})
    assert scrape(made).rows("t_now", "queue") == {("a",): 3.0}


def test_counter_is_exported_by_label(made: Metrics):
    made.add(THINGS, "good")
    made.add(THINGS, "good", by=2)
    assert scrape(made).rows("t_things_total", "result") == {("good",): 3.0, ("bad",): 0.0}


def test_a_counter_of_few_values_begins_at_zero(made: Metrics):
    assert scrape(made).rows("t_things_total", "result") == {("good",): 0.0, ("bad",): 0.0}


def test_counter_label_outside_its_values_is_exported_as_other(made: Metrics):
    made.add(THINGS, "odd")
    made.add(THINGS, "odder")
    assert scrape(made).value("t_things_total", result=OTHER) == 2


def test_counter_series_beyond_the_limit_are_merged_as_other(made: Metrics):
    for number in range(MOST_SERIES + 50):
        made.add(BY_QUEUE, f"q{number}", "good")
    made.add(BY_QUEUE, "q0", "good")
    found = scrape(made).rows("t_by_queue_total", "queue", "result")
    assert len(found) == MOST_SERIES + 1
    assert (found["q0", "good"], found[OTHER, "good"]) == (2, 50)
    assert sum(found.values()) == MOST_SERIES + 51


def test_measurements_fall_into_the_buckets_of_their_instrument(made: Metrics):
    for seconds in (0.5, 2.5, 2.6, 11):
        made.record(WAIT, seconds, "a")
    found = scrape(made)
    assert found.rows("t_wait_seconds_bucket", "le") == {("1.0",): 1, ("2.5",): 2, ("10.0",): 3, ("+Inf",): 4}
    assert (found.value("t_wait_seconds_count", queue="a"), found.value("t_wait_seconds_sum", queue="a")) == (4, 16.6)


def test_gauge_shows_current_values_of_its_reader_and_drops_removed_labels(made: Metrics):
    rows: dict[Values, float] = {("a",): 1.0, ("b",): 2.0}
    made.read_by(lambda: {NOW: rows})
    made.read_by(lambda: {RESTARTS: {("pods",): 7}})
    found = scrape(made)
    assert found.rows("t_now", "queue") == rows
    assert found.value("t_restarts_total", resource="pods") == 7
    del rows["a",]
    assert scrape(made).rows("t_now", "queue") == {("b",): 2.0}


def test_gauge_series_beyond_the_limit_are_merged_as_sum_or_maximum(made: Metrics):
    rows: dict[Values, float] = {(f"q{number}",): float(number) for number in range(MOST_SERIES + 3)}
    made.read_by(lambda: {NOW: rows, AGE: rows})
    found = scrape(made)
    assert found.value("t_now", queue=OTHER) == 3 * MOST_SERIES + 3
    assert found.value("t_age_seconds", queue=OTHER) == MOST_SERIES + 2


def test_a_reader_that_fails_takes_nothing_from_the_others(made: Metrics, caplog: pytest.LogCaptureFixture):
    def fails() -> metrics.Reading:
        raise ValueError("a bug")

    made.read_by(fails)
    made.read_by(lambda: {NOW: {("a",): 1.0}})
    assert scrape(made).value("t_now", queue="a") == 1
    assert [record.message for record in caplog.records] == ["metrics cannot be read"]


def test_a_measurement_of_a_sampled_trace_is_the_example_of_its_bucket(made: Metrics):
    made.record(WAIT, 2.0, "a", traceparent=SAMPLED)
    made.record(WAIT, 20.0, "a", traceparent=NOT_SAMPLED)
    text, content_type = made.expose(OPEN_METRICS)
    assert content_type.startswith("application/openmetrics-text")
    (family,) = (family for family in parse_open_metrics(text.decode()) if family.name == "t_wait_seconds")
    examples = {sample.labels["le"]: sample.exemplar for sample in family.samples if sample.exemplar is not None}
    assert examples.keys() == {"2.5"}
    assert (examples["2.5"].labels["trace_id"], examples["2.5"].value) == ("0123456789abcdef" * 2, 2.0)


def test_two_of_them_share_nothing(made: Metrics):
    other = Metrics("other", ALL)
    made.add(THINGS, "good")
    assert scrape(other).value("t_things_total", result="good") == 0
    assert other.shutdown()
    assert other.shutdown()


def test_metrics_include_process_memory(made: Metrics):
    assert scrape(made).value("process_resident_memory_bytes") > 1e6


# --- ports -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
async def test_probes_and_metrics_are_served_on_their_ports(made: Metrics, shared: bool):
    ports = find_free_ports(2)
    health, scraped = (ports[0], ports[0]) if shared else ports
    why = {"alive": "", "ready": "not listed yet: pods"}
    made.add(THINGS, "good")
    served = serve_probes(
        "127.0.0.1",
        metrics=made,
        metrics_port=scraped,
        health_port=health,
        why_not_alive=lambda: why["alive"],
        why_not_ready=lambda: why["ready"],
    )
    async with served, ClientSession() as session:

        async def get(port: int, path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as reply:
                return reply.status, await reply.text()

        assert await get(health, "/healthz") == (200, "ok")
        assert await get(health, "/readyz") == (503, "not ok: not listed yet: pods")
        why.update(alive="nothing heard", ready="")
        assert await get(health, "/healthz") == (503, "not ok: nothing heard")
        assert await get(health, "/readyz") == (200, "ok")
        assert (await get(scraped, "/healthz"))[0] == (503 if shared else 404)
        status, text = await get(scraped, "/metrics")
        assert (status, Scraped(text).value("t_things_total", result="good")) == (200, 1)


async def test_a_port_of_zero_is_not_served(made: Metrics):
    before = os.listdir("/proc/self/fd")
    async with serve_probes("127.0.0.1", metrics=made, metrics_port=0):
        assert os.listdir("/proc/self/fd") == before, "there is no socket"


# --- sending ---------------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with receiving(ExportMetricsServiceRequest.FromString) as receiver:
        yield receiver


@pytest.mark.parametrize("by_variable", [False, True])
def test_metrics_collector_receives_counters_and_last_gauge_values(receiver: Collector, by_variable: bool, monkeypatch: pytest.MonkeyPatch):
    if by_variable:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    made = Metrics("topogate-test", ALL, endpoint=None if by_variable else receiver.url)
    assert made.sends
    made.add(THINGS, "good")
    made.read_by(lambda: {NOW: {("a",): 5}})
    made.refresh()
    assert made.shutdown()
    assert receiver.paths == ["/v1/metrics"]
    (resource,) = receiver.requests[0].resource_metrics
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "topogate-test"
    told = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    assert {point.as_double or point.as_int for point in told["t_now"].gauge.data_points} == {5}
    assert sum(point.as_int for point in told["t_things_total"].sum.data_points) == 1


def test_a_collector_of_traces_alone_is_left_alone(receiver: Collector, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    made = Metrics("topogate-test", ALL, endpoint=receiver.url)
    made.add(THINGS, "good")
    assert not made.sends
    assert made.shutdown()
    assert receiver.paths == []


def test_metrics_collector_that_refuses_is_reported_once(receiver: Collector, caplog: pytest.LogCaptureFixture):
    receiver.status = 400
    caplog.set_level(logging.WARNING)
    made = Metrics("test", ALL, endpoint=receiver.url)
    made.add(THINGS, "good")
    assert made.shutdown()
    assert [record.message for record in caplog.records] == ["metrics cannot be exported and are dropped"]


def test_a_collector_that_hangs_is_not_waited_for(receiver: Collector, caplog: pytest.LogCaptureFixture):
    receiver.release.clear()
    made = Metrics("test", ALL, endpoint=receiver.url)
    for _ in range(1000):
        made.add(THINGS, "good")
    assert not made.shutdown(timeout_s=0.1), "it hangs still"
    assert "the collector does not answer" in caplog.text


@pytest.mark.parametrize("by_variable", [False, True])
def test_grpc_is_spoken_where_that_is_asked_for(by_variable: bool, monkeypatch: pytest.MonkeyPatch):
    class Servicer(MetricsServiceServicer):
        def __init__(self) -> None:
            self.requests: list[ExportMetricsServiceRequest] = []

        def Export(self, request: ExportMetricsServiceRequest, context: object) -> ExportMetricsServiceResponse:
            self.requests.append(request)
            return ExportMetricsServiceResponse()

    collector = Servicer()
    server = grpc.server(ThreadPoolExecutor(1))
    add_MetricsServiceServicer_to_server(collector, server)
    url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        if by_variable:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            made = Metrics("test", ALL)
        else:
            made = Metrics("test", ALL, endpoint=url, protocol=metrics.GRPC)
        made.add(THINGS, "good", by=4)
        assert made.shutdown(timeout_s=10)
    finally:
        server.stop(None).wait()
    told = {metric.name: metric for of in collector.requests[0].resource_metrics for scope in of.scope_metrics for metric in scope.metrics}
    assert sum(point.as_int for point in told["t_things_total"].sum.data_points) == 4


async def test_only_where_something_is_sent_is_anything_read_unasked(made: Metrics, receiver: Collector):
    clock, read = ManualClock(), {"sending": 0, "not": 0}
    sending = Metrics("test", ALL, endpoint=receiver.url)

    def reader(name: str) -> metrics.Reading:
        read[name] += 1
        return {}

    sending.read_by(lambda: reader("sending"))
    made.read_by(lambda: reader("not"))
    for one in (sending, made):
        run = one.run(clock)
        for _ in range(3):
            run.send(None)
        run.close()
    assert read == {"sending": 2, "not": 0}
    assert sending.shutdown()
