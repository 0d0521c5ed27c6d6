"""Deactivation, reactivation and the time that jobs may run: of the parts alone, and as scenes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, MAX_EXEC_TIME_LABEL, REASON_MISCONFIGURED, REQUEUED
from core.plan.workloads.admission_status import build_amended_status
from core.resource import Obj
from core.state.facts import find_condition
from e2e.api import APPLY_PATCH
from e2e.audit import truth
from e2e.clock import CLOCK
from e2e.topogate import Topogate
from reconciler.workloads.activity import Activity
from tests.builders import RACK, Node, build_node_json, build_topology_json
from tests.reconciler.harness_queues import wait_until
from tests.reconciler.scenes import WORKLOADS, Scene
from tests.reconciler.workloads.test_pods_ready_timers import JOB, ReadyHarness

pytestmark = pytest.mark.in_memory

ROW = "example.com/row"
BY_TIME = "DeactivatedDueToMaximumExecutionTimeExceeded"


def get_reason(now: truth.Snapshot, job: str, kind: str) -> str | None:
    return truth.get_condition(now.workload_of(job), kind).get("reason")


# --- in virtual time --------------------------------------------------------------------------------------


class TimedHarness(ReadyHarness):
    """The controller of activity alone, on a workload that is admitted from the start."""

    def train_for(self, limit: int, **status: Any) -> None:
        wire = self.workload("train", count=2, owner=JOB)
        conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
        admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2, "flavors": {}, "resourceUsage": {}}]}
        spec = {**wire["spec"], "maximumExecutionTimeSeconds": limit}
        self.put({**wire, "spec": spec, "status": {"conditions": conditions, "admission": admission, **status}})

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async with self.run_parts(Activity(self.observed, self.executor, self.clock).controller.run()):
            yield


@pytest.fixture
async def harness() -> TimedHarness:
    """On the loop of the test, whose time is its own."""
    return TimedHarness()


@pytest.mark.looptime
async def test_the_time_outlives_the_process_and_the_eviction(harness: TimedHarness):
    harness.job(ready=2)
    harness.train_for(60, accumulatedPastExecutionTimeSeconds=20)
    async with harness.watched():
        await wait_until(30)
    await wait_until(35)
    async with harness.watched():
        await wait_until(40.9)
        assert not harness.is_true("Evicted")
        await wait_until(41.5)
        assert harness.reason("Evicted") == BY_TIME
        assert harness.train["spec"]["active"] is False
        assert find_condition(harness.train, "DeactivationTarget") is None
        assert ("train", "MaximumExecutionTimeExceeded") in [(event.key.partition("/")[2], event.reason) for event in harness.events]
        await harness.stop_job()
        assert "accumulatedPastExecutionTimeSeconds" not in harness.train["status"]
        await harness.activate()
        await wait_until(42)
        assert harness.reason("Requeued") == "Reactivated"


@pytest.mark.looptime
async def test_a_job_that_has_just_ended_is_not_stopped(harness: TimedHarness):
    harness.job(conditions=[{"type": "Complete", "status": "True"}])
    harness.train_for(10)
    async with harness.watched():
        await wait_until(100)
        assert not harness.is_true("Evicted")


@pytest.mark.looptime
async def test_workload_is_activated_again_when_its_topology_gets_the_level(harness: TimedHarness):
    """Former defect: it stayed inactive until its user noticed."""
    harness.workload("train", count=2, owner=JOB, topology={"required": ROW})
    async with harness.running():
        await wait_until(5)
        assert harness.train["spec"]["active"] is False
        assert harness.reason("QuotaReserved") == REASON_MISCONFIGURED
        labels = {ROW: "w", RACK: "r1", HOSTNAME_LABEL: "r1-n"}
        harness.put({"kind": "Node", **build_node_json(Node("r1-n", labels, {"cpu": 4000, "pods": 110}))})
        await wait_until(10)
        assert harness.train["spec"]["active"] is False, "the topology lacks the level as before"
        harness.put({"kind": "Topology", **build_topology_json("t", [ROW, RACK, HOSTNAME_LABEL])})
        await wait_until(15)
        assert harness.train["spec"]["active"] is True
        assert harness.is_true("QuotaReserved")


# --- on the real control plane ----------------------------------------------------------------------------


@pytest.mark.long
def test_a_job_that_runs_for_longer_than_it_may_is_stopped_and_runs_again_once_activated(scene: Scene, topogate: Topogate) -> None:
    scene.submit("long", pods=4, gpus=8, required=scene.block, labels={MAX_EXEC_TIME_LABEL: "6"})
    workload = scene.until_bound("long", 4).workload_of("long")
    assert workload is not None
    assert workload["spec"]["maximumExecutionTimeSeconds"] == 6
    topogate.kill_reconciler()
    topogate.start_reconciler()
    now = scene.eventually("it to be deactivated", lambda now: get_reason(now, "long", "Evicted") == BY_TIME)
    scene.eventually("its job to be stopped", lambda now: not now.pods_of("long"))
    scene.submit("next", pods=4, gpus=8, required=scene.block)
    now = scene.until_bound("next", 4)
    workload = now.workload_of("long")
    assert workload is not None
    assert workload["spec"]["active"] is False
    assert "maximumExecutionTimeSeconds of 6" in truth.get_condition(workload, "Evicted")["message"]
    assert truth.get_condition(workload, "DeactivationTarget") == {}
    scene.delete_job("next")
    scene.patch_workload("long", {"spec": {"active": True}})
    now = scene.until_bound("long", 4)
    assert get_reason(now, "long", REQUEUED) == "Reactivated"


@pytest.mark.long
def test_evicted_job_keeps_its_accumulated_execution_time(scene: Scene) -> None:
    scene.submit("long", pods=2, gpus=8, required=scene.rack, labels={MAX_EXEC_TIME_LABEL: "600"})
    scene.until_bound("long", 2)
    scene.eventually("a second to be over", lambda now: _age_s(now.workload_of("long")) >= 2)
    scene.patch_workload("long", {"spec": {"active": False}})

    def used(now: truth.Snapshot) -> int:
        return int(((now.workload_of("long") or {}).get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0)

    scene.eventually("its time to be noted", lambda now: used(now) >= 2)
    scene.patch_workload("long", {"spec": {"active": True}})
    now = scene.until_bound("long", 2)
    assert 2 <= used(now) < 60


def test_a_deactivated_workload_frees_its_quota_only_with_its_pods_and_forgets_its_backoff_when_activated(scene: Scene) -> None:
    scene.submit("off", pods=4, gpus=8, required=scene.block)
    workload = scene.until_bound("off", 4).workload_of("off")
    assert workload is not None
    path = f"{WORKLOADS.format(scene.namespace)}/{workload['metadata']['name']}"
    counted = build_amended_status(workload, (), "", {"count": 3})  # as if it had been evicted three times for its pods
    body = {"apiVersion": workload["apiVersion"], "kind": "Workload", "metadata": {"name": workload["metadata"]["name"]}, "status": counted}
    scene.api.patch(f"{path}/status?fieldManager=kueue-admission&force=true", body, APPLY_PATCH)
    scene.patch_workload("off", {"spec": {"active": False}})

    def is_kept(now: truth.Snapshot) -> bool:
        held = truth.is_true(now.workload_of("off"), "QuotaReserved")
        assert held or not now.pods_of("off"), "quota was given back before the pods were gone"
        return not held

    scene.eventually("its quota to be given back", is_kept)
    now = scene.eventually("it to be marked", lambda now: get_reason(now, "off", REQUEUED) == "Deactivated")
    assert scene.job("off")["spec"]["suspend"] is True
    assert get_reason(now, "off", "Evicted") == "Deactivated"
    scene.patch_workload("off", {"spec": {"active": True}})
    now = scene.until_bound("off", 4)
    activated = now.workload_of("off")
    assert activated is not None
    assert get_reason(now, "off", REQUEUED) == "Reactivated"
    assert "requeueState" not in activated["status"]


def test_waiting_workload_that_is_deactivated_is_reported_and_admitted_after_reactivation(scene: Scene) -> None:
    scene.submit("first", pods=4, gpus=8, required=scene.block)
    scene.until_bound("first", 4)
    scene.submit("waits", pods=4, gpus=8, required=scene.block)
    scene.until_waiting("waits", "TopologyPlacementFailed")
    scene.patch_workload("waits", {"spec": {"active": False}})
    scene.eventually("it to be marked", lambda now: get_reason(now, "waits", REQUEUED) == "Deactivated")
    scene.delete_job("first")
    scene.eventually("the first to be gone", lambda now: not now.pods_of("first") and now.workload_of("first") is None)
    scene.patch_workload("waits", {"spec": {"active": True}})
    now = scene.until_bound("waits", 4)
    assert get_reason(now, "waits", REQUEUED) == "Reactivated"


def _age_s(workload: Obj | None) -> float:
    since = truth.get_condition(workload, "Admitted").get("lastTransitionTime")
    return (CLOCK.now() - datetime.fromisoformat(since)).total_seconds() if since else 0.0
