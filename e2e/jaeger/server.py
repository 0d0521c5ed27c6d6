"""A real Jaeger, built from its Go module, on ports of its own: what it takes by OTLP, it gives back by its query API.

Its module has no files of the web page; `traces.json` can be loaded into any Jaeger that has it ("Upload").
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from e2e.audit.otlp import SpanRecord
from e2e.binaries import Module, ensure_binaries
from e2e.process import Guard, Process, find_free_ports

VERSION = "1.76.0"
NAME = "jaeger-all-in-one"
JAEGER = Module(
    name=NAME,
    folder=Path(__file__).parent,
    package="github.com/jaegertracing/jaeger/cmd/all-in-one",
    tools={NAME: (VERSION, ("version",))},
    stamps={"github.com/jaegertracing/jaeger/internal/version.latestVersion": f"v{VERSION}"},
)
MOST_TRACES = 100_000
GRACE_S = 5.0
_TIMEOUT_S = 10.0


class Jaeger:
    """While it runs: `grpc` and `http` are where to send, `query` is where to ask."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._grpc, self._http, self._query, *self._others = find_free_ports(7)
        self._process: Process | None = None
        self._guard = Guard()

    @property
    def grpc(self) -> str:
        return f"http://127.0.0.1:{self._grpc}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self._http}"

    @property
    def query(self) -> str:
        return f"http://127.0.0.1:{self._query}"

    def __enter__(self) -> Jaeger:
        binary = ensure_binaries(modules=(JAEGER,))[NAME]
        self._guard.__enter__()
        try:
            self._process = Process(NAME, [binary, *self._arguments()], self._folder / "jaeger.log", self._guard)
            self._process.wait_healthy(f"{self.query}/api/services")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._process.stop(GRACE_S)
        self._guard.__exit__(None, None, None)

    def _arguments(self) -> list[str]:
        others = ("query.grpc-server", "collector.grpc-server", "collector.http-server", "admin.http")
        ports = {"collector.otlp.grpc": self._grpc, "collector.otlp.http": self._http, "query.http-server": self._query}
        ports |= dict(zip(others, self._others, strict=True))
        return [*(f"--{name}.host-port=127.0.0.1:{port}" for name, port in ports.items()), f"--memory.max-traces={MOST_TRACES}"]

    # --- what it has ------------------------------------------------------------------------------------------------

    def list_spans(self, trace_id: str | None = None) -> list[SpanRecord]:
        """A trace, by start; nothing of one that it does not have. The whole, if none is named."""
        traces = self.traces(trace_id)
        return sorted((span for trace in traces for span in _read_records(trace)), key=lambda span: span.start_ns)

    def traces(self, trace_id: str | None = None) -> list[dict[str, Any]]:
        """As its query API gives them."""
        if trace_id is not None:
            return self._ask(f"/api/traces/{trace_id}") if trace_id else []
        services = self._ask("/api/services")
        found = (trace for service in services for trace in self._ask(f"/api/traces?service={service}&limit={MOST_TRACES}"))
        return list({trace["traceID"]: trace for trace in found}.values())

    def _ask(self, path: str) -> list[Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.query}{path}", timeout=_TIMEOUT_S) as reply:
                return list(json.load(reply)["data"] or ())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise


def _read_records(trace: dict[str, Any]) -> list[SpanRecord]:
    services = {key: process["serviceName"] for key, process in trace["processes"].items()}
    return [_record(span, services) for span in trace["spans"]]


def _record(span: dict[str, Any], services: dict[str, str]) -> SpanRecord:
    """A span of Jaeger's as it was sent. Its first CHILD_OF of the same trace is the parent, all other references are links."""
    references = list(span["references"])
    parent = next((r for r in references if r["refType"] == "CHILD_OF" and r["traceID"] == span["traceID"]), None)
    links = [(r["traceID"].rjust(32, "0"), r["spanID"]) for r in references if r is not parent]
    attributes = {tag["key"]: tag["value"] for tag in span["tags"]}
    events = []
    for log in span["logs"]:
        fields = {field["key"]: field["value"] for field in log["fields"]}
        events.append((str(fields.pop("event", "")), fields))
    return SpanRecord(
        services[span["processID"]],
        span["operationName"],
        span["traceID"].rjust(32, "0"),
        span["spanID"],
        parent["spanID"] if parent is not None else "",
        span["startTime"] * 1000,
        (span["startTime"] + span["duration"]) * 1000,
        attributes,
        events,
        links,
        attributes.get("error") is True,
    )
