"""Traces by OTLP, or nothing at all.

The only module that knows the OpenTelemetry SDK of traces, and it imports it only when there is somewhere to send to; otherwise the API's
own no-op tracer stays, which costs next to nothing. An exporter that fails drops spans: it never holds a caller up, since spans go through
a bounded queue to a thread of their own, and it is logged when it begins to fail and when it is well again, not once per batch.

Spans outside of the share that is always sent are recorded, too, so that it can be seen whether they are worth it:
`core.runtime.report.sampling` decides. Their flag marks them as not sampled, here and in what is carried to others.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags

from core.runtime.http.errors import remove_credentials
from core.runtime.report.sampling import HeldSpans, Sampling

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import Sampler

logger = logging.getLogger(__name__)

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
"""`none` sends nothing, for collectors that take metrics only."""
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
GRPC, HTTP = "grpc", "http/protobuf"
SAMPLER_VARIABLE, RATIO_VARIABLE = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
_ALL, _NONE, _SHARE = (tuple(f"{prefix}{name}" for prefix in ("", "parentbased_")) for name in ("always_on", "always_off", "traceidratio"))

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass
class Telemetry:
    """The result of `set_up`; `enabled`: whether spans are sent."""

    _provider: TracerProvider | None = None

    @property
    def enabled(self) -> bool:
        """Whether spans are sent: there is a collector, and `shutdown` was not called."""
        return self._provider is not None

    def shutdown(self, timeout_s: float = 5.0) -> bool:
        """Sends what is queued and stops. Returns whether that was done within `timeout_s` seconds, also True where nothing is sent or it
        was called before. Blocks so long at most, whatever the collector does. On a daemon thread: an exporter that hangs must not keep the
        process from exiting."""
        provider, self._provider = self._provider, None
        if provider is None:
            return True
        global _current
        if _current is provider:
            _current = None
        thread = threading.Thread(target=provider.shutdown, name="telemetry shutdown", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if thread.is_alive():
            logger.warning("spans may be lost: the collector does not answer", extra={"waited_s": timeout_s})
        return not thread.is_alive()


_current: TracerProvider | None = None


def set_up(
    service_name: str,
    *,
    endpoint: str | None = None,
    protocol: str | None = None,
    ratio: float | None = None,
    sampling: Sampling = Sampling(),  # noqa: B008, a frozen value
    monotonic: Callable[[], float] = time.monotonic,
) -> Telemetry:
    """Starts to send spans of the process to `endpoint`, the base address of an OTLP collector; None: by the standard environment
    variables. Returns what stops it; nothing is sent without an endpoint, or where OTEL_TRACES_EXPORTER or the sampler says none.
    `protocol` is `grpc` or `http/protobuf`, and `ratio` the share of traces that is sent whatever their contents: by default those of the
    standard variables, else the latter, and all."""
    has_collector = endpoint is not None or any(os.environ.get(name) for name in ENDPOINT_VARIABLES)
    share = ratio if ratio is not None else read_ratio(os.environ)
    if not has_collector or share is None or os.environ.get(EXPORTER_VARIABLE) == "none":
        return Telemetry()
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    sampling = replace(sampling, ratio=share)
    # shutdown_on_exit: the interpreter's exit would wait for the exporter, without a bound.
    provider = TracerProvider(
        sampler=_make_sampler(share), resource=Resource.create({"service.name": service_name}), shutdown_on_exit=False
    )
    provider.add_span_processor(_make_processor(_wrap_exporter(*_make_exporter(endpoint, protocol)), sampling, monotonic))
    global _current
    _current = provider
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_Switch())
    return Telemetry(provider)


def read_ratio(environ: Mapping[str, str]) -> float | None:
    """Returns the share of traces, from 0 to 1, that the standard variables ask for; None: no traces at all. For a value that is none of
    theirs a warning is logged, and all are sent (1).
    """
    sampler, share = environ.get(SAMPLER_VARIABLE) or _ALL[0], environ.get(RATIO_VARIABLE) or "1"
    if sampler in _NONE:
        return None
    if sampler in _ALL:
        return 1.0
    if sampler not in _SHARE:
        _warn_of_value(SAMPLER_VARIABLE, sampler, ", ".join((*_ALL, *_NONE, *_SHARE)), "all traces are sent")
        return 1.0
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if 0 <= value <= 1:
        return value
    _warn_of_value(RATIO_VARIABLE, share, "a number from 0 to 1", "all traces are sent")
    return 1.0


def _warn_of_value(variable: str, value: str, accepted: str, instead: str) -> None:
    extra = {"variable": variable, "value": value, "accepted": accepted, "instead": instead}
    logger.warning("a variable of OpenTelemetry is not understood", extra=extra)


def make_tracer(name: str) -> trace.Tracer:
    """Returns a tracer that may be kept: what it does follows `set_up` and `Telemetry.shutdown`. Those of `opentelemetry.trace.get_tracer`
    do the same.
    """
    return _Tracer(name)


class _Tracer(trace.Tracer):
    """Hands each span to the provider of the moment. The API lets the global provider be set but once in a process, which is too seldom for
    tests."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._provider: TracerProvider | None = None
        self._real: trace.Tracer = _NO_OP

    def _get_current(self) -> trace.Tracer:
        if self._provider is not _current:
            self._provider = _current
            self._real = _NO_OP if _current is None else _current.get_tracer(self._name)
        return self._real

    def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
        return self._get_current().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._get_current().start_as_current_span(*args, **kwargs)


_NO_OP = trace.NoOpTracer()


class _Switch(trace.TracerProvider):
    def get_tracer(self, instrumenting_module_name: str, *args: Any, **kwargs: Any) -> trace.Tracer:
        return _Tracer(instrumenting_module_name)


def get_current_traceparent() -> str | None:
    """Returns the W3C traceparent of the current span, to be carried across the API server; None when nothing is being traced."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def build_links(traceparent: str | None) -> list[Link]:
    """Returns a link to the span of a traceparent, for work that it caused but does not wait for; none when it cannot be read."""
    context = _parse(traceparent)
    return [] if context is None else [Link(context)]


def build_context(traceparent: str | None) -> Context | None:
    """Returns a context in which the span of a traceparent is the parent; None, which means the current one, when it cannot be read."""
    context = _parse(traceparent)
    return None if context is None else trace.set_span_in_context(NonRecordingSpan(context), Context())


def _parse(traceparent: str | None) -> SpanContext | None:
    """Anything malformed counts as absent: it comes from an annotation that any user can write."""
    found = _TRACEPARENT.fullmatch(traceparent.strip()) if isinstance(traceparent, str) and len(traceparent) < 256 else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    context = SpanContext(int(found[2], 16), int(found[3], 16), is_remote=True, trace_flags=TraceFlags(int(found[4], 16)))
    return context if context.is_valid else None


# --- sampling -----------------------------------------------------------------------------------------


def _make_sampler(ratio: float) -> Sampler:
    """Records every span; the flag marks traces of the share that is sent. A function, since its base class is the SDK's."""
    from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult, TraceIdRatioBased

    bound = TraceIdRatioBased.get_bound_for_rate(ratio)

    class Recording(Sampler):
        def should_sample(
            self,
            parent_context: Context | None,
            trace_id: int,
            name: str,
            kind: Any = None,
            attributes: Any = None,
            *more: Any,
            **others: Any,
        ) -> SamplingResult:
            parent = trace.get_current_span(parent_context).get_span_context()
            is_sent = parent.trace_flags.sampled if parent.is_valid else trace_id & TraceIdRatioBased.TRACE_ID_LIMIT < bound
            decision = Decision.RECORD_AND_SAMPLE if is_sent else Decision.RECORD_ONLY
            return SamplingResult(decision, attributes, parent.trace_state if parent.is_valid else None)

        def get_description(self) -> str:
            return f"Recording{{{ratio}}}"

    return Recording()


def _make_processor(exporter: SpanExporter, sampling: Sampling, monotonic: Callable[[], float]) -> Any:
    """Hands on what is sampled at once, and else what turns out to be worth it."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    class Deciding(BatchSpanProcessor):
        def __init__(self) -> None:
            super().__init__(exporter, schedule_delay_millis=1000)
            self._held: HeldSpans[ReadableSpan] = HeldSpans(
                sampling, lambda span: self._batch_processor.emit(_mark_sampled(span)), monotonic
            )

        def on_end(self, span: ReadableSpan) -> None:
            if span.context is not None and span.context.trace_flags.sampled:
                super().on_end(span)
            else:
                self._held.add_span(span)

    return Deciding()


def _mark_sampled(span: ReadableSpan) -> ReadableSpan:
    """Returns the same span with the flag that marks it as sent."""
    from opentelemetry.sdk.trace import ReadableSpan

    assert span.context is not None
    of = span.context
    context = SpanContext(of.trace_id, of.span_id, False, TraceFlags(of.trace_flags | TraceFlags.SAMPLED), of.trace_state)
    return ReadableSpan(
        span.name,
        context,
        span.parent,
        span.resource,
        span.attributes,
        span.events,
        span.links,
        span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


# --- sending ------------------------------------------------------------------------------------------


def _make_exporter(endpoint: str | None, protocol: str | None) -> tuple[SpanExporter, str, str]:
    """The exporter, by which protocol it sends and whither."""
    # Errors of the exporter are logged by `_wrap_exporter`, once.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL + 1)
    asked = protocol or next((value for name in PROTOCOL_VARIABLES if (value := os.environ.get(name))), None) or HTTP
    if asked not in (GRPC, HTTP):
        _warn_of_value(PROTOCOL_VARIABLES[1], asked, f"{GRPC}, {HTTP}", f"spans are sent by {HTTP}")
    whither = remove_credentials(endpoint or next(value for name in ENDPOINT_VARIABLES if (value := os.environ.get(name))))
    if asked == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as ByGrpc

        return ByGrpc() if endpoint is None else ByGrpc(endpoint=endpoint), GRPC, whither
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter() if endpoint is None else OTLPSpanExporter(endpoint=_build_traces_url(endpoint)), HTTP, whither


def _build_traces_url(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


def _wrap_exporter(exporter: SpanExporter, protocol: str, whither: str) -> SpanExporter:
    """The exporter, with a log line when it begins to fail and when it succeeds again. A function, since its base class is the SDK's."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class LoggingSpanExporter(SpanExporter):
        failing = False

        def export(self, spans: list[ReadableSpan]) -> SpanExportResult:  # type: ignore[override]
            try:
                result = exporter.export(spans)
            except Exception as error:  # spans are worth less than the thread that carries them
                result = SpanExportResult.FAILURE
                logger.debug("span export raised", extra={"error": str(error)})
            failed = result is not SpanExportResult.SUCCESS
            if failed and not self.failing:
                logger.warning(
                    "spans cannot be exported and are dropped", extra={"endpoint": whither, "protocol": protocol, "span_count": len(spans)}
                )
            elif self.failing and not failed:
                logger.info("spans are exported again", extra={"endpoint": whither})
            self.failing = failed
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return exporter.force_flush(timeout_millis)

    return LoggingSpanExporter()
