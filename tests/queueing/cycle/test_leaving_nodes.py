"""Nodes that are about to go take pods that have lost theirs only where there are no others."""

from __future__ import annotations

import pytest

from core.names import LEAVING_TAINTS
from core.queueing.cycle.second_pass import NodeReplacement
from core.state.facts import NodeFacts
from tests.builders import Node, build_node_json
from tests.queueing.running import Running, build_running_scene


def announce(scene: Running, name: str, key: str) -> None:
    """A taint that keeps nobody away."""
    facts = scene.state.nodes[name]
    node = Node(name, facts.labels, dict(facts.state.allocatable), taints=((key, "", "PreferNoSchedule"),))
    scene.state.observe_node(name, NodeFacts.read(build_node_json(node)))


@pytest.mark.parametrize("key", LEAVING_TAINTS)
def test_a_node_that_stays_is_preferred(key: str) -> None:
    scene = build_running_scene()
    scene.submit("w", 2, cpu="4")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    announce(scene, "r0-n2", key)
    scene.lose("w", "r0-n1")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n3": 1}


def test_where_all_others_are_about_to_go_one_of_them_is_taken() -> None:
    scene = build_running_scene()
    scene.submit("w", 2, cpu="4")
    scene.run()
    for name in ("r0-n2", "r0-n3"):
        announce(scene, name, LEAVING_TAINTS[0])
    scene.lose("w", "r0-n1")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n2": 1}


def test_taints_of_leaving_nodes_are_configurable() -> None:
    scene = build_running_scene(NodeReplacement(leaving_taints=frozenset({"example.com/upgrade"})))
    scene.submit("w", 2, cpu="4")
    scene.run()
    announce(scene, "r0-n2", "example.com/upgrade")
    announce(scene, "r0-n3", LEAVING_TAINTS[0])
    scene.lose("w", "r0-n1")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n3": 1}
