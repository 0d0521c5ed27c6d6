"""Workloads that get quota in another order than the one shown are found, and no others."""

from collections.abc import Iterable

import pytest

from core.queueing.ordering.waiting_order import WaitingWorkload, list_all_waiting
from sim.order import Room, find_out_of_order
from tests.queueing.shared import Shared


def build_shown() -> dict[str, WaitingWorkload]:
    """Two of a size and one of another in a queue, one of the first size in another queue, in the order that is shown."""
    made = Shared()
    made.rack("r", 8)
    made.pool("a", "8")
    made.pool("b", "8")
    for name, queue, count in (("first", "a", 2), ("large", "a", 4), ("second", "a", 2), ("other", "b", 2)):
        made.submit(name, queue=queue, count=count)
    return {each.workload.key.partition("/")[2]: each for each in list_all_waiting(made.state)}


SHOWN = build_shown()


def build_room(holding: Iterable[str]) -> Room:
    holds = frozenset(SHOWN[name].workload.uid for name in holding)
    return Room(holds, frozenset(each.workload.uid for each in SHOWN.values()) - holds)


@pytest.mark.parametrize(
    ("rooms", "in_strict", "in_other"),
    [
        ([["first"], ["first", "large"]], 0, 0),
        ([["first", "large", "second", "other"]], 0, 0),
        ([["other"]], 0, 0),  # of another queue
        ([["second"]], 2, 1),
        ([["large"]], 1, 0),
        ([["large"], ["large", "first"]], 1, 0),
        ([["first"], ["second"]], 1, 0),  # the first one has ended, the large one waits
    ],
)
def test_workload_that_gets_quota_before_one_shown_ahead_is_found(rooms: list[list[str]], in_strict: int, in_other: int):
    played = [build_room(holding) for holding in rooms]
    for strict, expected in ({"a"}, in_strict), (set[str](), in_other):
        assert len(list(find_out_of_order(list(SHOWN.values()), strict, played))) == expected
