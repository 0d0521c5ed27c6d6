"""Traces by OTLP, or nothing at all.

The only module that knows the OpenTelemetry SDK, and it imports it only when there is somewhere to send to; otherwise the API's own no-op
tracer stays, which costs next to nothing. An exporter that fails drops spans: it never holds a caller up, since spans go through a bounded
queue to a thread of their own, and it is logged when it begins to fail and when it is well again, not once per batch.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

logger = logging.getLogger(__name__)

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass
class Telemetry:
    """What `setup` made; `enabled` says whether spans go anywhere."""

    _provider: TracerProvider | None = None

    @property
    def enabled(self) -> bool:
        return self._provider is not None

    def shutdown(self, timeout_s: float = 5.0) -> bool:
        """Send what is queued and stop; whether that was done within `timeout_s`. Blocks so long at most, whatever the collector does.

        On a daemon thread: an exporter that hangs must not keep the process from exiting.
        """
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


def setup(service_name: str, *, endpoint: str | None = None) -> Telemetry:
    """Send spans to `endpoint`, the base address of an OTLP/HTTP collector; None: as the standard environment variables say, else
    nowhere."""
    if endpoint is None and not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return Telemetry()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # What goes wrong there is told by _Tell, once.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL + 1)
    exporter = OTLPSpanExporter() if endpoint is None else OTLPSpanExporter(endpoint=_traces_url(endpoint))
    # shutdown_on_exit: the interpreter's exit would wait for the exporter, without a bound.
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_telling(exporter), schedule_delay_millis=1000))
    global _current
    _current = provider
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_Switch())
    return Telemetry(provider)


def tracer(name: str) -> trace.Tracer:
    """A tracer that may be kept: what it does follows `setup` and `shutdown`. Those of `opentelemetry.trace.get_tracer` do the same."""
    return _Tracer(name)


class _Tracer(trace.Tracer):
    """Hands each span to the provider of the moment. The API lets the global provider be set but once in a process, which is too seldom for
    tests."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._provider: TracerProvider | None = None
        self._real: trace.Tracer = _NO_OP

    def _now(self) -> trace.Tracer:
        if self._provider is not _current:
            self._provider = _current
            self._real = _NO_OP if _current is None else _current.get_tracer(self._name)
        return self._real

    def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
        return self._now().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._now().start_as_current_span(*args, **kwargs)


_NO_OP = trace.NoOpTracer()


class _Switch(trace.TracerProvider):
    def get_tracer(self, instrumenting_module_name: str, *args: Any, **kwargs: Any) -> trace.Tracer:
        return _Tracer(instrumenting_module_name)


def current_traceparent() -> str | None:
    """The W3C traceparent of the current span, to be carried across the API server; None when nothing is being traced."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def link_from(traceparent: str | None) -> list[Link]:
    """A link to that span, for work that it caused but does not wait for; none when it cannot be read."""
    context = _parse(traceparent)
    return [] if context is None else [Link(context)]


def context_from(traceparent: str | None) -> Context | None:
    """A context in which that span is the parent; None, which means the current one, when it cannot be read."""
    context = _parse(traceparent)
    return None if context is None else trace.set_span_in_context(NonRecordingSpan(context), Context())


def _parse(traceparent: str | None) -> SpanContext | None:
    """Anything malformed counts as absent: it comes from an annotation that any user can write."""
    found = _TRACEPARENT.fullmatch(traceparent.strip()) if isinstance(traceparent, str) and len(traceparent) < 256 else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    context = SpanContext(int(found[2], 16), int(found[3], 16), is_remote=True, trace_flags=TraceFlags(int(found[4], 16)))
    return context if context.is_valid else None


def _traces_url(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


def _telling(exporter: SpanExporter) -> SpanExporter:
    """The exporter, with a log line when it begins to fail and when it succeeds again. A function, since its base class is the SDK's."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Telling(SpanExporter):
        failing = False

        def export(self, spans: list[ReadableSpan]) -> SpanExportResult:  # type: ignore[override]
            try:
                result = exporter.export(spans)
            except Exception as error:  # spans are worth less than the thread that carries them
                result = SpanExportResult.FAILURE
                logger.debug("span export raised", extra={"error": str(error)})
            failed = result is not SpanExportResult.SUCCESS
            if failed and not self.failing:
                logger.warning("spans cannot be exported and are dropped", extra={"span_count": len(spans)})
            elif self.failing and not failed:
                logger.info("spans are exported again")
            self.failing = failed
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return exporter.force_flush(timeout_millis)

    return Telling()
