"""Any sequence of failures, recoveries, taints and drains on clusters of any shape: what holds after every step is in `paper_lives`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.names import HOSTNAME_LABEL, SPARE_NODES
from core.queueing.second_pass import NodeReplacement
from tests.builders import BLOCK, RACK, pod_set_json
from tests.reconciler.paper_lives import PaperLives

REST_S = 70  # longer than any delay after which a node counts as lost
LEVELS = (BLOCK, RACK)
DEEDS = (
    "fails",
    "is lost",
    "hangs",
    "comes back",
    "is deleted",
    "is cordoned",
    "is drained",
    "NoSchedule",
    "NoExecute",
    "loses a pod",
    "ends a pod",
)


@st.composite
def topology_requests(draw: st.DrawFn, count: int) -> dict[str, Any]:
    mode = draw(st.sampled_from(["required", "required", "preferred", "unconstrained"]))
    level = draw(st.sampled_from(LEVELS))
    asked: dict[str, Any] = {mode: True if mode == "unconstrained" else level}
    size = draw(st.sampled_from([size for size in (1, 2, 3) if count % size == 0]))
    if size > 1:
        below = [RACK, HOSTNAME_LABEL] if level == RACK and mode != "unconstrained" else [BLOCK, RACK, HOSTNAME_LABEL]
        asked |= {"podSetSliceRequiredTopology": draw(st.sampled_from(below)), "podSetSliceSize": size}
    return asked


@st.composite
def pod_sets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One, two of any kind, or a group of a leader and its workers."""
    kind, cpu, count = draw(st.sampled_from(["one", "one", "two", "group"])), str(draw(st.integers(1, 2))), draw(st.integers(1, 6))
    asked = draw(topology_requests(count))
    if kind == "one":
        return [pod_set_json(count=count, cpu=cpu, topology=asked)]
    if kind == "two":
        return [pod_set_json(count=count, cpu=cpu, topology=asked), pod_set_json("other", 2, topology=draw(topology_requests(2)))]
    shared = {key: value for key, value in asked.items() if "Slice" not in key} | {"podSetGroupName": "g"}
    return [pod_set_json("leader", 1, topology=shared), pod_set_json("workers", count, cpu=cpu, topology=shared | asked)]


@st.composite
def clusters(draw: st.DrawFn, replacement: NodeReplacement, spares: int = 0) -> PaperLives:
    """`spares`: the most nodes that a pod set asks to be kept free for it."""
    paper = PaperLives(replacement)
    for block in range(draw(st.integers(1, 2))):
        for rack in range(draw(st.integers(1, 3))):
            for node in range(draw(st.integers(1, 3))):
                name = f"b{block}-r{rack}-n{node}"
                labels = {BLOCK: f"b{block}", RACK: f"b{block}-r{rack}", HOSTNAME_LABEL: name}
                paper.node(name, labels, draw(st.integers(2, 5)))
    for i, asked in enumerate(draw(st.lists(pod_sets(), min_size=1, max_size=4))):
        for pod_set in asked if spares else ():
            pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: str(draw(st.integers(0, spares)))}}
        paper.submit(f"w{i}", asked)
    return paper


def happen(paper: PaperLives, node: str, deed: str) -> None:
    """Pods end by themselves only where somebody ends them: by a taint that is not tolerated, a drain, or with their node."""
    if deed == "comes back":
        paper.change(node)
    elif node not in paper.nodes:
        return
    elif deed == "is deleted":
        paper.drop_node(node)
    elif deed in ("fails", "is lost", "hangs"):
        paper.change(node, ready=False)
        if deed != "fails":
            paper.end(node, lingers=deed == "hangs")
    elif deed in ("is cordoned", "is drained"):
        paper.change(node, unschedulable=True)
        if deed == "is drained":
            paper.end(node, lingers=True)
    elif deed in ("loses a pod", "ends a pod"):
        paper.end(node, 1, lingers=deed == "ends a pod")
    else:
        paper.change(node, taints=[{"key": "maintenance", "effect": deed, "timeAdded": paper.now()}])
        if deed == "NoExecute":
            paper.end(node, lingers=True)


@given(st.data(), st.booleans())
def test_whatever_happens_to_nodes_no_pod_is_lost_and_none_is_moved_that_need_not_move(data: st.DataObject, fails_fast: bool) -> None:
    live_through(data, data.draw(clusters(NodeReplacement(fails_fast=fails_fast))), fails_fast=fails_fast)


@given(st.data(), st.booleans())
def test_and_nobody_gets_a_node_that_is_kept_free_for_another(data: st.DataObject, fails_fast: bool) -> None:
    live_through(data, data.draw(clusters(NodeReplacement(fails_fast=fails_fast), spares=2)), fails_fast=fails_fast)


def live_through(data: st.DataObject, paper: PaperLives, *, fails_fast: bool) -> None:
    paper.settle()
    names = sorted(paper.known)
    steps = st.lists(st.tuples(st.sampled_from(names), st.sampled_from(DEEDS)), min_size=1, max_size=4)
    for step in data.draw(st.lists(steps, min_size=1, max_size=5), label="what happens"):
        for node, deed in step:
            happen(paper, node, deed)
        paper.settle()
        if data.draw(st.booleans(), label="time passes"):
            paper.clock.time += REST_S
            paper.settle()
    if not fails_fast:
        assert paper.evicted.total() == 0
    for node in names:
        paper.change(node)
    for _ in range(2):
        paper.settle()
        paper.clock.time += REST_S
    all_run_to_their_end(paper)


def all_run_to_their_end(paper: PaperLives) -> None:
    """All nodes are well: who is admitted is whole, and who ever had a place gets one again once others have ended."""
    waiting = set(paper.placed)
    for _ in range(len(paper.workloads) + 1):
        admitted = {name for name in paper.workloads if paper.is_admitted(name)}
        for name in admitted:
            assert "unhealthyNodes" not in paper.workloads[name]["status"], name
            wanted = sum(pod_set["count"] for pod_set in paper.workloads[name]["spec"]["podSets"])
            assert len([p for p in paper.pods_of(name) if p["spec"].get("nodeName")]) == wanted, f"{name} is not whole"
            paper.finish(name)
        waiting -= admitted
        paper.settle()
    assert not waiting, f"{waiting} had a place, and do not come back"


@pytest.mark.parametrize("deed", ["fails", "comes back"])
def test_a_node_that_is_only_away_moves_nobody(deed: str) -> None:
    """The lives above have pods that run, and what is looked at is not empty."""
    paper = PaperLives(NodeReplacement())
    for i in range(3):
        paper.node(f"n{i}", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: f"n{i}"}, 2)
    paper.submit("w", [pod_set_json(count=2, cpu="2", topology={"required": RACK})])
    paper.settle()
    before = {name: pod["spec"]["nodeName"] for name, pod in paper.pods.items()}
    assert sorted(before.values()) == ["n0", "n1"]
    happen(paper, "n0", deed)
    paper.settle()
    paper.clock.time += REST_S
    paper.settle()
    assert {name: pod["spec"]["nodeName"] for name, pod in paper.pods.items()} == before


def test_a_pod_that_its_cordoned_node_does_not_take_again_moves_and_the_one_beside_it_stays() -> None:
    paper = PaperLives(NodeReplacement())
    for i in range(2):
        paper.node(f"n{i}", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: f"n{i}"}, 4)
    paper.submit("w", [pod_set_json(count=2, cpu="2", topology={"required": RACK})])
    paper.settle()
    assert [pod["spec"]["nodeName"] for pod in paper.live()] == ["n0", "n0"]
    paper.change("n0", unschedulable=True)
    paper.end("n0", 1)
    paper.settle()
    (stays,) = (name for name, pod in paper.pods.items() if pod["spec"].get("nodeName"))
    assert len(paper.live()) == 2
    paper.clock.time += REST_S
    paper.settle()
    assert paper.pods[stays]["spec"]["nodeName"] == "n0"
    assert sorted(pod["spec"]["nodeName"] for pod in paper.live()) == ["n0", "n1"]
    assert paper.assigned("w") == {"main": {"n0": 1, "n1": 1}}
    assert paper.evicted.total() == 0


def test_a_pod_that_waits_for_a_node_that_has_come_back_is_not_ended_for_an_earlier_refusal() -> None:
    """In the same moment the pod beside it goes, by which the node was known to serve."""
    paper = PaperLives(NodeReplacement())
    paper.node("n0", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: "n0"}, 4)
    paper.submit("w", [pod_set_json(count=2, cpu="2", topology={"required": RACK})])
    paper.settle()
    paper.change("n0", ready=False)
    paper.end("n0", 1)
    paper.settle()
    (waits,) = (name for name, pod in paper.pods.items() if not pod["spec"].get("nodeName"))
    paper.clock.time += REST_S
    paper.settle()
    paper.change("n0")
    paper.end("n0", 1)
    paper.settle()
    assert [pod["spec"]["nodeName"] for pod in paper.live()] == ["n0", "n0"]
    assert waits in paper.pods


@pytest.mark.parametrize("deed", ["is lost", "hangs", "is deleted", "is drained", "NoExecute"])
def test_a_node_whose_pods_are_gone_is_replaced_and_the_other_pod_stays(deed: str) -> None:
    paper = PaperLives(NodeReplacement())
    for i in range(3):
        paper.node(f"n{i}", {BLOCK: "b", RACK: "r", HOSTNAME_LABEL: f"n{i}"}, 2)
    paper.submit("w", [pod_set_json(count=2, cpu="2", topology={"required": RACK})])
    paper.settle()
    (stays,) = (name for name, pod in paper.pods.items() if pod["spec"]["nodeName"] == "n1")
    happen(paper, "n0", deed)
    paper.settle()
    assert paper.pods[stays]["spec"]["nodeName"] == "n1"
    assert sorted(pod["spec"]["nodeName"] for pod in paper.live()) == ["n1", "n2"]
