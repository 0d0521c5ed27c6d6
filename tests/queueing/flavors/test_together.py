"""Pod sets that want the same places, and workloads whose pod sets must be close to each other: flavors and quota included."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.kinds.job import Job
from core.names import (
    HOSTNAME_LABEL,
    REASON_MISCONFIGURED,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.plan.workloads.desired_workload import build_workload
from core.queueing.flavors import flavor_search
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.check_facts import CheckFacts
from tests.builders import RACK, build_workload_json
from tests.queueing.flavors.test_flavors import build_pod_set, build_two_flavors, get_refusal, judge
from tests.queueing.scene import Scene, list_refusals


def judge_tied(scene: Scene, annotation: str, level: str, *pod_sets: dict[str, Any]) -> Admissible | NotAdmissible:
    workload = build_workload_json("w", pod_sets)
    workload["metadata"]["annotations"] = {annotation: level}
    scene.workload(workload)
    return scene.run()["w"]


def list_racks(outcome: Admissible | NotAdmissible) -> list[set[str]]:
    assert isinstance(outcome, Admissible), outcome
    return [{name.split("-")[0] for name, _ in placement.nodes} for _, placement in outcome.placements]


def test_pod_sets_that_fit_only_all_at_once_are_admitted():
    scene = Scene()
    scene.rack("r1", 1, cpu=4)
    scene.rack("r2", 1, cpu=8)
    # The first alone would be unconstrained into the fuller rack's place; the second then finds no rack of eight.
    outcome = judge(scene, build_pod_set(4, "anywhere", topology={"preferred": RACK}), build_pod_set(8, "big"))
    assert list_racks(outcome) == [{"r1"}, {"r2"}]
    scene = Scene()
    scene.rack("r1", 1, cpu=5)
    scene.rack("r2", 1, cpu=4)
    outcome = judge(scene, build_pod_set(4, "first", topology={"unconstrained": True}), build_pod_set(5, "second"))
    assert list_racks(outcome) == [{"r2"}, {"r1"}]


def test_flavors_are_chosen_anew_where_the_first_choice_leaves_no_place_for_all():
    """Pool a holds four pods, pool b eight: what comes first takes pool a though only the second has to have it."""
    scene = build_two_flavors(first="4")
    outcome = judge(scene, build_pod_set(2, "first"), build_pod_set(8, "second"), build_pod_set(2, "third"))
    assert isinstance(outcome, Admissible), outcome
    assert [set(given.flavors.values()) for given in outcome.admission.pod_sets] == [{"a"}, {"b"}, {"a"}]
    selective = build_two_flavors(first="5", second="8")
    outcome = judge(selective, build_pod_set(4, "first"), build_pod_set(1, "second", nodeSelector={"pool": "a"}))
    assert isinstance(outcome, Admissible), outcome
    assert [set(given.flavors.values()) for given in outcome.admission.pod_sets] == [{"b"}, {"a"}]
    assert [given.usage for given in outcome.admission.pod_sets] == [{"cpu": 4000}, {"cpu": 1000}]


def test_flavors_are_chosen_anew_where_the_first_choice_leaves_no_quota_for_all():
    """Seed 1327: a lower workload was preempted without end, as the way found with it gone needed nothing of what it held."""
    scene = build_two_flavors(first="8", second="3")
    scene.rack("rc", 1, pool="a")
    outcome = judge(scene, build_pod_set(2, "first"), build_pod_set(8, "second", topology={"unconstrained": True}))
    assert isinstance(outcome, Admissible), outcome
    assert [set(given.flavors.values()) for given in outcome.admission.pod_sets] == [{"b"}, {"a"}]


def test_pod_set_with_nodes_that_come_with_a_check_gets_no_place_where_flavors_are_chosen_anew():
    scene = build_two_flavors(first="8", second="3")
    scene.state.observe_check("check", CheckFacts("check", "kueue.x-k8s.io/provisioning-request", active=True))
    checks = {"admissionChecks": [{"name": "check", "onFlavors": ["a"]}]}
    scene.queue("cq", {"a": "8", "b": "3"}, admissionChecksStrategy=checks)
    outcome = judge(scene, build_pod_set(2, "first"), build_pod_set(8, "second"))
    assert isinstance(outcome, Admissible), outcome
    assert [(set(given.flavors.values()), given.delayed) for given in outcome.admission.pod_sets] == [({"b"}, None), ({"a"}, "Pending")]


def test_no_other_choice_of_flavors_is_tried_where_none_could_help(monkeypatch: pytest.MonkeyPatch):
    tried = list[object]()
    monkeypatch.setattr(flavor_search, "_find_at_once", lambda *given: tried.append(given))
    judge(build_two_flavors(first="8", second="3"), build_pod_set(2, "first"), build_pod_set(2, "second", nodeSelector={"pool": "c"}))
    assert tried == []
    judge(build_two_flavors(first="8", second="3"), build_pod_set(2, "first"), build_pod_set(8, "second"))
    assert len(tried) == 1


def test_a_workload_tied_to_one_domain_has_all_its_pod_sets_there():
    scene = Scene()
    scene.rack("r1", 1, cpu=4)
    scene.rack("r2", 2, cpu=4)
    loose = build_pod_set(3, "a", topology={"unconstrained": True}), build_pod_set(4, "b", topology={"unconstrained": True})
    assert list_racks(judge_tied(scene, WORKLOAD_REQUIRED_TOPOLOGY, RACK, *loose)) == [{"r2"}, {"r2"}]


def test_workload_topology_that_no_domain_fits_is_refused_if_required_and_ignored_if_preferred():
    scene = Scene()
    scene.rack("r1", 1, cpu=4)
    scene.rack("r2", 1, cpu=4)
    loose = build_pod_set(3, "a", topology={"unconstrained": True}), build_pod_set(3, "b", topology={"unconstrained": True})
    outcome = judge_tied(scene, WORKLOAD_REQUIRED_TOPOLOGY, RACK, *loose)
    message = get_refusal(outcome, REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert [refusal.group for refusal in list_refusals(outcome)] == [("a", "b")]
    assert all(part in message for part in ("(a, b)", f"{RACK} (annotation {WORKLOAD_REQUIRED_TOPOLOGY})"))
    assert isinstance(judge_tied(scene, WORKLOAD_PREFERRED_TOPOLOGY, RACK, *loose), Admissible)


def test_a_tied_workload_gets_one_flavor_and_not_one_without_a_topology():
    scene = build_two_flavors()
    scene.flavor("plain")
    scene.queue("cq", {"plain": "10", "a": "10", "b": "10"})
    outcome = judge_tied(scene, WORKLOAD_REQUIRED_TOPOLOGY, RACK, build_pod_set(2, "first"), build_pod_set(4, "second"))
    assert isinstance(outcome, Admissible), outcome
    assert [set(given.flavors.values()) for given in outcome.admission.pod_sets] == [{"b"}, {"b"}]


def test_an_unknown_level_is_named_beside_those_there_are():
    scene = Scene()
    scene.rack("r1", 1)
    message = get_refusal(judge_tied(scene, WORKLOAD_REQUIRED_TOPOLOGY, "zone", build_pod_set(1)), REASON_MISCONFIGURED)
    assert "'zone'" in message
    assert RACK in message


def test_a_refused_workload_is_judged_again_when_its_tie_changes():
    scene = Scene()
    scene.rack("r1", 1, cpu=4)
    scene.rack("r2", 1, cpu=4)
    loose = build_pod_set(3, "a", topology={"unconstrained": True}), build_pod_set(3, "b", topology={"unconstrained": True})
    assert isinstance(judge_tied(scene, WORKLOAD_REQUIRED_TOPOLOGY, RACK, *loose), NotAdmissible)
    scene.workload(build_workload_json("w", loose, version=2))
    assert isinstance(scene.run()["w"], Admissible)


@pytest.mark.parametrize("annotation", [WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY])
def test_a_jobs_annotation_is_its_workloads(annotation: str):
    metadata = {
        "name": "j",
        "namespace": "ns",
        "uid": "u",
        "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        "annotations": {annotation: RACK},
    }
    template = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    workload = build_workload(Job(), {"metadata": metadata, "spec": {"template": template}}, priority=0, priority_class=None)
    assert workload["metadata"]["annotations"] == {annotation: RACK}


@pytest.mark.parametrize(
    ("annotation", "level", "told"),
    [
        (WORKLOAD_REQUIRED_TOPOLOGY, RACK, f"all pods in {RACK} r2 (annotation {WORKLOAD_REQUIRED_TOPOLOGY})"),
        (WORKLOAD_PREFERRED_TOPOLOGY, RACK, f"all pods in {RACK} r2 (annotation {WORKLOAD_PREFERRED_TOPOLOGY})"),
        (
            WORKLOAD_PREFERRED_TOPOLOGY,
            HOSTNAME_LABEL,
            f"no {HOSTNAME_LABEL} holds all pods, all pods in {RACK} r2 (annotation {WORKLOAD_PREFERRED_TOPOLOGY})",
        ),
    ],
)
def test_an_admission_names_the_domain_of_the_level_that_the_workload_asks_for(annotation: str, level: str, told: str):
    """Its pod sets ask for none: what is told of them names hosts."""
    scene = Scene()
    scene.rack("r1", 1, cpu=4)
    scene.rack("r2", 2, cpu=4)
    anywhere = {"unconstrained": True}
    outcome = judge_tied(scene, annotation, level, build_pod_set(4, "a", topology=anywhere), build_pod_set(2, "b", topology=anywhere))
    assert isinstance(outcome, Admissible), outcome
    assert outcome.together == told


def test_admission_reports_a_preferred_workload_level_that_was_not_kept():
    scene = Scene()
    scene.rack("r1", 1, cpu=4)
    scene.rack("r2", 1, cpu=4)
    asked = build_pod_set(6, "a", topology={"unconstrained": True})
    outcome = judge_tied(scene, WORKLOAD_PREFERRED_TOPOLOGY, RACK, asked)
    assert isinstance(outcome, Admissible), outcome
    assert all(part in outcome.together for part in (f"no {RACK}", f"2 (annotation {WORKLOAD_PREFERRED_TOPOLOGY})"))
    scene = Scene()
    scene.rack("r1", 2, cpu=4)
    untied = judge_tied(scene, "example.com/other", RACK, asked)
    assert isinstance(untied, Admissible), untied
    assert untied.together == ""
