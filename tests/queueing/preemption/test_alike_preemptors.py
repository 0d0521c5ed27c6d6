"""Alike workloads that preempt: how many do before the first victims have left."""

from __future__ import annotations

import pytest

from core.queueing.ordering.portions import MOST_S
from tests.queueing.ordering.test_portions import Slow


@pytest.mark.parametrize("is_alike", [True, False])
@pytest.mark.parametrize("portions", [0.0, 0.75])
def test_alike_workloads_preempt_all_that_they_need_before_the_first_victims_are_gone(portions: float, is_alike: bool):
    """Review 30: with decisions that take long two of four did, and the others once those had left."""
    scene = Slow()
    scene.cost = MOST_S * portions
    scene.pool("slow", "999", preemption={"withinClusterQueue": "LowerPriority"})
    for number in range(4):
        scene.submit(f"low{number}", 4, cpu="1", queue="slow", priority=0)
    for _ in range(8):
        scene.run()
    for number in range(4):
        scene.submit(f"high{number}", 4, cpu="1", queue="slow", priority=9 if is_alike else 9 - number)
    for _ in range(20):
        scene.run()
    assert scene.evicted() == {f"low{number}" for number in range(4)}
    for name in sorted(scene.evicted()):
        scene.leave(name)
    for _ in range(8):
        scene.run()
    assert scene.running() == {f"high{number}" for number in range(4)}
