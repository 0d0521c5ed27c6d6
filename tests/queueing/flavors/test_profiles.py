"""Which placement profile a workload gets: that named nearest to it."""

from __future__ import annotations

import pytest

from core.jobs.kinds.job import Job
from core.names import HOSTNAME_LABEL, PLACEMENT_PROFILE, QUEUE_NAME_LABEL
from core.placement.algorithms.profile import Profiles, read_profiles
from core.plan.workloads.desired_workload import build_workload
from core.queueing.cycle.cycle import Cycle
from core.queueing.flavors.outcome import Admissible
from core.state.facts import TopologyFacts
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import NAMESPACE, RACK, Node, build_cluster_queue_json, build_pod_set_json, build_topology_json, build_workload_json
from tests.queueing.scene import Scene

KEP, COMPACT = {"n0": 3, "n1": 1, "n2": 2, "n3": 1}, {"n0": 3, "n1": 3, "n3": 1}
NAMED = {"kep": KEP, "compact": COMPACT}


class Choice:
    """Seven pods for nodes that hold 3, 3, 2 and 1: `kep` uses four of them, `compact` three. Each party may name a profile."""

    def __init__(self, profiles: Profiles, *, topology: str | None = None, queue: str | None = None) -> None:
        self.scene = Scene()
        self.scene.cycle = Cycle(self.scene.state, profiles)
        for i, room in enumerate((3, 3, 2, 1)):
            self.scene.node(Node(f"n{i}", {RACK: "r", HOSTNAME_LABEL: f"n{i}"}, {"cpu": room * 1000, "pods": 10}))
        self.name_topology(topology)
        self.name_queue(queue)

    def name_topology(self, profile: str | None) -> None:
        self.scene.state.observe_topology("t", TopologyFacts.read(_naming(build_topology_json("t", [RACK, HOSTNAME_LABEL]), profile)))

    def name_queue(self, profile: str | None) -> None:
        self.scene.state.observe_cluster_queue(
            "cq", ClusterQueueFacts.read(_naming(build_cluster_queue_json("cq", {"tas": "100"}), profile))
        )

    def place(self, name: str = "w", *, profile: str | None = None) -> dict[str, int]:
        """Where a workload goes; it is gone again afterwards."""
        self.scene.workload(_naming(build_workload_json(name, [build_pod_set_json(count=7, topology={"unconstrained": True})]), profile))
        outcome = self.scene.run()[name]
        assert isinstance(outcome, Admissible), outcome
        self.scene.delete(name)
        ((_, placement),) = outcome.placements
        return dict(placement.nodes)


def _naming(obj: dict, profile: str | None) -> dict:
    if profile is not None:
        obj["metadata"]["annotations"] = {PLACEMENT_PROFILE: profile}
    return obj


@pytest.mark.parametrize("workload", [None, "kep", "compact"])
@pytest.mark.parametrize("queue", [None, "kep", "compact"])
@pytest.mark.parametrize("topology", [None, "kep", "compact"])
@pytest.mark.parametrize("process", ["kep", "compact"])
def test_the_nearest_name_holds_workload_then_queue_then_topology_then_process(
    process: str, topology: str | None, queue: str | None, workload: str | None
):
    choice = Choice(read_profiles({}, process), topology=topology, queue=queue)
    assert choice.place(profile=workload) == NAMED[workload or queue or topology or process]


@pytest.mark.parametrize("named_by", ["workload", "queue", "topology", "process"])
@pytest.mark.parametrize(("profile", "pods"), [("best-fit", [3, 3, 1]), ("least-free", [1, 2, 3, 1]), ("balanced", [3, 2, 2])])
def test_profile_of_one_algorithm_applies_wherever_it_is_named(profile: str, pods: list[int], named_by: str):
    """Of nodes for 3, 3, 2 and 1 pods each algorithm chooses others for seven pods that prefer one rack."""
    by = {named_by: profile}
    choice = Choice(read_profiles({}, by.get("process", "kep")), topology=by.get("topology"), queue=by.get("queue"))
    asked = build_workload_json("w", [build_pod_set_json(count=7, topology={"preferred": RACK})])
    choice.scene.workload(_naming(asked, by.get("workload")))
    outcome = choice.scene.run()["w"]
    assert isinstance(outcome, Admissible)
    assert sorted(dict(outcome.placements[0][1].nodes).values()) == sorted(pods)
    assert [each.profile for each in outcome.choices] == [profile]


@pytest.mark.parametrize("unknown", ["Compact", "", "kep-best-fit"])
def test_an_unknown_name_is_passed_over(unknown: str):
    choice = Choice(read_profiles({}), topology=unknown, queue="compact")
    assert choice.place(profile=unknown) == COMPACT
    choice.name_queue(unknown)
    assert choice.place(profile=unknown) == KEP


def test_a_name_that_changes_counts_from_then_on():
    choice = Choice(read_profiles({}))
    assert choice.place("first") == KEP
    choice.name_queue("compact")
    assert choice.place("second") == COMPACT
    choice.name_queue(None)
    choice.name_topology("compact")
    assert choice.place("third") == COMPACT


def test_a_job_that_asks_for_kep_gets_it_as_the_gates_have_it():
    choice = Choice(read_profiles({"TASProfileLeastFreeCapacity": True}), queue="compact")
    choice.scene.workload(_naming(build_workload_json("w", [build_pod_set_json(count=7, topology={"required": RACK})]), "kep"))
    outcome = choice.scene.run()["w"]
    assert isinstance(outcome, Admissible)
    assert dict(outcome.placements[0][1].nodes) == KEP


def test_pod_sets_placed_at_once_have_the_profile_too():
    """Rule l of docs/decisions/0004: the first pod set alone would take the SSD that the second one needs."""
    for profile in ("kep", "compact"):
        choice = Choice(read_profiles({}))
        choice.scene.node(Node("n4", {RACK: "r", HOSTNAME_LABEL: "n4", "disk": "ssd"}, {"cpu": 1000, "pods": 10}))
        pod_sets = [
            build_pod_set_json("any", 7, topology={"unconstrained": True}),
            build_pod_set_json("picky", 1, topology={"unconstrained": True}, nodeSelector={"disk": "ssd"}),
        ]
        choice.scene.workload(_naming(build_workload_json("w", pod_sets), profile))
        outcome = choice.scene.run()["w"]
        assert isinstance(outcome, Admissible)
        places = {placement.pod_set: dict(placement.nodes) for _, placement in outcome.placements}
        assert places["picky"] == {"n4": 1}
        assert len(places["any"]) == {"kep": 4, "compact": 3}[profile]


def test_the_job_hands_its_name_on_to_its_workload():
    job = {
        "metadata": {
            "name": "j",
            "namespace": NAMESPACE,
            "uid": "u",
            "labels": {QUEUE_NAME_LABEL: "lq"},
            "annotations": {PLACEMENT_PROFILE: "compact", "example.com/own": "x"},
        },
        "spec": {"template": {"spec": {}}},
    }
    workload = build_workload(Job(), job, priority=0, priority_class=None)
    assert workload["metadata"]["annotations"] == {PLACEMENT_PROFILE: "compact"}
