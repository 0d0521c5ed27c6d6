"""How long one step of deciding may take."""

from reconciler.scheduler import DECIDING_S, StepTime
from tests.runtime.fakes import ManualClock


def test_time_of_a_step_begins_with_the_first_question():
    """Found defect B1: where much comes before the first turn each cycle that was cut off would end at once."""
    clock = ManualClock()
    time = StepTime(clock, DECIDING_S)
    clock.time += 1
    assert time.is_left()
    clock.time += DECIDING_S - 0.001
    assert time.is_left()
    clock.time += 0.002
    assert not time.is_left()
