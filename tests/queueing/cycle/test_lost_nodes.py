"""Other places for pods whose nodes have failed, or do not take them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.model.gates import read_gates
from core.model.pause_state import Pause, Stop
from core.names import HOSTNAME_LABEL, LOST_NODES_THRESHOLD
from core.queueing.cycle.second_pass import REPLACES, NodeReplacement, list_due_for_second_pass
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import NodeFacts, TopologyFacts
from tests.builders import (
    NAMESPACE,
    RACK,
    Node,
    build_node_json,
    build_pod_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)
from tests.queueing.running import KEEPS, NOW, Running, build_running_scene, get_refusal


def test_pods_of_a_failed_node_get_another_and_the_others_stay() -> None:
    scene = build_running_scene()
    scene.submit("w", 3, cpu="4")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1, "r0-n2": 1}
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n0": 1, "r0-n2": 1, "r0-n3": 1}
    assert "unhealthyNodes" not in scene.objects["w"]["status"]
    assert scene.conditions("w") == {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": ("True", "Admitted")}
    assert scene.state.quota.get_usage("cq") == {("tas", "cpu"): 12000}, "it holds what it held"
    assert scene.run() == {}


@pytest.mark.parametrize(
    ("pod", "node", "moves"),
    [
        ("runs", "well", False),
        ("runs", "NoSchedule", False),
        ("runs", "NoExecute", True),
        ("ends", "well", True),
        ("runs", "down", True),
        ("none", "well", True),
    ],
)
def test_node_that_is_well_again_keeps_its_assignment_while_pods_run_there(pod: str, node: str, moves: bool) -> None:
    """Seed 210 of the simulation: a process that saw `unhealthyNodes` 50 s late moved the assignments of pods that ran."""
    scene = build_running_scene()
    scene.submit("w", 3, cpu="4")
    scene.run()
    if pod != "none":
        scene.pod(build_pod_json("w-1", node="r0-n1", cpu="4", phase="Running", workload="w", terminating=pod == "ends"))
    if node == "down":
        scene.break_down("r0-n1")
    elif node != "well":
        facts = scene.state.nodes["r0-n1"]
        scene.state.observe_node("r0-n1", replace(facts, state=replace(facts.state, taints=(("gpu", "", node),))))
    scene.lose("w", "r0-n1")
    scene.run()
    assert (scene.where("w")["r0-n1"] == 0) is moves
    assert scene.state.ledger.find_drift() == {}


def observe_stuck(scene: Running, *pods: tuple[str, int]) -> None:
    scene.state.observe_stuck(f"{NAMESPACE}/w", {"main": pods})


def test_a_pod_that_is_stuck_gets_another_place_once_and_those_beside_it_stay() -> None:
    scene = build_running_scene()
    scene.submit("w", 6, cpu="2")
    scene.run()
    assert scene.where("w") == {"r0-n0": 2, "r0-n1": 2, "r0-n2": 2}
    observe_stuck(scene, ("r0-n1", 1))
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n0": 2, "r0-n1": 1, "r0-n2": 2, "r0-n3": 1}
    assert scene.run() == {}, "its place is given away once"
    assert scene.state.quota.get_usage("cq") == {("tas", "cpu"): 12000}
    assert scene.state.ledger.find_drift() == {}


@pytest.mark.parametrize("replacement", [REPLACES, KEEPS])
def test_workload_with_a_stuck_pod_and_no_other_node_is_not_evicted_and_reports_the_lack(replacement: NodeReplacement) -> None:
    scene = build_running_scene(replacement, nodes=3)
    scene.submit("w", 6, cpu="2")
    scene.run()
    observe_stuck(scene, ("r0-n1", 1))
    outcome = get_refusal(scene.run()["w"])
    assert (outcome.reason, outcome.evicts) == ("TopologyPlacementFailed", False)
    assert "on r0-n1" in outcome.message
    assert scene.run() == {}, "until something changes"
    scene.rack("r0", 4, cpu=4)
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w")["r0-n3"] == 1


def test_failed_nodes_are_replaced_before_pods_that_are_stuck() -> None:
    scene = build_running_scene(nodes=5)
    scene.submit("w", 6, cpu="2")
    scene.run()
    scene.break_down("r0-n0")
    observe_stuck(scene, ("r0-n1", 1))
    scene.lose("w", "r0-n0")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n1": 2, "r0-n2": 2, "r0-n3": 2}


def test_evicted_workload_with_a_stuck_pod_is_not_due_for_a_second_pass() -> None:
    scene = build_running_scene()
    scene.submit("w", 6, cpu="2")
    scene.run()
    status = scene.objects["w"]["status"]
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "", "lastTransitionTime": NOW}
    scene.set_status("w", {**status, "conditions": [*status["conditions"], evicted]})
    observe_stuck(scene, ("r0-n1", 1))
    assert list_due_for_second_pass(scene.state) == []


def test_several_failed_nodes_are_replaced_together() -> None:
    scene = build_running_scene(racks=2)
    scene.submit("w", 4, cpu="4", topology={"required": RACK})
    scene.run()
    scene.lose("w", "r0-n0", "r0-n1", "r0-n2", "r0-n3")
    scene.run()
    assert scene.where("w") == {f"r1-n{i}": 1 for i in range(4)}, "the first alone could not have left the rack"


def test_workload_with_a_replacement_that_cannot_be_written_is_evicted() -> None:
    """Seed 2184: its pods waited for ever at the node that they had lost."""
    scene = build_running_scene(nodes=3)
    key = scene.submit("w", 2, cpu="4")
    scene.run()
    scene.lose("w", "r0-n1")
    too_large = NotAdmissible("TooLarge", "the Workload would be too large", ())
    scene.cycle.unwritable.add(scene.state.workloads.facts[key], too_large)
    outcome = get_refusal(scene.run()["w"])
    assert outcome.evicts
    assert "r0-n1" in outcome.message
    assert outcome.message.endswith(too_large.message)


def test_while_evictions_are_paused_one_with_a_replacement_that_cannot_be_written_keeps_its_place() -> None:
    scene = build_running_scene(nodes=3)
    key = scene.submit("w", 2, cpu="4")
    scene.run()
    scene.lose("w", "r0-n1")
    scene.state.observe_pause(Pause(evictions=Stop("evictions", "maintenance", "an administrator", NOW)))
    too_large = NotAdmissible("TooLarge", "the Workload would be too large", ())
    scene.cycle.unwritable.add(scene.state.workloads.facts[key], too_large)
    outcome = get_refusal(scene.run()["w"])
    assert not outcome.evicts
    assert "evictions are paused" in outcome.message
    assert outcome.message.endswith(too_large.message)


def test_without_a_replacement_it_is_evicted_at_once() -> None:
    scene = build_running_scene(nodes=3)
    scene.submit("w", 3, cpu="4")
    scene.run()
    scene.lose("w", "r0-n1", "r0-n0")
    outcome = get_refusal(scene.run()["w"])
    assert outcome.evicts
    assert "r0-n0, r0-n1" in outcome.message
    assert 'topology "t"' in outcome.message
    assert scene.conditions("w")["Evicted"] == ("True", "NodeFailures")
    assert scene.conditions("w")["Admitted"][0] == "True", "until it has stopped"
    assert "unhealthyNodes" not in scene.objects["w"]["status"]
    assert scene.state.quota.get_usage("cq") == {("tas", "cpu"): 12000}
    assert scene.run() == {}


def test_pods_stay_in_the_rack_that_the_others_are_in() -> None:
    scene = build_running_scene(racks=2, nodes=3)
    scene.submit("w", 3, cpu="4", topology={"required": RACK})
    scene.run()
    scene.lose("w", "r0-n1")
    assert get_refusal(scene.run()["w"]).evicts, "the other rack is free, and yet no replacement"


def test_with_fail_fast_off_it_keeps_its_place_and_is_tried_again_once_something_changes() -> None:
    scene = build_running_scene(KEEPS, nodes=3)
    scene.submit("w", 3, cpu="4")
    scene.run()
    scene.lose("w", "r0-n1")
    outcome = get_refusal(scene.run()["w"])
    assert not outcome.evicts
    assert "r0-n1" in outcome.message
    assert scene.where("w")["r0-n1"] == 1
    assert scene.conditions("w")["Admitted"] == ("True", "Admitted")
    assert scene.run() == {}, "the same question has the same answer"
    scene.cycle.requeue_workload("uid-w")
    assert get_refusal(scene.run()["w"]).message == outcome.message
    scene.node(Node("r0-n9", {RACK: "r0", HOSTNAME_LABEL: "r0-n9"}, {"cpu": 4000, "pods": 10}))
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w")["r0-n9"] == 1


@pytest.mark.parametrize(("reads", "threshold", "evicts"), [(True, "2", False), (True, None, True), (True, "9", True), (False, "2", True)])
def test_workload_within_its_own_threshold_of_lost_nodes_waits_for_a_replacement(reads: bool, threshold: str | None, evicts: bool) -> None:
    scene = build_running_scene(NodeReplacement(reads_threshold=reads), nodes=3)
    scene.submit("w", 3, cpu="4")
    scene.run()
    if threshold is not None:
        scene.objects["w"]["metadata"].setdefault("annotations", {})[LOST_NODES_THRESHOLD] = threshold
    scene.lose("w", "r0-n1")
    refused = get_refusal(scene.run()["w"])
    assert bool(refused.evicts) is evicts
    if not evicts:
        scene.lose("w", "r0-n1", "r0-n2")
        assert not get_refusal(scene.run()["w"]).evicts
        for name in ("r0-n8", "r0-n9"):
            scene.node(Node(name, {RACK: "r0", HOSTNAME_LABEL: name}, {"cpu": 4000, "pods": 10}))
        assert isinstance(scene.run()["w"], Admissible)
        assert scene.where("w") == {"r0-n0": 1, "r0-n8": 1, "r0-n9": 1}


@pytest.mark.parametrize("replacement", [REPLACES, KEEPS])
def test_two_workloads_with_lost_nodes_in_one_cycle_get_different_nodes(replacement: NodeReplacement) -> None:
    """Kueue 0.20 (#14572)."""
    scene = build_running_scene(replacement, nodes=3)
    for name in ("first", "second"):
        scene.submit(name, 1, cpu="4", topology={"unconstrained": True})
        scene.run()
    [free] = {"r0-n0", "r0-n1", "r0-n2"} - scene.where("first").keys() - scene.where("second").keys()
    lost = {name: next(iter(scene.where(name))) for name in ("first", "second")}
    for name, node in lost.items():
        scene.lose(name, node)
    verdicts = scene.run()
    assert sorted(map(type, verdicts.values()), key=str) == [Admissible, NotAdmissible]
    [replaced] = (name for name, outcome in verdicts.items() if isinstance(outcome, Admissible))
    assert scene.where(replaced) == {free: 1}
    assert scene.state.ledger.find_drift() == {}


def test_half_slice_in_a_drained_rack_with_fail_fast_off_waits_for_the_other_half() -> None:
    scene = build_running_scene(KEEPS, racks=2, nodes=2)
    sliced = {"preferred": RACK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}
    scene.submit("w", 2, cpu="4", topology=sliced)
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    scene.lose("w", "r0-n0")
    assert not get_refusal(scene.run()["w"]).evicts
    scene.lose("w", "r0-n0", "r0-n1")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r1-n0": 1, "r1-n1": 1}


def test_another_failed_node_is_a_new_question() -> None:
    scene = build_running_scene(KEEPS, nodes=3)
    scene.submit("w", 3, cpu="4")
    scene.run()
    scene.lose("w", "r0-n1")
    scene.run()
    scene.lose("w", "r0-n1", "r0-n2")
    assert "r0-n1, r0-n2" in get_refusal(scene.run()["w"]).message


def test_with_the_gate_off_nothing_is_replaced() -> None:
    scene = build_running_scene(NodeReplacement(is_on=False))
    scene.submit("w", 1)
    scene.run()
    scene.lose("w", "r0-n0")
    assert scene.run() == {}
    assert list_due_for_second_pass(scene.state) != []


def test_node_replacement_follows_its_feature_gates() -> None:
    off = [f"{name}=false" for name in ("TASFailedNodeReplacement", "TASFailedNodeReplacementFailFast")]
    found = [NodeReplacement.from_gates(read_gates(gates)) for gates in ([], off[:1], off[1:], off)]
    assert [(each.is_on, each.fails_fast) for each in found] == [(True, True), (False, True), (True, False), (False, False)]


def test_nodes_that_it_does_not_use_are_none_of_its_business() -> None:
    scene = build_running_scene()
    scene.submit("w", 1)
    scene.run()
    scene.lose("w", "r0-n3", "elsewhere")
    assert scene.run() == {}


def test_evicted_finished_or_inactive_workload_gets_no_replacement_node() -> None:
    scene = build_running_scene()
    for name in ("evicted", "finished"):
        scene.submit(name, 1)
        scene.run()
        (node,) = scene.where(name)
        scene.lose(name, node)
        status = scene.objects[name]["status"]
        over = {"type": name.capitalize(), "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW}
        scene.set_status(name, {**status, "conditions": [*status["conditions"], over]})
    assert scene.run() == {}


@pytest.mark.parametrize("is_bound", [True, False])
def test_plain_pod_keeps_its_place_once_it_is_bound(is_bound: bool) -> None:
    """No controller makes it anew; one that is still gated may get another place."""
    scene = build_running_scene()
    wire = build_workload_json("w", [build_pod_set_json(count=1, topology={"required": RACK})], owner="pod")
    wire["metadata"]["ownerReferences"][0]["kind"] = "Pod"
    scene.workload(wire)
    scene.run()
    before = scene.where("w")
    [node] = before
    if is_bound:
        scene.pod(build_pod_json("w-0", node=node, phase="Running", workload="w", owner="pod"))
    scene.break_down(node)
    scene.lose("w", node)
    assert isinstance(scene.run()["w"], Admissible)
    assert (scene.where("w") == before) is is_bound
    assert "unhealthyNodes" not in scene.objects["w"]["status"]


def test_pods_on_a_node_that_is_deleted_are_replaced() -> None:
    scene = build_running_scene()
    scene.submit("w", 2, cpu="4")
    scene.run()
    scene.state.observe_node("r0-n1", None)
    scene.lose("w", "r0-n1")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n2": 1}


def test_workload_with_an_unreported_failed_node_is_judged_once_the_node_is_reported() -> None:
    scene = build_running_scene()
    scene.submit("w", 2, cpu="4")
    scene.run()
    for node in ("r0-n0", "r0-n1"):
        scene.break_down(node)
    scene.lose("w", "r0-n1")
    assert not get_refusal(scene.run()["w"]).evicts
    scene.lose("w", "r0-n0", "r0-n1")
    scene.run()
    assert scene.where("w") == {"r0-n2": 1, "r0-n3": 1}


def test_a_node_goes_by_its_name_or_by_its_hostname() -> None:
    scene = Running()
    for i in range(3):
        scene.node(Node(f"node{i}", {RACK: "r", HOSTNAME_LABEL: f"host{i}"}, {"cpu": 4000, "pods": 10}))
    for name, lost in (("by-name", "node0"), ("by-host", "host1")):
        scene.submit(name, 1, cpu="4")
        scene.run()
        scene.lose(name, lost)
        scene.run()
        assert f"host{lost[-1]}" not in scene.where(name)
        assert scene.where(name).total() == 1
        scene.delete(name)


def test_pod_sets_tied_to_one_domain_stay_in_it() -> None:
    scene = build_running_scene(racks=2, nodes=4)
    pod_sets = [build_pod_set_json(name, 2, cpu="4", topology={"preferred": HOSTNAME_LABEL}) for name in ("a", "b")]
    wire = build_workload_json("w", pod_sets)
    wire["metadata"]["annotations"] = {"topogate.dev/workload-required-topology": RACK}
    scene.workload(wire)
    scene.run()
    assert {node.partition("-")[0] for node in scene.where("w")} == {"r0"}
    scene.lose("w", "r0-n1")
    assert get_refusal(scene.run()["w"]).evicts
    scene.delete("w")
    scene.workload(wire)
    scene.run()
    scene.lose("w", *(f"r0-n{i}" for i in range(4)))
    assert isinstance(scene.run()["w"], Admissible), "all of it may go to the other rack"
    assert {node.partition("-")[0] for node in scene.where("w")} == {"r1"}
    scene.delete("w")
    wire["metadata"]["annotations"] = {"topogate.dev/workload-preferred-topology": RACK}
    scene.workload(wire)
    scene.run()
    scene.lose("w", "r0-n1")
    assert isinstance(scene.run()["w"], Admissible), "it only prefers the rack"


def test_where_racks_are_the_lowest_level_pods_move_within_the_rack_or_to_another() -> None:
    scene = Running()
    scene.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [RACK])))
    scene.rack("r0", 2)
    scene.rack("r1", 2)
    scene.submit("w", 2, cpu="2", topology={"required": RACK})
    scene.run()
    assert scene.where("w") == {"r0": 2}
    scene.lose("w", "r0-n0")
    scene.run()
    assert scene.where("w") == {"r0": 2}
    (usage,) = (scene.state.ledger.usage[node]["cpu"] for node in scene.state.ledger.usage if scene.state.ledger.usage[node].get("cpu"))
    assert usage == 4000, "both are counted on the node that is left"
    scene.lose("w", "r0-n0", "r0-n1")
    scene.run()
    assert scene.where("w") == {"r1": 2}


def test_failed_node_stays_booked_until_its_replacement_is_written() -> None:
    scene = build_running_scene(nodes=3)
    scene.submit("w", 1, cpu="4")
    scene.run()
    scene.lose("w", "r0-n0")
    scene.submit("other", 1, cpu="4")
    verdicts = scene.verdicts()
    assert [verdict.workload.key for verdict in verdicts] == ["ns/w", "ns/other"]
    assert scene.state.ledger.usage["r0-n0"]["cpu"] == 4000
    for verdict in verdicts:
        scene.write(verdict)
    assert (scene.where("w"), scene.where("other")) == ({"r0-n1": 1}, {"r0-n2": 1})
    assert scene.state.ledger.usage.get("r0-n0", {}).get("cpu", 0) == 0
    assert scene.state.ledger.find_drift() == {}
    scene.submit("third", 1, cpu="4")
    assert isinstance(scene.run()["third"], Admissible), "the node itself is there"


def test_a_replacement_that_could_not_be_written_never_was() -> None:
    scene = build_running_scene(nodes=3)
    scene.submit("w", 2, cpu="4")
    scene.run()
    before = scene.state.ledger.usage
    scene.lose("w", "r0-n0")
    (verdict,) = scene.verdicts()
    assert scene.state.ledger.usage != before
    assert scene.verdicts() == [], "it is on its way"
    scene.state.drop_assumed("ns/w")
    assert scene.state.ledger.usage == before
    assert isinstance(verdict.outcome, Admissible)
    assert isinstance(scene.run()["w"], Admissible)


def test_node_selector_added_by_an_admission_check_applies_to_replacements() -> None:
    scene = Running(KEEPS)
    for i, pool in enumerate(("new", "new", "old")):
        scene.node(Node(f"n{i}", {RACK: "r", HOSTNAME_LABEL: f"n{i}", "pool": pool}, {"cpu": 4000, "pods": 10}))
    scene.submit("w", 1, cpu="4")
    scene.run()
    scene.say("w", podSetUpdates=[{"name": "main", "nodeSelector": {"pool": "old"}}])
    scene.lose("w", "n0")
    scene.run()
    assert scene.where("w") == {"n2": 1}
    scene.lose("w", "n2")
    assert not get_refusal(scene.run()["w"]).evicts


def test_without_its_topology_there_is_no_replacement() -> None:
    scene = build_running_scene(KEEPS)
    scene.submit("w", 1)
    scene.run()
    scene.state.observe_topology("t", None)
    scene.lose("w", "r0-n0")
    assert 'flavor "tas"' in get_refusal(scene.run()["w"]).message


def test_many_second_passes_and_other_turns_alternate_until_all_had_one() -> None:
    """Former defect: the second passes of a storm of failed nodes were one step, however many."""
    scene, kinds = build_running_scene(nodes=12), list[bool]()
    for i in range(4):
        scene.submit(f"w{i}", 1, cpu="4")
    scene.run()
    lost = {name: next(iter(scene.where(name))) for name in scene.objects}
    for name, node in lost.items():
        scene.break_down(node)
        scene.lose(name, node)
    for i in range(4):
        scene.submit(f"new{i}", 1, cpu="4")
    while not kinds or scene.cycle.is_cut:
        verdicts = list(scene.cycle.run(lambda: not scene.cycle.latest.has_decided))
        for verdict in verdicts:
            scene.write(verdict)
            assert isinstance(verdict.outcome, Admissible)
        kinds += [verdict.is_second_pass for verdict in verdicts]
        assert len(verdicts) <= 1
        assert len(kinds) <= 8
    assert kinds == [True, False] * 4
    assert scene.state.ledger.find_drift() == {}


def test_second_passes_that_fail_again_and_again_keep_no_other_from_its_turn() -> None:
    """After a cut the round of second passes goes on, though each change lets those before be tried again."""
    scene, judged = build_running_scene(KEEPS, nodes=4), list[str]()
    for i in range(4):
        scene.submit(f"w{i}", 1, cpu="4")
    scene.run()
    for name, node in {name: next(iter(scene.where(name))) for name in scene.objects}.items():
        scene.break_down(node)
        scene.lose(name, node)
    scene.submit("new", 1, cpu="4")
    for i in range(12):
        scene.state.observe_node(
            f"late{i}", NodeFacts.read(build_node_json(Node(f"late{i}", {RACK: "r9", HOSTNAME_LABEL: f"late{i}"}, {"cpu": 1000})))
        )
        judged += [verdict.workload.key for verdict in scene.cycle.run(lambda: not scene.cycle.latest.has_decided)]
    assert {f"{NAMESPACE}/{name}" for name in ("w0", "w1", "w2", "w3", "new")} == set(judged)
    assert max(judged.count(f"{NAMESPACE}/w{i}") for i in range(4)) <= 2


def test_stuck_pod_with_changed_node_labels_is_reported_once() -> None:
    """Seed 624: the answer was the same place, each ten seconds."""
    scene = build_running_scene(racks=0)
    for name, rack, host in (("n0", "r0", "n0"), ("n1", "r0", "n1"), ("twin", "r1", "n1")):
        scene.node(Node(name, {RACK: rack, HOSTNAME_LABEL: host}, {"cpu": 4000, "pods": 10}))
    scene.submit("w", 2, cpu="4", topology={"required": RACK})
    scene.run()
    given = scene.objects["w"]["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    assert given["levels"] == [RACK, HOSTNAME_LABEL]
    scene.state.observe_node("twin", None)
    scene.node(Node("n1", {RACK: "r2", HOSTNAME_LABEL: "n1"}, {"cpu": 4000, "pods": 10}))
    scene.node(Node("n2", {RACK: "r0", HOSTNAME_LABEL: "n2"}, {"cpu": 4000, "pods": 10}))
    observe_stuck(scene, ("n1", 1))
    outcome = get_refusal(scene.run()["w"])
    assert (outcome.reason, outcome.evicts) == ("TopologyPlacementFailed", False)
    assert "labels of nodes" in outcome.message
    assert scene.run() == {}


def test_gone_node_with_a_hostname_that_is_the_name_of_another_is_replaced_alone() -> None:
    """Former defect: the other node was taken for it. That it was well kept the job waiting for its pod for ever."""
    scene = build_running_scene(racks=0)
    for number in range(5):
        labels = {RACK: "r0", HOSTNAME_LABEL: f"n{(number + 1) % 5}"}
        scene.node(Node(f"n{number}", labels, {"cpu": 4000, "pods": 10}))
    scene.submit("w", 3, cpu="4")
    scene.run()
    assert scene.where("w") == {"n0": 1, "n1": 1, "n2": 1}
    for name in ("n4", "n0", "n1"):
        scene.pod(build_pod_json(f"w-{name}", node=name, cpu="4", phase="Running", workload="w"))
    scene.state.observe_node("n0", None)
    scene.state.observe_pod(f"{NAMESPACE}/w-n0", None)
    scene.lose("w", "n1")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"n0": 1, "n2": 1, "n3": 1}
    assert scene.state.ledger.find_drift() == {}


def scatter(**hosts: tuple[str, str]) -> Running:
    """Nodes of 4 cpu, each with its rack and hostname."""
    scene = build_running_scene(racks=0)
    for name, (rack, host) in hosts.items():
        scene.node(Node(name, {RACK: rack, HOSTNAME_LABEL: host}, {"cpu": 4000, "pods": 10}))
    return scene


def test_lost_node_is_not_replaced_in_a_sibling_rack_with_a_common_prefix() -> None:
    """Kueue 0.20 (#14292): racks r1, r1-2 and r10, hosts n1, n1-2 and n10 are told apart by their whole values."""
    scene = scatter(
        **{"n1": ("r1", "n1"), "n1-2": ("r1", "n1-2"), "n10": ("r10", "n10"), "n1-3": ("r1-2", "n1-3"), "n100": ("r10", "n100")}
    )
    scene.submit("w", 2, cpu="4")
    scene.run()
    assert scene.where("w") in ({"n1": 1, "n1-2": 1}, {"n10": 1, "n100": 1})
    scene.lose("w", min(scene.where("w")))
    assert get_refusal(scene.run()["w"]).evicts, "no other node of its rack is left"


def test_lost_node_is_replaced_in_its_own_rack_beside_one_with_a_common_prefix() -> None:
    scene = scatter(n1=("r1", "n1"), n10=("r1", "n10"), n2=("r10", "n2"), n20=("r1-0", "n20"))
    scene.submit("w", 2, cpu="4")
    scene.run()
    assert scene.where("w") == {"n1": 1, "n10": 1}
    scene.node(Node("n100", {RACK: "r1", HOSTNAME_LABEL: "n100"}, {"cpu": 4000, "pods": 10}))
    scene.lose("w", "n1")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"n10": 1, "n100": 1}


@pytest.mark.parametrize("named", ["n1", "host1"])
def test_node_with_another_hostname_than_its_name_keeps_its_pods_once_it_is_well(named: str) -> None:
    """Review 29: a process that saw `unhealthyNodes` late moved the place of pods that ran, where hostnames are no names."""
    scene = scatter(**{f"n{number}": ("r0", f"host{number}") for number in range(5)})
    scene.submit("w", 3, cpu="4")
    scene.run()
    before = scene.where("w")
    for number in range(3):
        scene.pod(build_pod_json(f"w-{number}", node=f"n{number}", cpu="4", phase="Running", workload="w"))
    scene.lose("w", named)
    scene.run()
    assert scene.where("w") == before
    assert scene.state.ledger.find_drift() == {}


def test_gone_one_of_two_nodes_with_one_hostname_is_replaced_and_the_other_is_kept() -> None:
    """Review 29: nothing was done, since the node that is named like the hostname is well."""
    scene = scatter(h7=("r1", "h7"), twin=("r0", "h7"), a0=("r0", "a0"))
    scene.submit("w", 3, cpu="4", topology={"preferred": RACK})
    scene.run()
    for name in ("h7", "twin", "a0"):
        scene.pod(build_pod_json(f"w-{name}", node=name, cpu="4", phase="Running", workload="w"))
    scene.node(Node("spare", {RACK: "r1", HOSTNAME_LABEL: "spare"}, {"cpu": 4000, "pods": 10}))
    scene.state.observe_node("twin", None)
    scene.state.observe_pod(f"{NAMESPACE}/w-twin", None)
    scene.lose("w", "h7")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"a0": 1, "h7": 1, "spare": 1}
    assert scene.state.ledger.find_drift() == {}
