"""A decision that raises costs one workload its turn: what was decided before it is written, and all others are decided on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from core.model import pieces
from core.names import MANAGER_ADMISSION
from core.plan.steps import api_resources as r
from core.queueing.cycle import decisions
from core.queueing.cycle.judge import Judge
from core.queueing.ordering.pending import EquivalenceClass
from core.state.facts import WorkloadFacts
from tests.reconciler.measured import MeasuredHarness


@pytest.fixture
def harness() -> Iterator[MeasuredHarness]:
    harness = MeasuredHarness()
    yield harness
    assert harness.metrics.shutdown()


def is_admitted(harness: MeasuredHarness, name: str) -> bool:
    return bool((harness.get("Workload", name).get("status") or {}).get("admission"))


def test_workloads_around_one_with_a_decision_that_raises_are_admitted(harness: MeasuredHarness, monkeypatch: pytest.MonkeyPatch):
    cycle = harness.scheduler._cycle
    admit = cycle._admit

    def break_for_b(group: EquivalenceClass, workload: WorkloadFacts, found: Any) -> None:
        admit(group, workload, found)
        if workload.key == "ns/b":
            raise RuntimeError("odd")

    monkeypatch.setattr(cycle, "_admit", break_for_b)
    for name in ("a", "b", "c"):
        harness.workload(name, count=1, owner=None)
    harness.decide()
    harness.decide()
    assert [is_admitted(harness, name) for name in ("a", "b", "c")] == [True, False, True]
    assert [aside.obj["metadata"]["name"] for aside in harness.observed.set_aside.objects] == ["b"]
    assert harness.observed.state.workloads.find_holding("ns/b") is None
    monkeypatch.setattr(cycle, "_admit", admit)
    changed = harness.get("Workload", "b")
    harness.put({**changed, "spec": {**changed["spec"], "priority": 1}})
    harness.decide()
    assert is_admitted(harness, "b")


def test_workloads_around_one_with_a_piece_of_a_decision_that_raises_are_admitted(
    harness: MeasuredHarness, monkeypatch: pytest.MonkeyPatch
):
    """Former defect: an error in the second piece of a search ended the process, and each leader made the same search."""
    judge, run_piece = Judge.judge, pieces.run_piece

    def break_for_b(self: Judge, workload: WorkloadFacts, *asked: Any) -> Generator[None, None, Any]:
        yield
        if workload.key == "ns/b":
            raise RuntimeError("odd")
        return (yield from judge(self, workload, *asked))

    monkeypatch.setattr(Judge, "judge", break_for_b)
    monkeypatch.setattr(decisions, "run_piece", lambda decision, _: run_piece(decision, lambda: True))
    for name in ("a", "b", "c"):
        harness.workload(name, count=1, owner=None)
    harness.decide()
    harness.decide()
    assert [is_admitted(harness, name) for name in ("a", "b", "c")] == [True, False, True]
    assert [aside.obj["metadata"]["name"] for aside in harness.observed.set_aside.objects] == ["b"]
    assert harness.observed.state.ledger.find_drift() == {}
    monkeypatch.setattr(Judge, "judge", judge)
    changed = harness.get("Workload", "b")
    harness.put({**changed, "spec": {**changed["spec"], "priority": 1}})
    harness.decide()
    assert is_admitted(harness, "b")


def test_assumed_admission_ends_by_the_reply_to_its_write(harness: MeasuredHarness):
    harness.workload("a", count=1, owner=None)
    harness.late = {"Workload"}
    harness.decide()
    assert not harness.observed.state.workloads.is_assumed("ns/a")
    facts = harness.observed.state.workloads.facts["ns/a"]
    assert facts.admission == harness.observed.state.workloads.find_holding("ns/a") is not None


def test_admission_is_decided_anew_where_the_status_was_written_after_it_was_decided(harness: MeasuredHarness):
    """The reply to that write ends what was assumed: were the admission written after it, its place could be given to another meanwhile."""
    harness.workload("a", count=1, owner=None)

    async def decide() -> None:
        await harness.scheduler.run_cycle()
        assert harness.observed.state.workloads.is_assumed("ns/a")
        reply = harness.put({**harness.get("Workload", "a"), "status": {}})
        harness.observed.observe_reply(r.WORKLOADS, reply, MANAGER_ADMISSION)
        assert not harness.observed.state.workloads.is_assumed("ns/a")
        await harness.scheduler.settle()

    harness.wait_for(decide())
    assert not is_admitted(harness, "a")
    harness.pass_time(1)
    harness.decide()
    assert is_admitted(harness, "a")


def test_admission_stays_assumed_where_an_answer_to_an_earlier_write_comes_late(harness: MeasuredHarness):
    """Attack: the decision was made on what that write left, and its own write was under way: another workload got its place, too."""
    harness.workload("a", count=1, owner=None)

    async def decide() -> None:
        await harness.scheduler.run_cycle()
        harness.observed.observe_reply(r.WORKLOADS, harness.get("Workload", "a"), MANAGER_ADMISSION)
        assert harness.observed.state.workloads.is_assumed("ns/a")
        await harness.scheduler.settle()

    harness.wait_for(decide())
    assert is_admitted(harness, "a")
    assert not harness.observed.state.workloads.is_assumed("ns/a")
