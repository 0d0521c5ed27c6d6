"""How many requests are under way at once, on a clock of the test's own."""

from __future__ import annotations

import asyncio

import pytest

from core.runtime.clock import SystemClock
from core.runtime.http.throttle import Throttle


@pytest.mark.looptime
async def test_no_more_than_the_limit_are_under_way_and_all_get_their_turn():
    throttle, running, most, done = Throttle(SystemClock(), start=3), 0, 0, 0

    async def request() -> None:
        nonlocal running, most, done
        async with throttle:
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            done += 1

    await asyncio.gather(*(request() for _ in range(10)))
    assert (most, done) == (3, 10)


@pytest.mark.looptime
async def test_the_limit_grows_while_all_succeed_and_stops_at_the_most():
    throttle = Throttle(SystemClock(), start=2, most=4)
    for _ in range(100):
        async with throttle:
            throttle.record_success()
    assert throttle.limit == 4


@pytest.mark.looptime
async def test_shed_load_halves_the_limit_once_and_waits_as_long_as_the_server_says():
    throttle = Throttle(SystemClock(), start=8)
    for _ in range(5):  # all under way when the server began to shed
        throttle.record_refusal(3.0)
    assert throttle.limit == 4
    start = asyncio.get_running_loop().time()
    async with throttle:
        assert asyncio.get_running_loop().time() - start >= 3.0
    throttle.record_refusal(None)
    assert throttle.limit == 2
    async with throttle:
        assert asyncio.get_running_loop().time() - start >= 4.0


@pytest.mark.looptime
async def test_cancelled_waiter_of_the_throttle_uses_no_turn():
    throttle = Throttle(SystemClock(), start=1)
    await throttle.__aenter__()

    async def wait() -> str:
        async with throttle:
            return "in"

    impatient, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(1)
    impatient.cancel()
    await asyncio.sleep(1)
    await throttle.__aexit__(None, None, None)
    assert await patient == "in"
    assert impatient.cancelled()


@pytest.mark.looptime
async def test_throttle_turn_of_a_waiter_cancelled_at_that_moment_goes_to_the_next_waiter():
    throttle = Throttle(SystemClock(), start=1)
    await throttle.__aenter__()

    async def wait() -> str:
        async with throttle:
            return "in"

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(1)
    await throttle.__aexit__(None, None, None)  # the turn is the first one's
    first.cancel()
    assert await asyncio.wait_for(second, 5) == "in"
