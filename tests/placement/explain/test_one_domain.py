"""A refusal of pod sets that are tied to one domain is about the nodes of that domain."""

from __future__ import annotations

from core.model.podset import Mode
from core.placement.algorithms.profile import MIXED
from core.placement.algorithms.tied_pod_sets import OneDomain
from core.placement.engine import place
from core.placement.refusals import TOPOLOGY_DOMAIN, Explanation
from tests.builders import BLOCK, RACK, THREE_LEVELS, build_grid, build_view, request

TIE = OneDomain(BLOCK, True, "annotation topogate.dev/workload-required-topology")


def explain(workers: int, size: int) -> Explanation:
    """Of a driver and sliced workers on two empty blocks of two racks with two nodes of 4 CPUs each."""
    asked = [
        request(1, Mode.REQUIRED, BLOCK, name="driver"),
        request(workers, Mode.REQUIRED, BLOCK, name="workers", slices=[(RACK, size)]),
    ]
    refusal = place(build_view(THREE_LEVELS, build_grid(2, 2, 2)), asked, MIXED, together=TIE).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    return refusal.explanation


def test_refusal_in_one_domain_counts_nodes_of_others_as_such_and_not_as_full():
    """Found by a new user: a JobSet with slices that no rack holds was told that half of all nodes, which were empty, lacked cpu."""
    explanation = explain(workers=10, size=10)
    assert [(each.reason, each.count) for each in explanation.exclusions] == [(TOPOLOGY_DOMAIN, 4)]


def test_slices_larger_than_a_rack_would_fit_in_one_block():
    explanation = explain(workers=10, size=10)
    assert [(each.slices, each.nodes) for each in explanation.changes] == [(BLOCK, ())]
    assert "10" in explanation.notes[0]
