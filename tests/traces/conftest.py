"""What this process tells a collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from core.runtime.report import telemetry
from e2e.audit.otlp import Receiver, SpanRecord

Collect = Callable[[], dict[str, SpanRecord]]
CollectAll = Callable[[], list[SpanRecord]]


@pytest.fixture
def collect_all() -> Iterator[CollectAll]:
    """Traces this process; the function stops that and gives what was sent, by start."""
    with Receiver() as receiver:
        sending = telemetry.set_up("topogate-test", endpoint=receiver.endpoint)

        def stop() -> list[SpanRecord]:
            assert sending.shutdown()
            return receiver.list_spans()

        yield stop
        sending.shutdown()


@pytest.fixture
def collect(collect_all: CollectAll) -> Collect:
    """The same, by name."""
    return lambda: {span.name: span for span in collect_all()}
