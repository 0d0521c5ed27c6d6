"""How long a cycle of decisions may take."""

import pytest

from reconciler.scheduler import CYCLE_BUDGET_S, DECIDING_S, CycleTime
from tests.runtime.fakes import ManualClock


@pytest.mark.parametrize(
    ("until_first_s", "then_s"),
    [(0.0, DECIDING_S), (0.01, DECIDING_S), (0.06, 0.12), (0.2, CYCLE_BUDGET_S + DECIDING_S - 0.2)],
)
def test_cycle_decides_for_at_least_twice_as_long_as_it_took_to_come_to_a_decision(until_first_s: float, then_s: float):
    """Found defect B1: with 4,000 shapes that do not fit each cycle made one decision, and 1,000 workloads took 6 times as long."""
    clock, decided = ManualClock(), list[str]()
    time = CycleTime(clock, lambda: bool(decided))
    clock.time += until_first_s
    assert time.is_left()
    decided.append("one")
    clock.time += then_s - 0.001
    assert time.is_left()
    clock.time += 0.002
    assert not time.is_left()


def test_cycle_without_a_decision_is_cut_after_its_budget():
    clock = ManualClock()
    time = CycleTime(clock, lambda: False)
    clock.time += CYCLE_BUDGET_S - 0.001
    assert time.is_left()
    clock.time += 0.002
    assert not time.is_left()
