"""A world without some workloads answers as the real one would once they are gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import PodSetRequest
from core.placement.algorithms.profile import MIXED
from core.placement.engine import place
from core.placement.topology.free_capacity import FreeCapacity, Matrix
from core.placement.what_if import Usage, WhatIf
from tests.builders import THREE_LEVELS, build_grid, build_view, request
from tests.strategies import Cluster, clusters, jobs, requests


def take(view, usage: Sequence[Usage], times: int = 1) -> None:
    for wanted, nodes in usage:
        for name, count in nodes:
            view.use_node(name, {**wanted.requests, "pods": 1}, times * count)


def copy_without(view: FreeCapacity, usage: Iterable[Usage]) -> Matrix:
    """The free matrix with some pods gone."""
    what_if = WhatIf(view)
    what_if.release(usage)
    return what_if.free


def test_a_victim_makes_room_without_touching_the_ledger():
    view = build_view(THREE_LEVELS, build_grid(1, 1, 1))
    victim: Usage = (request(3), (("b0-r0-n0", 3),))
    take(view, [victim])
    before = view.free.copy()
    assert place(view, [request(2)], MIXED).refusal is not None
    assert place(view, [request(2)], MIXED, free=copy_without(view, [victim])).refusal is None
    assert (view.free == before).all()


def test_a_victim_on_a_node_that_is_gone_frees_nothing():
    view = build_view(THREE_LEVELS, build_grid(1, 1, 1))
    assert (copy_without(view, [(request(3, requests={"cpu": 1, "unknown": 1}), (("elsewhere", 3),))]) == view.free).all()


def test_refusal_without_a_victim_equals_the_refusal_after_its_removal():
    """Found by hypothesis: what a victim had held counted as somebody else's that might go, too."""
    view = build_view(THREE_LEVELS, build_grid(1, 1, 1))
    (node,) = view.tree.names
    room = int(view.free[view.axis["pods"], 0])
    victim: Usage = (request(1, requests={"cpu": 1}), ((node, 1),))
    wanted = [request(room, requests={"cpu": 1}), replace(request(1, requests={"cpu": 1}), name="other")]
    take(view, [victim])
    imagined = place(view, wanted, MIXED, free=copy_without(view, [victim])).refusal
    take(view, [victim], -1)
    assert imagined == place(view, wanted, MIXED).refusal
    assert imagined is not None


@st.composite
def busy(draw: st.DrawFn) -> tuple[Cluster, list[Usage], list[int], list[PodSetRequest]]:
    """A cluster, workloads on it, which of them to think away, and a workload that asks."""
    cluster = draw(clusters())
    view = cluster.view()
    usage: list[Usage] = []
    for i in range(draw(st.integers(1, 4))):
        wanted = draw(requests(cluster.levels, max_count=4, name=f"w{i}"))
        for placement in place(view, [wanted], MIXED).placements:
            usage.append((wanted, placement.nodes))
            take(view, usage[-1:])
    victims = draw(st.lists(st.integers(0, max(0, len(usage) - 1)), unique=True)) if usage else []
    return cluster, usage, victims, draw(jobs(cluster.levels))


@given(busy())
def test_placing_without_victims_is_placing_after_they_are_gone(scene: tuple[Cluster, list[Usage], list[int], list[PodSetRequest]]):
    cluster, usage, victims, wanted = scene
    view = cluster.view()
    take(view, usage)
    gone = [usage[i] for i in victims]
    imagined = place(view, wanted, MIXED, free=copy_without(view, gone))
    take(view, gone, -1)
    assert imagined == place(view, wanted, MIXED)


@given(busy())
def test_steps_of_a_search_can_be_undone_in_any_order(scene: tuple[Cluster, list[Usage], list[int], list[PodSetRequest]]):
    cluster, usage, victims, _ = scene
    view = cluster.view()
    take(view, usage)
    world = WhatIf(view)
    for victim in victims:
        world.release([usage[victim]])
    for victim in sorted(victims):
        world.use_capacity([usage[victim]])
    assert (world.free == view.free).all()
