"""Annotations of a job itself, names of drafts, and the KEP's own multi-level annotation as it is written there."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.annotations import validate_own
from core.jobs.job import Job
from core.names import REQUIRED_TOPOLOGY, SLICE_CONSTRAINTS, WORKLOAD_PREFERRED_TOPOLOGY, WORKLOAD_REQUIRED_TOPOLOGY
from e2e.manifests import job
from tests.webhook.asking import Webhook

BLOCK, RACK = "cloud.provider.com/block", "cloud.provider.com/rack"
OF_THE_KEP = """[
  {"topology": "cloud.provider.com/aizone", "size": "64"},
  {"topology": "cloud.provider.com/block", "size": "32"},
  {"topology": "cloud.provider.com/rack", "size": "16"},
]
"""


def fields(annotations: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    return [error.field for error in validate_own(annotations, before or {}).errors]


@pytest.mark.parametrize("name", [WORKLOAD_REQUIRED_TOPOLOGY, WORKLOAD_PREFERRED_TOPOLOGY])
def test_a_level_for_all_pod_sets_is_the_name_of_a_label(name: str):
    assert fields({name: BLOCK}) == []
    assert fields({name: "auto mode"}) == [f"metadata.annotations[{name}]"]
    assert fields({name: 7}) == [f"metadata.annotations[{name}]"]
    assert fields({name: "auto mode"}, {name: "auto mode"}) == [], "what was there already stops no other change"


def test_required_and_preferred_exclude_each_other():
    both = {WORKLOAD_REQUIRED_TOPOLOGY: BLOCK, WORKLOAD_PREFERRED_TOPOLOGY: RACK}
    assert fields(both) == ["metadata.annotations"]
    assert fields(both, {WORKLOAD_REQUIRED_TOPOLOGY: BLOCK}) == ["metadata.annotations"]
    assert fields(both, both) == []


@pytest.mark.parametrize(
    ("draft", "today"),
    [
        ("kueue.x-k8s.io/require-topology", "kueue.x-k8s.io/podset-required-topology"),
        ("kueue.x-k8s.io/prefer-topology", "kueue.x-k8s.io/podset-preferred-topology"),
    ],
)
def test_names_of_drafts_draw_a_warning_with_todays(draft: str, today: str):
    annotated = job("j", "team-a", pods=2, annotations={draft: RACK})
    annotated["metadata"]["annotations"] = {draft: RACK}
    response = Webhook().validate(annotated)
    assert response["allowed"]
    told = [warning for warning in response["warnings"] if today in warning and draft in warning]
    assert [warning.partition("[")[0] for warning in told] == ["metadata.annotations", "spec.template.metadata.annotations"]


def test_the_multi_level_annotation_of_the_kep_is_taken_as_written():
    annotations = {REQUIRED_TOPOLOGY: "cloud.provider.com/datacenter", SLICE_CONSTRAINTS: OF_THE_KEP}
    asked = job("tas-example-job", "team-a", pods=128, annotations=annotations)
    assert Webhook().validate(asked)["allowed"]
    (pod_set,) = Job().pod_sets(asked)
    assert pod_set.topology_request is not None
    assert pod_set.topology_request["podsetSliceRequiredTopologyConstraints"] == [
        {"topology": "cloud.provider.com/aizone", "size": 64},
        {"topology": "cloud.provider.com/block", "size": 32},
        {"topology": "cloud.provider.com/rack", "size": 16},
    ]
