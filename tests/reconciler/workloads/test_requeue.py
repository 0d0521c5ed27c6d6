"""A workload that loses its nodes time after time, under the scheduler, in virtual time: when it is admitted again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.model.node_health_rules import RequeueRules
from core.names import ADMITTED, EVICTED, FORGOTTEN_FAILURES, QUOTA_RESERVED
from core.runtime.http.errors import Conflict, Unreachable
from core.state.facts import is_condition_true
from tests.builders import RACK, build_cluster_queue_json, build_condition_json
from tests.reconciler.harness_pause import PauseHarness
from tests.reconciler.schedule.test_second_pass import PassHarness

pytestmark = pytest.mark.looptime
CHECKS = {"admissionChecks": [{"name": "check"}]}
RULES = RequeueRules(base_s=10, limit_s=40, forget_after_s=1000)


class LosingHarness(PassHarness):
    """One whose job stops as soon as it is told to."""

    def __init__(self, *, checked: bool = False) -> None:
        super().__init__(checked=checked)
        self.changed = asyncio.Event()
        self.observed.workloads.add_handler(lambda change: self.changed.set())
        self.submit(3)

    async def lose_all(self) -> float:
        """Seconds from the loss of nodes for which there are no others to the next admission."""
        begun = self.clock.monotonic()
        self.lose("r1-n", "r2-n")
        await self.until(EVICTED)
        await self.stop_job("w")
        await self.until(ADMITTED)
        return self.clock.monotonic() - begun

    def message(self, kind: str) -> str:
        return str(self.find_condition(kind, "w").get("message"))

    async def until(self, kind: str) -> None:
        while not is_condition_true(self.get("Workload", "w"), kind):
            self.changed.clear()
            await self.changed.wait()


async def test_the_first_time_it_is_admitted_again_at_once_and_then_later_and_later(looptime: Any) -> None:
    harness = LosingHarness()
    async with harness.running(requeue=RULES):
        await harness.until(ADMITTED)
        waits = [await harness.lose_all() for _ in range(5)]
        await asyncio.sleep(1)
    told = [message for reason, message in harness.told("w") if reason == "EvictedDueToNodeFailures"]
    assert [f"{times} times" in said for times, said in enumerate(told, 1)] == [False, True, True, True, True]
    assert waits[0] < 2
    for wait, least in zip(waits[1:], (10, 20, 40, 40), strict=True):
        assert least - 1 < wait < least + 3  # counted from the time of the condition, which has whole seconds


async def test_a_scheduler_that_is_started_anew_goes_on_waiting_and_counting(looptime: Any) -> None:
    harness = LosingHarness()
    for _ in range(2):
        async with harness.running(requeue=RULES):
            await harness.until(ADMITTED)
            harness.lose("r1-n", "r2-n")
            await harness.until(EVICTED)
        await harness.stop_job("w")
    async with harness.running(requeue=RULES):
        await asyncio.sleep(8)
        assert not is_condition_true(harness.get("Workload", "w"), QUOTA_RESERVED)
        assert "2 times" in harness.message(QUOTA_RESERVED)
        await asyncio.sleep(5)
        assert is_condition_true(harness.get("Workload", "w"), ADMITTED)
        assert 19 < await harness.lose_all() < 23


@pytest.mark.parametrize("error", [None, Conflict(409, "Conflict", "somebody wrote"), Unreachable("lost")])
async def test_workload_that_ran_well_starts_requeue_counting_anew_also_after_a_failed_eviction_write(
    looptime: Any, error: Exception | None
) -> None:
    """What is forgotten is written before it, and stands there already when it is decided on anew."""
    harness = LosingHarness()
    async with harness.running(requeue=RULES):
        await harness.until(ADMITTED)
        for _ in range(2):
            await harness.lose_all()
        assert FORGOTTEN_FAILURES not in harness.get("Workload", "w")["metadata"].get("annotations", {})
        await asyncio.sleep(RULES.forget_after_s + 1)
        harness.failing += [error] if error is not None else []
        assert await harness.lose_all() < 4
        assert harness.get("Workload", "w")["metadata"]["annotations"] == {FORGOTTEN_FAILURES: "2"}
        assert 9 < await harness.lose_all() < 13
    (counted,) = harness.get("Workload", "w")["status"]["schedulingStats"]["evictions"]
    assert counted == {"reason": "NodeFailures", "underlyingCause": "", "count": 4}


async def test_next_admission_message_names_former_and_new_place_also_after_a_restart(looptime: Any) -> None:
    """Also where the reconciler was started anew between the eviction and the admission."""
    harness = LosingHarness()
    async with harness.running(requeue=RULES):
        await harness.until(ADMITTED)
        harness.lose("r1-n")
        harness.node("r2-n", "r2", cpu=1000)  # no room for it, as long as it runs
        await harness.until(EVICTED)
    await harness.stop_job("w")
    assert "cloud/rack r1 (node r1-n)" in harness.message(EVICTED)
    harness.node("r1-n", "r1", cpu=1000)
    harness.node("r2-n", "r2")
    async with harness.running(requeue=RULES):
        await harness.until(ADMITTED)
        await asyncio.sleep(1)
    message = harness.message(EVICTED)
    assert message.startswith("Previously: ")
    assert message.index("cloud/rack r1 (node r1-n)") < message.index("cloud/rack r2 (node r2-n)")
    (told,) = [said for reason, said in harness.told("w") if reason == ADMITTED and "; before: " in said]
    assert "pod set main" in told
    assert told.index("cloud/rack r1 (node r1-n)") < told.index("cloud/rack r2 (node r2-n)")


async def test_so_it_does_where_its_place_follows_its_checks(looptime: Any) -> None:
    """What was told when it got quota had no place yet to tell."""
    harness = LosingHarness(checked=True)
    async with harness.running(requeue=RULES):
        await harness.until(QUOTA_RESERVED)
        harness.say_ready()
        await harness.until(ADMITTED)
        harness.lose("r1-n")
        harness.node("r2-n", "r2", cpu=1000)
        await harness.until(EVICTED)
    await harness.stop_job("w")
    harness.node("r1-n", "r1", cpu=1000)
    harness.node("r2-n", "r2")
    expected = ". It was on cloud/rack r1 (node r1-n). Placed again on cloud/rack r2 (node r2-n)"
    async with harness.running(requeue=RULES):
        await harness.until(QUOTA_RESERVED)
        assert harness.message(EVICTED).endswith("cloud/rack r1 (node r1-n)")
        harness.say_ready()
        await harness.until(ADMITTED)
        await asyncio.sleep(1)
        assert harness.message(EVICTED).startswith("Previously: ")
        assert harness.message(EVICTED).endswith(expected)
        (told,) = [said for reason, said in harness.told("w") if reason == ADMITTED and "; before: " in said]
        assert told.endswith(expected)
        harness.node("r3-n", "r3")
        harness.lose("r2-n")
        await asyncio.sleep(1)
        assert "r3-n" in harness.nodes()
        assert harness.message(EVICTED).endswith(expected), "what came after that was no admission"


async def test_so_does_the_event_where_it_has_its_place_and_waits_for_a_check() -> None:
    harness = PauseHarness()
    active = {"conditions": [{"type": "Active", "status": "True"}]}
    harness.put({"kind": "AdmissionCheck", "metadata": {"name": "check"}, "spec": {"controllerName": "x"}, "status": active})
    harness.put({"kind": "ClusterQueue", **build_cluster_queue_json("cq", {"gpu": "10"}, admissionChecksStrategy=CHECKS)})
    train = harness.workload("train", count=3, owner=None, topology={"required": RACK})
    evicted = build_condition_json(EVICTED, message="its node was lost. It was on cloud/rack r9 (node n)")
    harness.put({**train, "status": {"conditions": [evicted]}})
    async with harness.running():
        await asyncio.sleep(1)
        check = {"name": "check", "state": "Ready", "message": "", "lastTransitionTime": harness.now()}
        harness.change("train", {"status": {"admissionChecks": [check]}})
        await asyncio.sleep(1)
    (told,) = [message for reason, message in harness.told("train") if reason == ADMITTED]
    before = "; before: its node was lost. It was on cloud/rack r9 (node n). Placed again on cloud/rack r1 (node r1-n)"
    assert told.endswith(before)
