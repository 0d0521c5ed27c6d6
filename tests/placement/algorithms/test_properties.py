"""Whatever the cluster and the request: the promises of `place` (docs/decisions/0004) hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import ALWAYS_BEST_FIT, COMPACT, MIXED, Profile
from core.placement.engine import Decision, PodSetPlacement, place
from core.placement.refusals import RefusalKind
from tests.builders import Node
from tests.placement.reference import can_fit, compute_free_amounts, get_path, has_whole_slices, is_capacity, is_usable
from tests.strategies import Cluster, clusters, requests, scenes

PROFILES = st.sampled_from([MIXED, ALWAYS_BEST_FIT, COMPACT])


def find_node(cluster: Cluster, name: str) -> Node:
    return next(node for node in cluster.nodes if node.name == name)


def get_domain(cluster: Cluster, placement: PodSetPlacement, node: Node) -> tuple[str, ...]:
    """The assignment's name for the domain a node is in."""
    return tuple(node.labels[level] for level in placement.assignment.levels)


def check(cluster: Cluster, wanted: Sequence[PodSetRequest], decision: Decision) -> None:
    """All promises about pod sets placed one after the other."""
    free = compute_free_amounts(cluster)
    for request, placement in zip(wanted, decision.placements, strict=False):
        assert request.topology is not None
        assert placement.assignment.count == request.count
        assert all(domain.count > 0 for domain in placement.assignment.domains)
        values = [domain.values for domain in placement.assignment.domains]
        assert len(set(values)) == len(values)
        # The node plan is the assignment, node by node.
        planned: Counter[tuple[str, ...]] = Counter()
        for name, count in placement.nodes:
            node = find_node(cluster, name)
            assert is_usable(node, request)
            assert count > 0
            planned[get_domain(cluster, placement, node)] += count
            for resource, amount in {**request.requests, "pods": 1}.items():
                free[name][resource] = free[name].get(resource, 0) - amount * count
                assert free[name][resource] >= 0, f"{name} is over its {resource}"
        assert planned == Counter({domain.values: domain.count for domain in placement.assignment.domains})
        used = [(find_node(cluster, name), count) for name, count in placement.nodes]
        if request.topology.mode is Mode.REQUIRED:
            assert request.topology.level is not None
            assert len({get_path(cluster, node, request.topology.level) for node, _ in used}) == 1
        for layer in request.topology.slices:
            assert has_whole_slices(cluster, dict(placement.nodes), layer.level, layer.size, partial=request.topology.partial)


@given(scenes(), PROFILES)
def test_one_pod_set_is_placed_as_promised(scene: tuple[Cluster, PodSetRequest], profile: Profile):
    cluster, request = scene
    decision = place(cluster.view(), [request], profile)
    assert (decision.refusal is None) == (len(decision.placements) == 1)
    check(cluster, [request], decision)


@given(clusters(), st.data(), PROFILES)
def test_pod_sets_placed_in_sequence_never_share_capacity(cluster: Cluster, data: st.DataObject, profile: Profile):
    wanted = [data.draw(requests(cluster.levels, name=f"ps{i}")) for i in range(data.draw(st.integers(2, 3)))]
    view = cluster.view()
    before = view.free.copy()
    decision = place(view, wanted, profile)
    check(cluster, wanted, decision)
    assert (view.free == before).all(), "a placement reads the matrix and changes nothing"
    placed = len(decision.placements)
    assert placed == len(wanted) if decision.refusal is None else wanted[placed].name == decision.refusal.pod_set


@given(scenes(plain=True, max_nodes=5, cpus=3), PROFILES)
def test_a_pod_set_fits_if_and_only_if_some_spread_of_its_pods_does(scene: tuple[Cluster, PodSetRequest], profile: Profile):
    cluster, request = scene
    decision = place(cluster.view(), [request], profile)
    assert (decision.refusal is None) == can_fit(cluster, request)
    assert decision.refusal is None or is_capacity(decision.refusal.kind)


@given(scenes(max_nodes=5), PROFILES)
def test_taints_selectors_and_readiness_do_not_change_that(scene: tuple[Cluster, PodSetRequest], profile: Profile):
    cluster, request = scene
    assert (place(cluster.view(), [request], profile).refusal is None) == can_fit(cluster, request)


@given(scenes(plain=True, max_nodes=5))
def test_a_preferred_level_is_kept_whenever_one_of_its_domains_is_enough(scene: tuple[Cluster, PodSetRequest]):
    cluster, request = scene
    assert request.topology is not None
    for level in reversed(cluster.levels):
        layers = request.topology.slices
        if layers and cluster.levels.index(layers[0].level) < cluster.levels.index(level):
            continue  # a slice may not be wider than what holds it
        preferred = replace(request, topology=replace(request.topology, mode=Mode.PREFERRED, level=level))
        decision = place(cluster.view(), [preferred], MIXED)
        if can_fit(cluster, preferred, level=level):
            assert decision.refusal is None
            nodes = [find_node(cluster, name) for name, _ in decision.placements[0].nodes]
            assert len({get_path(cluster, node, level) for node in nodes}) == 1


@given(scenes(), PROFILES, st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_labels_does_not_matter(scene: tuple[Cluster, PodSetRequest], profile: Profile, random):
    cluster, request = scene
    order = list(range(len(cluster.nodes)))
    random.shuffle(order)

    def shuffled(node: Node) -> Node:
        labels, amounts = list(node.labels.items()), list(node.allocatable.items())
        random.shuffle(labels)
        random.shuffle(amounts)
        return replace(node, labels=dict(labels), allocatable=dict(amounts))

    other = replace(cluster, nodes=tuple(map(shuffled, cluster.nodes)), used=tuple(reversed(cluster.used)))
    assert place(cluster.view(), [request], profile) == place(other.view(order), [request], profile)


@given(scenes(), PROFILES, st.data())
def test_more_capacity_never_turns_a_fit_into_none(scene: tuple[Cluster, PodSetRequest], profile: Profile, data: st.DataObject):
    cluster, request = scene
    before = place(cluster.view(), [request], profile)
    lucky = data.draw(st.integers(0, len(cluster.nodes) - 1))
    more = {name: amount + data.draw(st.integers(0, 2000)) for name, amount in cluster.nodes[lucky].allocatable.items()}
    nodes = list(cluster.nodes)
    nodes[lucky] = replace(nodes[lucky], allocatable=more)
    after = place(replace(cluster, nodes=tuple(nodes)).view(), [request], profile)
    if before.refusal is None:
        assert after.refusal is None
        # Nor does it push a preferred pod set up to a higher level.
        assert cluster.levels.index(after.placements[0].level) >= cluster.levels.index(before.placements[0].level)


@given(scenes(), PROFILES)
def test_the_largest_fit_that_a_refusal_names_fits_and_one_unit_more_does_not(scene: tuple[Cluster, PodSetRequest], profile: Profile):
    cluster, request = scene
    assert request.topology is not None
    refusal = place(cluster.view(), [request], profile).refusal
    if refusal is None or refusal.kind is not RefusalKind.NOT_FIT:
        return
    assert refusal.explanation is not None
    largest, unit = refusal.explanation.largest_fit, request.topology.slices[0].size if request.topology.slices else 1
    assert largest < request.count
    assert largest == refusal.fit * unit
    assert refusal.wanted == request.count // unit
    if largest:
        assert place(cluster.view(), [replace(request, count=largest)], profile).refusal is None
    assert place(cluster.view(), [replace(request, count=largest + unit)], profile).refusal is not None


@given(scenes())
def test_every_unusable_node_is_counted_once_under_a_reason(scene: tuple[Cluster, PodSetRequest]):
    cluster, request = scene
    refusal = place(cluster.view(), [request], MIXED).refusal
    if refusal is None or refusal.explanation is None:
        return
    rooms = cluster.view()
    out = int((rooms.count_pods_that_fit(request, rooms.free) * rooms.find_eligible(request) == 0).sum())
    assert sum(exclusion.count for exclusion in refusal.explanation.exclusions) == out
    assert refusal.explanation.total_nodes == len(cluster.nodes)


@given(clusters(hostname=True))
def test_assignment_with_unique_hostnames_contains_only_the_hostname_level(cluster: Cluster):
    request = PodSetRequest("main", 1, {"cpu": 500})
    decision = place(cluster.view(), [request], MIXED)
    for placement in decision.placements:
        assert placement.assignment.levels == (HOSTNAME_LABEL,)
