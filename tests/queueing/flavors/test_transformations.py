"""Resources that quota counts as others, or not at all; nodes are chosen by what pods really ask for."""

from __future__ import annotations

import pytest

from core.model.configuration import ResourceRules, Transformation
from core.names import REASON_EXCEEDS_MAX_QUOTA, REASON_NO_MATCHING_FLAVOR, REASON_TOPOLOGY_PLACEMENT_FAILED
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import NAMESPACE, RACK, build_workload_json
from tests.queueing.scene import Scene

CREDITS = ResourceRules((), (Transformation("cpu", True, {"credits": 1000}),))


def build_scene(rules: ResourceRules, **groups: tuple[str, str]) -> Scene:
    """One rack of two nodes; per resource a flavor and its quota, each a group of its own."""
    scene = Scene()
    scene.state.resource_rules = rules
    scene.rack("r", 2, cpu=4)
    for name in {flavor for flavor, _ in groups.values()} - {"tas"}:
        scene.flavor(name)
    wire = [
        {"coveredResources": [resource], "flavors": [{"name": flavor, "resources": [{"name": resource, "nominalQuota": quota}]}]}
        for resource, (flavor, quota) in groups.items()
    ]
    queue = {"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": wire}}
    scene.state.observe_cluster_queue("cq", ClusterQueueFacts.read(queue))
    return scene


def submit(scene: Scene, **requests: str) -> Admissible | NotAdmissible:
    spec = {"containers": [{"name": "c", "resources": {"requests": {name.replace("__", "/"): text for name, text in requests.items()}}}]}
    pod_set = {"name": "main", "count": 2, "template": {"metadata": {}, "spec": spec}, "topologyRequest": {"required": RACK}}
    scene.workload(build_workload_json("w", [pod_set]))
    return scene.run()["w"]


def given(outcome: Admissible | NotAdmissible) -> tuple[dict[str, str], dict[str, int]]:
    assert isinstance(outcome, Admissible), outcome
    (pod_set,) = outcome.admission.pod_sets
    assert pod_set.assignment is not None
    return dict(pod_set.flavors), dict(pod_set.usage)


def test_resource_that_only_quota_counts_needs_no_topology() -> None:
    scene = build_scene(CREDITS, cpu=("tas", "10"), credits=("bank", "10"))
    assert given(submit(scene, cpu="2")) == ({"cpu": "tas", "credits": "bank"}, {"cpu": 4000, "credits": 4})
    assert scene.state.quota.get_usage("cq") == {("tas", "cpu"): 4000, ("bank", "credits"): 4}


def test_too_few_credits_are_too_little_quota() -> None:
    scene = build_scene(CREDITS, cpu=("tas", "10"), credits=("bank", "3"))
    outcome = submit(scene, cpu="2")
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_EXCEEDS_MAX_QUOTA
    assert "requests 4 credits" in outcome.message


def test_replaced_resource_needs_no_quota_but_room_on_nodes() -> None:
    rules = ResourceRules((), (Transformation("cpu", False, {"credits": 1000}),))
    assert given(submit(build_scene(rules, credits=("tas", "10")), cpu="2")) == ({"credits": "tas"}, {"credits": 4})
    assert isinstance(submit(build_scene(rules, credits=("tas", "100")), cpu="5"), NotAdmissible), "no node has five"


def test_pods_need_a_flavor_with_nodes_all_the_same() -> None:
    rules = ResourceRules((), (Transformation("cpu", False, {"credits": 1000}),))
    outcome = submit(build_scene(rules, credits=("bank", "10")), cpu="2")
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_NO_MATCHING_FLAVOR
    assert [(attempt.flavor, attempt.reason) for attempt in outcome.attempts] == [("bank", REASON_NO_MATCHING_FLAVOR)]


def test_a_flavor_without_topology_serves_no_resource_that_pods_ask_for() -> None:
    outcome = submit(build_scene(ResourceRules(), cpu=("tas", "10"), memory=("bank", "10")), cpu="1", memory="1")
    assert isinstance(outcome, NotAdmissible)
    assert [(attempt.flavor, attempt.reason) for attempt in outcome.attempts] == [("bank", REASON_NO_MATCHING_FLAVOR)]


@pytest.mark.parametrize(("prefixes", "counted_out"), [((), False), (("example.com/",), True), (("other/",), False)])
def test_resources_with_an_excluded_prefix_need_no_quota(prefixes: tuple[str, ...], counted_out: bool) -> None:
    scene = build_scene(ResourceRules(prefixes), cpu=("tas", "10"))
    outcome = submit(scene, cpu="1", **{"example.com__x": "0", "example.com__y": "1"})
    reasons = {attempt.reason for attempt in outcome.attempts}
    assert reasons == ({REASON_TOPOLOGY_PLACEMENT_FAILED} if counted_out else {REASON_NO_MATCHING_FLAVOR}), (
        "nodes do not have it, quota may"
    )


def test_a_request_of_zero_gets_a_flavor_where_there_is_one() -> None:
    scene = build_scene(ResourceRules(), cpu=("tas", "10"), memory=("tas", "10"))
    assert given(submit(scene, cpu="1", memory="0", gpu="0")) == ({"cpu": "tas", "memory": "tas"}, {"cpu": 2000, "memory": 0})
    facts = scene.state.workloads.facts[f"{NAMESPACE}/w"]
    assert facts.pod_sets[0].none_of == ("gpu", "memory")
    assert facts.pod_sets[0].requests == {"cpu": 1000}
