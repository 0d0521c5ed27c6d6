"""A process that is to end finishes what is under way, and begins nothing more."""

from __future__ import annotations

import asyncio

import pytest

from core.names import QUOTA_RESERVED
from tests.reconciler.harness_queues import QueuesHarness
from tests.runtime.fakes import LoopClock

pytestmark = pytest.mark.looptime
WRITE_S = 3.0


async def test_verdict_that_is_being_written_is_finished_and_no_other_is_begun():
    harness = QueuesHarness(clock=LoopClock())
    harness.workload("first", count=2, owner=None)
    running = asyncio.create_task(harness.scheduler.run())
    harness.transport.delay_s = WRITE_S
    await asyncio.sleep(1)
    draining = asyncio.create_task(harness.scheduler.drain())
    await asyncio.sleep(0)
    harness.workload("second", count=2, owner=None)
    await draining
    assert harness.is_true(QUOTA_RESERVED, "first")
    await asyncio.sleep(10 * WRITE_S)
    assert "conditions" not in (harness.get("Workload", "second").get("status") or {})
    running.cancel()
    await asyncio.wait([running])
