"""Rules that a feature gate switches on: refused with the gate on, accepted with it off, and never for what was there before."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.gates import REJECT_FALSE_UNCONSTRAINED
from core.names import QUEUE_NAME_LABEL, SUSPENDING_PARENT, UNCONSTRAINED_TOPOLOGY
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
