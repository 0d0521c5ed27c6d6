"""A workload that was deactivated for a level that its topology lacks comes back when the topology has it."""

from __future__ import annotations

import pytest

from core.names import HOSTNAME_LABEL, QUOTA_RESERVED
from core.queueing.cycle.rules import REMEDY, can_be_activated
from core.queueing.flavors.outcome import NotAdmissible
from core.state.facts import TopologyFacts, WorkloadFacts, find_condition
from tests.builders import NAMESPACE, RACK, Node, build_condition_json, build_pod_set_json, build_topology_json, build_workload_json
from tests.queueing.scene import Scene, get_refusals

ROW = "cloud/row"


def deactivated(scene: Scene, reason: str = "Misconfigured", message: str = f"no topology level; {REMEDY}") -> WorkloadFacts:
    condition = build_condition_json(QUOTA_RESERVED, False) | {"reason": reason, "message": message}
    pod_sets = [build_pod_set_json(count=1, topology={"required": ROW})]
    workload = build_workload_json("w", pod_sets, active=False, conditions=[condition], version=2)
    scene.workload(workload)
    scene.condition = find_condition(workload, QUOTA_RESERVED) or {}  # type: ignore[attr-defined]
    return scene.state.workloads.facts[f"{NAMESPACE}/w"]


def test_a_workload_is_activated_again_once_the_topology_has_its_level():
    scene = Scene()
    scene.node(Node("n0", {ROW: "row-1", RACK: "r", HOSTNAME_LABEL: "n0"}))
    scene.submit("w", 1, topology={"required": ROW})
    refusal = get_refusals(scene.run())["w"]
    assert isinstance(refusal, NotAdmissible)
    assert refusal.breaks_rule
    facts = deactivated(scene, message=refusal.message)
    condition = scene.condition  # type: ignore[attr-defined]
    assert not can_be_activated(scene.state, facts, condition)
    scene.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [ROW, RACK, HOSTNAME_LABEL])))
    assert can_be_activated(scene.state, facts, condition)


@pytest.mark.parametrize(
    ("reason", "message"), [("Misconfigured", "for another reason"), ("SuspendedByUser", f"no topology level; {REMEDY}"), ("", "")]
)
def test_a_workload_that_was_deactivated_for_another_reason_stays_so(reason: str, message: str):
    scene = Scene()
    scene.rack("r", 1)
    scene.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [ROW, RACK, HOSTNAME_LABEL])))
    facts = deactivated(scene, reason, message)
    assert not can_be_activated(scene.state, facts, scene.condition)  # type: ignore[attr-defined]
