"""Settings of the garbage collector and of the C allocator.

The collector of cycles examines every live object while nothing else runs: most of a second for some tens of thousands
of pods, again and again while they are listed. What the lists of the API server leave behind stays alive and has no
cycles, so that it need not be examined. The C library keeps free pages between used ones until it is asked to return
them.
"""

import ctypes
import gc
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

LONG_S = 0.01
"""What a collection of everything may take. The next one comes when a quarter more lives, and takes a quarter longer."""


def exclude_live_objects() -> None:
    """Excludes all live objects from later collections; each is still freed when its last reference ends.

    Cheap, whatever there is. A cycle that these objects form later is never freed: call it a bounded number of times
    per process. Young objects without use are collected first. Does nothing where the collector is off.
    """
    if not gc.isenabled():
        return
    gc.collect(1)
    gc.freeze()


def exclude_survivors_of_long_collections(long_s: float = LONG_S, clock: Callable[[], float] = time.thread_time) -> Callable[[], None]:
    """Leaves out of later collections, from now on, what lives after a full collection that took longer than `long_s` seconds of its
    thread's time (`exclude_live_objects`). With 20,000 workloads that wait such collections took 100 to 290 ms each. Returns a function
    that ends this.

    How often that can happen is bounded by what is made: between two of them as many objects must grow old as a collection can look at in
    that time. What lives then and hangs together in a cycle later stays.
    """
    hook = _SpareAfterLong(long_s, clock)
    gc.callbacks.append(hook)
    return partial(gc.callbacks.remove, hook)


class _SpareAfterLong:
    def __init__(self, long_s: float, clock: Callable[[], float]) -> None:
        self._long_s, self._clock, self._began = long_s, clock, 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began = self._clock()
        elif self._clock() - self._began > self._long_s:
            gc.freeze()


def give_back_pages() -> bool:
    """Gives the system pages of the C heap on which nothing is any more. Returns whether some were given; always False where the C library
    cannot do so (musl, macOS).

    Texts and buffers of requests come and go between what stays: without this the reconciler took 3 MB more for each thousand workloads
    that were over (`tests.bench.soak`, 7 minutes), though it held nothing of them. Took 4 ms for 140 MB, half of it free.
    """
    trim = _find_trim()
    return trim is not None and bool(trim(0))


@cache
def _find_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = trim
    return found
