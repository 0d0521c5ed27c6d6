"""Defaults and rules of our own objects, by what their users would read."""

from __future__ import annotations

from typing import Any

import pytest

from core.api.admission_review import MAX_CAUSES
from core.model.gates import GROUPED_SLICES, PARTIAL_SLICES
from core.names import PREEMPTION_CONFIG
from e2e import manifests
from tests.webhook.asking import Webhook, get_causes, hook

RACK = "cloud.provider.com/topology-rack"


def build_workload(*pod_sets: Any, reserved: bool = False) -> dict[str, Any]:
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}, "spec": {"podSets": list(pod_sets)}}
    condition = {"type": "QuotaReserved", "status": str(reserved)}
    return {**obj, "status": {"conditions": [condition]}}


def build_pod_set(name: str | None = "main", count: int = 4, requests: Any = None, **fields: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": requests or {"cpu": "1"}}}]
    return {**({"name": name} if name else {}), "count": count, "template": {"spec": {"containers": containers}}, **fields}


def queue(**flavors: Any) -> dict[str, Any]:
    return manifests.build_cluster_queue("q", flavors)


def build_flavor(**spec: Any) -> dict[str, Any]:
    made = manifests.build_flavor("f", spec.pop("labels", {"pool": "gpu"}), "default")
    return {**made, "spec": {**made["spec"], **spec}}


GOOD = {
    "Workload": build_workload(build_pod_set()),
    "Topology": manifests.build_topology("t", [RACK, "kubernetes.io/hostname"]),
    "ResourceFlavor": build_flavor(
        nodeTaints=[{"key": "a", "effect": "NoSchedule"}], tolerations=[{"operator": "Exists"}, {"key": "a", "operator": "Equal"}]
    ),
    "ClusterQueue": queue(a={"cpu": "1", "memory": "1.5Gi"}, b={"cpu": 0, "memory": "0"}),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_object_is_let_in_unchanged(kind: str):
    assert Webhook().ask(hook("mutate", kind), GOOD[kind]) == {"uid": "4f0c", "allowed": True}
    assert Webhook().validate(GOOD[kind]) == {"uid": "4f0c", "allowed": True}


# --- Workload -------------------------------------------------------------------------------------------


def test_a_lone_pod_set_without_name_is_main_and_others_are_left_alone():
    assert Webhook().mutate(build_workload(build_pod_set(None)))["spec"]["podSets"][0]["name"] == "main"
    assert Webhook().mutate(build_workload(build_pod_set(None), build_pod_set("b")))["spec"]["podSets"][0].get("name") is None


@pytest.mark.parametrize("amount", ["-1", "lots", "1Kii", "", [1], {"a": 1}, True, "9" * 10_000 + "x"])
def test_a_request_that_is_no_quantity_is_refused(amount: Any):
    found = get_causes(Webhook().validate(build_workload(build_pod_set(requests={"cpu": amount, "memory": "1Gi"}))))
    (field,) = found
    assert field == "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]"
    assert "a quantity " in found[field]
    assert len(found[field]) < 500


def test_requests_of_init_containers_limits_and_overhead_are_judged_too():
    wrong = build_pod_set()
    wrong["template"]["spec"] |= {"initContainers": [{"resources": {"limits": {"cpu": "x"}}}], "overhead": {"cpu": "y"}}
    assert list(get_causes(Webhook().validate(build_workload(wrong)))) == [
        "spec.podSets[0].template.spec.initContainers[0].resources.limits[cpu]",
        "spec.podSets[0].template.spec.overhead[cpu]",
    ]


@pytest.mark.parametrize(
    "request_",
    [
        {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 3},
        {"podsetSliceRequiredTopologyConstraints": [{"topology": RACK, "size": 3}]},
    ],
    ids=["size", "layers"],
)
def test_slices_that_do_not_divide_the_pods_are_refused(request_: dict[str, Any]):
    found = get_causes(Webhook().validate(build_workload(build_pod_set(count=4, topologyRequest=request_))))
    assert list(found) == ["spec.podSets[0].topologyRequest.podSetSliceSize"]
    assert all(message.startswith("3: ") and "4 pods" in message for message in found.values())
    assert Webhook().validate(build_workload(build_pod_set(count=6, topologyRequest=request_)))["allowed"]
    partial = Webhook(**{PARTIAL_SLICES: True})
    assert partial.validate(build_workload(build_pod_set(count=4, topologyRequest=request_)))["allowed"]
    for count, more in ((2, {}), (4, {"minCount": 2})):
        refused = get_causes(partial.validate(build_workload(build_pod_set(count=count, topologyRequest=request_) | more)))
        assert list(refused) == ["spec.podSets[0].topologyRequest.podSetSliceSize"]


@pytest.mark.parametrize("gates", [{}, {GROUPED_SLICES: True}])
def test_workload_with_slices_in_a_group_is_accepted(gates: dict[str, bool]):
    """Kueue's rule is one of jobs: a Workload that was made for one, with whatever gates, must be taken."""
    shared = {"required": "block", "podSetGroupName": "g"}
    sliced = {**shared, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}
    pod_sets = build_pod_set("leader", count=1, topologyRequest=shared), build_pod_set("workers", topologyRequest=sliced)
    assert Webhook(**gates).validate(build_workload(*pod_sets))["allowed"]


def test_two_pod_sets_of_one_name_are_refused():
    ((field, message),) = get_causes(Webhook().validate(build_workload(build_pod_set("a"), build_pod_set("a")))).items()
    assert field == "spec.podSets"
    assert message.startswith('"a": ')


def test_pod_sets_may_not_change_while_quota_is_reserved():
    old, changed = build_workload(build_pod_set(), reserved=True), build_workload(build_pod_set(count=5), reserved=True)
    assert list(get_causes(Webhook().validate(changed, old))) == ["spec.podSets"]
    assert Webhook().validate(build_workload(build_pod_set(count=5)), build_workload(build_pod_set()))["allowed"]


def test_a_workload_that_is_being_deleted_can_lose_its_finalizer_whatever_is_wrong():
    wrong = build_workload(build_pod_set(requests={"cpu": "lots"}))
    going = {
        **build_workload(build_pod_set(requests={"cpu": "more"})),
        "metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    assert not Webhook().validate(going | {"metadata": {"name": "w"}}, wrong)["allowed"]
    assert Webhook().validate(going, wrong)["allowed"]


# --- Topology, ResourceFlavor, ClusterQueue ---------------------------------------------------------------


def test_a_level_that_no_pod_set_could_ask_for_draws_a_warning():
    long = f"example.com/{'x' * 52}"
    response = Webhook().validate(manifests.build_topology("t", [RACK, long]))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"spec.levels[1].nodeLabel: '{long}' ")
    assert "63 characters" in warning


FLAVOR_MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "label name": ({"labels": {"no label": "a"}}, "spec.nodeLabels", '"no label": a node label name'),
    "label value": ({"labels": {"pool": "a/b"}}, "spec.nodeLabels[pool]", '"a/b": a label value'),
    "long value": ({"labels": {"pool": "x" * 64}}, "spec.nodeLabels[pool]", "at most 63"),
    "effect": ({"nodeTaints": [{"key": "a", "effect": "Never"}]}, "spec.nodeTaints[0].effect", '"Never": one of NoSchedule, PreferNoSch'),
    "no effect": (
        {"nodeTaints": [{"key": "a"}]},
        "spec.nodeTaints[0].effect",
        "one of NoSchedule, PreferNoSchedule, NoExecute is expected",
    ),
    "no key": ({"tolerations": [{"operator": "Equal"}]}, "spec.tolerations[0].operator", '"Equal": must be Exists'),
    "neither": ({"tolerations": [{"value": "x"}]}, "spec.tolerations[0].operator", "must be Exists where no key is given"),
}


@pytest.mark.parametrize("name", FLAVOR_MISTAKES)
def test_a_flavor_that_no_node_or_pod_could_have_is_refused(name: str):
    spec, field, message = FLAVOR_MISTAKES[name]
    found = get_causes(Webhook().validate(build_flavor(**spec)))
    assert list(found) == [field]
    assert message in found[field]


def test_all_mistakes_of_a_flavor_are_reported_at_once():
    wrong = build_flavor(labels={"no label": "a/b"}, nodeTaints=[{"effect": "x"}, {"effect": "y"}], tolerations=[{}])
    assert len(get_causes(Webhook().validate(wrong))) == 5


def test_a_resource_in_two_groups_and_a_flavor_in_two_groups_are_refused():
    one = queue(a={"cpu": 1})["spec"]["resourceGroups"][0]
    wrong = queue(a={"cpu": 1})
    wrong["spec"]["resourceGroups"] = [one, one]
    found = get_causes(Webhook().validate(wrong))
    assert {field: message.partition(": ")[0] for field, message in found.items()} == {
        "spec.resourceGroups[1].coveredResources": '"cpu"',
        "spec.resourceGroups[1].flavors[0].name": '"a"',
    }
    assert all("group 0" in message for message in found.values())


def test_a_flavor_has_a_quota_for_each_covered_resource_in_their_order():
    wrong = queue(a={"cpu": 1, "memory": 1}, b={"cpu": 1, "memory": 1})
    wrong["spec"]["resourceGroups"][0]["flavors"][1]["resources"].reverse()
    field = "spec.resourceGroups[0].flavors[1].resources"
    ((where, message),) = get_causes(Webhook().validate(wrong)).items()
    assert where == field
    assert message.startswith('"memory, cpu": ')
    assert message.endswith(": cpu, memory")
    wrong["spec"]["resourceGroups"][0]["flavors"][1]["resources"].pop()
    assert list(get_causes(Webhook().validate(wrong))) == [field]


def test_a_quota_is_a_quantity_of_at_least_0():
    found = get_causes(Webhook().validate(queue(a={"cpu": "-1", "memory": "x"})))
    path = "spec.resourceGroups[0].flavors[0].resources"
    assert {field: message.partition(": ")[0] for field, message in found.items()} == {
        f"{path}[0].nominalQuota[cpu]": '"-1"',
        f"{path}[1].nominalQuota[memory]": '"x"',
    }
    assert "at least 0" in found[f"{path}[0].nominalQuota[cpu]"]


@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort"])
@pytest.mark.parametrize(
    ("weight", "accepted"),
    [(1, None), ("0", None), ("1500m", None), ("-1", "at least 0 is"), (-2, "at least 0 is"), ("much", "such as 500m, 1 or 3 is")],
)
def test_a_weight_is_a_quantity_of_at_least_0(kind: str, weight: Any, accepted: str | None):
    made = {**queue(a={"cpu": "1"}), "kind": kind}
    made["spec"]["fairSharing"] = {"weight": weight}
    response = Webhook().validate(made)
    assert response["allowed"] == (accepted is None)
    if accepted is not None:
        (cause,) = response["status"]["details"]["causes"]
        assert cause["field"] == "spec.fairSharing.weight"
        assert f"a quantity {'of ' if 'least' in accepted else ''}{accepted} expected" in cause["message"]


NOTHING_SAID = {  # as the API server fills in what a ClusterQueue leaves out
    "preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "Never"}, "withinClusterQueue": "Never"},
    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
    "stopPolicy": "Hold",
}
NOT_SERVED: dict[str, dict[str, Any]] = {
    "admissionScope": {"admissionScope": {"admissionMode": "NoAdmissionFairSharing"}},
    "concurrentAdmissionPolicy": {"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}},
}


@pytest.mark.parametrize("field", NOT_SERVED)
def test_a_setting_of_a_queue_that_is_not_served_yet_draws_a_warning(field: str):
    made = queue(a={"cpu": 1})
    made["spec"] |= NOTHING_SAID | NOT_SERVED[field]
    response = Webhook().validate(made)
    assert response["allowed"]
    assert [warning.partition(" ")[0] for warning in response["warnings"]] == [f"spec.{field}"]
    assert "warnings" not in Webhook().validate(made, made), "once"


PREEMPTION_WARNING = (
    f"metadata.annotations[{PREEMPTION_CONFIG}] is stored but has no effect in this version of topogate: "
    "spec.preemption alone says what is preempted"
)


def test_preemption_config_of_a_queue_draws_a_warning_when_it_is_set():
    plain = queue(a={"cpu": 1})
    made = {**plain, "metadata": {**plain["metadata"], "annotations": {PREEMPTION_CONFIG: "p"}}}
    assert Webhook().validate(made)["warnings"] == [PREEMPTION_WARNING]
    assert Webhook().validate(made, plain)["warnings"] == [PREEMPTION_WARNING]
    assert "warnings" not in Webhook().validate(made, made), "once"
    assert "warnings" not in Webhook().validate(plain, made)


def test_annotation_of_a_queue_that_a_newer_rule_would_refuse_can_still_be_set():
    wrong = queue(a={"cpu": -1})
    assert not Webhook().validate(wrong)["allowed"]
    changed = {**wrong, "metadata": {**wrong["metadata"], "annotations": {PREEMPTION_CONFIG: "p"}}}
    assert Webhook().validate(changed, wrong) == {"uid": "4f0c", "allowed": True, "warnings": [PREEMPTION_WARNING]}


def test_effective_quotas_in_a_status_draw_a_warning():
    made = {**queue(a={"cpu": 1}), "status": {"effectiveQuotas": {"resourceGroups": []}}}
    (warning,) = Webhook().validate(made)["warnings"]
    assert warning.startswith("status.effectiveQuotas is stored but has no effect")
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "c"}, "spec": {}, "status": made["status"]}
    assert Webhook().validate(cohort)["warnings"] == [warning]


def test_local_queue_with_a_weight_draws_a_warning():
    made = manifests.build_local_queue("main", "team-a", "q")
    assert Webhook().validate(made) == {"uid": "4f0c", "allowed": True}
    assert Webhook().validate({**made, "spec": {}})["allowed"]
    del (without_spec := dict(made))["spec"]
    assert Webhook().validate(without_spec)["allowed"], "its CRD lets it lack a spec"
    made["spec"]["fairSharing"] = {"weight": 2}
    response = Webhook().validate(made)
    assert response["allowed"]
    assert [warning.partition(" ")[0] for warning in response["warnings"]] == ["spec.fairSharing"]


def check(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "c"}, "spec": spec}


def test_admission_check_of_multikueue_draws_a_warning():
    assert Webhook().validate(check(controllerName="kueue.x-k8s.io/provisioning-request")) == {"uid": "4f0c", "allowed": True}
    response = Webhook().validate(check(controllerName="kueue.x-k8s.io/multikueue"))
    assert response["allowed"]
    assert [warning.partition(":")[0] for warning in response["warnings"]] == ["spec.controllerName"]


def test_admission_check_with_a_delay_of_v1beta1_draws_a_warning():
    response = Webhook().validate(check(controllerName="example.com/budget", retryDelayMinutes=15))
    assert response["allowed"]
    assert [warning.partition(" ")[0] for warning in response["warnings"]] == ["spec.retryDelayMinutes"]


def test_defaults_of_the_api_server_cause_no_warning():
    made = queue(a={"cpu": 1})
    made["spec"] |= NOTHING_SAID
    assert Webhook().validate(made) == {"uid": "4f0c", "allowed": True}


@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort"])
def test_limits_of_borrowing_and_lending_are_amounts_too(kind: str):
    made = {**queue(a={"cpu": 1, "memory": 1}), "kind": kind}
    made["spec"]["cohortName" if kind == "ClusterQueue" else "parentName"] = "above"
    resources = made["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    resources[0] |= {"borrowingLimit": "-1"}
    resources[1] |= {"lendingLimit": "many"}
    response = Webhook().validate(made)
    path = "spec.resourceGroups[0].flavors[0].resources"
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [
        f"{path}[0].borrowingLimit[cpu]",
        f"{path}[1].lendingLimit[memory]",
    ]
    resources[0]["borrowingLimit"], resources[1]["lendingLimit"] = 3, "1Gi"
    assert Webhook().validate(made) == {"uid": "4f0c", "allowed": True}


def test_a_cohort_is_not_its_own_parent_and_borrows_only_from_one():
    made = {**queue(a={"cpu": 1}), "kind": "Cohort"}
    made["spec"]["parentName"] = made["metadata"]["name"]
    assert list(get_causes(Webhook().validate(made))) == ["spec.parentName"]
    del made["spec"]["parentName"]
    made["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = 1
    ((field, message),) = get_causes(Webhook().validate(made)).items()
    assert field == "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit"
    assert "parentName" in message


@pytest.mark.parametrize("odd", [7, "x", [], [7], {"borrowWithinCohort": 7}, {"withinClusterQueue": {}}])
def test_odd_settings_are_left_to_the_schema(odd: Any):
    made = queue(a={"cpu": 1})
    assert Webhook().validate({**made, "spec": {**made["spec"], "preemption": odd, "flavorFungibility": odd}})["allowed"]


def test_hundreds_of_mistakes_make_an_answer_that_the_api_server_takes():
    response = Webhook().validate(queue(**{f"f{i}": {"cpu": "-1"} for i in range(500)}))
    assert len(response["status"]["details"]["causes"]) == MAX_CAUSES
    assert "500 reasons" in response["status"]["message"]


@pytest.mark.parametrize("kind", GOOD)
def test_invalid_object_with_an_unchanged_spec_accepts_metadata_changes(kind: str):
    """A finalizer or a label must find its way onto an object that came before a rule did."""
    wrong = {**GOOD[kind], "spec": 3}
    assert not Webhook().validate(wrong)["allowed"]
    assert Webhook().validate({**wrong, "metadata": {"name": "x", "finalizers": ["a/b"]}}, wrong)["allowed"]


@pytest.mark.parametrize("kind", ["Cohort", "ClusterQueue", "ResourceFlavor", "Topology", "Workload"])
@pytest.mark.parametrize("metadata", [None, [], "x"])
def test_a_change_of_labels_of_an_object_stored_without_metadata_is_answered(kind: str, metadata: Any):
    good = GOOD.get(kind) or {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "c"}, "spec": {}}
    marked = {**good, "metadata": {**good["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "main"}}}
    assert Webhook().validate(marked, {**good, "metadata": metadata})["allowed"]
