"""Timeouts and backoffs of waitForPodsReady in virtual time: no timer is early, none is lost, and none is asked for again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from core.model.pods_ready import PodsReadyRules
from core.names import PODSET_LABEL, WORKLOAD_ANNOTATION
from core.placement.profile import STANDARD
from core.runtime.resource import Obj
from core.state.facts import condition_is_true, find_condition
from reconciler.activity import Activity
from reconciler.apply import Writer
from reconciler.pods_ready import PodsReady
from reconciler.scheduler import Scheduler
from reconciler.steps import WorkloadSteps
from tests.reconciler.paper_queues import QueuesPaper
from tests.runtime.fakes import LoopClock

pytestmark = pytest.mark.looptime
RULES = PodsReadyRules(timeout_s=10, recovery_timeout_s=5, backoff_base_s=20, backoff_limit=1)
JOB = ("batch/v1", "Job", "train")


class ReadyPaper(QueuesPaper):
    """The scheduler and the controller of PodsReady at work, on a cluster with room for eight pods."""

    def __init__(self) -> None:
        super().__init__()
        self.time = LoopClock()
        self.cycles = 0

    def now(self) -> str:
        return self.time.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    @asynccontextmanager
    async def running(self, rules: PodsReadyRules = RULES) -> AsyncIterator[None]:
        """As a process that has just been started: everything is listed once."""
        writer = cast("Writer", self)
        scheduler = Scheduler(self.observed, writer, self.time, STANDARD)
        run_cycle = scheduler.run_cycle

        async def counted() -> None:
            self.cycles += 1
            await run_cycle()

        scheduler.run_cycle = counted  # type: ignore[method-assign]
        ready = PodsReady(self.observed, writer, self.time, rules, jitter=lambda: 0.0)
        activity = Activity(self.observed, writer, self.time)
        parts = (scheduler.run(), ready.controller.run(), activity.controller.run())
        tasks = [asyncio.create_task(part) for part in parts]
        for kind in ("Job", "Pod", "Workload"):
            for obj in self.all(kind):
                self.put(obj)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def job(self, **status: Any) -> None:
        metadata = {"name": "train", "namespace": "ns"}
        self.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 2}, "status": status})

    @property
    def train(self) -> Obj:
        return self.get("Workload", "train")

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.train["status"].get("requeueState") or {}
        return found

    def reason(self, kind: str) -> str:
        return str((find_condition(self.train, kind) or {}).get("reason"))

    def is_true(self, kind: str, name: str = "train") -> bool:
        return condition_is_true(self.get("Workload", name), kind)

    async def stop_job(self) -> None:
        """What the controller of jobs does once its pods are gone."""
        assert await WorkloadSteps(self.observed, cast("Writer", self)).give_back(self.train)


async def until(seconds: float) -> None:
    """The world as it is at this time, counted from the beginning."""
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())


@pytest.fixture
def paper() -> ReadyPaper:
    return ReadyPaper()


async def test_evicted_held_back_admitted_again_and_deactivated(paper: ReadyPaper):
    paper.job(ready=1)
    async with paper.running():
        paper.workload("train", count=2, owner=JOB)
        await until(1)
        assert paper.is_true("Admitted")
        assert paper.reason("PodsReady") == "WaitForStart"
        await until(10.9)
        assert not paper.is_true("Evicted")
        await until(11.5)
        assert paper.reason("Evicted") == paper.reason("Requeued") == "PodsReadyTimeout"
        assert paper.state == {"count": 1, "requeueAt": "2026-01-01T00:00:31Z"}
        assert ("train", "EvictedDueToPodsReadyTimeout") in [(name, reason) for _, name, reason, _ in paper.stories]
        await paper.stop_job()
        paper.workload("other", count=2, owner=None)  # whoever comes meanwhile has a chance
        await until(30.9)
        assert paper.is_true("Admitted", "other")
        assert not paper.is_true("Admitted")
        assert "Not to be admitted before 2026-01-01T00:00:31Z" in (find_condition(paper.train, "QuotaReserved") or {})["message"]
        await until(31.5)
        assert paper.is_true("Admitted")
        assert paper.reason("Requeued") == "BackoffFinished"
        assert paper.state == {"count": 1}
        await until(43)
        assert paper.reason("Evicted") == "DeactivatedDueToRequeuingLimitExceeded"
        assert paper.train["spec"]["active"] is False
        assert find_condition(paper.train, "DeactivationTarget") is None
        await paper.stop_job()
        await until(1000)
        assert not paper.is_true("Admitted")
        await paper.patch_workload(paper.train, {"spec": {"active": True}})
        await until(1001)
        assert paper.is_true("Admitted")
        assert (paper.reason("Requeued"), paper.state) == ("Reactivated", {})
    assert paper.cycles < 100, "a timer is no polling"


async def test_timers_outlive_the_process(paper: ReadyPaper):
    paper.job(ready=1)
    paper.workload("train", count=2, owner=JOB)
    async with paper.running():
        await until(4)
    await until(8)
    async with paper.running():
        await until(10.9)
        assert not paper.is_true("Evicted"), "eleven seconds since its admission, not since the new process"
        await until(11.5)
        assert paper.is_true("Evicted")
        await paper.stop_job()
    await until(20)
    async with paper.running():
        await until(30.9)
        assert not paper.is_true("Admitted")
        await until(31.5)
        assert paper.is_true("Admitted")


async def test_a_workload_is_held_back_also_where_the_feature_is_off_by_now(paper: ReadyPaper):
    paper.workload("train", count=2, owner=JOB)
    paper.put({**paper.train, "status": {"requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:20Z"}}})
    scheduler = Scheduler(paper.observed, cast("Writer", paper), paper.time, STANDARD)
    task = asyncio.create_task(scheduler.run())
    paper.put(paper.train)
    await until(19.9)
    assert not paper.is_true("Admitted")
    await until(20.5)
    assert paper.is_true("Admitted")
    assert find_condition(paper.train, "PodsReady") is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_that_are_lost_have_the_time_of_a_recovery(paper: ReadyPaper):
    paper.job(ready=2)
    async with paper.running():
        paper.workload("train", count=2, owner=JOB)
        await until(50)
        assert paper.reason("PodsReady") == "Started"
        paper.job(ready=1, startTime="2026-01-01T00:00:00Z")
        await until(54)
        assert paper.reason("PodsReady") == "WaitForRecovery"
        paper.job(ready=1, succeeded=1)
        await until(100)
        assert paper.reason("PodsReady") == "Recovered"
        paper.job(ready=1)
        await until(105.9)
        assert not paper.is_true("Evicted")
        await until(106.5)
        assert paper.reason("Evicted") == "PodsReadyTimeout"
        await paper.stop_job()
        assert paper.reason("PodsReady") == "WaitForStart"


async def test_where_no_status_tells_pods_do(paper: ReadyPaper):
    def pod(name: str, *, ready: bool) -> None:
        metadata = {"name": name, "namespace": "ns", "labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: "train"}}
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        spec: Obj = {"containers": [{"name": "c"}]}
        paper.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running", "conditions": conditions}})

    async with paper.running():
        paper.workload("train", count=2, owner=None)
        pod("a", ready=True)
        pod("b", ready=False)
        await until(2)
        assert paper.reason("PodsReady") == "WaitForStart"
        pod("b", ready=True)
        await until(4)
        assert paper.reason("PodsReady") == "Started"


async def test_a_job_that_is_gone_or_has_ended_is_left_to_others(paper: ReadyPaper):
    async with paper.running():
        paper.workload("train", count=2, owner=JOB)
        await until(100)
        assert paper.is_true("Admitted")
        assert find_condition(paper.train, "PodsReady") is None
        paper.job(conditions=[{"type": "Failed", "status": "True"}])
        await until(200)
        assert find_condition(paper.train, "PodsReady") is None
