"""Rules that a feature gate switches on: refused with the gate on, accepted with it off, and never for what was there before."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.gates import REJECT_FALSE_UNCONSTRAINED, REPLACE_MULTIPLE
from core.names import LOST_NODES_THRESHOLD, QUEUE_NAME_LABEL, SUSPENDING_PARENT, UNCONSTRAINED_TOPOLOGY
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
