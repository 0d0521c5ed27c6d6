"""Turns that are kept over the cycles of a round, while workloads come, change and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.queueing.ordering import iteration_order
from core.queueing.ordering.fair_order import FairTurns
from core.queueing.ordering.iteration_order import PriorityTurns, Turn, Turns
from core.queueing.ordering.pending import EquivalenceClass, Pending
from core.state.cluster import ClusterState
from tests.queueing.shared import Shared
from tests.strategies import scale_examples

ROUND = 0
Make = Callable[[ClusterState], Turns]
MAKERS: dict[str, Make] = {"by priority": lambda state: PriorityTurns(ROUND), "by fair share": lambda state: FairTurns(state, ROUND)}

names = st.integers(0, 9).map(lambda i: f"w{i}")
written = st.tuples(st.just("write"), names, st.sampled_from(["a", "b", "nowhere"]), st.sampled_from(["1", "2"]), st.integers(0, 1))
deleted = st.tuples(st.just("delete"), names)
had = st.tuples(st.sampled_from(["pass on", "put off", "end"]))
moved = st.tuples(st.just("borrow"), st.sampled_from(["a", "b"]))
lives = st.lists(st.one_of(written, written, deleted, had, had, had, moved), min_size=5, max_size=60)


class Life:
    """Turns that are kept, and at each cycle the same turns made anew of all groups. What has had its turn is noted at the groups."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self.scene = Shared(sharing=FairSharing())
        self.scene.pool("lender", "12", "cohort")
        for name in ("a", "b"):
            self.scene.pool(name, "1", "cohort")
        self._pending = Pending(self.scene.state.workloads)
        self.kept = make(self.scene.state)

    def act(self, kind: str, *with_: str | int) -> None:
        if kind == "write":
            name, queue, cpu, priority = with_
            created = f"2026-01-01T00:00:0{str(name)[1:]}Z"
            self.scene.submit(str(name), cpu=str(cpu), queue=str(queue), priority=priority, created=created)
        elif kind == "delete":
            self.scene.delete(str(with_[0]))
        elif kind == "borrow":
            self.scene.state.quota.add(str(with_[0]), {("tas", "cpu"): 1000})
        else:
            self.have_turn(kind)

    def have_turn(self, kind: str) -> None:
        following = self.kept.get_next()
        if following is None:
            return
        turn, may_borrow = following
        if kind == "put off" and not may_borrow and turn.workload.queue != "ns/nowhere":
            self.kept.put_off(turn)
        elif kind == "end":
            self.kept.end(turn)
        else:
            self.kept.add_follower(turn)

    def groups(self) -> list[EquivalenceClass]:
        return self._pending.list_classes()

    def begin_cycle(self) -> None:
        self._pending.sync()
        self.kept.begin(self._pending.collect_changed())

    def find_next(self) -> tuple[tuple[str, bool] | None, tuple[str, bool] | None]:
        """Whose turn it is by the turns that are kept, and by new ones."""
        anew = self._make(self.scene.state)
        anew.begin(self._pending.list_classes())
        found = [
            (following[0].workload.key, following[1]) if following is not None else None
            for following in (self.kept.get_next(), anew.get_next())
        ]
        return found[0], found[1]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@given(lives)
@settings(max_examples=scale_examples(2.5))
def test_turns_that_are_kept_while_workloads_change_are_those_made_anew(make: Make, actions: list[tuple[str, ...]]):
    life = Life(make)
    for action in actions:
        life.act(*action)
        life.begin_cycle()
        kept, anew = life.find_next()
        assert kept == anew


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_cycle_in_which_one_workload_comes_looks_at_its_group_alone(make: Make, monkeypatch: pytest.MonkeyPatch):
    """Found by the benchmark of worst cases: each cycle sorted all groups again, so that with 20,000 of them steps took up to 141 ms."""
    life = Life(make)
    for i in range(9):
        life.act("write", f"w{i}", "a", str(1 + i), 0)
    life.begin_cycle()
    life.have_turn("pass on")
    looked: list[int] = []
    first_turns = iteration_order.list_first_turns

    def count(groups: list[EquivalenceClass], in_round: int) -> list[Turn]:
        looked.append(len(groups))
        return first_turns(groups, in_round)

    for module in ("iteration_order", "fair_order"):
        monkeypatch.setattr(f"core.queueing.ordering.{module}.list_first_turns", count)
    life.act("write", "w9", "a", "99", 1)
    life.begin_cycle()
    assert life.kept.get_next() is not None
    assert looked == [1]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_workload_that_is_queued_anew_within_its_group_has_the_turn_of_its_new_place(make: Make):
    """Its former turn has the same index in the group, and another place in the order."""
    life = Life(make)
    for name in ("w1", "w5"):
        life.act("write", name, "a", "1", 0)
    life.act("write", "w3", "a", "2", 0)
    life.begin_cycle()
    life.act("write", "w1", "a", "1", 0)
    life.scene.delete("w1")
    life.scene.submit("w1", cpu="1", queue="a", created="2026-01-01T00:00:04Z")
    life.begin_cycle()
    had = []
    while (following := life.kept.get_next()) is not None:
        had.append(following[0].workload.key)
        life.kept.add_follower(following[0])
    assert had == ["ns/w3", "ns/w1", "ns/w5"]


def test_groups_that_must_borrow_have_their_turns_in_order_and_are_not_late_in_the_next_round():
    life = Life(MAKERS["by priority"])
    for number in (7, 2, 9, 4, 0, 5, 1, 8, 3, 6):
        life.act("write", f"w{number}", "a", str(1 + number), 0)
    life.begin_cycle()
    for number in range(10):
        following = life.kept.get_next()
        assert following is not None
        assert (following[0].workload.key, following[1]) == (f"ns/w{number}", False)
        life.kept.put_off(following[0])
    for number in range(10):
        following = life.kept.get_next()
        assert following is not None
        assert (following[0].workload.key, following[1]) == (f"ns/w{number}", True)
        life.kept.add_follower(following[0])
    assert life.kept.get_next() is None
    anew = PriorityTurns(ROUND + 1)
    anew.begin(life.groups())
    following = anew.get_next()
    assert following is not None
    assert (following[0].workload.key, following[1]) == ("ns/w0", False)
