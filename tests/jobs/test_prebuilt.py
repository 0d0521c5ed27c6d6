"""Jobs that name a Workload: what names are taken, and what of a Workload is compared with its job."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.jobs.contract import Defaults, PodSetStart
from core.jobs.kinds.job import Job
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_kinds import POD_SETS
from core.jobs.kinds.registry import KINDS
from core.jobs.prebuilt_label import find_prebuilt_name
from core.names import (
    JOB_COMPLETION_INDEX_LABEL,
    JOB_UID_LABEL,
    PREBUILT_WORKLOAD,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    RESOURCE_IN_USE_FINALIZER,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_ANNOTATION,
)
from core.plan.jobs.prebuilt import build_adoption, find_difference, list_originals

Json = dict[str, Any]
FIELD = f"metadata.labels[{PREBUILT_WORKLOAD}]"


def build_job(name: str | None = None, *, suspend: bool = True, notes: Json | None = None, pods: int = 2, cpu: str = "1") -> Json:
    labels = {QUEUE_NAME_LABEL: "main"} | ({PREBUILT_WORKLOAD: name} if name is not None else {})
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"annotations": {REQUIRED_TOPOLOGY: "rack"}}, "spec": {"containers": [container]}}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": labels, "annotations": notes or {}}
    return {"metadata": metadata, "spec": {"suspend": suspend, "parallelism": pods, "completions": pods, "template": template}}


def list_fields(rules: Any) -> list[str]:
    return [error.field for error in rules.errors]


@pytest.mark.parametrize("name", ["", "Upper", "under_score", "-a", "a.", "a..b", "a b", "x" * 254])
def test_invalid_name_of_a_prebuilt_workload_is_refused(name: str):
    assert list_fields(Job().validate_create(build_job(name))) == [FIELD]
    assert list_fields(Job().validate_create(build_job(notes={PREBUILT_WORKLOAD: name}))) == [f"metadata.annotations[{PREBUILT_WORKLOAD}]"]


def test_the_label_counts_before_the_annotation_and_long_names_fit_the_latter():
    assert find_prebuilt_name(build_job("one", notes={PREBUILT_WORKLOAD: "two"})) == "one"
    assert find_prebuilt_name(build_job(notes={PREBUILT_WORKLOAD: "a" * 253})) == "a" * 253
    assert find_prebuilt_name(build_job()) is None
    assert list_fields(Job().validate_create(build_job("a.b-c"))) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_kind_of_job_judges_it(kind: Any):
    asked = {"kind": kind.kind, "metadata": {"name": "x", "labels": {QUEUE_NAME_LABEL: "main", PREBUILT_WORKLOAD: "No"}}, "spec": {}}
    assert FIELD in list_fields(kind.validate_create(asked))


@pytest.mark.parametrize("kind", [*POD_SETS, Pod()], ids=lambda kind: kind.kind)
def test_prebuilt_workload_label_on_pods_gets_a_warning(kind: Any):
    labels = {QUEUE_NAME_LABEL: "main", PREBUILT_WORKLOAD: "w", "kueue.x-k8s.io/managed": "true"}
    rules = kind.validate_create({"kind": kind.kind, "metadata": {"name": "x", "labels": labels}, "spec": {}})
    assert any("has no effect" in warning for warning in rules.warnings)


def test_a_running_job_keeps_its_workload():
    assert list_fields(Job().validate_update(build_job("a"), build_job("b"))) == []
    assert list_fields(Job().validate_update(build_job("a"), build_job("B"))) == [FIELD]
    (error,) = Job().validate_update(build_job("a", suspend=False), build_job("b", suspend=False)).errors
    assert "'a'" in error.accepted
    assert list_fields(Job().validate_update(build_job(suspend=False), build_job("b", suspend=False))) == [FIELD]
    assert list_fields(Job().validate_update(build_job("a", suspend=False), build_job(suspend=False))) == [FIELD]


# --- adoption and comparison --------------------------------------------------------------------------------


def build_workload(asked: Json, **changed: Any) -> Json:
    """As somebody wrote it who knows what the job asks for, and no more."""
    (pod_set,) = Job().list_pod_sets(asked)
    container = {"name": "other", "image": "i", "resources": {"requests": {"cpu": "1000m"}}}
    wire = {"name": "main", "count": pod_set.count, "template": {"spec": {"containers": [container]}}, "topologyRequest": {}}
    wire["topologyRequest"] = pod_set.topology_request
    return {"metadata": {"name": "w", "namespace": "ns", "uid": "uw"}, "spec": {"podSets": [wire | changed]}}


def test_prebuilt_workload_is_compared_by_fields_of_quota_or_placement():
    asked = build_job("w")
    assert find_difference(Job().list_pod_sets(asked), build_workload(asked)) is None
    for changed, told in (
        ({"count": 3}, "pod set main: count of the job: 2, of the Workload: 3"),
        ({"name": "driver"}, "the job's pod sets are main, the Workload's driver"),
        ({"topologyRequest": {"required": "block"}}, "topology request"),
        ({"topologyRequest": None}, "topology request"),
        ({"template": {"spec": {"containers": []}}}, "resource requests"),
        ({"template": {**build_workload(asked)["spec"]["podSets"][0]["template"], "metadata": {"labels": {"a": "b"}}}}, None),
    ):
        found = find_difference(Job().list_pod_sets(asked), build_workload(asked, **changed))
        assert (found is None) == (told is None)
        assert told is None or told in str(found)


@pytest.mark.parametrize(("of_job", "of_workload"), [("a", ""), ("", "a"), ("a", "b"), ("a", "a")])
def test_a_prebuilt_workload_with_other_claims_is_another(of_job: str, of_workload: str):
    asked = build_job("w")
    workload = build_workload(asked)
    for spec, name in ((asked["spec"]["template"]["spec"], of_job), (workload["spec"]["podSets"][0]["template"]["spec"], of_workload)):
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}] if name else []
    found = find_difference(Job().list_pod_sets(asked), workload)
    assert (found is None) == (of_job == of_workload)
    assert found is None or "pod set main: the spec.resourceClaims of the job" in found


def test_a_request_that_only_names_ranks_may_be_left_out():
    asked = build_job("w")
    del asked["spec"]["template"]["metadata"]["annotations"]
    assert Job().list_pod_sets(asked)[0].topology_request
    assert find_difference(Job().list_pod_sets(asked), build_workload(asked, topologyRequest=None)) is None


def test_adopted_prebuilt_workload_keeps_its_owners_and_finalizers():
    wire = build_workload(build_job())
    wire["metadata"] |= {"finalizers": ["a"], "ownerReferences": [{"kind": "X", "uid": "x"}]}
    patch = build_adoption(Job(), build_job(), wire)["metadata"]
    assert patch["finalizers"] == ["a", RESOURCE_IN_USE_FINALIZER]
    assert [owner["uid"] for owner in patch["ownerReferences"]] == ["x", "u"]
    assert patch["ownerReferences"][1]["controller"] is True
    assert patch["labels"] == {JOB_UID_LABEL: "u"}
    again = {**wire, "metadata": {**wire["metadata"], **patch}}
    assert build_adoption(Job(), build_job(), again)["metadata"] == patch


def test_a_stopped_job_gets_its_own_template_back():
    kind, mine = Job(), build_job("w")
    mine["spec"]["template"]["spec"]["nodeSelector"] = {"own": "1"}
    before = kind.default(mine, Defaults())
    wire = build_workload(before)
    wire["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"own": "1"}
    info = PodSetStart(
        "main", True, {"flavor": "gpu"}, ({"key": "k"},), {"kueue.x-k8s.io/podset": "main"}, {"kueue.x-k8s.io/workload": "w"}
    )
    running = kind.start(before, [info])
    assert running["spec"]["template"] != before["spec"]["template"]
    back = kind.restore(running, list_originals(kind, deepcopy(running), wire))
    assert back["spec"]["template"] == before["spec"]["template"]


def test_a_stopped_job_loses_the_topology_annotation_that_its_start_added():
    """Former defect: the job was out of step with its Workload once it had run, and suspended for ever."""
    job = {"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}
    workload: Json = {"metadata": {"name": "w"}, "spec": {"podSets": [pod_set.to_wire() for pod_set in Job().list_pod_sets(job)]}}
    notes = {WORKLOAD_ANNOTATION: "w", UNCONSTRAINED_TOPOLOGY: "true"}
    started = Job().start(job, [PodSetStart("main", True, annotations=notes)])
    restored = Job().restore(started, list_originals(Job(), started, workload))
    assert find_difference(Job().list_pod_sets(restored), workload) is None
    kept = {
        "metadata": {"name": "w"},
        "spec": {
            "podSets": [
                {
                    **workload["spec"]["podSets"][0],
                    "topologyRequest": {"unconstrained": True, "podIndexLabel": JOB_COMPLETION_INDEX_LABEL},
                }
            ]
        },
    }
    assert find_difference(Job().list_pod_sets(Job().restore(started, list_originals(Job(), started, kept))), kept) is None
