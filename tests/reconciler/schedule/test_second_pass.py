"""Second passes of the scheduler, in virtual time: when they are made again, and what of them is written and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.model.configuration import ResourceRules, SecondPass, Transformation
from core.names import EVENT_PODS_MOVED, EVICTED, MANAGER_ADMISSION
from core.placement.algorithms.profile import STANDARD
from core.plan.steps import pacing
from core.plan.workloads.verdict_steps import Judged
from core.queueing.cycle.second_pass import NodeReplacement
from core.queueing.flavors.outcome import NotAdmissible
from core.runtime.http.errors import Conflict, Unreachable
from core.state.facts import is_condition_true
from reconciler.schedule.scheduler import Scheduler
from sim.apiserver.routes import handle_request
from sim.apiserver.server import Refused, Request
from tests.builders import RACK
from tests.reconciler.harness_queues import QueuesHarness
from tests.runtime.fakes import LoopClock

pytestmark = pytest.mark.looptime


class PassHarness(QueuesHarness):
    """A queue whose check brings nodes; workload `w` wants four pods in one rack, which has room for as many as `cpu` says."""

    def __init__(self, *, checked: bool = True, rules: ResourceRules | None = None) -> None:
        super().__init__(clock=LoopClock())
        self.observed.state.resource_rules = rules or ResourceRules()
        self.failing: list[Exception] = []  # what becomes of the next admissions and evictions
        self.tried: list[float] = []
        self.on_write = self.fail
        spec = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
        active = {"conditions": [{"type": "Active", "status": "True"}]}
        self.put({"kind": "AdmissionCheck", "metadata": {"name": "check"}, "spec": spec, "status": active})
        if checked:
            self.queue({"gpu": "10"}, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})

    @asynccontextmanager
    async def running(self, second_pass: SecondPass = SecondPass(), **options: Any) -> AsyncIterator[None]:  # noqa: B008, a frozen value
        scheduler = Scheduler(self.observed, self.executor, self.clock, STANDARD, None, second_pass, **options)
        self.scheduler = scheduler
        write = scheduler._verdicts.write

        async def note(judged: Judged) -> None:
            if judged.verdict.is_second_pass and isinstance(judged.verdict.outcome, NotAdmissible) and not judged.verdict.outcome.evicts:
                self.tried.append(round(self.clock.monotonic(), 1))
            await write(judged)

        scheduler._verdicts.write = note  # type: ignore[method-assign]
        async with self.run_parts(scheduler.run()):
            yield

    def fail(self, request: Request) -> None:
        if self.failing and request.params.get("fieldManager") == MANAGER_ADMISSION:
            raise self.failing.pop()

    def submit(self, count: int) -> None:
        self.workload("w", count=count, owner=None, topology={"required": RACK})

    def say_ready(self) -> None:
        """The check is passed, now."""
        workload = self.get("Workload", "w")
        check = {"name": "check", "state": "Ready", "lastTransitionTime": self.now(), "message": ""}
        self.put({**workload, "status": {**workload["status"], "admissionChecks": [check]}})

    def lose(self, *nodes: str) -> None:
        workload = self.get("Workload", "w")
        self.put({**workload, "status": {**workload["status"], "unhealthyNodes": [{"name": node} for node in nodes]}})

    def nodes(self) -> str:
        (given,) = self.get("Workload", "w")["status"]["admission"]["podSetAssignments"]
        return str(given.get("topologyAssignment"))

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if event.kind == "Workload"]


async def test_it_is_tried_again_after_pauses_that_double_until_its_time_is_over(looptime: Any) -> None:
    harness = PassHarness()
    harness.submit(5)
    async with harness.running():
        await asyncio.sleep(1)
        harness.say_ready()
        await asyncio.sleep(1000)
    assert harness.tried == [1.0, 11.0, 31.0, 71.0, 151.0]
    assert looptime == 1001


async def test_a_process_that_starts_anew_keeps_to_the_same_times() -> None:
    harness = PassHarness()
    harness.submit(5)
    async with harness.running():
        await asyncio.sleep(1)
        harness.say_ready()
        await asyncio.sleep(40)
    harness.tried.clear()
    async with harness.running():
        await asyncio.sleep(1000)
    assert harness.tried == [41.0, 71.0, 151.0], "at once, since it does not know what was tried, and then as before"


async def test_second_pass_is_retried_at_once_after_a_helpful_change() -> None:
    harness = PassHarness()
    harness.submit(5)
    async with harness.running():
        await asyncio.sleep(1)
        harness.say_ready()
        await asyncio.sleep(2)
        harness.node("r1-m", "r1")
        await asyncio.sleep(1)
        assert "r1-m" in harness.nodes() or "-m" in harness.nodes()
        assert "Admitted" in harness.reasons()
        await asyncio.sleep(1000)
    assert harness.tried == [1.0], "who is admitted is not tried again"


@pytest.mark.parametrize("error", [None, Conflict(409, "Conflict", "somebody wrote"), Unreachable("lost")])
async def test_failed_nodes_are_replaced_and_only_the_move_is_told(error: Exception | None) -> None:
    harness = PassHarness(checked=False)
    harness.submit(3)
    async with harness.running():
        await asyncio.sleep(1)
        assert "r1-n" in harness.nodes()
        before = harness.reasons()
        harness.failing += [error] if error is not None else []
        harness.lose("r1-n")
        await asyncio.sleep(10)
        assert "r2-n" in harness.nodes()
        assert "unhealthyNodes" not in harness.get("Workload", "w")["status"]
        assert [reason for reason in harness.reasons() if reason not in before] == [EVENT_PODS_MOVED]
        assert harness.observed.state.ledger.find_drift() == {}
        assert not harness.observed.state.workloads.is_assumed("ns/w")


async def test_place_for_stuck_pods_that_was_not_written_is_not_written_late() -> None:
    """The answer is lost, and the write is still on its way: the place is free for others by then."""
    harness = PassHarness(checked=False)
    harness.submit(3)
    late: list[Request] = []

    def lose_answer(request: Request) -> None:
        if not late and request.params.get("fieldManager") == MANAGER_ADMISSION:
            late.append(request)
            raise Unreachable("lost")

    async with harness.running():
        await asyncio.sleep(1)
        before = harness.nodes()
        assert "r1-n" in before
        harness.node("r1-m", "r1")
        harness.on_write = lose_answer
        harness.observed.state.observe_stuck("ns/w", {"main": (("r1-n", 1),)})
        await asyncio.sleep(10)
        assert late
        assert harness.nodes() == before
        assert not harness.observed.state.workloads.is_assumed("ns/w")
        with pytest.raises(Refused, match="modified"):
            handle_request(harness.server, late[0])


async def test_lost_answer_about_a_workload_that_cannot_be_read_is_found_out_once_it_can() -> None:
    """Former defect: the process ended, and so did each after it while the answer to its first write was lost."""
    harness = PassHarness(checked=False)
    harness.failing.append(Unreachable("lost"))
    harness.submit(3)
    async with harness.running():
        await asyncio.sleep(0.5)
        waiting = harness.get("Workload", "w")
        assert not harness.failing
        odd = {"name": "main", "count": 3, "resourceUsage": {"gpu": "many"}}
        harness.put({**waiting, "status": {"admission": {"clusterQueue": "main", "podSetAssignments": [odd]}}})
        await asyncio.sleep(5)
        assert harness.observed.state.workloads.is_assumed("ns/w")
        harness.put(waiting)
        await asyncio.sleep(10)
        assert "r1-n" in harness.nodes()
        assert not harness.observed.state.workloads.is_assumed("ns/w")


@pytest.mark.parametrize("error", [None, Conflict(409, "Conflict", "somebody wrote"), Unreachable("lost")])
async def test_without_a_replacement_it_is_evicted_and_told(error: Exception | None) -> None:
    harness = PassHarness(checked=False)
    harness.submit(3)
    async with harness.running():
        await asyncio.sleep(1)
        harness.failing += [error] if error is not None else []
        harness.lose("r1-n", "r2-n")
        await asyncio.sleep(10)
    assert is_condition_true(harness.get("Workload", "w"), EVICTED)
    (message,) = [message for reason, message in harness.told("w") if reason == "EvictedDueToNodeFailures"]
    assert "r1-n, r2-n" in message


async def test_with_fail_fast_off_it_keeps_its_place_and_is_told() -> None:
    harness = PassHarness(checked=False)
    harness.submit(3)
    async with harness.running(replacement=NodeReplacement(fails_fast=False)):
        await asyncio.sleep(1)
        harness.lose("r1-n", "r2-n")
        await asyncio.sleep(1000)
        assert harness.tried == [1.0], "nothing has changed, and no clock runs for it"
        assert "r1-n" in harness.nodes()
        assert "SecondPassFailed" in harness.reasons()
        harness.node("r3-n", "r3")
        await asyncio.sleep(1)
        assert "r3-n" in harness.nodes()


async def test_waiting_workload_reports_its_requests_as_quota_counts_them() -> None:
    harness = PassHarness(checked=False, rules=ResourceRules((), (Transformation("cpu", True, {"credits": 1000}),)))
    harness.submit(3)
    async with harness.running():
        await asyncio.sleep(1)
    status = harness.get("Workload", "w")["status"]
    assert status["resourceRequests"] == [{"name": "main", "resources": {"cpu": "3", "credits": "3"}}]
    (reason,) = [c["reason"] for c in status["conditions"] if c["type"] == "QuotaReserved"]
    assert reason == "NoMatchingFlavor", "the queue has no credits"


@pytest.mark.parametrize("changed", [{"active": False}, {"queueName": "other"}])
async def test_decision_on_a_workload_that_changes_before_the_turn_of_its_write_is_void(changed: dict[str, Any]) -> None:
    harness = PassHarness(checked=False)
    async with harness.running():
        writes = harness.scheduler._verdicts._writes
        for _ in range(pacing.VERDICTS_AT_ONCE):
            await writes.acquire()  # as many others are being written
        harness.submit(3)
        await asyncio.sleep(1)
        workload = harness.get("Workload", "w")
        harness.put({**workload, "spec": {**workload["spec"], **changed}})
        for _ in range(pacing.VERDICTS_AT_ONCE):
            writes.release()
        await asyncio.sleep(5)
    assert "admission" not in (harness.get("Workload", "w").get("status") or {})
    assert "Admitted" not in harness.reasons()
