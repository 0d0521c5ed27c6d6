"""How long one step of deciding may take."""

from core.plan.steps import pacing
from reconciler.schedule.scheduler import StepTime
from tests.runtime.fakes import ManualClock


def test_half_of_a_step_is_left_when_the_first_question_comes_late():
    """Where much comes before the first turn each cycle that was cut off would end at once."""
    clock = ManualClock()
    time = StepTime(clock, pacing.DECIDING_S)
    clock.time += 1
    assert time.is_left()
    clock.time += pacing.DECIDING_S / 2 - 0.001
    assert time.is_left()
    clock.time += 0.002
    assert not time.is_left()


def test_time_before_the_first_question_counts():
    clock = ManualClock()
    time = StepTime(clock, pacing.DECIDING_S)
    clock.time += pacing.DECIDING_S / 4
    assert time.is_left()
    clock.time += pacing.DECIDING_S / 2
    assert time.is_left()
    clock.time += pacing.DECIDING_S / 4 + 0.001
    assert not time.is_left()
