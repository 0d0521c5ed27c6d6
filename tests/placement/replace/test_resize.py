"""Elastic pod sets: what stays, where new pods go, what is given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.engine import Decision, place
from core.placement.refusals import RefusalKind
from core.placement.replace.resized_pod_sets import resize
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request
from tests.placement.promises import can_complete, find_broken_promises
from tests.placement.reference import compute_free_amounts, compute_room
from tests.strategies import Cluster, clusters, jobs, roomy

HOST = HOSTNAME_LABEL
EVICTS = ("maintenance", "", "NoExecute")


def on(**pods: int) -> TopologyAssignment:
    """Pods on nodes, written with underscores for dashes."""
    return TopologyAssignment((HOST,), tuple(DomainCount((name.replace("_", "-"),), count) for name, count in sorted(pods.items())))


def get_places(decision: Decision, pod_set: str = "main") -> dict[str, int]:
    assert decision.refusal is None, decision.refusal
    found = next(each for each in decision.placements if each.pod_set == pod_set)
    return {domain.values[-1]: domain.count for domain in found.assignment.domains}


def change(nodes: Sequence[Node], wanted: PodSetRequest, **before: int) -> Decision:
    return resize(build_view(THREE_LEVELS, nodes), [wanted], {"main": on(**before)}, MIXED)


# --- growing ------------------------------------------------------------------------------------------


def test_a_pod_set_grows_inside_its_required_rack():
    """Kueue is wrong here: new pods were placed on their own (289 of 393 left the required domain)."""
    nodes = [*build_grid(1, 1, 3, cpu=8), *build_grid(2, 1, 1, cpu=2)[1:]]
    assert get_places(change(nodes, request(10, Mode.REQUIRED, RACK), b0_r0_n0=8)) == {"b0-r0-n0": 8, "b0-r0-n1": 2}


def test_it_does_not_grow_out_of_it():
    """Kueue is wrong here."""
    refusal = change(build_grid(2, 1, 2), request(9, Mode.REQUIRED, RACK), b0_r0_n0=4, b0_r0_n1=2).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.fit, refusal.wanted) == (RefusalKind.NOT_FIT, 2, 3)
    assert refusal.explanation is not None
    assert any("b0/b0-r0" in note for note in refusal.explanation.notes)


def test_several_pod_sets_that_grow_never_take_more_than_there_is():
    """Kueue is wrong here: several elastic pod sets could overcommit nodes."""
    one, other = request(3, name="one"), request(3, name="other")
    before = {"one": on(b0_r0_n0=2), "other": on(b0_r0_n0=2)}
    answer = resize(build_view(THREE_LEVELS, build_grid(1, 1, 2)), [one, other], before, MIXED)
    assert get_places(answer, "one") == {"b0-r0-n0": 2, "b0-r0-n1": 1}
    assert get_places(answer, "other") == {"b0-r0-n0": 2, "b0-r0-n1": 1}
    refusal = resize(build_view(THREE_LEVELS, build_grid(1, 1, 1)), [one, other], before, MIXED).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.NOT_FIT


def test_resize_gives_released_room_of_one_pod_set_to_another():
    before = {"one": on(b0_r0_n0=3), "other": on(b0_r0_n0=1)}
    answer = resize(build_view(THREE_LEVELS, build_grid(1, 1, 1)), [request(1, name="one"), request(3, name="other")], before, MIXED)
    assert (get_places(answer, "one"), get_places(answer, "other")) == ({"b0-r0-n0": 1}, {"b0-r0-n0": 3})


def test_with_preferred_the_nearest_domains_come_first():
    wanted = request(9, Mode.PREFERRED, RACK)
    assert get_places(change(build_grid(2, 2, 2), wanted, b0_r0_n0=4)) == {"b0-r0-n0": 4, "b0-r0-n1": 4, "b0-r1-n0": 1}


def test_whole_slices_are_added():
    wanted = request(6, Mode.REQUIRED, BLOCK, slices=[(RACK, 2)], cpu=2000)
    answer = change(build_grid(1, 3, 2, cpu=3), wanted, b0_r0_n0=1, b0_r0_n1=1, b0_r1_n0=1, b0_r1_n1=1)
    assert get_places(answer) == {f"b0-r{rack}-n{node}": 1 for rack in range(3) for node in range(2)}


def test_a_pod_set_without_a_previous_assignment_is_new():
    assert get_places(resize(build_view(THREE_LEVELS, build_grid(1, 1, 1)), [request(2)], {}, MIXED)) == {"b0-r0-n0": 2}


def test_pods_of_a_node_that_is_gone_are_placed_with_the_new_ones():
    assert get_places(change(build_grid(2, 1, 2), request(6, Mode.REQUIRED, RACK), b0_r0_n0=2, deleted=2)) == {"b0-r0-n0": 2, "b0-r0-n1": 4}


@pytest.mark.parametrize(
    "doubt", [{"ready": False}, {"unschedulable": True}, {"allocatable": {"cpu": 1000, "pods": 9}}, {"taints": (EVICTS,)}]
)
def test_pods_on_a_doubtful_node_stay_there(doubt: dict[str, Any]):
    """Former defect: a node blipped while a job grew, its pods ran on outside of the assignment, and places were used twice."""
    nodes = [replace(node, **doubt) if node.name == "b0-r0-n0" else node for node in build_grid(2, 1, 2)]
    wanted, before = request(5, Mode.REQUIRED, RACK), {"main": on(b0_r0_n0=3)}
    decision = resize(build_view(THREE_LEVELS, nodes), [wanted], before, MIXED, outside={})
    assert get_places(decision) == {"b0-r0-n0": 3, "b0-r0-n1": 2}


def test_resize_without_pods_known_to_run_moves_those_that_a_node_does_not_hold():
    nodes = [replace(node, allocatable={"cpu": 1000, "pods": 9}) if node.name == "b0-r0-n0" else node for node in build_grid(1, 1, 2)]
    assert get_places(change(nodes, request(3), b0_r0_n0=3)) == {"b0-r0-n0": 1, "b0-r0-n1": 2}


def test_pods_that_run_in_a_rack_stay_there_though_its_nodes_do_not_hold_them():
    nodes = [Node(f"r{rack}-n{node}", {RACK: f"r{rack}"}, {"cpu": 3000, "pods": 9}) for rack in range(2) for node in range(2)]
    before = {"main": TopologyAssignment((RACK,), (DomainCount(("r0",), 3),))}
    decision = resize(build_view((RACK,), nodes), [request(4, cpu=2000)], before, MIXED, outside={})
    assert get_places(decision) == {"r0": 3, "r1": 1}


LEFT = {BLOCK: "b0", RACK: "b0-r0"}


def change_beside_left(wanted: PodSetRequest, labels: dict[str, str], nodes: Sequence[Node], **before: int) -> Decision:
    """With a node "left" that is there, and in the tree no more."""
    return resize(build_view(THREE_LEVELS, nodes), [wanted], {"main": on(**before)}, MIXED, outside={("left",): labels})


def test_resize_keeps_pods_on_a_node_that_left_the_tree():
    wanted = request(5, Mode.REQUIRED, RACK)
    assert get_places(change_beside_left(wanted, LEFT, build_grid(2, 2, 2), b0_r0_n0=1, left=2)) == {"b0-r0-n0": 3, "left": 2}
    assert get_places(change_beside_left(wanted, LEFT, build_grid(2, 2, 2), left=2)) == {"b0-r0-n0": 3, "left": 2}
    assert get_places(change_beside_left(request(1), LEFT, build_grid(2, 2, 2), left=2)) == {"left": 1}
    for labels in ({}, {BLOCK: "b0", RACK: "another"}):
        refusal = change_beside_left(wanted, labels, build_grid(2, 2, 2), left=2).refusal
        assert refusal is not None
        assert refusal.kind is RefusalKind.NOT_FIT
        assert refusal.explanation is not None
        assert any("outside of the topology" in note for note in refusal.explanation.notes)


def test_resize_of_slices_beside_a_node_that_left_the_tree_is_refused():
    wanted = request(4, Mode.REQUIRED, RACK, slices=[(RACK, 2)])
    refusal = change_beside_left(wanted, LEFT, build_grid(1, 1, 2), left=2).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.STALE_ASSIGNMENT
    assert "in left" in refusal.detail
    assert "slices" in refusal.detail


def test_resize_beside_a_node_that_left_the_tree_is_refused_where_levels_changed():
    nodes = [Node(name, {BLOCK: block, RACK: "r", HOST: "same"}) for name, block in (("x", "b0"), ("y", "b1"))]
    refusal = change_beside_left(request(4), LEFT, nodes, left=2).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.STALE_ASSIGNMENT
    assert "levels" in refusal.detail


# --- shrinking ----------------------------------------------------------------------------------------


def test_the_most_scattered_domain_is_given_back_first():
    before = {"b0_r0_n0": 3, "b0_r0_n1": 3, "b0_r1_n0": 1, "b1_r0_n0": 2}
    assert get_places(change(build_grid(2, 2, 2), request(8), **before)) == {"b0-r0-n0": 3, "b0-r0-n1": 3, "b0-r1-n0": 1, "b1-r0-n0": 1}
    assert get_places(change(build_grid(2, 2, 2), request(7), **before)) == {"b0-r0-n0": 3, "b0-r0-n1": 3, "b0-r1-n0": 1}
    assert get_places(change(build_grid(2, 2, 2), request(5), **before)) == {"b0-r0-n0": 3, "b0-r0-n1": 2}


def test_slices_and_layers_stay_whole_when_pods_are_given_back():
    wanted = request(4, Mode.REQUIRED, BLOCK, slices=[(RACK, 4), (HOST, 2)])
    before = {"b0_r0_n0": 2, "b0_r0_n1": 2, "b0_r1_n0": 4}
    assert get_places(change(build_grid(1, 2, 2), wanted, **before)) == {"b0-r0-n0": 2, "b0-r0-n1": 2}
    assert get_places(change(build_grid(1, 2, 2), replace(wanted, count=8), **before)) == {
        name.replace("_", "-"): n for name, n in before.items()
    }


def test_a_slice_that_has_lost_a_pod_is_given_back_or_completed():
    wanted = request(2, Mode.REQUIRED, BLOCK, slices=[(RACK, 2)])
    assert get_places(change(build_grid(1, 2, 2), wanted, b0_r0_n0=1, b0_r1_n0=1, deleted=2)) == {"b0-r0-n0": 2}


# --- groups -------------------------------------------------------------------------------------------


def group(workers: int) -> list[PodSetRequest]:
    leader, others = (
        request(1, Mode.REQUIRED, RACK, name="leader"),
        request(workers, Mode.REQUIRED, RACK, name="workers", slices=[(RACK, 1)]),
    )
    assert leader.topology is not None
    assert others.topology is not None
    return [replace(leader, topology=replace(leader.topology, group="g")), replace(others, topology=replace(others.topology, group="g"))]


@pytest.mark.parametrize("leader_first", [True, False])
def test_a_group_shrunk_to_one_worker_does_not_swap_roles(leader_first: bool):
    """Kueue is wrong here."""
    wanted = group(1) if leader_first else group(1)[::-1]
    before = {"leader": on(b0_r0_n1=1), "workers": on(b0_r0_n0=2, b0_r0_n1=1)}
    answer = resize(build_view(THREE_LEVELS, build_grid(1, 1, 2)), wanted, before, MIXED)
    assert get_places(answer, "leader") == {"b0-r0-n1": 1}
    assert get_places(answer, "workers") == {"b0-r0-n1": 1}  # the one beside its leader stays


def test_a_group_grows_in_the_rack_it_has_in_common():
    before = {"leader": on(b0_r0_n1=1), "workers": on(b0_r0_n0=2)}
    answer = resize(build_view(THREE_LEVELS, build_grid(2, 1, 2)), group(7), before, MIXED)
    assert (get_places(answer, "leader"), get_places(answer, "workers")) == ({"b0-r0-n1": 1}, {"b0-r0-n0": 4, "b0-r0-n1": 3})
    assert resize(build_view(THREE_LEVELS, build_grid(2, 1, 2)), group(8), before, MIXED).refusal is not None


def test_resize_places_a_leader_of_a_deleted_node_next_to_its_workers():
    before = {"leader": on(deleted=1), "workers": on(b1_r0_n0=4)}
    answer = resize(build_view(THREE_LEVELS, build_grid(2, 1, 2)), group(4), before, MIXED)
    assert (get_places(answer, "leader"), get_places(answer, "workers")) == ({"b1-r0-n1": 1}, {"b1-r0-n0": 4})


# --- topologies whose lowest level is not the hostname ------------------------------------------------


def test_a_rack_counts_the_pods_its_nodes_really_hold():
    nodes = [Node(f"r{rack}-n{node}", {RACK: f"r{rack}"}, {"cpu": 3000, "pods": 9}) for rack in range(2) for node in range(2)]
    before = {"main": TopologyAssignment((RACK,), (DomainCount(("r0",), 2),))}
    answer = resize(build_view((RACK,), nodes), [request(3, cpu=2000)], before, MIXED)
    assert get_places(answer) == {"r0": 2, "r1": 1}  # 6 CPUs would be three pods, but no node has four of them


def test_pods_that_may_take_few_nodes_are_counted_on_these_first():
    """Nobody says on which nodes of a rack pods are. Counted in their order, others' pods took the only node that these may be on."""
    nodes = [Node(f"n{i}", {RACK: "r0"} | ({"pool": "1"} if i == 0 else {}), {"cpu": 3000, "pods": 9}) for i in range(2)]
    wanted = [request(3, name="main"), replace(request(1, name="other"), node_selector={"pool": "1"})]
    before = {each.name: TopologyAssignment((RACK,), (DomainCount(("r0",), each.count),)) for each in wanted}
    decision = resize(build_view((RACK,), nodes), wanted, before, MIXED)
    assert {placement.pod_set: dict(placement.nodes) for placement in decision.placements} == {
        "main": {"n0": 2, "n1": 1},
        "other": {"n0": 1},
    }


# --- whatever the cluster -----------------------------------------------------------------------------

Change = tuple[Cluster, list[PodSetRequest], list[PodSetRequest], dict[str, TopologyAssignment], dict[str, dict[str, int]]]


@st.composite
def changes(draw: st.DrawFn, /, *, alone: str = "", **options: bool) -> Change:
    """A workload in its place, and the counts it is to have then; `alone` one pod set that "grows" or "shrinks"."""
    cluster = roomy(draw(clusters(max_nodes=7, **options)))
    wanted = draw(jobs(cluster.levels, plain=options.get("plain", False)))[: 1 if alone else None]
    decision = place(cluster.view(), wanted, MIXED)
    assume(decision.refusal is None)
    after = []
    for each in wanted:
        assert each.topology is not None
        unit = each.topology.slices[0].size if each.topology.slices else 1
        units = each.count // unit
        least, most = units + 1 if alone == "grows" else 1, units if alone == "shrinks" else units + 3
        after.append(replace(each, count=unit * (1 if each.name == "leader" and not alone else draw(st.integers(least, most)))))
    before = {placement.pod_set: placement.assignment for placement in decision.placements}
    return cluster, wanted, after, before, {placement.pod_set: dict(placement.nodes) for placement in decision.placements}


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # many clusters have no place at first
@given(changes())
def test_a_resize_keeps_every_promise_and_moves_no_pod(change: Change):
    cluster, old, wanted, previous, _ = change
    view = cluster.view()
    before = view.free.copy()
    decision = resize(view, wanted, previous, MIXED)
    assert (view.free == before).all(), "it reads the matrix and changes nothing"
    if decision.refusal is not None:
        assert any(now.count > was.count for now, was in zip(wanted, old, strict=True)), "what shrinks always fits"
        return
    assert find_broken_promises(cluster, wanted, decision, {}, compute_free_amounts(cluster)) == []
    for was, now, placement in zip(old, wanted, decision.placements, strict=True):
        had, has = Counter(dict(list_domains(previous[now.name]))), Counter(dict(list_domains(placement.assignment)))
        assert not (had - has if now.count >= was.count else has - had)


def list_domains(assignment: TopologyAssignment) -> list[tuple[tuple[str, ...], int]]:
    return [(domain.values, domain.count) for domain in assignment.domains]


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # many clusters have no place at first
@given(changes(plain=True, hostname=True, alone="grows"))
def test_a_pod_set_grows_if_and_only_if_some_way_to_do_it_exists(change: Change):
    cluster, old, wanted, previous, nodes = change
    grown, name = wanted[0].count - old[0].count, wanted[0].name
    usage = tuple((node, {**wanted[0].requests, "pods": 1}, count) for node, count in nodes[name].items())
    free = compute_free_amounts(replace(cluster, used=(*cluster.used, *usage)))
    rooms = {node.name: compute_room(node, wanted[0], free[node.name]) for node in cluster.nodes}
    possible = can_complete(cluster, wanted[0], nodes[name], grown, rooms)
    assert (resize(cluster.view(), wanted, previous, MIXED).refusal is None) == possible


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # many clusters have no place at first
@given(changes(plain=True, hostname=True, alone="grows"), st.data())
def test_a_pod_set_grows_beside_doubtful_nodes_if_and_only_if_some_way_exists(change: Change, data: st.DataObject):
    """Nodes are not ready, have shrunk to nothing, or have left the tree: their pods stay, and no pod comes there."""
    cluster, old, wanted, previous, nodes = change
    name = wanted[0].name
    doubts = {node.name: data.draw(st.sampled_from(["", "ready", "small", "left"])) for node in cluster.nodes}
    usage = tuple((node, {**wanted[0].requests, "pods": 1}, count) for node, count in nodes[name].items())
    free = compute_free_amounts(replace(cluster, used=(*cluster.used, *usage)))
    rooms = {node.name: 0 if doubts[node.name] else compute_room(node, wanted[0], free[node.name]) for node in cluster.nodes}
    changed: dict[str, dict[str, Any]] = {"": {}, "ready": {"ready": False}, "small": {"allocatable": {"cpu": 0, "pods": 0}}, "left": {}}
    now = tuple(replace(node, **changed[doubts[node.name]]) for node in cluster.nodes if doubts[node.name] != "left")
    assume(now)
    outside: dict[tuple[str, ...], Any] = {(node.labels[HOST],): node.labels for node in cluster.nodes if doubts[node.name] == "left"}
    view = replace(cluster, nodes=now, used=tuple(each for each in cluster.used if doubts[each[0]] != "left")).view()
    decision = resize(view, wanted, previous, MIXED, outside=outside)
    possible = can_complete(cluster, wanted[0], nodes[name], wanted[0].count - old[0].count, rooms)
    if (
        any(values in outside for values, _ in list_domains(previous[name]))
        and wanted[0].topology is not None
        and wanted[0].topology.slices
    ):
        assert decision.refusal is not None
    else:
        assert (decision.refusal is None) == possible
    if decision.refusal is None:
        had, has = (Counter(dict(list_domains(each))) for each in (previous[name], decision.placements[0].assignment))
        assert not had - has
        assert has.total() == wanted[0].count
        hosts: dict[tuple[str, ...], str] = {(node.labels[HOST],): node.name for node in cluster.nodes}
        assert not any(doubts[hosts[values]] for values in has - had)


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # many clusters have no place at first
@given(changes(alone="shrinks"))
def test_shrunk_pod_set_spans_the_fewest_domains_of_the_top_level(change: Change):
    cluster, _, wanted, previous, _ = change
    tree = cluster.view().tree
    top = {values: tree.paths[int(tree.levels[tree.lowest].starts[domain])][0] for domain, values in enumerate(tree.emitted)}
    had: Counter[str] = Counter()
    for values, count in list_domains(previous[wanted[0].name]):
        had[top[values]] += count
    largest = sorted(had.values(), reverse=True)
    fewest = next(number for number in range(1, len(largest) + 1) if sum(largest[:number]) >= wanted[0].count)
    decision = resize(cluster.view(), wanted, previous, MIXED)
    assert len({top[values] for values, _ in list_domains(decision.placements[0].assignment)}) == fewest


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # many clusters have no place at first
@given(changes(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(change: Change, random):
    cluster, _, wanted, previous, _ = change
    order = list(range(len(cluster.nodes)))
    random.shuffle(order)
    assert resize(cluster.view(), wanted, previous, MIXED) == resize(cluster.view(order), wanted, previous, MIXED)
