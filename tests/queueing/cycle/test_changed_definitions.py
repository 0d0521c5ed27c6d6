"""Topology levels, and node labels, taints and tolerations of a flavor, that an administrator changes (Kueue 0.20): what is admitted
keeps quota and place, what waits is decided on again."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.admission import Admission
from core.names import HOSTNAME_LABEL
from core.queueing.cycle.second_pass import list_due_for_second_pass
from core.queueing.flavors.outcome import Admissible
from core.state.facts import TopologyFacts
from core.state.promises import find_missing
from tests.builders import BLOCK, NAMESPACE, RACK, Node, build_pod_json, build_pod_set_json, build_topology_json, build_workload_json
from tests.queueing.scene import Scene, get_refusals, list_admitted

GPU = [{"key": "gpu", "effect": "NoSchedule"}]
TOLERATES = [{"key": "gpu", "operator": "Exists"}]


def levels(scene: Scene, *names: str) -> None:
    scene.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", names)))


def build_pools() -> Scene:
    """One node in pool a, one in pool b, and the flavor over pool a."""
    scene = Scene()
    for pool in ("a", "b"):
        scene.rack(f"r{pool}", 1, pool=pool)
    scene.flavor("tas", "t", nodeLabels={"pool": "a"})
    return scene


def admit(scene: Scene, name: str = "w", count: int = 4) -> Admission:
    scene.submit(name, count)
    outcome = scene.run()[name]
    assert isinstance(outcome, Admissible)
    scene.state.confirm(f"{NAMESPACE}/{name}", 2)
    return outcome.admission


def compute_cpu(scene: Scene) -> dict[str, int]:
    """What is counted on nodes, by name."""
    scene.state.refresh()
    assert scene.state.ledger.find_drift() == {}
    return {node: amounts["cpu"] for node, amounts in scene.state.ledger.usage.items() if amounts.get("cpu")}


def assert_kept(scene: Scene, admission: Admission, name: str = "w") -> None:
    """Quota and assignment are as they were, and nothing is to be done about the workload."""
    assert scene.state.workloads.find_holding(f"{NAMESPACE}/{name}") == admission
    assert scene.state.workloads.get_usage("cq") == {("tas", "cpu"): 4000}
    assert list_due_for_second_pass(scene.state) == []
    assert name not in scene.run()


@pytest.mark.parametrize("changed", [(BLOCK, RACK, HOSTNAME_LABEL), (HOSTNAME_LABEL,), ("cloud/row", HOSTNAME_LABEL)])
def test_admitted_workload_keeps_assignment_quota_and_usage_over_changed_levels(changed: tuple[str, ...]):
    scene = Scene()
    for i in range(2):
        scene.node(Node(f"n{i}", {BLOCK: "b", "cloud/row": "w", RACK: "r", HOSTNAME_LABEL: f"n{i}"}, {"cpu": 4000, "pods": 10}))
    admission = admit(scene)
    before = compute_cpu(scene)
    assert sum(before.values()) == 4000
    levels(scene, *changed)
    assert compute_cpu(scene) == before
    assert next(found for found in find_missing(scene.state) if found is not None) == {}
    assert_kept(scene, admission)


@pytest.mark.parametrize("changed", [(BLOCK, RACK, HOSTNAME_LABEL), (BLOCK, HOSTNAME_LABEL)])
def test_usage_stays_over_changed_levels_where_nodes_share_a_hostname(changed: tuple[str, ...]):
    """Such an assignment names all levels; by other ones its places were not found, and nothing was counted there."""
    scene = Scene()
    for i in range(2):
        scene.node(Node(f"n{i}", {BLOCK: f"b{i}", RACK: f"r{i}", HOSTNAME_LABEL: "same"}, {"cpu": 4000, "pods": 10}))
    admission = admit(scene)
    assert admission.pod_sets[0].assignment is not None
    assert admission.pod_sets[0].assignment.levels == (RACK, HOSTNAME_LABEL)
    before = compute_cpu(scene)
    levels(scene, *changed)
    assert compute_cpu(scene) == before
    assert next(found for found in find_missing(scene.state) if found is not None) == {}
    scene.node(Node("late", {BLOCK: "b0", RACK: "r0", HOSTNAME_LABEL: "late"}, {"cpu": 4000, "pods": 10}))
    assert compute_cpu(scene) == before
    assert_kept(scene, admission)


def test_pending_workload_is_admitted_once_a_level_is_gone_that_nodes_lack():
    scene = Scene()
    scene.node(Node("n0", {HOSTNAME_LABEL: "n0"}, {"cpu": 4000, "pods": 10}))
    scene.submit("w", topology={"unconstrained": True})
    assert get_refusals(scene.run()).keys() == {"w"}
    levels(scene, HOSTNAME_LABEL)
    assert list_admitted(scene.run()) == {"w"}


def test_pending_workload_is_judged_by_the_levels_there_are_now():
    """Of a level that is gone the next admission fails; what runs by it is left alone."""
    scene = Scene()
    scene.rack("r", 2)
    admission = admit(scene)
    levels(scene, HOSTNAME_LABEL)
    assert_kept(scene, admission)
    scene.submit("next")
    refused = get_refusals(scene.run())["next"]
    assert refused.breaks_rule
    assert repr(RACK) in refused.message


def test_admitted_workload_keeps_quota_and_place_outside_of_its_flavor_and_pending_ones_get_the_new_nodes():
    scene = build_pools()
    admission = admit(scene)
    scene.submit("waits", 2)
    assert get_refusals(scene.run()).keys() == {"waits"}
    scene.flavor("tas", "t", nodeLabels={"pool": "b"})
    assert list_admitted(scene.run()) == {"waits"}
    assert compute_cpu(scene) == {"rb-n0": 2000}, "no usage is counted on nodes that are out of scope"
    assert scene.state.workloads.get_usage("cq") == {("tas", "cpu"): 6000}
    assert scene.state.workloads.find_holding(f"{NAMESPACE}/w") == admission
    assert list_due_for_second_pass(scene.state) == []
    scene.flavor("tas", "t", nodeLabels={"pool": "a"})
    assert compute_cpu(scene) == {"ra-n0": 4000}


def test_pods_on_a_node_that_is_out_of_scope_count_there_for_other_flavors():
    scene = build_pools()
    admit(scene)
    scene.pod(build_pod_json("p", node="ra-n0", cpu="3", phase="Running", workload="w"))
    scene.flavor("tas", "t", nodeLabels={"pool": "b"})
    scene.flavor("other", "t", nodeLabels={"pool": "a"})
    scene.queue("cq", {"other": "100"})
    scene.submit("large", 2)
    scene.submit("small", 1)
    assert list_admitted(scene.run()) == {"small"}


@pytest.mark.parametrize("is_bound", [False, True])
def test_flavors_that_overlap_after_a_change_count_a_workload_once(is_bound: bool):
    scene = build_pools()
    scene.flavor("other", "t", nodeLabels={"pool": "b"})
    admit(scene, count=3)
    if is_bound:
        for i in range(3):
            scene.pod(build_pod_json(f"p{i}", node="ra-n0", phase="Running", workload="w"))
    scene.flavor("other", "t", nodeLabels={"pool": "a"})
    assert compute_cpu(scene) == {"ra-n0": 3000}
    for name in ("tas", "other"):
        view = scene.state.get_view(name)
        assert view is not None
        assert view.capacity.free[view.capacity.axis["cpu"]].tolist() == [1000]


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "taint of the flavor is gone": ({"nodeTaints": GPU}, {}),
    "flavor tolerates its own taint": ({"nodeTaints": GPU}, {"nodeTaints": GPU, "tolerations": TOLERATES}),
    "flavor tolerates the taint of its nodes": (
        {"nodeLabels": {"tainted": "yes"}},
        {"nodeLabels": {"tainted": "yes"}, "tolerations": TOLERATES},
    ),
    "flavor selects other nodes": ({"nodeLabels": {"pool": "none"}}, {"nodeLabels": {"pool": "a"}}),
}


def build_tainted() -> Scene:
    """A node of pool a, and a tainted one."""
    scene = Scene()
    scene.rack("r", 1, pool="a")
    labels = {RACK: "r", HOSTNAME_LABEL: "tainted", "tainted": "yes"}
    scene.node(Node("tainted", labels, {"cpu": 4000, "pods": 10}, (("gpu", "", "NoSchedule"),)))
    return scene


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_pending_workload_is_admitted_once_its_flavor_serves_it(before: dict[str, Any], after: dict[str, Any]):
    scene = build_tainted()
    scene.flavor("tas", "t", **before)
    scene.submit("w")
    assert get_refusals(scene.run()).keys() == {"w"}
    scene.flavor("tas", "t", **after)
    assert list_admitted(scene.run()) == {"w"}


@pytest.mark.parametrize(("after", "before"), CHANGES.values(), ids=CHANGES)
def test_admitted_workload_stays_where_its_flavor_would_not_serve_it_any_more(after: dict[str, Any], before: dict[str, Any]):
    scene = build_tainted()
    scene.flavor("tas", "t", **before)
    admission = admit(scene)
    scene.flavor("tas", "t", **after)
    assert_kept(scene, admission)
    scene.submit("next")
    assert get_refusals(scene.run()).keys() == {"next"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"nodeTaints": GPU}, {}),
        ({"nodeTaints": GPU}, {"nodeTaints": GPU, "tolerations": TOLERATES}),
        ({"nodeLabels": {"pool": "b"}}, {"nodeLabels": {"pool": "a"}}),
    ],
)
def test_pending_workload_of_a_flavor_without_topology_is_tried_again_once_it_changes(before: dict[str, Any], after: dict[str, Any]):
    scene = Scene()
    scene.flavor("plain", None, **before)
    scene.queue("cq", {"plain": "10"})
    scene.workload(build_workload_json("w", [build_pod_set_json(nodeSelector={"pool": "a"})]))
    assert get_refusals(scene.run()).keys() == {"w"}
    scene.flavor("plain", None, **after)
    assert list_admitted(scene.run()) == {"w"}
