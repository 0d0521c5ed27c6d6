"""Turns of workloads that get no decision in a round, since the portion of their queue is used up (`core.queueing.ordering.portions`)."""

from __future__ import annotations

from typing import Any

from core.queueing.flavors.outcome import Admissible
from core.queueing.ordering.portions import MOST_BESIDE_S, MOST_S
from tests.builders import build_condition_json
from tests.queueing.ordering.test_portions import Slow, Timed


class Noted(Slow):
    """Notes on which workloads decisions are made."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__(strict=strict)
        self.asked: list[str] = []
        decide = self.cycle._decisions.decide

        def note(*with_: Any) -> Any:
            self.asked.append(with_[0].key.partition("/")[2])
            return decide(*with_)

        self.cycle._decisions.decide = note  # type: ignore[assignment, method-assign]

    def decide(self, held_back: str = "") -> tuple[list[str], set[str]]:
        """One cycle: decisions in their order, and the workloads that are admitted."""
        self.asked.clear()
        verdicts = list(self.cycle.run(is_held_back=lambda uid: bool(held_back) and uid.startswith(f"uid-{held_back}")))
        return list(self.asked), {verdict.workload.key.partition("/")[2] for verdict in verdicts if isinstance(verdict.outcome, Admissible)}


def evict_for_each_of(scene: Slow, *names: str) -> None:
    """Workloads of one queue fill the rack, and each of the names preempts one of them."""
    scene.pool("slow", "999", preemption={"withinClusterQueue": "LowerPriority"})
    for number in range(4):
        scene.submit(f"low{number}", 4, cpu="1", queue="slow", priority=0)
    cost, scene.cost = scene.cost, 0.0
    scene.run()
    for number, name in enumerate(names):
        scene.submit(name, 4, cpu="1", queue="slow", priority=9 - number)
    scene.run()
    while scene.cycle.is_cut:
        scene.run()
    scene.cost = cost


def test_room_that_an_evicted_workload_leaves_is_kept_for_a_workload_that_is_skipped():
    """It has no victims, so that it has no first turn by a promise: its own turn takes the room out of what others see."""
    scene = Noted()
    scene.pool("slow", "99", preemption={"withinClusterQueue": "LowerPriority"})
    scene.pool("quick", "99")
    scene.submit("low", 8, cpu="1", queue="slow", priority=0)
    scene.run()
    scene._write("low", build_condition_json("Evicted", time=scene.now))
    scene.submit("next", 16, cpu="1", queue="slow", priority=9)
    for number in range(6):
        scene.submit(f"never{number}", 20 + number, cpu="1", queue="slow", priority=5)
    assert scene.decide() == (["next", "never0"], set())
    assert scene.cycle._claims.find_preempting("uid-next") is not None
    assert not scene.cycle._claims.is_preemptor("uid-next")
    scene.rack("another", 1, cpu=1)
    scene.submit("first", 90, cpu="1", queue="slow", priority=10)  # what is beside the lap is used up by this
    scene.submit("small", 8, cpu="1", queue="quick", priority=0)
    asked, admitted = scene.decide()
    assert "next" not in asked
    assert "small" in asked
    assert admitted == set()


def test_heads_of_a_strict_queue_that_were_held_back_have_its_portion_in_the_lap_that_passed_them():
    scene = Noted(strict=True)
    scene.pool("slow", "99", queueingStrategy="StrictFIFO")
    for number in range(2):
        scene.submit(f"head{number}", 1, cpu="1", queue="slow", priority=9)
    for number in range(5):
        scene.submit(f"slow{number}", 1, cpu="1", queue="slow", priority=5)
    assert scene.decide("head") == (["slow0", "slow1"], {"slow0", "slow1"})
    assert scene.decide()[0] == ["head0", "head1"]


def test_decisions_on_promised_workloads_take_nothing_from_the_portion_of_the_queue():
    scene = Noted()
    evict_for_each_of(scene, "high0", "high1")
    scene.submit("never", 99, cpu="1", queue="slow", priority=5)
    scene.rack("another", 1, cpu=1)
    scene.cost = MOST_S
    assert scene.decide()[0] == ["high0", "never"]


def test_promised_workloads_have_no_more_than_a_portion_of_a_round():
    scene = Noted()
    evict_for_each_of(scene, "high0", "high1", "high2", "high3")
    assert len(scene.cycle._claims.list_preemptors()) == 4
    scene.rack("another", 1, cpu=1)
    scene.submit("quick", 1, cpu="1", queue="quick")
    assert scene.decide() == (["high0", "high1", "quick"], {"quick"})
    assert {"high2", "high3"} <= set(scene.decide()[0])


def test_group_of_which_the_first_is_skipped_is_asked_once(monkeypatch: Any):
    scene = Noted()
    for number in range(3):
        scene.submit(f"never{number}", 20 + number, cpu="1", queue="slow", priority=5)
    for number in range(50):
        scene.submit(f"alike{number}", 30, cpu="1", queue="slow")
    may_decide, count = scene.cycle._portions.may_decide, 0

    def count_asked(*with_: Any, **named: Any) -> bool:
        nonlocal count
        count += 1
        return may_decide(*with_, **named)

    monkeypatch.setattr(scene.cycle._portions, "may_decide", count_asked)
    assert scene.decide()[0] == ["never0", "never1"]
    assert count == 4


def test_lap_goes_on_behind_the_last_in_the_order_though_one_before_it_was_decided_on_later():
    """As one that is put off, since it must borrow."""
    timed = Timed(0, 1, 2, 3)
    timed.portions.begin_round(4)
    timed.decide(1, MOST_S / 4)
    timed.decide(0, MOST_S)
    assert not timed.portions.may_decide(timed.ask(2))
    timed.portions.end_round()
    timed.refused.clear()
    assert timed.play_round(seconds=MOST_S) == [0, 2]


def test_decision_beside_a_lap_does_not_move_the_lap_over_those_before_it():
    timed = Timed(0, 10, 11, 12)
    assert timed.play_round(seconds=MOST_S) == [0]
    timed.portions.end_round()
    timed.add(99)
    assert timed.play_round(seconds=MOST_S) == [10, 99]
    timed.portions.end_round()
    assert timed.play_round(seconds=MOST_BESIDE_S * 1.1) == [11, 12]
