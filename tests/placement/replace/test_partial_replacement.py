"""Partial slices of which pods are lost, and that grow and shrink: completed where they are, moved whole, last in the order of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.engine import Decision
from core.placement.refusals import RefusalKind, format_refusal
from core.placement.replace.replacement import replace_failed
from core.placement.replace.resized_pod_sets import resize
from core.placement.topology.placed_pods import PlacedPodSet
from tests.builders import BLOCK, RACK, THREE_LEVELS, build_grid, build_view
from tests.placement.algorithms.test_partial_slices import is_partial_last
from tests.placement.promises import can_complete, find_broken_promises
from tests.placement.reference import compute_room
from tests.placement.replace.test_replacement import admit, compute_free_beside, compute_survivors, with_usage
from tests.strategies import Cluster, clusters, requests, roomy

HOST = HOSTNAME_LABEL


def ask(count: int, mode: Mode = Mode.REQUIRED, level: str | None = BLOCK, size: int = 4) -> PodSetRequest:
    return PodSetRequest("main", count, {"cpu": 1000}, TopologyRequest(mode, level, (SliceLayer(RACK, size),), partial=True))


def on(*pods: tuple[str, int]) -> TopologyAssignment:
    return TopologyAssignment((HOST,), tuple(DomainCount((name,), count) for name, count in pods))


def list_places(decision: Decision) -> list[tuple[str, int]]:
    assert decision.refusal is None, format_refusal("t", decision.refusal)
    return [(domain.values[-1], domain.count) for domain in decision.placements[0].assignment.domains]


def fail(count: int, *pods: tuple[str, int], failed: Sequence[str]) -> Decision:
    job = PlacedPodSet(ask(count), on(*pods))
    return replace_failed(with_usage(build_view(THREE_LEVELS, build_grid(1, 2, 4)), job), [job], failed, MIXED)


# --- replacement --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "failed", "placed"),
    [
        pytest.param(
            [("b0-r1-n0", 4), ("b0-r0-n0", 1), ("b0-r0-n1", 1)],
            ["b0-r0-n0"],
            [("b0-r1-n0", 4), ("b0-r0-n1", 2)],
            id="a part of the partial slice is completed where it is",
        ),
        pytest.param(
            [("b0-r1-n0", 2), ("b0-r1-n1", 2), ("b0-r0-n0", 2)],
            ["b0-r1-n1"],
            [("b0-r1-n0", 4), ("b0-r0-n0", 2)],
            id="a part of a whole one is, too, and the partial one stays last",
        ),
        pytest.param(
            [("b0-r0-n0", 4), ("b0-r0-n1", 2)],
            ["b0-r0-n1"],
            [("b0-r0-n0", 4), ("b0-r0-n2", 2)],
            id="all of it goes back beside the whole slice that it was with",
        ),
        pytest.param(
            [("b0-r0-n0", 3), ("b0-r0-n1", 3)],
            ["b0-r0-n1"],
            [("b0-r0-n0", 4), ("b0-r0-n2", 2)],
            id="parts of both",
        ),
        pytest.param(
            [("b0-r1-n0", 4), ("b0-r0-n0", 2)],
            ["b0-r0-n0"],
            [("b0-r1-n0", 4), ("b0-r1-n1", 2)],
            id="all that its rack had goes where the others are",
        ),
    ],
)
def test_lost_pods_of_slices_come_back_and_the_partial_slice_is_last(
    pods: list[tuple[str, int]], failed: list[str], placed: list[tuple[str, int]]
):
    assert list_places(fail(sum(count for _, count in pods), *pods, failed=failed)) == placed


def test_replacement_that_would_split_a_slice_is_refused_and_names_the_node():
    job = PlacedPodSet(ask(7, size=4), on(("b0-r0-n0", 3), ("b0-r0-n1", 1), ("b0-r1-n0", 1), ("b0-r1-n1", 2)))
    view = with_usage(build_view(THREE_LEVELS, build_grid(1, 2, 2)), job)
    for name, cpus in (("b0-r0-n1", 3), ("b0-r0-n0", 1), ("b0-r1-n0", 3), ("b0-r1-n1", 2)):
        view.use_node(name, {"cpu": cpus * 1000})
    refusal = replace_failed(view, [job], ["b0-r0-n1"], MIXED).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.NOT_FIT
    assert "cannot replace the node b0-r0-n1 without splitting a PodSet slice: 1 more pod must complete slices of 4" in format_refusal(
        "t", refusal
    )


def test_another_slice_that_lost_pods_is_the_partial_one_where_it_cannot_be_completed():
    job = PlacedPodSet(ask(6), on(("b0-r1-n0", 2), ("b0-r1-n1", 2), ("b0-r0-n0", 2)))
    view = with_usage(build_view(THREE_LEVELS, build_grid(1, 2, 2)), job)
    view.use_node("b0-r1-n0", {"cpu": 2000})
    assert list_places(replace_failed(view, [job], ["b0-r1-n1"], MIXED)) == [("b0-r0-n0", 4), ("b0-r1-n0", 2)]


def test_partial_slice_stays_last_beside_a_node_that_left_the_topology():
    """Rack r0 has the partial slice, with a pod on a node that has no level labels any more; a pod of r1 is lost."""
    away = {"gone": {BLOCK: "b0", RACK: "b0-r0", HOST: "gone"}}
    pods = on(("b0-r1-n0", 2), ("b0-r1-n1", 2), ("b0-r0-n0", 1), ("gone", 1))
    job = PlacedPodSet(ask(6), pods, outside={(name,): labels for name, labels in away.items()})
    view = with_usage(build_view(THREE_LEVELS, build_grid(1, 2, 3)), PlacedPodSet(job.request, on(*[("b0-r1-n0", 2), ("b0-r0-n0", 1)])))
    found = list_places(replace_failed(view, [job], ["b0-r1-n1"], MIXED))
    assert found == [("b0-r1-n0", 4), ("b0-r0-n0", 1), ("gone", 1)]


@st.composite
def partial_accidents(draw: st.DrawFn) -> tuple[Cluster, PodSetRequest, PlacedPodSet, list[str], int]:
    """A pod set with a partial slice, placed and counted, the nodes of it that fail, and the seed of what else."""
    cluster = roomy(draw(clusters(plain=True, hostname=True, max_nodes=6)))
    wanted = draw(requests(cluster.levels, plain=True, partial=True))
    assert wanted.topology is not None
    assume(wanted.topology.slices and wanted.count % wanted.topology.slices[0].size)
    _, (before,) = admit(cluster, [wanted])
    used = sorted(name for name, _ in before.nodes)
    failed = draw(st.lists(st.sampled_from(used), min_size=1, unique=True))
    return cluster, wanted, PlacedPodSet(wanted, before.assignment), failed, draw(st.integers(0, 4))


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(partial_accidents())
def test_a_pod_set_with_a_partial_slice_is_replaced_if_and_only_if_there_is_a_way(
    accident: tuple[Cluster, PodSetRequest, PlacedPodSet, list[str], int],
):
    cluster, wanted, held, failed, _ = accident
    view, _ = admit(cluster, [wanted])
    stay = compute_survivors(view, [wanted], [held], failed)
    free = compute_free_beside(cluster, [wanted], stay)
    rooms = {node.name: 0 if node.name in failed else compute_room(node, wanted, free[node.name]) for node in cluster.nodes}
    decision = replace_failed(view, [held], failed, MIXED)
    possible = can_complete(cluster, wanted, stay["main"], wanted.count - sum(stay["main"].values()), rooms)
    assert (decision.refusal is None) == possible
    if decision.refusal is None:
        assert find_broken_promises(cluster, [wanted], decision, stay, free, failed) == []
        assert is_partial_last(cluster, wanted, decision.placements[0])
    else:
        assert decision.refusal.kind is not RefusalKind.STALE_ASSIGNMENT


# --- resizing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "count", "placed"),
    [
        pytest.param([("b0-r1-n0", 4), ("b0-r0-n0", 2)], 7, [("b0-r1-n0", 4), ("b0-r0-n0", 3)], id="the partial one grows"),
        pytest.param([("b0-r1-n0", 4), ("b0-r0-n0", 2)], 8, [("b0-r0-n0", 4), ("b0-r1-n0", 4)], id="and becomes whole"),
        pytest.param([("b0-r1-n0", 4), ("b0-r0-n0", 2)], 9, [("b0-r1-n0", 4), ("b0-r0-n0", 4), ("b0-r0-n1", 1)], id="then comes another"),
        pytest.param([("b0-r1-n0", 4), ("b0-r0-n0", 2)], 5, [("b0-r1-n0", 4), ("b0-r0-n0", 1)], id="it shrinks"),
        pytest.param([("b0-r1-n0", 4), ("b0-r0-n0", 2)], 4, [("b0-r1-n0", 4)], id="it goes"),
        pytest.param([("b0-r0-n0", 4), ("b0-r1-n0", 4)], 7, [("b0-r0-n0", 4), ("b0-r1-n0", 3)], id="a whole one becomes partial"),
        pytest.param([("b0-r0-n0", 3), ("b0-r1-n0", 3)], 8, [("b0-r0-n0", 4), ("b0-r1-n0", 4)], id="two broken ones are completed"),
        pytest.param([("b0-r0-n0", 3), ("b0-r1-n0", 3)], 7, [("b0-r0-n0", 4), ("b0-r1-n0", 3)], id="one of two broken ones is completed"),
    ],
)
def test_resized_pod_set_has_one_partial_slice_at_most(before: list[tuple[str, int]], count: int, placed: list[tuple[str, int]]):
    decision = resize(build_view(THREE_LEVELS, build_grid(1, 2, 3)), [ask(count)], {"main": on(*before)}, MIXED)
    found = list_places(decision)
    assert found == placed


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(partial_accidents())
def test_resizing_a_pod_set_with_a_partial_slice_keeps_every_promise(accident: tuple[Cluster, PodSetRequest, PlacedPodSet, list[str], int]):
    cluster, wanted, held, _, change = accident
    for count in (wanted.count + change, max(1, wanted.count - change)):
        other = replace(wanted, count=count)
        decision = resize(cluster.view(), [other], {"main": held.assignment}, MIXED)
        if decision.refusal is None:
            free = compute_free_beside(cluster, [wanted], {"main": {}})
            assert find_broken_promises(cluster, [other], decision, {}, free) == []
            assert is_partial_last(cluster, other, decision.placements[0])
        else:
            assert decision.refusal.kind is RefusalKind.NOT_FIT
            assert count > wanted.count
