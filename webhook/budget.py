"""Amounts that reviews share, such as bytes of memory: a request waits until there is as much, in the order of asking."""

import asyncio
import ctypes
from collections import deque
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of mallopt(3)
_OPTIONS = ((_M_MMAP_THRESHOLD, 64 * 1024), (_M_TRIM_THRESHOLD, 1024 * 1024), (_M_ARENA_MAX, 2))
# Bytes that one of each costs once it is parsed, copied and compared, measured with CPython 3.11.
_OBJECT, _ENTRY, _LIST, _VALUE, _CHARACTER = 290, 100, 200, 60, 3


class Budget:
    """So much at once. An amount above the limit is never granted."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._left = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """What has been taken and not given back."""
        return self.limit - self._left

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def take(self, amount: int) -> None:
        """Waits for the amount; a request that is cancelled meanwhile has nothing. Raises ValueError where it is above the limit."""
        if amount > self.limit:
            raise ValueError(f"{amount} is more than {self.limit}")
        if not self._waiting and amount <= self._left:
            self._left -= amount
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._left += amount
            with suppress(ValueError):
                self._waiting.remove((amount, granted))
            self._serve()
            raise

    def give(self, amount: int) -> None:
        """Takes back what `take` granted."""
        self._left += amount
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            amount, granted = self._waiting.popleft()
            if not granted.done():
                self._left -= amount
                granted.set_result(None)


def estimate_memory(body: bytes) -> int:
    """Bytes that a body of JSON takes in memory while it is judged, by the signs in it: `{}` of two bytes is an object as any other."""
    signs = ((b"{", _OBJECT), (b":", _ENTRY), (b"[", _LIST), (b",", _VALUE))
    return _CHARACTER * len(body) + sum(cost * body.count(sign) for sign, cost in signs)


def set_up_memory() -> None:
    """Has the C library map large blocks by themselves, so that each goes back to the system when it is freed, whatever their size; threads
    share two arenas. Nothing where it has no such call."""
    with suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        for option, value in _OPTIONS:
            set_option(option, value)


def give_memory_back() -> None:
    """Has the C library return free memory to the system, which it else keeps for the process; nothing where it has no such call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
