"""A survey of a tree: sums of its nodes at every level, and the fit that placing itself would find."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given

from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.model.quantity import LARGEST
from core.placement.algorithms.profile import STANDARD
from core.placement.engine import place
from core.placement.explain.survey import list_out_of_use, list_surveys
from tests.builders import THREE_LEVELS, build_grid, build_view
from tests.strategies import Cluster, clusters

RESOURCES = ["cpu", "gpu", "rare"]


@given(clusters())
def test_every_domain_is_the_sum_of_its_nodes(cluster: Cluster):
    view = cluster.view()
    pod = PodSetRequest("pod", 1, {"cpu": 500})
    out = {view.tree.index[name] for names in list_out_of_use(view, pod).values() for name in names}
    for depth, level in enumerate(list_surveys(view, pod, RESOURCES)):
        inside: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for node, path in enumerate(view.tree.paths):
            inside[path[: depth + 1]].append(node)
        nodes = [inside[view.tree.get_values(depth, domain)] for domain in range(len(level.nodes))]
        assert level.label == cluster.levels[depth]
        assert level.nodes.tolist() == [len(each) for each in nodes]
        assert level.usable.tolist() == [sum(node not in out for node in each) for each in nodes]
        for row, resource in enumerate(RESOURCES):
            at = view.axis.get(resource)
            has = [0] * len(view.tree) if at is None else view.allocatable[at].tolist()
            left = [0] * len(view.tree) if at is None else view.free[at].tolist()
            assert level.capacity[row].tolist() == [sum(has[node] for node in each) for each in nodes]
            assert level.used[row].tolist() == [sum(has[node] - left[node] for node in each) for each in nodes]
            assert level.free[row].tolist() == [sum(max(0, left[node]) for node in each if node not in out) for each in nodes]


def test_domain_of_nodes_that_claim_to_have_everything_has_no_negative_sum():
    """Found defect of a new user: the sum of three such nodes was below zero."""
    view = build_view(THREE_LEVELS, build_grid(1, 1, 3, cpu=LARGEST // 1000))
    for level in list_surveys(view, PodSetRequest("pod", 1, {"cpu": 500}), ["cpu"]):
        assert all(0 < amount <= LARGEST for amount in (*level.capacity[0].tolist(), *level.free[0].tolist()))
        assert level.used[0].tolist() == [0] * len(level.nodes)


@given(clusters(plain=True))
def test_largest_fit_of_a_survey_can_be_placed_but_one_more_pod_cannot(cluster: Cluster):
    view = cluster.view()
    for level in list_surveys(view, PodSetRequest("pod", 1, {"cpu": 500}), []):
        most = max(level.fits.tolist(), default=0)
        assert (level.best is None) == (len(view.tree) == 0)
        for count, fits in ((most, True), (most + 1, False)):
            asked = PodSetRequest("pod", count, {"cpu": 500}, TopologyRequest(Mode.REQUIRED, level.label))
            if count and len(view.tree):
                assert (place(view, [asked], STANDARD.default).refusal is None) == fits


def test_the_first_of_the_best_domains_is_named_and_an_empty_tree_has_none():
    view = build_view(THREE_LEVELS, build_grid(2, 2, 2))
    view.use_node("b0-r0-n0", {"cpu": 4000})
    levels = list_surveys(view, PodSetRequest("pod", 1, {"cpu": 1000}), ["cpu"])
    assert [view.tree.get_values(depth, level.best or 0) for depth, level in enumerate(levels)][:2] == [("b1",), ("b0", "b0-r1")]
    assert [level.best for level in list_surveys(build_view(THREE_LEVELS, []), PodSetRequest("pod", 1, {}), ["cpu"])] == [None] * 3
