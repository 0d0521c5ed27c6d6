"""A decision that raises costs one workload its turn: what was decided before it is written, and all others are decided on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from core.model import pieces
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
    """Found defect A5: an error in the second piece of a search ended the process, and each leader made the same search."""
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
