"""Several pod sets: whatever their order, whoever is tied to whom, they fit if and only if there is a way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core.placement.explain.refusal_facts
from core.model.pod_traits import PodTerm, PodTraits, Requirement
from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.model.step_budget import PLACEMENT_STEPS, SENTENCE, StepBudget
from core.names import HOSTNAME_LABEL
from core.placement.algorithms import joint_search
from core.placement.algorithms.profile import ALWAYS_BEST_FIT, MIXED, Profile
from core.placement.changes import SuggestedChange
from core.placement.engine import OneDomain, place
from core.placement.explain.suggested_changes import Refused
from core.placement.refusals import NotFit, RefusalKind, format_refusal
from core.placement.topology.free_capacity import FreeCapacity
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request
from tests.placement.promises import find_broken_promises, find_shape_problems
from tests.placement.reference import _generate_spreads, compute_free_amounts, compute_room, get_path
from tests.strategies import Cluster, clusters, requests, scale_examples

PROFILES = st.sampled_from([MIXED, ALWAYS_BEST_FIT])
Spread = Mapping[str, int]


def generate_spreads(cluster: Cluster, wanted: Sequence[PodSetRequest], free: Mapping[str, Mapping[str, int]]) -> Iterator[list[Spread]]:
    """Every way to spread all pods of all pod sets over the nodes that keeps the promises of each."""
    if not wanted:
        yield []
        return
    first, *others = wanted
    for counts in _generate_spreads([compute_room(node, first, free[node.name]) for node in cluster.nodes], first.count):
        spread = {node.name: count for node, count in zip(cluster.nodes, counts, strict=True) if count}
        if any(find_shape_problems(cluster, first, spread)):
            continue
        left = {name: dict(amounts) for name, amounts in free.items()}
        for name, count in spread.items():
            for resource, amount in {**first.requests, "pods": 1}.items():
                left[name][resource] = left[name].get(resource, 0) - amount * count
        for rest in generate_spreads(cluster, others, left):
            yield [spread, *rest]


def is_together(cluster: Cluster, spreads: Sequence[Spread], level: str) -> bool:
    used = {name for spread in spreads for name in spread}
    return len({get_path(cluster, node, level) for node in cluster.nodes if node.name in used}) <= 1


@settings(max_examples=scale_examples(2.5))
@given(clusters(max_nodes=4, cpus=3), st.data(), PROFILES)
def test_pod_sets_fit_in_any_order_if_and_only_if_there_is_a_way(cluster: Cluster, data: st.DataObject, profile: Profile):
    wanted = [data.draw(requests(cluster.levels, max_count=4, name=f"ps{i}")) for i in range(data.draw(st.integers(2, 3)))]
    feasible = next(generate_spreads(cluster, wanted, compute_free_amounts(cluster)), None) is not None
    for order in permutations(wanted):
        decision = place(cluster.view(), order, profile)
        assert (decision.refusal is None) == feasible
        if feasible:
            assert [placement.pod_set for placement in decision.placements] == [each.name for each in order]
            assert find_broken_promises(cluster, order, decision, {}, compute_free_amounts(cluster)) == []


@settings(max_examples=scale_examples(2.5))
@given(clusters(max_nodes=4, cpus=3), st.data(), PROFILES)
def test_a_group_of_any_size_is_in_one_domain_if_and_only_if_one_holds_it(cluster: Cluster, data: st.DataObject, profile: Profile):
    level = data.draw(st.sampled_from(cluster.levels))
    members = [data.draw(requests(cluster.levels, max_count=3, name=f"ps{i}")) for i in range(data.draw(st.integers(2, 3)))]
    wanted = [replace(member, topology=TopologyRequest(Mode.REQUIRED, level, group="g")) for member in members]
    feasible = any(is_together(cluster, way, level) for way in generate_spreads(cluster, wanted, compute_free_amounts(cluster)))
    decision = place(cluster.view(), wanted, profile)
    assert (decision.refusal is None) == feasible
    if decision.refusal is None:
        assert find_broken_promises(cluster, wanted, decision, {}, compute_free_amounts(cluster)) == []
    else:
        assert decision.refusal.kind is not RefusalKind.NOT_FIT or set(decision.refusal.group) == {each.name for each in wanted}


@settings(max_examples=scale_examples(2.5))
@given(clusters(max_nodes=4, cpus=3), st.data(), st.booleans())
def test_a_workload_is_in_one_domain_where_that_is_required_and_wherever_it_can_be_where_preferred(
    cluster: Cluster, data: st.DataObject, required: bool
):
    level = data.draw(st.sampled_from(cluster.levels))
    below = cluster.levels[cluster.levels.index(level) :]
    wanted = [data.draw(requests(below, max_count=3, name=f"ps{i}")) for i in range(2)]
    all_ways = list(generate_spreads(cluster, wanted, compute_free_amounts(cluster)))
    decision = place(cluster.view(), wanted, MIXED, together=OneDomain(level, required, "the workload asks for it"))
    tied = [way for way in all_ways if is_together(cluster, way, level)]
    assert (decision.refusal is None) == bool(tied if required else all_ways)
    if decision.refusal is None:
        assert find_broken_promises(cluster, wanted, decision, {}, compute_free_amounts(cluster)) == []
        if tied:
            assert is_together(cluster, [dict(placement.nodes) for placement in decision.placements], level)


def test_unconstrained_pod_set_leaves_gpu_nodes_to_the_pod_set_that_needs_them():
    """Rule l of docs/decisions/0004, in its simplest form: the driver could be anywhere, the workers only where the GPUs are."""
    nodes = [replace(node, allocatable={**node.allocatable, "gpu": 4 * (i == 0)}) for i, node in enumerate(build_grid(1, 2, 1))]
    driver, workers = request(1, cpu=1000, name="driver"), request(4, requests={"cpu": 1000, "gpu": 1}, name="workers")
    decision = place(build_view(THREE_LEVELS, nodes), [driver, workers], MIXED)
    assert decision.looked_ahead
    assert [dict(placement.nodes) for placement in decision.placements] == [{"b0-r1-n0": 1}, {"b0-r0-n0": 4}]
    assert not place(build_view(THREE_LEVELS, nodes), [workers, driver], MIXED).looked_ahead


def test_each_pod_set_in_a_rack_and_all_in_one_block():
    """KEP-2724, Story 3."""
    view = build_view(THREE_LEVELS, build_grid(2, 2, 2))
    view.use_node("b0-r0-n0", {"cpu": 1000})
    wanted = [request(8, Mode.REQUIRED, RACK, name=f"ps{i}") for i in range(2)]
    assert {name[:2] for placement in place(view, wanted[:1], MIXED).placements for name, _ in placement.nodes} == {"b0"}
    decision = place(view, wanted, MIXED, together=OneDomain(BLOCK, True, "test"))
    assert [sorted(dict(placement.nodes)) for placement in decision.placements] == [["b1-r0-n0", "b1-r0-n1"], ["b1-r1-n0", "b1-r1-n1"]]


def test_refusal_of_joint_pod_sets_names_the_pod_sets_and_the_annotation():
    view = build_view(THREE_LEVELS, build_grid(2, 1, 1))
    wanted = [request(3, name="a"), request(3, name="b")]
    assert place(view, wanted, MIXED).refusal is None
    refusal = place(view, wanted, MIXED, together=OneDomain(BLOCK, True, "topogate.dev/workload-required-topology")).refusal
    assert refusal is not None
    assert refusal.group == ("a", "b")
    assert refusal.explanation is not None
    assert any("(a, b)" in note and f"{BLOCK} (topogate.dev/workload-required-topology)" in note for note in refusal.explanation.notes)
    unknown = place(view, wanted, MIXED, together=OneDomain("zone", True, "topogate.dev/workload-required-topology")).refusal
    assert unknown is not None
    assert unknown.kind is RefusalKind.UNKNOWN_LEVEL
    assert "'zone'" in unknown.detail
    assert ", ".join(THREE_LEVELS) in unknown.detail


def test_a_preferred_group_of_three_widens_as_a_whole():
    view = build_view((BLOCK, RACK, HOSTNAME_LABEL), build_grid(2, 2, 2))
    topology = TopologyRequest(Mode.PREFERRED, RACK, group="g")
    wanted = [replace(request(count, name=f"ps{count}"), topology=topology) for count in (4, 5, 6)]
    decision = place(view, wanted, MIXED)
    assert len({name[:2] for placement in decision.placements for name, _ in placement.nodes}) == 1
    small = [replace(each, count=each.count // 2) for each in wanted]
    assert len({name[:5] for placement in place(view, small, MIXED).placements for name, _ in placement.nodes}) == 1


def test_joint_search_without_steps_left_refuses_with_a_note():
    nodes = [replace(node, allocatable={**node.allocatable, "gpu": 4 * (i == 0)}) for i, node in enumerate(build_grid(1, 2, 1))]
    wanted = [request(1, cpu=1000, name="driver"), request(4, requests={"cpu": 1000, "gpu": 1}, name="workers")]
    refusal = place(build_view(THREE_LEVELS, nodes).copy_with_budget(StepBudget(1)), wanted, MIXED).refusal
    assert refusal is not None
    assert refusal.pod_set == "workers"
    assert SENTENCE in format_refusal("t", refusal)


def count_steps(view: FreeCapacity, wanted: Sequence[PodSetRequest]) -> tuple[int, NotFit | None]:
    """Steps of one decision, and its refusal."""
    budget = StepBudget()
    refusal = place(view.copy_with_budget(budget), wanted, MIXED).refusal
    return PLACEMENT_STEPS - budget.left, refusal


def test_pod_sets_that_do_not_fit_alone_are_not_searched_for_together():
    view = build_view(THREE_LEVELS, build_grid(4, 5, 12))
    single = count_steps(view, [request(60, Mode.REQUIRED, RACK, cpu=4000)])[0]
    steps, refusal = count_steps(view, [request(60, Mode.REQUIRED, RACK, cpu=4000, name=name) for name in "abc"])
    assert refusal is not None
    assert steps <= 4 * single


def test_joint_search_stops_at_its_part_of_the_budget():
    view = build_view(THREE_LEVELS, build_grid(4, 5, 12, cpu=8))
    steps, refusal = count_steps(view, [request(170, cpu=3000, name=name) for name in "abc"])
    assert steps < 2 * joint_search.JOINT_STEPS
    assert refusal is not None
    assert SENTENCE in format_refusal("t", refusal)


def build_tied_pod_sets(cluster_of: int) -> tuple[FreeCapacity, list[PodSetRequest]]:
    """Eight pod sets in one block, with affinity to their own kind by block, none of which leaves the next one room."""
    term = PodTerm(BLOCK, frozenset({"ns"}), None, (Requirement("app", "In", frozenset({"train"})),))
    traits = PodTraits("ns", {"app": "train"}, affinity=(term,))
    tied = TopologyRequest(Mode.REQUIRED, BLOCK, group="g")
    sets = [PodSetRequest(f"ps{i}", 1 if i < 7 else 5, {"cpu": 3000}, tied, traits=traits) for i in range(8)]
    return build_view(THREE_LEVELS, build_grid(cluster_of, 2, 5)), sets


def test_tied_pod_sets_are_explained_once_however_many_blocks_are_tried(monkeypatch: pytest.MonkeyPatch):
    view, sets = build_tied_pod_sets(64)
    explained: list[Refused] = []

    def counting(refused: Refused, fit: int) -> tuple[SuggestedChange, ...]:
        explained.append(refused)
        return ()

    monkeypatch.setattr(core.placement.explain.refusal_facts, "find_changes", counting)
    assert place(view, sets, MIXED).refusal is not None
    assert len(explained) == 1


def test_tied_pod_sets_share_one_budget_whatever_is_tried_inside():
    view, sets = build_tied_pod_sets(64)
    budget = StepBudget(20_000)
    refusal = place(view.copy_with_budget(budget), sets, MIXED).refusal
    assert budget.ran_out
    assert budget.left > -20 * len(sets) * view.pass_steps
    assert refusal is not None
    assert SENTENCE in format_refusal("t", refusal)


def of_group(*members: PodSetRequest) -> list[PodSetRequest]:
    return [replace(each, topology=replace(each.topology, group="g")) for each in members if each.topology is not None]


def test_a_group_of_three_without_a_level_is_placed_anywhere_or_refused_as_a_whole():
    view = build_view(THREE_LEVELS, build_grid(1, 2, 1))
    members = of_group(*(request(count, Mode.UNCONSTRAINED, name=f"ps{count}") for count in (1, 2, 3)))
    assert [sum(count for _, count in each.nodes) for each in place(view, members, MIXED).placements] == [1, 2, 3]
    refusal = place(view, of_group(*(request(3, Mode.UNCONSTRAINED, name=name) for name in "abc")), MIXED).refusal
    assert refusal is not None
    assert refusal.group == ("a", "b", "c")


def test_group_of_three_with_mixed_levels_is_refused():
    """Former defect: the level of one was lost, and three racks had pods."""
    view = build_view(THREE_LEVELS, build_grid(1, 3, 1))
    required = [request(2, Mode.REQUIRED, RACK, name=name) for name in "ab"]
    members = of_group(*required, request(3, Mode.UNCONSTRAINED, name="c"))
    refusal = place(view, members, MIXED).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.MIXED_GROUP
    assert refusal.group == ("a", "b", "c")
    assert all(each in refusal.detail for each in (f"a required {RACK}", f"b required {RACK}", "c unconstrained"))


def test_a_group_is_refused_as_a_whole_where_its_leader_asks_for_a_level_that_is_not_there():
    leader, workers = of_group(request(1, Mode.REQUIRED, "zone", name="leader"), request(4, Mode.REQUIRED, RACK, name="workers"))
    refusal = place(build_view(THREE_LEVELS, build_grid(1, 1, 2)), [leader, workers], MIXED).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.pod_set, refusal.group) == (RefusalKind.UNKNOWN_LEVEL, "leader", ("workers", "leader"))


@pytest.mark.parametrize("required", [True, False])
def test_mistake_of_one_joint_pod_set_is_reported_for_this_pod_set(required: bool):
    """A level that is not there, a selector that cannot be: no search would help."""
    view = build_view(THREE_LEVELS, build_grid(1, 1, 1))
    tie = OneDomain(BLOCK, required, "test")
    unknown = place(view, [request(1, name="a"), request(1, Mode.REQUIRED, "zone", name="b")], MIXED, together=tie).refusal
    assert unknown is not None
    assert (unknown.kind, unknown.pod_set) == (RefusalKind.UNKNOWN_LEVEL, "b")
    terms = [{"matchExpressions": [{"key": "pool", "operator": "Near"}]}]
    bad = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    invalid = place(view, [request(1, name="a"), request(1, name="b", affinity=bad)], MIXED, together=tie).refusal
    assert invalid is not None
    assert (invalid.kind, invalid.pod_set) == (RefusalKind.INVALID_SELECTOR, "b")


def test_pod_sets_tied_to_a_domain_are_looked_at_all_at_once_where_one_after_the_other_they_do_not_fit():
    nodes = [replace(node, allocatable={**node.allocatable, "gpu": 4 * ("r0" in node.name)}) for node in build_grid(2, 2, 1)]
    wanted = [request(1, cpu=1000, name="driver"), request(4, requests={"cpu": 1000, "gpu": 1}, name="workers")]
    decision = place(build_view(THREE_LEVELS, nodes), wanted, MIXED, together=OneDomain(BLOCK, True, "test"))
    assert decision.looked_ahead
    assert [dict(placement.nodes) for placement in decision.placements] == [{"b0-r1-n0": 1}, {"b0-r0-n0": 4}]


def test_looking_ahead_a_leader_goes_by_its_workers_topology():
    """By its own it could be anywhere, and the larger rack would be its place."""
    nodes = [
        replace(node, allocatable={"cpu": cpu, "pods": 9, "gpu": gpu})
        for node, cpu, gpu in zip(build_grid(1, 2, 1), (6000, 8000), (4, 0), strict=True)
    ]
    driver = request(1, Mode.UNCONSTRAINED, name="driver", cpu=2000)
    members = of_group(
        request(1, Mode.UNCONSTRAINED, name="leader", cpu=2000),
        request(4, Mode.REQUIRED, RACK, name="workers", requests={"cpu": 1000, "gpu": 1}),
    )
    for order in ([driver, *members], [driver, *members[::-1]]):
        decision = place(build_view(THREE_LEVELS, nodes), order, MIXED)
        assert decision.looked_ahead
        where = {placement.pod_set: dict(placement.nodes) for placement in decision.placements}
        assert where == {"driver": {"b0-r1-n0": 1}, "leader": {"b0-r0-n0": 1}, "workers": {"b0-r0-n0": 4}}


def test_looking_ahead_the_first_rack_that_holds_a_pod_set_is_taken():
    """Each rack has one node; the first pod set alone would take the place of the second."""

    def racks(cpus: tuple[int, ...]) -> list[Node]:
        nodes = build_grid(1, len(cpus), 1)
        return [
            replace(node, allocatable={"cpu": cpu, "pods": 9, "gpu": int(i == 0)})
            for i, (node, cpu) in enumerate(zip(nodes, cpus, strict=True))
        ]

    wanted = [request(2, Mode.REQUIRED, RACK, name="any"), request(1, requests={"cpu": 2000, "gpu": 1}, name="gpu")]
    for cpus, rack in (((3000, 1000, 8000, 8000), 2), ((3000, 8000, 8000, 8000), 1)):
        decision = place(build_view(THREE_LEVELS, racks(cpus)), wanted, MIXED)
        assert decision.looked_ahead
        assert [dict(placement.nodes) for placement in decision.placements] == [{f"b0-r{rack}-n0": 2}, {"b0-r0-n0": 1}]


@pytest.mark.parametrize(
    ("cpus", "fits"),
    [
        ((3000, 3000), True),
        ((3000, 2000), True),
        ((2000, 2000), False),
        ((4000, 1000), True),
        ((3000, 1000), False),
        ((4000,), False),
        ((5000,), True),
    ],
)
def test_workers_in_two_layers_of_slices_have_room_for_their_leader_beside_whole_ones_alone(cpus: tuple[int, ...], fits: bool):
    """Four workers of a rack, two and two on a node, and a leader of the size of one."""
    nodes = [replace(node, allocatable={"cpu": cpu, "pods": 9}) for node, cpu in zip(build_grid(1, 1, len(cpus)), cpus, strict=True)]
    workers = request(4, Mode.REQUIRED, RACK, name="workers", slices=[(RACK, 4), (HOSTNAME_LABEL, 2)])
    decision = place(build_view(THREE_LEVELS, nodes), of_group(workers, request(1, Mode.REQUIRED, RACK, name="leader")), MIXED)
    assert (decision.refusal is None) == fits
    if fits:
        assert all(count % 2 == 0 for _, count in decision.placements[0].nodes)


def test_leader_uses_the_room_that_inner_slices_leave():
    """The tighter rack has 2 + 1 places on one node and 2 on the other: the leader takes the odd one and costs no slice."""
    nodes = [
        replace(node, allocatable={"cpu": cpu, "pods": 9}) for node, cpu in zip(build_grid(1, 2, 2), (3000, 2000, 4000, 4000), strict=True)
    ]
    workers = request(4, Mode.REQUIRED, RACK, name="workers", slices=[(RACK, 4), (HOSTNAME_LABEL, 2)])
    decision = place(build_view(THREE_LEVELS, nodes), of_group(workers, request(1, Mode.REQUIRED, RACK, name="leader")), MIXED)
    assert not decision.looked_ahead
    where = {placement.pod_set: dict(placement.nodes) for placement in decision.placements}
    assert where == {"workers": {"b0-r0-n0": 2, "b0-r0-n1": 2}, "leader": {"b0-r0-n0": 1}}


def test_one_pod_set_alone_that_is_tied_and_does_not_fit_is_refused():
    """The rack has room for it and no node has: the search over all at once is then about one pod set."""
    nodes = [replace(node, allocatable={"cpu": 3000, "pods": 9}) for node in build_grid(1, 1, 2)]
    asked = request(4, Mode.REQUIRED, HOSTNAME_LABEL)
    decision = place(build_view(THREE_LEVELS, nodes), [asked], MIXED, together=OneDomain(RACK, False, "it is asked for"))
    assert decision.refusal is not None
    assert (decision.refusal.kind, decision.refusal.fit, decision.refusal.wanted) == (RefusalKind.NOT_FIT, 3, 4)
