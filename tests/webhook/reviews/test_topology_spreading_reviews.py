"""The annotation of topology spreading in the webhook: judged with the gate only, for jobs and Workloads, and where it has changed."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.gates import SPREADING
from core.names import PODSET_GROUP_NAME, PREFERRED_TOPOLOGY, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, TOPOLOGY_SPREADING
from tests.builders import build_pod_set_json, build_workload_json
from tests.queueing.spreading import RACK, ZONE, annotate, build_text, rule
from tests.webhook.asking import Webhook, get_causes

ON, OFF = Webhook(**{SPREADING: True}), Webhook()
GOOD, BAD = build_text(rule(ZONE, "0.5")), build_text(rule(ZONE, "2"))
OF_JOB = f"spec.template.metadata.annotations[{TOPOLOGY_SPREADING}]"
OF_WORKLOAD = f"spec.podSets[{{}}].template.metadata.annotations[{TOPOLOGY_SPREADING}]"
POD = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
Json = dict[str, Any]


def build_template(text: str | None, **notes: str | None) -> Json:
    annotations = {TOPOLOGY_SPREADING: text, REQUIRED_TOPOLOGY: ZONE, **notes}
    return {"metadata": {"annotations": {key: value for key, value in annotations.items() if value is not None}}, "spec": POD}


def build_job(text: str | None, **notes: str | None) -> Json:
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": build_template(text, **notes)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": build_metadata("j"), "spec": spec}


def build_metadata(name: str) -> Json:
    return {"name": name, "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}}


def build_jobset(*texts: str | None) -> Json:
    jobs = [
        {"name": f"r{i}", "replicas": 1, "template": {"spec": {"template": build_template(text, **{PODSET_GROUP_NAME: "g"})}}}
        for i, text in enumerate(texts)
    ]
    spec = {"suspend": True, "replicatedJobs": jobs}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": build_metadata("s"), "spec": spec}


def build_workload(*texts: str | None, required: str | None = ZONE, group: str | None = None) -> Json:
    topology = ({"required": required} if required else {"preferred": ZONE}) | ({"podSetGroupName": group} if group else {})
    pod_sets = [annotate(build_pod_set_json(f"p{i}", topology=topology), text) for i, text in enumerate(texts)]
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **build_workload_json("w", pod_sets)}


def list_fields(response: Json) -> list[str]:
    return [] if response["allowed"] else list(get_causes(response))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (GOOD, []),
        (BAD, [f"{OF_JOB}.rules[0].maxShareAllowingPlacement"]),
        ("", [OF_JOB]),
        ("{", [OF_JOB]),
        (
            build_text(rule(ZONE, "1"), rule(ZONE, "0")),
            [
                f"{OF_JOB}.rules[{i}].{key}"
                for i, key in [
                    (0, "maxShareAllowingPlacement"),
                    (1, "topologyKey"),
                    (1, "maxShareAllowingPlacement"),
                ]
            ],
        ),
    ],
)
def test_annotation_of_a_job_is_judged_with_the_gate_only(text: str, fields: list[str]):
    assert list_fields(ON.validate(build_job(text))) == fields
    off = OFF.validate(build_job(text))
    assert off["allowed"]
    assert not off.get("warnings")


@pytest.mark.parametrize("notes", [{REQUIRED_TOPOLOGY: None}, {REQUIRED_TOPOLOGY: None, PREFERRED_TOPOLOGY: ZONE}])
def test_annotation_of_a_job_without_a_required_level_is_forbidden(notes: Json):
    response = ON.validate(build_job(GOOD, **notes))
    assert list_fields(response) == [OF_JOB]
    assert response["status"]["details"]["causes"][0]["reason"] == "FieldValueForbidden"
    assert OFF.validate(build_job(GOOD, **notes))["allowed"]


def test_members_of_a_group_of_a_job_that_disagree_are_all_reported():
    fields = [f"spec.replicatedJobs[{i}].template.spec.template.metadata.annotations[{TOPOLOGY_SPREADING}]" for i in range(2)]
    assert list_fields(ON.validate(build_jobset(GOOD, None))) == fields
    assert list_fields(ON.validate(build_jobset(GOOD, build_text(rule(ZONE, "500m"))))) == []  # compared as parsed
    assert list_fields(OFF.validate(build_jobset(GOOD, None))) == []


def test_annotation_of_a_stored_job_is_judged_where_it_or_its_level_has_changed():
    def grow(job: Json) -> Json:
        return {**job, "spec": {**job["spec"], "parallelism": 2, "completions": 2}}

    assert ON.validate(grow(build_job(BAD)), build_job(BAD))["allowed"]
    assert not ON.validate(build_job(BAD), build_job(GOOD))["allowed"]
    assert not ON.validate(build_job(BAD, **{REQUIRED_TOPOLOGY: RACK}), build_job(BAD))["allowed"]
    assert ON.validate(build_job(None), build_job(BAD))["allowed"]


def test_annotation_of_a_workload_is_judged_at_its_pod_set():
    assert list_fields(ON.validate(build_workload(GOOD))) == []
    assert list_fields(ON.validate(build_workload(None, BAD))) == [f"{OF_WORKLOAD.format(1)}.rules[0].maxShareAllowingPlacement"]
    assert list_fields(ON.validate(build_workload(GOOD, required=None))) == [OF_WORKLOAD.format(0)]
    assert list_fields(ON.validate(build_workload("x", GOOD))) == [OF_WORKLOAD.format(0)]
    assert OFF.validate(build_workload("x", BAD, required=None))["allowed"]


def test_members_of_a_group_of_a_workload_that_deviate_are_reported():
    assert list_fields(ON.validate(build_workload(GOOD, None, group="g"))) == [OF_WORKLOAD.format(1)]
    assert list_fields(ON.validate(build_workload(None, GOOD, group="g"))) == [OF_WORKLOAD.format(1)]
    assert list_fields(ON.validate(build_workload(GOOD, GOOD, group="g"))) == []


def test_workload_that_was_invalid_may_change_otherwise():
    old = build_workload(BAD)
    assert ON.validate({**old, "spec": {**old["spec"], "priority": 5}}, old)["allowed"]
    mixed = build_workload(GOOD, None, group="g")
    assert ON.validate({**mixed, "spec": {**mixed["spec"], "priority": 5}}, mixed)["allowed"]
    assert not ON.validate(build_workload(BAD), build_workload(GOOD))["allowed"]


@pytest.mark.parametrize(
    "pod_sets", [None, 3, ["a", None], [{"template": 1}], [{"template": {"metadata": {"annotations": {TOPOLOGY_SPREADING: 7}}}}]]
)
def test_misshapen_workload_is_refused_by_its_shape(pod_sets: Any):
    workload = build_workload(GOOD)
    response = ON.validate({**workload, "spec": {**workload["spec"], "podSets": pod_sets}})
    assert isinstance(response["allowed"], bool)


def test_annotation_on_the_job_itself_draws_a_warning_that_names_the_template():
    job = build_job(None)
    job["metadata"]["annotations"] = {TOPOLOGY_SPREADING: GOOD}
    [warning] = ON.validate(job)["warnings"]
    assert warning.startswith(f"metadata.annotations[{TOPOLOGY_SPREADING}]")
    assert "spec.template" in warning
