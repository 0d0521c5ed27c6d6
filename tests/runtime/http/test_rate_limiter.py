"""At most so many requests a second, counted in virtual time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runtime.http.rate_limiter import RateLimiter, yield_to_others
from tests.runtime.fakes import ManualClock


@pytest.mark.parametrize(("per_second", "burst", "requests", "seconds"), [(50, 100, 100, 0.0), (50, 100, 150, 1.0), (10, 1, 11, 1.0)])
def test_a_burst_goes_at_once_and_the_rest_at_the_pace(per_second: float, burst: int, requests: int, seconds: float):
    clock = ManualClock()
    pace, began = RateLimiter(clock, per_second, burst), clock.monotonic()

    async def send() -> None:
        for _ in range(requests):
            await pace.wait_turn()

    asyncio.run(send())
    assert clock.monotonic() - began == pytest.approx(seconds)


@given(st.lists(st.floats(0, 2), max_size=40), st.floats(1, 100), st.integers(1, 20))
def test_no_window_has_more_than_burst_and_pace_allow(pauses: list[float], per_second: float, burst: int):
    clock = ManualClock()
    pace, sent = RateLimiter(clock, per_second, burst), list[float]()

    async def send() -> None:
        for wait in pauses:
            await clock.sleep(wait)
            await pace.wait_turn()
            sent.append(clock.monotonic())

    asyncio.run(send())
    for i, first in enumerate(sent):
        for j in range(i, len(sent)):
            assert j - i + 1 <= burst + (sent[j] - first) * per_second + 1e-6


class SleepersClock:
    """Many sleep at once; time goes on to the next who wakes when nobody can do anything else."""

    def __init__(self) -> None:
        self.time = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self.time

    def read_timer(self) -> float:
        return self.monotonic()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, next(self._numbers), woken))
        await woken

    async def play(self, until: float) -> None:
        while True:
            for _ in range(10):
                await asyncio.sleep(0)
            if not self._sleepers or self._sleepers[0][0] > until:
                return
            self.time, _, woken = heapq.heappop(self._sleepers)
            woken.set_result(None)


async def count(per_second: float, *, others: int, back: int, until: float = 100.0) -> tuple[int, int]:
    """Turns that were had by so many senders that ask for one after the other, and by so many that yield."""
    clock = SleepersClock()
    pace = RateLimiter(clock, per_second, burst=1)
    turns = {False: 0, True: 0}

    async def send(yields: bool) -> None:
        while clock.time < until:
            if yields:
                with yield_to_others():
                    await pace.wait_turn()
            else:
                await pace.wait_turn()
            turns[yields] += 1

    tasks = [asyncio.create_task(send(yields)) for yields in [False] * others + [True] * back]
    await clock.play(until)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return turns[False], turns[True]


async def test_rate_limiter_under_full_load_gives_one_request_in_ten_to_yielding_tasks():
    others, back = await count(10, others=5, back=5)
    assert others + back == pytest.approx(1000, abs=10)
    assert back == pytest.approx(100, abs=10)


async def test_rate_limiter_without_other_load_gives_all_requests_to_yielding_tasks():
    others, back = await count(10, others=0, back=3)
    assert others == 0
    assert back == pytest.approx(1000, abs=10)


async def test_yielding_context_applies_only_to_tasks_created_within_it():
    clock = SleepersClock()
    pace = RateLimiter(clock, 1, burst=1)
    order: list[str] = []

    async def ask(name: str) -> None:
        await pace.wait_turn()
        order.append(name)

    async with asyncio.TaskGroup() as group:
        with yield_to_others():
            group.create_task(ask("event 1"))
            group.create_task(ask("event 2"))
        for number in range(3):
            group.create_task(ask(f"write {number}"))
        await clock.play(100)
    assert order == ["event 1", "write 0", "write 1", "write 2", "event 2"]


def test_rate_limiter_that_does_not_wait_gives_a_burst_and_then_turns_by_the_second():
    clock = ManualClock()
    limiter = RateLimiter(clock, 2.0, 3)
    assert [limiter.try_turn() for _ in range(4)] == [True, True, True, False]
    clock.time += 0.4
    assert not limiter.try_turn()
    clock.time += 0.1
    assert limiter.try_turn()
    assert not limiter.try_turn()


def test_rate_limiter_keeps_the_share_of_a_burst_that_is_to_be_left():
    limiter = RateLimiter(ManualClock(), 1.0, 4)
    assert [limiter.try_turn(least_share=0.5) for _ in range(4)] == [True, True, True, False]
    assert limiter.try_turn()


@given(st.lists(st.floats(0, 0.5), max_size=60), st.integers(1, 5), st.floats(0.5, 20))
def test_rate_limiter_that_does_not_wait_never_gives_more_than_its_rate(pauses: list[float], burst: int, per_second: float):
    clock = ManualClock()
    limiter, began, taken = RateLimiter(clock, per_second, burst), clock.monotonic(), 0
    for pause in pauses:
        clock.time += pause
        taken += limiter.try_turn()
        assert taken <= burst + (clock.monotonic() - began) * per_second + 1e-6
