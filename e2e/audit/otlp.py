"""A receiver of OTLP traces over HTTP: what a collector would be sent, kept for the demo and the tests to read."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


@dataclass(frozen=True)
class SpanRecord:
    """One span as it came over the wire; times in nanoseconds since the epoch."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)  # trace id, span id
    is_error: bool = False


class Receiver:
    """Listens on a free port of 127.0.0.1; `endpoint` is what OTEL_EXPORTER_OTLP_ENDPOINT would be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[SpanRecord] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    receiver._take(ExportTraceServiceRequest.FromString(body))
                elif self.path != "/v1/metrics":  # taken, and kept nowhere: what is scraped says the same
                    self.send_error(404)
                    return
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Silent: the spans are the log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="otlp receiver")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def list_spans(self, trace_id: str | None = None) -> list[SpanRecord]:
        """Everything received so far, or one trace, by start."""
        with self._lock:
            found = [span for span in self._spans if trace_id in (None, span.trace_id)]
        return sorted(found, key=lambda span: span.start_ns)

    def _take(self, request: ExportTraceServiceRequest) -> None:
        records = []
        for resource in request.resource_spans:
            service = _read_attributes(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                records += [_record(service, span) for span in scope.spans]
        with self._lock:
            self._spans += records

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _record(service: str, span: Any) -> SpanRecord:
    return SpanRecord(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _read_attributes(span.attributes),
        [(event.name, _read_attributes(event.attributes)) for event in span.events],
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        span.status.code == 2,
    )


def _read_attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs if pair.value.WhichOneof("value")}
