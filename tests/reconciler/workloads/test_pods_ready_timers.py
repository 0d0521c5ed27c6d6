"""Timeouts and backoffs of waitForPodsReady in virtual time: no timer is early, none is lost, and none is asked for again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.model.own_pods_ready import NOTHING_OWN, OwnPodsReady
from core.model.pods_ready_rules import PodsReadyRules
from core.names import MANAGED, MAX_NOT_READY_COUNT, PODSET_LABEL, WORKLOAD_ANNOTATION
from core.placement.algorithms.profile import STANDARD
from core.plan.steps import writes as w
from core.plan.steps.steps import Step, make_plan
from core.resource import Obj
from core.runtime.clock import Clock
from core.state.facts import find_condition
from reconciler.schedule.scheduler import Scheduler
from reconciler.workloads.activity import Activity
from reconciler.workloads.pods_ready import PodsReady
from tests.reconciler.harness_queues import QueuesHarness, wait_until
from tests.runtime.fakes import LoopClock

pytestmark = pytest.mark.looptime
RULES = PodsReadyRules(timeout_s=10, recovery_timeout_s=5, backoff_base_s=20, backoff_limit=1)
JOB = ("batch/v1", "Job", "train")


class ReadyHarness(QueuesHarness):
    """The scheduler and the controller of PodsReady at work, on a cluster with room for eight pods."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock=clock or LoopClock())
        self.cycles = 0

    @asynccontextmanager
    async def running(self, rules: PodsReadyRules | None = RULES, own: OwnPodsReady = NOTHING_OWN) -> AsyncIterator[None]:
        scheduler = Scheduler(self.observed, self.executor, self.clock, STANDARD)
        run_cycle = scheduler.run_cycle

        async def counted() -> None:
            self.cycles += 1
            await run_cycle()

        scheduler.run_cycle = counted  # type: ignore[method-assign]
        ready = PodsReady(self.observed, self.executor, self.clock, rules, own, jitter=lambda: 0.0)
        activity = Activity(self.observed, self.executor, self.clock)
        async with self.run_parts(scheduler.run(), ready.controller.run(), activity.controller.run()):
            yield

    def job(self, **status: Any) -> None:
        self.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"parallelism": 2}, "status": status})

    @property
    def train(self) -> Obj:
        return self.get("Workload", "train")

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.train["status"].get("requeueState") or {}
        return found

    def reason(self, kind: str) -> str:
        return str(self.find_condition(kind).get("reason"))

    async def activate(self) -> None:
        await self.executor.execute(make_plan(Step("activate", w.set_active(self.train))))


@pytest.fixture
async def harness() -> ReadyHarness:
    """On the loop of the test, whose time is its own."""
    return ReadyHarness()


async def test_evicted_held_back_admitted_again_and_deactivated(harness: ReadyHarness):
    harness.job(ready=1)
    async with harness.running():
        harness.workload("train", count=2, owner=JOB)
        await wait_until(1)
        assert harness.is_true("Admitted")
        assert harness.reason("PodsReady") == "WaitForStart"
        await wait_until(10.9)
        assert not harness.is_true("Evicted")
        await wait_until(11.5)
        assert harness.reason("Evicted") == harness.reason("Requeued") == "PodsReadyTimeout"
        assert harness.state == {"count": 1, "requeueAt": "2026-01-01T00:00:31Z"}
        assert ("train", "EvictedDueToPodsReadyTimeout") in [(event.key.partition("/")[2], event.reason) for event in harness.events]
        await harness.stop_job()
        harness.workload("other", count=2, owner=None)  # whoever comes meanwhile has a chance
        await wait_until(30.9)
        assert harness.is_true("Admitted", "other")
        assert not harness.is_true("Admitted")
        assert "2026-01-01T00:00:31Z" in (find_condition(harness.train, "QuotaReserved") or {})["message"]
        await wait_until(31.5)
        assert harness.is_true("Admitted")
        assert harness.reason("Requeued") == "BackoffFinished"
        assert harness.state == {"count": 1}
        await wait_until(43)
        assert harness.reason("Evicted") == "DeactivatedDueToRequeuingLimitExceeded"
        assert harness.train["spec"]["active"] is False
        assert find_condition(harness.train, "DeactivationTarget") is None
        await harness.stop_job()
        await wait_until(1000)
        assert not harness.is_true("Admitted")
        await harness.activate()
        await wait_until(1001)
        assert harness.is_true("Admitted")
        assert (harness.reason("Requeued"), harness.state) == ("Reactivated", {})
    assert harness.cycles < 100, "a timer is no polling"


async def test_timers_outlive_the_process(harness: ReadyHarness):
    harness.job(ready=1)
    harness.workload("train", count=2, owner=JOB)
    async with harness.running():
        await wait_until(4)
    await wait_until(8)
    async with harness.running():
        await wait_until(10.9)
        assert not harness.is_true("Evicted"), "eleven seconds since its admission, not since the new process"
        await wait_until(11.5)
        assert harness.is_true("Evicted")
        await harness.stop_job()
    await wait_until(20)
    async with harness.running():
        await wait_until(30.9)
        assert not harness.is_true("Admitted")
        await wait_until(31.5)
        assert harness.is_true("Admitted")


async def test_a_workload_is_held_back_also_where_the_feature_is_off_by_now(harness: ReadyHarness):
    harness.workload("train", count=2, owner=JOB)
    harness.put({**harness.train, "status": {"requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:20Z"}}})
    scheduler = Scheduler(harness.observed, harness.executor, harness.clock, STANDARD)
    task = asyncio.create_task(scheduler.run())
    harness.put(harness.train)
    await wait_until(19.9)
    assert not harness.is_true("Admitted")
    await wait_until(20.5)
    assert harness.is_true("Admitted")
    assert find_condition(harness.train, "PodsReady") is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_that_are_lost_have_the_time_of_a_recovery(harness: ReadyHarness):
    harness.job(ready=2)
    async with harness.running():
        harness.workload("train", count=2, owner=JOB)
        await wait_until(50)
        assert harness.reason("PodsReady") == "Started"
        harness.job(ready=1, startTime="2026-01-01T00:00:00Z")
        await wait_until(54)
        assert harness.reason("PodsReady") == "WaitForRecovery"
        harness.job(ready=1, succeeded=1)
        await wait_until(100)
        assert harness.reason("PodsReady") == "Recovered"
        harness.job(ready=1)
        await wait_until(105.9)
        assert not harness.is_true("Evicted")
        await wait_until(106.5)
        assert harness.reason("Evicted") == "PodsReadyTimeout"
        await harness.stop_job()
        assert harness.reason("PodsReady") == "WaitForStart"


async def test_pods_ready_without_a_status_is_read_from_pods(harness: ReadyHarness):
    def pod(name: str, *, ready: bool) -> None:
        metadata = {"name": name, "namespace": "ns", "labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: "train"}}
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        spec: Obj = {"containers": [{"name": "c"}]}
        harness.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running", "conditions": conditions}})

    async with harness.running():
        harness.workload("train", count=2, owner=None)
        pod("a", ready=True)
        pod("b", ready=False)
        await wait_until(2)
        assert harness.reason("PodsReady") == "WaitForStart"
        pod("b", ready=True)
        await wait_until(4)
        assert harness.reason("PodsReady") == "Started"


OWN = OwnPodsReady(reads_times=True, tolerates=True)


async def annotate(harness: ReadyHarness, **notes: str) -> None:
    metadata = {
        **harness.train["metadata"],
        "annotations": {f"kueue.x-k8s.io/{name.replace('_', '-')}": text for name, text in notes.items()},
    }
    harness.put({**harness.train, "metadata": metadata})


async def test_workload_with_times_of_its_own_is_evicted_by_them_and_no_other_is(harness: ReadyHarness):
    harness.job(ready=1)
    async with harness.running(rules=None, own=OWN):
        harness.workload("train", count=2, owner=JOB)
        harness.workload("other", count=2, owner=None)
        await annotate(harness, wait_for_pods_ready='{"timeoutSeconds": 30}')
        await wait_until(30.5)
        assert harness.reason("PodsReady") == "WaitForStart"
        assert not harness.is_true("Evicted")
        await wait_until(32.5)
        assert harness.reason("Evicted") == "PodsReadyTimeout"
        assert find_condition(harness.get("Workload", "other"), "PodsReady") is None


async def test_own_times_of_a_workload_are_stronger_than_those_of_the_cluster(harness: ReadyHarness):
    harness.job(ready=1)
    async with harness.running(own=OWN):
        harness.workload("train", count=2, owner=JOB)
        await annotate(harness, wait_for_pods_ready='{"timeoutSeconds": 60}')
        await wait_until(60.5)
        assert not harness.is_true("Evicted")
        await wait_until(62.5)
        assert harness.reason("Evicted") == "PodsReadyTimeout"


async def test_group_with_a_tolerated_pod_that_is_not_ready_is_ready(harness: ReadyHarness):
    def pod(name: str, *, tolerated: str, ready: bool = False) -> None:
        notes = {WORKLOAD_ANNOTATION: "train", MAX_NOT_READY_COUNT: tolerated}
        metadata = {"name": name, "namespace": "ns", "labels": {PODSET_LABEL: "main", MANAGED: "true"}, "annotations": notes}
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        status = {"phase": "Running", "conditions": conditions}
        harness.put({"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": status})

    async with harness.running(own=OWN):
        harness.workload("train", count=2, owner=None)
        await annotate(harness, is_group_workload="true")
        pod("a", tolerated="1", ready=True)
        pod("b", tolerated="0")
        await wait_until(3)
        assert harness.reason("PodsReady") == "WaitForStart"
        pod("b", tolerated="1")
        await wait_until(6)
        assert harness.reason("PodsReady") == "Started"


async def test_a_job_that_is_gone_or_has_ended_is_left_to_others(harness: ReadyHarness):
    async with harness.running():
        harness.workload("train", count=2, owner=JOB)
        await wait_until(100)
        assert harness.is_true("Admitted")
        assert find_condition(harness.train, "PodsReady") is None
        harness.job(conditions=[{"type": "Failed", "status": "True"}])
        await wait_until(200)
        assert find_condition(harness.train, "PodsReady") is None
