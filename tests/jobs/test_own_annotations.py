"""Annotations of a job itself, names of drafts, and the KEP's own multi-level annotation as it is written there."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.annotation_catalog import Places, warn_of_own
from core.jobs.annotations import validate_own
from core.jobs.kinds.job import Job
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.names import (
    ELASTIC_JOB,
    MADE_BY,
    PLACEMENT_PROFILE,
    PODGROUP_PLACED_BY,
    PODGROUP_TOPOLOGY,
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_SIZE,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.plan.pods.pod_workloads import build_pod_workload, build_workload_of_pods
from e2e.manifests import build_job
from tests.webhook.asking import Webhook, get_api

BLOCK, RACK = "cloud.provider.com/block", "cloud.provider.com/rack"
_RESIZABLE = ("Job", "RayCluster", "RayJob", "RayService")
_ONLY_RESIZABLE = "this annotation does nothing here; Job, RayCluster, RayJob and RayService are resized while they run"
OF_THE_KEP = """[
  {"topology": "cloud.provider.com/aizone", "size": "64"},
  {"topology": "cloud.provider.com/block", "size": "32"},
  {"topology": "cloud.provider.com/rack", "size": "16"},
]
"""


def list_fields(annotations: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    return [error.field for error in validate_own(annotations, before or {}).errors]


@pytest.mark.parametrize("name", [WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY])
def test_a_level_for_all_pod_sets_is_the_name_of_a_label(name: str):
    assert list_fields({name: BLOCK}) == []
    assert list_fields({name: "auto mode"}) == [f"metadata.annotations[{name}]"]
    assert list_fields({name: 7}) == [f"metadata.annotations[{name}]"]
    assert list_fields({name: "auto mode"}, {name: "auto mode"}) == [], "what was there already stops no other change"


@pytest.mark.parametrize("kind", sorted({kind.kind for kind in (*KINDS, *list_pod_kinds())}))
def test_elastic_annotation_draws_a_warning_unless_its_kind_can_be_resized(kind: str):
    drawn = list(warn_of_own({ELASTIC_JOB: "true"}, [], None if kind == "Pod" else Places(kind)))
    assert drawn == ([] if kind in _RESIZABLE else [f"metadata.annotations[{ELASTIC_JOB}]: {_ONLY_RESIZABLE}"])


def test_required_and_preferred_exclude_each_other():
    both = {WORKLOAD_REQUIRED_TOPOLOGY: BLOCK, WORKLOAD_PREFERRED_TOPOLOGY: RACK}
    assert list_fields(both) == ["metadata.annotations"]
    assert list_fields(both, {WORKLOAD_REQUIRED_TOPOLOGY: BLOCK}) == ["metadata.annotations"]
    assert list_fields(both, both) == []


@pytest.mark.parametrize(
    ("draft", "today"),
    [
        ("kueue.x-k8s.io/require-topology", "kueue.x-k8s.io/podset-required-topology"),
        ("kueue.x-k8s.io/prefer-topology", "kueue.x-k8s.io/podset-preferred-topology"),
    ],
)
def test_names_of_drafts_draw_a_warning_with_todays(draft: str, today: str):
    annotated = build_job("j", "team-a", pods=2, annotations={draft: RACK})
    annotated["metadata"]["annotations"] = {draft: RACK}
    response = Webhook().validate(annotated)
    assert response["allowed"]
    told = [warning for warning in response["warnings"] if today in warning and draft in warning]
    assert [warning.partition("[")[0] for warning in told] == ["metadata.annotations", "spec.template.metadata.annotations"]


def test_the_multi_level_annotation_of_the_kep_is_taken_as_written():
    annotations = {REQUIRED_TOPOLOGY: "cloud.provider.com/datacenter", SLICE_CONSTRAINTS: OF_THE_KEP}
    asked = build_job("tas-example-job", "team-a", pods=128, annotations=annotations)
    assert Webhook().validate(asked)["allowed"]
    (pod_set,) = Job().list_pod_sets(asked)
    assert pod_set.topology_request is not None
    assert pod_set.topology_request["podsetSliceRequiredTopologyConstraints"] == [
        {"topology": "cloud.provider.com/aizone", "size": 64},
        {"topology": "cloud.provider.com/block", "size": 32},
        {"topology": "cloud.provider.com/rack", "size": 16},
    ]


# --- annotations in the wrong place ---------------------------------------------------------------------


def of_kind(kind: str, spec: dict[str, Any], **notes: str) -> dict[str, Any]:
    group, version, _ = get_api(kind)
    metadata = {"name": "x", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}, "annotations": notes}
    return {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind, "metadata": metadata, "spec": spec}


POD_SPEC = {"containers": [{"name": "c", "image": "registry.example/c:1"}]}
TEMPLATE = {"spec": POD_SPEC}
REPLICATED = {"name": "w", "template": {"spec": {"template": TEMPLATE}}}
PLACES = [
    ("Job", {"template": TEMPLATE}, "pod template (spec.template.metadata.annotations)"),
    ("Deployment", {"template": TEMPLATE}, "pod template (spec.template.metadata.annotations)"),
    ("StatefulSet", {"template": TEMPLATE}, "pod template (spec.template.metadata.annotations)"),
    (
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}},
        "pod templates (spec.leaderWorkerTemplate.leaderTemplate.metadata.annotations and 1 more)",
    ),
    (
        "JobSet",
        {"replicatedJobs": [REPLICATED, {**REPLICATED, "name": "v"}]},
        "pod templates (spec.replicatedJobs[0].template.spec.template.metadata.annotations and 1 more)",
    ),
    (
        "PyTorchJob",
        {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}}},
        "pod template (spec.pytorchReplicaSpecs[Master].template.metadata.annotations)",
    ),
    ("SparkApplication", {"driver": {}, "executor": {}}, "pod templates (spec.driver.annotations and 1 more)"),
    (
        "TrainJob",
        {"runtimeRef": {"name": "torch"}},
        "pod template (spec.template.spec.replicatedJobs[i].template.spec.template.metadata.annotations of its runtime)",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "place"), PLACES, ids=[kind for kind, *_ in PLACES])
def test_an_annotation_of_pods_on_the_job_itself_draws_a_warning_with_its_place(kind: str, spec: dict[str, Any], place: str):
    response = Webhook().validate(of_kind(kind, spec, **{REQUIRED_TOPOLOGY: RACK}))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"metadata.annotations[{REQUIRED_TOPOLOGY}]: ")
    assert warning.endswith(place)
    assert f"the {kind} itself" in warning


@pytest.mark.parametrize("kind", [kind.kind for kind in (*KINDS, *list_pod_kinds()) if kind.kind != "Pod"])
@pytest.mark.parametrize("name", [PREFERRED_TOPOLOGY, SLICE_SIZE, SLICE_CONSTRAINTS, PODSET_GROUP_NAME])
def test_of_all_kinds_and_of_all_such_annotations(kind: str, name: str):
    """Also where the rest of the object is too odd for its templates to be found."""
    webhook = Webhook()
    for spec in ({"template": TEMPLATE}, {"template": 7, "replicatedJobs": 7, "components": 7}):
        response = webhook.validate(of_kind(kind, spec, **{name: "8"}))
        assert not response["allowed"] or any(f"annotations[{name}]" in warning for warning in response["warnings"])


def test_misplaced_annotation_is_reported_when_added_and_not_on_later_changes():
    before = of_kind("Job", {"template": TEMPLATE})
    after = of_kind("Job", {"template": TEMPLATE}, **{REQUIRED_TOPOLOGY: RACK})
    assert len(Webhook().validate(after, before)["warnings"]) == 1, "kubectl annotate job x ..."
    assert "warnings" not in Webhook().validate(after, after)


def test_a_misspelt_one_there_is_not_known():
    (told,) = Webhook().validate(of_kind("Job", {"template": TEMPLATE}, **{"kueue.x-k8s.io/podset-requird-topology": RACK}))["warnings"]
    assert f"{REQUIRED_TOPOLOGY}, on the pod template" in told


@pytest.mark.parametrize("name", [WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY, PLACEMENT_PROFILE])
@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_an_annotation_of_the_job_on_its_template_draws_a_warning(kind: str, name: str):
    value = "compact" if name == PLACEMENT_PROFILE else RACK
    response = Webhook().validate(of_kind(kind, {"template": {"metadata": {"annotations": {name: value}}, **TEMPLATE}}))
    assert [warning.partition(": ")[0] for warning in response["warnings"]] == [f"spec.template.metadata.annotations[{name}]"]


def test_pods_of_a_deployment_are_workloads_by_themselves_so_that_all_of_it_belongs_on_its_template():
    notes = {WORKLOAD_PREFERRED_TOPOLOGY: RACK, PLACEMENT_PROFILE: "compact"}
    templated = of_kind("Deployment", {"template": {"metadata": {"annotations": notes}, **TEMPLATE}})
    assert Webhook().validate(templated) == {"uid": "4f0c", "allowed": True}
    told = Webhook().validate(of_kind("Deployment", {"template": TEMPLATE}, **notes))["warnings"]
    metadata: dict[str, Any] = {"name": "p", "uid": "u", "labels": {QUEUE_NAME_LABEL: "main"}, "annotations": notes}
    pod = {"metadata": metadata, "spec": POD_SPEC}
    wanted = build_pod_workload(pod, Pod())
    workload = build_workload_of_pods(wanted, "team-a", priority=0, priority_class=None)
    assert workload["metadata"]["annotations"] == notes, "they are read from there"
    metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r-uid", "controller": True}]
    assert build_pod_workload(pod, Pod()).marks == {MADE_BY: "r-uid"}
    place = "has no effect on the Deployment itself: set it on the pod template (spec.template.metadata.annotations)"
    assert told == [f"metadata.annotations[{name}]: {place}" for name in sorted(notes)]


def test_a_pod_is_its_own_template():
    notes = {REQUIRED_TOPOLOGY: RACK, WORKLOAD_REQUIRED_TOPOLOGY: RACK, PLACEMENT_PROFILE: "compact"}
    response = Webhook().validate(of_kind("Pod", POD_SPEC, **notes))
    assert response == {"uid": "4f0c", "allowed": True}


@pytest.mark.parametrize(
    ("queue", "accepted"), [("main", True), ("a.b-c", True), ("", False), ("Main", False), ("a_b", False), ("-a", False)]
)
@pytest.mark.parametrize("kind", [*(kind.kind for kind in KINDS), *(kind.kind for kind in list_pod_kinds())])
def test_queue_name_that_is_no_name_is_refused(kind: str, queue: str, accepted: bool):
    """At creation and by a change; one that was stored before stays until it is changed."""
    group, version, _ = get_api(kind)
    obj = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind, "metadata": {"name": "a", "labels": {QUEUE_NAME_LABEL: queue}}}
    obj["spec"] = {"template": {}} if kind in ("Job", "StatefulSet", "Deployment") else {}
    field = f"metadata.labels[{QUEUE_NAME_LABEL}]"

    def complains(old: dict[str, Any] | None) -> bool:
        response = Webhook().validate(obj, old)
        return not response["allowed"] and any(cause["field"] == field for cause in response["status"]["details"]["causes"])

    assert complains(None) != accepted
    assert not complains(obj)
    before = {**obj, "metadata": {"name": "a", "labels": {QUEUE_NAME_LABEL: "before"}}}
    assert accepted or complains(before)


def test_placer_that_is_added_to_a_grouped_job_draws_no_warning():
    """Found by a reader: only what had changed was looked at, so that the annotation beside it was missed."""
    group = {PODGROUP_TOPOLOGY: RACK}
    rules = validate_own({**group, PODGROUP_PLACED_BY: "topogate"}, group, Places("Job"))
    assert not [warning for warning in rules.warnings if PODGROUP_PLACED_BY in warning]
    (warning,) = validate_own({PODGROUP_PLACED_BY: "topogate"}, {}, Places("Job")).warnings
    assert f"does nothing without {PODGROUP_TOPOLOGY}" in warning
