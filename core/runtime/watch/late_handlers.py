"""Handlers that are added when many objects exist, and are called with them piece by piece, so that other tasks run in
between.

They get the same calls in the same order as if they had been called with everything when they were added: first the
objects as they were then, and then the changes since. Stores and state may be ahead of these calls, as they are for
every handler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from core.runtime.clock import Clock
from core.runtime.watch.store import Change, Store

Handler = Callable[[Change], None]

AT_ONCE = 200
"""Calls of handlers between two turns of the loop: a few milliseconds."""


class Latecomers:
    """The late handlers of one informer. `on_end` is called with them when they have got all calls, and are called with
    changes directly from then on."""

    def __init__(self, late: Late, store: Store, on_end: Callable[[Sequence[Handler]], None]) -> None:
        self._late, self._on_end = late, on_end
        self._there = store.list()
        self._handlers: list[Handler] = []

    def add(self, handler: Handler) -> None:
        """Adds a handler, and queues its calls with all objects; only before anything has changed since the first handler came."""
        self._handlers.append(handler)
        self._late.calls.append(([handler], (Change(None, obj, initial=True) for obj in self._there)))

    def queue_change(self, change: Change) -> None:
        """Queues a change for these handlers, after the calls that are pending."""
        self._late.calls.append((self._handlers, [change]))

    def end(self) -> None:
        """Ends the lateness of these handlers: all calls are made."""
        self._on_end(self._handlers)


class Late:
    """All latecomers, of whichever informers, that came within one `delay_handlers`."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Sequence[Handler], Iterable[Change]]] = deque()
        self._latecomers: list[Latecomers] = []

    def expect(self, store: Store, on_end: Callable[[Sequence[Handler]], None]) -> Latecomers:
        """Returns the late handlers of one more informer, none yet. `on_end` is called with them after their calls."""
        latecomers = Latecomers(self, store, on_end)
        self._latecomers.append(latecomers)
        return latecomers

    async def run_calls(self, clock: Clock, at_once: int = AT_ONCE) -> None:
        """Makes all queued calls, `at_once` between two turns of the event loop. Returns when all handlers have been called with every
        object, and with all changes until then. Raises what a handler raises.
        """
        for call, _ in enumerate(self._list_calls(), 1):
            if call % at_once == 0:
                await clock.sleep(0)

    def _list_calls(self) -> Iterator[None]:
        """A call of one handler at each step."""
        while self.calls:
            handlers, changes = self.calls.popleft()
            for change in changes:
                for handler in handlers:
                    yield handler(change)
        for latecomers in self._latecomers:
            latecomers.end()


_late: ContextVar[Late | None] = ContextVar("late", default=None)


@contextmanager
def delay_handlers() -> Iterator[Late]:
    """Yields what delays the calls of handlers that are added inside the context until `Late.run_calls`. Nothing may change inside it, and
    nothing may be awaited.
    """
    late = Late()
    token = _late.set(late)
    try:
        yield late
    finally:
        _late.reset(token)


def find_gathering() -> Late | None:
    """Returns what delays handlers that are added now; None outside of `delay_handlers`."""
    return _late.get()
