"""Which traces are sent, decided by the contents of their spans.

A share of all traces is sent whatever their contents. The trace id decides which, so that all processes agree. The
spans of other traces are held until one of them makes its trace worth sending; then the held spans are sent, and all
that follow. A trace without such a span in time is dropped, as are the oldest where too many are held: what is held is
bounded, and needs no thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

MOST_HELD = 8192  # spans, of a few KB each
MOST_OF_ONE = 128  # spans of one trace
MOST_KEPT = 8192  # traces that are known to be worth sending
HELD_S = 900.0  # from the first span on; a job's pods may take minutes to be bound
SLOW_S = 0.25


class Status(Protocol):
    """How a span ended."""

    @property
    def is_ok(self) -> bool:
        """Whether the span has ended without an error."""


class Context(Protocol):
    """Which span it is."""

    @property
    def trace_id(self) -> int:
        """Returns the id of the trace, of 128 bits."""


class Ended(Protocol):
    """A span that is over, as far as it matters here; times in nanoseconds."""

    @property
    def name(self) -> str:
        """Returns the name of the span."""

    @property
    def context(self) -> Any:
        """Returns the trace and the id of the span: a `Context`."""

    @property
    def attributes(self) -> Mapping[str, Any] | None:
        """Returns the attributes by name; None where there are none."""

    @property
    def status(self) -> Status:
        """Returns how the span ended."""

    @property
    def start_time(self) -> int | None:
        """Returns the nanoseconds from 1970 to its begin; None where they are not known."""

    @property
    def end_time(self) -> int | None:
        """Returns the nanoseconds from 1970 to its end; None where they are not known."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What is sent: the `ratio` of all traces, from 0 to 1; those with a span that failed, or that has the attribute `keeps` at True, or
    that is one of `work` and took `slow_s` or longer; and by themselves spans that have the attribute `alone` at True."""

    ratio: float = 1.0
    slow_s: float = SLOW_S
    keeps: str = ""
    alone: str = ""
    work: frozenset[str] = field(default_factory=frozenset)

    def is_worth_it(self, span: Ended) -> bool:
        """Whether a span makes its whole trace worth sending: it failed, or its attribute `keeps` is True. So does one with a name in
        `work` that took `slow_s` seconds or more."""
        if not span.status.is_ok or (span.attributes or {}).get(self.keeps) is True:
            return True
        took_ns = (span.end_time or 0) - (span.start_time or 0)
        return span.name in self.work and took_ns >= self.slow_s * 1e9

    def is_sent_alone(self, span: Ended) -> bool:
        """Whether a span is sent though its trace may not be: its attribute `alone` is True."""
        return (span.attributes or {}).get(self.alone) is True


_Span = TypeVar("_Span", bound=Ended)


class HeldSpans(Generic[_Span]):
    """Spans of traces that are sent only if they are worth it. `add_span` may be called on any thread, and never waits for anything."""

    def __init__(self, sampling: Sampling, send: Callable[[_Span], None], monotonic: Callable[[], float]) -> None:
        self._sampling, self._send, self._monotonic = sampling, send, monotonic
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[float, deque[_Span]]] = OrderedDict()  # by trace: since when, and its spans
        self._count = 0
        self._kept: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    def add_span(self, span: _Span) -> None:
        """Sends a span that makes its trace worth it, or is of such a trace, after those held of the trace; or by itself (`is_sent_alone`).
        Holds any other. Drops traces that are held for `HELD_S` seconds, the oldest spans beyond `MOST_OF_ONE` of a trace, and the oldest
        traces beyond `MOST_HELD` spans."""
        with self._lock:
            trace = span.context.trace_id
            self._drop_old()
            if trace in self._kept or self._sampling.is_worth_it(span):
                for earlier in self._drop(trace):
                    self._send(earlier)
                self._send_trace(trace)
                self._send(span)
            elif self._sampling.is_sent_alone(span):
                self._send(span)
            else:
                self._hold(trace, span)

    def _send_trace(self, trace: int) -> None:
        self._kept[trace] = None
        self._kept.move_to_end(trace)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def _hold(self, trace: int, span: _Span) -> None:
        _, spans = self._held.setdefault(trace, (self._monotonic(), deque(maxlen=MOST_OF_ONE)))
        self._count += len(spans) < MOST_OF_ONE
        spans.append(span)
        while self._count > MOST_HELD:
            self._drop(next(iter(self._held)))

    def _drop_old(self) -> None:
        """Those that were held first are the first of the mapping."""
        limit = self._monotonic() - HELD_S
        while self._held and next(iter(self._held.values()))[0] <= limit:
            self._drop(next(iter(self._held)))

    def _drop(self, trace: int) -> deque[_Span]:
        _, spans = self._held.pop(trace, (0.0, deque[_Span]()))
        self._count -= len(spans)
        return spans
