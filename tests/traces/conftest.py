"""What this process tells a collector; and no event loop but those of the tests themselves (tests/runtime/conftest.py says why)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from core.runtime import telemetry
from e2e.otlp import Receiver, SpanRecord

asyncio.set_event_loop(None)
Collect = Callable[[], dict[str, SpanRecord]]


@pytest.fixture
def collect() -> Iterator[Collect]:
    """Traces this process; the function stops that and gives what was sent, by name."""
    with Receiver() as receiver:
        sending = telemetry.setup("topogate-test", endpoint=receiver.endpoint)

        def stop() -> dict[str, SpanRecord]:
            assert sending.shutdown()
            return {span.name: span for span in receiver.spans()}

        yield stop
        sending.shutdown()
