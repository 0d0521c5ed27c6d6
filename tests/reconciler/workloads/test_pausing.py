"""An administrator pauses, in virtual time: what is on its way stops, what is due waits, and all of it happens when that is over."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from core.names import EVICTIONS_PAUSED, SYSTEM_NAMESPACE
from tests.builders import RACK, build_cluster_queue_json
from tests.reconciler.harness_pause import PauseHarness
from tests.reconciler.harness_queues import wait_until

pytestmark = pytest.mark.looptime
BY = "paused by alice since 2026-01-01T00:00:"
JOB = ("batch/v1", "Job", "train")


@pytest.fixture
async def harness() -> PauseHarness:
    """On the loop of the test, whose time is its own."""
    return PauseHarness()


def put_queue(harness: PauseHarness, quota: str = "10", **spec: Any) -> None:
    status = harness.get("ClusterQueue", "cq").get("status") or {}
    harness.put({"kind": "ClusterQueue", **build_cluster_queue_json("cq", {"gpu": quota}, **spec), "status": status})


def put_check(harness: PauseHarness, name: str) -> None:
    active = {"conditions": [{"type": "Active", "status": "True"}]}
    harness.put({"kind": "AdmissionCheck", "metadata": {"name": name}, "spec": {"controllerName": "x"}, "status": active})


def put_job(harness: PauseHarness, name: str, *, ready: int) -> None:
    harness.put(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"parallelism": 2}, "status": {"ready": ready}}
    )


# --- admissions -------------------------------------------------------------------------------------------


async def test_nothing_is_admitted_within_a_second_and_everything_when_it_goes_on(harness: PauseHarness):
    async with harness.running():
        harness.workload("before", count=2, owner=None)
        await wait_until(1)
        harness.pause("admissions")
        harness.workload("train", count=2, owner=None)
        await wait_until(2)
        reason, message = harness.said("QuotaReserved")
        assert reason == "AdmissionsPaused"
        assert message.startswith(f"admissions are {BY}")
        assert all(part in message for part in ("rewiring", "`topogate resume admissions`"))
        active = harness.of_queue("Active")
        assert (active["status"], active["reason"]) == ("False", "AdmissionsPaused")
        assert harness.is_true("Admitted", "before")
        harness.pause()
        await wait_until(3)
        assert harness.is_true("Admitted")
        assert harness.of_queue("Active")["status"] == "True"


async def test_it_is_known_before_the_first_decision(harness: PauseHarness):
    """As a reconciler that starts anew, or leads from now on: what it lists first is whether it may."""
    assert harness.observed.pauses in harness.observed.stages[0]
    harness.pause("admissions")
    harness.workload("train", count=2, owner=None)
    async with harness.running():
        await wait_until(5)
        assert harness.said("QuotaReserved")[0] == "AdmissionsPaused"


async def test_an_admission_that_was_decided_and_not_sent_yet_is_taken_back(harness: PauseHarness):
    """Writes go out some at a time: when the pause is seen most of these are still to be sent."""
    harness.transport.delay_s = 1.0
    for i in range(30):
        harness.workload(f"w{i}", count=1, owner=None)
    put_queue(harness, "30")
    for i in range(6):
        harness.node(f"more-{i}", "r1")
    async with harness.running():
        await wait_until(0.5)
        assert len(harness.observed.state.workloads.list_holders("cq")) == 30, "all are decided"
        harness.pause("admissions")
        await wait_until(20)
        admitted = [w for w in harness.all("Workload") if harness.is_true("QuotaReserved", w["metadata"]["name"])]
        assert 0 < len(admitted) <= 8, "those on their way"
        assert len(harness.observed.state.workloads.list_holders("cq")) == len(admitted)
        assert harness.observed.state.ledger.find_drift() == {}
        harness.pause()
        await wait_until(60)
        assert all(harness.is_true("Admitted", w["metadata"]["name"]) for w in harness.all("Workload"))


async def test_another_place_for_pods_that_are_stuck_that_was_not_sent_yet_is_taken_back(harness: PauseHarness):
    names = [f"w{i}" for i in range(20)]
    for name in names:
        harness.workload(name, count=1, owner=("batch/v1", "Job", name), topology={"required": RACK})
    put_queue(harness, "20")
    for i in range(10):
        harness.node(f"r1-{i}", "r1")

    def node_of(name: str) -> str:
        (given,) = harness.get("Workload", name)["status"]["admission"]["podSetAssignments"]
        return str(given["topologyAssignment"])

    async with harness.running():
        await wait_until(5)
        before = {name: node_of(name) for name in names}
        harness.transport.delay_s = 1.0
        state = harness.observed.state
        for name in names:
            (held,) = state.ledger.list_held(f"ns/{name}")
            state.observe_stuck(f"ns/{name}", {"main": held[1]})
        harness.node("another", "r3")
        await wait_until(5.5)
        harness.pause("admissions")
        await wait_until(20)
        moved = [name for name in names if node_of(name) != before[name]]
        assert 0 < len(moved) <= 8, "those on their way"
        assert state.ledger.find_drift() == {}
        assert all(harness.is_true("Admitted", name) for name in names)


async def test_workload_with_ready_checks_is_admitted_after_resume(harness: PauseHarness):
    put_check(harness, "check")
    put_queue(harness, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    async with harness.running():
        harness.workload("train", count=2, owner=None)
        await wait_until(1)
        assert harness.is_true("QuotaReserved")
        harness.pause("admissions")
        harness.change(
            "train",
            {"status": {"admissionChecks": [{"name": "check", "state": "Ready", "message": "", "lastTransitionTime": harness.now()}]}},
        )
        await wait_until(3)
        assert not harness.is_true("Admitted")
        assert harness.is_true("QuotaReserved"), "what it has it keeps"
        (told,) = [message for reason, message in harness.told("train") if reason == "AdmissionPaused"]
        assert f"admissions are {BY}" in told
        harness.pause()
        await wait_until(4)
        assert harness.is_true("Admitted")


async def test_the_time_in_which_a_place_must_be_found_begins_when_it_is_looked_for_again(harness: PauseHarness):
    """Nodes that were brought for it are not given up because nobody was allowed to look at them."""
    put_check(harness, "check")
    put_queue(harness, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    async with harness.running():
        harness.workload("train", count=2, owner=None, topology={"required": RACK})
        await wait_until(1)
        train = harness.get("Workload", "train")
        (given,) = train["status"]["admission"]["podSetAssignments"]
        given = {name: value for name, value in given.items() if name != "topologyAssignment"} | {"delayedTopologyRequest": "Pending"}
        admission = {**train["status"]["admission"], "podSetAssignments": [given]}
        for node in ("r1-n", "r2-n"):
            harness.drop("Node", node)
        harness.pause("admissions")
        check = {"name": "check", "state": "Ready", "message": "", "lastTransitionTime": harness.now()}
        harness.put({**train, "status": {**train["status"], "admission": admission, "admissionChecks": [check]}})
        await wait_until(1000)
        assert harness.is_true("QuotaReserved")
        assert "SecondPassFailed" in [reason for reason, _ in harness.told("train")]
        harness.pause()
        await wait_until(1290)
        assert harness.is_true("QuotaReserved")
        await wait_until(1310)
        assert "EvictedDueToAdmissionCheck" in [reason for reason, _ in harness.told("train")]


# --- evictions --------------------------------------------------------------------------------------------


async def test_workload_past_its_pods_ready_timeout_is_evicted_after_resume_unless_ready(harness: PauseHarness):
    for name in ("slow", "train"):
        put_job(harness, name, ready=1)
        harness.workload(name, count=2, owner=("batch/v1", "Job", name))
    async with harness.running():
        await wait_until(5)
        harness.pause("evictions")
        await wait_until(60)
        for name in ("slow", "train"):
            assert not harness.is_true("Evicted", name)
            told = [message for reason, message in harness.told(name) if reason == "EvictionPaused"]
            assert told
            assert f"evictions are {BY}" in told[0]
            assert "PodsReadyTimeout" in told[0]
        harness.put({**harness.get("Job", "slow"), "status": {"ready": 2}})
        await wait_until(61)
        assert harness.is_true("PodsReady", "slow")
        harness.pause()
        await wait_until(62)
        assert harness.said("Evicted")[0] == "PodsReadyTimeout"
        assert not harness.is_true("Evicted", "slow")
        assert harness.get("Workload", "train")["status"]["requeueState"]["count"] == 1, "it is counted once"


async def test_a_time_limit_holds_again_when_it_goes_on(harness: PauseHarness):
    put_job(harness, "train", ready=2)
    harness.workload("train", count=2, owner=JOB)
    harness.change("train", {"spec": {"maximumExecutionTimeSeconds": 20}})
    async with harness.running():
        harness.pause("evictions")
        await wait_until(30)
        assert harness.is_true("Admitted")
        assert not harness.is_true("Evicted")
        harness.pause()
        await wait_until(31)
        assert harness.said("Evicted")[0] == "DeactivatedDueToMaximumExecutionTimeExceeded"


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
@pytest.mark.parametrize("checks", [1, 2], ids=["runs by it", "has quota"])
async def test_workload_with_a_failed_check_keeps_its_quota_while_evictions_are_paused(harness: PauseHarness, state: str, checks: int):
    named = ["check", "another"][:checks]
    for name in named:
        put_check(harness, name)
    put_queue(harness, admissionChecksStrategy={"admissionChecks": [{"name": name} for name in named]})

    def say(states: list[str]) -> None:
        entries = [
            {"name": name, "state": one, "message": "", "lastTransitionTime": harness.now()}
            for name, one in zip(named, states, strict=False)
        ]
        harness.change("train", {"status": {"admissionChecks": entries}})

    async with harness.running():
        harness.workload("train", count=2, owner=None)
        await wait_until(1)
        say(["Ready", "Pending"])
        await wait_until(2)
        assert harness.is_true("Admitted") == (checks == 1)
        harness.pause("evictions")
        say([state, "Pending"])
        await wait_until(4)
        assert not harness.is_true("Evicted")
        assert harness.get("Workload", "train")["spec"].get("active", True)
        assert not [reason for reason, _ in harness.told("train") if reason.startswith("EvictedDueTo")]
        harness.pause()
        await wait_until(5)
        assert [reason for reason, _ in harness.told("train") if reason.startswith("EvictedDueTo")]
        assert harness.get("Workload", "train")["spec"].get("active", True) == (state == "Retry")


async def test_a_queue_is_drained_when_it_goes_on_and_says_so_until_then(harness: PauseHarness):
    async with harness.running():
        harness.workload("train", count=2, owner=None)
        await wait_until(1)
        harness.pause("evictions")
        put_queue(harness, stopPolicy="HoldAndDrain")
        await wait_until(3)
        assert not harness.is_true("Evicted")
        assert harness.of_queue("Active")["reason"] == "Stopped"
        told = harness.of_queue(EVICTIONS_PAUSED)
        assert told["status"] == "True"
        assert told["message"].startswith(f"evictions are {BY}")
        harness.pause()
        await wait_until(5)
        assert harness.said("Evicted")[0] == "ClusterQueueStopped"
        assert harness.of_queue(EVICTIONS_PAUSED) == {}


async def test_a_preemption_waits_and_is_begun_when_it_goes_on(harness: PauseHarness):
    put_queue(harness, "8", preemption={"withinClusterQueue": "LowerPriority"})
    async with harness.running():
        harness.workload("low", count=8, owner=None)
        await wait_until(1)
        harness.pause("evictions")
        harness.workload("train", count=8, owner=None)
        harness.change("train", {"spec": {"priority": 10}})
        await wait_until(3)
        assert not harness.is_true("Evicted", "low")
        assert all(part in harness.said("QuotaReserved")[1] for part in ("1 workload", f"evictions are {BY}"))
        harness.pause()
        await wait_until(5)
        assert harness.said("Evicted", "low")[0] == "Preempted"
        await harness.stop_job("low")
        await wait_until(7)
        assert harness.is_true("Admitted")


@pytest.mark.parametrize("what", ["admissions", "evictions"])
async def test_a_preemption_that_was_decided_and_not_sent_yet_is_not_begun(harness: PauseHarness, what: str):
    put_queue(harness, "8", preemption={"withinClusterQueue": "LowerPriority"})
    async with harness.running():
        harness.workload("low", count=8, owner=None)
        await wait_until(1)
        harness.transport.delay_s = 1.0
        high = harness.workload("train", count=8, owner=None)
        harness.put({**high, "spec": {**high["spec"], "priority": 10}})
        await wait_until(1.5)
        harness.pause(what)  # while it is told that it preempts
        await wait_until(10)
        assert not harness.is_true("Evicted", "low")
        harness.pause()
        await wait_until(20)
        assert harness.is_true("Evicted", "low")


async def test_workload_with_deactivation_target_stays_active_while_evictions_are_paused(harness: PauseHarness):
    target = {
        "type": "DeactivationTarget",
        "status": "True",
        "reason": "Because",
        "message": "it is time",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with harness.running():
        harness.workload("train", count=2, owner=None)
        await wait_until(1)
        harness.pause("evictions")
        train = harness.get("Workload", "train")
        harness.put({**train, "status": {**train["status"], "conditions": [*train["status"]["conditions"], target]}})
        await wait_until(3)
        assert not harness.is_true("Evicted")
        assert harness.get("Workload", "train")["spec"].get("active", True)
        harness.pause()
        await wait_until(4)
        assert harness.said("Evicted")[0] == "DeactivatedDueToBecause"


async def test_workload_deactivated_by_its_user_releases_quota_while_everything_is_paused(harness: PauseHarness):
    put_check(harness, "check")
    put_queue(harness, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    async with harness.running():
        harness.workload("train", count=2, owner=None)
        await wait_until(1)
        assert harness.is_true("QuotaReserved")
        harness.pause("admissions", "evictions")
        harness.change("train", {"spec": {"active": False}})
        await wait_until(2)
        assert harness.said("Evicted")[0] == "Deactivated"
        assert not harness.is_true("QuotaReserved")


# --- what the process says --------------------------------------------------------------------------------


async def test_pause_config_map_changes_are_logged_and_set_the_state(harness: PauseHarness, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    harness.pause("admissions")
    assert harness.pausing.state.admissions is not None
    assert harness.pausing.state.evictions is None
    harness.put_pause({"evictions": "yes", "eviction": "{}"})
    told = [(record.levelname, record.message) for record in caplog.records if record.name == "reconciler.workloads.pausing"]
    assert told == [
        ("WARNING", "paused"),
        ("WARNING", "resumed"),
        ("ERROR", "paused by a key that cannot be read"),
        ("WARNING", "keys that pause nothing"),
    ]
    assert harness.pausing.state.evictions is not None
    harness.drop("ConfigMap", "topogate-pause", SYSTEM_NAMESPACE)
    assert harness.pausing.state.evictions is None
