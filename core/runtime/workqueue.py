"""A queue of keys: each at most once in it, and worked on at most once at a time; the most urgent first, or after a
delay.

`QueueState` is the whole behaviour and is given the time; `WorkQueue` adds waiting. Nothing is ever handed over through
a future, so a `get` that is cancelled has taken nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from core.runtime.clock import Clock

INITIAL_PRIORITY = -100
"""For what was there before we looked (first list, resync), so that what happens now overtakes it."""

MAX_DELAY_S = 366 * 86400.0
"""Longer waits are cut to this; no caller means them, and timers overflow."""

MIN_WAIT_S = 0.001
"""Timers of an event loop may fire a rounding error early; waiting at least this long keeps that from becoming a spin."""


@dataclass(frozen=True, slots=True)
class Item:
    """What `get` hands out. `reasons` are those of every add that this one run answers; `queued_at` is when the first of them was due."""

    key: Hashable
    reasons: frozenset[str]
    queued_at: float
    priority: int = 0


@dataclass(slots=True)
class _Entry:
    reasons: set[str]
    priority: int
    due_at: float
    order: int
    ready: bool


class QueueState:
    """Pure. Every time given is monotonic and never goes back.

    A key is in at most one entry: adding it again merges reasons, keeps the higher priority and the earlier time. An entry that becomes due
    while its key is being worked on waits for `finish`.
    """

    def __init__(
        self, *, base_delay_s: float = 0.005, max_delay_s: float = 1000.0, jitter: float = 0.2, chance: Callable[[], float] = random.random
    ) -> None:
        self._base_delay_s = base_delay_s
        self._max_delay_s = min(max_delay_s, MAX_DELAY_S)
        self._jitter = jitter
        self._chance = chance
        self._entries: dict[Hashable, _Entry] = {}
        self._processing: set[Hashable] = set()
        self._failures: dict[Hashable, int] = {}
        # Heaps with stale members: one counts only while it agrees with the key's entry.
        self._ready: list[tuple[int, int, Hashable]] = []
        self._delayed: list[tuple[float, int, Hashable]] = []
        self._order = 0

    def add(self, key: Hashable, reason: str, now: float, priority: int = 0) -> None:
        """Adds a key that is due at once, at the monotonic time `now`. A queued key becomes due now if it was not; its reasons are merged,
        and the higher priority holds.
        """
        self._put(key, reason, now, now, priority)

    def add_after(self, key: Hashable, delay_s: float, reason: str, now: float, priority: int = 0) -> None:
        """Adds a key that is due `delay_s` seconds after `now`, 0 at least and `MAX_DELAY_S` at most. Of a queued key the earlier time and
        the higher priority hold, and the reasons are merged. Raises ValueError where `delay_s` is NaN."""
        if math.isnan(delay_s):
            raise ValueError("a delay that is not a number")
        self._put(key, reason, now + min(max(0.0, delay_s), MAX_DELAY_S), now, priority)

    def add_rate_limited(self, key: Hashable, reason: str, now: float, priority: int = 0) -> float:
        """Adds a key after a delay that begins at `base_delay_s` and doubles with each of its failures since `reset_failures`. Returns the
        delay (s). It is up to a fifth shorter at random (`jitter`), never longer than the maximum, so that keys that failed together do
        not come back together. A queued key that is due earlier stays due then."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = min(self._max_delay_s, self._base_delay_s * 2.0 ** min(failures, 64)) * (1 - self._jitter * self._chance())
        self.add_after(key, delay_s, reason, now, priority)
        return delay_s

    def reset_failures(self, key: Hashable) -> None:
        """Resets the failures of a key: its next failure counts as its first. Does not take it out of the queue."""
        self._failures.pop(key, None)

    def count_failures(self, key: Hashable) -> int:
        """Returns how often a key was added by `add_rate_limited` since `reset_failures`."""
        return self._failures.get(key, 0)

    def pop(self, now: float) -> Item | None:
        """Takes the key of highest priority that is due and not being worked on, and returns it; among equals the one that became due
        first. None when there is none. The key counts as being worked on until `finish`."""
        self._promote_due(now)
        while self._ready:
            rank, order, key = heapq.heappop(self._ready)
            entry = self._entries.get(key)
            if entry is None or not entry.ready or entry.order != order or -entry.priority != rank or key in self._processing:
                continue
            del self._entries[key]
            self._processing.add(key)
            return Item(key, frozenset(entry.reasons), entry.due_at, entry.priority)
        return None

    def finish(self, key: Hashable) -> None:
        """Records that work on the key has ended, however; what was added meanwhile may be handed out."""
        self._processing.discard(key)
        entry = self._entries.get(key)
        if entry is not None and entry.ready:
            heapq.heappush(self._ready, (-entry.priority, entry.order, key))

    def has_ready(self) -> bool:
        """Returns whether `pop` may hand out a key that was due by the latest time given; False is certain."""
        return bool(self._ready)

    def find_next_due(self, now: float) -> float | None:
        """Returns the monotonic time when the next key that is not due yet becomes due; None when none will. Keys that are due already do
        not count."""
        self._promote_due(now)
        return self._delayed[0][0] if self._delayed else None

    def count_due(self, now: float) -> int:
        """Returns how many keys are due, those held back by their own processing included."""
        self._promote_due(now)
        return sum(entry.ready for entry in self._entries.values())

    def compute_oldest_age(self, now: float) -> float:
        """Returns for how many seconds the key that has been due longest has waited at `now`; 0 when none is due. A key that waits for the
        end of work on it counts, too."""
        self._promote_due(now)
        return max((now - entry.due_at for entry in self._entries.values() if entry.ready), default=0.0)

    def __len__(self) -> int:
        """Keys in the queue, due or not; those only being worked on are not counted."""
        return len(self._entries)

    @property
    def processing(self) -> frozenset[Hashable]:
        """Returns the keys that are being worked on."""
        return frozenset(self._processing)

    def _put(self, key: Hashable, reason: str, due_at: float, now: float, priority: int) -> None:
        self._promote_due(now)
        entry = self._entries.get(key)
        if entry is None:
            self._order += 1
            entry = self._entries[key] = _Entry({reason}, priority, due_at, self._order, ready=False)
            heapq.heappush(self._delayed, (due_at, entry.order, key))
        else:
            entry.reasons.add(reason)
            if priority > entry.priority:
                entry.priority = priority
                if entry.ready and key not in self._processing:
                    heapq.heappush(self._ready, (-priority, entry.order, key))
            if not entry.ready and due_at < entry.due_at:
                entry.due_at = due_at
                heapq.heappush(self._delayed, (due_at, entry.order, key))
        self._promote_due(now)

    def _promote_due(self, now: float) -> None:
        """Make ready what is due, in the order in which it became so; that order is the one among equals."""
        while self._delayed:
            due_at, order, key = self._delayed[0]
            entry = self._entries.get(key)
            if entry is None or entry.ready or entry.order != order or entry.due_at != due_at:
                heapq.heappop(self._delayed)
                continue
            if due_at > now:
                return
            heapq.heappop(self._delayed)
            self._order += 1
            entry.ready, entry.order = True, self._order
            if key not in self._processing:
                heapq.heappush(self._ready, (-entry.priority, entry.order, key))


class QueueShutDown(Exception):
    """Raised by `get` once the queue is shut down."""


class WorkQueue:
    """`QueueState` with waiting. For use within one event loop.

    Of the calls of `get` that wait a key wakes one, which has waited longest; a call that returns a key wakes the next one if another key
    is due.
    """

    def __init__(
        self, clock: Clock, *, base_delay_s: float = 0.005, max_delay_s: float = 1000.0, chance: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._state = QueueState(base_delay_s=base_delay_s, max_delay_s=max_delay_s, chance=chance)
        self._waiting = deque[asyncio.Future[None]]()
        self._alarm: asyncio.TimerHandle | None = None  # at the time of the next key that is not due yet, while a call of `get` waits
        self._alarm_at = math.inf
        self._shut_down = False

    def add(self, key: Hashable, reason: str, priority: int = 0) -> None:
        """Adds a key that is due at once; does nothing once the queue is stopped. See `QueueState.add`."""
        if not self._shut_down:
            now = self._clock.monotonic()
            self._state.add(key, reason, now, priority)
            self._wake_for_due(now)

    def add_after(self, key: Hashable, delay: float, reason: str, priority: int = 0) -> None:
        """Adds a key that is due after `delay` seconds; does nothing once the queue is stopped. See `QueueState.add_after`."""
        if not self._shut_down:
            now = self._clock.monotonic()
            self._state.add_after(key, delay, reason, now, priority)
            self._wake_for_due(now)

    def add_rate_limited(self, key: Hashable, reason: str, priority: int = 0) -> float:
        """Adds a key that has failed, and returns the seconds after which it comes back; 0 once the queue is stopped. See
        `QueueState.add_rate_limited`.
        """
        if self._shut_down:
            return 0.0
        now = self._clock.monotonic()
        delay = self._state.add_rate_limited(key, reason, now, priority)
        self._wake_for_due(now)
        return delay

    async def get(self) -> Item:
        """Waits for a key and takes it; `finish` must be called for it. Raises QueueShutDown as soon as the queue is stopped."""
        while not self._shut_down:
            now = self._clock.monotonic()
            item = self._state.pop(now)
            self._wake_for_due(now)
            if item is not None:
                return item
            await self._wait(now)
        raise QueueShutDown

    async def _wait(self, now: float) -> None:
        """Waits until a key may be due, or the queue is stopped."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._set_alarm(now)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):  # where another was woken in the same moment it is taken out already
                    self._waiting.remove(waiter)
            else:  # woken in the same moment: the key is left to the next
                self._wake()
            if not self._waiting:
                self._cancel_alarm()
            raise

    def _wake_for_due(self, now: float) -> None:
        """Wakes one that waits if a key can be taken, else no later than when the next one becomes due."""
        if self._waiting:
            if self._state.has_ready():
                self._wake()
            else:
                self._set_alarm(now)

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_alarm(self, now: float) -> None:
        due = self._state.find_next_due(now)
        if due is None or self._alarm_at <= due:
            return
        self._cancel_alarm()
        self._alarm_at = due
        self._alarm = asyncio.get_running_loop().call_later(max(MIN_WAIT_S, due - now), self._end_alarm)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, math.inf

    def _end_alarm(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        self._wake()

    def finish(self, key: Hashable) -> None:
        """Records that work on a key has ended, so that what was added meanwhile may be handed out; see `QueueState.finish`."""
        self._state.finish(key)
        self._wake_for_due(self._clock.monotonic())

    def reset_failures(self, key: Hashable) -> None:
        """Resets the failures of a key: its next one counts as its first. It stays in the queue; see `QueueState.reset_failures`."""
        self._state.reset_failures(key)

    def count_failures(self, key: Hashable) -> int:
        """Returns how often a key was added by `add_rate_limited` since `reset_failures`; see `QueueState.count_failures`."""
        return self._state.count_failures(key)

    def stop(self) -> None:
        """Stops the queue: `get` raises QueueShutDown from now on, also where it waits already, and nothing can be added. Keys that were
        handed out may still be finished. Those in the queue are not handed out any more, but still count in `depth` and `oldest_age`: a
        restart lists everything again."""
        self._shut_down = True
        self._cancel_alarm()
        while self._waiting:
            self._wake()

    def __len__(self) -> int:
        return len(self._state)

    @property
    def depth(self) -> int:
        """Returns how many keys are due and not handed out, also after `stop`; those held back by work on them are included."""
        return self._state.count_due(self._clock.monotonic())

    @property
    def oldest_age(self) -> float:
        """Returns the seconds that the key due longest has waited; 0 where none is due."""
        return self._state.compute_oldest_age(self._clock.monotonic())
