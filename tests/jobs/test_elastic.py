"""The annotation elastic-job: what is accepted of it, and what a shrinking Workload may change."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.jobs.elastic_annotation import is_elastic
from core.jobs.kinds.job import Job
from core.jobs.objects import validate_workload
from core.names import ELASTIC_JOB, MIN_PARALLELISM, QUEUE_NAME_LABEL, QUOTA_RESERVED, SLICE_NAME
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json

FIELD = f"metadata.annotations[{ELASTIC_JOB}]"
Json = dict[str, Any]


def build_job(said: str | None = None, *, suspend: bool = True) -> Json:
    annotations = {ELASTIC_JOB: said} if said is not None else {}
    metadata = {"name": "j", "namespace": "ns", "labels": {QUEUE_NAME_LABEL: "main"}, "annotations": annotations}
    return {"metadata": metadata, "spec": {"suspend": suspend, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}}


def list_fields(rules: Any) -> list[str]:
    return [error.field for error in rules.errors]


@pytest.mark.parametrize(("said", "wrong"), [("true", False), ("false", False), (None, False), ("yes", True), ("", True), ("True", True)])
def test_it_is_true_or_false(said: str | None, wrong: bool):
    assert list_fields(Job().validate_create(build_job(said))) == ([FIELD] if wrong else [])
    assert is_elastic(build_job(said)) == (said == "true")


def test_it_is_settled_at_creation():
    assert list_fields(Job().validate_update(build_job("true"), build_job("true", suspend=False))) == []
    for one, other in (("true", "false"), ("true", None), (None, "true")):
        assert list_fields(Job().validate_update(build_job(one), build_job(other))) == [FIELD]


def test_an_elastic_job_is_not_admitted_in_part():
    for said, wrong in (("true", [f"metadata.annotations[{MIN_PARALLELISM}]"]), ("false", [])):
        partial = build_job(said)
        partial["metadata"]["annotations"][MIN_PARALLELISM] = "1"
        assert list_fields(Job().validate_create(partial)) == wrong


@pytest.mark.parametrize(
    ("elastic", "changed", "refused"),
    [
        (True, {"count": 2}, False),
        (True, {"count": 5}, True),
        (True, {"count": 2, "topologyRequest": {"required": "rack"}}, True),
        (False, {"count": 2}, True),
        (False, {}, False),
    ],
    ids=["shrinks", "grows", "asks for another place", "of no elastic job", "unchanged"],
)
def test_under_a_reservation_only_an_elastic_workload_may_shrink(elastic: bool, changed: Json, refused: bool):
    old = build_workload_json("w", [build_pod_set_json("main", 4)], conditions=[build_condition_json(QUOTA_RESERVED)])
    old["metadata"]["annotations"] = {SLICE_NAME: "w"} if elastic else {}
    new = deepcopy(old)
    new["spec"]["podSets"][0] |= changed
    assert list_fields(validate_workload(new, old)) == (["spec.podSets"] if refused else [])


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_resources_of_a_whole_pod_that_are_no_quantities_are_named(kind: str) -> None:
    workload = build_workload_json("w", [build_pod_set_json("main", 4)])
    workload["spec"]["podSets"][0]["template"]["spec"]["resources"] = {kind: {"cpu": "-1"}}
    assert list_fields(validate_workload(workload, None)) == [f"spec.podSets[0].template.spec.resources.{kind}[cpu]"]


def test_pod_set_stored_with_uneven_slices_is_not_judged_again_where_it_stays() -> None:
    pod_set = build_pod_set_json("main", 5)
    pod_set["topologyRequest"] = {"required": "rack", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    old = build_workload_json("w", [pod_set])
    new = deepcopy(old)
    new["spec"]["active"] = False
    field = "spec.podSets[0].topologyRequest.podSetSliceSize"
    assert list_fields(validate_workload(new, None)) == [field]
    assert list_fields(validate_workload(new, old)) == []
    new["spec"]["podSets"][0]["count"] = 7
    assert list_fields(validate_workload(new, old)) == [field]
