"""The label max-exec-time-seconds: what is accepted of it, on every kind, and while a job runs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs.contract import Defaults
from core.jobs.execution_time import MAX_SECONDS, parse_execution_time
from core.jobs.kinds.job import Job
from core.jobs.kinds.pod_kinds import POD_SETS
from core.jobs.kinds.registry import KINDS
from core.names import MAX_EXEC_TIME_LABEL, QUEUE_NAME_LABEL
from core.plan.workloads.desired_workload import build_workload

FIELD = f"metadata.labels[{MAX_EXEC_TIME_LABEL}]"
POD = {"containers": [{"name": "c"}]}
Json = dict[str, Any]


def build_job(seconds: str | None = None, *, suspend: bool = True) -> Json:
    labels = {QUEUE_NAME_LABEL: "main"} | ({MAX_EXEC_TIME_LABEL: seconds} if seconds is not None else {})
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": labels}
    return {"metadata": metadata, "spec": {"suspend": suspend, "template": {"metadata": {}, "spec": deepcopy(POD)}}}


def list_fields(rules: Any) -> list[str]:
    return [error.field for error in rules.errors]


@pytest.mark.parametrize("text", ["0", "-5", "1h", "", "1.5", "+3", "٣", " 3", "2147483648", "9" * 30])
def test_execution_time_that_is_no_positive_number_is_refused_and_ignored(text: str):
    errors = Job().validate_create(build_job(text)).errors
    assert [(error.field, error.value) for error in errors] == [(FIELD, text)]
    assert "1 to 2147483647" in errors[0].accepted
    assert parse_execution_time({MAX_EXEC_TIME_LABEL: text}) is None


@given(st.integers(1, MAX_SECONDS))
def test_a_number_is_that_of_the_workload(seconds: int):
    asked = build_job(str(seconds))
    assert list_fields(Job().validate_create(asked)) == []
    assert build_workload(Job(), asked, priority=0, priority_class=None)["spec"]["maximumExecutionTimeSeconds"] == seconds


def test_without_the_label_there_is_no_limit():
    assert "maximumExecutionTimeSeconds" not in build_workload(Job(), build_job(), priority=0, priority_class=None)["spec"]


@pytest.mark.parametrize("kind", [*KINDS, *POD_SETS], ids=lambda kind: kind.kind)
def test_every_kind_judges_it(kind: Any):
    asked = {"kind": kind.kind, "metadata": {"name": "x", "labels": {QUEUE_NAME_LABEL: "main", MAX_EXEC_TIME_LABEL: "soon"}}, "spec": {}}
    assert FIELD in list_fields(kind.validate_create(asked))


def test_a_running_job_keeps_its_time_and_a_waiting_one_may_change_it():
    assert list_fields(Job().validate_update(build_job("5"), build_job("6"))) == []
    assert list_fields(Job().validate_update(build_job("5"), build_job("no"))) == [FIELD]
    assert list_fields(Job().validate_update(build_job("no"), build_job("no"))) == [], "what is there already may be changed in other ways"
    (error,) = Job().validate_update(build_job("5", suspend=False), build_job("6", suspend=False)).errors
    assert error.field == FIELD
    assert "'5'" in error.accepted
    assert list_fields(Job().validate_update(build_job(suspend=False), build_job("6", suspend=False))) == [FIELD]
    assert list_fields(Job().validate_update(build_job("5", suspend=False), build_job("6"))) == [], "it is suspended with that"


@pytest.mark.parametrize("kind", POD_SETS, ids=lambda kind: kind.kind)
def test_execution_time_of_a_serving_kind_is_copied_to_its_pods(kind: Any):
    template = {"metadata": {}, "spec": POD}
    spec = {"template": template, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    labels = {QUEUE_NAME_LABEL: "main", MAX_EXEC_TIME_LABEL: "60"}
    changed = kind.default({"kind": kind.kind, "metadata": {"name": "x", "labels": labels}, "spec": spec}, Defaults())
    (role, *_) = kind.list_roles(changed)
    assert role.template["metadata"]["labels"][MAX_EXEC_TIME_LABEL] == "60"
