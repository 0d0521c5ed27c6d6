"""Groups with slices that lose nodes or change their size: no slice is split, and the leader stays in the domain of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.model.podset import PodSetRequest
from core.placement.algorithms.profile import MIXED
from core.placement.refusals import RefusalKind, format_refusal
from core.placement.replace.replacement import replace_failed
from core.placement.replace.resized_pod_sets import resize
from core.placement.topology.placed_pods import PlacedPodSet
from tests.builders import Node, build_grid
from tests.placement.algorithms.test_grouped_slices import build_group, groups, pin
from tests.placement.algorithms.test_partial_slices import build_racks, is_partial_last
from tests.placement.promises import Pods, can_complete, find_broken_promises, is_required
from tests.placement.reference import compute_room, get_path
from tests.placement.replace.test_replacement import (
    admit,
    build_placed_pod_set,
    compute_free_beside,
    compute_survivors,
    fail,
    get_places,
    get_refusal,
)
from tests.strategies import Cluster, clusters, roomy


def test_lost_nodes_of_a_group_are_replaced_in_their_rack():
    """A LeaderWorkerSet of 8 in racks of four nodes, a pod on each; a fifth node of the rack is free."""
    leader, workers = build_group(7, 4, partial=True)
    nodes = build_grid(1, 2, 5, cpu=1)
    pods = build_placed_pod_set(workers, b0_r1_n0=1, b0_r1_n1=1, b0_r1_n2=1, b0_r1_n3=1, b0_r0_n1=1, b0_r0_n2=1, b0_r0_n3=1)
    answer = fail(nodes, build_placed_pod_set(leader, b0_r0_n0=1), pods, failed=["b0-r0-n0"])
    assert get_places(answer, "leader") == {"b0-r0-n4": 1}
    answer = fail(nodes, build_placed_pod_set(leader, b0_r0_n0=1), pods, failed=["b0-r0-n1"])
    assert get_places(answer, "leader") == {"b0-r0-n0": 1}
    assert list(get_places(answer, "workers"))[-3:] == ["b0-r0-n2", "b0-r0-n3", "b0-r0-n4"], "the partial slice is last"


def test_leader_takes_no_place_that_the_slices_of_its_workers_need():
    """Lost are the leader, which may run in r0 and r1, a part of the slice in r0, which one CPU there completes, and a slice that fits r1
    tightest. The leader alone would take the CPU in r0, and the workers alone all of r1; there is room for the slice in r2."""
    leader, workers = build_group(4, 2, **pin("r0", "r1"))
    nodes = build_racks([1, 1, 1], [2], [9], [3])
    held = build_placed_pod_set(leader, r3_n0=1), build_placed_pod_set(workers, r0_n0=1, r0_n1=1, r3_n0=2)
    answer = fail(nodes, *held, failed=["r0-n1", "r3-n0"])
    assert get_places(answer, "leader") == {"r1-n0": 1}
    assert get_places(answer, "workers") == {"r0-n0": 1, "r0-n2": 1, "r2-n0": 2}


def test_replacement_that_would_split_a_slice_of_a_group_is_refused_with_the_node():
    leader, workers = build_group(4, 4)
    nodes = build_grid(1, 2, 2, cpu=2)
    held = build_placed_pod_set(leader, b0_r1_n0=1), build_placed_pod_set(workers, b0_r0_n0=2, b0_r0_n1=2)
    refusal = get_refusal(fail(nodes, *held, failed=["b0-r0-n1"]))
    assert (refusal.kind, refusal.group) == (RefusalKind.NOT_FIT, ("workers",))
    assert "cannot replace the node b0-r0-n1 without splitting a PodSet slice" in format_refusal("t", refusal)


# --- properties ---------------------------------------------------------------------------------------


@st.composite
def accidents(draw: st.DrawFn) -> tuple[Cluster, list[PodSetRequest], list[PlacedPodSet], list[str]]:
    """A group with one layer of slices, placed, and the nodes of it that fail."""
    cluster = roomy(draw(clusters(plain=True, hostname=True, max_nodes=6)))
    wanted = draw(groups(cluster, plain=True))
    assert wanted[0].topology is not None
    assume(len(wanted[0].topology.slices) == 1)
    _, before = admit(cluster, wanted)
    used = sorted({name for placement in before for name, _ in placement.nodes})
    failed = draw(st.lists(st.sampled_from(used), min_size=1, unique=True))
    return cluster, wanted, [PlacedPodSet(each, at.assignment) for each, at in zip(wanted, before, strict=True)], failed


def can_complete_group(
    cluster: Cluster,
    workers: PodSetRequest,
    leader: PodSetRequest,
    stay: Mapping[str, Pods],
    free: dict[str, dict[str, int]],
    failed: list[str],
) -> bool:
    """Whether there is a node for the leader, if it has lost its own, beside which the workers can be completed; tries all of both."""
    assert workers.topology is not None
    healthy = [node for node in cluster.nodes if node.name not in failed]
    homes = [""] if stay["leader"] else [node.name for node in healthy if compute_room(node, leader, free[node.name])]
    for home in homes:
        left = {name: dict(amounts) for name, amounts in free.items()}
        for resource, amount in {**leader.requests, "pods": 1}.items() if home else ():
            left[home][resource] = left[home].get(resource, 0) - amount
        rooms = {node.name: compute_room(node, workers, left[node.name]) if node in healthy else 0 for node in cluster.nodes}
        if is_required(workers):
            there = {*stay["workers"], *stay["leader"], home}
            domains = {_get_domain(cluster, node, workers) for node in cluster.nodes if node.name in there}
            if len(domains) > 1:
                continue
            rooms = {node.name: rooms[node.name] if {_get_domain(cluster, node, workers)} == domains else 0 for node in cluster.nodes}
        missing = workers.count - sum(stay["workers"].values())
        if can_complete(cluster, workers, stay["workers"], missing, rooms):
            return True
    return False


def _get_domain(cluster: Cluster, node: Node, request: PodSetRequest) -> tuple[str, ...]:
    assert request.topology is not None
    assert request.topology.level is not None
    return get_path(cluster, node, request.topology.level)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(accidents())
def test_a_group_with_slices_is_replaced_if_and_only_if_there_is_a_way(
    accident: tuple[Cluster, list[PodSetRequest], list[PlacedPodSet], list[str]],
):
    cluster, wanted, held, failed = accident
    workers, leader = wanted
    view, _ = admit(cluster, wanted)
    stay = compute_survivors(view, wanted, held, failed)
    free = compute_free_beside(cluster, wanted, stay)
    decision = replace_failed(view, held, failed, MIXED)
    assert (decision.refusal is None) == can_complete_group(cluster, workers, leader, stay, free, failed)
    if decision.refusal is None:
        assert find_broken_promises(cluster, wanted, decision, stay, free, failed) == []
        assert is_partial_last(cluster, workers, decision.placements[0])
    else:
        assert decision.refusal.kind is RefusalKind.NOT_FIT


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(accidents(), st.integers(-2, 2))
def test_a_group_with_slices_keeps_its_promises_when_its_workers_become_more_or_fewer(
    accident: tuple[Cluster, list[PodSetRequest], list[PlacedPodSet], list[str]], change: int
):
    cluster, (workers, leader), held, _ = accident
    assert workers.topology is not None
    step = 1 if workers.topology.partial else workers.topology.slices[0].size
    other = replace(workers, count=max(step, workers.count + change * step))
    previous = {each.request.name: each.assignment for each in held}
    decision = resize(cluster.view(), [other, leader], previous, MIXED)
    if decision.refusal is None:
        free = compute_free_beside(cluster, [workers], {"workers": {}})
        assert find_broken_promises(cluster, [other, leader], decision, {}, free) == []
        assert is_partial_last(cluster, other, decision.placements[0])
    else:
        assert decision.refusal.kind is RefusalKind.NOT_FIT
        assert other.count > workers.count
