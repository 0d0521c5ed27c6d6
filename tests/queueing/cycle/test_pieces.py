"""Decisions in pieces: the same as in one piece, applied only if they hold in the end, and made in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.step_budget import StepBudget
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle import decisions
from core.queueing.cycle.judge import Judge
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.preemption import victim_search
from core.queueing.preemption.preemption_policy import Memory
from core.state.ledger import Ledger
from tests.builders import NAMESPACE
from tests.queueing.lives import Job, busy_scenes, check, jobs, rebuilt_without
from tests.queueing.preemption.test_preemption import build_crowded_scene
from tests.queueing.preemption.test_preemption_properties import may_go
from tests.queueing.shared import Shared, get_victims
from tests.strategies import scale_examples

NAME = "urgent"


def decide_in_pieces(scene: Shared, between: Callable[[], None] = lambda: None, most: int = 10_000) -> tuple[list[Verdict], int]:
    """Verdicts of cycles whose decisions are interrupted wherever they may be, and how often they were."""
    verdicts, interruptions = list[Verdict](), 0
    while True:
        verdicts += scene.cycle.run(lambda: not scene.cycle.latest.has_decided)
        if not scene.cycle.is_deciding:
            return verdicts, interruptions
        while scene.cycle.is_deciding:
            between()
            interruptions += 1
            assert interruptions < most
            scene.cycle.run_piece()


def get_outcome(verdicts: list[Verdict]) -> Admissible | NotAdmissible:
    return next(verdict.outcome for verdict in verdicts if verdict.workload.key == f"{NAMESPACE}/{NAME}")


def test_decision_in_pieces_is_the_decision_in_one_piece():
    scene, other = build_crowded_scene(30), build_crowded_scene(30)
    verdicts, interruptions = decide_in_pieces(scene)
    assert interruptions > 20
    assert get_outcome(verdicts) == other.run()[NAME]
    assert scene.state.ledger.find_drift() == {}


def test_victim_that_finishes_between_pieces_is_not_evicted():
    expected = sorted(get_victims(build_crowded_scene(30).run()[NAME]))
    scene = build_crowded_scene(30)
    assert list(scene.cycle.run(lambda: not scene.cycle.latest.has_decided)) == []
    while scene.cycle.run_piece():
        pass
    scene.finish(expected[0])
    assert sorted(get_victims(scene.run()[NAME])) == expected[1:]


def test_workload_that_fits_before_its_search_ends_is_admitted():
    scene = build_crowded_scene(30)
    verdicts, _ = decide_in_pieces(scene, lambda: scene.rack("new", 10) if "new-n0" not in scene.state.nodes else None)
    assert isinstance(get_outcome(verdicts), Admissible)


def test_refusal_in_pieces_does_not_outlive_a_change_between_them(monkeypatch: pytest.MonkeyPatch):
    """Former defect: what came while the search went on would never have been looked at."""
    scene = build_crowded_scene(30)
    scene.submit(NAME, 11, cpu="4", queue="q", priority=1)  # no rack has so many nodes
    verdicts, interruptions = decide_in_pieces(scene, lambda: scene.rack("new", 11) if "new-n0" not in scene.state.nodes else None)
    assert interruptions
    if isinstance(get_outcome(verdicts), NotAdmissible):
        assert isinstance(scene.run()[NAME], Admissible)


@pytest.mark.parametrize("what", ["workload", "victims"])
def test_search_that_never_holds_is_made_in_one_piece(what: str):
    """An owner that writes its workload again and again keeps those behind it waiting no longer than that."""
    scene, priority = build_crowded_scene(30), [1]

    def disturb() -> None:
        if what == "workload":
            priority[0] += 1
            scene.submit(NAME, 10, cpu="4", queue="q", priority=priority[0])
        else:
            for name in sorted(scene.running())[:1]:
                scene.finish(name)

    if what == "victims":
        scene.submit("behind", 1, cpu="4", queue="q", priority=-1)
    verdicts, interruptions = decide_in_pieces(scene, disturb, 2_000)
    assert interruptions
    assert get_outcome(verdicts) is not None
    assert not scene.cycle.is_deciding
    assert decisions.MOST_THROWN_AWAY < 5


@given(busy_scenes(), jobs, st.data())
@settings(max_examples=scale_examples(2.5))
def test_decision_in_pieces_holds_at_its_end_whatever_changes(scene: Shared, job: Job, data: st.DataObject):
    job.submit(scene, NAME)

    def change() -> None:
        what = data.draw(st.sampled_from(["nothing", "nothing", "finish", "pod", "raise", "evict"]))
        running = sorted(scene.running())
        if not running or what == "nothing":
            return
        name = data.draw(st.sampled_from(running))
        if what == "finish":
            scene.finish(name)
        elif what == "raise":
            wire = scene.objects[name]
            scene.objects[name] = {**wire, "spec": {**wire["spec"], "priority": 9}}
            scene._write(name)
        elif what == "evict":
            scene.leave(name)
        else:
            other = data.draw(jobs)
            other.submit(scene, f"late{scene.clock}")

    confirm = Judge.confirm

    def confirm_twice(judge: Judge, *asked: Any) -> Admissible | NotAdmissible | None:
        known, found = judge._memory, confirm(judge, *asked)
        judge._memory = Memory(now=known.now)
        assert confirm(judge, *asked) == found
        judge._memory = known
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "confirm", confirm_twice)
        patch.setattr(victim_search, "_EXACT", data.draw(st.sampled_from([0, 256])))
        verdicts, _ = decide_in_pieces(scene, change)
    check(scene)
    wanting = scene.state.workloads.facts[f"{NAMESPACE}/{NAME}"]
    decided = [verdict.outcome for verdict in verdicts if verdict.workload.key == wanting.key]
    if not decided or not isinstance(decided[-1], NotAdmissible) or (preempting := decided[-1].preempting) is None:
        return
    gone = {victim.workload.key for victim in preempting.victims}
    facts = scene.state.workloads.facts
    assert all(facts[key].admission is not None and not facts[key].finished and not facts[key].evicted for key in gone)
    borrows = preempting.found.borrows
    chosen = [facts[key] for key in gone]
    assert any(may_go(scene, wanting, chosen, borrows=right) for right in ([True] if borrows else [False, True]))
    world = rebuilt_without(scene, gone)
    assert isinstance(find_admission(world.state, wanting, world.state.cluster_queues[job.queue], STANDARD), Admissible)


def test_confirmation_reads_only_workloads_that_have_changed(monkeypatch: pytest.MonkeyPatch):
    """Former defect: reading all victims anew was a step of 200 ms with 4,900 of them."""
    scene, read = build_crowded_scene(30), list[str]()
    assert list(scene.cycle.run(lambda: not scene.cycle.latest.has_decided)) == []
    while scene.cycle.run_piece():
        pass
    held_by, expected = Ledger.list_held, sorted(get_victims(build_crowded_scene(30).run()[NAME]))
    assert len(expected) > 2
    scene.finish(expected[0])

    def note(ledger: Ledger, workload: str) -> list[Any]:
        read.append(workload)
        return held_by(ledger, workload)

    monkeypatch.setattr(Ledger, "list_held", note)
    assert sorted(get_victims(get_outcome(list(scene.cycle.run())))) == expected[1:]
    assert read == []
    assert scene.state.ledger.find_drift() == {}


def test_pieces_of_a_search_are_small(monkeypatch: pytest.MonkeyPatch):
    """Between two of them the loop serves others."""
    scene, charged, most = build_crowded_scene(30), [0], [0]
    charge = StepBudget.charge

    def counted(budget: StepBudget, steps: int) -> None:
        charged[0] += steps if budget.whole is None else 0
        charge(budget, steps)

    def rest() -> None:
        most[0], charged[0] = max(most[0], charged[0]), 0

    monkeypatch.setattr(StepBudget, "charge", counted)
    _, interruptions = decide_in_pieces(scene, rest)
    assert interruptions > 20
    assert 0 < most[0] <= 10_000
