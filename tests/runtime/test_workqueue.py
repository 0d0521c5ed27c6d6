"""The work queue against a plain model, and its waiting in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.runtime.clock import SystemClock
from core.runtime.workqueue import INITIAL_PRIORITY, MAX_DELAY_S, QueueShutDown, QueueState, WorkQueue

KEYS = st.sampled_from("abcd")
REASONS = st.sampled_from(["event", "retry", "timer"])
PRIORITIES = st.sampled_from([INITIAL_PRIORITY, 0, 5])


@dataclass
class Waiting:
    """What the model knows of a queued key; `turn` is set when it becomes due, and decides among equals."""

    reasons: set[str]
    priority: int
    due_at: float
    arrival: int
    turn: int | None = None


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.real = QueueState(max_delay_s=10.0, chance=lambda: 0.0)
        self.model: dict[str, Waiting] = {}
        self.processing: set[str] = set()
        self.failures: dict[str, int] = {}
        self.arrivals = itertools.count()
        self.turns = itertools.count()

    def settle(self) -> None:
        due = [(entry.due_at, entry.arrival, entry) for entry in self.model.values() if entry.turn is None and entry.due_at <= self.now]
        for _, _, entry in sorted(due, key=lambda item: item[:2]):
            entry.turn = next(self.turns)

    def put(self, key: str, reason: str, due_at: float, priority: int) -> None:
        entry = self.model.get(key)
        if entry is None:
            self.model[key] = Waiting({reason}, priority, due_at, next(self.arrivals))
        else:
            entry.reasons.add(reason)
            entry.priority = max(entry.priority, priority)
            if entry.turn is None:
                entry.due_at = min(entry.due_at, due_at)
        self.settle()

    @rule(key=KEYS, reason=REASONS, priority=PRIORITIES)
    def add(self, key: str, reason: str, priority: int) -> None:
        self.real.add(key, reason, self.now, priority)
        self.put(key, reason, self.now, priority)

    @rule(key=KEYS, reason=REASONS, priority=PRIORITIES, delay=st.sampled_from([-1.0, 0.0, 1.0, 2.0, 5.0]))
    def add_after(self, key: str, reason: str, priority: int, delay: float) -> None:
        self.real.add_after(key, delay, reason, self.now, priority)
        self.put(key, reason, self.now + max(0.0, delay), priority)

    @rule(key=KEYS, reason=REASONS)
    def add_rate_limited(self, key: str, reason: str) -> None:
        failures = self.failures.get(key, 0)
        wanted = min(10.0, 0.005 * 2**failures)
        assert self.real.add_rate_limited(key, reason, self.now) == wanted
        self.failures[key] = failures + 1
        self.put(key, reason, self.now + wanted, 0)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.real.reset_failures(key)
        self.failures.pop(key, None)

    @rule(seconds=st.sampled_from([0.005, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    @rule()
    def pop(self) -> None:
        ready = {key: entry for key, entry in self.model.items() if entry.turn is not None and key not in self.processing}
        item = self.real.pop(self.now)
        if not ready:
            assert item is None
            return
        key, entry = min(ready.items(), key=lambda pair: (-pair[1].priority, pair[1].turn))
        assert item is not None
        assert (item.key, item.reasons, item.queued_at, item.priority) == (key, frozenset(entry.reasons), entry.due_at, entry.priority)
        del self.model[key]
        self.processing.add(key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.processing)))
        self.real.finish(key)
        self.processing.discard(key)

    @rule(key=KEYS)
    def done_with_what_was_not_taken_is_harmless(self, key: str) -> None:
        if key not in self.processing:
            self.real.finish(key)

    @invariant()
    def agrees(self) -> None:
        assert len(self.real) == len(self.model)
        assert self.real.processing == self.processing
        assert self.real.count_due(self.now) == sum(entry.turn is not None for entry in self.model.values())
        assert self.real.compute_oldest_age(self.now) == max(
            (self.now - e.due_at for e in self.model.values() if e.turn is not None), default=0.0
        )
        assert self.real.find_next_due(self.now) == min((e.due_at for e in self.model.values() if e.turn is None), default=None)
        for key in "abcd":
            assert self.real.count_failures(key) == self.failures.get(key, 0)


TestQueue = QueueMachine.TestCase


def test_backoff_doubles_from_five_milliseconds_to_the_maximum_and_never_overflows():
    queue = QueueState(chance=lambda: 0.0)
    delays = [queue.add_rate_limited("a", "r", 0.0) for _ in range(5000)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert max(delays) == delays[-1] == 1000.0


def test_backoff_is_spread_downwards_by_chance():
    assert QueueState(chance=lambda: 0.5).add_rate_limited("a", "r", 0.0) == pytest.approx(0.005 * 0.9)


@pytest.mark.parametrize("delay", [1e300, math.inf])
def test_absurd_delays_are_cut(delay: float):
    queue = QueueState()
    queue.add_after("a", delay, "r", 0.0)
    assert queue.find_next_due(0.0) == MAX_DELAY_S


def test_a_delay_that_is_no_number_is_a_bug():
    with pytest.raises(ValueError, match="not a number"):
        QueueState().add_after("a", math.nan, "r", 0.0)


def test_fresh_changes_overtake_the_initial_list():
    queue = QueueState()
    for name in "abc":
        queue.add(name, "initial", 0.0, INITIAL_PRIORITY)
    queue.add("d", "event", 0.0)
    queue.add("c", "event", 0.0)
    taken = list(iter(lambda: queue.pop(0.0), None))
    assert [item.key for item in taken] == ["c", "d", "a", "b"]
    assert taken[0].reasons == {"initial", "event"}


def test_stale_heap_entries_do_not_pile_up_for_one_key():
    queue = QueueState()
    for number in range(1000):
        queue.add("a", "r", float(number))
        assert queue.pop(float(number)) is not None
        queue.finish("a")
    assert len(queue._ready) + len(queue._delayed) == 0


# -- waiting


@pytest.mark.looptime
async def test_get_waits_until_a_key_is_due(looptime):
    queue = WorkQueue(SystemClock())
    queue.add_after("late", 5, "r")
    queue.add_after("early", 2, "r")
    assert (await queue.get()).key == "early"
    assert looptime == 2
    assert (await queue.get()).key == "late"
    assert looptime == 5


@pytest.mark.looptime
async def test_work_queue_get_returns_an_item_that_becomes_due_earlier(looptime):
    queue = WorkQueue(SystemClock())
    queue.add_after("late", 100, "r")
    asyncio.get_running_loop().call_later(3, queue.add, "now", "r")
    assert (await queue.get()).key == "now"
    assert looptime == 3


@pytest.mark.looptime
async def test_a_cancelled_get_loses_nothing():
    """Many getters are cancelled at the very moment keys arrive; each key is taken exactly once all the same."""
    queue = WorkQueue(SystemClock())
    taken: list[object] = []

    async def impatient() -> None:
        try:
            async with asyncio.timeout(1):
                taken.append((await queue.get()).key)
        except TimeoutError:
            pass

    for round_ in range(200):
        getters = [asyncio.create_task(impatient()) for _ in range(3)]
        asyncio.get_running_loop().call_later(1, queue.add, round_, "r")
        if round_ % 2:
            asyncio.get_running_loop().call_later(1, getters[0].cancel)
        await asyncio.wait(getters)
    while queue.depth:
        taken.append((await queue.get()).key)
    assert sorted(taken) == list(range(200))  # type: ignore[type-var]


@pytest.mark.looptime
async def test_a_key_is_never_worked_on_twice_at_once_and_no_add_is_lost():
    queue = WorkQueue(SystemClock())
    working: set[object] = set()
    seen: dict[object, int] = {}
    wanted: dict[object, int] = {}

    async def worker() -> None:
        while True:
            item = await queue.get()
            assert item.key not in working
            working.add(item.key)
            state = wanted[item.key]
            await asyncio.sleep(0.7)
            seen[item.key] = state
            working.discard(item.key)
            queue.finish(item.key)

    workers = [asyncio.create_task(worker()) for _ in range(4)]
    for number in range(300):
        key = number % 5
        wanted[key] = number
        queue.add(key, "r")
        await asyncio.sleep(0.1)
    await asyncio.sleep(5)
    assert seen == wanted
    for task in workers:
        task.cancel()
    await asyncio.wait(workers)


@pytest.mark.looptime
async def test_shutting_down_ends_every_get_and_takes_no_more():
    queue = WorkQueue(SystemClock())
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.stop()
    results = await asyncio.gather(*getters, return_exceptions=True)
    assert all(isinstance(result, QueueShutDown) for result in results)
    queue.add("a", "r")
    queue.add_after("a", 1, "r")
    assert queue.add_rate_limited("a", "r") == 0.0
    assert len(queue) == 0


def count_waiting(queue: WorkQueue) -> int:
    return sum(not waiter.done() for waiter in queue._waiting)


@pytest.mark.looptime
async def test_work_queue_add_of_one_key_wakes_one_of_several_that_wait():
    queue = WorkQueue(SystemClock())
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.add("a", "r")
    queue.add("a", "again")
    assert count_waiting(queue) >= 1
    await asyncio.sleep(1)
    assert ([getter.done() for getter in getters], count_waiting(queue)) == ([True, False, False], 2)
    queue.finish("a")
    assert count_waiting(queue) == 2
    queue.stop()
    await asyncio.wait(getters)


@pytest.mark.looptime
async def test_work_queue_keys_that_become_due_at_once_are_all_taken_then(looptime):
    queue = WorkQueue(SystemClock())
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in "abc":
        queue.add_after(key, 5, "r")
    assert {(await getter).key for getter in getters} == {"a", "b", "c"}
    assert looptime == 5


@pytest.mark.looptime
async def test_work_queue_get_that_is_cancelled_last_leaves_no_timer():
    queue = WorkQueue(SystemClock())
    queue.add_after("late", 1000, "r")
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    assert queue._alarm is not None
    getter.cancel()
    await asyncio.wait({getter})
    assert queue._alarm is None


@pytest.mark.looptime
async def test_depth_and_age_are_there_for_metrics():
    queue = WorkQueue(SystemClock())
    queue.add("a", "r")
    queue.add_after("b", 60, "r")
    await asyncio.sleep(10)
    assert (len(queue), queue.depth, queue.oldest_age) == (2, 1, 10)


async def test_work_queue_get_that_is_cancelled_as_a_key_comes_ends_as_cancelled():
    """Found by a reader: who added the key had taken the cancelled one out, and it ended with a ValueError."""
    queue = WorkQueue(SystemClock())
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    getter.cancel()
    queue.add("a", "test")
    with pytest.raises(asyncio.CancelledError):
        await getter
    assert (await queue.get()).key == "a"
