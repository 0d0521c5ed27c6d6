"""How many pods have their devices: never more than there are, and as many as a patient person would find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.model.step_budget import PLACEMENT_STEPS, StepBudget
from core.podgroups.devices.node_limits import Rations, SharedCell

Cell = tuple[int, int, tuple[bool, ...]]  # kinds (a bit each), devices, nodes that reach it


@st.composite
def rations(draw: st.DrawFn, *, kinds: int = 2, shared: int = 2, most_taken: int = 1) -> tuple[Rations, list[Cell]]:
    """Over one to three nodes, and the same as cells."""
    nodes, number = draw(st.integers(1, 3)), draw(st.integers(1, kinds))
    some_kinds, reach = st.integers(1, 2**number - 1), st.lists(st.booleans(), min_size=nodes, max_size=nodes)
    own, cells = np.zeros((2**number, nodes), dtype=np.int64), []
    for node in range(nodes):
        for of_kinds in range(1, 2**number):
            own[of_kinds, node] = draw(st.integers(0, 2))
            cells.append((of_kinds, int(own[of_kinds, node]), tuple(at == node for at in range(nodes))))
    of_several = [SharedCell(draw(some_kinds), draw(st.integers(0, 3)), np.array(draw(reach))) for _ in range(draw(st.integers(0, shared)))]
    cells += [(cell.kinds, cell.count, tuple(cell.reach.tolist())) for cell in of_several]
    taken = np.array([[draw(st.integers(0, most_taken)) for _ in range(nodes)] for _ in range(number)], dtype=np.int64)
    needs = tuple(tuple(draw(st.integers(0, 2)) for _ in range(number)) for _ in range(2))
    return Rations(needs, own, tuple(of_several), taken), cells


def have_devices(cells: Sequence[Cell], asked: Sequence[tuple[int, int]]) -> bool:
    """Whether each of some (kind, node) has a device of its own: by augmenting paths, one device at a time."""
    devices = [(kinds, reach) for kinds, count, reach in cells for _ in range(count)]
    given: dict[int, int] = {}

    def find(one: int, seen: set[int]) -> bool:
        kind, node = asked[one]
        for at, (kinds, reach) in enumerate(devices):
            if kinds >> kind & 1 and reach[node] and at not in seen:
                seen.add(at)
                if at not in given or find(given[at], seen):
                    given[at] = one
                    return True
        return False

    return all(find(one, set()) for one in range(len(asked)))


def asked_for(of: Rations, counts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """What so many pods of each set ask for on each node, and what is taken."""
    kinds, nodes = of.taken.shape
    found = []
    for kind, node in product(range(kinds), range(nodes)):
        times = int(of.taken[kind, node]) + sum(of.needs[number][kind] * one[node] for number, one in enumerate(counts))
        found += [(kind, node)] * times
    return found


def most(of: Rations, cells: Sequence[Cell], per_node: Sequence[int]) -> int:
    """The most pods of the first set that have their devices, by trying all."""
    ways = product(*(range(count + 1) for count in per_node))
    return max((sum(way) for way in ways if have_devices(cells, asked_for(of, [way]))), default=0)


rooms = st.lists(st.integers(0, 3), min_size=3, max_size=3)


@given(rations(most_taken=0), rooms, rooms)
def test_there_are_never_more_pods_than_devices(made: tuple[Rations, list[Cell]], room: list[int], room_of_others: list[int]) -> None:
    given_, cells = made
    nodes = given_.own.shape[1]
    first = given_.limit_pods(0, np.array(room[:nodes]))
    assert (first <= room[:nodes]).all()
    second = given_.compute_remaining(0, first).limit_pods(1, np.array(room_of_others[:nodes]))
    assert have_devices(cells, asked_for(given_, [first.tolist(), second.tolist()]))
    fewer = np.maximum(first - 1, 0)
    assert have_devices(cells, asked_for(given_, [fewer.tolist()])), "any part of it has its devices, too"


@given(rations(), rooms)
def test_rations_keep_an_earlier_promise_if_it_can_be_kept(made: tuple[Rations, list[Cell]], room: list[int]) -> None:
    given_, cells = made
    if have_devices(cells, asked_for(given_, [])):
        found = given_.limit_pods(0, np.array(room[: given_.own.shape[1]]))
        assert have_devices(cells, asked_for(given_, [found.tolist()]))


@given(rations(kinds=1, shared=1), rooms)
def test_of_one_kind_there_are_as_many_as_any_way_finds(made: tuple[Rations, list[Cell]], room: list[int]) -> None:
    given_, cells = made
    per_node = room[: given_.own.shape[1]]
    if have_devices(cells, asked_for(given_, [])):
        assert given_.limit_pods(0, np.array(per_node)).sum() == most(given_, cells, per_node)


@given(rations(kinds=2, shared=0), rooms)
def test_of_two_kinds_there_are_as_many_as_any_way_finds_where_nodes_share_none(made: tuple[Rations, list[Cell]], room: list[int]) -> None:
    given_, cells = made
    per_node = room[: given_.own.shape[1]]
    if have_devices(cells, asked_for(given_, [])):
        assert given_.limit_pods(0, np.array(per_node)).sum() == most(given_, cells, per_node)


@given(rations(shared=1), rooms, st.permutations(range(3)))
def test_the_order_of_nodes_does_not_change_how_many(made: tuple[Rations, list[Cell]], room: list[int], order: list[int]) -> None:
    given_, _ = made
    nodes = given_.own.shape[1]
    order = [at for at in order if at < nodes]
    turned = Rations(
        given_.needs,
        given_.own[:, order],
        tuple(SharedCell(cell.kinds, cell.count, cell.reach[order]) for cell in given_.shared),
        given_.taken[:, order],
    )
    per_node = np.array(room[:nodes])
    assert turned.limit_pods(0, per_node[order]).sum() == given_.limit_pods(0, per_node).sum()


def test_of_too_many_cells_the_smallest_are_left_out() -> None:
    everywhere = np.ones(1, dtype=bool)
    cells = tuple(SharedCell(1, count, everywhere) for count in (1, 2, 3, 4, 5, 6, 7))
    made = Rations(((1,),), np.zeros((2, 1), dtype=np.int64), cells, np.zeros((1, 1), dtype=np.int64))
    assert made.limit_pods(0, np.array([100])).tolist() == [25]


def test_rations_do_not_compensate_a_short_cell_by_another_cell() -> None:
    """One device for the first two nodes, and two for the third, which takes one pod."""
    cells = (SharedCell(1, 1, np.array([True, True, False])), SharedCell(1, 2, np.array([False, False, True])))
    made = Rations(((1,),), np.zeros((2, 3), dtype=np.int64), cells, np.zeros((1, 3), dtype=np.int64))
    found = made.limit_pods(0, np.array([1, 1, 1])).tolist()
    assert (sum(found), found[2]) == (2, 1)


def test_pods_of_one_node_that_need_shared_devices_are_added_in_few_steps() -> None:
    budget, everywhere = StepBudget(), np.ones(2, dtype=bool)
    cells = (SharedCell(1, 30_000, everywhere), SharedCell(3, 30_000, everywhere))
    made = Rations(((1, 1),), np.ones((4, 2), dtype=np.int64), cells, np.zeros((2, 2), dtype=np.int64), budget)
    assert made.limit_pods(0, np.array([20_000, 50_000])).sum() > 20_000
    assert budget.left > PLACEMENT_STEPS - 1_000


@given(rations(most_taken=0), rooms, st.integers(0, 300))
def test_without_steps_left_there_are_fewer_pods_and_never_more_than_devices(
    made: tuple[Rations, list[Cell]], room: list[int], steps: int
) -> None:
    given_, cells = made
    per_node = np.array(room[: given_.own.shape[1]])
    found = replace(given_, budget=StepBudget(steps)).limit_pods(0, per_node)
    assert have_devices(cells, asked_for(given_, [found.tolist()]))
    assert (found <= given_.limit_pods(0, per_node)).all()
