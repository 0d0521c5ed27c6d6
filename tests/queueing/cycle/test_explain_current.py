"""Why a workload that has its place is there: what was said when it was admitted, as long as nothing else has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.placement.explain.choice import HeldDomain, show_choices
from core.queueing.cycle.explain_current import explain_standing
from core.queueing.flavors.outcome import Admissible
from tests.builders import NAMESPACE, RACK, Node, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene

GROUP = {"required": RACK, "podSetGroupName": "g"}


@pytest.fixture
def scene() -> Scene:
    opened = Scene()
    for rack, nodes, cpu in (("r1", 2, 4), ("r2", 3, 4), ("r3", 1, 16)):
        opened.rack(rack, nodes, cpu=cpu)
    return opened


@pytest.mark.parametrize(
    "pod_sets",
    [
        [build_pod_set_json(count=6, topology={"required": RACK})],
        [build_pod_set_json(count=14, topology={"preferred": RACK})],
        [build_pod_set_json(count=25, topology={"preferred": RACK})],
        [build_pod_set_json(count=5, topology={"unconstrained": True})],
        [
            build_pod_set_json(name="a", count=3, topology={"required": RACK}),
            build_pod_set_json(name="b", count=9, topology={"required": RACK}),
        ],
        [build_pod_set_json(name="leader", count=1, topology=GROUP), build_pod_set_json(name="workers", count=7, topology=GROUP)],
    ],
)
def test_explanation_of_an_admitted_workload_repeats_the_admission_message(scene: Scene, pod_sets: list[dict[str, Any]]):
    scene.submit("other", 3)
    scene.run()
    key = scene.workload(build_workload_json("w", pod_sets))
    found = scene.run()["w"]
    assert isinstance(found, Admissible)
    before = scene.state.ledger.find_drift(), {name: scene.state.quota.get_usage(name) for name in scene.state.cluster_queues}
    again = explain_standing(scene.state, scene.state.workloads.facts[key])
    assert show_choices(again) == show_choices([replace(choice, looked_ahead=False, search=None) for choice in found.choices])
    assert before == (scene.state.ledger.find_drift(), {name: scene.state.quota.get_usage(name) for name in scene.state.cluster_queues})


def test_others_that_came_since_are_seen(scene: Scene):
    key = scene.submit("w", 6)
    scene.run()
    (before,) = explain_standing(scene.state, scene.state.workloads.facts[key])
    assert (before.used, before.able) == ((HeldDomain(("r1",), 8),), 3)
    scene.submit("other", 9)
    scene.run()
    (after,) = explain_standing(scene.state, scene.state.workloads.facts[key])
    assert (after.used, after.able) == ((HeldDomain(("r1",), 8),), 2)


def test_workload_without_an_assignment_or_with_deleted_nodes_has_no_explanation(scene: Scene):
    waiting = scene.submit("large", 100)
    key = scene.submit("w", 6)
    scene.run()
    facts = scene.state.workloads.facts
    assert explain_standing(scene.state, facts[waiting]) == ()
    for node in [name for name in scene.state.nodes if name.startswith("r1")]:
        scene.state.observe_node(node, None)
    scene.node(Node("r9-n0", {RACK: "r9", "kubernetes.io/hostname": "r9-n0"}))
    assert explain_standing(scene.state, facts[key]) == ()
    scene.state.observe_flavor("tas", None)
    assert explain_standing(scene.state, facts[key]) == ()
    scene.delete("w")
    assert f"{NAMESPACE}/w" not in facts
