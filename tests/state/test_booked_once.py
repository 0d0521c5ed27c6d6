"""What is given away stays counted: when hostnames clash, when a name is used again, when a kept place is free again."""

from __future__ import annotations

import pytest

from core.model.admission import encode_admission
from core.model.pod_traits import NO_TRAITS
from core.names import HOSTNAME_LABEL, SLICE_REPLACES
from core.state.facts import WorkloadFacts, find_replaced
from core.state.promises import find_missing
from tests.builders import NAMESPACE, RACK, Node, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene, list_admitted
from tests.state.test_cluster import build_admission


def build_host(name: str, rack: str, hostname: str) -> Node:
    return Node(name, {RACK: rack, HOSTNAME_LABEL: hostname}, {"cpu": 4000, "pods": 10})


def scene_with_a_full_node() -> Scene:
    scene = Scene()
    scene.node(build_host("a", "r1", "a"))
    scene.submit("w", 1, cpu="4")
    assert list_admitted(scene.run()) == {"w"}
    held = scene.state.workloads.find_holding(f"{NAMESPACE}/w")
    assert held is not None
    wire = build_workload_json("w", [build_pod_set_json(count=1, cpu="4", topology={"required": RACK})], admission=encode_admission(held))
    wire["metadata"]["resourceVersion"] = "2"
    scene.workload(wire)
    return scene


def test_a_node_that_joins_with_the_hostname_of_another_frees_nothing():
    """Former defect: the levels that assignments name changed, and every reservation of the flavor was dropped."""
    scene = scene_with_a_full_node()
    scene.node(build_host("b", "r2", "a"))
    scene.state.refresh()
    assert scene.state.ledger.usage["a"]["cpu"] == 4000
    scene.submit("other", 1, cpu="4", topology={"required": RACK})
    verdicts = scene.run()
    assert list_admitted(verdicts) == set(), "the hostname alone may mean either node, so both are counted"
    scene.state.observe_node("b", None)
    scene.state.refresh()
    assert scene.state.ledger.usage["a"]["cpu"] == 4000
    assert scene.state.ledger.find_drift() == {}
    assert missing(scene) == {}


def missing(scene: Scene) -> dict[str, str]:
    return dict(next(found for found in find_missing(scene.state) if found is not None))


def test_a_reservation_that_is_missing_is_found_by_the_assignments():
    """The audit of the ledger begins with its reservations: one that was dropped went unseen."""
    scene = scene_with_a_full_node()
    assert missing(scene) == {}
    scene.state.ledger.reserve((f"{NAMESPACE}/w", "main", None), None)
    assert scene.state.ledger.find_drift() == {}
    ((key, difference),) = missing(scene).items()
    assert key == f"{NAMESPACE}/w"
    assert all(part in difference for part in ("pod set main", "1 pods", "to a", "0 are"))


def test_an_assignment_by_all_levels_stands_when_hostnames_are_unique_again():
    scene = Scene()
    scene.node(build_host("a", "r1", "a"))
    scene.node(build_host("b", "r2", "a"))
    scene.submit("w", 1, cpu="4")
    assert list_admitted(scene.run()) == {"w"}
    held = scene.state.workloads.find_holding(f"{NAMESPACE}/w")
    assert held is not None
    assert held.pod_sets[0].assignment is not None
    assert held.pod_sets[0].assignment.levels == (RACK, HOSTNAME_LABEL)
    taken = {node for node, amounts in scene.state.ledger.usage.items() if amounts.get("cpu")}
    [other] = {"a", "b"} - taken
    scene.state.observe_node(other, None)
    scene.state.refresh()
    assert {node for node, amounts in scene.state.ledger.usage.items() if amounts.get("cpu")} == taken


def test_a_verdict_on_a_deleted_workload_leaves_the_booking_of_its_namesake():
    """Former defect: decisions were assumed and dropped by name."""
    scene = Scene()
    scene.rack("r", 1)
    key = scene.submit("w", 1, uid="old")
    scene.state.assume(key, build_admission(1), {})
    scene.delete("w")
    scene.submit("w", 1, uid="new")
    scene.state.assume(key, build_admission(1), {})
    scene.state.drop_assumed(key, "old")
    assert scene.state.workloads.is_assumed(key)
    scene.state.confirm(key, 10**6, "old")
    scene.state.drop_assumed(key, "new")
    assert not scene.state.workloads.is_assumed(key)


def test_a_place_of_a_group_that_is_given_up_helps_workloads_that_wait():
    """Former defect: a queued job waited for ever beside free nodes."""
    scene = Scene()
    scene.rack("r", 1)
    woken: list[int] = []
    scene.state.on_free.append(lambda: woken.append(scene.state.changes))
    scene.state.whole.hold_place("ns/g", "pod", "r-n0", {"cpu": 4000}, NO_TRAITS)
    scene.submit("w", 1, cpu="4")
    assert list_admitted(scene.run()) == set()
    scene.state.whole.hold_place("ns/g", "pod", None, {})
    assert woken
    assert list_admitted(scene.run()) == {"w"}


def test_place_of_a_group_that_moves_helps_workloads_that_wait() -> None:
    scene = Scene()
    scene.rack("r", 2)
    scene.state.whole.hold_place("ns/g", "pod", "r-n0", {"cpu": 4000}, NO_TRAITS)
    woken: list[int] = []
    scene.state.on_free.append(lambda: woken.append(scene.state.changes))
    scene.state.whole.hold_place("ns/g", "pod", "r-n0", {"cpu": 4000}, NO_TRAITS)
    assert not woken
    scene.state.whole.hold_place("ns/g", "pod", "r-n1", {"cpu": 4000}, NO_TRAITS)
    assert woken


@pytest.mark.parametrize(("named", "taken"), [("old", f"{NAMESPACE}/old"), (f"{NAMESPACE}/old", f"{NAMESPACE}/old"), ("other/old", None)])
def test_a_workload_takes_the_place_of_one_in_its_own_namespace_alone(named: str, taken: str | None):
    """Former defect: a workload of one namespace could release the booking of another's."""
    workload = build_workload_json("w", [build_pod_set_json()])
    workload["metadata"]["annotations"] = {SLICE_REPLACES: named}
    assert find_replaced(workload) == taken
    assert WorkloadFacts.read(workload).replaces == taken
