"""What measurements of Kueue showed to be wrong: topogate gets it right.

One test each, the simplest there is. Balanced placement is in test_balanced.py, resizing in test_resize.py, replacement in
test_replacement.py, flavors also in tests/queueing, and what conditions report in tests/reconciler.
"""

from __future__ import annotations

from dataclasses import replace

from core.model.podset import Mode, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.engine import place
from core.placement.refusals import RefusalKind
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request


def test_a_count_that_is_no_multiple_of_the_slice_size_is_an_error_and_no_pod_is_lost():
    refusal = place(build_view(THREE_LEVELS, build_grid(1, 2, 2)), [request(7, Mode.REQUIRED, BLOCK, slices=[(RACK, 2)])], MIXED).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.UNEVEN_SLICES
    assert "slice size 2" in refusal.detail
    assert "7 pods" in refusal.detail


def test_a_leader_goes_by_its_own_selector_tolerations_and_affinity():
    nodes = [replace(node, labels={**node.labels, "kind": "cpu" if i % 2 else "gpu"}) for i, node in enumerate(build_grid(1, 2, 2))]
    nodes[3] = replace(nodes[3], taints=(("dedicated", "leaders", "NoSchedule"),))
    together = TopologyRequest(Mode.REQUIRED, RACK, group="g")
    leader = replace(request(1, name="leader"), topology=together, node_selector={"kind": "cpu"})
    workers = replace(request(4, name="workers"), topology=together, node_selector={"kind": "gpu"})
    assert [dict(p.nodes) for p in place(build_view(THREE_LEVELS, nodes), [leader, workers], MIXED).placements] == [
        {"b0-r0-n1": 1},
        {"b0-r0-n0": 4},
    ]
    nodes[1] = replace(nodes[1], ready=False)
    refused = place(build_view(THREE_LEVELS, nodes), [leader, workers], MIXED)
    assert refused.refusal is not None
    tolerant = replace(leader, tolerations=({"key": "dedicated", "operator": "Exists"},))
    assert [dict(p.nodes) for p in place(build_view(THREE_LEVELS, nodes), [tolerant, workers], MIXED).placements] == [
        {"b0-r1-n1": 1},
        {"b0-r1-n0": 4},
    ]


def test_above_the_hostname_capacity_taints_and_selectors_are_still_those_of_single_nodes():
    levels = (BLOCK, RACK)
    nodes = [
        *build_grid(1, 1, 3, cpu=2),
        Node("big", {BLOCK: "b0", RACK: "r9"}, {"cpu": 4000, "pods": 5}, (("dedicated", "x", "NoSchedule"),)),
    ]
    # Three nodes of two CPUs have six together, and none has room for a pod of three.
    wanted = request(1, Mode.REQUIRED, RACK, cpu=3000)
    refusal = place(build_view(levels, nodes), [wanted], MIXED).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    assert {exclusion.reason for exclusion in refusal.explanation.exclusions} == {'resource "cpu"', 'taint "dedicated=x:NoSchedule"'}
    tolerant = replace(wanted, tolerations=({"operator": "Exists"},))
    assert [dict(p.nodes) for p in place(build_view(levels, nodes), [tolerant], MIXED).placements] == [{"big": 1}]


def test_two_nodes_with_one_hostname_stay_two_nodes():
    nodes = [Node(f"n{i}", {BLOCK: f"b{i}", HOSTNAME_LABEL: "same"}, {"cpu": 4000, "pods": 9}) for i in range(2)]
    (placement,) = place(build_view((BLOCK, HOSTNAME_LABEL), nodes), [request(8)], MIXED).placements
    assert placement.assignment.levels == (BLOCK, HOSTNAME_LABEL)
    assert dict(placement.nodes) == {"n0": 4, "n1": 4}
    # Where nothing at all tells them apart neither is used, and both are named.
    twins = build_view((HOSTNAME_LABEL,), nodes)
    assert twins.tree.left_out.same_path == (("n0", "n1"),)
    assert place(twins, [request(1)], MIXED).refusal is not None


def test_a_pod_set_does_not_take_the_only_place_another_one_has():
    nodes = [*build_grid(1, 1, 1, cpu=4), *build_grid(1, 2, 1, cpu=8)[1:]]
    small, large = request(4, name="small"), request(8, Mode.REQUIRED, RACK, name="large")
    for order in ([small, large], [large, small]):
        decision = place(build_view(THREE_LEVELS, nodes), order, MIXED)
        assert {p.pod_set: dict(p.nodes) for p in decision.placements} == {"small": {"b0-r0-n0": 4}, "large": {"b0-r1-n0": 8}}
    bigger = build_grid(1, 1, 2, cpu=6)
    wanted = [request(6, name="anywhere"), replace(request(3, cpu=2000, name="large"), topology=TopologyRequest(Mode.UNCONSTRAINED))]
    assert place(build_view(THREE_LEVELS, bigger), wanted, MIXED).refusal is None
