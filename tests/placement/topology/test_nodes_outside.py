"""Failed nodes, where other pods run on nodes that are there and have left the flavor or the topology."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.model.podset import Mode, PodSetRequest
from core.placement.algorithms.profile import MIXED
from core.placement.refusals import RefusalKind
from core.placement.replace.replacement import replace_failed
from core.placement.topology.placed_pods import PlacedPodSet
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request
from tests.placement.replace.test_replacement import HOST, build_placed_pod_set, fail, get_places

LEFT = {BLOCK: "b0", RACK: "b0-r0"}


def leave(wanted: PodSetRequest, labels: dict[str, str], stuck: int = 0, **pods: int) -> PlacedPodSet:
    """As `held`, with a node "left" that is there, and in the tree no more."""
    each = build_placed_pod_set(wanted, **pods)
    stuck_pods = (("left", stuck),) if stuck else ()
    return replace(each, outside={("left",): labels}, stuck=stuck_pods)


@pytest.mark.parametrize("labels", [LEFT, {}])
def test_replace_failed_with_pods_on_a_node_that_left_keeps_these_pods(labels: dict[str, str]):
    """A node of the workload had another flavor label. When a second node failed no replacement was ever found."""
    job = leave(request(4, Mode.REQUIRED, RACK), labels, left=1, b0_r0_n0=1, b0_r0_n1=2)
    nodes = build_grid(2, 2, 3, cpu=2)
    assert get_places(fail(nodes, job, failed=["b0-r0-n1"])) == {"left": 1, "b0-r0-n0": 1, "b0-r0-n2": 2}


def test_replace_failed_with_all_other_pods_on_a_node_that_left_uses_the_rack_of_that_node():
    job = leave(request(2, Mode.REQUIRED, RACK), {BLOCK: "b1", RACK: "r1"}, left=1, b0_r0_n1=1)
    nodes = [Node(f"b{b}-n{n}", {BLOCK: f"b{b}", RACK: f"r{b}", HOST: f"b{b}-n{n}"}) for b in (0, 1, 2) for n in (0, 1)]
    assert get_places(fail(nodes, job, failed=["b0-r0-n1"])) == {"b1-n0": 1, "left": 1}


@pytest.mark.parametrize("labels", [{}, {BLOCK: "b0", RACK: "another"}])
def test_replace_failed_with_all_other_pods_in_an_unknown_rack_is_refused(labels: dict[str, str]):
    job = leave(request(2, Mode.REQUIRED, RACK), labels, left=1, b0_r0_n1=1)
    refusal = fail(build_grid(2, 2, 3), job, failed=["b0-r0-n1"]).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.NOT_FIT
    assert refusal.explanation is not None
    assert any("outside of the topology" in note for note in refusal.explanation.notes)
    anywhere = leave(request(2, Mode.PREFERRED, RACK), labels, left=1, b0_r0_n1=1)
    found = get_places(fail(build_grid(2, 2, 3), anywhere, failed=["b0-r0-n1"]))
    assert (len(found), found["left"]) == (2, 1)


def test_replace_failed_with_pods_stuck_on_a_node_that_left_moves_only_these():
    job = leave(request(3, Mode.REQUIRED, RACK), LEFT, stuck=1, b0_r0_n0=1, left=2)
    found = get_places(fail(build_grid(2, 2, 3, cpu=1), job, failed=[]))
    assert (found["left"], found["b0-r0-n0"], sum(found.values())) == (1, 1, 3)


def test_replace_failed_with_pods_stuck_on_a_node_that_left_leaves_no_required_host():
    job = leave(request(2, Mode.REQUIRED, HOST), LEFT, stuck=1, left=2)
    refusal = fail(build_grid(1, 1, 2), job, failed=[]).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    assert any("outside of the topology" in note for note in refusal.explanation.notes)


def test_replace_failed_with_part_of_a_slice_on_a_node_that_left_completes_it_in_its_rack():
    """Seed 4209: only the pods on nodes of the tree counted, so that these seemed to be in no whole slices."""
    job = leave(request(6, Mode.REQUIRED, BLOCK, slices=[(RACK, 3)]), LEFT, stuck=1, left=5, b0_r0_n0=1)
    found = get_places(fail(build_grid(2, 2, 3, cpu=2), job, failed=[]))
    assert (found.pop("left"), sum(found.values()), {name[:5] for name in found}) == (4, 2, {"b0-r0"})


@pytest.mark.parametrize(
    ("labels", "slices", "size"), [({BLOCK: "b0"}, [(RACK, 3)], 3), (LEFT, [(RACK, 6), (HOST, 3)], 6)], ids=["unknown rack", "of a host"]
)
def test_replace_failed_with_part_of_a_slice_that_no_other_node_completes_is_refused(
    labels: dict[str, str], slices: list[tuple[str, int]], size: int
):
    job = leave(request(6, Mode.REQUIRED, BLOCK, slices=slices), labels, stuck=1, left=3, b0_r0_n0=3)
    refusal = fail(build_grid(2, 2, 3), job, failed=[]).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.STALE_ASSIGNMENT
    assert "whole slices" in refusal.detail


def test_replace_failed_with_a_lost_node_that_left_moves_all_its_pods():
    job = leave(request(3, Mode.REQUIRED, RACK), LEFT, b0_r0_n0=1, left=2)
    found = get_places(fail(build_grid(2, 2, 3), job, failed=["left"]))
    assert "left" not in found
    assert sum(found.values()) == 3


def test_replace_failed_keeps_the_order_of_domains_outside_of_the_tree():
    job = leave(request(4, Mode.REQUIRED, RACK), LEFT, b0_r0_n0=1, b0_r0_n1=1, left=1, zz=1)
    job = replace(job, outside={("left",): LEFT}, assignment=replace(job.assignment, domains=tuple(reversed(job.assignment.domains))))
    answer = fail(build_grid(1, 1, 4), job, failed=["zz"])
    assert [domain.values[0] for domain in answer.placements[0].assignment.domains] == ["left", "b0-r0-n0", "b0-r0-n1"]


def test_replace_failed_in_a_tree_without_nodes_is_refused():
    job = leave(request(2, Mode.REQUIRED, RACK), LEFT, left=1, n1=1)
    refusal = replace_failed(build_view(THREE_LEVELS, []), [job], ["n1"], MIXED).refusal
    assert refusal is not None
    assert refusal.kind is not RefusalKind.STALE_ASSIGNMENT
