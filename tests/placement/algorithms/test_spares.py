"""Nodes that are kept free beside a pod set: there are some whenever there can be, in its domain, and large enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.decision import Decision
from core.placement.algorithms.profile import COMPACT, MIXED
from core.placement.engine import OneDomain, place
from core.placement.refusals import RefusalKind
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request
from tests.placement.promises import find_broken_promises
from tests.placement.reference import compute_free_amounts, compute_room
from tests.strategies import Cluster, clusters, jobs, requests, roomy


def build_rack(name: str, *cpus: int) -> list[Node]:
    """One rack of block b0, its nodes by the CPUs that they have."""
    nodes = [(f"{name}-n{i}", cpu) for i, cpu in enumerate(cpus)]
    labels = {BLOCK: "b0", RACK: name}
    return [Node(node, labels | {HOSTNAME_LABEL: node}, {"cpu": cpu * 1000, "pods": 110}) for node, cpu in nodes]


def decide(nodes: Sequence[Node], *wanted: PodSetRequest, together: OneDomain | None = None) -> Decision:
    return place(build_view(THREE_LEVELS, nodes), wanted, MIXED, together=together)


def get_pods_and_spares(decision: Decision, pod_set: int = 0) -> tuple[dict[str, int], dict[str, int]]:
    assert decision.refusal is None, decision.refusal
    placement = decision.placements[pod_set]
    return dict(placement.nodes), dict(placement.spares)


# --- one pod set --------------------------------------------------------------------------------------


def test_a_rack_that_has_both_is_taken_as_it_is():
    pods, spares = get_pods_and_spares(decide(build_grid(2, 2, 3), request(8, Mode.REQUIRED, RACK, spares=1)))
    assert pods == {"b0-r0-n0": 4, "b0-r0-n1": 4}
    assert spares == {"b0-r0-n2": 4}


def test_the_tightest_rack_for_the_pods_is_left_for_one_that_has_the_spares_too():
    nodes = [*build_rack("r0", 4, 4), *build_rack("r1", 4, 4, 4)]
    assert get_pods_and_spares(decide(nodes, request(8, Mode.REQUIRED, RACK)))[0] == {"r0-n0": 4, "r0-n1": 4}
    pods, spares = get_pods_and_spares(decide(nodes, request(8, Mode.REQUIRED, RACK, spares=1)))
    assert set(pods) | set(spares) == {"r1-n0", "r1-n1", "r1-n2"}


def test_the_largest_node_is_kept_where_the_small_ones_hold_the_pods():
    """What no choice after the placement finds: the engine fills the large node, and then no other is as large."""
    nodes = build_rack("r0", 2, 2, 4)
    assert get_pods_and_spares(decide(nodes, request(4, Mode.REQUIRED, RACK)))[0] == {"r0-n2": 4}
    pods, spares = get_pods_and_spares(decide(nodes, request(4, Mode.REQUIRED, RACK, spares=1)))
    assert pods == {"r0-n0": 2, "r0-n1": 2}
    assert spares == {"r0-n2": 2}


def test_spare_node_has_exactly_room_for_the_pods_of_the_fullest_node():
    pods, spares = get_pods_and_spares(decide(build_rack("r0", 3, 3, 3, 8), request(5, Mode.REQUIRED, RACK, spares=1)))
    assert max(pods.values()) == max(spares.values())


def test_preferred_stays_in_one_domain_with_its_spares_as_far_down_as_that_goes():
    nodes = [*build_rack("r0", 4, 4), *build_rack("r1", 4, 4, 4)]
    pods, spares = get_pods_and_spares(decide(nodes, request(8, Mode.PREFERRED, RACK, spares=1)))
    assert {name[:2] for name in (*pods, *spares)} == {"r1"}
    pods, spares = get_pods_and_spares(decide(nodes, request(8, Mode.PREFERRED, RACK, spares=2)))
    assert ({name[:2] for name in pods}, len(spares)) == ({"r0"}, 2)  # the block has both, and the pods are together


def test_an_unconstrained_one_has_its_spares_anywhere():
    pods, spares = get_pods_and_spares(decide(build_grid(2, 1, 2), request(4, Mode.UNCONSTRAINED, spares=3)))
    assert (len(pods), len(spares)) == (1, 3)


def test_auto_takes_the_lowest_level_that_has_both():
    nodes = [*build_rack("r0", 4, 4), *build_rack("r1", 4)]
    pods, spares = get_pods_and_spares(decide(nodes, request(8, Mode.REQUIRED, "auto", spares=1)))
    assert set(pods) | set(spares) == {"r0-n0", "r0-n1", "r1-n0"}


def test_spares_of_two_pod_sets_share_no_node():
    wanted = [request(4, Mode.REQUIRED, RACK, name=name, spares=1) for name in ("one", "two")]
    decision = decide(build_grid(1, 1, 4), *wanted)
    taken = [name for i in range(2) for part in get_pods_and_spares(decision, i) for name in part]
    assert sorted(taken) == ["b0-r0-n0", "b0-r0-n1", "b0-r0-n2", "b0-r0-n3"]
    assert decide(build_grid(1, 1, 3), *wanted).refusal is not None


def test_a_group_keeps_spares_for_its_workers_where_it_is():
    topology = request(1, Mode.REQUIRED, RACK).topology
    assert topology is not None
    shared = replace(topology, group="g")
    leader = replace(request(1, name="leader"), topology=shared)
    workers = replace(request(7, name="workers", spares=1), topology=shared)
    nodes = [*build_rack("r0", 4, 4), *build_rack("r1", 4, 4, 4)]
    decision = decide(nodes, leader, workers)
    (_, none), (_, spares) = (get_pods_and_spares(decision, i) for i in range(2))
    assert (none, set(spares)) == ({}, {"r1-n2"})


def test_pod_sets_tied_to_one_domain_have_their_spares_in_it():
    tie = OneDomain(RACK, True, "a test")
    nodes = [*build_rack("r0", 4, 4), *build_rack("r1", 4, 4, 4)]
    decision = decide(nodes, request(4, name="a", spares=1), request(4, name="b"), together=tie)
    assert {name[:2] for i in range(2) for part in get_pods_and_spares(decision, i) for name in part} == {"r1"}


def test_with_the_compact_profile_too():
    decision = place(build_view(THREE_LEVELS, build_rack("r0", 2, 2, 4)), [request(4, Mode.REQUIRED, RACK, spares=1)], COMPACT)
    assert get_pods_and_spares(decision)[1] == {"r0-n2": 2}


# --- refusals -----------------------------------------------------------------------------------------


def test_refusal_for_lack_of_spares_names_the_rack_with_the_most_room():
    nodes = [*build_rack("r0", 4, 4), *build_rack("r1", 4, 4, 4)]
    refusal = decide(nodes, request(8, Mode.REQUIRED, RACK, spares=2)).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.NO_SPARES
    assert (refusal.fit, refusal.wanted) == (0, 2)
    assert all(part in refusal.detail for part in ("8 pods", f"{RACK} b0/r1", "1 of the 2 spare nodes"))


def test_refusal_without_room_for_one_spare_names_it():
    refusal = decide(build_rack("r0", 4, 4), request(8, Mode.REQUIRED, RACK, spares=2)).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.NO_SPARES
    assert f"no {RACK}" in refusal.detail


def test_pods_that_do_not_fit_are_refused_as_ever():
    plain = decide(build_rack("r0", 4, 4), request(9, Mode.REQUIRED, RACK)).refusal
    assert decide(build_rack("r0", 4, 4), request(9, Mode.REQUIRED, RACK, spares=1)).refusal == plain


def test_without_hostnames_no_node_is_anybodys_to_keep():
    refusal = place(build_view((BLOCK, RACK), build_grid(1, 1, 3)), [request(4, Mode.REQUIRED, RACK, spares=1)], MIXED).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.SPARES_WITHOUT_HOSTNAME
    assert HOSTNAME_LABEL in refusal.detail
    assert f"{BLOCK}, {RACK}" in refusal.detail


# --- against trying everything out --------------------------------------------------------------------


def compute_rooms(cluster: Cluster, wanted: PodSetRequest) -> dict[str, int]:
    free = compute_free_amounts(cluster)
    return {node.name: compute_room(node, wanted, free[node.name]) for node in cluster.nodes}


def can_be(cluster: Cluster, wanted: PodSetRequest) -> bool:
    """Whether any assignment leaves its spares, found by trying all."""
    holds = compute_rooms(cluster, wanted)
    topology = wanted.topology
    assert topology is not None
    depth = cluster.levels.index(topology.level) + 1 if topology.mode is Mode.REQUIRED and topology.level else 0
    domains: dict[tuple[str, ...], list[str]] = {}
    for node in cluster.nodes:
        domains.setdefault(tuple(node.labels[level] for level in cluster.levels[:depth]), []).append(node.name)
    for nodes in domains.values():
        for counts in product(*(range(min(holds[name], wanted.count) + 1) for name in nodes)):
            most = max(counts)
            if sum(counts) == wanted.count and whole(cluster, wanted, dict(zip(nodes, counts, strict=True))):
                left = sum(not count and holds[name] >= most for name, count in zip(nodes, counts, strict=True))
                if left >= wanted.spares:
                    return True
    return False


def whole(cluster: Cluster, wanted: PodSetRequest, counts: dict[str, int]) -> bool:
    assert wanted.topology is not None
    nodes = {node.name: node for node in cluster.nodes}
    for layer in wanted.topology.slices:
        depth = cluster.levels.index(layer.level) + 1
        per_domain: Counter[tuple[str, ...]] = Counter()
        for name, count in counts.items():
            per_domain[tuple(nodes[name].labels[level] for level in cluster.levels[:depth])] += count
        if any(count % layer.size for count in per_domain.values()):
            return False
    return True


@st.composite
def sliced(draw: st.DrawFn) -> tuple[Cluster, PodSetRequest]:
    cluster = roomy(draw(clusters(max_nodes=5, hostname=True, cpus=3)))
    return cluster, replace(draw(requests(cluster.levels, max_count=6)), spares=1)


@given(sliced())
def test_with_slices_and_one_spare_too(scene: tuple[Cluster, PodSetRequest]):
    cluster, wanted = scene
    assert (place(cluster.view(), [wanted], MIXED).refusal is None) == can_be(cluster, wanted)


@st.composite
def unsliced(draw: st.DrawFn) -> tuple[Cluster, PodSetRequest]:
    cluster = draw(clusters(max_nodes=6, hostname=True, cpus=5))
    wanted = draw(requests(cluster.levels, max_count=6))
    assert wanted.topology is not None
    return cluster, replace(wanted, topology=replace(wanted.topology, slices=()), spares=draw(st.integers(1, 2)))


@given(unsliced())
def test_whenever_there_is_a_way_it_is_found(scene: tuple[Cluster, PodSetRequest]):
    cluster, wanted = scene
    decision = place(cluster.view(), [wanted], MIXED)
    assert (decision.refusal is None) == can_be(cluster, wanted)


@given(st.data())
def test_spares_are_whole_nodes_of_the_domain_with_room_and_the_rest_is_as_promised(data: st.DataObject):
    cluster = roomy(data.draw(clusters(hostname=True)))
    wanted = [replace(one, spares=data.draw(st.integers(0, 2))) for one in data.draw(jobs(cluster.levels))]
    decision = place(cluster.view(), wanted, MIXED)
    if decision.refusal is not None:
        return
    free = compute_free_amounts(cluster)
    assert not find_broken_promises(cluster, wanted, decision, {}, free)
    nodes = {node.name: node for node in cluster.nodes}
    for one, placement in zip(wanted, decision.placements, strict=True):
        for name, count in (*placement.nodes, *placement.spares):
            assert compute_room(nodes[name], one, free[name]) >= count
            for resource, amount in {**one.requests, "pods": 1}.items():
                free[name][resource] = free[name].get(resource, 0) - amount * count
    for one, placement in zip(wanted, decision.placements, strict=True):
        assert len(placement.spares) == one.spares
        assert not dict(placement.nodes).keys() & dict(placement.spares).keys()
        assert {count for _, count in placement.spares} <= {max((count for _, count in placement.nodes), default=0)}
        topology = one.topology
        if topology is not None and topology.mode is Mode.REQUIRED and topology.level in cluster.levels:
            depth = cluster.levels.index(topology.level) + 1
            places = {
                tuple(nodes[name].labels[level] for level in cluster.levels[:depth]) for name, _ in (*placement.nodes, *placement.spares)
            }
            assert len(places) == 1


@given(st.data())
def test_the_order_of_nodes_does_not_matter(data: st.DataObject):
    cluster = roomy(data.draw(clusters(hostname=True)))
    wanted = [replace(one, spares=data.draw(st.integers(0, 2))) for one in data.draw(jobs(cluster.levels))]
    order = data.draw(st.permutations(range(len(cluster.nodes))))
    here, there = (place(view, wanted, MIXED) for view in (cluster.view(), cluster.view(order)))
    assert [(p.assignment, tuple(p.spares)) for p in here.placements] == [(p.assignment, tuple(p.spares)) for p in there.placements]
    assert (here.refusal is None) == (there.refusal is None)


@pytest.mark.parametrize("mode", list(Mode))
def test_request_without_spares_gets_no_spares(mode: Mode):
    level = RACK if mode in (Mode.REQUIRED, Mode.PREFERRED) else None
    decision = decide(build_grid(2, 2, 3), request(8, mode, level))
    assert not any(placement.spares for placement in decision.placements)
