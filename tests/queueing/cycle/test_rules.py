"""What breaks a rule together with every topology of the queue is said to, and only that."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import (
    HOSTNAME_LABEL,
    REASON_MISCONFIGURED,
    REASON_NO_MATCHING_FLAVOR,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.queueing.cycle.rules import REMEDY
from core.queueing.flavors.outcome import NotAdmissible
from core.state.facts import TopologyFacts
from tests.builders import BLOCK, RACK, build_pod_set_json, build_topology_json, build_workload_json
from tests.queueing.scene import Scene


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.rack("r1", 2)
    return scene


def get_verdict(scene: Scene, *pod_sets: dict[str, Any], annotations: dict[str, str] | None = None) -> NotAdmissible | None:
    workload = build_workload_json("w", pod_sets, version=scene.version)
    scene.version += 1
    workload["metadata"]["annotations"] = annotations or {}
    scene.workload(workload)
    outcome = scene.run().get("w")
    return outcome if isinstance(outcome, NotAdmissible) else None


@pytest.mark.parametrize(
    ("topology", "named"),
    [
        ({"required": BLOCK}, (f"'{BLOCK}'", f"{RACK}, {HOSTNAME_LABEL}")),
        ({"preferred": "nowhere"}, ("'nowhere'", f"{RACK}, {HOSTNAME_LABEL}")),
        ({"required": RACK, "podSetSliceRequiredTopology": BLOCK, "podSetSliceSize": 2}, ("slice level", f"'{BLOCK}'")),
        (
            {"required": HOSTNAME_LABEL, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
            (f"slice level {RACK}", f"above {HOSTNAME_LABEL}"),
        ),
        (
            {"podsetSliceRequiredTopologyConstraints": [{"topology": HOSTNAME_LABEL, "size": 2}, {"topology": RACK, "size": 1}]},
            ("slice layers", RACK),
        ),
    ],
)
def test_the_rule_the_level_asked_for_and_the_levels_there_are_are_named(scene: Scene, topology: dict[str, Any], named: tuple[str, ...]):
    found = get_verdict(scene, build_pod_set_json("main", 2, topology=topology))
    assert found is not None
    assert found.breaks_rule
    assert found.reason == REASON_MISCONFIGURED
    assert all(part in found.message for part in ('topology "t"', "pod set main", *named))
    assert found.message.endswith(REMEDY)


def test_queue_without_a_topology_flavor_keeps_the_workload_queued(scene: Scene):
    """There is no topology to compare the level with (docs/users.md)."""
    scene.flavor("plain")
    scene.queue("cq", {"plain": "100"})
    found = get_verdict(scene, build_pod_set_json("main", 2, topology={"required": "nowhere"}))
    assert found is not None
    assert found.reason == REASON_NO_MATCHING_FLAVOR
    assert not found.breaks_rule
    scene.queue("cq", {"plain": "100", "tas": "100"})
    found = get_verdict(scene, build_pod_set_json("main", 2, topology={"required": "nowhere"}))
    assert found is not None
    assert found.breaks_rule


def test_want_of_room_or_quota_breaks_no_rule(scene: Scene):
    for asked in (
        build_pod_set_json("main", 50, topology={"required": RACK}),
        build_pod_set_json("main", 500, topology={"required": RACK}),
    ):
        found = get_verdict(scene, asked)
        assert found is not None
        assert not found.breaks_rule


def test_rule_is_kept_if_the_topology_of_one_flavor_has_the_requested_level(scene: Scene):
    scene.state.observe_topology("other", TopologyFacts.read(build_topology_json("other", [BLOCK, RACK, HOSTNAME_LABEL])))
    scene.flavor("wide", "other")
    scene.queue("cq", {"tas": "100", "wide": "0"})
    found = get_verdict(scene, build_pod_set_json("main", 2, topology={"required": BLOCK}))
    assert found is not None
    assert not found.breaks_rule


def test_a_queue_without_topologies_waits_for_one(scene: Scene):
    scene.flavor("plain")
    scene.queue("cq", {"plain": "100"})
    found = get_verdict(scene, build_pod_set_json("main", 2, topology={"required": RACK}))
    assert found is not None
    assert not found.breaks_rule
    assert [(attempt.flavor, attempt.reason) for attempt in found.attempts] == [("plain", REASON_NO_MATCHING_FLAVOR)]


def test_a_workloads_level_must_be_there_and_at_or_above_its_pod_sets(scene: Scene):
    for level, told in (("nowhere", "no topology level 'nowhere'"), (HOSTNAME_LABEL, f"level {RACK} is above {HOSTNAME_LABEL}")):
        found = get_verdict(
            scene, build_pod_set_json("main", 1, topology={"required": RACK}), annotations={WORKLOAD_REQUIRED_TOPOLOGY: level}
        )
        assert found is not None
        assert found.breaks_rule
        assert told in found.message


@pytest.mark.parametrize("annotation", [WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY])
@pytest.mark.parametrize("pods", [1, 500], ids=["with quota", "when quota is short"])
def test_unknown_level_of_a_workload_annotation_is_refused_without_pod_set_topology_too(scene: Scene, annotation: str, pods: int):
    found = get_verdict(scene, build_pod_set_json("main", pods), annotations={annotation: "nowhere"})
    assert found is not None
    assert found.breaks_rule
    assert found.reason == REASON_MISCONFIGURED
    assert all(part in found.message for part in ("'nowhere'", f"annotation {annotation}", f"{RACK}, {HOSTNAME_LABEL}"))


def test_group_of_three_with_mixed_levels_breaks_a_rule(scene: Scene):
    """Only a Workload that is written by hand can have one."""
    asked: dict[str, dict[str, Any]] = {"a": {"required": RACK}, "b": {"required": RACK}, "c": {"unconstrained": True}}
    found = get_verdict(scene, *(build_pod_set_json(name, 1, topology={**each, "podSetGroupName": "g"}) for name, each in asked.items()))
    assert found is not None
    assert found.breaks_rule
    assert found.reason == REASON_MISCONFIGURED
    assert "pod set group g" in found.message
