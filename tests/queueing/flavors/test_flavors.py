"""Flavor search with topology inside it: what is tried, in which order, and what is said where nothing serves."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import (
    HOSTNAME_LABEL,
    REASON_EXCEEDS_MAX_QUOTA,
    REASON_NO_MATCHING_FLAVOR,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_QUOTA,
)
from core.placement.explain.choice import show_choices
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from tests.builders import RACK, Node, build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene, list_flavors, list_refusals, list_shortages


def judge(scene: Scene, *pod_sets: dict[str, Any]) -> Admissible | NotAdmissible:
    scene.workload(build_workload_json("w", pod_sets))
    return scene.run()["w"]


def build_pod_set(
    count: int, name: str = "main", *, implied: bool = False, topology: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    return build_pod_set_json(name, count, topology=None if implied else topology or {"required": RACK}, **options)


def get_refusal(outcome: Admissible | NotAdmissible, reason: str) -> str:
    assert isinstance(outcome, NotAdmissible), outcome
    assert outcome.reason == reason
    return outcome.message


def build_two_flavors(first: str = "10", second: str = "10") -> Scene:
    """Pool a has one node of 4 CPU, pool b two in one rack."""
    scene = Scene()
    scene.rack("ra", 1, pool="a")
    scene.rack("rb", 2, pool="b")
    scene.flavor("a", "t", nodeLabels={"pool": "a"})
    scene.flavor("b", "t", nodeLabels={"pool": "b"})
    scene.queue("cq", {"a": first, "b": second})
    return scene


def test_the_first_flavor_is_taken_where_it_serves():
    assert list_flavors(judge(build_two_flavors(), build_pod_set(4))) == [{"cpu": "a"}]


def test_the_second_flavor_serves_where_the_first_lacks_quota():
    assert list_flavors(judge(build_two_flavors(first="3"), build_pod_set(4))) == [{"cpu": "b"}]


def test_the_second_flavor_serves_where_the_first_lacks_the_place():
    """Kueue never tries the next flavor for that."""
    outcome = judge(build_two_flavors(), build_pod_set(8))
    assert list_flavors(outcome) == [{"cpu": "b"}]
    assert isinstance(outcome, Admissible)
    assert [attempt.flavor for attempt in outcome.attempts] == ["a"]
    assert {name for _, placement in outcome.placements for name, _ in placement.nodes} == {"rb-n0", "rb-n1"}


def test_where_no_flavor_serves_the_message_speaks_of_each():
    outcome = judge(build_two_flavors(second="4"), build_pod_set(8))
    message = get_refusal(outcome, REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert [attempt.flavor for attempt in outcome.attempts] == ["a", "b"]
    assert all(attempt.sentence in message for attempt in outcome.attempts)
    ((refusal,), (shortage,)) = (list_refusals(outcome), list_shortages(outcome))
    assert (refusal.fit, refusal.wanted) == (4, 8)
    assert (shortage.flavor, shortage.wanted, shortage.nominal, shortage.never_fits) == ("b", 8000, 4000, True)


def test_amount_that_was_cut_is_shown_as_more_than_the_largest():
    """It read `46116860184273879030m cpu are asked for`, which nobody had asked for."""
    message = get_refusal(judge(build_two_flavors(), build_pod_set(10, cpu="99999999999999999999999999E")), REASON_EXCEEDS_MAX_QUOTA)
    assert "more than 4611686018427387 cpu" in message


def test_a_topology_that_fits_nowhere_names_both_flavors_shortages():
    outcome = judge(build_two_flavors("20", "20"), build_pod_set(9))
    message = get_refusal(outcome, REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert all(attempt.sentence in message for attempt in outcome.attempts)
    assert [(refusal.fit, refusal.wanted) for refusal in list_refusals(outcome)] == [(4, 9), (8, 9)]


@pytest.mark.parametrize(
    ("used", "reason", "words"),
    [
        (0, REASON_EXCEEDS_MAX_QUOTA, "requests 5 cpu, more than its whole nominal quota of 4"),
        (3, REASON_WAITING_FOR_QUOTA, "needs 1 more cpu; 3 of 4 in use"),
    ],
)
def test_quota_shortage_message_names_the_missing_amount_or_that_quota_never_suffices(used: int, reason: str, words: str):
    scene = Scene(quota="4")
    scene.rack("r", 4)
    if used:
        scene.submit("before", used)
        assert isinstance(scene.run()["before"], Admissible)
    assert words in get_refusal(judge(scene, build_pod_set(2 if used else 5)), reason)


@pytest.mark.parametrize(
    ("implied", "flavors", "expected"),
    [
        (True, {"tas": "9"}, ["tas"]),  # only topology-aware flavors: pods without a request are placed, too
        (True, {"tas": "9", "plain": "9"}, ["plain"]),  # a mixed queue keeps them off the topology-aware nodes
        (False, {"plain": "9", "tas": "9"}, ["tas"]),
    ],
)
def test_implied_requests_go_to_topology_aware_flavors_only_where_there_are_no_others(implied, flavors, expected):
    scene = Scene()
    scene.rack("r", 2)
    scene.flavor("plain")
    scene.queue("cq", flavors)
    outcome = judge(scene, build_pod_set(2, implied=implied))
    assert [flavors["cpu"] for flavors in list_flavors(outcome)] == expected
    assert isinstance(outcome, Admissible)
    assert (outcome.admission.pod_sets[0].assignment is not None) == (expected == ["tas"])


def test_a_topology_request_finds_no_flavor_where_none_is_topology_aware():
    scene = Scene()
    scene.flavor("plain")
    scene.queue("cq", {"plain": "9"})
    outcome = judge(scene, build_pod_set(1))
    assert '"plain"' in get_refusal(outcome, REASON_NO_MATCHING_FLAVOR)
    assert [(attempt.flavor, attempt.reason) for attempt in outcome.attempts] == [("plain", REASON_NO_MATCHING_FLAVOR)]


@pytest.mark.parametrize(
    ("flavor", "spec", "serves"),
    [
        ({"nodeTaints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, {}, "taint gpu=yes:NoSchedule"),
        ({"nodeTaints": [{"key": "gpu", "effect": "NoExecute"}]}, {}, "taint gpu:NoExecute"),
        ({"nodeTaints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, {}, None),
        ({"nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}]}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, None),
        ({"nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}], "tolerations": [{"operator": "Exists"}]}, {}, None),
        ({"nodeLabels": {"pool": "a"}}, {"nodeSelector": {"pool": "b"}}, "does not match the node labels"),
        ({"nodeLabels": {"pool": "a"}}, {"nodeSelector": {"pool": "a"}}, None),
    ],
)
def test_labels_and_taints_of_a_flavor_keep_pods_off(flavor: dict[str, Any], spec: dict[str, Any], serves: str | None):
    scene = Scene()
    scene.rack("r", 1, pool="a")
    scene.flavor("tas", "t", **flavor)
    outcome = judge(scene, build_pod_set(1, **spec))
    if serves is None:
        assert isinstance(outcome, Admissible), outcome
    else:
        assert serves in get_refusal(outcome, REASON_NO_MATCHING_FLAVOR)


def test_workload_with_invalid_node_affinity_is_refused_and_others_are_admitted():
    scene = Scene()
    scene.rack("r", 2, gen="7")
    scene.flavor("tas", "t", nodeLabels={"gen": "7"})
    terms = [{"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["new"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    scene.workload(build_workload_json("odd", [build_pod_set(1, affinity=affinity)], priority=5))
    scene.submit("good")
    verdicts = scene.run()
    assert isinstance(verdicts["good"], Admissible)
    assert isinstance(verdicts["odd"], NotAdmissible)
    assert "operator Gt" in verdicts["odd"].message
    assert verdicts["odd"].message.count("pod set main") == 1, "who is spoken of is named once"


def test_workload_with_an_absurd_request_is_refused_and_others_are_admitted():
    scene = Scene(quota="9E")
    scene.rack("r", 1)
    scene.submit("absurd", 3, cpu="99999999999999999999", priority=5)
    scene.submit("good")
    verdicts = scene.run()
    assert isinstance(verdicts["absurd"], NotAdmissible)
    assert isinstance(verdicts["good"], Admissible)


def test_a_resource_without_quota_is_named():
    scene = Scene()
    scene.rack("r", 1)
    pod_set = build_pod_set(1)
    pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["example.com/fpga"] = "1"
    assert "example.com/fpga" in get_refusal(judge(scene, pod_set), REASON_NO_MATCHING_FLAVOR)


def test_later_pod_sets_of_a_workload_count_usage_of_earlier_pod_sets():
    scene = Scene()
    scene.rack("r1", 1)
    scene.rack("r2", 1)
    outcome = judge(scene, build_pod_set(3, "first"), build_pod_set(3, "second"))
    assert isinstance(outcome, Admissible)
    assert len({placement.nodes for _, placement in outcome.placements}) == 2
    scene.delete("w")
    get_refusal(
        judge(scene, build_pod_set(3, "first"), build_pod_set(3, "second"), build_pod_set(3, "third")), REASON_TOPOLOGY_PLACEMENT_FAILED
    )


def test_pod_sets_in_different_flavors_over_the_same_nodes_see_each_other():
    """Quota forces the second pod set into the other flavor; the node has room for one of them only."""
    scene = Scene()
    scene.rack("r", 1)
    scene.flavor("other", "t")
    scene.queue("cq", {"tas": "3", "other": "3"})
    message = get_refusal(judge(scene, build_pod_set(3, "first"), build_pod_set(3, "second")), REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert "only 1 out of 3" in message


def test_quota_is_shared_by_the_pod_sets_of_a_workload():
    scene = Scene(quota="5")
    scene.rack("r", 4)
    outcome = judge(scene, build_pod_set(3, "first"), build_pod_set(3, "second"))
    assert get_refusal(outcome, REASON_WAITING_FOR_QUOTA)
    (shortage,) = list_shortages(outcome)
    assert (shortage.wanted, shortage.available, shortage.used, shortage.nominal) == (3000, 2000, 3000, 5000)


def test_pods_that_ask_for_nothing_still_fill_their_places():
    """A node takes only as many pods as it says, whatever they ask for."""
    scene = Scene()
    scene.node(Node("n", {RACK: "r", HOSTNAME_LABEL: "n"}, {"cpu": 4000, "pods": 3}))
    scene.submit("idle", 2, cpu="0")
    found = scene.run()["idle"]
    assert list_flavors(found) == [{"cpu": "tas"}]
    scene.submit("late", 2, cpu="0")
    late = scene.run()["late"]
    assert isinstance(late, NotAdmissible)
    assert "only 1 out of 2" in late.message


def test_a_quota_over_which_a_queue_already_is_does_not_keep_out_pods_that_ask_for_none_of_it():
    scene = Scene(quota="4")
    scene.rack("r", 2)
    scene.submit("big", 4)
    scene.run()
    scene.queue("cq", {"tas": "2"})
    scene.submit("idle", 1, cpu="0")
    assert isinstance(scene.run()["idle"], Admissible)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints",
        ),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, "volumes.persistentVolumeClaim"),
        ({"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]}, "volumes.ephemeral"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}, "resourceClaims"),
        ({"schedulerName": "volcano"}, "schedulerName volcano"),
    ],
)
def test_refusal_names_pod_fields_that_only_kube_scheduler_evaluates(spec: dict[str, Any], field: str):
    scene = Scene()
    scene.rack("r", 2)
    message = get_refusal(judge(scene, build_pod_set(9, **spec)), REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert f"Not judged: {field}." in message


@pytest.mark.parametrize("field", ["topologySpreadConstraints", "resourceClaims"])
def test_admission_of_pods_with_unjudged_fields_names_them(field: str):
    """`topogate plan` and the event `Admitted` show these sentences."""
    scene = Scene()
    scene.rack("r", 2)
    spec: dict[str, Any] = {field: [{"name": "a", "topologyKey": RACK}]}
    found = judge(scene, build_pod_set(2, **spec))
    assert isinstance(found, Admissible)
    assert show_choices(found.choices).endswith(f"; not judged: {field}")


def spread_pods(count: int, key: str = HOSTNAME_LABEL) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "a"}}
    pod_set = build_pod_set(count, topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": key, "labelSelector": selector}])
    pod_set["template"].setdefault("metadata", {})["labels"] = {"app": "a"}
    return pod_set


@pytest.mark.parametrize(("count", "sizes", "unmet"), [(2, [1, 1], False), (3, [1, 2], True)])
def test_admission_meets_hard_spread_or_names_it(count: int, sizes: list[int], unmet: bool):
    """A rack with two nodes for two pods each."""
    scene = Scene()
    for i in range(2):
        scene.node(Node(f"n{i}", {RACK: "r", HOSTNAME_LABEL: f"n{i}"}, {"cpu": 2000, "pods": 10}))
    found = judge(scene, spread_pods(count))
    assert isinstance(found, Admissible)
    assert sorted(dict(found.placements[0][1].nodes).values()) == sizes
    named = (f"topologySpreadConstraints (2 pods in one {HOSTNAME_LABEL}, maxSkew is 1)",) if unmet else ()
    assert found.choices[0].unjudged == named


def test_hard_spread_keeps_pods_from_nodes_without_its_label():
    """kube-scheduler binds no pod to such a node."""
    scene = Scene()
    scene.rack("r", 2)
    message = get_refusal(judge(scene, spread_pods(2, "topology.kubernetes.io/zone")), REASON_TOPOLOGY_PLACEMENT_FAILED)
    assert "topology.kubernetes.io/zone Exists" in message


def test_admission_of_a_group_names_the_unjudged_fields_of_both_pod_sets():
    scene = Scene()
    scene.rack("r", 2)
    together = {"required": RACK, "podSetGroupName": "g"}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    leader = build_pod_set(1, "leader", topology=together, resourceClaims=claims)
    found = judge(scene, leader, build_pod_set(2, "worker", topology=together, schedulerName="volcano"))
    assert isinstance(found, Admissible)
    said = show_choices(found.choices)
    assert "resourceClaims" in said
    assert "schedulerName volcano" in said


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "settings"}}]},
        {"schedulerName": "default-scheduler"},
    ],
)
def test_refusal_does_not_name_pod_fields_that_exclude_no_node(spec: dict[str, Any]):
    scene = Scene()
    scene.rack("r", 2)
    assert "Not judged" not in get_refusal(judge(scene, build_pod_set(9, **spec)), REASON_TOPOLOGY_PLACEMENT_FAILED)
