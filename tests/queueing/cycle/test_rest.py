"""Cycles come to rest: evictions end in every cohort, whatever its policies say, while no workload finishes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.names import REASON_RECLAIMED_BY_BORROWER
from core.queueing.cycle.judge import Judge
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import NAMESPACE
from tests.queueing.lives import Job, jobs, scenes
from tests.queueing.random_cohorts import build_cohort, submit_job
from tests.queueing.shared import Shared, get_victims

ANYWHERE = {"unconstrained": True}


def run_until_rest(scene: Shared, *, at_most: int) -> list[str]:
    """Plays cycles, in which those evicted leave at once, until nothing changes. Returns names of the evicted, in order."""
    evicted: list[str] = []
    while len(evicted) <= at_most:
        leaving = sorted(scene.evicted())
        for name in leaving:
            scene.leave(name)
        verdicts = scene.run()
        evicted += list_victims(verdicts)
        if not (leaving or verdicts or scene.evicted()):
            return evicted
    pytest.fail(f"evictions do not end: {', '.join(evicted)}")


def list_victims(verdicts: dict[str, Admissible | NotAdmissible]) -> list[str]:
    told = [outcome.preempting for outcome in verdicts.values() if isinstance(outcome, NotAdmissible) and outcome.preempting is not None]
    return [victim.workload.key.partition("/")[2] for preempting in told for victim in preempting.victims]


def build_two_queues(nominal: str, **preemption: str) -> Shared:
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
    scene = build_two_queues("6", withinClusterQueue="LowerPriority")
    scene.submit("low", 4, queue="a", topology=ANYWHERE)
    scene.submit("other", 6, queue="b", topology=ANYWHERE)
    scene.run()
    evict_once(scene, "low")
    (verdict,) = scene.verdicts()
    assert isinstance(verdict.outcome, Admissible)
    assert scene.state.workloads.facts[f"{NAMESPACE}/low"].evicted
    assert scene.state.workloads.find_holding(f"{NAMESPACE}/low") is not None
    assert scene.state.workloads.list_leaving() == set()
    assert scene.state.workloads.compute_leaving_usage("a") == {}
    assert f"{NAMESPACE}/low" in scene.state.workloads.list_starting()


def test_workload_evicted_while_its_next_decision_is_on_its_way_is_leaving() -> None:
    scene = build_two_queues("6", withinClusterQueue="LowerPriority")
    key = scene.submit("low", 4, queue="a", topology=ANYWHERE)
    scene.run()
    facts = scene.state.workloads.facts[key]
    assert facts.admission is not None
    scene.state.assume(key, facts.admission, {})
    scene.state.observe_workload(key, replace(facts, evicted=True))
    assert scene.state.workloads.is_assumed(key)
    assert scene.state.workloads.list_leaving() == {key}


@pytest.mark.parametrize("reclaim", ["Never", "Any"])
def test_two_borrowers_that_preempt_in_their_queues_come_to_rest(reclaim: str) -> None:
    """Each counted what the other one's victim had just been given again as room to come: 2 evictions a cycle without end."""
    scene = build_two_queues("6", withinClusterQueue="LowerPriority", reclaimWithinCohort=reclaim)
    stream = [("a", 3, 1), ("b", 6, 0), ("a", 1, 0), ("a", 3, 1), ("b", 8, 3), ("a", 8, 1), ("a", 1, 2)]
    for i, (queue, count, priority) in enumerate(stream):
        scene.submit(f"w{i}", count, queue=queue, priority=priority, topology=ANYWHERE)
        scene.run()
        for name in sorted(scene.evicted()):
            scene.leave(name)
    run_until_rest(scene, at_most=2 * len(stream))


ALL = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}


CIRCLE = [("b", 4, 3, 1), ("a", 4, 2, 2), ("b", 8, 1, 2), ("a", 2, 0, 1), ("b", 7, 1, 1), ("b", 4, 1, 2), ("a", 1, 0, 2), ("b", 3, 1, 0)]


def build_small_cohort(*pools: tuple[str, str, dict[str, str]], racks: Sequence[int]) -> Shared:
    scene = Shared()
    for i, nodes in enumerate(racks):
        scene.rack(f"r{i}", nodes)
    for name, nominal, limits in pools:
        scene.pool(name, nominal, "cohort", preemption=ALL, **limits)
    return scene


def submit(scene: Shared, *stream: tuple[str, int, int, int]) -> None:
    """Jobs by queue, count of pods, priority, and place in `TOPOLOGIES`; after each a cycle, in which those evicted leave."""
    for i, (queue, count, priority, topology) in enumerate(stream):
        Job(queue, count, 1, priority, topology).submit(scene, f"w{i}")
        for name in sorted(scene.evicted()):
            scene.leave(name)
        scene.run()


def test_preemption_by_borrowers_comes_to_rest() -> None:
    """By priority within a queue, by reclaiming, by priority while borrowing: three workloads sent each other away without end."""
    scene = build_small_cohort(("a", "3", {"borrowingLimit": "3"}), ("b", "2", {"lendingLimit": "2"}), racks=(1, 2, 2))
    submit(scene, *CIRCLE)
    run_until_rest(scene, at_most=2 * len(CIRCLE))


def test_reclaiming_for_nodes_alone_comes_to_rest() -> None:
    """19 of quota on 12 CPUs: two workloads sent each other away, each within its own quota, for the room of a small borrower."""
    pools = ("a", "8", {"lendingLimit": "1"}), ("b", "8", {"borrowingLimit": "3"}), ("c", "3", {"borrowingLimit": "2"})
    scene = build_small_cohort(*pools, racks=(1, 2))
    submit(scene, ("b", 2, 1, 2), ("a", 2, 1, 2), ("b", 7, 3, 0), ("c", 14, 0, 1), ("b", 6, 1, 2), ("a", 7, 2, 1))
    run_until_rest(scene, at_most=12)


def test_workload_says_which_it_spares_until_one_of_them_ends() -> None:
    """w0 was evicted for w3, that for w1, in whose place w0 would have to borrow."""
    scene = build_small_cohort(("a", "3", {"borrowingLimit": "3"}), ("b", "2", {"lendingLimit": "2"}), racks=(1, 2, 2))
    submit(scene, *CIRCLE[:-1])
    outcome = scene.run()["w0"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.spares
    assert outcome.message.endswith(": ns/w1")
    scene.delete("w3")
    assert get_victims(scene.run()["w0"]) == {"w1": REASON_RECLAIMED_BY_BORROWER}


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
            count += len(list_victims(scene.run()))
        for name in sorted(scene.evicted())[: life.pauses[-1]]:
            scene.leave(name)
    assert count + len(run_until_rest(scene, at_most=most)) <= most + len(life.coming)


LIVES: Any = st.builds(Life, st.lists(jobs, min_size=2, max_size=9), st.lists(st.integers(0, 3), min_size=1, max_size=4))


@given(scenes() | scenes(FairSharing()), LIVES)
def test_cohort_of_workloads_that_never_finish_comes_to_rest(scene: Shared, life: Life) -> None:
    play(scene, life)


def test_circle_of_evictions_ends_while_namespaces_come_and_go() -> None:
    scene = build_small_cohort(("a", "3", {"borrowingLimit": "3"}), ("b", "2", {"lendingLimit": "2"}), racks=(1, 2, 2))
    submit(scene, *CIRCLE)
    evicted = []
    for i in range(10 * len(CIRCLE)):
        scene.state.observe_namespace(f"ci-{i}", {"ci": "1"})
        for name in sorted(scene.evicted()):
            scene.leave(name)
        evicted += list_victims(scene.run())
    assert len(evicted) <= 2 * len(CIRCLE)


def test_workload_of_raised_priority_preempts_the_workload_it_was_evicted_for() -> None:
    scene = build_two_queues("100", withinClusterQueue="LowerPriority")
    scene.submit("first", 8, queue="a", priority=1)
    scene.run()
    scene.submit("second", 40, queue="a", priority=2, topology=ANYWHERE)
    scene.run()
    scene.leave("first")
    scene.run()
    assert scene.running() == {"second"}
    scene.objects["first"]["spec"]["priority"] = 3
    scene.write({})
    scene.rewrite("first")
    assert list_victims(scene.run()) == ["second"]


ENDLESS = [52, 65, 674, 1241, 1787, 1805, 2188, 2293, 2817, 3420, 3693, 4781, 9773, 11690, 34579]
"""Seeds of `random_cohorts` in which evictions did not end: victims in two flavors in turn, for a workload that was admitted in neither;
a queue that borrowed of one flavor lost what was its own of another; the head of a StrictFIFO queue, and workloads that can do with fewer
pods, reclaimed quota of their own and took more than that."""


def play_cohort(seed: int) -> None:
    """Jobs that never finish come one after another, and evicted ones leave. Fails if there are more than three evictions a workload."""
    chance = random.Random(seed)
    scene, count, evicted = build_cohort(chance), chance.randint(3, 10), 0
    for i in range(count):
        submit_job(scene, f"w{i}", chance)
        for _ in range(chance.randint(0, 2)):
            evicted += len(list_victims(scene.run()))
        for name in sorted(scene.evicted()):
            if chance.random() < 0.8:
                scene.leave(name)
    assert evicted + len(run_until_rest(scene, at_most=3 * count)) <= 3 * count


@pytest.mark.parametrize("seed", [1272, 2329])
def test_workload_that_reclaimed_its_own_quota_borrows_none_where_its_decision_is_made_in_pieces(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decided in pieces is confirmed in the state as it is then: that took the first flavor, and borrowed."""
    confirm, confirmed = Judge.confirm, list[tuple[Admissible, Admissible]]()

    def note(
        judge: Judge, outcome: Admissible | NotAdmissible, workload: WorkloadFacts, queue: ClusterQueueFacts
    ) -> Admissible | NotAdmissible | None:
        again = confirm(judge, outcome, workload, queue)
        if isinstance(outcome, Admissible) and isinstance(again, Admissible):
            confirmed.append((outcome, again))
        return again

    def run_in_pieces(scene: Shared) -> dict[str, Admissible | NotAdmissible]:
        scene.clock += 1
        verdicts = dict[str, Admissible | NotAdmissible]()
        is_over = False
        while not is_over:
            verdicts |= {v.workload.key.partition("/")[2]: v.outcome for v in scene.cycle.run(lambda: not scene.cycle.latest.has_decided)}
            is_over = not (scene.cycle.is_deciding or scene.cycle.is_cut)
            while scene.cycle.is_deciding:
                scene.cycle.run_piece()
        scene.write(verdicts)
        return verdicts

    monkeypatch.setattr(Judge, "confirm", note)
    monkeypatch.setattr(Shared, "run", run_in_pieces)
    play_cohort(seed)
    assert any(not outcome.borrows for outcome, _ in confirmed)
    assert not [again for outcome, again in confirmed if again.borrows and not outcome.borrows]


@pytest.mark.parametrize("seed", ENDLESS)
def test_cohort_in_which_evictions_did_not_end_comes_to_rest(seed: int) -> None:
    play_cohort(seed)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_cohorts_come_to_rest(first: int) -> None:
    for seed in range(first, first + 100):
        play_cohort(seed)
