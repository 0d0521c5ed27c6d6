"""An administrator pauses, in virtual time: what is on its way stops, what is due waits, and all of it happens when that is over."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from core.names import EVICTIONS_PAUSED
from tests.builders import RACK, cluster_queue_json
from tests.reconciler.paper_pause import PausePaper, until

pytestmark = pytest.mark.looptime
BY = "paused by alice since 2026-01-01T00:00:"
JOB = ("batch/v1", "Job", "train")


@pytest.fixture
async def paper() -> PausePaper:
    """On the loop of the test, whose time is its own."""
    return PausePaper()


def put_queue(paper: PausePaper, quota: str = "10", **spec: Any) -> None:
    status = paper.get("ClusterQueue", "cq", "None").get("status") or {}
    paper.put({"kind": "ClusterQueue", **cluster_queue_json("cq", {"gpu": quota}, **spec), "status": status})


def put_check(paper: PausePaper, name: str) -> None:
    active = {"conditions": [{"type": "Active", "status": "True"}]}
    paper.put({"kind": "AdmissionCheck", "metadata": {"name": name}, "spec": {"controllerName": "x"}, "status": active})


def put_job(paper: PausePaper, name: str, *, ready: int) -> None:
    paper.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"parallelism": 2}, "status": {"ready": ready}})


# --- admissions -------------------------------------------------------------------------------------------


async def test_nothing_is_admitted_within_a_second_and_everything_when_it_goes_on(paper: PausePaper):
    async with paper.running():
        paper.workload("before", count=2, owner=None)
        await until(1)
        paper.pause("admissions")
        paper.workload("train", count=2, owner=None)
        await until(2)
        reason, message = paper.said("QuotaReserved")
        assert reason == "AdmissionsPaused"
        assert message.startswith(f"admissions are {BY}")
        assert message.endswith(": rewiring; `topogate resume admissions` ends that")
        active = paper.of_queue("Active")
        assert (active["status"], active["reason"]) == ("False", "AdmissionsPaused")
        assert paper.is_true("Admitted", "before")
        paper.pause()
        await until(3)
        assert paper.is_true("Admitted")
        assert paper.of_queue("Active")["status"] == "True"


async def test_it_is_known_before_the_first_decision(paper: PausePaper):
    """As a reconciler that starts anew, or leads from now on: what it lists first is whether it may."""
    assert paper.observed.pauses in paper.observed.stages[0]
    paper.pause("admissions")
    paper.workload("train", count=2, owner=None)
    async with paper.running():
        await until(5)
        assert paper.said("QuotaReserved")[0] == "AdmissionsPaused"


async def test_an_admission_that_was_decided_and_not_sent_yet_is_taken_back(paper: PausePaper):
    """Writes go out some at a time: when the pause is seen most of these are still to be sent."""
    paper.client.latency_s = 1.0
    for i in range(30):
        paper.workload(f"w{i}", count=1, owner=None)
    put_queue(paper, "30")
    for i in range(6):
        paper.node(f"more-{i}", "r1")
    async with paper.running():
        await until(0.5)
        assert len(paper.observed.state.workloads.holders("cq")) == 30, "all are decided"
        paper.pause("admissions")
        await until(20)
        admitted = [w for w in paper.all("Workload") if paper.is_true("QuotaReserved", w["metadata"]["name"])]
        assert 0 < len(admitted) <= 8, "those on their way"
        assert len(paper.observed.state.workloads.holders("cq")) == len(admitted)
        assert paper.observed.state.ledger.drift() == {}
        paper.pause()
        await until(60)
        assert all(paper.is_true("Admitted", w["metadata"]["name"]) for w in paper.all("Workload"))


async def test_another_place_for_pods_that_are_stuck_that_was_not_sent_yet_is_taken_back(paper: PausePaper):
    names = [f"w{i}" for i in range(20)]
    for name in names:
        paper.workload(name, count=1, owner=("batch/v1", "Job", name), topology={"required": RACK})
    put_queue(paper, "20")
    for i in range(10):
        paper.node(f"r1-{i}", "r1")

    def node_of(name: str) -> str:
        (given,) = paper.get("Workload", name)["status"]["admission"]["podSetAssignments"]
        return str(given["topologyAssignment"])

    async with paper.running():
        await until(5)
        before = {name: node_of(name) for name in names}
        paper.client.latency_s = 1.0
        state = paper.observed.state
        for name in names:
            (held,) = state.ledger.held_by(f"ns/{name}")
            state.observe_stuck(f"ns/{name}", {"main": held[1]})
        paper.node("another", "r3")
        await until(5.5)
        paper.pause("admissions")
        await until(20)
        moved = [name for name in names if node_of(name) != before[name]]
        assert 0 < len(moved) <= 8, "those on their way"
        assert state.ledger.drift() == {}
        assert all(paper.is_true("Admitted", name) for name in names)


async def test_who_has_passed_its_checks_is_admitted_when_it_goes_on(paper: PausePaper):
    put_check(paper, "check")
    put_queue(paper, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    async with paper.running():
        paper.workload("train", count=2, owner=None)
        await until(1)
        assert paper.is_true("QuotaReserved")
        paper.pause("admissions")
        paper.change(
            "train",
            {"status": {"admissionChecks": [{"name": "check", "state": "Ready", "message": "", "lastTransitionTime": paper.now()}]}},
        )
        await until(3)
        assert not paper.is_true("Admitted")
        assert paper.is_true("QuotaReserved"), "what it has it keeps"
        (told,) = [message for reason, message in paper.told("train") if reason == "AdmissionPaused"]
        assert told.startswith(f"It would be admitted, but admissions are {BY}")
        paper.pause()
        await until(4)
        assert paper.is_true("Admitted")


async def test_the_time_in_which_a_place_must_be_found_begins_when_it_is_looked_for_again(paper: PausePaper):
    """Nodes that were brought for it are not given up because nobody was allowed to look at them."""
    put_check(paper, "check")
    put_queue(paper, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    async with paper.running():
        paper.workload("train", count=2, owner=None, topology={"required": RACK})
        await until(1)
        train = paper.get("Workload", "train")
        (given,) = train["status"]["admission"]["podSetAssignments"]
        given = {name: value for name, value in given.items() if name != "topologyAssignment"} | {"delayedTopologyRequest": "Pending"}
        admission = {**train["status"]["admission"], "podSetAssignments": [given]}
        for node in ("r1-n", "r2-n"):
            paper.drop("Node", node)
        paper.pause("admissions")
        check = {"name": "check", "state": "Ready", "message": "", "lastTransitionTime": paper.now()}
        paper.put({**train, "status": {**train["status"], "admission": admission, "admissionChecks": [check]}})
        await until(1000)
        assert paper.is_true("QuotaReserved")
        assert ("SecondPassFailed", "no place is looked for") in [(reason, message[:22]) for reason, message in paper.told("train")]
        paper.pause()
        await until(1290)
        assert paper.is_true("QuotaReserved")
        await until(1310)
        assert "EvictedDueToAdmissionCheck" in [reason for reason, _ in paper.told("train")]


# --- evictions --------------------------------------------------------------------------------------------


async def test_who_is_not_ready_in_time_is_evicted_when_it_goes_on_unless_it_is_ready_by_then(paper: PausePaper):
    for name in ("slow", "train"):
        put_job(paper, name, ready=1)
        paper.workload(name, count=2, owner=("batch/v1", "Job", name))
    async with paper.running():
        await until(5)
        paper.pause("evictions")
        await until(60)
        for name in ("slow", "train"):
            assert not paper.is_true("Evicted", name)
            told = [message for reason, message in paper.told(name) if reason == "EvictionPaused"]
            assert told
            assert told[0].startswith(f"It would be evicted, but evictions are {BY}")
            assert "Why it would be: PodsReadyTimeout" in told[0]
        paper.put({**paper.get("Job", "slow"), "status": {"ready": 2}})
        await until(61)
        assert paper.is_true("PodsReady", "slow")
        paper.pause()
        await until(62)
        assert paper.said("Evicted")[0] == "PodsReadyTimeout"
        assert not paper.is_true("Evicted", "slow")
        assert paper.get("Workload", "train")["status"]["requeueState"]["count"] == 1, "it is counted once"


async def test_a_time_limit_holds_again_when_it_goes_on(paper: PausePaper):
    put_job(paper, "train", ready=2)
    paper.workload("train", count=2, owner=JOB)
    paper.change("train", {"spec": {"maximumExecutionTimeSeconds": 20}})
    async with paper.running():
        paper.pause("evictions")
        await until(30)
        assert paper.is_true("Admitted")
        assert not paper.is_true("Evicted")
        paper.pause()
        await until(31)
        assert paper.said("Evicted")[0] == "DeactivatedDueToMaximumExecutionTimeExceeded"


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
@pytest.mark.parametrize("checks", [1, 2], ids=["runs by it", "has quota"])
async def test_what_a_check_refuses_keeps_what_it_has_and_stays_active(paper: PausePaper, state: str, checks: int):
    named = ["check", "another"][:checks]
    for name in named:
        put_check(paper, name)
    put_queue(paper, admissionChecksStrategy={"admissionChecks": [{"name": name} for name in named]})

    def say(states: list[str]) -> None:
        entries = [
            {"name": name, "state": one, "message": "", "lastTransitionTime": paper.now()} for name, one in zip(named, states, strict=False)
        ]
        paper.change("train", {"status": {"admissionChecks": entries}})

    async with paper.running():
        paper.workload("train", count=2, owner=None)
        await until(1)
        say(["Ready", "Pending"])
        await until(2)
        assert paper.is_true("Admitted") == (checks == 1)
        paper.pause("evictions")
        say([state, "Pending"])
        await until(4)
        assert not paper.is_true("Evicted")
        assert paper.get("Workload", "train")["spec"].get("active", True)
        assert not [reason for reason, _ in paper.told("train") if reason.startswith("EvictedDueTo")]
        paper.pause()
        await until(5)
        assert [reason for reason, _ in paper.told("train") if reason.startswith("EvictedDueTo")]
        assert paper.get("Workload", "train")["spec"].get("active", True) == (state == "Retry")


async def test_a_queue_is_drained_when_it_goes_on_and_says_so_until_then(paper: PausePaper):
    async with paper.running():
        paper.workload("train", count=2, owner=None)
        await until(1)
        paper.pause("evictions")
        put_queue(paper, stopPolicy="HoldAndDrain")
        await until(3)
        assert not paper.is_true("Evicted")
        assert paper.of_queue("Active")["reason"] == "Stopped"
        told = paper.of_queue(EVICTIONS_PAUSED)
        assert told["status"] == "True"
        assert told["message"].startswith(f"evictions are {BY}")
        paper.pause()
        await until(5)
        assert paper.said("Evicted")[0] == "ClusterQueueStopped"
        assert paper.of_queue(EVICTIONS_PAUSED) == {}


async def test_a_preemption_waits_and_is_begun_when_it_goes_on(paper: PausePaper):
    put_queue(paper, "8", preemption={"withinClusterQueue": "LowerPriority"})
    async with paper.running():
        paper.workload("low", count=8, owner=None)
        await until(1)
        paper.pause("evictions")
        paper.workload("train", count=8, owner=None)
        paper.change("train", {"spec": {"priority": 10}})
        await until(3)
        assert not paper.is_true("Evicted", "low")
        assert paper.said("QuotaReserved")[1].startswith(f"it could preempt 1 workload(s), but evictions are {BY}")
        paper.pause()
        await until(5)
        assert paper.said("Evicted", "low")[0] == "Preempted"
        await paper.stop_job("low")
        await until(7)
        assert paper.is_true("Admitted")


@pytest.mark.parametrize("what", ["admissions", "evictions"])
async def test_a_preemption_that_was_decided_and_not_sent_yet_is_not_begun(paper: PausePaper, what: str):
    put_queue(paper, "8", preemption={"withinClusterQueue": "LowerPriority"})
    async with paper.running():
        paper.workload("low", count=8, owner=None)
        await until(1)
        paper.client.latency_s = 1.0
        high = paper.workload("train", count=8, owner=None)
        paper.put({**high, "spec": {**high["spec"], "priority": 10}})
        await until(1.5)
        paper.pause(what)  # while it is told that it preempts
        await until(10)
        assert not paper.is_true("Evicted", "low")
        paper.pause()
        await until(20)
        assert paper.is_true("Evicted", "low")


async def test_what_is_to_be_deactivated_stays_active_while_it_has_something(paper: PausePaper):
    target = {
        "type": "DeactivationTarget",
        "status": "True",
        "reason": "Because",
        "message": "it is time",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with paper.running():
        paper.workload("train", count=2, owner=None)
        await until(1)
        paper.pause("evictions")
        train = paper.get("Workload", "train")
        paper.put({**train, "status": {**train["status"], "conditions": [*train["status"]["conditions"], target]}})
        await until(3)
        assert not paper.is_true("Evicted")
        assert paper.get("Workload", "train")["spec"].get("active", True)
        paper.pause()
        await until(4)
        assert paper.said("Evicted")[0] == "DeactivatedDueToBecause"


async def test_what_its_user_deactivates_gives_back_what_it_has(paper: PausePaper):
    put_check(paper, "check")
    put_queue(paper, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    async with paper.running():
        paper.workload("train", count=2, owner=None)
        await until(1)
        assert paper.is_true("QuotaReserved")
        paper.pause("admissions", "evictions")
        paper.change("train", {"spec": {"active": False}})
        await until(2)
        assert paper.said("Evicted")[0] == "Deactivated"
        assert not paper.is_true("QuotaReserved")


# --- what the process says --------------------------------------------------------------------------------


async def test_the_log_and_the_state_tell_what_is_paused(paper: PausePaper, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    paper.pause("admissions")
    assert paper.pausing.state.admissions is not None
    assert paper.pausing.state.evictions is None
    paper.put({"kind": "ConfigMap", "metadata": {"name": "topogate-pause"}, "data": {"evictions": "yes", "eviction": "{}"}})
    told = [(record.levelname, record.message) for record in caplog.records if record.name == "reconciler.pausing"]
    assert told == [
        ("WARNING", "paused"),
        ("WARNING", "resumed"),
        ("ERROR", "paused by a key that cannot be read"),
        ("WARNING", "keys that pause nothing"),
    ]
    assert paper.pausing.state.evictions is not None
    paper.drop("ConfigMap", "topogate-pause")
    assert paper.pausing.state.evictions is None
