"""The tree: nodes are found by name, domains are ranges, nodes without a clear place are left out (decision 3 of docs/decisions/0004)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given

from core.model.podset import Mode
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.decoding import decode
from core.model.wire.encoding import encode
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.engine import Decision, place
from core.placement.refusals import Exclusion, RefusalKind
from core.placement.topology.placed_pods import find_failed
from core.placement.topology.tree import NodeLabels, TopologyTree
from tests.builders import BLOCK, RACK, THREE_LEVELS, Counted, Node, build_grid, build_view, request
from tests.strategies import Cluster, clusters


@given(clusters())
def test_every_domain_is_one_range_of_the_nodes_that_carry_its_labels(cluster: Cluster):
    tree = cluster.view().tree
    assert sorted(tree.names) == sorted(node.name for node in cluster.nodes)
    for depth, label in enumerate(cluster.levels):
        expected = defaultdict(set)
        for node in cluster.nodes:
            expected[tuple(node.labels[name] for name in cluster.levels[: depth + 1])].add(node.name)
        level = tree.levels[depth]
        assert level.label == label
        found = {tree.get_values(depth, d): set(tree.names[level.starts[d] : level.ends[d]]) for d in range(level.count)}
        assert found == expected
        assert list(found) == sorted(found)


@given(clusters())
def test_parents_and_children_are_each_others_inverse(cluster: Cluster):
    tree = cluster.view().tree
    for depth in range(len(tree.levels) - 1):
        for domain in range(tree.levels[depth].count):
            children = tree.list_children(depth, domain)
            assert len(children) > 0
            assert all(tree.levels[depth + 1].parents[child] == domain for child in children)
        assert sum(len(tree.list_children(depth, d)) for d in range(tree.levels[depth].count)) == tree.levels[depth + 1].count


def test_nodes_without_a_level_label_are_left_out_and_named():
    nodes = [NodeLabels("a", {BLOCK: "b", RACK: "r"}), NodeLabels("c", {BLOCK: "b"}), NodeLabels("d", {RACK: "r"}), NodeLabels("e", {})]
    tree = TopologyTree([BLOCK, RACK], nodes)
    assert tree.names == ("a",)
    assert tree.left_out.missing_label == {BLOCK: ("d", "e"), RACK: ("c", "e")}
    assert tree.left_out.same_path == ()


def test_nodes_that_share_their_whole_path_are_left_out_and_named_together():
    twin = {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: "twin"}
    nodes = [NodeLabels("y", twin), NodeLabels("x", twin), NodeLabels("z", {**twin, HOSTNAME_LABEL: "single"})]
    tree = TopologyTree(THREE_LEVELS, nodes)
    assert tree.names == ("z",)
    assert tree.left_out.same_path == (("x", "y"),)


def test_nodes_below_a_rack_may_well_share_their_path():
    tree = TopologyTree([RACK], [NodeLabels("x", {RACK: "r"}), NodeLabels("y", {RACK: "r"})])
    assert tree.names == ("x", "y")
    assert tree.left_out.same_path == ()
    assert [level.label for level in tree.levels] == [RACK, "node"]


def test_where_a_hostname_recurs_the_assignment_writes_all_levels():
    nodes = [
        Node("x", {BLOCK: "b", RACK: "r1", HOSTNAME_LABEL: "h"}),
        Node("y", {BLOCK: "b", RACK: "r2", HOSTNAME_LABEL: "h"}),
        Node("z", {BLOCK: "b", RACK: "r2", HOSTNAME_LABEL: "other"}),
    ]
    (placement,) = place(build_view(THREE_LEVELS, nodes), [request(12, Mode.REQUIRED, BLOCK)], MIXED).placements
    assert placement.assignment.levels == THREE_LEVELS
    assert [domain.values for domain in placement.assignment.domains] == [("b", "r1", "h"), ("b", "r2", "h"), ("b", "r2", "other")]
    assert placement.nodes == (("x", 4), ("y", 4), ("z", 4))


def test_a_nodes_identity_is_its_name_whatever_its_hostname_label_says():
    nodes = [Node("n1", {RACK: "r", HOSTNAME_LABEL: "n2"}), Node("n2", {RACK: "r", HOSTNAME_LABEL: "n1"}, {"cpu": 1000, "pods": 10})]
    view = build_view([RACK, HOSTNAME_LABEL], nodes)
    (placement,) = place(view, [request(5, Mode.REQUIRED, RACK)], MIXED).placements
    assert dict(placement.nodes) == {"n1": 4, "n2": 1}
    assert {domain.values: domain.count for domain in placement.assignment.domains} == {("n2",): 4, ("n1",): 1}


def test_racks_of_one_name_in_different_blocks_are_different_racks():
    nodes = [Node(f"n{b}", {BLOCK: f"b{b}", RACK: "r", HOSTNAME_LABEL: f"n{b}"}) for b in range(2)]
    view = build_view(THREE_LEVELS, nodes)
    assert place(view, [request(8, Mode.REQUIRED, RACK)], MIXED).refusal is not None
    assert place(view, [request(4, Mode.REQUIRED, RACK)], MIXED).refusal is None


def test_domains_with_values_that_begin_alike_are_different_domains():
    """Kueue 0.20 (#14292): written one after the other the values of two paths may be the same text."""
    paths = [("b", "1"), ("b", "1-2"), ("b", "10"), ("b-1", "2"), ("b-1", "1"), ("b1", "0"), ("b1", "-2")]
    nodes = [Node(f"n{i}", {BLOCK: block, RACK: rack}) for i, (block, rack) in enumerate(paths)]
    view = build_view([BLOCK, RACK], nodes)
    level = view.tree.levels[1]
    found = {view.tree.get_values(1, d): view.tree.names[int(level.starts[d]) : int(level.ends[d])] for d in range(level.count)}
    assert found == {path: (f"n{i}",) for i, path in enumerate(paths)}
    assert place(view, [request(5, Mode.REQUIRED, RACK)], MIXED).refusal is not None
    (placement,) = place(view, [request(4 * len(paths), Mode.PREFERRED, RACK)], MIXED).placements
    decoded = decode(encode(placement.assignment))
    assert {domain.values: domain.count for domain in decoded.domains} == dict.fromkeys(paths, 4)


def test_rack_with_room_only_across_its_nodes_fits_no_pod():
    """Decision 4 of docs/decisions/0004: three nodes with half of a pod's CPU free each."""
    nodes = [Node(f"n{i}", {RACK: "r"}, {"cpu": 500, "pods": 10}) for i in range(3)]
    refusal = place(build_view([RACK], nodes), [request(1, Mode.REQUIRED, RACK)], MIXED).refusal
    assert refusal is not None
    assert refusal.fit == 0


def test_rack_of_two_nodes_with_four_gpus_each_takes_two_pods_of_four_and_none_of_six():
    """Nodes below racks (gate TASNodeFeasibilityForAllLevels of Kueue): a level that is not published, and cannot be requested."""
    nodes = [Node(f"n{i}", {RACK: "r", HOSTNAME_LABEL: f"n{i}"}, {"nvidia.com/gpu": 4, "pods": 10}) for i in range(2)]

    def ask(count: int, gpus: int, level: str = RACK) -> Decision:
        return place(build_view([RACK], nodes), [request(count, Mode.REQUIRED, level, requests={"nvidia.com/gpu": gpus})], MIXED)

    assert ask(1, 6).refusal is not None
    (placement,) = ask(2, 4).placements
    assert placement.assignment == TopologyAssignment((RACK,), (DomainCount(("r",), 2),))
    refusal = ask(1, 1, HOSTNAME_LABEL).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.UNKNOWN_LEVEL


def test_refusal_in_an_empty_tree_names_the_missing_level():
    refusal = place(build_view([RACK], []), [request(1, Mode.REQUIRED, RACK)], MIXED).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.pod_set) == (RefusalKind.NO_DOMAINS, "main")
    assert f"level {RACK}" in refusal.detail


def test_refusal_in_a_tree_without_usable_nodes_names_the_causes():
    nodes = [Node("a", {RACK: "r"}, ready=False), Node("b", {RACK: "r"}, unschedulable=True), Node("c", {RACK: "r"}, ready=False)]
    refusal = place(build_view([RACK], nodes), [request(1, Mode.REQUIRED, RACK)], MIXED).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.NO_DOMAINS
    assert refusal.explanation is not None
    assert refusal.explanation.total_nodes == 3
    assert refusal.explanation.exclusions == (Exclusion("NotReady", 2, "a"), Exclusion("unschedulable", 1, "b"))


def test_grid_of_the_builders_has_the_places_it_says():
    tree = build_view(THREE_LEVELS, build_grid(2, 3, 4)).tree
    assert [level.count for level in tree.levels] == [2, 6, 24]


def test_nodes_of_the_same_path_are_grouped_without_comparing_each_with_each():
    Counted.compared = 0
    nodes = [NodeLabels(f"n{i:03}", {RACK: "r", HOSTNAME_LABEL: Counted(f"h{i // 2:03}")}) for i in range(400)]
    tree = TopologyTree([RACK, HOSTNAME_LABEL], [*nodes, NodeLabels("own", {RACK: "r", HOSTNAME_LABEL: "own"})])
    assert tree.left_out.same_path == tuple((f"n{i:03}", f"n{i + 1:03}") for i in range(0, 400, 2))
    assert tree.names == ("own",)
    assert Counted.compared < 40 * len(nodes)


def test_all_nodes_are_looked_through_once_for_hosts_that_are_gone():
    """Once for each workload that had lost a node it took 1.6 s of every cycle: 900 workloads, 5,000 nodes."""
    tree = TopologyTree((RACK, HOSTNAME_LABEL), [NodeLabels(f"n{i}", {RACK: "r", HOSTNAME_LABEL: f"h{i}"}) for i in range(3)])
    reads = 0

    class Counting(tuple[tuple[str, ...], ...]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal reads
            reads += 1
            return super().__getitem__(at)

    tree.paths = Counting(tree.paths)
    for name in ("gone", "h1", "gone too"):
        assert find_failed(tree, [name]).tolist() == [False, name == "h1", False]
    assert reads <= 2 * len(tree)
