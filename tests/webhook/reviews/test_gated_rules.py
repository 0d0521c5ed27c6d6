"""Rules that a feature gate switches on: refused with the gate on, accepted with it off, and never for what was there before."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.kinds.job import Job
from core.model.gates import REJECT_FALSE_UNCONSTRAINED, REPLACE_MULTIPLE, WORKLOAD_PODS_READY
from core.names import LOST_NODES_THRESHOLD, QUEUE_NAME_LABEL, SUSPENDING_PARENT, UNCONSTRAINED_TOPOLOGY, WAIT_FOR_PODS_READY
from core.plan.workloads.desired_workload import build_workload, find_changed_annotations
from tests.builders import build_pod_set_json, build_workload_json
from tests.webhook.asking import Webhook, get_causes

FIELD = f"metadata.annotations[{UNCONSTRAINED_TOPOLOGY}]"
POD = {"containers": [{"name": "c", "image": "i"}]}


def build_job(value: str | None) -> dict[str, Any]:
    notes = {} if value is None else {UNCONSTRAINED_TOPOLOGY: value}
    template = {"metadata": {"annotations": notes}, "spec": {**POD, "restartPolicy": "Never"}}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template}
    metadata = {"name": "j", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def build_pod(**notes: str) -> dict[str, Any]:
    annotations = {UNCONSTRAINED_TOPOLOGY: "false", **notes}
    metadata = {"name": "p", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD}


@pytest.mark.parametrize(
    ("value", "is_on", "refused"),
    [("false", True, True), ("F", True, True), ("0", True, True), ("true", True, False), (None, True, False), ("false", False, False)],
)
def test_false_as_unconstrained_is_refused_only_with_the_gate(value: str | None, is_on: bool, refused: bool):
    response = Webhook(**{REJECT_FALSE_UNCONSTRAINED: is_on}).validate(build_job(value))
    assert response["allowed"] is not refused
    if refused:
        assert list(get_causes(response)) == [f"spec.template.{FIELD}"]


def test_false_that_a_stored_job_has_already_does_not_refuse_its_change():
    webhook, old = Webhook(**{REJECT_FALSE_UNCONSTRAINED: True}), build_job("false")
    assert webhook.validate({**old, "spec": {**old["spec"], "parallelism": 2}}, old)["allowed"]
    assert not webhook.validate(old, build_job("true"))["allowed"]


def test_false_of_a_pod_is_refused_but_not_of_one_that_its_parent_made():
    webhook = Webhook(**{REJECT_FALSE_UNCONSTRAINED: True})
    assert list(get_causes(webhook.validate(build_pod()))) == [FIELD]
    assert webhook.validate(build_pod(**{SUSPENDING_PARENT: "statefulset"}))["allowed"]


# --- the threshold of lost nodes --------------------------------------------------------------------------------

THRESHOLD = f"metadata.annotations[{LOST_NODES_THRESHOLD}]"


def with_threshold(obj: dict[str, Any], value: str | None) -> dict[str, Any]:
    notes = {} if value is None else {LOST_NODES_THRESHOLD: value}
    return {**obj, "metadata": {**obj["metadata"], "annotations": notes}}


@pytest.mark.parametrize("kind", ["Job", "Workload"])
@pytest.mark.parametrize(
    ("value", "before", "is_on", "refused"),
    [
        ("1", None, True, False),
        ("8", None, True, False),
        ("9", None, True, True),
        ("9", None, False, False),
        ("9", "9", True, False),
        ("0", "9", True, True),
        (None, "9", True, False),
        ("1", "8", True, False),
    ],
)
def test_threshold_of_lost_nodes_is_judged_with_the_gate(kind: str, value: str | None, before: str | None, is_on: bool, refused: bool):
    obj = build_job(None) if kind == "Job" else build_workload_json("w", [build_pod_set_json()])
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj}
    webhook = Webhook(**{REPLACE_MULTIPLE: is_on})
    response = webhook.validate(with_threshold(obj, value), None if before is None else with_threshold(obj, before))
    assert response["allowed"] is not refused
    if refused:
        assert get_causes(response) == {THRESHOLD: f'"{value}": must be an integer between 1 and 8'}


# --- times of waitForPodsReady ----------------------------------------------------------------------------------

TIMES = f"metadata.annotations[{WAIT_FOR_PODS_READY}]"
ON = Webhook(**{WORKLOAD_PODS_READY: True})


def with_times(obj: dict[str, Any], text: str | None, *, suspend: bool = True) -> dict[str, Any]:
    notes = {} if text is None else {WAIT_FOR_PODS_READY: text}
    spec = {**obj["spec"], "suspend": suspend} if obj["kind"] == "Job" else obj["spec"]
    return {**obj, "metadata": {**obj["metadata"], "annotations": notes}, "spec": spec}


def test_times_of_pods_are_judged_only_with_the_gate():
    for text in ('{"timeoutSeconds": 0}', "30", '{"timeoutSeconds": 7201}'):
        job = with_times(build_job(None), text)
        assert list(get_causes(ON.validate(job))) == [TIMES]
        assert Webhook().validate(job)["allowed"]
    assert ON.validate(with_times(build_job(None), '{"timeoutSeconds": 7200}'))["allowed"]


@pytest.mark.parametrize(("suspend", "refused"), [(True, False), (False, True)])
def test_times_of_pods_are_kept_while_the_job_runs(suspend: bool, refused: bool):
    old, new = (with_times(build_job(None), f'{{"timeoutSeconds": {seconds}}}', suspend=suspend) for seconds in (30, 31))
    assert ON.validate(new, old)["allowed"] is not refused
    assert ON.validate(with_times(build_job(None), None, suspend=suspend), old)["allowed"] is not refused
    assert Webhook().validate(new, old)["allowed"]


def test_times_of_a_deployment_are_judged_on_its_template():
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {WAIT_FOR_PODS_READY: "30"}}, "spec": POD}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": "d", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "main"}}
    response = ON.validate({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    assert list(get_causes(response)) == [f"spec.template.{TIMES}"]


def test_asking_annotations_of_a_job_are_copied_to_its_workload_and_kept_in_step():
    job = with_times(build_job(None), "x")
    job["metadata"] |= {"uid": "u", "annotations": {WAIT_FOR_PODS_READY: "x", LOST_NODES_THRESHOLD: "2", "other": "y"}}
    workload = build_workload(Job(), job, priority=0, priority_class=None)
    assert workload["metadata"]["annotations"] == {WAIT_FOR_PODS_READY: "x", LOST_NODES_THRESHOLD: "2"}
    assert find_changed_annotations({WAIT_FOR_PODS_READY: "z"}, workload) == {WAIT_FOR_PODS_READY: "z", LOST_NODES_THRESHOLD: None}
