"""Selectors, affinity and taints: the mask over a tree agrees with the rule for one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED
from core.placement.changes import NoSuchNode
from core.placement.engine import place
from core.placement.topology.free_capacity import NodeState
from core.placement.topology.node_eligibility import InvalidSelector, find_untolerated, is_node_match, is_satisfiable
from tests.builders import RACK, Counted, Node, build_grid, build_view, request
from tests.placement.reference import can_tolerate, is_match
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
    view = build_view([RACK], nodes)
    mask = view.match_labels(selector, affinity)
    assert {name: bool(ok) for name, ok in zip(view.tree.names, mask, strict=True)} == {
        node.name: is_match(node, selector, affinity) for node in nodes
    }
    for node in nodes:
        assert is_node_match(node.name, node.labels, selector, affinity) == is_match(node, selector, affinity)


def test_a_node_is_known_by_no_other_field_than_its_name():
    terms = [{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["u"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    with pytest.raises(InvalidSelector, match=r"only metadata\.name is supported"):
        is_node_match("n", {}, {}, affinity)
    with pytest.raises(InvalidSelector, match=r"'metadata\.uid': only metadata\.name is supported"):
        build_view([RACK], [Node("n", {RACK: "r"})]).match_labels({}, affinity)
    assert is_node_match("n", {}, {}, None)
    assert is_node_match("n", {}, {}, {"nodeAffinity": {}})


@given(st.lists(st.sampled_from(TAINTS), max_size=3), st.lists(st.sampled_from(TOLERATIONS), max_size=3))
def test_node_taints_exclude_pods_that_do_not_tolerate_each_taint(taints, tolerations):
    node = Node("n", {}, taints=tuple(taints))
    assert (find_untolerated(node.taints, tolerations) is None) == can_tolerate(node, tolerations)


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
    assert build_view([RACK], [Node("n", labels)]).match_labels({}, affinity).tolist() == [taken]


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
def test_invalid_selector_is_refused_with_its_operator(expression):
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    }
    with pytest.raises(InvalidSelector, match=expression["operator"]):
        build_view([RACK], build_grid(1, 1, 1)).match_labels({}, affinity)
    with pytest.raises(InvalidSelector, match=expression["operator"]):
        is_satisfiable({"gen": "1"}, {}, affinity)


def test_labels_known_in_advance_count_only_for_their_own_keys():
    def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
        return {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
            }
        }

    pool = {"pool": "a"}
    assert is_satisfiable(pool, {"gen": "7"}, None)
    assert not is_satisfiable(pool, {"pool": "b"}, None)
    assert is_satisfiable(pool, {}, affinity({"key": "gen", "operator": "In", "values": ["1"]}))
    assert not is_satisfiable(pool, {}, affinity({"key": "pool", "operator": "DoesNotExist"}))


def test_taint_readiness_and_cordon_of_a_node_change_in_place():
    view = build_view([RACK], build_grid(1, 1, 3))
    pods = request(1)
    assert view.find_eligible(pods).tolist() == [True] * 3
    node = view.tree.names[1]
    for state in (NodeState({}, ready=False), NodeState({}, unschedulable=True), NodeState({}, taints=(("k", "", "NoSchedule"),))):
        view.observe_node(node, state)
        assert view.find_eligible(pods).tolist() == [True, False, True]
    view.observe_node(node, NodeState({}))
    assert view.find_eligible(pods).tolist() == [True] * 3


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
        return is_node_match("n", {"gen": value}, {}, affinity)

    assert (meets("Gt", "0") or meets("Lt", "0")) == is_number
    if not is_number:
        with pytest.raises(InvalidSelector, match="needs one integer"):
            meets("Gt", value)


# --- large selectors ------------------------------------------------------------------------------------


def required(*expressions: Mapping[str, Any]) -> dict[str, Any]:
    """Node affinity with a term for each expression."""
    terms = [{"matchExpressions": [expression]} for expression in expressions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_values_of_an_expression_are_looked_up():
    Counted.compared = 0
    values = [Counted(f"other-{i}") for i in range(500)] + [Counted("b0-r0-n7")]
    for operator, taken in (("In", 1), ("NotIn", 99)):
        affinity = required({"key": HOSTNAME_LABEL, "operator": operator, "values": values})
        assert build_view([RACK], build_grid(1, 1, 100)).match_labels({}, affinity).sum() == taken
    assert Counted.compared < 100


def test_node_affinity_of_too_many_expressions_is_refused_with_the_limit():
    view = build_view([RACK], build_grid(1, 1, 1))
    for terms in (required(*[{"key": "pool", "operator": "Exists"}] * 2_001), required(*[{}] * 2_001)):
        with pytest.raises(InvalidSelector, match="node affinity has 2001 expressions, at most 2000 are accepted"):
            view.match_labels({}, terms)
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "pool", "operator": "Exists"}] * 2_001}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    with pytest.raises(InvalidSelector, match="2001 expressions"):
        view.compute_preferred_scores(request(1, affinity=affinity), view.usable)


@pytest.mark.parametrize("size", [1, 500])
def test_equal_selectors_have_the_same_key_however_large(size: int):
    view = build_view([RACK], build_grid(1, 1, 1))
    keys = {
        view.build_key(required({"key": "pool", "operator": "In", "values": [f"p{i + more}" for i in range(size)]})) for more in (0, 0, 1)
    }
    assert len(keys) == 2
    assert all(len(key) < 1_000 for key in keys)


def test_a_selector_of_many_values_is_shown_by_the_first():
    affinity = required({"key": "pool", "operator": "In", "values": [f"p{i}" for i in range(500)]})
    refusal = place(build_view([RACK], build_grid(1, 1, 1)), [request(1, Mode.UNCONSTRAINED, affinity=affinity)], MIXED).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    assert refusal.explanation.never == NoSuchNode(("pool In (p0, p1, p2, p3, p4, p5, p6, p7 and 492 more)",))


def test_tolerations_are_read_once_for_all_questions():
    reads = 0

    class Counted(dict[str, Any]):
        def get(self, *asked: Any) -> Any:
            nonlocal reads
            reads += 1
            return super().get(*asked)

    nodes = [replace(node, taints=((f"t{i}", "", "NoSchedule"),)) for i, node in enumerate(build_grid(1, 1, 50))]
    view = build_view([RACK], nodes)
    tolerations = tuple(Counted(key=f"other-{i}", operator="Exists") for i in range(200))
    asked = request(1, Mode.UNCONSTRAINED, tolerations=tolerations)
    for _ in range(5):
        assert place(view, [asked], MIXED).refusal is not None
    assert reads < 30 * len(tolerations)


def test_taints_that_no_node_has_any_more_are_dropped():
    view = build_view([RACK], build_grid(1, 1, 3))
    asked = request(1, tolerations=({"key": "job-7", "operator": "Exists"},))
    for i in range(1_000):
        view.observe_node("b0-r0-n1", NodeState({"cpu": 4000, "pods": 110}, ((f"job-{i % 500}", "", "NoSchedule"),)))
        assert view.find_eligible(asked).tolist() == [True, i % 500 == 7, True]
        assert len(view.taints_by_class) <= 80
