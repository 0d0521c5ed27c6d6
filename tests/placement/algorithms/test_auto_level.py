"""`auto` as a level (rule k of docs/decisions/0004): the lowest level where the pod set fits, above single nodes if it is required."""

import pytest

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.engine import place
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.tree import NodeLabels, TopologyTree


def build_view(levels: tuple[str, ...] = ("block", "rack", HOSTNAME_LABEL)) -> FreeCapacity:
    """Two blocks of two racks of two nodes for four pods each."""
    names = [(block, rack, node) for block in "AB" for rack in "12" for node in "xy"]
    nodes = [NodeLabels(f"{b}{r}{n}", {"block": b, "rack": f"{b}{r}", HOSTNAME_LABEL: f"{b}{r}{n}"}) for b, r, n in names]
    return FreeCapacity(TopologyTree(levels, nodes), {node.name: NodeState({"cpu": 4000, "pods": 110}) for node in nodes})


def ask(count: int, mode: Mode, *slices: SliceLayer, level: str = "auto") -> PodSetRequest:
    return PodSetRequest("main", count, {"cpu": 1000}, TopologyRequest(mode, level, slices))


@pytest.mark.parametrize(("count", "level"), [(1, "rack"), (4, "rack"), (8, "rack"), (9, "block"), (16, "block")])
def test_required_auto_is_the_lowest_level_above_nodes_that_holds_all(count: int, level: str):
    decision = place(build_view(), [ask(count, Mode.REQUIRED)], MIXED)
    assert decision.refusal is None
    assert decision.placements[0].level == level


@pytest.mark.parametrize(("count", "level"), [(4, HOSTNAME_LABEL), (5, "rack"), (9, "block"), (17, "block")])
def test_preferred_auto_begins_at_single_nodes_and_takes_several_domains_at_the_top(count: int, level: str):
    decision = place(build_view(), [ask(count, Mode.PREFERRED)], MIXED)
    assert decision.refusal is None
    assert decision.placements[0].level == level


def test_required_auto_is_refused_where_no_domain_of_the_top_level_holds_all():
    refusal = place(build_view(), [ask(17, Mode.REQUIRED)], MIXED).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    assert refusal.explanation.largest_fit == 16


def test_slices_keep_auto_from_going_below_them():
    decision = place(build_view(), [ask(4, Mode.REQUIRED, SliceLayer("block", 4))], MIXED)
    assert decision.placements[0].level == "block"


def test_a_topology_without_hostnames_may_give_its_lowest_level():
    assert place(build_view(("block", "rack")), [ask(8, Mode.REQUIRED)], MIXED).placements[0].level == "rack"


@pytest.mark.parametrize(("workers", "level"), [(3, "rack"), (7, "rack"), (8, "block"), (15, "block"), (16, None)])
def test_the_level_left_to_us_holds_a_group_with_its_leader(workers: int, level: str | None):
    leader, others = (PodSetRequest(name, count, {"cpu": 1000}, GROUP) for name, count in (("leader", 1), ("workers", workers)))
    decision = place(build_view(), [leader, others], MIXED)
    assert [placement.level for placement in decision.placements] == ([level] * 2 if level else [])
    assert (decision.refusal is None) == (level is not None)


GROUP = TopologyRequest(Mode.REQUIRED, "auto", group="g")
