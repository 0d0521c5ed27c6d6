"""At most so many requests a second, counted in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runtime.pace import Pace
from tests.runtime.fakes import ManualClock


@pytest.mark.parametrize(("per_second", "burst", "requests", "seconds"), [(50, 100, 100, 0.0), (50, 100, 150, 1.0), (10, 1, 11, 1.0)])
def test_a_burst_goes_at_once_and_the_rest_at_the_pace(per_second: float, burst: int, requests: int, seconds: float):
    clock = ManualClock()
    pace, began = Pace(clock, per_second, burst), clock.monotonic()

    async def send() -> None:
        for _ in range(requests):
            await pace.turn()

    asyncio.run(send())
    assert clock.monotonic() - began == pytest.approx(seconds)


@given(st.lists(st.floats(0, 2), max_size=40), st.floats(1, 100), st.integers(1, 20))
def test_no_window_has_more_than_burst_and_pace_allow(pauses: list[float], per_second: float, burst: int):
    clock = ManualClock()
    pace, sent = Pace(clock, per_second, burst), list[float]()

    async def send() -> None:
        for wait in pauses:
            await clock.sleep(wait)
            await pace.turn()
            sent.append(clock.monotonic())

    asyncio.run(send())
    for i, first in enumerate(sent):
        for j in range(i, len(sent)):
            assert j - i + 1 <= burst + (sent[j] - first) * per_second + 1e-6
