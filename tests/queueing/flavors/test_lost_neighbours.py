"""Other places for pods that mind which pods are near them, and for those of several flavors over the same nodes."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from tests.builders import RACK, Node, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.cycle.test_lost_nodes import observe_stuck
from tests.queueing.running import KEEPS, Running, build_running_scene, get_refusal


def one_to_a_zone(scene: Running, *, bound: bool, domain: str = "") -> None:
    """A workload of two pods that keep a zone apart, on the first nodes of zones `a` (two nodes) and `b` (one)."""
    for number, zone in enumerate("aab"):
        scene.node(Node(f"n{number}{domain}", {RACK: "r", HOSTNAME_LABEL: f"n{number}", "zone": zone}, {"cpu": 4000, "pods": 10}))
    affinity = keep_apart("zone")
    asked = build_pod_set_json(count=2, cpu="1", topology={"required": RACK}, affinity=affinity)
    asked["template"]["metadata"] = {"labels": {"app": "x"}}
    scene.workload(build_workload_json("w", [asked]))
    scene.run()
    assert scene.where("w") == {"n0": 1, "n2": 1}
    for node in scene.where("w") if bound else ():
        pod = build_pod_json(f"w-{node}", node=node + domain, cpu="1", phase="Running", workload="w", labels={"app": "x"})
        scene.pod({**pod, "spec": {**pod["spec"], "affinity": affinity}})


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_pod_is_not_kept_away_by_its_own_place_that_is_lost(bound: bool, is_lost: bool) -> None:
    """Review 27: where one pod had to be in each zone, it was evicted though its zone had another node."""
    scene = build_running_scene(racks=0)
    one_to_a_zone(scene, bound=bound)
    if is_lost:
        scene.break_down("n0")
        scene.lose("w", "n0")
    else:
        observe_stuck(scene, ("n0", 1))
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"n1": 1, "n2": 1}
    assert scene.state.ledger.find_drift() == {}


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_process_that_has_just_begun_knows_that_as_well(is_lost: bool) -> None:
    """Review 28: the first question about labels was answered by all pods that are bound."""
    scene, again = build_running_scene(racks=0), build_running_scene(racks=0)
    one_to_a_zone(scene, bound=True)
    for name, facts in scene.state.nodes.items():
        again.state.observe_node(name, facts)
    for node, affinity in (("n0", keep_apart("zone")), ("n2", keep_apart("zone"))):
        pod = build_pod_json(f"w-{node}", node=node, cpu="1", phase="Running", workload="w", labels={"app": "x"})
        again.pod({**pod, "spec": {**pod["spec"], "affinity": affinity}})
    again.workload(scene.objects["w"])
    if is_lost:
        again.break_down("n0")
        again.lose("w", "n0")
    else:
        observe_stuck(again, ("n0", 1))
    assert isinstance(again.run()["w"], Admissible)
    assert again.where("w") == {"n1": 1, "n2": 1}
    assert again.state.ledger.find_drift() == {}


def test_a_pod_is_not_kept_away_by_its_own_on_a_node_that_left_the_topology_and_has_another_name() -> None:
    """Former defect: it was looked for by its hostname."""
    scene = build_running_scene(racks=0)
    one_to_a_zone(scene, bound=True, domain=".example.com")
    scene.node(Node("n0.example.com", {HOSTNAME_LABEL: "n0", "zone": "a"}, {"cpu": 4000, "pods": 10}))
    scene.pod(build_pod_json("w-n0", node="n0.example.com", cpu="1", phase="Running", workload="w", labels={"app": "x"}, terminating=True))
    scene.lose("w", "n0")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"n1": 1, "n2": 1}
    assert scene.state.ledger.find_drift() == {}


@pytest.mark.parametrize("bound", [True, False])
def test_pods_that_stay_keep_theirs_away(bound: bool) -> None:
    scene = build_running_scene(racks=0)
    one_to_a_zone(scene, bound=bound)
    scene.break_down("n2")
    scene.lose("w", "n2")
    outcome = get_refusal(scene.run()["w"])
    assert outcome.evicts, "n1 is in the zone of the pod that stays"
    assert scene.state.ledger.find_drift() == {}


@pytest.mark.parametrize("bound", [True, False])
def test_workload_without_another_place_still_keeps_others_away_from_the_old_one(bound: bool) -> None:
    scene = build_running_scene(KEEPS, racks=0)
    one_to_a_zone(scene, bound=bound)
    scene.node(Node("n1", {RACK: "r", HOSTNAME_LABEL: "n1", "zone": "a"}, {"cpu": 500, "pods": 10}))
    observe_stuck(scene, ("n0", 1))
    assert not get_refusal(scene.run()["w"]).evicts
    other = build_pod_set_json(cpu="100m", topology={"required": RACK})
    other["template"]["metadata"] = {"labels": {"app": "x"}}
    scene.workload(build_workload_json("other", [other]))
    assert isinstance(scene.run()["other"], NotAdmissible)
    assert scene.state.ledger.find_drift() == {}


def two_flavors(scene: Running, *, count: int, quota: str, **spec: Any) -> None:
    """A workload of pod sets `a` and `b` of flavors `one` and `two`, which are the same nodes."""
    for name in ("one", "two"):
        scene.flavor(name, "t")
    scene.queue("cq", {"one": quota, "two": "100"})
    pod_sets = [build_pod_set_json(name, count, cpu="2", topology={"required": RACK}, **spec) for name in "ab"]
    for pod_set in pod_sets:
        pod_set["template"]["metadata"] = {"labels": {"app": "x"}}
    scene.workload(build_workload_json("w", pod_sets))
    assert isinstance(scene.run()["w"], Admissible)
    given = scene.objects["w"]["status"]["admission"]["podSetAssignments"]
    assert [each["flavors"] for each in given] == [{"cpu": "one"}, {"cpu": "two"}]


def keep_apart(key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


PORT = [{"name": "c", "resources": {"requests": {"cpu": "2"}}, "ports": [{"containerPort": 80, "hostPort": 80}]}]


@pytest.mark.parametrize(
    ("count", "quota", "spec"),
    [(2, "4", {}), (1, "2", {"containers": PORT}), (1, "2", {"affinity": keep_apart(HOSTNAME_LABEL)})],
    ids=["room", "port", "apart"],
)
def test_pods_of_two_flavors_with_the_same_nodes_get_no_place_twice(count: int, quota: str, spec: dict[str, Any]) -> None:
    """Former defect: the pods of both flavors were sent to one node, which had room for those of one."""
    scene = build_running_scene(nodes=5)
    two_flavors(scene, count=count, quota=quota, **spec)
    lost = scene.where("w").keys()
    assert len(lost) == 2
    for name in lost:
        scene.break_down(name)
    scene.lose("w", *lost)
    assert isinstance(scene.run()["w"], Admissible)
    assert sorted(scene.where("w").values()) == [count, count]
    assert not lost & scene.where("w").keys()
    assert scene.state.ledger.find_drift() == {}


def test_no_lost_place_of_another_flavor_keeps_a_pod_away() -> None:
    """One pod to a zone, whichever flavor it has. Former defect: each had to go where the other had been."""
    scene = build_running_scene(racks=0)
    for name, zone, pool in (("n0", "a", "one"), ("n1", "b", "one"), ("m0", "b", "two"), ("m1", "a", "two")):
        scene.node(Node(name, {RACK: "r", HOSTNAME_LABEL: name, "zone": zone, "pool": pool}, {"cpu": 2000, "pods": 10}))
    for name in ("one", "two"):
        scene.flavor(name, "t", nodeLabels={"pool": name})
    scene.queue("cq", {"one": "2", "two": "100"})
    pod_sets = [build_pod_set_json(name, cpu="2", topology={"required": RACK}, affinity=keep_apart("zone")) for name in "ab"]
    for pod_set in pod_sets:
        pod_set["template"]["metadata"] = {"labels": {"app": "x"}}
    scene.workload(build_workload_json("w", pod_sets))
    scene.run()
    assert scene.where("w") == {"n0": 1, "m0": 1}
    for name in ("n0", "m0"):
        scene.break_down(name)
    scene.lose("w", "n0", "m0")
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {"n1": 1, "m1": 1}
