"""Handlers that come when there is a lot already, and are told of it piece by piece, so that others have their turn in between.

What changes meanwhile they hear of at once, and before it how things were if they did not know that yet: of each object they hear what
they would have heard had they been told of everything in the moment in which they came, only of some objects sooner than of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.runtime.clock import Clock
from core.runtime.store import Change, Store, object_key

Handler = Callable[[Change], None]

AT_ONCE = 200
"""Calls of handlers between two turns of the loop: a few milliseconds."""


class Latecomers:
    """Handlers of one informer that came late, and what they have heard of by now. `on_end` is called when that is everything."""

    def __init__(self, store: Store, on_end: Callable[[], None]) -> None:
        self._store, self._on_end = store, on_end
        self.handlers: list[Handler] = []
        self._told_to = ""  # all keys up to this one, of those that were there
        self._told: set[str] = set()  # and these, for they have changed or come meanwhile

    def hear(self, change: Change) -> None:
        """Something changes now."""
        key = object_key(change.obj)
        if key > self._told_to and key not in self._told:
            self._told.add(key)
            if change.old is not None:
                self._tell(Change(None, change.old, initial=True))
        self._tell(change)

    def catch_up(self) -> Iterator[int]:
        """Tells of one object more at each step, and says how many handlers were told."""
        for key in sorted(self._store.keys()):
            obj = self._store.get(key)
            if obj is not None and key not in self._told:
                self._told_to = key
                self._tell(Change(None, obj, initial=True))
                yield len(self.handlers)
        self._on_end()

    def _tell(self, change: Change) -> None:
        for handler in self.handlers:
            handler(change)


class Late:
    """All latecomers, of whichever informers, that came within one `telling_later`."""

    def __init__(self) -> None:
        self.latecomers: list[Latecomers] = []

    async def catch_up(self, clock: Clock, at_once: int = AT_ONCE) -> None:
        """Returns when all of them have heard of everything."""
        calls = 0
        for latecomers in self.latecomers:
            for told in latecomers.catch_up():
                calls += told
                if calls >= at_once:
                    calls = 0
                    await clock.sleep(0)


_late: ContextVar[Late | None] = ContextVar("late", default=None)


@contextmanager
def telling_later() -> Iterator[Late]:
    """Handlers that are added within are told of what there is by `Late.catch_up`, and of what changes from now on at once."""
    late = Late()
    token = _late.set(late)
    try:
        yield late
    finally:
        _late.reset(token)


def who_gathers() -> Late | None:
    """What handlers are gathered in just now, if they are."""
    return _late.get()
