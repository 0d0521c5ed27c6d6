"""A Job that can do with fewer pods: what it says, what is refused, what is written when it starts and stops."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.jobs.annotation_catalog import Places
from core.jobs.annotations import validate_own
from core.jobs.contract import PodSetStart
from core.jobs.kinds.job import Job
from core.names import MIN_PARALLELISM, PODSET_LABEL, QUEUE_NAME_LABEL, UNCONSTRAINED_TOPOLOGY, WORKLOAD_ANNOTATION
from core.plan.workloads.desired_workload import build_workload, has_other_counts, has_other_pod_sets

KIND = Job()
FIELD = f"metadata.annotations[{MIN_PARALLELISM}]"


def build_job(least: Any = None, *, parallelism: int | None = 6, completions: int | None = None, suspend: bool = True) -> dict[str, Any]:
    spec: dict[str, Any] = {"suspend": suspend, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}
    spec |= {"parallelism": parallelism} if parallelism is not None else {}
    spec |= {"completions": completions} if completions is not None else {}
    annotations = {} if least is None else {MIN_PARALLELISM: least}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "lq"}, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def start_job(least: str | None, count: int | None) -> dict[str, Any]:
    start = PodSetStart("main", False, labels={PODSET_LABEL: "main"}, annotations={WORKLOAD_ANNOTATION: "w"}, count=count)
    return KIND.start(build_job(least, completions=12), [start])


@pytest.mark.parametrize(
    ("given", "least"),
    [
        (build_job("2"), 2),
        (build_job("6"), 6),
        (build_job(), None),
        (build_job("7"), None),
        (build_job("0"), None),
        (build_job("two"), None),
        (build_job(3), None),
    ],
)
def test_the_pod_set_has_a_least_where_the_annotation_is_right(given: dict[str, Any], least: int | None):
    (pod_set,) = KIND.list_pod_sets(given)
    assert pod_set.min_count == pod_set.to_wire().get("minCount") == least


@pytest.mark.parametrize("least", ["0", "-1", "7", "two", "", "1.5", "9999999999", "²"])
def test_minimum_parallelism_that_is_no_pod_count_is_refused_with_accepted_values(least: str):
    (error,) = KIND.validate_create(build_job(least)).errors
    assert (error.field, error.value) == (FIELD, least)
    assert "from 1 to 6" in error.accepted


def test_all_mistakes_of_a_job_with_minimum_parallelism_are_reported_at_once():
    wrong = build_job("9")
    wrong["spec"]["template"]["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "no label"}
    assert {error.field for error in KIND.validate_create(wrong).errors} == {
        FIELD,
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]",
    }


def test_fewer_completions_than_parallelism_bound_it():
    assert [error.field for error in KIND.validate_create(build_job("4", completions=3)).errors] == [FIELD]
    assert KIND.validate_create(build_job("3", completions=3)).errors == ()


def test_a_suspended_job_may_change_it_and_a_running_one_may_not():
    assert KIND.validate_update(build_job("2"), build_job("3")).errors == ()
    assert [e.field for e in KIND.validate_update(build_job("2"), build_job("8")).errors] == [FIELD]
    assert [e.field for e in KIND.validate_update(build_job("2"), build_job("5", parallelism=3)).errors] == [FIELD], "once"
    before, after = start_job("2", 4), start_job("2", 4)
    after["metadata"]["annotations"][MIN_PARALLELISM] = "3"
    (error,) = KIND.validate_update(before, after).errors
    assert error.field == FIELD
    assert "'2'" in error.accepted


def test_it_starts_with_as_many_pods_as_were_admitted_and_gets_its_own_number_back():
    original = build_job("2", completions=12)
    workload = build_workload(KIND, original, priority=0, priority_class=None)
    started = start_job("2", 4)
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (4, 12)
    assert KIND.are_pods_ready({**started, "status": {"ready": 4}})
    stopped = KIND.suspend(KIND.restore(started, workload["spec"]["podSets"]))
    assert (stopped["spec"]["parallelism"], stopped["spec"]["completions"]) == (6, 12)
    assert not has_other_pod_sets(KIND.list_pod_sets(stopped), workload)


def test_a_job_that_needs_all_its_pods_keeps_its_parallelism_as_it_is():
    original = build_job(parallelism=6, completions=3)
    workload = build_workload(KIND, original, priority=0, priority_class=None)
    started = KIND.start(original, [PodSetStart("main", False)])
    assert started["spec"]["parallelism"] == 6
    assert KIND.restore(started, workload["spec"]["podSets"])["spec"]["parallelism"] == 6


def test_job_that_runs_with_its_admitted_count_is_not_changed():
    workload = build_workload(KIND, build_job("2", completions=12), priority=0, priority_class=None)
    admitted = deepcopy(workload) | {"status": {"admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 4}]}}}
    assert not has_other_counts(KIND.list_pod_sets(start_job("2", 4)), admitted)
    assert has_other_counts(KIND.list_pod_sets(start_job("2", 5)), admitted)
    assert has_other_counts(KIND.list_pod_sets(start_job("2", 4)), workload)


def list_warnings(job: dict[str, Any], kind: str = "Job") -> list[str]:
    metadata = job["metadata"]
    own = validate_own(metadata["annotations"], {}, Places(kind, ["spec.template"]), metadata["labels"], {})
    return [*own.warnings, *KIND.validate_create(job).warnings]


def test_in_another_place_or_misspelt_it_draws_a_warning():
    assert list_warnings(build_job("2")) == []
    on_template = build_job()
    on_template["spec"]["template"]["metadata"]["annotations"] = {MIN_PARALLELISM: "2"}
    path = f"spec.template.metadata.annotations[{MIN_PARALLELISM}]"
    assert [warning.partition(": ")[0] for warning in list_warnings(on_template)] == [path]
    (said,) = list_warnings(build_job("2"), "JobSet")
    assert "batch/v1 Job" in said
    misspelt = build_job()
    misspelt["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-paralelism": "2"}
    (said,) = list_warnings(misspelt)
    assert said.endswith(f" {MIN_PARALLELISM}?")


def test_readmitted_job_with_succeeded_pods_is_not_resized():
    whole = build_job(parallelism=4, completions=4)
    workload = build_workload(KIND, whole, priority=0, priority_class=None)
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 1}]}
    again = deepcopy(workload) | {"status": {"reclaimablePods": [{"name": "main", "count": 3}], "admission": admission}}
    assert not has_other_counts(KIND.list_pod_sets(whole), again)
    assert has_other_counts(KIND.list_pod_sets(build_job(parallelism=1, completions=4)), again)


def test_completions_follow_parallelism_if_requested_and_are_restored():
    """Former defect: with 4 of 8 pods the ranks 4 to 7 never ran beside 0 to 3."""
    spec = {"parallelism": 8, "completions": 8, "completionMode": "Indexed", "suspend": True, "template": {"spec": {"containers": []}}}
    notes = {"kueue.x-k8s.io/job-completions-equal-parallelism": "true", "kueue.x-k8s.io/job-min-parallelism": "2"}
    job = {"metadata": {"name": "j", "annotations": notes}, "spec": spec}
    started = Job().start(job, [PodSetStart("main", True, count=4)])
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (4, 4)
    restored = Job().restore(started, [{"name": "main", "count": 8, "minCount": 2, "template": {"spec": {"containers": []}}}])
    assert (restored["spec"]["parallelism"], restored["spec"]["completions"]) == (8, 8)


@pytest.mark.parametrize(
    ("text", "more", "fields"),
    [
        ("true", {}, 0),
        ("false", {"completions": 9}, 0),
        ("perhaps", {}, 1),
        ("true", {"completions": 9}, 1),
        ("true", {"completionMode": "NonIndexed"}, 1),
    ],
)
def test_equal_completions_need_an_indexed_job_that_has_them(text: str, more: dict[str, Any], fields: int):
    spec = {"parallelism": 8, "completions": 8, "completionMode": "Indexed", "template": {"spec": {"containers": []}}} | more
    notes = {"kueue.x-k8s.io/job-completions-equal-parallelism": text}
    errors = list(Job().validate_kind({"metadata": {"name": "j", "annotations": notes}, "spec": spec}))
    assert len(errors) == fields


@pytest.mark.parametrize(("text", "is_kept"), [("false", True), ("0", True), ("other", False)])
def test_manifest_with_false_unconstrained_applied_again_is_completed(text: str, is_kept: bool):
    """It was refused: the start writes `true` there."""
    template = {"metadata": {"annotations": {UNCONSTRAINED_TOPOLOGY: text}}, "spec": {"containers": []}}
    spec = {"parallelism": 2, "suspend": True, "template": template}
    manifest = {"metadata": {"name": "j", "labels": {QUEUE_NAME_LABEL: "main"}}, "spec": spec}
    start = PodSetStart("main", True, annotations={WORKLOAD_ANNOTATION: "w", UNCONSTRAINED_TOPOLOGY: "true"})
    running = Job().start(deepcopy(manifest), [start])
    merged = deepcopy(running["spec"]["template"])
    merged["metadata"]["annotations"][UNCONSTRAINED_TOPOLOGY] = text
    for given in (template, merged):
        stored = Job().default_change(running, {**running, "spec": {**running["spec"], "template": given}})
        assert (stored == running) == is_kept
        assert bool(Job().validate_update(running, stored).errors) != is_kept


@pytest.mark.parametrize("has_topology", [True, False])
def test_manifest_applied_again_keeps_reduced_parallelism(has_topology: bool):
    template: dict[str, Any] = {"spec": {"containers": []}}
    notes = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    manifest = {"metadata": {"name": "j", "annotations": notes}, "spec": {"parallelism": 8, "suspend": True, "template": template}}
    running = Job().start(deepcopy(manifest), [PodSetStart("main", has_topology, count=4, annotations={WORKLOAD_ANNOTATION: "w"})])
    applied = deepcopy(running)
    applied["spec"]["parallelism"] = 8
    assert Job().default_change(running, applied)["spec"]["parallelism"] == 4
