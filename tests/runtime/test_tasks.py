"""Processes end when asked, at once when asked twice, and never quietly."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from core.runtime.tasks import EternalTaskEnded, LoopLag, run_until_stopped, start_eternal
from tests.runtime.fakes import ManualClock


@pytest.mark.looptime
async def test_an_eternal_task_that_returns_is_a_crash():
    async def brief() -> None:
        await asyncio.sleep(5)

    async def main(group: asyncio.TaskGroup) -> None:
        start_eternal(group, "brief", brief())
        start_eternal(group, "long", asyncio.sleep(1000))

    with pytest.raises(ExceptionGroup) as caught:
        await run_until_stopped(main, grace_s=10)
    assert caught.group_contains(EternalTaskEnded, match="brief")


@pytest.mark.looptime
async def test_a_crash_is_raised_and_takes_the_others_along():
    ended: list[str] = []

    async def patient() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("patient")

    async def main(group: asyncio.TaskGroup) -> None:
        group.create_task(patient())
        await asyncio.sleep(1)
        raise RuntimeError("bug")

    with pytest.raises(ExceptionGroup) as caught:
        await run_until_stopped(main, grace_s=10)
    assert caught.group_contains(RuntimeError, match="bug")
    assert ended == ["patient"]


@pytest.mark.looptime
async def test_a_main_that_ends_by_itself_ends_well(looptime):
    async def main(group: asyncio.TaskGroup) -> None:
        group.create_task(asyncio.sleep(3))

    await run_until_stopped(main, grace_s=10)
    assert looptime == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_in_good_order(number: signal.Signals):
    order: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)
            order.append("work ended")

    async def main(group: asyncio.TaskGroup) -> None:
        start_eternal(group, "work", work())
        await asyncio.sleep(0)
        os.kill(os.getpid(), number)

    async def on_stop() -> None:
        order.append("readiness off")

    await run_until_stopped(main, grace_s=10, on_stop=on_stop)
    assert order == ["readiness off", "work ended"]


async def test_signal_during_the_start_hook_stops_the_process_gracefully():
    order: list[str] = []

    async def main(group: asyncio.TaskGroup) -> None:
        start_eternal(group, "work", asyncio.Event().wait())

    async def listen() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        order.append("listens")

    async def on_stop() -> None:
        order.append("readiness off")

    await run_until_stopped(main, grace_s=10, before=listen, on_stop=on_stop)
    assert order == ["listens", "readiness off"]


async def test_failed_start_hook_raises_its_error_and_restores_signal_handlers():
    async def main(group: asyncio.TaskGroup) -> None:
        raise AssertionError("there is nothing to run")

    async def listen() -> None:
        raise OSError("the port is taken")

    with pytest.raises(OSError, match="the port is taken"):
        await run_until_stopped(main, grace_s=10, before=listen)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_second_signal_ends_at_once():
    codes: list[int] = []

    async def main(group: asyncio.TaskGroup) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(1000)

    async def on_stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.01)

    await run_until_stopped(main, grace_s=10, on_stop=on_stop, abort=codes.append)
    assert codes == [128 + signal.SIGINT]


async def test_tasks_that_outlive_the_grace_do_not_hold_the_process():
    codes: list[int] = []
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def main(group: asyncio.TaskGroup) -> None:
        group.create_task(stubborn())
        os.kill(os.getpid(), signal.SIGTERM)

    def abort(code: int) -> None:
        codes.append(code)
        release.set()

    await run_until_stopped(main, grace_s=0.05, abort=abort)
    assert codes == [1]


async def test_a_failing_on_stop_does_not_keep_from_stopping(caplog: pytest.LogCaptureFixture):
    async def main(group: asyncio.TaskGroup) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(1000)

    async def on_stop() -> None:
        raise RuntimeError("bug")

    await run_until_stopped(main, grace_s=5, on_stop=on_stop)
    assert [(record.message, record.levelname) for record in caplog.records] == [("stopping in good order failed", "ERROR")]


async def test_a_blocking_call_shows_as_lag():
    told, clock = list[float](), ManualClock()
    lag = LoopLag(clock, on_lag=told.append)
    task = asyncio.create_task(lag.run())
    await asyncio.sleep(0)
    clock.time += 0.08  # for which a blocking call holds the loop
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert told == pytest.approx([0.08])
