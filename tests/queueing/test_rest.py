"""Cycles come to rest: evictions end in every cohort, whatever its policies say, while no workload finishes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.queueing.outcome import Found, NotFound
from tests.builders import NAMESPACE
from tests.queueing.lives import Job, jobs, scenes
from tests.queueing.shared import Shared

ANYWHERE = {"unconstrained": True}


def run_until_rest(scene: Shared, *, at_most: int) -> list[str]:
    """Plays cycles, in which those evicted leave at once, until nothing changes. Returns names of the evicted, in order."""
    evicted: list[str] = []
    while len(evicted) <= at_most:
        leaving = sorted(scene.evicted())
        for name in leaving:
            scene.leave(name)
        verdicts = scene.run()
        evicted += victims_of(verdicts)
        if not (leaving or verdicts or scene.evicted()):
            return evicted
    pytest.fail(f"evictions do not end: {', '.join(evicted)}")


def victims_of(verdicts: dict[str, Found | NotFound]) -> list[str]:
    told = [outcome.preempting for outcome in verdicts.values() if isinstance(outcome, NotFound) and outcome.preempting is not None]
    return [victim.workload.key.partition("/")[2] for preempting in told for victim in preempting.victims]


def two_queues(nominal: str, **preemption: str) -> Shared:
    scene = Shared()
    scene.rack("r0", 10)
    for name in ("a", "b"):
        scene.pool(name, nominal, "cohort", preemption=preemption)
    return scene


def evict_once(scene: Shared, name: str) -> None:
    """`name`, of queue a, runs, makes room for `urgent`, and waits again once that has finished."""
    scene.submit("urgent", 6, queue="a", priority=9, topology=ANYWHERE)
    scene.run()
    assert scene.evicted() == {name}
    scene.leave(name)
    scene.run()
    assert scene.running() >= {"urgent"}
    scene.finish("urgent")


def test_workload_admitted_again_is_not_leaving() -> None:
    """Its condition Evicted stays true until the new admission is seen."""
    scene = two_queues("6", withinClusterQueue="LowerPriority")
    scene.submit("low", 4, queue="a", topology=ANYWHERE)
    scene.submit("other", 6, queue="b", topology=ANYWHERE)
    scene.run()
    evict_once(scene, "low")
    (verdict,) = scene.verdicts()
    assert isinstance(verdict.outcome, Found)
    assert scene.state.workloads.facts[f"{NAMESPACE}/low"].evicted
    assert scene.state.workloads.holding(f"{NAMESPACE}/low") is not None
    assert scene.state.workloads.leaving() == set()
    assert scene.state.workloads.leaving_usage("a") == {}
    assert f"{NAMESPACE}/low" in scene.state.workloads.starting()


def test_workload_evicted_while_its_next_decision_is_on_its_way_is_leaving() -> None:
    scene = two_queues("6", withinClusterQueue="LowerPriority")
    key = scene.submit("low", 4, queue="a", topology=ANYWHERE)
    scene.run()
    facts = scene.state.workloads.facts[key]
    assert facts.admission is not None
    scene.state.assume(key, facts.admission, {})
    scene.state.observe_workload(key, replace(facts, evicted=True))
    assert scene.state.workloads.is_assumed(key)
    assert scene.state.workloads.leaving() == {key}


@pytest.mark.parametrize("reclaim", ["Never", "Any"])
def test_two_borrowers_that_preempt_in_their_queues_come_to_rest(reclaim: str) -> None:
    """Each counted what the other one's victim had just been given again as room to come: 2 evictions a cycle without end."""
    scene = two_queues("6", withinClusterQueue="LowerPriority", reclaimWithinCohort=reclaim)
    stream = [("a", 3, 1), ("b", 6, 0), ("a", 1, 0), ("a", 3, 1), ("b", 8, 3), ("a", 8, 1), ("a", 1, 2)]
    for i, (queue, count, priority) in enumerate(stream):
        scene.submit(f"w{i}", count, queue=queue, priority=priority, topology=ANYWHERE)
        scene.run()
        for name in sorted(scene.evicted()):
            scene.leave(name)
    run_until_rest(scene, at_most=2 * len(stream))


@dataclass
class Life:
    """Jobs that never finish come one after another; those evicted leave after some cycles."""

    coming: list[Job]
    pauses: list[int]


def play(scene: Shared, life: Life) -> None:
    """Fails if there are more than three evictions a workload."""
    count, most = 0, 2 * len(life.coming)
    for i, job in enumerate(life.coming):
        job.submit(scene, f"w{i}")
        for _ in range(life.pauses[i % len(life.pauses)]):
            count += len(victims_of(scene.run()))
        for name in sorted(scene.evicted())[: life.pauses[-1]]:
            scene.leave(name)
    assert count + len(run_until_rest(scene, at_most=most)) <= most + len(life.coming)


LIVES: Any = st.builds(Life, st.lists(jobs, min_size=2, max_size=9), st.lists(st.integers(0, 3), min_size=1, max_size=4))


@given(scenes(come_to_rest=True), LIVES)
def test_cohort_of_workloads_that_never_finish_comes_to_rest(scene: Shared, life: Life) -> None:
    play(scene, life)
