"""One cycle after the other: who is admitted, who waits for what, and who is looked at again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from core.names import (
    HOSTNAME_LABEL,
    MULTIKUEUE_CONTROLLER,
    REASON_MISCONFIGURED,
    REASON_PENDING_EVALUATION,
    REASON_SUSPENDED,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
)
from core.placement.changes import Amount, NodeFix
from core.placement.refusals import RefusalKind
from core.queueing.cycle.queue_resolution import find_inactive_reason
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.check_facts import CheckFacts
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts, LocalQueueFacts
from tests.builders import (
    NAMESPACE,
    RACK,
    Node,
    build_cluster_queue_json,
    build_condition_json,
    build_local_queue_json,
    build_node_json,
    build_pod_json,
    build_pod_set_json,
    build_workload_json,
)
from tests.queueing.scene import Scene, build_times, get_refusals, list_admitted, list_in_queue_order, list_refusals


def test_two_that_want_the_last_rack_in_one_cycle():
    """Issue 4: one gets it, the other says what it waits for."""
    scene = Scene()
    scene.rack("full", 2)
    scene.rack("last", 2)
    scene.submit("before", 8)
    scene.run()
    created = build_times(["first", "second"])
    for name in ("second", "first"):
        scene.submit(name, 8, created=created[name])
    verdicts = scene.run()
    assert list_admitted(verdicts) == {"first"}
    (refusal,) = list_refusals(verdicts["second"])
    assert (refusal.kind, refusal.fit, refusal.wanted) == (RefusalKind.NOT_FIT, 0, 8)
    assert refusal.explanation is not None
    freed = (Amount("cpu", 4000),)
    assert [list(change.nodes) for change in refusal.explanation.changes] == [
        [NodeFix("full-n0", free=freed), NodeFix("full-n1", free=freed)]
    ]
    assert scene.state.ledger.find_drift() == {}


# --- order --------------------------------------------------------------------------------------------


def test_queue_order_is_by_priority_then_creation_time_then_uid():
    scene = Scene()
    created = build_times("abcd")
    for name, priority in (("d", 0), ("c", 5), ("b", 0), ("a", 5)):
        scene.submit(name, priority=priority, created=created[name])
    scene.submit("z", created=created["b"], uid="0")
    assert [workload.key.partition("/")[2] for workload in list_in_queue_order(scene.state)] == ["a", "c", "b", "z", "d"]


@pytest.mark.parametrize("uids", [("1", "2"), ("2", "1")])
def test_a_blocked_strict_head_is_not_overtaken_by_one_of_the_same_second(uids: tuple[str, str]):
    scene = Scene(strict=True)
    scene.rack("r1", 2)
    scene.submit("head", 9, uid=uids[0])
    scene.submit("small", 1, uid=uids[1])
    outcomes = scene.run()
    assert isinstance(outcomes["head"], NotAdmissible)
    assert isinstance(outcomes["small"], NotAdmissible)
    # Nor when the head is seen changed in the meantime.
    scene.submit("head", 10, uid=uids[0])
    assert isinstance(scene.run()["head"], NotAdmissible)


def test_evicted_workload_is_queued_since_its_eviction():
    def facts(*conditions: dict[str, str]) -> WorkloadFacts:
        return WorkloadFacts.read(build_workload_json("w", [], created="2026-01-01T00:00:00Z", conditions=conditions))

    later = "2026-01-01T10:00:00Z"
    assert facts().queued_since == "2026-01-01T00:00:00Z"
    assert facts(build_condition_json("Evicted", time=later)).queued_since == later
    assert facts(build_condition_json("Evicted", False, time=later)).queued_since == "2026-01-01T00:00:00Z"


# --- strict and best effort ---------------------------------------------------------------------------


def build_crowded_scene(*, strict: bool) -> Scene:
    """Four CPUs; the head wants more than that, the two behind it would fit."""
    scene = Scene(strict=strict)
    scene.rack("r", 1)
    created = build_times(["head", "small", "tiny"])
    scene.submit("head", 8, created=created["head"])
    scene.submit("small", 2, created=created["small"])
    scene.submit("tiny", 1, created=created["tiny"])
    return scene


def test_best_effort_lets_those_behind_pass():
    verdicts = build_crowded_scene(strict=False).run()
    assert list_admitted(verdicts) == {"small", "tiny"}
    assert list(get_refusals(verdicts)) == ["head"]


def test_strict_queue_blocks_later_workloads_and_reports_the_reason():
    verdicts = build_crowded_scene(strict=True).run()
    assert list_admitted(verdicts) == set()
    assert {outcome.reason for name, outcome in get_refusals(verdicts).items() if name != "head"} == {REASON_PENDING_EVALUATION}
    assert "before this one" in get_refusals(verdicts)["tiny"].message


def test_strict_goes_on_blocking_in_later_cycles():
    scene = build_crowded_scene(strict=True)
    scene.run()
    assert scene.run() == {}
    scene.pod(build_pod_json("other", node="r-n0", phase="Running"))
    scene.pod(build_pod_json("other", node="r-n0", phase="Succeeded"))
    assert list_admitted(scene.run()) == set()


@pytest.mark.parametrize("how", ["deleted", "deactivated", "moved away", "smaller"])
def test_those_behind_a_strict_head_are_judged_when_it_is_out_of_the_way(how: str):
    """Nothing else happens in the cluster, so nothing else can wake them."""
    scene = build_crowded_scene(strict=True)
    scene.run()
    if how == "deleted":
        scene.delete("head")
    elif how == "deactivated":
        scene.submit("head", 8, active=False)
    elif how == "moved away":
        scene.submit("head", 8, queue="nowhere")
    else:
        scene.submit("head", 1)
    assert {"small", "tiny"} <= list_admitted(scene.run())


def test_former_head_behind_another_one_waits_for_it_and_is_judged_anew_at_the_head():
    """Found by the simulation: it went on saying why it could not be placed when it was the head, whatever had changed since."""
    scene = build_crowded_scene(strict=True)
    assert get_refusals(scene.run())["head"].reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    scene.submit("urgent", 9, priority=5)
    verdicts = get_refusals(scene.run())
    assert verdicts["urgent"].reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    assert (verdicts["head"].reason, "before this one" in verdicts["head"].message) == (REASON_PENDING_EVALUATION, True)
    assert scene.run() == {}, "nothing has changed"
    scene.rack("large", 2)
    scene.delete("urgent")
    assert list_admitted(scene.run()) == {"head", "small", "tiny"}


def test_former_head_among_others_that_are_alike_waits_for_the_new_head_too():
    scene = build_crowded_scene(strict=True)
    for name in ("like it", "like them", "of a kind"):
        scene.submit(name, 8)
    assert get_refusals(scene.run())["head"].reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    scene.submit("urgent", 9, priority=5)
    verdicts = get_refusals(scene.run())
    assert set(verdicts) == {"urgent", "head"}, "the others wait for the same as before"
    assert (verdicts["head"].reason, "before this one" in verdicts["head"].message) == (REASON_PENDING_EVALUATION, True)


def test_another_queue_is_not_blocked():
    scene = build_crowded_scene(strict=True)
    scene.queue("free", {"tas": "9"})
    scene.local_queue("lq2", "free")
    scene.submit("other", 1, queue="lq2")
    assert list_admitted(scene.run()) == {"other"}


# --- looked at again only when it could help ------------------------------------------------------------


def build_waiting_scene(judged: Counter[str]) -> Scene:
    """`w` wants 8 pods in one rack of 4, and has been refused."""
    scene = Scene(quota="12")
    scene.rack("r", 1)
    scene.pod(build_pod_json("other", node="r-n0", cpu="500m", phase="Running"))
    scene.submit("w", 8)
    assert list(get_refusals(scene.run())) == ["w"]
    assert judged["w"] == 1
    return scene


def test_a_refused_workload_is_not_judged_again_while_nothing_happens(judged: Counter[str]):
    scene = build_waiting_scene(judged)
    for _ in range(3):
        assert scene.run() == {}
    assert judged["w"] == 1


def test_refused_workload_is_not_judged_again_after_changes_that_cannot_help(judged: Counter[str]):
    scene = build_waiting_scene(judged)
    scene.node(Node("r-n0", {RACK: "r", HOSTNAME_LABEL: "r-n0"}, {"cpu": 4000, "pods": 10}))  # a heartbeat
    scene.pod(build_pod_json("new", node="r-n0", cpu="500m", phase="Running"))  # less room, not more
    scene.pod(build_pod_json("other", node="r-n0", cpu="500m", phase="Running", labels={"a": "b"}))
    scene.submit("w", 8, version=2)  # our own status write comes back
    scene.run()
    assert judged["w"] == 1


def helps(scene: Scene, how: str) -> None:
    if how == "a node is added":
        scene.rack("r", 2)
    elif how == "a node grows":
        scene.node(Node("r-n0", {RACK: "r", HOSTNAME_LABEL: "r-n0"}, {"cpu": 9000, "pods": 10}))
    elif how == "a pod has ended":
        scene.pod(build_pod_json("other", node="r-n0", cpu="500m", phase="Succeeded"))
    elif how == "a pod is gone":
        scene.state.observe_pod(f"{NAMESPACE}/other", None)
    elif how == "quota grows":
        scene.queue("cq", {"tas": "20"})
    elif how == "the flavor changes":
        scene.flavor("tas", "t", nodeLabels={"a": "b"})
    elif how == "it asks for less":
        scene.submit("w", 2)
    elif how == "its priority changes":
        scene.submit("w", 8, priority=3)
    else:
        scene.cycle.requeue_workload("uid-w")


@pytest.mark.parametrize(
    "how",
    [
        "a node is added",
        "a node grows",
        "a pod has ended",
        "a pod is gone",
        "quota grows",
        "the flavor changes",
        "it asks for less",
        "its priority changes",
        "its verdict could not be written",
    ],
)
def test_a_refused_workload_is_judged_again_when(how: str, judged: Counter[str]):
    scene = build_waiting_scene(judged)
    helps(scene, how)
    scene.run()
    assert judged["w"] == 2


def test_unchanged_refusal_is_not_reported_again(judged: Counter[str]):
    scene = build_waiting_scene(judged)
    helps(scene, "quota grows")
    assert scene.run() == {}
    assert judged["w"] == 2


def test_a_node_that_helps_lets_it_in():
    scene = build_waiting_scene(Counter({"w": 1}))
    scene.rack("big", 2)
    assert list_admitted(scene.run()) == {"w"}


def test_room_given_back_by_another_workload_lets_it_in():
    scene = Scene(quota="4")
    scene.rack("r", 2)
    scene.submit("first", 4, created=build_times("ab")["a"])
    scene.submit("second", 4, created=build_times("ab")["b"])
    assert list_admitted(scene.run()) == {"first"}
    scene.delete("first")
    assert list_admitted(scene.run()) == {"second"}


def test_admission_with_a_failed_write_is_decided_again():
    scene = Scene(quota="4")
    scene.rack("r", 1)
    key = scene.submit("w", 4)
    assert list_admitted(scene.run()) == {"w"}
    assert scene.run() == {}
    scene.state.drop_assumed(key)
    assert list_admitted(scene.run()) == {"w"}


def test_a_spent_budget_leaves_the_rest_to_the_next_cycle():
    scene = Scene()
    scene.rack("r", 2)
    for name in "abc":
        scene.submit(name, created=build_times("abc")[name])
    budget = iter([True, True, False])
    assert [verdict.workload.key for verdict in scene.cycle.run(lambda: next(budget))] == ["ns/a", "ns/b"]
    assert list_admitted(scene.run()) == {"c"}


# --- the way to the queue -------------------------------------------------------------------------------


def observe_stopped(scene: Scene, part: str) -> None:
    if part == "LocalQueue":
        wire = build_local_queue_json("lq", "cq")
        wire["spec"]["stopPolicy"] = "Hold"
        scene.state.observe_local_queue(f"{NAMESPACE}/lq", LocalQueueFacts.read(wire))
    else:
        facts = ClusterQueueFacts.read(build_cluster_queue_json("cq", {"tas": "9"}, stopPolicy="HoldAndDrain"))
        scene.state.observe_cluster_queue("cq", facts)


def spoil(scene: Scene, how: str) -> None:
    if how == "no LocalQueue":
        scene.state.observe_local_queue(f"{NAMESPACE}/lq", None)
    elif how == "no ClusterQueue":
        scene.state.observe_cluster_queue("cq", None)
    elif how.startswith("stopped "):
        observe_stopped(scene, how.removeprefix("stopped "))
    elif how == "no flavor":
        scene.state.observe_flavor("tas", None)
    elif how == "no topology":
        scene.state.observe_topology("t", None)
    elif how == "deleting":
        scene.state.observe_cluster_queue("cq", replace(scene.state.cluster_queues["cq"], deleting=True))
    else:
        scene.queue("cq", {"tas": "9"}, namespaceSelector={"matchLabels": {"team": "a"}})


@pytest.mark.parametrize(
    ("how", "reason", "message"),
    [
        ("no LocalQueue", REASON_MISCONFIGURED, "LocalQueue lq doesn't exist; namespace ns has none yet"),
        (
            "no ClusterQueue",
            REASON_MISCONFIGURED,
            "ClusterQueue cq doesn't exist; LocalQueue lq names it, and an administrator can make it",
        ),
        (
            "stopped LocalQueue",
            REASON_SUSPENDED,
            "LocalQueue lq is inactive: its stopPolicy is Hold, it admits no workload until stopPolicy is None",
        ),
        (
            "stopped ClusterQueue",
            REASON_SUSPENDED,
            "ClusterQueue cq is inactive: its stopPolicy is HoldAndDrain, it admits no workload until stopPolicy is None",
        ),
        (
            "no flavor",
            REASON_SUSPENDED,
            "ClusterQueue cq is inactive: references missing ResourceFlavor(s): tas; an administrator can make them",
        ),
        ("no topology", REASON_SUSPENDED, "ClusterQueue cq is inactive: there is no Topology 't'"),
        ("deleting", REASON_SUSPENDED, "ClusterQueue cq is inactive: the ClusterQueue is being deleted"),
        ("another namespace", REASON_MISCONFIGURED, "namespace ns doesn't match the selector of ClusterQueue cq"),
    ],
)
def test_workload_of_an_unusable_queue_reports_the_reason_and_is_admitted_after_repair(how: str, reason: str, message: str):
    scene = Scene()
    scene.rack("r", 1)
    spoil(scene, how)
    scene.submit("w")
    outcome = get_refusals(scene.run())["w"]
    assert (outcome.reason, outcome.message) == (reason, message)
    restored = Scene()
    for name, topology in restored.state.topologies.items():
        scene.state.observe_topology(name, topology)
    for name, flavor in restored.state.flavors.items():
        scene.state.observe_flavor(name, flavor)
    for name, queue in restored.state.cluster_queues.items():
        scene.state.observe_cluster_queue(name, queue)
    for name, local in restored.state.local_queues.items():
        scene.state.observe_local_queue(name, local)
    assert list_admitted(scene.run()) == {"w"}


def test_inactive_queue_names_its_missing_flavor_or_topology():
    scene = Scene()
    queue = scene.state.cluster_queues["cq"]
    assert find_inactive_reason(scene.state, queue) is None
    scene.state.observe_topology("t", None)
    reason, message = find_inactive_reason(scene.state, queue) or ("", "")
    assert reason == "TopologyNotFound"
    assert "'t'" in message
    scene.state.observe_flavor("tas", None)
    reason, message = find_inactive_reason(scene.state, queue) or ("", "")
    assert reason == "FlavorNotFound"
    assert "(s): tas;" in message


@pytest.mark.parametrize("active", [False, True])
def test_queue_with_a_topology_flavor_and_a_multikueue_check_reports_both_first(active: bool):
    """No controller sets such a check Active where topogate runs: that it is inactive is not what an administrator can mend."""
    scene = Scene()
    scene.state.observe_check("remote", CheckFacts("remote", MULTIKUEUE_CONTROLLER, active=active))
    queue = replace(scene.state.cluster_queues["cq"], checks=(("remote", frozenset()),))
    reason, message = find_inactive_reason(scene.state, queue) or ("", "")
    assert reason == "MultiKueueWithTopology"
    assert "AdmissionCheck remote" in message


def test_finished_inactive_and_deleting_workloads_wait_for_nothing():
    scene = Scene()
    scene.rack("r", 1)
    scene.submit("finished", conditions=[build_condition_json("Finished")])
    scene.submit("inactive", active=False)
    gone = build_workload_json("deleting", [build_pod_set_json()])
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    scene.workload(gone)
    assert scene.run() == {}


def test_a_cordoned_or_unready_node_gives_its_place_back_when_it_is_well():
    scene = Scene()
    sick = Node("n", {RACK: "r", HOSTNAME_LABEL: "n"}, ready=False)
    scene.node(sick)
    scene.submit("w", 2)
    assert "NotReady: 1" in get_refusals(scene.run())["w"].message
    wire = build_node_json(replace(sick, ready=True))
    wire["spec"]["unschedulable"] = True
    scene.state.observe_node("n", type(scene.state.nodes["n"]).read(wire))
    assert "unschedulable: 1" in get_refusals(scene.run())["w"].message
    scene.node(replace(sick, ready=True))
    assert list_admitted(scene.run()) == {"w"}


def test_workload_of_an_unknown_local_queue_gets_a_list_of_existing_queues():
    scene = Scene()
    scene.state.observe_local_queue(f"{NAMESPACE}/lq", None)
    for i in range(7):
        scene.local_queue(f"q{i}", "cq")
    scene.state.observe_local_queue("other/q9", LocalQueueFacts("other/q9", "cq", "None"))
    scene.submit("w")
    refused = get_refusals(scene.run())["w"]
    assert refused.reason == REASON_MISCONFIGURED
    assert "LocalQueue lq" in refused.message
    assert "q0, q1, q2, q3, q4 and 2 more" in refused.message


def test_a_strict_head_is_not_overtaken_while_its_refusal_is_written():
    scene = build_crowded_scene(strict=True)
    scene.run()
    scene.submit("late", 1, created="2026-01-02T00:00:00Z")
    assert [verdict.outcome for verdict in scene.verdicts("head") if not isinstance(verdict.outcome, NotAdmissible)] == []
    scene.delete("head")
    assert "late" in list_admitted(scene.run())


def test_workload_with_a_verdict_being_written_is_not_judged(judged: Counter[str]):
    scene = build_waiting_scene(judged)
    scene.rack("big", 2)
    assert scene.verdicts("w") == []
    assert judged["w"] == 1
    assert list_admitted(scene.run()) == {"w"}


def test_a_decision_that_cannot_be_written_is_made_once():
    """Former defect: it was assumed and dropped at each turn, and each time all refusals of others were void."""
    scene = Scene(quota="100")
    scene.rack("r", 1)
    key = scene.submit("w", 1)
    [verdict] = scene.verdicts()
    assert isinstance(verdict.outcome, Admissible)
    changes, quota = scene.state.changes, scene.state.quota.all_changes
    too_large = NotAdmissible("TooLarge", "the Workload would be too large", ())
    scene.state.drop_assumed(key, verdict.workload.uid, helps=False)
    scene.cycle.unwritable.add(verdict.workload, too_large)
    assert (scene.state.changes, scene.state.quota.all_changes) == (changes, quota)
    scene.cycle.requeue_workload(verdict.workload.uid)
    assert scene.run()["w"] == too_large
    scene.submit("other", 1)
    assert list_admitted(scene.run()) == {"other"}
    scene.submit("w", 1, version=2)
    assert list_admitted(scene.run()) == set()
    scene.submit("w", 2, version=3)
    assert list_admitted(scene.run()) == {"w"}
