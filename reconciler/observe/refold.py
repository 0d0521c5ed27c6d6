"""Objects that are read again because something else has changed: a few at a time, so that the event loop runs other
tasks meanwhile."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Never

from core.runtime.clock import Clock


class Again:
    """Keys of objects, each read once in the order in which they came; `done` is called whenever none is left."""

    def __init__(self, look: Callable[[str], None], at_once: int, clock: Clock, done: Callable[[], None] = lambda: None) -> None:
        """`at_once` keys are read between two turns of the event loop."""
        self._look, self._at_once, self._clock, self._done = look, at_once, clock, done
        self._keys: dict[str, None] = {}
        self._has_keys = asyncio.Event()

    def add(self, keys: Iterable[str]) -> None:
        """Queues keys of objects that `run`, or another call, reads again; a key that is queued already keeps its turn."""
        self._keys |= dict.fromkeys(keys)
        if self._keys:
            self._has_keys.set()

    def refold_some(self) -> bool:
        """Reads `at_once` of the queued keys again, in the order in which they were added; returns whether any are left. Raises what `look`
        raises for a key, which is not queued any more then."""
        for key in list(islice(self._keys, self._at_once)):
            del self._keys[key]
            self._look(key)
        return bool(self._keys)

    async def refold_all(self) -> None:
        """Reads all queued keys again, in portions, those that come meanwhile, too; returns once none is left. Raises as `refold_some`."""
        while self.refold_some():
            await self._clock.sleep(0)

    async def run(self) -> Never:
        """Reads keys again whenever some are added, and calls `done` each time none is left. Never returns; what `look` or `done` raises
        ends it."""
        while True:
            await self._has_keys.wait()
            self._has_keys.clear()
            await self.refold_all()
            self._done()
