"""What each queue may have of a round: decisions that take long keep those of other queues waiting for a moment only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.ordering.portions import MOST_S, DecisionRequest, Key, Portions
from core.state.facts import WorkloadFacts
from tests.builders import build_pod_set_json, build_workload_json
from tests.queueing.shared import Shared

MINE, OTHERS, PROMISED = ("mine", False), ("others", False), ("mine", True)


class Timed:
    """Portions with decisions that take as long as is said. Workloads are numbers, by their order; they come in the order in which they are
    added."""

    def __init__(self, *numbers: int) -> None:
        self.now = 0.0
        self.portions = Portions(lambda: self.now)
        self.come: dict[int, int] = {}
        self.refused: set[int] = set()
        self.add(*numbers)

    def add(self, *numbers: int) -> None:
        """Workloads come, or are changed."""
        for number in numbers:
            self.come[number] = max(self.come.values(), default=0) + 1
            self.refused.discard(number)

    def ask(self, number: int, key: Key = MINE, *, is_strict: bool = False) -> DecisionRequest:
        return DecisionRequest(key, (0, "", "", f"{number:03}"), self.come[number], is_strict)

    def decide(self, number: int, seconds: float, key: Key = MINE, *, is_strict: bool = False) -> None:
        self.refused.add(number)
        self.portions.begin_decision(self.ask(number, key, is_strict=is_strict))
        with self.portions.measure():
            self.now += seconds

    def play_round(self, *, seconds: float = MOST_S * 0.625, is_strict: bool = False) -> list[int]:
        """Which workloads are decided on in a round, in their order: of those without a refusal that stands."""
        had = []
        self.portions.begin_round(max(self.come.values(), default=0))
        for number in sorted(self.come.keys() - self.refused):
            if self.portions.may_decide(self.ask(number, is_strict=is_strict)):
                self.decide(number, seconds, is_strict=is_strict)
                had.append(number)
        return had


def test_round_goes_on_behind_the_last_that_had_a_decision_and_then_with_the_first():
    timed = Timed(*range(5))
    rounds = [(timed.play_round(), timed.portions.end_round()) for _ in range(3)]
    assert rounds == [([0, 1], True), ([2, 3], True), ([4], True)]
    timed.refused.clear()
    assert timed.play_round() == [0, 1]


def test_lap_that_is_over_is_followed_by_one_more_round_and_no_other_where_none_asks():
    timed = Timed(*range(3))
    assert [(timed.play_round(), timed.portions.end_round()) for _ in range(2)] == [([0, 1], True), ([2], True)]
    assert [timed.portions.end_round() for _ in range(2)] == [False, False]


def test_first_of_a_strict_queue_is_decided_on_in_each_round():
    timed = Timed(*range(5))
    for _ in range(3):
        timed.refused.clear()
        assert timed.play_round(is_strict=True) == [0, 1]
        assert timed.portions.end_round()


def test_portions_of_another_queue_and_of_promises_are_their_own():
    timed = Timed(*range(3))
    timed.play_round()
    assert not timed.portions.may_decide(timed.ask(2))
    for key in (OTHERS, PROMISED):
        assert timed.portions.may_decide(timed.ask(0, key))


def test_workloads_that_come_or_are_changed_in_a_lap_have_half_a_portion_and_make_it_no_longer():
    """Else a user who writes workloads of high priority again and again keeps those behind them waiting for ever."""
    timed = Timed(*range(10, 15))
    assert timed.play_round() == [10, 11]
    timed.portions.end_round()
    timed.add(0, 1, 20, 21)
    rounds = []
    for _ in range(3):
        rounds.append(timed.play_round())
        assert timed.portions.end_round()
        timed.add(0)
    assert rounds == [[0, 12, 13], [0, 14], [0, 1]]


def test_workload_that_may_fare_otherwise_in_the_lap_in_which_it_was_refused_has_its_turn_before_those_behind_it():
    timed = Timed(*range(5))
    assert timed.play_round() == [0, 1]
    timed.portions.end_round()
    timed.refused.clear()
    assert timed.play_round() == [0, 2, 3]
    assert timed.portions.end_round()
    timed.refused.clear()
    assert timed.play_round() == [0, 4]


@pytest.mark.parametrize("portions", [0.95, 1.05, 3.0])
def test_decision_beside_a_lap_that_takes_long_takes_nothing_from_the_lap(portions: float):
    timed = Timed(1, 2, 3)
    timed.play_round()
    timed.portions.end_round()
    timed.add(0)
    assert timed.play_round(seconds=MOST_S * portions) == [0, 3]


def test_decision_that_is_made_once_more_is_not_passed_over_and_counts():
    timed = Timed(0, 1, 2)
    timed.portions.begin_round(3)
    timed.decide(0, MOST_S)
    timed.portions.put_off(timed.ask(0))
    assert timed.portions.may_decide(timed.ask(0))
    assert not timed.portions.may_decide(timed.ask(1))
    timed.decide(0, MOST_S)
    assert not timed.portions.may_decide(timed.ask(0))
    assert timed.portions.end_round()
    assert timed.play_round(seconds=0.0) == [1, 2]


def test_workload_that_was_put_off_in_another_round_is_not_exempt():
    timed = Timed(0, 1)
    timed.portions.begin_round(2)
    timed.portions.put_off(timed.ask(1))
    timed.portions.end_round()
    timed.portions.begin_round(2)
    timed.decide(0, MOST_S)
    assert not timed.portions.may_decide(timed.ask(1))


def test_decision_of_which_pieces_take_longer_than_the_portion_is_the_last_of_the_round():
    timed = Timed(0, 1)
    timed.portions.begin_round(2)
    timed.decide(0, MOST_S / 4)
    with timed.portions.measure():
        timed.now += MOST_S
    assert not timed.portions.may_decide(timed.ask(1))


def test_time_of_a_decision_that_raises_counts():
    timed = Timed(0, 1)
    timed.portions.begin_round(2)
    timed.portions.begin_decision(timed.ask(0))

    def raise_late() -> None:
        with timed.portions.measure():
            timed.now += MOST_S
            raise RuntimeError("odd")

    with pytest.raises(RuntimeError, match="odd"):
        raise_late()
    assert not timed.portions.may_decide(timed.ask(1))


class Slow(Shared):
    """Each decision in queue `slow` costs some time, three quarters of a portion at first, others cost none."""

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self.time, self.cost = 0.0, MOST_S * 0.75
        self.cycle = Cycle(self.state, STANDARD, timer=lambda: self.time)
        decide = self.cycle._decisions.decide

        def take_long(*asked: Any) -> Admissible | NotAdmissible | None:
            self.time += self.cost if asked[1].name == "slow" else 0.0
            return decide(*asked)

        self.cycle._decisions.decide = take_long  # type: ignore[assignment, method-assign]
        self.rack("r", 4)
        self.pool("slow", "4", queueingStrategy="StrictFIFO" if strict else "BestEffortFIFO")
        self.pool("quick", "4")

    def names(self) -> list[str]:
        return [name_of(verdict) for verdict in self.cycle.run()]


def name_of(verdict: Verdict) -> str:
    return f"{verdict.workload.key.partition('/')[2]}{' admitted' if isinstance(verdict.outcome, Admissible) else ''}"


def test_workload_of_another_queue_waits_for_no_more_than_a_portion():
    """Former defect: 120 workloads of high priority, which never fit, took 11 s before any of another team was asked, at each change."""
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


def test_workload_that_waited_longer_gets_the_room_that_is_freed_in_a_lap():
    """Former defect: each that was behind it in the lap was asked first and took the room; of 120 the first by priority waited for ever."""
    scene = Slow()
    scene.submit("runs", 3, cpu="1", queue="slow")
    while "runs admitted" not in scene.names():
        pass
    scene.submit("first", 3, cpu="1", queue="slow", priority=5)
    for number in range(5):
        scene.submit(f"slow{number}", 9 + number, cpu="1", queue="slow", priority=1)
    scene.submit("last", 2, cpu="1", queue="slow")
    scene.names()
    assert scene.cycle.is_cut
    scene.delete("runs")
    admitted = list[str]()
    while scene.cycle.is_cut:
        admitted += [name for name in scene.names() if name.endswith("admitted")]
    assert admitted == ["first admitted"]


def test_strict_queue_with_a_head_that_gets_no_decision_in_a_round_stays_behind_it():
    scene = Slow(strict=True)
    for number, count in enumerate((1, 1, 9, 1)):
        scene.submit(f"slow{number}", count, cpu="1", queue="slow")
    assert scene.names() == ["slow0 admitted", "slow1 admitted"], "of slow3 nothing is known: slow2 may be admitted in the next round"
    assert scene.names() == ["slow2", "slow3"]


def test_each_of_alike_workloads_with_refusals_of_their_own_gets_decisions(monkeypatch: pytest.MonkeyPatch):
    """Review 29 of the portions: those behind the first of their group got none."""
    scene = Slow()
    scene.pool("slow", "99")
    monkeypatch.setattr("core.queueing.cycle.cycle.is_particular", lambda state, workload: True)
    for number in range(5):
        scene.submit(f"slow{number}", 9, cpu="1", queue="slow")
    while scene.names() or scene.cycle.is_cut:
        pass
    asked = Counter[str]()
    decide = scene.cycle._decisions.decide

    def count(workload: WorkloadFacts, *rest: Any) -> Admissible | NotAdmissible | None:
        asked[workload.key.partition("/")[2]] += 1
        return decide(workload, *rest)

    scene.cycle._decisions.decide = count  # type: ignore[assignment, method-assign]
    for number in range(10):
        scene.rack(f"another{number}", 1, cpu=1)
        scene.names()
    assert asked.keys() == {f"slow{number}" for number in range(1, 5)}, "the first is admitted"
    assert min(asked.values()) == 5


def test_decision_in_pieces_is_made_to_its_end_though_the_portion_is_used_up():
    scene = Slow()
    scene.submit("slow0", 9, cpu="1", queue="slow")
    scene.submit("slow1", 9, cpu="2", queue="slow")
    run, scene.cost = scene.cycle._decisions._run, 0.0
    pieces = iter([True, False])

    def interrupt(decision: Any, may_go_on: Any) -> None:
        scene.time += 0.6 * MOST_S
        if next(pieces, False):
            decision.is_interrupted, scene.cycle._decisions._unfinished = True, decision
        else:
            run(decision, lambda: True)

    scene.cycle._decisions._run = interrupt  # type: ignore[method-assign]
    assert scene.names() == []
    assert not scene.cycle.run_piece(lambda: True)
    assert scene.names() == ["slow0"]
    assert scene.names() == ["slow1"]


def test_workload_that_must_borrow_gets_its_second_decision_though_the_portion_is_used_up():
    scene = Slow()
    scene.pool("lender", "8", "cohort")
    scene.pool("slow", "0", "cohort")
    scene.cost = MOST_S * 1.1
    scene.submit("slow0", 1, cpu="1", queue="slow")
    assert scene.names() == ["slow0 admitted"]


def test_workload_on_which_a_verdict_is_written_keeps_its_number_and_one_that_asks_for_more_gets_another():
    scene = Slow()
    pending = scene.cycle._pending
    for name in ("w0", "w1"):
        scene.submit(name, 9, cpu="1", queue="slow", created="2026-01-01T00:00:00Z")
    scene.names()
    numbers = [pending.number_of(f"uid-{name}") for name in ("w0", "w1")]
    scene.submit("w0", 9, cpu="1", queue="slow", created="2026-01-01T00:00:00Z")
    scene.submit("w1", 10, cpu="1", queue="slow", created="2026-01-01T00:00:00Z")
    scene.names()
    assert [pending.number_of(f"uid-{name}") for name in ("w0", "w1")] == [numbers[0], max(numbers) + 1]


def test_workload_with_other_labels_of_its_pods_keeps_its_number():
    """Former defect: the first of a group had a new number in each round, and the group no decision in 400 rounds."""
    scene = Slow()
    for color in ("red", "blue"):
        pod_sets = [build_pod_set_json(count=9)]
        pod_sets[0]["template"]["metadata"] = {"labels": {"color": color}}
        scene.workload(build_workload_json("w0", pod_sets, queue="slow"))
        scene.names()
        assert scene.cycle._pending.number_of("uid-w0") == 1


def test_room_that_was_promised_is_kept_for_a_workload_that_gets_no_decision_in_a_round():
    scene = Slow()
    scene.pool("slow", "8", preemption={"withinClusterQueue": "LowerPriority"})
    scene.submit("low", 8, cpu="1", queue="slow", priority=0)
    while "low admitted" not in scene.names():
        pass
    for number in range(3):
        scene.submit(f"high{number}", 8, cpu="1", queue="slow", priority=9 - number)
    scene.submit("small", 1, cpu="1", queue="slow", priority=1)
    for _ in range(4):
        outcomes = [verdict for verdict in scene.cycle.run() if isinstance(verdict.outcome, Admissible)]
        assert outcomes == []
