"""Where a workload is, in a few words: the lowest domain that holds it, and its nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from core.model.admission import Admission, PodSetAdmission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, TopologyFacts
from core.state.whereabouts import describe_move, describe_place
from tests.builders import BLOCK, RACK, build_grid, build_node_json, build_topology_json

HOSTS = (HOSTNAME_LABEL,)


def cluster(*levels: str) -> ClusterState:
    """Two blocks of two racks of four nodes."""
    state = ClusterState()
    state.observe_topology("t", TopologyFacts.read(build_topology_json("t", levels)))
    state.observe_flavor("f", FlavorFacts.read({"metadata": {"name": "f"}, "spec": {"topologyName": "t"}}))
    for node in build_grid(2, 2, 4):
        state.observe_node(node.name, NodeFacts.read(build_node_json(node)))
    return state


def admitted(levels: Sequence[str], *sets: Sequence[tuple[str, ...]]) -> Admission:
    def one(number: int, domains: Sequence[tuple[str, ...]]) -> PodSetAdmission:
        assignment = TopologyAssignment(tuple(levels), tuple(DomainCount(values, 1) for values in domains))
        return PodSetAdmission(f"set-{number}", {"cpu": "f"}, {"cpu": 1}, len(domains), assignment)

    return Admission("cq", tuple(one(number, domains) for number, domains in enumerate(sets)))


def hosts(*names: str) -> list[tuple[str, ...]]:
    return [(name,) for name in names]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["b0-r0-n0"], f"{RACK} b0/b0-r0 (node b0-r0-n0)"),
        (["b0-r1-n0", "b0-r1-n2"], f"{RACK} b0/b0-r1 (nodes b0-r1-n0, b0-r1-n2)"),
        (["b0-r0-n0", "b0-r1-n0"], f"{BLOCK} b0 (nodes b0-r0-n0, b0-r1-n0)"),
        (["b0-r0-n0", "b1-r0-n0"], f"{BLOCK}s b0, b1 (nodes b0-r0-n0, b1-r0-n0)"),
        ([f"b0-r0-n{i}" for i in range(4)], f"{RACK} b0/b0-r0 (nodes b0-r0-n0, b0-r0-n1, b0-r0-n2 and 1 more)"),
        (["b0-r0-n0", "gone"], f"{RACK} b0/b0-r0 (nodes b0-r0-n0, gone)"),
        (["gone"], "node gone"),
    ],
)
def test_the_lowest_domain_that_holds_it_and_its_nodes(names: list[str], said: str):
    assert describe_place(cluster(BLOCK, RACK, HOSTNAME_LABEL), admitted(HOSTS, hosts(*names))) == said


def test_place_description_covers_all_pod_sets_with_each_node_once():
    admission = admitted(HOSTS, hosts("b0-r0-n0"), hosts("b0-r0-n0", "b0-r0-n1"))
    assert describe_place(cluster(BLOCK, RACK, HOSTNAME_LABEL), admission) == f"{RACK} b0/b0-r0 (nodes b0-r0-n0, b0-r0-n1)"


def test_a_topology_of_one_level_has_nodes_alone():
    assert describe_place(cluster(HOSTNAME_LABEL), admitted(HOSTS, hosts("b0-r0-n0", "b1-r0-n0"))) == "nodes b0-r0-n0, b1-r0-n0"


def test_place_description_without_hostnames_names_racks():
    state, levels = cluster(BLOCK, RACK), (BLOCK, RACK)
    assert describe_place(state, admitted(levels, [("b0", "b0-r0")])) == f"{BLOCK} b0 ({RACK} b0-r0)"
    assert describe_place(state, admitted(levels, [("b0", "b0-r0"), ("b1", "b1-r0")])) == f"{BLOCK}s b0, b1 ({RACK}s b0-r0, b1-r0)"


def test_place_description_without_an_assignment_is_empty():
    assert describe_place(cluster(RACK, HOSTNAME_LABEL), Admission("cq", (PodSetAdmission("main", {"cpu": "f"}, {"cpu": 1}, 1),))) == ""


def test_a_topology_that_is_gone_leaves_the_nodes():
    assert describe_place(ClusterState(), admitted(HOSTS, hosts("a", "b"))) == "nodes a, b"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["a", "b"], ["a", "c"], "1 pod of node b goes to node c; the others stay (they were stuck)"),
        (["a"], ["c"], "1 pod of node a goes to node c (they were stuck)"),
        (["a", "a", "b"], ["c", "d", "b"], "2 pods of node a go to nodes c, d; the others stay (they were stuck)"),
        (["a", "b"], ["b", "b"], "1 pod of node a goes to node b; the others stay (they were stuck)"),
        (["a", "b"], ["b", "a"], ""),
        ([], ["a"], ""),
    ],
)
def test_move_description_names_former_and_new_nodes(before: list[str], after: list[str], said: str):
    assert describe_move(admitted(HOSTS, hosts(*before)), admitted(HOSTS, hosts(*after))) == said


def test_racks_that_are_left_are_called_racks():
    levels = (BLOCK, RACK)
    before, after = admitted(levels, [("b0", "b0-r0")]), admitted(levels, [("b0", "b0-r1")])
    moved = describe_move(before, after)
    assert all(part in moved for part in (f"1 pod of {RACK} b0-r0", f"to {RACK} b0-r1", "stuck"))


def test_nodes_that_were_lost_are_why():
    before, after = admitted(HOSTS, hosts("a", "b")), admitted(HOSTS, hosts("c", "b"))
    moved = describe_move(before, after, {"a"})
    assert all(part in moved for part in ("1 pod of node a", "to node c", "lost: node a"))


def test_node_that_runs_is_not_reported_as_lost():
    """It named nodes as lost whose GPUs pods of others had taken."""
    before, after = admitted(HOSTS, hosts("a", "b")), admitted(HOSTS, hosts("c", "d"))
    moved = describe_move(before, after, {"a", "b"}, {"b"})
    assert "lost: node a;" in moved
    assert "node b did not take them" in moved


def test_move_between_racks_of_one_name_names_their_blocks():
    levels = (BLOCK, RACK)
    before, after = admitted(levels, [("b0", "r1")]), admitted(levels, [("b1", "r1")])
    moved = describe_move(before, after)
    assert all(part in moved for part in (f"1 pod of {RACK} b0/r1", f"to {RACK} b1/r1"))
