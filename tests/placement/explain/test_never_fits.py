"""Where no change would help, a refusal says why in a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.placement.algorithms.profile import MIXED
from core.placement.changes import Amount, Never, NoSuchNode, PodTooLarge, TooMany
from core.placement.engine import place
from core.placement.refusals import RefusalKind
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request

NODES = [
    Node(node.name, {**node.labels, "pool": pool, "gen": gen}, node.allocatable)
    for node, pool, gen in zip(build_grid(1, 2, 1), ["1", "2"], ["7", "9"], strict=True)
]


def get_never(asked: PodSetRequest, nodes: list[Node] = NODES) -> Never | None:
    refusal = place(build_view(THREE_LEVELS, nodes), [asked], MIXED).refusal
    assert refusal is not None
    assert refusal.explanation is not None
    assert not refusal.explanation.changes
    return refusal.explanation.never


def build_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def build_expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def build_term(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


@pytest.mark.parametrize(
    ("selector", "terms", "asked"),
    [
        pytest.param({"pool": "3"}, (), ("pool=3",), id="a value that no node has"),
        pytest.param({"pool": "1", "gen": "8", "zone": "a"}, (), ("gen=8", "zone=a"), id="of several those that no node has"),
        pytest.param({"pool": "1", "gen": "9"}, (), ("gen=9", "pool=1"), id="all, where only together no node has them"),
        pytest.param({}, (build_term(build_expression("gen", "Gt", "9")),), ("gen Gt (9)",), id="affinity"),
        pytest.param({}, (build_term(build_expression("zone", "Exists")),), ("zone Exists",), id="affinity without values"),
        pytest.param(
            {},
            (build_term(build_expression("pool", "In", "1", "2"), build_expression("gen", "In", "1", "2")),),
            ("gen In (1, 2)",),
            id="the expression that no node meets",
        ),
        pytest.param(
            {},
            (build_term(build_expression("pool", "In", "1"), build_expression("gen", "In", "9")),),
            ("pool In (1) and gen In (9)",),
            id="all expressions, where only together no node meets them",
        ),
        pytest.param(
            {},
            tuple(build_term(build_expression("zone", "In", zone)) for zone in "abcd"),
            ("zone In (a) or zone In (b) or zone In (c)",),
            id="of alternatives the first three",
        ),
        pytest.param({}, ({},), ("an empty node selector term",), id="a term that asks for nothing takes nothing"),
        pytest.param(
            {},
            ({"matchFields": [build_expression("metadata.name", "In", "elsewhere")]},),
            ("metadata.name In (elsewhere)",),
            id="a node by name",
        ),
        pytest.param(
            {"pool": "1"},
            (build_term(build_expression("gen", "In", "9")),),
            ("pool=1", "gen In (9)"),
            id="labels and affinity, where only together no node has them",
        ),
        pytest.param({"pool": "3"}, (build_term(build_expression("zone", "Exists")),), ("pool=3",), id="labels before affinity"),
        pytest.param(dict.fromkeys("abcde", "x"), (), ("a=x", "b=x", "c=x", "d=x"), id="of many the first four"),
    ],
)
def test_no_node_has_the_labels_asked_for(selector: dict[str, str], terms: tuple[dict[str, Any], ...], asked: tuple[str, ...]):
    wanted = request(1, Mode.REQUIRED, RACK, node_selector=selector, affinity=build_affinity(*terms) if terms else None)
    assert get_never(wanted) == NoSuchNode(asked)


def test_one_pod_is_larger_than_any_node():
    nodes = [
        Node(node.name, node.labels, {"cpu": cpu * 1000, "pods": 9, "gpu": gpu})
        for node, cpu, gpu in zip(NODES, (2, 4), (8, 1), strict=True)
    ]
    assert get_never(request(1, requests={"cpu": 5000}), nodes) == PodTooLarge("b0-r1-n0", (Amount("cpu", 1000),))
    # Of shares of what is asked, not of amounts: three of eight GPUs lack more than half of the CPUs.
    assert get_never(request(1, requests={"cpu": 4000, "gpu": 8}), nodes) == PodTooLarge("b0-r0-n0", (Amount("cpu", 2000),))
    assert get_never(request(1, requests={"cpu": 9000, "gpu": 10}), nodes) == PodTooLarge(
        "b0-r0-n0", (Amount("cpu", 7000), Amount("gpu", 2))
    )


def test_a_resource_that_no_node_has_is_lacked_whole():
    assert get_never(request(1, requests={"cpu": 1000, "fpga": 2})) == PodTooLarge("b0-r0-n0", (Amount("fpga", 2),))


def test_only_nodes_that_it_may_use_come_near():
    nodes = [Node("big", {**NODES[0].labels, "kubernetes.io/hostname": "big"}, {"cpu": 8000, "pods": 9}), *NODES]
    assert get_never(request(1, requests={"cpu": 9000}, node_selector={"gen": "9"}), nodes) == PodTooLarge(
        "b0-r1-n0", (Amount("cpu", 5000),)
    )


def test_all_nodes_together_hold_fewer():
    """Two nodes of four CPUs; the four pods of three would take four nodes."""
    wanted = request(4, Mode.REQUIRED, BLOCK, cpu=3000, slices=[(RACK, 2)])
    assert get_never(wanted, NODES) == TooMany(0, 2, "slice")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NoSuchNode(("a=b",)), "No node has a=b"),
        (NoSuchNode(("a=b", "c=d")), "No node has all of a=b, c=d"),
        (
            PodTooLarge("n", (Amount("cpu", 1500), Amount("gpu", 1))),
            "One pod is larger than any eligible node: n comes nearest and lacks 1500m cpu, 1 gpu",
        ),
        (
            PodTooLarge("n", (Amount("gpu", 1),), is_beside=True),
            "No eligible node could hold one more pod beside those of it that stay: n comes nearest and lacks 1 gpu",
        ),
        (TooMany(3, 4, "slice"), "Can never fit: all its nodes together, usable and empty, hold 3 of 4 slices"),
    ],
)
def test_never_fits_explanation_is_one_sentence(value: Never, text: str):
    assert str(value) == text


def test_a_node_without_a_resource_that_others_have_lacks_all_of_it():
    nodes = [Node(node.name, node.labels, {**node.allocatable, **({"gpu": 4} if i else {})}) for i, node in enumerate(NODES)]
    asked = request(1, requests={"cpu": 1000, "gpu": 3}, node_selector={"pool": "1"})
    assert get_never(asked, nodes) == PodTooLarge(NODES[0].name, (Amount("gpu", 3),), False)


def test_a_selector_that_cannot_be_is_named_also_where_no_node_is_usable():
    nodes = [replace(node, ready=False) for node in NODES]
    refusal = place(
        build_view(THREE_LEVELS, nodes), [request(1, affinity=build_affinity(build_term(build_expression("gen", "Near", "1"))))], MIXED
    ).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.INVALID_SELECTOR
    assert "Near" in refusal.detail


@pytest.mark.parametrize("group", [None, "a"])
def test_preferred_affinity_that_cannot_be_evaluated_is_refused_with_its_operator(group: str | None):
    term = {"weight": 1, "preference": build_term(build_expression("gen", "Gt", "abc"))}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    asked = [request(1, affinity=affinity)]
    if group is not None:
        topology = TopologyRequest(Mode.REQUIRED, THREE_LEVELS[1], group=group)
        asked = [replace(request(count, affinity=affinity), name=f"set-{count}", topology=topology) for count in (1, 2)]
    refusal = place(build_view(THREE_LEVELS, NODES), asked, replace(MIXED, respects_preferred_affinity=True)).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.INVALID_SELECTOR
    assert "Gt" in refusal.detail
