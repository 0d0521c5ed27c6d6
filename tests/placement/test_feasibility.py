"""Selectors, affinity and taints: the mask over a tree agrees with the rule for one node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.placement.feasibility import InvalidSelector, find_untolerated, labels_satisfy, node_matches
from core.placement.free import NodeState
from tests.builders import RACK, Node, grid, request, view_of
from tests.placement.reference import matches, tolerates
from tests.strategies import TAINTS, TOLERATIONS

KEYS = ["pool", "gen", "zone"]
VALUES = ["1", "2", "10", "-3", "x", "1_0", ""]


@st.composite
def expressions(draw: st.DrawFn, keys: list[str], values: list[str]) -> dict[str, Any]:
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    expression: dict[str, Any] = {"key": draw(st.sampled_from(keys)), "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
    elif operator in ("Gt", "Lt"):
        expression["values"] = [draw(st.sampled_from(["-5", "0", "1", "2", "9"]))]
    return expression


@st.composite
def terms(draw: st.DrawFn) -> dict[str, Any]:
    term: dict[str, Any] = {}
    if draw(st.booleans()):
        term["matchExpressions"] = draw(st.lists(expressions(KEYS, VALUES), max_size=2))
    if draw(st.integers(0, 3)) == 0:
        name = {"key": "metadata.name", "operator": draw(st.sampled_from(["In", "NotIn"])), "values": [draw(st.sampled_from(["n0", "n1"]))]}
        term["matchFields"] = [name]
    return term


NODES = st.lists(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)), min_size=1, max_size=5).map(
    lambda labels: [Node(f"n{i}", {RACK: "r"} | own) for i, own in enumerate(labels)]
)


@given(NODES, st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2), st.lists(terms(), min_size=1, max_size=3))
def test_selector_and_affinity_take_the_nodes_that_each_would_take_alone(nodes, selector, terms):
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    view = view_of([RACK], nodes)
    mask = view.label_mask(selector, affinity)
    assert {name: bool(ok) for name, ok in zip(view.tree.names, mask, strict=True)} == {
        node.name: matches(node, selector, affinity) for node in nodes
    }
    for node in nodes:
        assert node_matches(node.name, node.labels, selector, affinity) == matches(node, selector, affinity)


def test_a_node_is_known_by_no_other_field_than_its_name():
    terms = [{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["u"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    with pytest.raises(InvalidSelector, match=r"only metadata\.name is supported"):
        node_matches("n", {}, {}, affinity)
    with pytest.raises(InvalidSelector, match=r"'metadata\.uid': only metadata\.name is supported"):
        view_of([RACK], [Node("n", {RACK: "r"})]).label_mask({}, affinity)
    assert node_matches("n", {}, {}, None)
    assert node_matches("n", {}, {}, {"nodeAffinity": {}})


@given(st.lists(st.sampled_from(TAINTS), max_size=3), st.lists(st.sampled_from(TOLERATIONS), max_size=3))
def test_taints_keep_away_what_does_not_tolerate_each_of_them(taints, tolerations):
    node = Node("n", {}, taints=tuple(taints))
    assert (find_untolerated(node.taints, tolerations) is None) == tolerates(node, tolerations)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "ml"}, True),
        ({"key": "dedicated", "value": "ml"}, True),
        ({"key": "dedicated", "value": "ml", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "ml", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "value": "web"}, False),
        ({"key": "dedicated"}, False),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "dedicated", "operator": "Nonsense", "value": "ml"}, False),
    ],
)
def test_tolerations_as_kubernetes_reads_them(toleration, tolerated):
    assert (find_untolerated([("dedicated", "ml", "NoSchedule")], [toleration]) is None) == tolerated


@pytest.mark.parametrize(
    ("operator", "values", "value", "taken"),
    [
        ("Gt", ["5"], "6", True),
        ("Gt", ["5"], "5", False),
        ("Lt", ["5"], "4", True),
        ("Lt", ["5"], None, False),
        ("Gt", ["5"], "1_0", False),  # int() of Python would read ten
        ("Gt", ["5"], "x", False),
        ("Gt", ["5"], "99999999999999999999", False),  # Kubernetes reads 64 bits
        ("NotIn", ["a"], None, True),
        ("In", ["a"], None, False),
        ("Exists", [], "", True),
        ("DoesNotExist", [], None, True),
    ],
)
def test_operators_as_kubernetes_reads_them(operator, values, value, taken):
    labels = {RACK: "r"} | ({"gen": value} if value is not None else {})
    expression = {"key": "gen", "operator": operator, "values": values}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    }
    assert view_of([RACK], [Node("n", labels)]).label_mask({}, affinity).tolist() == [taken]


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "gen", "operator": "Gt", "values": ["x"]},
        {"key": "gen", "operator": "Gt", "values": ["1_0"]},
        {"key": "gen", "operator": "Lt", "values": []},
        {"key": "gen", "operator": "Gt", "values": ["1", "2"]},
        {"key": "gen", "operator": "Like", "values": ["x"]},
    ],
)
def test_what_kubernetes_would_not_accept_is_refused_by_name(expression):
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    }
    with pytest.raises(InvalidSelector, match=expression["operator"]):
        view_of([RACK], grid(1, 1, 1)).label_mask({}, affinity)
    with pytest.raises(InvalidSelector, match=expression["operator"]):
        labels_satisfy({"gen": "1"}, {}, affinity)


def test_labels_known_in_advance_count_only_for_their_own_keys():
    def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
        return {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
            }
        }

    pool = {"pool": "a"}
    assert labels_satisfy(pool, {"gen": "7"}, None)
    assert not labels_satisfy(pool, {"pool": "b"}, None)
    assert labels_satisfy(pool, {}, affinity({"key": "gen", "operator": "In", "values": ["1"]}))
    assert not labels_satisfy(pool, {}, affinity({"key": "pool", "operator": "DoesNotExist"}))


def test_taint_readiness_and_cordon_of_a_node_change_in_place():
    view = view_of([RACK], grid(1, 1, 3))
    pods = request(1)
    assert view.eligible(pods).tolist() == [True] * 3
    node = view.tree.names[1]
    for state in (NodeState({}, ready=False), NodeState({}, unschedulable=True), NodeState({}, taints=(("k", "", "NoSchedule"),))):
        view.observe_node(node, state)
        assert view.eligible(pods).tolist() == [True, False, True]
    view.observe_node(node, NodeState({}))
    assert view.eligible(pods).tolist() == [True] * 3


@pytest.mark.parametrize(
    ("value", "is_number"),
    [
        (f"{2**63 - 1}", True),
        (f"{2**63}", False),
        (f"{-(2**63)}", True),
        (f"{-(2**63) - 1}", False),
        ("+5", True),
        ("1_0", False),
        ("", False),
    ],
)
def test_numbers_have_64_bits(value: str, is_number: bool):
    def meets(operator: str, bound: str) -> bool:
        term = {"matchExpressions": [{"key": "gen", "operator": operator, "values": [bound]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        return node_matches("n", {"gen": value}, {}, affinity)

    assert (meets("Gt", "0") or meets("Lt", "0")) == is_number
    if not is_number:
        with pytest.raises(InvalidSelector, match="needs one integer"):
            meets("Gt", value)
