"""Amounts that reviews share, such as bytes of memory: a request waits until there is as much, in the order of asking."""

import asyncio
import ctypes
import resource
from collections import deque
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of mallopt(3)
_OPTIONS = ((_M_MMAP_THRESHOLD, 64 * 1024), (_M_TRIM_THRESHOLD, 1024 * 1024), (_M_ARENA_MAX, 2))
# Bytes that one of each costs once it is parsed, copied and compared, measured with CPython 3.11.
_OBJECT, _ENTRY, _LIST, _VALUE, _CHARACTER = 290, 100, 200, 60, 3


class SharedLimit:
    """So much at once. An amount above the limit is never granted. Clients that wait are served in turn, each in the order of its asking:
    one with many requests keeps no other waiting for more than one of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._left = limit
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}  # by client; the first is next

    @property
    def used(self) -> int:
        """Returns the amount that was taken and not given back."""
        return self.limit - self._left

    @property
    def waiting(self) -> int:
        """Returns how many requests wait."""
        return sum(map(len, self._waiting.values()))

    async def wait_for(self, amount: int, client: str = "") -> None:
        """Takes an amount once it is free and the turn of the request has come. Clients have turns one after the other, and requests of one
        client are served in their order. A request that is cancelled meanwhile has nothing. Raises ValueError where the amount is above the
        limit."""
        if amount > self.limit:
            raise ValueError(f"{amount} is more than {self.limit}")
        if not self._waiting and amount <= self._left:
            self._left -= amount
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append((amount, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._left += amount
            own = self._waiting.get(client, deque())
            with suppress(ValueError):
                own.remove((amount, granted))
            if not own:
                self._waiting.pop(client, None)
            self._serve()
            raise

    def give(self, amount: int) -> None:
        """Gives back an amount that `wait_for` took, and serves requests that wait."""
        self._left += amount
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            client, own = next(iter(self._waiting.items()))
            amount, granted = own[0]
            if amount > self._left:
                return
            own.popleft()
            del self._waiting[client]
            if own:
                self._waiting[client] = own  # behind the others
            if not granted.done():
                self._left -= amount
                granted.set_result(None)


def estimate_memory(body: bytes) -> int:
    """Returns about how many bytes a body of JSON takes in memory while it is judged, by its length and the signs in it. `{}` of two bytes
    counts as an object as any other."""
    signs = ((b"{", _OBJECT), (b":", _ENTRY), (b"[", _LIST), (b",", _VALUE))
    return _CHARACTER * len(body) + sum(cost * body.count(sign) for sign, cost in signs)


def set_up_memory() -> None:
    """Makes the C library map large blocks by themselves, so that each goes back to the system when it is freed, and threads share two
    arenas. Does nothing where it has no such call.
    """
    with suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        for option, value in _OPTIONS:
            set_option(option, value)


def allow_files(count: int) -> int:
    """Lets this process have `count` open files where its hard limit does. Returns how many it may have now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


def give_memory_back() -> None:
    """Makes the C library return free memory to the system, which it else keeps for the process. Does nothing where it has no such call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
