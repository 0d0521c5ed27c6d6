"""A workload that takes over another's pods and asks for more: next to them, for the difference, and never both at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import encode_admission
from core.names import ADMITTED, FINISHED, HOSTNAME_LABEL, QUOTA_RESERVED, SLICE_NAME, SLICE_REPLACES
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from tests.builders import NAMESPACE, RACK, Node, build_condition_json, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene

OWNER = "job"
Json = dict[str, Any]


class Grown(Scene):
    """A job of some pods in one rack of two, each of three nodes with room for four."""

    def __init__(self, pods: int, *, quota: str = "100", required: bool = True) -> None:
        super().__init__(quota=quota)
        for name in ("r1", "r2"):
            self.rack(name, 3)
        self.topology = {"required" if required else "preferred": RACK}
        self.wire = self.ask("w1", pods)
        self.write("w1", self.wire)

    def ask(self, name: str, pods: int, replaces: str | None = None) -> Json:
        wire = build_workload_json(name, [build_pod_set_json(count=pods, topology=self.topology)], owner=OWNER)
        notes = {SLICE_NAME: "w1"} | ({SLICE_REPLACES: f"{NAMESPACE}/{replaces}"} if replaces else {})
        wire["metadata"] |= {"annotations": notes}
        self.workload(wire)
        return wire

    def write(self, name: str, wire: Json) -> Admissible | NotAdmissible:
        """The verdict of a cycle, seen as it is written."""
        outcome = self.run()[name]
        if isinstance(outcome, Admissible):
            self.version += 1
            conditions = [build_condition_json(QUOTA_RESERVED), build_condition_json(ADMITTED)]
            wire["metadata"] |= {"resourceVersion": str(self.version)}
            wire["status"] = {"conditions": conditions, "admission": encode_admission(outcome.admission)}
            self.state.confirm(f"{NAMESPACE}/{name}", self.version)
            self.workload(wire)
        return outcome

    def nodes(self) -> dict[str, int]:
        """Pods per node, as the ledger counts them."""
        return {node: amounts["pods"] for node, amounts in self.state.ledger.usage.items()}

    def used(self) -> int:
        return self.state.workloads.get_usage("cq").get(("tas", "cpu"), 0) // 1000


def run_pods(scene: Grown) -> None:
    """Every pod of the first workload runs where it was assigned."""
    held = [node for node, count in sorted(scene.nodes().items()) for _ in range(count)]
    for i, node in enumerate(held):
        scene.pod(build_pod_json(f"p{i}", workload="w1", owner=OWNER, node=node, phase="Running"))


def test_growing_workload_is_placed_next_to_its_running_pods():
    scene = Grown(4)
    run_pods(scene)
    before = scene.nodes()
    outcome = scene.write("w2", scene.ask("w2", 7, replaces="w1"))
    assert isinstance(outcome, Admissible)
    after = scene.nodes()
    assert sum(after.values()) == 7
    assert all(after[node] >= count for node, count in before.items())
    assert {node.split("-")[0] for node in after} == {node.split("-")[0] for node in before}
    assert scene.used() == 7
    assert scene.state.ledger.find_drift() == {}
    scene.wire["status"]["conditions"].append(build_condition_json(FINISHED))
    scene.workload(scene.wire)
    assert (scene.used(), scene.nodes()) == (7, after)


@pytest.mark.parametrize("doubt", [{"ready": False}, {"cpu": 1}, {"pool": "another"}, {"rack": "r9"}])
def test_growth_keeps_pods_on_a_node_that_is_doubtful(doubt: dict[str, Any]):
    """Former defect: the second workload had all places elsewhere, and the pods that ran on were counted nowhere."""
    scene = Grown(4)
    run_pods(scene)
    (node,) = scene.nodes()
    scene.flavor("tas", "t", nodeLabels={"pool": "gpu"})
    for name, facts in list(scene.state.nodes.items()):
        here = doubt if name == node else {}
        labels = {RACK: here.get("rack", facts.labels[RACK]), HOSTNAME_LABEL: name, "pool": here.get("pool", "gpu")}
        scene.node(Node(name, labels, {"cpu": here.get("cpu", 4) * 1000, "pods": 10}, ready=here.get("ready", True)))
    outcome = scene.write("w2", scene.ask("w2", 7, replaces="w1"))
    if "rack" in doubt:  # one rack is required, and nothing else is in that rack
        assert isinstance(outcome, NotAdmissible)
        return
    assert isinstance(outcome, Admissible)
    (given,) = outcome.admission.pod_sets
    assert given.assignment is not None
    counts = {domain.values[-1]: domain.count for domain in given.assignment.domains}
    assert counts[node] == 4
    assert sum(counts.values()) == 7
    assert len({name.partition("-")[0] for name in counts}) == 1


def test_workload_that_outgrows_its_rack_waits_and_reports_its_running_pods():
    scene = Grown(4)
    outcome = scene.write("w2", scene.ask("w2", 13, replaces="w1"))
    assert isinstance(outcome, NotAdmissible)
    assert "4 of 13 pods" in outcome.message
    assert (scene.used(), sum(scene.nodes().values())) == (4, 4)
    preferring = Grown(4, required=False)
    assert isinstance(preferring.write("w2", preferring.ask("w2", 13, replaces="w1")), Admissible), "what is only preferred goes on"


def test_quota_is_needed_for_the_difference():
    scene = Grown(4, quota="6")
    assert isinstance(scene.write("w2", scene.ask("w2", 7, replaces="w1")), NotAdmissible)
    scene.delete("w2")
    assert isinstance(scene.write("w3", scene.ask("w3", 6, replaces="w1")), Admissible)


def test_replaced_workload_gets_no_more_decisions():
    scene = Grown(4)
    scene.write("w2", scene.ask("w2", 6, replaces="w1"))
    assert scene.run() == {}
    assert [w.key for w in scene.state.workloads.list_holders("cq")] == [f"{NAMESPACE}/w2"]


def test_without_the_one_that_it_replaces_it_is_admitted_by_itself():
    scene = Grown(4)
    scene.delete("w1")
    assert isinstance(scene.write("w2", scene.ask("w2", 6, replaces="w1")), Admissible)
    assert scene.used() == 6


def test_workload_cannot_replace_a_workload_of_another_owner():
    """Whoever may write Workloads must not get another's place and quota by an annotation."""
    scene = Grown(4, quota="6")
    wire = build_workload_json("thief", [build_pod_set_json(count=6, topology=scene.topology)], owner="another")
    wire["metadata"] |= {"annotations": {SLICE_REPLACES: f"{NAMESPACE}/w1"}}
    scene.workload(wire)
    assert isinstance(scene.run()["thief"], NotAdmissible)
    wire["status"] = {"conditions": [build_condition_json(QUOTA_RESERVED)], "admission": scene.wire["status"]["admission"]}
    scene.workload(wire)
    assert scene.used() == 8, "both hold"


@given(st.integers(1, 6), st.integers(1, 12), st.booleans(), st.permutations(["deleted", "forgotten", "finished"]))
def test_one_of_the_two_holds_at_any_time(pods: int, more: int, bound: bool, ends: list[str]):
    """Whatever becomes of the second one, what is counted is what one of them was given."""
    scene = Grown(pods)
    if bound:
        run_pods(scene)
    wire = scene.ask("w2", pods + more, replaces="w1")
    outcome = scene.run()["w2"]
    holds = pods + more if isinstance(outcome, Admissible) else pods
    assert (scene.used(), sum(scene.nodes().values())) == (holds, holds)
    for end in ends:
        if end == "forgotten":
            holds = pods if scene.state.workloads.is_assumed(f"{NAMESPACE}/w2") else holds
            scene.state.drop_assumed(f"{NAMESPACE}/w2")
        elif end == "deleted":
            scene.delete("w2")
            holds = pods
        elif isinstance(outcome, Admissible) and scene.state.workloads.is_assumed(f"{NAMESPACE}/w2"):
            wire["status"]["admission"] = encode_admission(outcome.admission)
            wire["metadata"]["resourceVersion"] = "2"
            scene.state.confirm(f"{NAMESPACE}/w2", 2)
            scene.workload(wire)
            holds = pods + more
        assert (scene.used(), sum(scene.nodes().values())) == (holds, holds)
        assert scene.state.ledger.find_drift() == {}
