"""batch/v1 Job: defaults touch only what they must, a start and its undoing are each other's inverse."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs.contract import Defaults, PodSetStart
from core.jobs.kinds.job import Job
from core.names import PODSET_LABEL, QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY, TOPOLOGY_GATE, TRACEPARENT_ANNOTATION, WORKLOAD_ANNOTATION
from core.plan.steps.merge import merge_patch
from core.plan.workloads.desired_workload import build_workload, build_workload_name, has_other_pod_sets
from webhook.jsonpatch import diff

KIND = Job()
KEYS = st.sampled_from(["a", "b", "cloud.com/x"])
STRINGS = st.dictionaries(KEYS, st.sampled_from(["1", "2"]), max_size=2)
GATE = {"name": TOPOLOGY_GATE}


def merge(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strip_empty(value: Any) -> Any:
    """As the API server stores it: empty maps and lists are absent."""
    if not isinstance(value, dict):
        return value
    return {key: inner for key, item in value.items() if (inner := strip_empty(item)) not in ({}, [])}


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    annotations = draw(STRINGS) | ({REQUIRED_TOPOLOGY: "rack"} if draw(st.booleans()) else {})
    spec: dict[str, Any] = {"containers": [{"name": "c"}], "nodeSelector": draw(STRINGS)}
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": draw(KEYS), "operator": "Exists"}]
    if draw(st.booleans()):
        spec["schedulingGates"] = [{"name": "example.com/own"}]
    template = {"metadata": {"labels": draw(STRINGS) | {"job-name": "j"}, "annotations": annotations}, "spec": spec}
    labels = {QUEUE_NAME_LABEL: "lq"} if draw(st.booleans()) else {}
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "labels": labels | draw(STRINGS)},
        "spec": {"parallelism": draw(st.integers(0, 4)), "suspend": draw(st.booleans()), "template": template},
    }


@given(jobs(), st.sampled_from([None, "default"]), st.sampled_from([None, "00-trace-span-01"]))
def test_defaulting_of_a_job_is_idempotent_and_changes_only_required_fields(job: dict[str, Any], queue: str | None, trace: str | None):
    before = deepcopy(job)
    defaults = Defaults(queue, trace)
    once = KIND.default(job, defaults)
    assert job == before
    assert KIND.default(once, defaults) == once
    touched = {operation["path"] for operation in diff(job, once)}
    if QUEUE_NAME_LABEL not in job["metadata"]["labels"] and queue is None:
        assert touched == set()
        return
    assert touched <= {
        f"/metadata/labels/{QUEUE_NAME_LABEL.replace('/', '~1')}",
        "/metadata/annotations",
        "/spec/suspend",
        "/spec/template/spec/schedulingGates",
    }
    assert once["spec"]["suspend"] is True
    assert once["metadata"].get("annotations", {}).get(TRACEPARENT_ANNOTATION) == trace
    assert GATE in once["spec"]["template"]["spec"]["schedulingGates"]


@given(jobs(), st.booleans(), STRINGS)
def test_restoring_undoes_a_start(job: dict[str, Any], gated: bool, selector: dict[str, str]):
    job = KIND.default(job | {"metadata": job["metadata"] | {"labels": {QUEUE_NAME_LABEL: "lq"}}}, Defaults())
    job["spec"]["template"]["spec"]["nodeSelector"] = {
        k: v for k, v in job["spec"]["template"]["spec"]["nodeSelector"].items() if k not in selector
    }
    workload = build_workload(KIND, job, priority=0, priority_class=None)
    tolerations = ({"key": "gpu", "operator": "Exists"},)
    start = PodSetStart("main", gated, selector, tolerations, {PODSET_LABEL: "main"}, {WORKLOAD_ANNOTATION: "w"})
    running = KIND.start(job, [start])
    template = running["spec"]["template"]
    assert not KIND.is_suspended(running)
    assert KIND.is_started(running)
    assert (GATE in template["spec"].get("schedulingGates", [])) == gated
    assert selector.items() <= template["spec"].get("nodeSelector", {}).items()
    assert tolerations[0] in template["spec"]["tolerations"]
    stopped = KIND.suspend(KIND.restore(running, workload["spec"]["podSets"]))
    assert strip_empty(stopped) == strip_empty(job)
    assert merge(running, merge_patch(running, stopped)) == stopped
    assert not KIND.is_started(stopped)


@given(jobs())
def test_a_workload_is_that_of_its_job_until_the_job_changes(job: dict[str, Any]):
    job["metadata"]["labels"][QUEUE_NAME_LABEL] = "lq"
    workload = build_workload(KIND, job, priority=3, priority_class=None)
    assert not has_other_pod_sets(KIND.list_pod_sets(job), workload)
    changed = deepcopy(job)
    changed["spec"]["parallelism"] += 1
    assert has_other_pod_sets(KIND.list_pod_sets(changed), workload)
    assert workload["spec"]["priority"] == 3
    assert "job-name" not in workload["spec"]["podSets"][0]["template"]["metadata"].get("labels", {})


def test_a_name_belongs_to_one_job():
    def name(job: str, uid: str = "u") -> str:
        return build_workload_name(KIND, {"metadata": {"name": job, "uid": uid}})

    assert name("j").startswith("job-j-")
    assert name("j") == name("j")
    assert len({name("j"), name("k"), name("j", "v"), name("a" * 300)}) == 4
    assert len(name("a" * 300)) == 253
    assert name("a" * 300) != name("a" * 300, "v")


@pytest.mark.parametrize(
    ("spec", "count"),
    [({}, 1), ({"parallelism": 0}, 0), ({"parallelism": 4}, 4), ({"parallelism": 4, "completions": 2}, 2), ({"completions": 9}, 1)],
)
def test_a_job_has_as_many_pods_as_run_at_once(spec: dict[str, int], count: int):
    assert KIND.list_pod_sets({"spec": spec | {"template": {"spec": {}}}})[0].count == count


@pytest.mark.parametrize(("kind", "succeeded"), [("Complete", True), ("Failed", False), ("SuccessCriteriaMet", None)])
def test_a_job_ends_by_its_conditions(kind: str, succeeded: bool | None):
    finish = KIND.find_finish({"status": {"conditions": [{"type": kind, "status": "True", "message": "why"}]}})
    assert (finish.succeeded if finish else None) == succeeded


# --- JSON patch ---------------------------------------------------------------------------------------

JSON = st.recursive(
    st.one_of(st.none(), st.integers(-2, 2), st.sampled_from(["", "x"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "a/b", "~", "~1", ""]), inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "a/b", "~", "~1", ""]), JSON, max_size=4)


def apply(document: Any, operations: list[dict[str, Any]]) -> Any:
    document = deepcopy(document)
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target = document
        for part in way:
            target = target[part]
        if operation["op"] == "remove":
            del target[last]
        else:
            assert (last in target) == (operation["op"] == "replace")
            target[last] = operation["value"]
    return document


def exactly(value: Any) -> str:
    """Text that tells True from 1 and 1 from 1.0, whatever the order of keys."""
    return (
        repr(sorted((key, exactly(item)) for key, item in value.items()))
        if isinstance(value, dict)
        else (repr([exactly(item) for item in value]) if isinstance(value, list) else f"{type(value).__name__} {value!r}")
    )


@given(OBJECTS, OBJECTS)
def test_a_patch_turns_the_old_object_into_the_new(old: dict[str, Any], new: dict[str, Any]):
    assert exactly(apply(old, list(diff(old, new)))) == exactly(new)


def test_true_is_not_one():
    assert [operation["op"] for operation in diff({"a": 1}, {"a": True})] == ["replace"]


@given(OBJECTS)
def test_diff_of_equal_objects_is_empty(value: dict[str, Any]):
    assert list(diff(value, deepcopy(value))) == []
    assert merge_patch(strip_null(value), strip_null(value)) == {}


def strip_null(value: Any) -> Any:
    """What is outside of lists has no null: a merge patch could not say it."""
    return {key: strip_null(item) for key, item in value.items() if item is not None} if isinstance(value, dict) else value


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_turns_the_old_object_into_the_new(old: dict[str, Any], new: dict[str, Any]):
    old, new = strip_null(old), strip_null(new)
    assert exactly(merge(old, merge_patch(old, new))) == exactly(new)


def test_a_started_template_has_no_label_that_marks_pods_of_groups():
    """A job whose template had it would have pods that no rule guards as pods of a job."""
    template = {"metadata": {"labels": {"kueue.x-k8s.io/managed": "true", "mine": "too"}}, "spec": {"containers": []}}
    started = Job().start({"metadata": {"name": "j"}, "spec": {"template": template}}, [PodSetStart("main", True)])
    assert started["spec"]["template"]["metadata"]["labels"] == {"mine": "too"}


@pytest.mark.parametrize("suspend", [True, False])
def test_queued_job_cannot_clear_its_priority_class(suspend: bool):
    """Former defect: the class could be removed, which Kueue refuses; another one may be named."""
    label = "kueue.x-k8s.io/priority-class"

    def of(**labels: str) -> dict[str, Any]:
        metadata = {"name": "j", "namespace": "ns", "labels": labels}
        template = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
        return {"metadata": metadata, "spec": {"suspend": suspend, "template": template}}

    queue = "kueue.x-k8s.io/queue-name"
    high, low, none = (of(**{queue: "main"}, **labels) for labels in ({label: "high"}, {label: "low"}, {}))
    assert [error.field for error in KIND.validate_update(high, none).errors] == [f"metadata.labels[{label}]"]
    assert KIND.validate_update(high, low).errors == KIND.validate_update(none, high).errors == ()
    if suspend:
        assert KIND.validate_update(high, of()).errors == (), "an object that leaves its queue leaves its class, too"


def test_workload_has_the_last_of_environment_variables_with_one_name():
    """Former defect: duplicates were kept, so that a Workload that Kueue had made was another than its job's."""
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    template: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{"name": "c", "env": env}]}}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "main"}}
    job: dict[str, Any] = {"metadata": metadata, "spec": {"suspend": True, "template": template}}
    workload = build_workload(KIND, job, priority=0, priority_class=None)
    (pod_set,) = workload["spec"]["podSets"]
    assert pod_set["template"]["spec"]["containers"][0]["env"] == env[1:]
    assert job["spec"]["template"]["spec"]["containers"][0]["env"] == env, "the job is as it was"
    assert not has_other_pod_sets(KIND.list_pod_sets(job), workload)
    earlier = {"spec": {"podSets": [{**pod_set, "template": {**pod_set["template"], "spec": template["spec"]}}]}}
    assert not has_other_pod_sets(KIND.list_pod_sets(job), earlier), "a Workload of before keeps running"


@pytest.mark.parametrize(("failed", "is_ready", "done"), [(None, False, 0), ("0", True, 1), ("1,3-5", True, 4)])
def test_indexes_failed_for_good_count_as_done(failed: str | None, is_ready: bool, done: int):
    spec = {"parallelism": 6, "completions": 6, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
    status = {"ready": 6 - max(1, done), **({"failedIndexes": failed} if failed else {})}
    job = {"metadata": {"name": "j"}, "spec": spec, "status": status}
    assert (KIND.are_pods_ready(job), KIND.count_reclaimable_pods(job).get("main", 0)) == (is_ready, done)
    assert KIND.find_gang(job).min_count == 6 - done


def test_job_of_which_indexes_have_failed_for_good_keeps_its_completions_when_started_with_fewer_pods():
    spec = {"parallelism": 8, "completions": 8, "completionMode": "Indexed", "backoffLimitPerIndex": 0, "suspend": True}
    notes = {"kueue.x-k8s.io/job-completions-equal-parallelism": "true", "kueue.x-k8s.io/job-min-parallelism": "1"}
    template: dict[str, Any] = {"spec": {"containers": []}}
    job = {"metadata": {"name": "j", "annotations": notes}, "spec": {**spec, "template": template}, "status": {"failedIndexes": "0,1"}}
    started = KIND.start(job, [PodSetStart("main", True, count=4)])["spec"]
    assert (started["parallelism"], started["completions"]) == (4, 8)
