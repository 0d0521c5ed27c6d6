"""Classes that were refused have no turn while nothing has changed that could help, and no decision is another one for that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible
from core.queueing.ordering.iteration_order import Turn
from tests.queueing.random_cohorts import build_cohort, submit_job
from tests.queueing.scene import get_refusals, list_admitted
from tests.queueing.shared import ALL_MAY, Shared
from tests.strategies import scale_examples


def record_turns(scene: Shared, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the workloads that have a turn, from now on."""
    had: list[str] = []
    judge = scene.cycle._judge_turn

    def record(turn: Turn, *rest: Any) -> Iterator[Verdict]:
        had.append(turn.workload.key.partition("/")[2])
        return judge(turn, *rest)

    monkeypatch.setattr(scene.cycle, "_judge_turn", record)
    return had


def build_two_cohorts(*, strict: bool = False, sharing: FairSharing | None = None) -> Shared:
    """Queue a of one cohort and c of another are full, and one workload waits in each."""
    scene = Shared(sharing=sharing)
    for i in range(4):
        scene.rack(f"r{i}", 4)
    strategy = {"queueingStrategy": "StrictFIFO"} if strict else {}
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "right")):
        scene.pool(name, "8", cohort, preemption=ALL_MAY, **strategy)
    for name in "abc":
        scene.submit(f"runs-{name}", 8, queue=name)
    assert len(list_admitted(scene.run())) == 3
    scene.submit("waits-a", 2, queue="a")
    scene.submit("waits-c", 2, queue="c")
    assert set(get_refusals(scene.run())) == {"waits-a", "waits-c"}
    return scene


def test_refused_class_has_no_turn_until_its_cohort_gives_quota_back(monkeypatch: pytest.MonkeyPatch):
    scene = build_two_cohorts()
    had = record_turns(scene, monkeypatch)
    assert scene.run() == {}
    assert had == []
    scene.finish("runs-b")
    assert list_admitted(scene.run()) == {"waits-a"}
    assert set(had) == {"waits-a"}


def test_refused_class_has_no_turn_when_a_node_comes(monkeypatch: pytest.MonkeyPatch):
    scene = build_two_cohorts()
    had = record_turns(scene, monkeypatch)
    scene.rack("new", 4)
    assert scene.run() == {}
    assert had == []


def test_refused_class_has_a_turn_when_a_member_comes_first(monkeypatch: pytest.MonkeyPatch):
    scene = build_two_cohorts()
    had = record_turns(scene, monkeypatch)
    scene.submit("alike", 2, queue="a", created="2025-01-01T00:00:00Z")
    assert set(get_refusals(scene.run())) == {"alike"}
    assert had == ["alike"]
    assert scene.run() == {}
    assert had == ["alike"]


def test_refused_class_has_a_turn_when_a_queue_changes(monkeypatch: pytest.MonkeyPatch):
    scene = build_two_cohorts()
    had = record_turns(scene, monkeypatch)
    scene.pool("c", "16", "right", preemption=ALL_MAY)
    assert list_admitted(scene.run()) == {"waits-c"}
    assert set(had) == {"waits-a", "waits-c"}


def test_resting_class_has_a_turn_in_a_round_that_goes_on_after_quota_was_given_back():
    scene = build_two_cohorts()
    scene.submit("first", 3, queue="c", priority=9)
    scene.submit("second", 4, queue="c", priority=8)
    decided: list[str] = []
    for verdict in scene.cycle.run(lambda: not decided):
        decided.append(verdict.workload.key.partition("/")[2])
    assert decided == ["first"]
    assert scene.cycle.is_cut
    in_round = scene.cycle.round
    scene.finish("runs-b")
    cycle = scene.cycle.run()
    assert next(cycle).workload.key.endswith("/second")
    admitted = next(cycle)
    assert (admitted.workload.key.partition("/")[2], type(admitted.outcome)) == ("waits-a", Admissible)
    assert scene.cycle.round == in_round


@pytest.mark.parametrize("options", [{"strict": True}, {"sharing": FairSharing()}])
def test_class_has_a_turn_in_each_round_where_turns_decide_on_those_of_others(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    scene = build_two_cohorts(**options)
    had = record_turns(scene, monkeypatch)
    assert scene.run() == {}
    assert sorted(had) == ["waits-a", "waits-c"]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=scale_examples(1))
def test_cycle_with_resting_classes_decides_as_one_in_which_all_have_turns(seed: int):
    """Over random events, also while verdicts are being written, and where workloads are held back. Rounds are whole: one that is cut off
    comes further with fewer turns."""
    assert list(play(seed, rests=True)) == list(play(seed, rests=False))


def play(seed: int, *, rests: bool) -> Iterator[list[tuple[Any, ...]]]:
    """Yields what each cycle of a random life decides."""
    chance = random.Random(seed)
    scene = build_cohort(chance)
    scene.cycle = Cycle(scene.state, STANDARD, sharing=scene.sharing)
    scene.cycle._resting._is_on &= rests
    for i in range(30):
        happen(scene, i, chance)
        names = sorted(scene.objects)
        busy = {f"uid-{name}" for name in chance.sample(names, min(len(names), 2))} if chance.random() < 0.2 else set()
        held = {f"uid-{name}" for name in chance.sample(names, min(len(names), 1))} if chance.random() < 0.2 else set()
        verdicts = list(scene.cycle.run(lambda: True, held.__contains__, busy.__contains__))
        scene.clock += 1
        scene.write({verdict.workload.key.partition("/")[2]: verdict.outcome for verdict in verdicts})
        yield [describe(verdict) for verdict in verdicts]


def describe(verdict: Verdict) -> tuple[Any, ...]:
    outcome = verdict.outcome
    if isinstance(outcome, Admissible):
        return verdict.workload.key, outcome.admission
    victims = [victim.workload.key for victim in outcome.preempting.victims] if outcome.preempting is not None else None
    return verdict.workload.key, outcome.reason, outcome.message, victims


def happen(scene: Shared, i: int, chance: random.Random) -> None:
    """One event of a cluster, and often those evicted leave."""
    waiting = sorted(workload.key.partition("/")[2] for workload in scene.state.workloads.list_pending())
    running = sorted(scene.running())
    event = chance.choice(["submit"] * 6 + ["finish"] * 4 + ["delete", "node", "namespace", "change", "nothing", "nothing"])
    if event == "submit":
        submit_job(scene, f"w{i}", chance)
    elif event == "finish" and running:
        scene.finish(chance.choice(running))
    elif event == "delete" and waiting:
        scene.delete(chance.choice(waiting))
    elif event == "node":
        scene.rack(f"new{i}", 1, cpu=chance.choice([1, 12]))
    elif event == "namespace":
        scene.state.observe_namespace("ns", {"at": str(i)})
    elif event == "change" and waiting:
        submit_job(scene, chance.choice(waiting), chance)
    for name in sorted(scene.evicted()):
        if chance.random() < 0.6:
            scene.leave(name)
