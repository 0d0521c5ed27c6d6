"""Who waits is told why, and again when that has changed; but the API server's time is for admissions first."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from core.names import (
    EVICTED,
    MANAGER_ADMISSION,
    QUOTA_RESERVED,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_PREEMPTED,
    REASON_WAITING_FOR_QUOTA,
)
from core.plan.steps import pacing
from sim.apiserver.server import Refused, Request
from tests.builders import RACK
from tests.reconciler.harness_queues import QueuesHarness

WRITE_S = 0.1


@pytest.fixture
def harness() -> QueuesHarness:
    """Each verdict takes a while to be written."""
    harness = QueuesHarness()

    def pass_time(request: Request) -> None:
        if request.params.get("fieldManager") == MANAGER_ADMISSION:
            harness.pass_time(WRITE_S)

    harness.on_write = pass_time
    return harness


def put_queue(harness: QueuesHarness, quota: int, **spec: Any) -> None:
    harness.queue({"gpu": str(quota)}, **spec)


def get_reasons(harness: QueuesHarness) -> dict[str, str]:
    """Why each workload that waits does so, by its own account."""
    found = {}
    for workload in harness.all("Workload"):
        for condition in (workload.get("status") or {}).get("conditions") or ():
            if condition["type"] == QUOTA_RESERVED and condition["status"] == "False":
                found[workload["metadata"]["name"]] = condition["reason"]
    return found


async def write_what_is_not_put_off(harness: QueuesHarness) -> None:
    await harness.scheduler.run_cycle()
    while harness.scheduler._tasks:
        await asyncio.wait(harness.scheduler._tasks)
    await harness.executor.reporter.settle()


def test_changed_reason_of_a_waiting_workload_is_reported_with_delay(harness: QueuesHarness):
    harness.workload("holds", count=2, owner=None)
    harness.decide()
    harness.workload("waits", count=5, owner=None, topology={"required": RACK})
    put_queue(harness, 6)
    harness.decide()
    assert get_reasons(harness) == {"waits": REASON_WAITING_FOR_QUOTA}
    put_queue(harness, 10)
    harness.wait_for(write_what_is_not_put_off(harness))
    assert get_reasons(harness) == {"waits": REASON_WAITING_FOR_QUOTA}
    harness.decide()
    assert get_reasons(harness) == {"waits": REASON_TOPOLOGY_PLACEMENT_FAILED}


def test_preemptor_that_waits_for_victims_gets_no_message_for_each_victim_that_ends(harness: QueuesHarness):
    """Only a verdict with victims does something: they are told to go with it."""
    put_queue(harness, 8, preemption={"withinClusterQueue": "LowerPriority"})
    for name in ("low-1", "low-2"):
        harness.workload(name, count=4, owner=None)
    harness.decide()
    high = harness.workload("high", count=8, owner=None)
    harness.put({**high, "spec": {**high["spec"], "priority": 10}})
    harness.decide()
    assert get_reasons(harness) == {"high": REASON_WAITING_FOR_PREEMPTED}
    told = harness.told("high")
    harness.put({**harness.get("Workload", "low-1"), "status": {}, "spec": {**harness.get("Workload", "low-1")["spec"], "active": False}})
    harness.wait_for(write_what_is_not_put_off(harness))
    assert harness.told("high") == told


def test_victim_that_cannot_be_evicted_keeps_no_other_from_it(harness: QueuesHarness):
    put_queue(harness, 8, preemption={"withinClusterQueue": "LowerPriority"})
    for name in ("low-1", "low-2"):
        harness.workload(name, count=4, owner=None)
    harness.decide()
    high = harness.workload("high", count=8, owner=None)
    harness.put({**high, "spec": {**high["spec"], "priority": 10}})

    def refuse(request: Request) -> None:
        if request.name == "low-1":
            raise Refused(403, "Forbidden", "by a policy")

    harness.on_write = refuse
    harness.decide()
    assert [harness.is_true(EVICTED, name) for name in ("low-1", "low-2")] == [False, True]
    assert get_reasons(harness) == {"high": REASON_WAITING_FOR_PREEMPTED}
    harness.on_write = lambda _: None
    harness.decide()
    assert harness.is_true(EVICTED, "low-1"), "it is decided on again"


def test_repeated_reason_writes_leave_most_of_the_time_to_other_writes(harness: QueuesHarness):
    count = 6
    harness.workload("holds", count=4, owner=None)
    harness.decide()
    put_queue(harness, 5)
    for i in range(count):
        harness.workload(f"waits-{i}", count=5 + i, owner=None)  # no two of a kind, which would be told by the first of them
    harness.decide()
    put_queue(harness, 6)

    async def tell() -> None:
        await write_what_is_not_put_off(harness)
        harness.pass_time(2)
        began = harness.clock.monotonic()
        telling = asyncio.create_task(harness.scheduler._reasons._write_later())
        for _ in range(1000):
            await asyncio.sleep(0.01)
        assert not harness.scheduler._reasons._later
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
        assert harness.clock.monotonic() - began >= (count - 1) * WRITE_S * (1 + pacing.REASONS_REST)

    harness.wait_for(tell())
