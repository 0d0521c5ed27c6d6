"""Counters and measurements, served to scrapers and sent by OTLP where an endpoint is configured.

The only module that uses the metrics SDK. Events are counted at once (`add`, `record`). Present values are read when
they are requested (`read_by`), on the event loop that owns the state, never on the thread of the exporter. An exporter
that fails loses a reading and blocks nothing. Nothing here is global: each `Metrics` has a provider and a registry of
its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Never, Protocol

from core.runtime.clock import Clock
from core.runtime.report.telemetry import build_context

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricsData
    from prometheus_client import CollectorRegistry, Metric

logger = logging.getLogger(__name__)

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER_VARIABLE = "OTEL_METRICS_EXPORTER"
"""`none` sends nothing, for collectors that take traces only."""
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
GRPC = "grpc"

OTHER = "other"
"""The value of a label with an unknown value, or with one value too many."""

MOST_SERIES = 1900
"""Per instrument; further series are reported as one. The SDK itself goes on to 2,000 and marks further ones in its own way."""

READ_EVERY_S = 15.0
"""The greatest age (s) of what is sent by OTLP; it is sent once a minute unless the standard variables set another interval."""


class Kind(Enum):
    """`TOTAL` is a counter that another component maintains: it is read when requested, as a gauge is."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Label:
    """`values` are all known values, every other becomes `other`; None: they are names that other objects have."""

    name: str
    values: frozenset[str] | None = None


@dataclass(frozen=True, eq=False)
class Instrument:
    """One metric by the name under which it is scraped. `buckets` are upper bounds in the unit of the name.

    `together` makes one value of several, where there are more series than are reported: a sum, or the largest of
    values that do not add up.
    """

    name: str
    kind: Kind
    says: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    together: Callable[[Iterable[float]], float] = sum


Values = tuple[str, ...]  # of the labels of an instrument, in their order
Rows = Mapping[Values, float]
Reading = Mapping[Instrument, Rows]


class Sink(Protocol):
    """Where what happens is counted."""

    def add(self, instrument: Instrument, *values: str, by: float = 1) -> None:
        """Adds `by` to the counter of an instrument with these label values, in the order of its labels."""

    def record(self, instrument: Instrument, value: float, *values: str, traceparent: str | None = None) -> None:
        """Records one measurement, in the unit of the instrument's name, with these label values; `traceparent` names its trace."""


class Unmeasured:
    """A sink that keeps nothing."""

    def add(self, instrument: Instrument, *values: str, by: float = 1) -> None:
        """Does nothing; see `Sink.add`."""
        return

    def record(self, instrument: Instrument, value: float, *values: str, traceparent: str | None = None) -> None:
        """Does nothing; see `Sink.record`."""
        return


class Metrics:
    """All instruments of a process.

    `endpoint` is the base address of an OTLP collector; None: by the standard variables, else nothing is sent.
    `protocol` is `grpc` or `http/protobuf`, by default that of the standard variables, else the latter.
    """

    def __init__(
        self, service: str, instruments: Iterable[Instrument], *, endpoint: str | None = None, protocol: str | None = None
    ) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from prometheus_client import CollectorRegistry, ProcessCollector

        instruments = tuple(instruments)
        self._registry = CollectorRegistry(auto_describe=False)
        self._exemplars = _Exemplars(self._registry)
        readers: list[Any] = [_make_prometheus_reader(self._exemplars)]
        has_collector = endpoint is not None or any(os.environ.get(name) for name in ENDPOINT_VARIABLES)
        self.sends = has_collector and os.environ.get(EXPORTER_VARIABLE) != "none"
        if self.sends:
            readers.append(PeriodicExportingMetricReader(_wrap_exporter(_make_exporter(endpoint, protocol))))
        ProcessCollector(registry=self._registry)
        # shutdown_on_exit: the interpreter's exit would wait for the exporter, without a bound.
        self._provider: MeterProvider | None = MeterProvider(
            readers, Resource.create({"service.name": service}), shutdown_on_exit=False, views=_list_views(instruments)
        )
        self._readers: list[Callable[[], Reading]] = []
        self._read: dict[str, list[Observation]] = {}
        self._attributes: dict[str, dict[Values, dict[str, str]]] = {one.name: {} for one in instruments}
        self._made: dict[str, Any] = {one.name: self._make(one) for one in instruments}
        for one in instruments:
            if one.kind is Kind.COUNTER:
                self._begin(one)

    # --- counting -----------------------------------------------------------------------------------

    def add(self, instrument: Instrument, *values: str, by: float = 1) -> None:
        """Adds `by` to a counter; see `Sink.add`. Label values beyond those that are known, or too many, are counted as `other`."""
        self._made[instrument.name].add(by, self._limit_labels(instrument, values))

    def record(self, instrument: Instrument, value: float, *values: str, traceparent: str | None = None) -> None:
        """Records one measurement; see `Sink.record`. With a `traceparent` that was sampled it may become the example of its bucket."""
        self._made[instrument.name].record(value, self._limit_labels(instrument, values), build_context(traceparent))

    def _begin(self, counter: Instrument) -> None:
        """A counter starts at nothing, not at its first count: else that one would never be seen as an increase."""
        if len(counter.labels) <= 1:
            for value in counter.labels[0].values or () if counter.labels else ((),):
                self.add(counter, *((value,) if isinstance(value, str) else ()), by=0)

    def _limit_labels(self, instrument: Instrument, values: Values) -> dict[str, str]:
        known = self._attributes[instrument.name]
        found = known.get(values)
        if found is None:
            found = _build_attributes(instrument, values, is_full=len(known) >= MOST_SERIES)
            if len(known) < MOST_SERIES:
                known[values] = found
        return found

    # --- reading ------------------------------------------------------------------------------------

    def read_by(self, read: Callable[[], Reading]) -> None:
        """Adds a function that each `refresh` calls for values of gauges and totals, per instrument by label values, beside other such
        functions. Where it raises, its values are missing."""
        self._readers.append(read)

    def refresh(self) -> None:
        """Replaces the values of gauges and totals by the present ones, on the event loop, for the next scrape or export. A reader that
        fails is logged: its values are missing."""
        now: dict[str, list[Observation]] = {}
        for read in self._readers:
            try:
                for instrument, rows in read().items():
                    now.setdefault(instrument.name, []).extend(_list_observations(instrument, rows))
            except Exception:  # one part of the metrics is missing
                logger.exception("metrics cannot be read")
        self._read = now

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Returns all metrics in the format that a scraper's header Accept (`accept`) asks for, and the content type. Gauges and totals are
        as of the last `refresh`. May be called on another thread."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._exemplars), content_type

    async def run(self, clock: Clock) -> Never:
        """Refreshes gauges and totals every `READ_EVERY_S` seconds for the OTLP exporter; does nothing where nothing is sent (`sends`).
        Never returns."""
        while True:
            await clock.sleep(READ_EVERY_S)
            if self.sends:
                self.refresh()

    def shutdown(self, timeout_s: float = 2.0) -> bool:
        """Sends what there is and stops. Returns whether that was done within `timeout_s` seconds, also True when called again; logs a
        warning where not. Blocks no longer: a last reading is not worth it."""
        provider, self._provider = self._provider, None
        if provider is None:
            return True
        thread = threading.Thread(target=provider.shutdown, name="metrics shutdown", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            logger.warning("the last metrics may be lost: the collector does not answer", extra={"waited_s": timeout_s})
        return not thread.is_alive()

    def _make(self, instrument: Instrument) -> Any:
        assert self._provider is not None
        meter = self._provider.get_meter(__name__)
        unit = "s" if instrument.name.endswith("_seconds") else ""
        match instrument.kind:
            case Kind.COUNTER:
                return meter.create_counter(instrument.name, unit, instrument.says)
            case Kind.HISTOGRAM:
                return meter.create_histogram(instrument.name, unit, instrument.says)

        def observe(_: CallbackOptions) -> list[Observation]:
            return self._read.get(instrument.name, [])

        make = meter.create_observable_gauge if instrument.kind is Kind.GAUGE else meter.create_observable_counter
        return make(instrument.name, [observe], unit, instrument.says)


def _build_attributes(instrument: Instrument, values: Values, *, is_full: bool) -> dict[str, str]:
    """Returns the reported values of labels. Where there is no room for more series, each value that is not one of few
    is `other`."""
    kept = {}
    for label, value in zip(instrument.labels, values, strict=True):
        is_known = not is_full if label.values is None else value in label.values
        kept[label.name] = value if is_known else OTHER
    return kept


def _list_observations(instrument: Instrument, rows: Rows) -> list[Observation]:
    from opentelemetry.metrics import Observation

    kept: dict[Values, list[float]] = {}
    for values, value in rows.items():
        bounded = _build_attributes(instrument, values, is_full=len(kept) >= MOST_SERIES)
        kept.setdefault(tuple(bounded.values()), []).append(value)
    names = [label.name for label in instrument.labels]
    return [Observation(instrument.together(several), dict(zip(names, values, strict=True))) for values, several in kept.items()]


def _list_views(instruments: Sequence[Instrument]) -> list[Any]:
    from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View

    return [
        View(instrument_name=one.name, aggregation=ExplicitBucketHistogramAggregation(one.buckets))
        for one in instruments
        if one.kind is Kind.HISTOGRAM
    ]


# --- exemplars --------------------------------------------------------------------------------------

_Series = tuple[str, frozenset[tuple[str, str]], float]  # histogram, labels, and the upper bound of a bucket


class _Exemplars:
    """A registry's metrics with an example on each bucket that has one: the SDK keeps them, its Prometheus exporter drops them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._latest: dict[_Series, Any] = {}

    def note(self, data: MetricsData) -> None:
        """What the SDK has collected, before it is made into Prometheus' metrics."""
        from opentelemetry.sdk.metrics.export import Histogram

        metrics = (metric for of in data.resource_metrics for scope in of.scope_metrics for metric in scope.metrics)
        for metric in metrics:
            for point in metric.data.data_points if isinstance(metric.data, Histogram) else ():
                labels = frozenset((name, str(value)) for name, value in (point.attributes or {}).items())
                for example in point.exemplars:
                    bound = next((bound for bound in point.explicit_bounds if example.value <= bound), float("inf"))
                    self._latest[metric.name, labels, bound] = example

    def collect(self) -> Iterable[Metric]:
        """As a registry does."""
        for metric in self.registry.collect():
            if metric.type == "histogram":
                metric.samples = [self._with_example(metric.name, sample) for sample in metric.samples]
            yield metric

    def _with_example(self, name: str, sample: Any) -> Any:
        from prometheus_client.samples import Exemplar

        if "le" not in sample.labels:
            return sample
        labels = frozenset((key, value) for key, value in sample.labels.items() if key != "le")
        found = self._latest.get((name, labels, float(sample.labels["le"])))
        if found is None or found.trace_id is None:
            return sample
        ids = {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}
        return sample._replace(exemplar=Exemplar(ids, found.value, found.time_unix_nano / 1e9))


# The SDK limits the time of a scrape by the wall clock, which may jump; what is called only reads numbers.
_LONGEST_JUMP_MS = 24 * 3_600_000.0


def _make_prometheus_reader(exemplars: _Exemplars) -> Any:
    """A function, since its base class is the exporter's."""
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

    class Reader(PrometheusMetricReader):
        def collect(self, timeout_millis: float = _LONGEST_JUMP_MS) -> None:  # type: ignore[misc]  # said to be final; nothing else sets it
            super().collect(timeout_millis)

        def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
            if metrics_data is not None:
                exemplars.note(metrics_data)
            super()._receive_metrics(metrics_data, timeout_millis, **kwargs)

    return Reader(scope_info_enabled=False, registry=exemplars.registry)


# --- sending ----------------------------------------------------------------------------------------


def _make_exporter(endpoint: str | None, protocol: str | None) -> MetricExporter:
    # Errors of the exporter are logged by `_wrap_exporter`, once.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL + 1)
    protocol = protocol or next((value for name in PROTOCOL_VARIABLES if (value := os.environ.get(name))), None)
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as ByGrpc

        return ByGrpc() if endpoint is None else ByGrpc(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter() if endpoint is None else OTLPMetricExporter(endpoint=_build_metrics_url(endpoint))


def _build_metrics_url(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/metrics") else f"{base}/v1/metrics"


def _wrap_exporter(exporter: MetricExporter) -> MetricExporter:
    """The exporter, with a log line when it begins to fail and when it succeeds again. A function, since its base class is the SDK's."""
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

    class LoggingMetricExporter(MetricExporter):
        failing = False

        def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
            try:
                result = exporter.export(metrics_data, timeout_millis=timeout_millis, **kwargs)
            except Exception as error:  # a reading is worth less than the thread that carries it
                result = MetricExportResult.FAILURE
                logger.debug("metrics export raised", extra={"error": str(error)})
            failed = result is not MetricExportResult.SUCCESS
            if failed and not self.failing:
                logger.warning("metrics cannot be exported and are dropped")
            elif self.failing and not failed:
                logger.info("metrics are exported again")
            self.failing = failed
            return result

        def force_flush(self, timeout_millis: float = 10_000) -> bool:
            return bool(exporter.force_flush(timeout_millis))

        def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
            exporter.shutdown(timeout_millis=timeout_millis, **kwargs)

    return LoggingMetricExporter()
