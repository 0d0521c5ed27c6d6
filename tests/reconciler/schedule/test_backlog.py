"""Verdicts that are decided faster than they are written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.plan.steps import pacing
from core.runtime.controller import Result
from tests.reconciler.harness_queues import QueuesHarness

COUNT = 3 * pacing.MOST_URGENT


class Gated:
    """The writes of a harness wait until the gate is open; it counts them."""

    def __init__(self, h: QueuesHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.begun, self._execute = asyncio.Event(), 0, h.executor.execute
        monkeypatch.setattr(h.executor, "execute", self.execute)

    async def execute(self, plan: Any, left: Any = None) -> Result:
        self.begun += 1
        await self.gate.wait()
        return await self._execute(plan, left)


def fill(h: QueuesHarness, fitting: int, refused: int = 0) -> None:
    h.queue({"gpu": "1000"})
    h.node("r1-big", "r1", cpu=1_000_000)
    for i in range(fitting):
        h.workload(f"w{i:03}", count=1, owner=None)
    for i in range(refused):
        h.workload(f"z{i:03}", count=2000 + i, owner=None)


def count_holding(h: QueuesHarness) -> int:
    return len(h.observed.state.workloads.list_holders("cq"))


def test_deciding_waits_while_admissions_wait_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Former defect: up to 1,024 were decided before any was written, some for half a minute. One of higher priority that came meanwhile
    found the quota taken, and could not preempt them yet."""
    h = QueuesHarness()
    fill(h, COUNT)

    async def play() -> None:
        gated = Gated(h, monkeypatch)
        deciding = asyncio.create_task(decide_all(h))
        for _ in range(200):
            await asyncio.sleep(0)
        assert 0 < count_holding(h) <= 2 * pacing.MOST_URGENT
        gated.gate.set()
        await deciding
        await h.scheduler.settle()

    h.wait_for(play())
    assert count_holding(h) == COUNT
    assert all(h.is_true("Admitted", f"w{i:03}") for i in range(COUNT))


async def decide_all(h: QueuesHarness) -> None:
    await h.scheduler.run_cycle()
    while h.scheduler._is_cut:
        await h.scheduler.run_cycle()


def test_admissions_do_not_wait_behind_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    h = QueuesHarness()
    fill(h, 0, refused=2 * pacing.VERDICTS_AT_ONCE)

    async def play() -> None:
        gated = Gated(h, monkeypatch)
        await h.scheduler.run_cycle()
        for _ in range(20):
            await asyncio.sleep(0)
        assert gated.begun == pacing.REFUSALS_AT_ONCE
        h.workload("fits", count=1, owner=None)
        await decide_all(h)
        for _ in range(20):
            await asyncio.sleep(0)
        assert gated.begun == pacing.REFUSALS_AT_ONCE + 1
        gated.gate.set()
        await h.scheduler.settle()

    h.wait_for(play())
    assert h.is_true("Admitted", "fits")
