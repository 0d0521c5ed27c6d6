"""A pod set group is one unit of flavor assignment: one flavor, quota for all or none, one domain (rule g of docs/decisions/0004)."""

from __future__ import annotations

from core.names import REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_QUOTA
from core.queueing.flavors.outcome import Admissible
from tests.builders import RACK, build_workload_json
from tests.queueing.flavors.test_flavors import build_pod_set, build_two_flavors, get_refusal, judge
from tests.queueing.scene import Scene

GROUPED = {"required": RACK, "podSetGroupName": "g"}


def test_leader_and_workers_get_one_flavor_though_each_alone_would_fit_the_first():
    scene = build_two_flavors()  # four CPU in pool a, eight in pool b
    outcome = judge(scene, build_pod_set(1, "leader", topology=GROUPED), build_pod_set(4, "workers", topology=GROUPED))
    assert isinstance(outcome, Admissible), outcome
    assert [set(given.flavors.values()) for given in outcome.admission.pod_sets] == [{"b"}, {"b"}]
    assert [given.count for given in outcome.admission.pod_sets] == [1, 4]
    assert [given.name for given in outcome.admission.pod_sets] == ["leader", "workers"]


def test_leader_that_requests_no_resource_of_the_flavor_gets_that_of_its_workers():
    """As in Kueue 0.20 (#12562); the workers have slices, too."""
    leader = build_pod_set(1, "leader", topology=GROUPED)
    leader["template"]["spec"]["containers"][0].pop("resources")
    sliced = {**GROUPED, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 4}
    outcome = judge(build_two_flavors(), leader, build_pod_set(8, "workers", topology=sliced))
    assert isinstance(outcome, Admissible), outcome
    assert [set(given.flavors.values()) for given in outcome.admission.pod_sets] == [{"b"}, {"b"}]


def test_quota_is_given_to_all_of_a_group_or_none():
    scene = Scene(quota="4")
    scene.rack("r1", 4)
    outcome = judge(scene, build_pod_set(1, "leader", topology=GROUPED), build_pod_set(4, "workers", topology=GROUPED))
    message = get_refusal(outcome, "ExceedsMaxQuota")
    assert "leader, workers" in message
    assert scene.state.workloads.get_usage("cq") == {}


def test_a_group_that_no_rack_holds_waits_though_two_racks_would():
    scene = Scene()
    scene.rack("r1", 1)
    scene.rack("r2", 1)
    outcome = judge(scene, build_pod_set(1, "leader", topology=GROUPED), build_pod_set(4, "workers", topology=GROUPED))
    assert RACK in get_refusal(outcome, REASON_TOPOLOGY_PLACEMENT_FAILED)


def test_usage_of_a_group_counts_against_the_next():
    scene = Scene(quota="6")
    scene.rack("r1", 4)
    assert isinstance(judge(scene, build_pod_set(1, "leader", topology=GROUPED), build_pod_set(4, "workers", topology=GROUPED)), Admissible)
    scene.workload(build_workload_json("next", [build_pod_set(2, "main")]))
    get_refusal(scene.run()["next"], REASON_WAITING_FOR_QUOTA)
