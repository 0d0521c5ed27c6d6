"""Scenarios with gates of Kueue 0.20: which seeds have them, which jobs use them, and that their judges find what is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cli import gate_table
from core.model.gates import (
    DEVICES,
    DEVICES_ON_NODES,
    ELASTIC_JOBS,
    ELASTIC_JOBS_WITH_TOPOLOGY,
    GATES,
    MAX_NOT_READY,
    REPLACE_MULTIPLE,
    SPREADING,
    WORKLOAD_PODS_READY,
    ChosenGates,
)
from core.names import (
    HOSTNAME_LABEL,
    LOST_NODES_THRESHOLD,
    MAX_NOT_READY_COUNT,
    POD_GROUP_NAME,
    TOPOLOGY_SPREADING,
    WAIT_FOR_PODS_READY,
)
from e2e import manifests
from e2e.nodes import RACK_LABEL, NodePool, build_nodes
from sim.administrators import WITH_GATES, make_ready
from sim.apiserver.server import Refused
from sim.gates.chosen import DRAWN, choose_gates
from sim.gates.jobs import MADE, Order, is_refused
from sim.gates.judges import Judges
from sim.models.base import NODE
from sim.records import Records
from sim.scenario import SMALL, Scenario, plan
from sim.transport import Faults
from sim.users import WITH_GATES as OF_USERS
from sim.world import WORKLOADS, World
from tests.replay.test_gates_on import TURNED_ON

Json = dict[str, Any]
SEEDS = range(1, 201)
ALL, NONE = (ChosenGates(dict.fromkeys(DRAWN, on)) for on in (True, False))
POOL = NodePool(blocks=1, racks=2, nodes=2)


def test_a_quarter_of_the_seeds_has_gates_and_each_gate_is_on_and_off_in_some():
    chosen = [choose_gates(seed) for seed in SEEDS]
    gated = [gates for gates in chosen if gates.values]
    assert 30 < len(gated) < 70
    for name in DRAWN:
        assert {gates.is_on(name) for gates in gated} == {True, False}, name
    assert all(gates.is_on(DEVICES) for gates in gated if gates.is_on(DEVICES_ON_NODES))


def test_seed_has_steps_with_gates_only_where_gates_are_chosen():
    for seed in SEEDS:
        steps = [step.name for step in plan(seed, SMALL) if step.name in (*OF_USERS, *WITH_GATES)]
        assert bool(steps) == bool(choose_gates(seed).values)


def test_reference_says_where_gates_that_are_off_by_default_are_played():
    """docs/reference.md, by `cli.gate_table`."""
    off = {name for name, gate in GATES.items() if not gate.default} | {DEVICES}
    played = {name for name, text in gate_table.PLAYED.items() if "simulation" in text}
    replayed = {name for name, text in gate_table.PLAYED.items() if "vectors" in text}
    assert played == {*DRAWN, ELASTIC_JOBS_WITH_TOPOLOGY} <= off | {ELASTIC_JOBS}
    assert replayed == {*TURNED_ON}


@pytest.mark.parametrize("gates", [ALL, NONE], ids=["on", "off"])
@pytest.mark.parametrize("made", MADE)
def test_job_is_refused_only_where_its_gates_are_not_as_they_must_be(made: str, gates: ChosenGates):
    world = make_world(gates)
    for seed in range(10):
        order = Order(f"job-{seed}", "ns", random.Random(f"{made} {seed}"), 6)
        with pytest.raises(Refused) if is_refused(made, gates) else world_of_nothing():
            for obj in MADE[made][0](order):
                world.apply(obj)
    world.close()


@contextmanager
def world_of_nothing() -> Iterator[None]:
    yield


# --- judges -------------------------------------------------------------------------------------------


def make_world(gates: ChosenGates) -> World:
    """Nodes and queues, and no reconciler."""
    world = World(1, gates=gates)
    for node in build_nodes(POOL):
        world.apply(make_ready(node, "True"))
    world.apply(manifests.build_topology("t", POOL.levels))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    return world


def judge(world: World, gates: ChosenGates) -> Judges:
    return Judges(world, POOL, gates, ())


def submit(world: World, name: str, labels: Json | None = None, template: Json | None = None, notes: Json | None = None) -> Json:
    """A Workload of one pod."""
    template = {**(template or {}), "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod_set = {"name": "main", "count": 1, "template": template, "topologyRequest": {"required": RACK_LABEL}}
    metadata = {"name": name, "namespace": "ns", "labels": labels or {}, "annotations": notes or {}}
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata}
    return world.apply({**head, "spec": {"queueName": "main", "podSets": [pod_set]}})


def say(world: World, workload: Json, host: str = "", **conditions: str) -> None:
    """It has a place on a host, and conditions with these reasons, True but for those with an empty one."""
    wire = [
        {"type": kind, "status": str(bool(reason)), "reason": reason or kind, "message": "", "lastTransitionTime": world.time()}
        for kind, reason in conditions.items()
    ]
    status: Json = {"conditions": wire}
    if host:
        slices = [{"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": host}]}]
        given = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "topologyAssignment": {"levels": [HOSTNAME_LABEL], "slices": slices}}
        status["admission"] = {"clusterQueue": "cq", "podSetAssignments": [given]}
    world.patch(*WORKLOADS, workload, {"status": status}, "status")


RULES = '{"rules": [{"topologyKey": "cloud.provider.com/topology-rack", "maxShareAllowingPlacement": "0.5"}], '
RULES += '"workloadLabelSelectors": [{"key": "app", "operator": "In", "values": ["a"]}]}'


@pytest.mark.parametrize(
    ("second", "third", "wrong"), [("b1-r2-n1", "b1-r1-n2", 0), ("b1-r1-n2", "b1-r2-n1", 1), ("b1-r1-n1", "b1-r1-n1", 2)]
)
def test_workload_put_into_a_domain_that_a_rule_closes_is_found(second: str, third: str, wrong: int):
    gates = ChosenGates({SPREADING: True})
    world = make_world(gates)
    judges = judge(world, gates)
    world.run_for(300)
    for number, host in enumerate(("b1-r1-n1", second, third)):
        template = {"metadata": {"annotations": {TOPOLOGY_SPREADING: RULES}}}
        say(world, submit(world, f"w{number}", {"app": "a"}, template=template), host, QuotaReserved="QuotaReserved")
        world.run_for(10)
        judges.settle()
    assert len(judges.settle()) == wrong, judges.problems
    assert judges.counts["spread"] == 3
    world.close()


@pytest.mark.parametrize(
    "written",
    [[(3, "b1-r1-n1"), (0, "b1-r1-n2"), (1, "b1-r2-n1"), (2, "b1-r2-n2")], [(0, "b1-r1-n1"), (2, "b1-r1-n2")]],
    ids=["in another order", "not all"],
)
def test_workloads_that_are_decided_on_together_are_no_problem_however_they_are_written(written: list[tuple[int, str]]):
    """While there are faults the place of one may be decided on, and written late or not at all."""
    gates = ChosenGates({SPREADING: True})
    world = make_world(gates)
    judges = judge(world, gates)
    world.start_reconciler(Faults(random.Random(0), is_cut=True))
    template = {"metadata": {"annotations": {TOPOLOGY_SPREADING: RULES}}}
    made = [submit(world, f"w{number}", {"app": "a"}, template=template) for number in range(4)]
    for number, host in written:
        say(world, made[number], host, QuotaReserved="QuotaReserved")
    world.run_for(10)
    assert judges.settle() == []
    assert judges.counts["spread"] == len(written)
    world.close()


@pytest.mark.parametrize(
    ("second", "has_room", "wrong"),
    [("b1-r1-n2", True, 1), ("b1-r2-n1", True, 0), ("b1-r1-n2", False, 0)],
    ids=["full", "other", "no room"],
)
def test_workload_put_where_a_preferred_rule_would_rather_not_have_it_is_found(second: str, has_room: bool, wrong: int):
    gates = ChosenGates({SPREADING: True})
    world = make_world(gates)
    judges = judge(world, gates)
    for node in world.objects(*NODE):
        if node["metadata"]["labels"][RACK_LABEL] == "b1-r2" and not has_room:
            world.patch(*NODE, node, {"spec": {"unschedulable": True}})
    world.run_for(300)
    rules = RULES.replace('"0.5"', '"0.5", "enforcementMode": "Preferred"')
    for number, host in enumerate(("b1-r1-n1", second)):
        template = {"metadata": {"annotations": {TOPOLOGY_SPREADING: rules}}}
        say(world, submit(world, f"w{number}", {"app": "a"}, template=template), host, QuotaReserved="QuotaReserved")
        world.run_for(10)
    assert len(judges.settle()) == wrong, judges.problems
    assert judges.counts["order"] == 2
    world.close()


def test_workloads_that_got_their_places_together_are_in_no_order():
    """The one that was written last may have been decided on first."""
    gates = ChosenGates({SPREADING: True})
    world = make_world(gates)
    judges = judge(world, gates)
    world.run_for(300)
    rules = RULES.replace('"0.5"', '"0.5", "enforcementMode": "Preferred"')
    for number in range(2):
        template = {"metadata": {"annotations": {TOPOLOGY_SPREADING: rules}}}
        say(world, submit(world, f"w{number}", {"app": "a"}, template=template), "b1-r1-n1", QuotaReserved="QuotaReserved")
    world.run_for(10)
    assert judges.settle() == []
    world.close()


def test_workload_that_may_count_still_opens_a_domain():
    """One in the other rack has just ended: the process that decides may not know."""
    gates = ChosenGates({SPREADING: True})
    world = make_world(gates)
    judges = judge(world, gates)
    world.run_for(300)
    template = {"metadata": {"annotations": {TOPOLOGY_SPREADING: RULES}}}
    made = [submit(world, f"w{number}", {"app": "a"}, template=template) for number in range(3)]
    for workload, host in zip(made[:2], ("b1-r1-n1", "b1-r2-n1"), strict=True):
        say(world, workload, host, QuotaReserved="QuotaReserved")
    say(world, made[1], "b1-r2-n1", QuotaReserved="QuotaReserved", Finished="Succeeded")
    say(world, made[2], "b1-r1-n1", QuotaReserved="QuotaReserved")
    world.run_for(10)
    assert judges.settle() == []
    world.close()


@pytest.mark.parametrize(("mode", "judged"), [("", []), ("Required", ["spread"]), ("Preferred", ["order", "spread"])])
def test_places_are_judged_by_the_rules_that_a_workload_has(mode: str, judged: list[str]):
    """Others cost nothing."""
    gates = ChosenGates({SPREADING: True})
    world = make_world(gates)
    judges = judge(world, gates)
    world.run_for(300)
    rules = {TOPOLOGY_SPREADING: RULES.replace('"0.5"', f'"0.5", "enforcementMode": "{mode}"')} if mode else {}
    workload = submit(world, "w", {"app": "a"}, template={"metadata": {"annotations": rules}})
    say(world, workload, "b1-r1-n1", QuotaReserved="QuotaReserved")
    world.run_for(10)
    assert (judges.settle(), sorted(judges.counts)) == ([], judged)
    world.close()


@pytest.mark.parametrize(("lost", "found"), [(0, True), (1, True), (2, False)])
def test_eviction_for_fewer_lost_nodes_than_a_job_accepts_is_found(lost: int, found: bool):
    gates = ChosenGates({REPLACE_MULTIPLE: True})
    world = make_world(gates)
    judges = judge(world, gates)
    workload = submit(world, "w", notes={LOST_NODES_THRESHOLD: "1"})
    say(world, workload, "b1-r1-n1", QuotaReserved="QuotaReserved", Admitted="Admitted")
    for node in world.objects(*NODE)[:lost]:
        world.delete(node)
    unhealthy = [{"name": node} for node in ("b1-r1-n1", "b1-r1-n2")[:lost]]
    world.patch(*WORKLOADS, workload, {"status": {"unhealthyNodes": unhealthy}}, "status")
    say(world, workload, "b1-r1-n1", QuotaReserved="QuotaReserved", Admitted="Admitted", Evicted="NodeFailures")
    assert bool(judges.problems) == found
    world.close()


@pytest.mark.parametrize(("after", "found"), [(5.0, True), (40.0, False)])
def test_eviction_before_the_time_of_a_job_is_found(after: float, found: bool):
    gates = ChosenGates({WORKLOAD_PODS_READY: True})
    world = make_world(gates)
    judges = judge(world, gates)
    workload = submit(world, "w", notes={WAIT_FOR_PODS_READY: '{"timeoutSeconds": 30}'})
    say(world, workload, "b1-r1-n1", Admitted="Admitted")
    world.run_for(after)
    say(world, workload, "b1-r1-n1", Admitted="Admitted", Evicted="PodsReadyTimeout")
    assert bool(judges.problems) == found
    world.close()


def test_workload_that_is_overdue_is_found_at_the_end():
    gates = ChosenGates({WORKLOAD_PODS_READY: True})
    world = make_world(gates)
    judges = judge(world, gates)
    say(world, submit(world, "w", notes={WAIT_FOR_PODS_READY: '{"timeoutSeconds": 30}'}), "b1-r1-n1", Admitted="Admitted")
    world.run_for(100)
    assert list(judges.find_at_end()) == []
    world.run_for(100)
    assert "is not ready for 200 s" in next(judges.find_at_end())
    world.close()


def make_half_ready_group(world: World, tolerated: str) -> Json:
    """The Workload of a group; its only pod of two is ready."""
    workload = submit(world, "g")
    world.patch(*WORKLOADS, workload, {"spec": {"podSets": [{**workload["spec"]["podSets"][0], "count": 2}]}})
    metadata = {"name": "p", "namespace": "ns", "labels": {POD_GROUP_NAME: "g"}, "annotations": {MAX_NOT_READY_COUNT: tolerated}}
    pod = world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "b1-r1-n1", "containers": []}})
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": world.time()}]
    world.patch("", "pods", pod, {"status": {"phase": "Running", "conditions": ready}}, "status")
    return workload


@pytest.mark.parametrize(
    ("tolerated", "after", "found"), [("1", 60.0, True), ("0", 60.0, False), ("1", 1.0, False)], ids=["enough", "too few", "just now"]
)
def test_group_that_is_evicted_though_enough_of_its_pods_are_ready_is_found(tolerated: str, after: float, found: bool):
    gates = ChosenGates({MAX_NOT_READY: True})
    world = make_world(gates)
    judges = judge(world, gates)
    workload = make_half_ready_group(world, tolerated)
    say(world, workload, "b1-r1-n1", Admitted="Admitted")
    world.run_for(after)
    say(world, workload, "b1-r1-n1", Admitted="Admitted", Evicted="PodsReadyTimeout")
    assert bool(judges.problems) == found
    assert judges.counts["patience"] == 1
    world.close()


@pytest.mark.parametrize(
    ("tolerated", "says", "found"), [("1", "", True), ("1", "Started", False), ("0", "Started", True), ("x", "", False)]
)
def test_group_that_says_otherwise_than_its_pods_is_found(tolerated: str, says: str, found: bool):
    gates = ChosenGates({MAX_NOT_READY: True})
    world = make_world(gates)
    judges = judge(world, gates)
    workload = make_half_ready_group(world, tolerated)
    say(world, workload, "b1-r1-n1", Admitted="Admitted", PodsReady=says)
    assert bool(list(judges.find_at_end())) == found
    world.close()


@pytest.mark.parametrize(("before", "after", "found"), [("b1-r1-n1", "b1-r1-n1", 0), ("b1-r1-n2", "b1-r1-n1", 1), ("", "b1-r1-n1", 1)])
def test_eviction_that_changes_places_is_found(before: str, after: str, found: int):
    """It was made of the Workload as it was before, or of another one of its name."""
    world = make_world(NONE)
    records = Records(world.server)
    workload = submit(world, "w")
    say(world, workload, before, Admitted="Admitted")
    say(world, workload, after, Admitted="Admitted", Evicted="Preempted")
    assert records.problems == ["workload ns/w is evicted, and has other places by that"][:found]
    world.close()


def test_opening_judges_the_rules_of_gates_that_are_on():
    scenario = Scenario(122, SMALL, [])
    scenario.play_opening()
    assert {"spread", "order", "tolerant", "hurried", "patience", "groups"} <= {*scenario.judges.counts}
    assert scenario.world.objects(*WORKLOADS) == []
    scenario.world.close()
