"""Second passes of the scheduler on paper, in virtual time: when they are made again, and what of them is written and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from core.model.configuration import ResourceRules, SecondPass, Transformation
from core.names import EVENT_PODS_MOVED, EVICTED
from core.placement.profile import STANDARD
from core.queueing.second_pass import NodeReplacement
from core.runtime.errors import Conflict, Unreachable
from core.runtime.resource import Obj
from core.runtime.watch_step import Applied
from core.state.facts import condition_is_true
from reconciler.apply import Writer
from reconciler.scheduler import Scheduler
from tests.builders import cluster_queue_json, pod_set_json
from tests.reconciler.paper_queues import QueuesPaper
from tests.runtime.fakes import LoopClock

pytestmark = pytest.mark.looptime
PENDING = {"name": "check", "state": "Pending", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}


class PassPaper(QueuesPaper):
    """A queue whose check brings nodes; workload `w` wants four pods in one rack, which has room for as many as `cpu` says."""

    def __init__(self, *, checked: bool = True, rules: ResourceRules | None = None) -> None:
        super().__init__()
        self.time = LoopClock()
        self.observed.state.resource_rules = rules or ResourceRules()
        self.failing: list[Exception] = []
        self.tried: list[float] = []
        body = {"metadata": {"name": "check", "uid": "uid-check"}, "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"}}
        active = {"type": "Active", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.observed.admission_checks._fold(Applied({**body, "status": {"conditions": [active]}}))
        if checked:
            queue = cluster_queue_json("cq", {"gpu": "10"}, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
            self.put({"kind": "ClusterQueue", **queue})

    def now(self) -> str:
        return self.time.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    @asynccontextmanager
    async def running(self, second_pass: SecondPass = SecondPass(), **options: Any) -> AsyncIterator[None]:  # noqa: B008, a frozen value
        """As a process that has just been started: everything is listed once."""
        scheduler = Scheduler(self.observed, cast("Writer", self), self.time, STANDARD, None, second_pass, **options)
        told = scheduler._verdicts._tell_of_failed_pass

        async def noted(workload: Obj, judged: Any, outcome: Any) -> None:
            self.tried.append(round(self.time.monotonic(), 1))
            await told(workload, judged, outcome)

        scheduler._verdicts._tell_of_failed_pass = noted  # type: ignore[method-assign]
        task = asyncio.create_task(scheduler.run())
        for obj in self.all("Workload"):
            self.put(obj)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def submit(self, count: int) -> None:
        spec = {"queueName": "main", "podSets": [pod_set_json("main", count, topology={"required": "cloud/rack"})]}
        self.put({"kind": "Workload", "metadata": {"name": "w"}, "spec": spec})

    def say_ready(self) -> None:
        """The check is passed, now."""
        workload = self.get("Workload", "w")
        self.put(
            {
                **workload,
                "status": {**workload["status"], "admissionChecks": [{**PENDING, "state": "Ready", "lastTransitionTime": self.now()}]},
            }
        )

    def lose(self, *nodes: str) -> None:
        workload = self.get("Workload", "w")
        self.put({**workload, "status": {**workload["status"], "unhealthyNodes": [{"name": node} for node in nodes]}})

    def nodes(self) -> str:
        (given,) = self.get("Workload", "w")["status"]["admission"]["podSetAssignments"]
        return str(given.get("topologyAssignment"))

    def reasons(self) -> list[str]:
        return [reason for kind, _, reason, _ in self.stories if kind == "Workload"]

    async def apply_admission(self, workload: Obj, status: Any, *, strict: bool) -> Obj:
        if self.failing:
            raise self.failing.pop()
        return await super().apply_admission(workload, status, strict=strict)

    async def read_workload(self, namespace: str, name: str) -> Obj:
        return self.get("Workload", name, namespace)


async def test_it_is_tried_again_after_pauses_that_double_until_its_time_is_over(looptime: Any) -> None:
    paper = PassPaper()
    paper.submit(5)
    async with paper.running():
        await asyncio.sleep(1)
        paper.say_ready()
        await asyncio.sleep(1000)
    assert paper.tried == [1.0, 11.0, 31.0, 71.0, 151.0]
    assert looptime == 1001


async def test_a_process_that_starts_anew_keeps_to_the_same_times() -> None:
    paper = PassPaper()
    paper.submit(5)
    async with paper.running():
        await asyncio.sleep(1)
        paper.say_ready()
        await asyncio.sleep(40)
    paper.tried.clear()
    async with paper.running():
        await asyncio.sleep(1000)
    assert paper.tried == [41.0, 71.0, 151.0], "at once, since it does not know what was tried, and then as before"


async def test_whatever_could_help_makes_it_be_tried_at_once() -> None:
    paper = PassPaper()
    paper.submit(5)
    async with paper.running():
        await asyncio.sleep(1)
        paper.say_ready()
        await asyncio.sleep(2)
        paper.node("r1-m", "r1")
        await asyncio.sleep(1)
        assert "r1-m" in paper.nodes() or "-m" in paper.nodes()
        assert "Admitted" in paper.reasons()
        await asyncio.sleep(1000)
    assert paper.tried == [1.0], "who is admitted is not tried again"


@pytest.mark.parametrize("error", [None, Conflict(409, "Conflict", "somebody wrote"), Unreachable("lost")])
async def test_failed_nodes_are_replaced_and_only_the_move_is_told(error: Exception | None) -> None:
    paper = PassPaper(checked=False)
    paper.submit(3)
    async with paper.running():
        await asyncio.sleep(1)
        assert "r1-n" in paper.nodes()
        before = paper.reasons()
        paper.failing += [error] if error is not None else []
        paper.lose("r1-n")
        await asyncio.sleep(10)
        assert "r2-n" in paper.nodes()
        assert "unhealthyNodes" not in paper.get("Workload", "w")["status"]
        assert [reason for reason in paper.reasons() if reason not in before] == [EVENT_PODS_MOVED]
        assert paper.observed.state.ledger.drift() == {}
        assert not paper.observed.state.workloads.is_assumed("ns/w")


@pytest.mark.parametrize("error", [None, Conflict(409, "Conflict", "somebody wrote"), Unreachable("lost")])
async def test_without_a_replacement_it_is_evicted_and_told(error: Exception | None) -> None:
    paper = PassPaper(checked=False)
    paper.submit(3)
    async with paper.running():
        await asyncio.sleep(1)
        paper.failing += [error] if error is not None else []
        paper.lose("r1-n", "r2-n")
        await asyncio.sleep(10)
    assert condition_is_true(paper.get("Workload", "w"), EVICTED)
    (message,) = [message for reason, message in paper.told("w") if reason == "EvictedDueToNodeFailures"]
    assert message.startswith("Workload was evicted as there was no replacement for unhealthy node(s): r1-n, r2-n; ")


async def test_with_fail_fast_off_it_keeps_its_place_and_is_told() -> None:
    paper = PassPaper(checked=False)
    paper.submit(3)
    async with paper.running(replacement=NodeReplacement(fails_fast=False)):
        await asyncio.sleep(1)
        paper.lose("r1-n", "r2-n")
        await asyncio.sleep(1000)
        assert paper.tried == [1.0], "nothing has changed, and no clock runs for it"
        assert "r1-n" in paper.nodes()
        assert "SecondPassFailed" in paper.reasons()
        paper.node("r3-n", "r3")
        await asyncio.sleep(1)
        assert "r3-n" in paper.nodes()


async def test_who_waits_is_told_what_quota_counts() -> None:
    paper = PassPaper(checked=False, rules=ResourceRules((), (Transformation("cpu", True, {"credits": 1000}),)))
    paper.submit(3)
    async with paper.running():
        await asyncio.sleep(1)
    status = paper.get("Workload", "w")["status"]
    assert status["resourceRequests"] == [{"name": "main", "resources": {"cpu": "3", "credits": "3"}}]
    (reason,) = [c["reason"] for c in status["conditions"] if c["type"] == "QuotaReserved"]
    assert reason == "NoMatchingFlavor", "the queue has no credits"
