"""What pods leave behind: those that were deleted by force and are kept by finalizers leave their room to their own workload, where that
has no other place; those that a kubelet rejected a node that is the last it gets."""

from __future__ import annotations

from typing import Any

import pytest

from core.queueing.flavors.outcome import Admissible
from core.state.check_facts import CheckFacts
from tests.builders import NAMESPACE, RACK, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.running import Running, build_running_scene, get_refusal


def leave(scene: Running, name: str, node: str, *, of: str = "w", cpu: str = "4", pod_set: str = "main", grace_s: int = 0) -> None:
    """A pod that was deleted, and is kept by a finalizer."""
    pod = build_pod_json(name, node=node, cpu=cpu, phase="Running", workload=of, pod_set=pod_set, owner=f"job-{of}", terminating=True)
    pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
    scene.pod(pod)


def submit(scene: Running, name: str = "w", count: int = 1, **options: Any) -> None:
    scene.submit(name, count, cpu="4", owner=f"job-{name}", **options)


def test_workload_that_fits_only_on_the_nodes_of_its_leftover_pods_is_placed_there_and_counted_once() -> None:
    scene = build_running_scene(nodes=2)
    leave(scene, "p0", "r0-n0")
    leave(scene, "p1", "r0-n1")
    submit(scene, count=2)
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    usage = {node: dict(amounts)["cpu"] for node, amounts in scene.state.ledger.usage.items()}
    assert usage == {"r0-n0": 4000, "r0-n1": 4000}, "a pod that is left stands for the one that comes in its place"
    scene.state.observe_pod(f"{NAMESPACE}/p0", None)
    scene.pod(build_pod_json("new", node="r0-n0", cpu="4", phase="Running", workload="w", owner="job-w"))
    assert {node: dict(amounts)["cpu"] for node, amounts in scene.state.ledger.usage.items()} == usage
    assert scene.state.ledger.find_drift() == {}


def test_another_place_comes_first() -> None:
    scene = build_running_scene(nodes=2)
    leave(scene, "p", "r0-n0")
    submit(scene)
    scene.run()
    assert scene.where("w") == {"r0-n1": 1}


def test_room_of_leftover_pods_is_not_given_to_another_workload() -> None:
    scene = build_running_scene(nodes=1)
    leave(scene, "p", "r0-n0", of="other")
    submit(scene)
    get_refusal(scene.run()["w"])


def test_terminating_pods_within_their_grace_period_keep_their_room() -> None:
    scene = build_running_scene(nodes=1)
    leave(scene, "p", "r0-n0", grace_s=30)
    submit(scene)
    get_refusal(scene.run()["w"])


def test_workload_with_leftover_pods_is_judged_separately_from_its_equivalence_class() -> None:
    scene = build_running_scene(nodes=1)
    submit(scene, "first", created="2026-01-01T00:00:00Z")
    leave(scene, "p", "r0-n0")
    submit(scene, created="2026-01-01T00:00:01Z")
    outcomes = scene.run()
    get_refusal(outcomes["first"])
    assert isinstance(outcomes["w"], Admissible)


def test_workload_with_room_of_its_leftover_pods_preempts_no_workload() -> None:
    scene = build_running_scene(nodes=2)
    scene.queue("cq", {"tas": "100"}, preemption={"withinClusterQueue": "LowerPriority"})
    submit(scene, "low")
    scene.run()
    (node,) = {"r0-n0", "r0-n1"} - set(scene.where("low"))
    leave(scene, "p", node)
    submit(scene, priority=1)
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {node: 1}


def test_all_of_its_pod_sets_leave_some() -> None:
    scene = build_running_scene(nodes=2)
    leave(scene, "a", "r0-n0", pod_set="a")
    leave(scene, "b", "r0-n1", pod_set="b")
    pod_sets = [build_pod_set_json(name, 1, cpu="4", topology={"required": RACK}) for name in ("a", "b")]
    scene.workload(build_workload_json("w", pod_sets, owner="job-w"))
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    assert scene.state.ledger.find_drift() == {}


def test_its_place_may_follow_the_quota() -> None:
    scene = build_running_scene(nodes=1)
    scene.state.observe_check("check", CheckFacts("check", "kueue.x-k8s.io/provisioning-request", active=True))
    scene.queue("cq", {"tas": "100"}, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    leave(scene, "p", "r0-n0")
    submit(scene)
    scene.run()
    scene.say("w")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n0": 1}


def test_room_of_deleted_leftover_pods_is_not_reserved() -> None:
    scene = build_running_scene(nodes=1)
    leave(scene, "p", "r0-n0")
    scene.state.observe_pod(f"{NAMESPACE}/p", None)
    scene.pod(build_pod_json("stranger", node="r0-n0", cpu="4", phase="Running"))
    submit(scene)
    get_refusal(scene.run()["w"])


# --- nodes that reject pods -------------------------------------------------------------------------------


def reject(scene: Running, name: str, node: str, *, of: str = "w", reason: str = "UnexpectedAdmissionError") -> None:
    """A pod that a kubelet would not run."""
    pod = build_pod_json(name, node=node, cpu="4", phase="Failed", workload=of, owner=f"job-{of}")
    pod["status"]["reason"] = reason
    scene.pod(pod)


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu"])
def test_a_node_that_rejected_pods_of_it_comes_last(reason: str) -> None:
    scene = build_running_scene(nodes=2)
    reject(scene, "p", "r0-n0", reason=reason)
    submit(scene)
    scene.run()
    assert scene.where("w") == {"r0-n1": 1}


def test_a_whole_rack_comes_last_where_it_could_not_be_used_without_that_node() -> None:
    scene = build_running_scene(racks=2, nodes=2)
    reject(scene, "p", "r0-n0")
    submit(scene, count=2)
    scene.run()
    assert scene.where("w") == {"r1-n0": 1, "r1-n1": 1}


def test_it_is_taken_where_there_is_no_other() -> None:
    scene = build_running_scene(nodes=2)
    reject(scene, "p", "r0-n0")
    submit(scene, count=2)
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}


@pytest.mark.parametrize("reason", ["", "Evicted"])
def test_node_of_a_pod_that_failed_by_itself_is_not_avoided(reason: str) -> None:
    scene = build_running_scene(nodes=2)
    reject(scene, "p", "r0-n0", reason=reason)
    submit(scene)
    scene.run()
    assert scene.where("w") == {"r0-n0": 1}


def test_node_that_rejected_pods_of_another_workload_is_not_avoided() -> None:
    scene = build_running_scene(nodes=2)
    reject(scene, "p", "r0-n0", of="other")
    submit(scene)
    scene.run()
    assert scene.where("w") == {"r0-n0": 1}


def test_it_is_forgotten_with_the_pods() -> None:
    scene = build_running_scene(nodes=2)
    reject(scene, "p", "r0-n0")
    reject(scene, "q", "r0-n0")
    scene.state.observe_pod(f"{NAMESPACE}/p", None)
    scene.state.observe_pod(f"{NAMESPACE}/q", None)
    submit(scene)
    scene.run()
    assert scene.where("w") == {"r0-n0": 1}


def test_pods_that_lose_another_node_do_not_come_back_to_it_either() -> None:
    scene = build_running_scene(nodes=4)
    submit(scene, count=2)
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    reject(scene, "p", "r0-n2")
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n3": 1}
    scene.break_down("r0-n3")
    scene.lose("w", "r0-n3")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n2": 1}, "where there is no other it does"


def test_workload_with_a_preferred_rack_avoids_the_node_that_rejected_its_pods() -> None:
    scene = build_running_scene(racks=2, nodes=2)
    reject(scene, "p", "r0-n0")
    scene.submit("w", 2, cpu="4", topology={"preferred": RACK}, owner="job-w")
    scene.run()
    assert scene.where("w") == {"r1-n0": 1, "r1-n1": 1}
    scene.submit("v", 2, cpu="4", topology={"preferred": RACK}, owner="job-v")
    scene.run()
    assert scene.where("v") == {"r0-n0": 1, "r0-n1": 1}
