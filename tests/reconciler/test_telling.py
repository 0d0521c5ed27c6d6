"""Who waits is told why, and again when that has changed; but the API server's time is for admissions first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from core.names import QUOTA_RESERVED, REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_PREEMPTED, REASON_WAITING_FOR_QUOTA
from core.runtime.resource import Obj
from reconciler.scheduler import TELL_REST
from tests.builders import RACK, cluster_queue_json
from tests.reconciler.paper_queues import QueuesPaper

WRITE_S = 0.1


class SlowPaper(QueuesPaper):
    """Each verdict takes a while to be written."""

    async def apply_admission(self, workload: Obj, status: Mapping[str, Any], *, strict: bool) -> Obj:
        self.clock.time += WRITE_S
        return await super().apply_admission(workload, status, strict=strict)


@pytest.fixture
def paper() -> SlowPaper:
    return SlowPaper()


def put_queue(paper: QueuesPaper, quota: int, **spec: Any) -> None:
    paper.put({"kind": "ClusterQueue", **cluster_queue_json("cq", {"gpu": str(quota)}, **spec)})


def reasons(paper: QueuesPaper) -> dict[str, str]:
    """Why each workload that waits does so, by its own account."""
    found = {}
    for workload in paper.all("Workload"):
        for condition in (workload.get("status") or {}).get("conditions") or ():
            if condition["type"] == QUOTA_RESERVED and condition["status"] == "False":
                found[workload["metadata"]["name"]] = condition["reason"]
    return found


async def write_what_is_not_put_off(paper: QueuesPaper) -> None:
    await paper.scheduler.run_cycle()
    while paper.scheduler._tasks:
        await asyncio.wait(paper.scheduler._tasks)


def test_that_it_waits_for_others_for_another_reason_is_told_in_time_and_not_at_once(paper: SlowPaper):
    paper.workload("holds", count=2, owner=None)
    paper.decide()
    paper.workload("waits", count=5, owner=None, topology={"required": RACK})
    put_queue(paper, 6)
    paper.decide()
    assert reasons(paper) == {"waits": REASON_WAITING_FOR_QUOTA}
    put_queue(paper, 10)
    paper.wait_for(write_what_is_not_put_off(paper))
    assert reasons(paper) == {"waits": REASON_WAITING_FOR_QUOTA}
    paper.decide()
    assert reasons(paper) == {"waits": REASON_TOPOLOGY_PLACEMENT_FAILED}


def test_whoever_waits_for_some_to_go_is_not_told_at_once_each_time_that_one_has_gone(paper: SlowPaper):
    """Only a verdict with victims does something: they are told to go with it."""
    put_queue(paper, 8, preemption={"withinClusterQueue": "LowerPriority"})
    for name in ("low-1", "low-2"):
        paper.workload(name, count=4, owner=None)
    paper.decide()
    high = paper.workload("high", count=8, owner=None)
    paper.put({**high, "spec": {**high["spec"], "priority": 10}})
    paper.decide()
    assert reasons(paper) == {"high": REASON_WAITING_FOR_PREEMPTED}
    told = paper.told("high")
    paper.put({**paper.get("Workload", "low-1"), "status": {}, "spec": {**paper.get("Workload", "low-1")["spec"], "active": False}})
    paper.wait_for(write_what_is_not_put_off(paper))
    assert paper.told("high") == told


def test_between_two_that_are_told_again_most_of_the_time_is_left_to_others(paper: SlowPaper):
    count = 6
    paper.workload("holds", count=4, owner=None)
    paper.decide()
    put_queue(paper, 5)
    for i in range(count):
        paper.workload(f"waits-{i}", count=5 + i, owner=None)  # no two of a kind, which would be told by the first of them
    paper.decide()
    put_queue(paper, 6)

    async def tell() -> None:
        await write_what_is_not_put_off(paper)
        paper.clock.time += 2
        began = paper.clock.time
        telling = asyncio.create_task(paper.scheduler._tell_news())
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not paper.scheduler._news
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
        assert paper.clock.time - began >= (count - 1) * WRITE_S * (1 + TELL_REST)

    paper.wait_for(tell())
