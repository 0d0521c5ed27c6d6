"""Partial slices (gate TASPartialSlices): the worked examples, and what must hold whatever the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import decode, encode
from core.names import BALANCED_PROFILE, HOSTNAME_LABEL
from core.placement.algorithms.profile import (
    ALWAYS_BEST_FIT,
    ALWAYS_LEAST_FREE,
    ALWAYS_MOST_FREE,
    COMPACT,
    MIXED,
    read_profiles,
)
from core.placement.algorithms.slices import Shape, find_shape
from core.placement.engine import Decision, PodSetPlacement, place
from core.placement.explain.choice import explain_choice
from core.placement.refusals import RefusalKind, format_refusal
from core.placement.topology.tree import NodeLabels, TopologyTree
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view
from tests.placement.algorithms.test_properties import check
from tests.placement.reference import can_fit, compute_free_amounts, compute_room, get_path, has_whole_slices
from tests.strategies import Cluster, clusters, requests, scenes

PROFILES = [MIXED, ALWAYS_BEST_FIT, ALWAYS_LEAST_FREE, ALWAYS_MOST_FREE, COMPACT, read_profiles({}).named[BALANCED_PROFILE]]
HOST = HOSTNAME_LABEL


def build_racks(*rooms: Sequence[int] | int) -> list[Node]:
    """Racks r0, r1, ... of one block, each with a node for each number of pods of one CPU."""
    found = []
    for r, room in enumerate(rooms):
        for n, cpus in enumerate([room] if isinstance(room, int) else room):
            labels = {BLOCK: "b", RACK: f"r{r}", HOST: f"r{r}-n{n}"}
            found.append(Node(f"r{r}-n{n}", labels, {"cpu": cpus * 1000, "pods": 110}))
    return found


def ask(count: int, mode: Mode = Mode.REQUIRED, level: str | None = BLOCK, *, at: str = RACK, size: int = 4) -> PodSetRequest:
    return PodSetRequest("main", count, {"cpu": 1000}, TopologyRequest(mode, level, (SliceLayer(at, size),), partial=True))


def place_one(nodes: Sequence[Node], request: PodSetRequest) -> Decision:
    return place(build_view(THREE_LEVELS, nodes), [request], MIXED)


def count_by_rack(decision: Decision) -> list[tuple[str, int]]:
    """Pods per rack in the order of the assignment; a rack that is left and entered again comes twice."""
    (placement,) = decision.placements
    pods = [(domain.values[-1].partition("-")[0], domain.count) for domain in placement.assignment.domains]
    return [(rack, sum(count for _, count in group)) for rack, group in groupby(pods, key=lambda pair: pair[0])]


# --- worked examples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("racks", "placed"),
    [
        pytest.param([9, 6], [("r0", 8), ("r1", 2)], id="A has two whole, B the partial one"),
        pytest.param([10, 6], [("r0", 10)], id="A takes all of them"),
        pytest.param([9, 1], None, id="no rack has room for the partial one"),
    ],
)
def test_ten_pods_in_slices_of_four_are_two_whole_and_one_of_two(racks: list[int], placed: list[tuple[str, int]] | None):
    decision = place_one(build_racks(*racks), ask(10))
    assert (None if decision.refusal is not None else count_by_rack(decision)) == placed


@pytest.mark.parametrize(
    ("racks", "count", "placed"),
    [
        pytest.param([8, 4, 6], 6, [("r2", 6)], id="one domain holds all, the tightest by whole slices"),
        pytest.param([8, 4, 4, 6], 14, [("r0", 8), ("r3", 6)], id="of equally many whole slices the one with room closes"),
        pytest.param([10, 4], 14, [("r1", 4), ("r0", 10)], id="one that is in use has the partial one"),
        pytest.param([8, 4, 3, 2], 14, [("r0", 8), ("r1", 4), ("r3", 2)], id="another is opened, the tightest"),
        pytest.param([2, 5], 2, [("r0", 2)], id="no whole slice at all"),
    ],
)
def test_the_partial_slice_goes_where_the_best_fit_has_room(racks: list[int], count: int, placed: list[tuple[str, int]]):
    assert count_by_rack(place_one(build_racks(*racks), ask(count))) == placed


def test_below_the_slices_pods_are_dealt_one_by_one_and_the_partial_slice_is_published_last():
    decision = place_one(build_racks([1, 1], [3, 5], [4]), ask(10))
    (placement,) = decision.placements
    assert count_by_rack(decision) == [("r1", 8), ("r0", 2)]
    assert [domain.values for domain in placement.assignment.domains] == [("r1-n0",), ("r1-n1",), ("r0-n0",), ("r0-n1",)]


def test_slices_of_one_pod_or_without_a_rest_have_the_shape_they_have_without_the_gate():
    tree = TopologyTree(THREE_LEVELS, [NodeLabels(node.name, node.labels) for node in build_grid(1, 1, 2)])
    for count, size in ((8, 4), (5, 1)):
        asked = ask(count, size=size)
        assert asked.topology is not None
        without = replace(asked, topology=replace(asked.topology, partial=False))
        assert find_shape(tree, asked) == find_shape(tree, without)
    assert find_shape(tree, ask(10)) == Shape(0, 1, 4, (1, 4, 1), "slice", tail=2)


def test_uneven_slices_in_layers_are_refused_and_the_gate_is_not_named():
    asked = ask(10)
    layers = (SliceLayer(RACK, 4), SliceLayer(HOST, 2))
    refusal = place_one(build_grid(1, 2, 4), replace(asked, topology=TopologyRequest(Mode.REQUIRED, BLOCK, layers, partial=True))).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.UNEVEN_SLICES
    assert refusal.detail == "pod set main: slice size 4 does not evenly divide the 10 pods, as it must with more than one layer"


def test_leader_and_fifteen_workers_are_three_whole_slices_and_one_of_three_beside_the_leader():
    """A LeaderWorkerSet of 16 in racks of four nodes, a pod on each (issue #15111 of Kueue)."""
    nodes = build_grid(1, 4, 4, cpu=1)
    shared = TopologyRequest(Mode.REQUIRED, BLOCK, (SliceLayer(RACK, 4),), group="g", partial=True)
    workers = PodSetRequest("workers", 15, {"cpu": 1000}, shared)
    leader = PodSetRequest("leader", 1, {"cpu": 1000}, replace(shared, slices=()))
    decision = place(build_view(THREE_LEVELS, nodes), [leader, workers], MIXED)
    assert decision.refusal is None
    racks = [Counter(name[:5] for name, count in placement.nodes for _ in range(count)) for placement in decision.placements]
    ((home, _),) = racks[0].items()
    assert sorted(racks[1].values()) == [3, 4, 4, 4]
    assert racks[1][home] == 3
    assert [domain.values[-1][:5] for domain in decision.placements[1].assignment.domains[-3:]] == [home] * 3
    without = place(build_view(THREE_LEVELS, nodes[1:]), [leader, workers], MIXED).refusal
    assert without is not None
    assert (without.fit, without.wanted) == (3, 4)


# --- explanations -------------------------------------------------------------------------------------


def test_refusal_counts_the_partial_slice_and_names_it_where_only_that_does_not_fit():
    refusal = place_one(build_racks(9, 1), ask(10)).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.fit, refusal.wanted, refusal.unit) == (RefusalKind.NOT_FIT, 2, 3, "slice")
    text = format_refusal("t", refusal)
    assert text.startswith('topology "t" allows to fit only 2 out of 3 slice(s)')
    assert "cannot place the partial slice of PodSet main in a single topology domain" in text
    assert "It would fit with 1 pod fewer" in text or "9 pods" in text


def test_refusal_for_want_of_whole_slices_does_not_name_the_partial_one():
    refusal = place_one(build_racks(3, 3), ask(10)).refusal
    assert refusal is not None
    assert (refusal.fit, refusal.wanted) == (1, 3)
    assert "partial slice" not in format_refusal("t", refusal)


def test_choice_counts_the_partial_slice():
    view, asked = build_view(THREE_LEVELS, build_racks(9, 6)), ask(10)
    (choice,) = explain_choice(view, [asked], place(view, [asked], MIXED))
    assert (choice.wanted, choice.unit, choice.able) == (3, "slice", 1)


# --- properties ---------------------------------------------------------------------------------------


@given(scenes(plain=True, max_nodes=5, cpus=3, partial=True), st.sampled_from(PROFILES))
def test_a_pod_set_with_a_partial_slice_fits_if_and_only_if_some_spread_of_its_pods_does(scene: tuple[Cluster, PodSetRequest], profile):
    cluster, request = scene
    decision = place(cluster.view(), [request], profile)
    check(cluster, [request], decision)
    assert (decision.refusal is None) == can_fit(cluster, request)
    for placement in decision.placements:
        assert is_partial_last(cluster, request, placement)


def is_partial_last(cluster: Cluster, request: PodSetRequest, placement: PodSetPlacement) -> bool:
    """Whether the domains of the slice level stand together, in order but for the last one, which alone has a rest."""
    assert request.topology is not None
    if not request.topology.slices:
        return True
    (layer,) = request.topology.slices
    values = {tuple(node.labels[level] for level in placement.assignment.levels): node for node in cluster.nodes}
    if HOST not in cluster.levels or layer.level not in cluster.levels:
        homes = [domain.values[: cluster.levels.index(layer.level) + 1] for domain in placement.assignment.domains]
    else:
        homes = [get_path(cluster, values[domain.values], layer.level) for domain in placement.assignment.domains]
    pods = Counter[tuple[str, ...]]()
    for home, domain in zip(homes, placement.assignment.domains, strict=True):
        pods[home] += domain.count
    together = [home for home, _ in groupby(homes)]
    return len(together) == len(pods) and all(pods[home] % layer.size == 0 for home in together[:-1]) and is_sorted(together[:-1])


def is_sorted(homes: Sequence[tuple[str, ...]]) -> bool:
    return list(homes) == sorted(homes)


@given(scenes(max_nodes=5, partial=True), st.sampled_from(PROFILES))
def test_the_largest_fit_that_a_refusal_names_fits_and_one_pod_more_does_not(scene: tuple[Cluster, PodSetRequest], profile):
    cluster, request = scene
    assert request.topology is not None
    refusal = place(cluster.view(), [request], profile).refusal
    if (
        refusal is None
        or refusal.kind is not RefusalKind.NOT_FIT
        or not request.topology.slices
        or not request.count % (size := request.topology.slices[0].size)
    ):
        return
    assert refusal.explanation is not None
    largest = refusal.explanation.largest_fit
    assert refusal.wanted == -(-request.count // size)
    assert largest < request.count
    if largest:
        assert place(cluster.view(), [replace(request, count=largest)], profile).refusal is None
        assert place(cluster.view(), [replace(request, count=largest + 1)], profile).refusal is not None


@given(clusters(plain=True, max_nodes=5, cpus=3), st.data(), st.sampled_from(PROFILES))
def test_a_leader_and_workers_with_a_partial_slice_fit_if_and_only_if_some_spread_does(cluster: Cluster, data: st.DataObject, profile):
    request = data.draw(requests(cluster.levels, plain=True, partial=True).filter(lambda each: each.topology and each.topology.level))
    assert request.topology is not None
    asked = data.draw(requests(cluster.levels, plain=True, name="leader"))
    workers = replace(request, topology=replace(request.topology, group="g"))
    leader = replace(asked, count=1, topology=replace(request.topology, slices=(), group="g"))
    decision = place(cluster.view(), [workers, leader], profile)
    assert (decision.refusal is None) == can_lead(cluster, workers, leader)
    if decision.refusal is None:
        check_group(cluster, [workers, leader], decision)


def can_lead(cluster: Cluster, workers: PodSetRequest, leader: PodSetRequest) -> bool:
    """Whether there is a node for the leader beside which the workers fit, in the same domain where one is required."""
    assert workers.topology is not None
    free = compute_free_amounts(cluster)
    for node in cluster.nodes:
        if not compute_room(node, leader, free[node.name]):
            continue
        level = workers.topology.level if workers.topology.mode is Mode.REQUIRED else None
        near = [each for each in cluster.nodes if level is None or get_path(cluster, each, level) == get_path(cluster, node, level)]
        rest = replace(cluster, nodes=tuple(near), used=(*_list_used(cluster, near), (node.name, {**leader.requests, "pods": 1}, 1)))
        if can_fit(rest, workers):
            return True
    return False


def _list_used(cluster: Cluster, near: Sequence[Node]):
    names = {node.name for node in near}
    return [use for use in cluster.used if use[0] in names]


def check_group(cluster: Cluster, wanted: Sequence[PodSetRequest], decision: Decision) -> None:
    free = compute_free_amounts(cluster)
    for request, placement in zip(wanted, decision.placements, strict=True):
        assert request.topology is not None
        assert placement.assignment.count == request.count
        for name, count in placement.nodes:
            for resource, amount in {**request.requests, "pods": 1}.items():
                free[name][resource] -= amount * count
                assert free[name][resource] >= 0
        for layer in request.topology.slices:
            assert has_whole_slices(cluster, dict(placement.nodes), layer.level, layer.size, partial=True)
    if wanted[0].topology is not None and wanted[0].topology.mode is Mode.REQUIRED:
        level = wanted[0].topology.level
        assert level is not None
        nodes = {node.name: node for node in cluster.nodes}
        assert len({get_path(cluster, nodes[name], level) for each in decision.placements for name, _ in each.nodes}) == 1


# --- the published order ------------------------------------------------------------------------------


def test_published_order_is_kept_by_writing_and_reading_it():
    assignment = TopologyAssignment(("rack", HOST), tuple(DomainCount((f"r{i}", f"n{i}"), n) for i, n in ((1, 4), (3, 4), (2, 2))))
    assert decode(encode(assignment)) == assignment


@pytest.mark.parametrize(
    ("counts", "homes", "ordered"),
    [
        pytest.param((4, 2, 4), "abc", (0, 2, 1), id="the rest comes last"),
        pytest.param((1, 4, 1, 4), "abac", (1, 3, 0, 2), id="all domains of the slice level move together"),
        pytest.param((4, 4, 2), "abc", (0, 1, 2), id="it is last already"),
        pytest.param((4, 4), "ab", (0, 1), id="no rest"),
        pytest.param((6, 4), "ab", (1, 0), id="beside a whole slice"),
    ],
)
def test_domains_of_the_partial_slice_are_moved_last_and_stay_there(counts: tuple[int, ...], homes: str, ordered: tuple[int, ...]):
    domains = tuple(DomainCount((f"n{i}",), count) for i, count in enumerate(counts))
    moved = TopologyAssignment((HOST,), domains).move_partial_last(homes, 4)
    assert moved.domains == tuple(domains[i] for i in ordered)
    assert moved.move_partial_last([homes[i] for i in ordered], 4) == moved
