"""The second pass: places after admission checks, and what holds for it whatever fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.pods_ready_rules import PodsReadyRules, Scope
from core.names import REASON_WAITING_FOR_PODS_READY, TOPOLOGY_PENDING, TOPOLOGY_READY
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.second_pass import REPLACES, NodeReplacement
from core.queueing.flavors.outcome import Admissible
from core.state.check_facts import CheckFacts
from tests.builders import NAMESPACE, RACK, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.running import KEEPS, Running, build_running_scene, get_refusal


def build_waiting_scene(replacement: NodeReplacement = REPLACES, *, nodes: int = 1) -> Running:
    """A queue with a check that brings nodes, and workload `w`, which has quota."""
    scene = Running(replacement)
    scene.state.observe_check("check", CheckFacts("check", "kueue.x-k8s.io/provisioning-request", active=True))
    scene.queue("cq", {"tas": "100"}, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    scene.rack("r0", nodes)
    scene.submit("w", 2, cpu="4")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.conditions("w")["Admitted"] == ("False", "UnsatisfiedAdmissionChecks")
    return scene


def test_a_place_is_found_once_the_check_is_ready() -> None:
    scene = build_waiting_scene(nodes=2)
    assert scene.run() == {}
    scene.say("w")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    assert scene.conditions("w")["Admitted"] == ("True", "Admitted")


def test_second_pass_without_a_place_keeps_quota_and_is_retried_on_request() -> None:
    scene = build_waiting_scene()
    scene.say("w")
    assert not get_refusal(scene.run()["w"]).evicts
    assert scene.run() == {}
    scene.cycle.requeue_workload("uid-w")
    get_refusal(scene.run()["w"])
    scene.rack("r0", 3)
    assert isinstance(scene.run()["w"], Admissible)


def test_second_pass_keeps_quota_while_admission_is_blocked_by_other_pods() -> None:
    """Kueue 0.20 (#13685): blockAdmission holds up workloads without quota alone."""
    scene = build_waiting_scene(nodes=2)
    scene.cycle = Cycle(scene.state, STANDARD, PodsReadyRules(blocks=Scope.CLUSTER))
    scene.submit("next", 1)
    assert get_refusal(scene.run()["next"]).reason == REASON_WAITING_FOR_PODS_READY
    scene.say("w")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    assert scene.state.workloads.get_usage("cq") == {("tas", "cpu"): 8000}


def test_workload_with_a_lost_node_and_a_delayed_topology_request_gets_both() -> None:
    scene = Running()
    scene.state.observe_check("check", CheckFacts("check", "kueue.x-k8s.io/provisioning-request", active=True))
    scene.flavor("late", "t", nodeLabels={"pool": "late"})
    checks = {"admissionChecks": [{"name": "check", "onFlavors": ["late"]}]}
    scene.queue("cq", {"tas": "4", "late": "4"}, admissionChecksStrategy=checks)
    scene.rack("r0", 2)
    pod_sets = [build_pod_set_json(name, 1, cpu="4", topology={"required": RACK}) for name in ("a", "b")]
    scene.workload(build_workload_json("w", pod_sets))
    scene.run()
    assert scene.where("w") == {"r0-n0": 1}
    scene.say("w")
    scene.rack("r1", 1, pool="late")
    scene.lose("w", "r0-n0")
    scene.run()
    assert scene.where("w") == {"r0-n1": 1}
    assert scene.conditions("w")["Admitted"] == ("False", "PendingDelayedTopologyRequests")
    scene.run()
    assert scene.where("w") == {"r0-n1": 1, "r1-n0": 1}
    assert [given_["delayedTopologyRequest"] for given_ in _given(scene)[1:]] == [TOPOLOGY_READY]


def _given(scene: Running) -> list[dict[str, Any]]:
    return list(scene.objects["w"]["status"]["admission"]["podSetAssignments"])


def test_pod_sets_without_pods_wait_for_no_place() -> None:
    scene = Running()
    scene.state.observe_check("check", CheckFacts("check", "kueue.x-k8s.io/provisioning-request", active=True))
    scene.queue("cq", {"tas": "100"}, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    scene.rack("r0", 1)
    scene.workload(
        build_workload_json("w", [build_pod_set_json(name, count, topology={"required": RACK}) for name, count in (("a", 1), ("b", 0))])
    )
    scene.run()
    assert [given_.get("delayedTopologyRequest") for given_ in _given(scene)] == [TOPOLOGY_PENDING, None]
    scene.say("w")
    scene.run()
    assert scene.conditions("w")["Admitted"] == ("True", "Admitted")
    assert ["topologyAssignment" in given_ for given_ in _given(scene)] == [True, False]


# --- whatever fails ---------------------------------------------------------------------------------------

_jobs = st.tuples(st.integers(1, 4), st.sampled_from(("1", "2", "4")), st.sampled_from(("required", "preferred", "unconstrained")))


@st.composite
def lives(draw: st.DrawFn) -> tuple[Running, list[tuple[str, ...]], set[str]]:
    """A cluster with some workloads on it, rounds of nodes that fail, and those of them that are deleted."""
    scene = build_running_scene(draw(st.sampled_from((REPLACES, KEEPS))), racks=draw(st.integers(1, 3)), nodes=draw(st.integers(1, 4)))
    for i, (count, cpu, mode) in enumerate(draw(st.lists(_jobs, min_size=1, max_size=5))):
        topology = {"unconstrained": True} if mode == "unconstrained" else {mode: RACK}
        scene.submit(f"w{i}", count, cpu=cpu, topology=topology, owner=f"owner-{i}")
    nodes = st.lists(st.sampled_from(sorted(scene.state.nodes)), min_size=1, max_size=3, unique=True)
    rounds = draw(st.lists(nodes.map(tuple), min_size=1, max_size=3))
    return scene, rounds, draw(st.sets(st.sampled_from(sorted({node for each in rounds for node in each}))))


@given(lives(), st.booleans())
def test_counts_add_up_healthy_pods_stay_and_no_node_holds_too_much(
    life: tuple[Running, list[tuple[str, ...]], set[str]], bound: bool
) -> None:
    scene, rounds, deleted = life
    scene.run()
    down: set[str] = set()
    for nodes in rounds:
        before = {name: scene.where(name) for name in scene.objects}
        for node in nodes:
            if bound:
                _bind(scene, node, before)
            if node in scene.state.nodes:
                if node in deleted:
                    scene.state.observe_node(node, None)
                else:
                    scene.break_down(node)
        down |= set(nodes)
        for name, where in before.items():
            lost = {*where} & down
            if lost:
                scene.lose(name, *lost)
        scene.run()
        for name, where in before.items():
            now = scene.where(name)
            assert now.total() == where.total() or not where, "counts add up"
            assert all(now[node] >= count for node, count in where.items() if node not in down), "pods on healthy nodes stay"
            if not scene.objects[name]["status"].get("unhealthyNodes") and "Evicted" not in scene.conditions(name):
                assert not {*now} & down
        _holds_no_more_than_it_can(scene, down)
        assert scene.state.ledger.find_drift() == {}


def _bind(scene: Running, node: str, assigned: Mapping[str, Counter[str]]) -> None:
    """The pods of a node are bound to it, and go on ending when it fails."""
    for i, (name, where) in enumerate(sorted(assigned.items())):
        for pod in range(where[node]):
            requests = scene.state.workloads.facts[f"{NAMESPACE}/{name}"].pod_sets[0].requests
            cpu = f"{requests['cpu']}m"
            scene.pod(build_pod_json(f"{name}-{node}-{pod}", node=node, workload=name, owner=f"owner-{i}", cpu=cpu))


def _holds_no_more_than_it_can(scene: Running, down: set[str]) -> None:
    used: Counter[str] = Counter()
    for name in scene.objects:
        (pod_set,) = scene.state.workloads.facts[f"{NAMESPACE}/{name}"].pod_sets
        for node, count in scene.where(name).items():
            used[node] += count * pod_set.requests["cpu"]
    for node, facts in scene.state.nodes.items():
        if node not in down:
            assert used[node] <= facts.state.allocatable["cpu"], node


@pytest.mark.parametrize("replacement", [REPLACES, KEEPS])
def test_a_decision_maker_that_starts_anew_decides_the_same(replacement: NodeReplacement) -> None:
    scene = build_running_scene(replacement, nodes=3)
    scene.submit("w", 3, cpu="4")
    scene.run()
    scene.lose("w", "r0-n2")
    (first,) = scene.verdicts()
    (again,) = Cycle(scene.state, STANDARD, replacement=replacement).run()
    assert (again.outcome, again.is_second_pass) == (first.outcome, True)
