"""Why a group waits: what each placement lacks."""

from __future__ import annotations

from core.names import HOSTNAME_LABEL
from core.podgroups.group import PodGroupInfo
from core.podgroups.group_explanation import GroupExplanation, explain
from tests.builders import BLOCK, RACK, Node, build_view
from tests.podgroups.builders import ask, build_node, group, list_nodes


def explain_group(nodes: list[Node], asked: PodGroupInfo) -> GroupExplanation:
    view = build_view([HOSTNAME_LABEL], nodes)
    outcome = ask(view, asked)
    assert outcome.chosen is None
    return explain(view, asked, outcome.tried)


def test_group_explanation_lists_each_placement_best_first():
    found = explain_group(list_nodes({"r1": [2], "r2": [3], "r3": [0]}), group((4, 1)))
    assert [(fact.name, fact.fit, list(map(str, fact.short))) for fact in found.facts] == [
        ("r2", 3, ["1 cpu"]),
        ("r1", 2, ["2 cpu"]),
        ("r3", 0, ["4 cpu"]),
    ]
    assert all(part in str(found) for part in ("3 placements", "4 pods", "Total nodes: 3", 'resource "cpu": 1'))


def test_explanation_of_a_gang_shows_minimum_count_and_pod_count():
    assert "3 of 4 pods" in str(explain_group(list_nodes({"r1": [2]}), group((4, 1), min_count=3)))


def test_group_explanation_differs_for_empty_plugin_results_and_missing_labels():
    view, asked = build_view([HOSTNAME_LABEL], list_nodes({"r1": [2]})), group((1, 1))
    labelled = str(explain(view, asked, ()))
    without = str(explain(build_view([HOSTNAME_LABEL], [build_node("a", "b", None)]), asked, ()))
    assert "plugins" in labelled
    assert f"no node has the label {RACK}" in without


def test_group_explanation_names_excluded_nodes_with_the_reason():
    found = explain_group([build_node("a", "b", "r1", 8, ready=False), build_node("c", "b", "r1", 1)], group((2, 1)))
    assert "NotReady: 1 (a)" in str(found)


def test_room_in_pieces_lacks_nothing_by_the_sum():
    found = explain_group(list_nodes({"r1": [3, 3]}), group((3, 2)))
    assert [(fact.fit, fact.short) for fact in found.facts] == [(2, ())]


def test_unlike_pods_are_all_counted_though_one_kind_has_no_place():
    found = explain_group(list_nodes({"r1": [2, 2]}), group((1, 3), (2, 1)))
    assert found.facts[0].fit == 2
    assert list(map(str, found.facts[0].short)) == ["1 cpu"]


def test_a_label_that_no_node_has_is_named():
    assert "label hall" in str(explain_group(list_nodes({"r1": [4]}), group((2, 1), by=["hall"])))


def test_pods_that_run_in_two_racks_are_the_reason():
    found = explain_group(list_nodes({"r1": [4], "r2": [4]}), group((1, 1), by=[BLOCK, RACK], running={"r1-0": 1, "r2-0": 1}))
    assert all(part in str(found) for part in ("2 running pods", f"no one {RACK}"))
