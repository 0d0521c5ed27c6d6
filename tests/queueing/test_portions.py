"""What each queue may have of a round: decisions that take long keep those of other queues waiting for a moment only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core.placement.profile import STANDARD
from core.queueing.cycle import Cycle
from core.queueing.outcome import Found, NotFound
from core.queueing.pending import Order
from core.queueing.portions import MOST_S, Portions
from core.queueing.run import Verdict
from tests.queueing.shared import Shared

MINE, OTHERS = ("mine", False), ("others", False)


class Timed:
    """Portions whose decisions take as long as is said."""

    def __init__(self) -> None:
        self.now = 0.0
        self.portions = Portions(lambda: self.now)

    def may_decide(self, number: int, *, key: tuple[str, bool] = MINE, is_new: bool = False, is_strict: bool = False) -> bool:
        return self.portions.may_decide(key, place(number), is_new=is_new, is_strict=is_strict)

    def decide(self, number: int, seconds: float = MOST_S * 0.625, *, key: tuple[str, bool] = MINE) -> None:
        self.portions.begin_decision(key, place(number))
        with self.portions.measure():
            self.now += seconds

    def play_round(self, numbers: Sequence[int], *, is_new: bool = False, is_strict: bool = False) -> list[int]:
        """Which of these are decided on in a round."""
        had = []
        for number in numbers:
            if self.may_decide(number, is_new=is_new, is_strict=is_strict):
                self.decide(number)
                had.append(number)
        return had


def place(number: int) -> Order:
    return 0, "", "", number


def test_round_goes_on_behind_the_last_that_had_a_decision_and_then_with_the_first():
    timed = Timed()
    rounds = []
    for _ in range(3):
        had = timed.play_round(range(5))
        rounds.append((had, timed.portions.end_round()))
    assert rounds == [([0, 1], True), ([2, 3], True), ([4], True)]
    assert timed.play_round([]) == []
    assert timed.portions.end_round() is False


def test_first_of_a_strict_queue_is_decided_on_in_each_round():
    timed = Timed()
    for _ in range(3):
        assert timed.play_round(range(5), is_strict=True) == [0, 1]
        timed.portions.end_round()


def test_portions_of_another_queue_and_of_promises_are_their_own():
    timed = Timed()
    timed.play_round(range(2))
    assert not timed.may_decide(2)
    assert timed.may_decide(0, key=OTHERS)
    assert timed.may_decide(0, key=("mine", True))


def test_new_workloads_before_the_place_of_the_round_have_half_of_the_portion():
    """Else who writes workloads of high priority again and again keeps those behind them waiting for ever."""
    timed = Timed()
    timed.play_round(range(10, 13))
    timed.portions.end_round()
    assert timed.play_round([0, 1, 2], is_new=True) == [0]
    assert timed.play_round([12, 13]) == [12]
    timed.portions.end_round()
    assert timed.play_round([0, 1, 2], is_new=True) == [0]
    assert timed.play_round([13]) == [13]


def test_decision_of_which_pieces_take_longer_than_the_portion_is_the_last_of_the_round():
    timed = Timed()
    timed.decide(0, MOST_S / 4)
    with timed.portions.measure():
        timed.now += MOST_S
    assert not timed.may_decide(1)


class Slow(Shared):
    """Each decision in queue `slow` takes three quarters of a portion, others take no time."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self.time = 0.0
        self.cycle = Cycle(self.state, STANDARD, timer=lambda: self.time)
        decide = self.cycle._decisions.decide

        def take_long(*asked: Any) -> Found | NotFound | None:
            self.time += MOST_S * 0.75 if asked[1].name == "slow" else 0.0
            return decide(*asked)

        self.cycle._decisions.decide = take_long  # type: ignore[assignment, method-assign]
        self.rack("r", 4)
        self.pool("slow", "4", queueingStrategy="StrictFIFO" if strict else "BestEffortFIFO")
        self.pool("quick", "4")

    def names(self) -> list[str]:
        return [name_of(verdict) for verdict in self.cycle.run()]


def name_of(verdict: Verdict) -> str:
    return f"{verdict.workload.key.partition('/')[2]}{' admitted' if isinstance(verdict.outcome, Found) else ''}"


def test_workload_of_another_queue_waits_for_no_more_than_a_portion():
    """Attack 29: 120 workloads of high priority, which never fit, took 11 s before any of another team was asked, at each change."""
    scene = Slow()
    for number in range(6):
        scene.submit(f"slow{number}", 9 + number, cpu="1", queue="slow", priority=5)
    scene.submit("quick", 1, cpu="1", queue="quick")
    assert scene.names() == ["slow0", "slow1", "quick admitted"]
    assert scene.cycle.is_cut
    assert [scene.names() for _ in range(2)] == [["slow2", "slow3"], ["slow4", "slow5"]]
    rounds = 0
    while scene.cycle.is_cut:
        assert scene.names() == []
        rounds += 1
    assert rounds <= 2


def test_workloads_that_are_written_in_each_round_keep_those_behind_them_from_no_decision():
    scene = Slow()
    for number in range(3):
        scene.submit(f"slow{number}", 9 + number, cpu="1", queue="slow", priority=5, created="2026-01-01T00:00:00Z")
    scene.submit("last", 1, cpu="1", queue="slow")
    for again in range(6):
        if "last admitted" in scene.names():
            break
        for number in range(3):
            scene.submit(f"slow{number}", 20 + 9 * again + number, cpu="1", queue="slow", priority=5, created="2026-01-01T00:00:00Z")
    else:
        pytest.fail("the last has had no decision")


def test_strict_queue_with_a_head_that_gets_no_decision_in_a_round_stays_behind_it():
    scene = Slow(strict=True)
    for number, count in enumerate((1, 1, 9, 1)):
        scene.submit(f"slow{number}", count, cpu="1", queue="slow")
    assert scene.names() == ["slow0 admitted", "slow1 admitted", "slow3"]
    assert scene.names() == ["slow2"]
