"""A workload that may preempt one with an admission that is decided and not observed yet: it waits, and has the room reserved."""

from __future__ import annotations

import pytest

from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.preemption.preemption_policy import list_unseen
from tests.queueing.shared import ALL_MAY, Shared, get_victims


def decide(scene: Shared) -> dict[str, Admissible | NotAdmissible]:
    """A cycle with verdicts that nobody has written yet."""
    return {verdict.workload.key.partition("/")[2]: verdict.outcome for verdict in scene.cycle.run()}


@pytest.mark.parametrize("holder", ["q", "other"])
def test_high_workload_waits_for_an_admission_to_be_seen_and_then_preempts_it(holder: str) -> None:
    """Former defect: where writes take long, workloads of low priority that run for a moment were admitted again and again, and one of high
    priority that needs the room of several never was."""
    scene = Shared()
    scene.rack("r", 4)
    scene.pool("q", "5", "cohort", preemption=ALL_MAY)
    scene.pool("other", "0", "cohort")
    scene.submit("low", 4, cpu="1", queue=holder, priority=0)
    low = decide(scene)
    assert isinstance(low["low"], Admissible)
    scene.submit("high", 5, cpu="1", queue="q", priority=9)
    scene.submit("small", 1, cpu="1", queue="q", priority=0)
    outcomes = decide(scene)
    high = outcomes["high"]
    assert isinstance(high, NotAdmissible)
    assert high.preempting is not None
    assert (high.preempting.victims, high.preempting.unseen) == ((), ("ns/low",))
    assert high.message.endswith("; waits to preempt 1 workload admitted a moment ago")
    assert isinstance(outcomes["small"], NotAdmissible), "the last CPU is for the high one"
    scene.write(low)
    assert get_victims(scene.run()["high"]).keys() == {"low"}
    scene.leave("low")
    assert isinstance(scene.run()["high"], Admissible)


def test_high_workload_preempts_at_once_those_that_are_seen() -> None:
    scene = Shared()
    scene.rack("r", 4)
    scene.pool("q", "6", preemption=ALL_MAY)
    scene.submit("seen", 3, cpu="1", queue="q", priority=0)
    scene.run()
    scene.submit("new", 2, cpu="1", queue="q", priority=0)
    decide(scene)
    scene.submit("high", 6, cpu="1", queue="q", priority=9)
    high = decide(scene)["high"]
    assert get_victims(high).keys() == {"seen"}
    assert isinstance(high, NotAdmissible)
    assert high.preempting is not None
    assert high.preempting.unseen == ("ns/new",)


@pytest.mark.parametrize(
    ("preemption", "holder", "priority"),
    [({}, "q", 0), (ALL_MAY, "q", 9), ({**ALL_MAY, "reclaimWithinCohort": "Never"}, "other", 0), (ALL_MAY, "lender", 0)],
)
def test_admission_that_may_not_be_preempted_is_not_waited_for(preemption: dict[str, str], holder: str, priority: int) -> None:
    scene = Shared()
    scene.rack("r", 4)
    scene.pool("q", "4", "cohort", preemption=preemption)
    scene.pool("other", "0", "cohort")
    scene.pool("lender", "4", "cohort", lendingLimit="0")
    scene.submit("low", 4, cpu="1", queue=holder, priority=priority)
    assert isinstance(decide(scene)["low"], Admissible)
    scene.submit("high", 5 if holder == "lender" else 4, cpu="1", queue="q", priority=9)
    outcome = decide(scene)["high"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is None


@pytest.mark.parametrize(
    ("priority", "is_spared", "expected"), [(0, False, True), (0, True, True), (5, False, True), (5, True, False), (9, False, False)]
)
def test_spared_party_of_equal_priority_is_not_waited_for(priority: int, is_spared: bool, expected: bool) -> None:
    """A circle of evictions has one that priorities alone do not explain."""
    scene = Shared()
    scene.rack("r", 4)
    scene.pool("q", "4", preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    scene.submit("high", 4, cpu="1", queue="q", priority=5)
    high = scene.state.workloads.facts["ns/high"]
    scene.submit("low", 4, cpu="1", queue="q", priority=priority)
    low = scene.state.workloads.facts["ns/low"]
    found = scene.cycle.run(is_held_back=lambda uid: uid == high.uid)
    assert [verdict.workload.key for verdict in found] == ["ns/low"]
    queue = scene.state.cluster_queues["q"]
    assert list_unseen(scene.state, high, queue, {low.party} if is_spared else ()) == ({"ns/low"} if expected else set())
