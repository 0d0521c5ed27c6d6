"""Spares at odds with other things that happen: writes on their way, nodes about to go, pods that nobody makes anew."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.kinds.job import Job
from core.jobs.kinds.pod_parents import Deployment
from core.model.admission import Admission
from core.names import HOSTNAME_LABEL, LEAVING_TAINTS, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, SPARE_NODES
from core.placement.algorithms import spare_placement as placing
from core.state.facts import NodeFacts, WorkloadFacts
from tests.builders import NAMESPACE, RACK, Node, build_node_json
from tests.queueing.cycle.test_spares import Sparing, build_sparing_scene
from tests.queueing.scene import list_admitted


def test_pods_that_are_stuck_move_only_once_it_is_written_which_spares_are_held() -> None:
    """The second pass would give them the spare of before, which is somebody else's by now."""
    scene = build_sparing_scene(4)
    scene.ask("w", 2, 1)
    scene.run()
    key, (old,) = f"{NAMESPACE}/w", scene.held("w")
    (pod_set,), queue = scene.state.workloads.facts[key].admission.pod_sets, "cq"  # type: ignore[union-attr]
    new = next(node for node in ("r0-n2", "r0-n3") if node != old)
    scene.state.assume_spares(key, Admission(queue, (pod_set.with_spares((new,)),)))
    scene.submit("other", 1, cpu="4")
    assert list_admitted(scene.run()) == {"other"}
    scene.state.observe_stuck(key, {"main": (("r0-n0", 1),)})
    assert list(scene.cycle.run()) == []
    assert all(scene.free(f"r0-n{i}") >= 0 for i in range(4))


def test_a_spare_that_is_about_to_go_is_taken_only_where_there_is_no_other() -> None:
    scene = Sparing()

    def node(name: str, cpu: int) -> Node:
        found = Node(name, {RACK: "r0", HOSTNAME_LABEL: name}, {"cpu": cpu * 1000, "pods": 10})
        scene.node(found)
        return found

    for name, cpu in (("n0", 8), ("n1", 4), ("n2", 8), ("n3", 0)):
        node(name, cpu)
    scene.ask("w", 3, 1)
    assert list_admitted(scene.run()) == {"w"}
    (spare,) = scene.held("w")
    node("n3", 4)
    wire = build_node_json(Node(spare, {RACK: "r0", HOSTNAME_LABEL: spare}, {"cpu": 8000, "pods": 10}))
    wire["spec"] = {**(wire.get("spec") or {}), "taints": [{"key": LEAVING_TAINTS[0], "effect": "PreferNoSchedule"}]}
    scene.state.observe_node(spare, NodeFacts.read(wire))
    scene.break_down("n1")
    scene.lose("w", "n1")
    scene.run()
    assert "n3" in scene.where("w")


def test_a_lone_pod_has_none() -> None:
    """Nobody makes it anew elsewhere: a node kept free for it would be idle for its life."""
    scene = build_sparing_scene(3)
    scene.ask("w", 1, 1)
    wire = scene.objects["w"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u", "controller": True}
    lone = WorkloadFacts.read({**wire, "metadata": {**wire["metadata"], "ownerReferences": [owner]}})
    assert [pod_set.spares for pod_set in WorkloadFacts.read(wire).pod_sets] == [1]
    assert [pod_set.spares for pod_set in lone.pod_sets] == [0]


def test_a_refusal_looks_at_each_domain_once_and_at_each_number_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every number in every domain: that kept the loop for seconds on a large cluster."""
    looks = 0
    caps = placing._list_caps

    def counted(*arguments: object) -> list[int]:
        nonlocal looks
        looks += 1
        return caps(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(placing, "_list_caps", counted)
    scene = build_sparing_scene(*[3] * 30)
    scene.ask("w", 2, 64)
    assert not list_admitted(scene.run())
    assert looks < 30 + 64 + 10


def build_job(spares: str) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {REQUIRED_TOPOLOGY: "cloud/rack", SPARE_NODES: spares}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "q"}}
    spec = {"suspend": True, "parallelism": 2, "completions": 2, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def test_deployment_with_spare_nodes_annotation_gets_a_warning() -> None:
    deployment = {**build_job("1"), "apiVersion": "apps/v1", "kind": "Deployment"}
    deployment["spec"] = {"replicas": 3, "selector": {}, "template": deployment["spec"]["template"]}
    (warning,) = Deployment().validate_create(deployment).warnings
    assert warning.startswith("spec.template.metadata.annotations[topogate.dev/spare-nodes]: has no effect")
    assert not Job().validate_create(build_job("1")).warnings


def test_a_number_that_is_changed_is_judged_too() -> None:
    assert Job().validate_update(build_job("2"), build_job("many")).errors
    assert not Job().validate_update(build_job("2"), build_job("3")).errors


def test_pods_that_come_no_more_need_none() -> None:
    scene = build_sparing_scene(3)
    scene.ask("w", 2, 1)
    scene.run()
    wire = scene.objects["w"]
    over = {**wire, "status": {**wire["status"], "reclaimablePods": [{"name": "main", "count": 2}]}}
    assert WorkloadFacts.read(wire).pod_sets[0].spares == 1
    facts = WorkloadFacts.read(over)
    assert (facts.pod_sets[0].spares, facts.admission.pod_sets[0].spares if facts.admission else None) == (0, ())
