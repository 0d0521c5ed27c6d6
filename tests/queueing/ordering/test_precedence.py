"""Workloads that would have to borrow, and those of other queues that could reclaim that quota at once."""

from __future__ import annotations

from typing import Any

import pytest

from core.queueing.flavors.outcome import Admissible
from core.queueing.ordering.precedence import MOST_NOTED
from tests.queueing.shared import ALL_MAY, Shared

LOOSE = {"unconstrained": True}


def share(red: dict[str, Any] | None = None, blue: dict[str, Any] | None = None, **of_small: Any) -> Shared:
    """Of 16 cpu each of two queues owns 8, and 9 are in use. `high` would borrow 2 of red's and `big` 2 of blue's; `small`, which is behind
    `big`, needs what is red's own. No two of them fit."""
    scene = Shared()
    scene.rack("r", 4)
    scene.pool("red", "8", "all", **{"preemption": ALL_MAY, **(red or {})})
    scene.pool("blue", "8", "all", **{"preemption": ALL_MAY, **(blue or {})})
    scene.submit("runs-red", 4, queue="red", priority=200, topology=LOOSE)
    scene.submit("runs-blue", 5, queue="blue", priority=200, topology=LOOSE)
    scene.run()
    scene.submit("big", 6, queue="red", priority=1, topology=LOOSE)
    scene.submit("small", queue="red", topology=LOOSE, **{"count": 4, **of_small})
    scene.submit("high", 5, queue="blue", priority=100, topology=LOOSE)
    return scene


def play(scene: Shared) -> list[str]:
    """Cycles until nothing changes: names of those that were evicted."""
    gone: list[str] = []
    for _ in range(6):
        scene.run()
        for name in sorted(scene.evicted()):
            gone.append(name)
            scene.leave(name)
    return gone


def test_workload_that_borrows_is_not_admitted_before_one_behind_a_waiting_head_that_would_reclaim_its_quota():
    """Seed 9636: a workload of high priority was admitted each time that a place became free, and evicted as soon as its pods were ready:
    13 times within half an hour."""
    scene = share()
    assert play(scene) == []
    assert scene.running() == {"runs-red", "runs-blue", "big"}


def test_workload_that_borrows_is_evicted_for_none_of_those_that_follow_one_another_in_the_queue_that_lends():
    scene = share()
    scene.submit("huge", 12, queue="red", priority=50, topology=LOOSE)
    scene.submit("next", 4, queue="red", topology=LOOSE)
    gone = play(scene)
    for name in ("big", "small", "next"):
        scene.finish(name)
        gone += play(scene)
    assert gone == []
    assert "high" in scene.running()


@pytest.mark.parametrize(
    ("red", "of_small"),
    [
        ({"preemption": {"reclaimWithinCohort": "LowerPriority"}}, {}),
        ({"preemption": {}}, {}),
        ({"queueingStrategy": "StrictFIFO"}, {}),
        ({}, {"count": 1, "cpu": "5"}),
        ({}, {"count": 5}),
    ],
    ids=["it may not reclaim from a higher priority", "it may reclaim nothing", "it may not pass", "no node has room", "it would borrow"],
)
def test_workload_that_borrows_goes_by_its_priority_where_none_could_reclaim_its_quota(red: dict[str, Any], of_small: dict[str, Any]):
    scene = share(red, **of_small)
    assert play(scene) == []
    assert scene.running() == {"runs-red", "runs-blue", "high"}


def test_workload_of_higher_priority_that_may_reclaim_by_it_comes_before_one_that_borrows():
    scene = share({"preemption": {"reclaimWithinCohort": "LowerPriority"}})
    scene.submit("rival", 6, queue="red", priority=150, topology=LOOSE)
    scene.submit("equal", 4, queue="red", priority=101, topology=LOOSE)
    assert play(scene) == []
    assert scene.running() == {"runs-red", "runs-blue", "rival"}


def test_workloads_that_are_refused_already_do_not_hide_one_that_would_reclaim():
    scene = share()
    scene.delete("small")
    for number in range(MOST_NOTED + 1):
        scene.submit(f"wide{number}", 20 + number, queue="red", topology=LOOSE)
    scene.delete("high")
    scene.delete("big")
    scene.run()
    scene.submit("big", 6, queue="red", priority=1, topology=LOOSE)
    scene.submit("small", 4, queue="red", topology=LOOSE)
    scene.submit("high", 5, queue="blue", priority=100, topology=LOOSE)
    assert play(scene) == []
    assert scene.running() == {"runs-red", "runs-blue", "big"}


def test_workload_that_cannot_be_judged_keeps_none_of_another_queue_from_its_turn(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise ValueError("written past all checks")

    monkeypatch.setattr("core.queueing.ordering.precedence.find_admission", fail)
    scene = share()
    assert "high" in {name for name, outcome in scene.run().items() if isinstance(outcome, Admissible)}


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_workload_that_gave_way_is_admitted_once_none_is_left_that_could_reclaim(strategy: str):
    scene = share(blue={"preemption": ALL_MAY, "queueingStrategy": strategy})
    scene.submit("behind", 1, queue="blue", topology=LOOSE)
    assert play(scene) == []
    assert "high" not in scene.running()
    scene.delete("big")
    scene.delete("small")
    assert play(scene) == []
    assert {"high"} <= scene.running()


def test_two_queues_with_workloads_that_could_reclaim_from_each_other_admit_those_first():
    scene = share()
    scene.submit("own", 3, queue="blue", topology=LOOSE)
    verdicts = scene.run()
    assert {name for name, outcome in verdicts.items() if isinstance(outcome, Admissible)} == {"small", "own"}
    assert play(scene) == []
