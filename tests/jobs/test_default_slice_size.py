"""The slice size that a JobSet gets by default is visible on it and follows `parallelism`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.jobs.contract import PodSetStart
from core.jobs.kinds.jobset import JobSet
from core.model.gates import GROUPED_SLICES
from core.names import (
    DEFAULTED_SLICE_SIZE,
    PODSET_GROUP_NAME,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    WORKLOAD_ANNOTATION,
)
from tests.webhook.asking import Webhook, get_causes

Obj = dict[str, Any]
RACK = "cloud.provider.com/topology-rack"
SLICED = {SLICE_REQUIRED_TOPOLOGY: RACK}
BOTH = {SLICE_SIZE: "4", DEFAULTED_SLICE_SIZE: "4"}
KIND = JobSet()


def build_jobset(notes: Obj, parallelism: int | None = 4, *, labels: Obj | None = None, suspend: bool | None = None) -> Obj:
    pods = {} if parallelism is None else {"parallelism": parallelism, "completions": parallelism}
    container = {"name": "c", "image": "registry.example/c:1"}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    replicated = [{"name": "workers", "replicas": 2, "template": {"spec": {**pods, "template": template}}}]
    own = {"name": "train", "namespace": "team-a", "labels": {QUEUE_NAME_LABEL: "lq"} if labels is None else labels}
    spec = {"replicatedJobs": replicated} | ({} if suspend is None else {"suspend": suspend})
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": own, "spec": spec}


def get_notes(obj: Obj) -> Obj:
    notes: Obj = KIND.list_roles(obj)[0].template["metadata"]["annotations"]
    return notes


def changed(obj: Obj, notes: Obj, parallelism: int = 4) -> Obj:
    """What is stored when a change gives a JobSet these annotations and pods; the change is valid."""
    new = deepcopy(obj)
    spec = new["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec |= {"parallelism": parallelism, "completions": parallelism}
    spec["template"]["metadata"]["annotations"] = notes
    stored = Webhook().mutate(new, old=obj)
    assert Webhook().validate(stored, obj)["allowed"]
    return stored


@pytest.mark.parametrize(("parallelism", "size"), [(4, "4"), (None, "1")])
def test_size_of_slices_without_one_is_written_at_creation(parallelism: int | None, size: str):
    stored = Webhook().mutate(build_jobset(SLICED, parallelism))
    assert get_notes(stored) == SLICED | {SLICE_SIZE: size, DEFAULTED_SLICE_SIZE: size}
    assert Webhook().mutate(stored) == stored
    assert Webhook().validate(stored)["allowed"]
    request = KIND.list_pod_sets(stored)[0].to_wire()["topologyRequest"]
    assert request["podSetSliceSize"] == int(size)
    assert request == KIND.list_pod_sets(build_jobset(SLICED, parallelism))[0].to_wire()["topologyRequest"]


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {REQUIRED_TOPOLOGY: RACK},
        SLICED | {SLICE_SIZE: "2"},
        SLICED | {SLICE_SIZE: "4"},
        {SLICE_CONSTRAINTS: f'[{{"topology": "{RACK}", "size": 2}}]'},
        SLICED | {PODSET_GROUP_NAME: "g", REQUIRED_TOPOLOGY: RACK},
    ],
    ids=["none", "no slices", "own size", "own size equal to the default", "layers", "group"],
)
def test_annotations_that_need_no_default_size_are_kept(notes: Obj):
    assert get_notes(Webhook().mutate(build_jobset(notes))) == notes


def test_workers_of_a_group_have_slices_of_the_default_size():
    jobset = build_jobset(SLICED | {PODSET_GROUP_NAME: "g", REQUIRED_TOPOLOGY: RACK})
    assert Webhook(**{GROUPED_SLICES: True}).validate(jobset)["allowed"]
    request = KIND.list_pod_sets(jobset)[0].to_wire()["topologyRequest"]
    assert (request["podSetGroupName"], request["podSetSliceSize"]) == ("g", 4)


def test_jobset_without_queue_gets_no_size():
    assert get_notes(Webhook(default_queue=False).mutate(build_jobset(SLICED, labels={}))) == SLICED


def test_parallelism_of_no_pods_gets_no_size_and_the_refusal_names_the_field():
    stored = Webhook().mutate(build_jobset(SLICED, 0))
    assert get_notes(stored) == SLICED
    assert [field.rpartition("[")[2] for field in get_causes(Webhook().validate(stored))] == [f"{SLICE_SIZE}]"]


def test_default_size_follows_parallelism_of_a_suspended_jobset():
    stored = Webhook().mutate(build_jobset(SLICED))
    assert get_notes(changed(stored, get_notes(stored), 8)) == SLICED | {SLICE_SIZE: "8", DEFAULTED_SLICE_SIZE: "8"}


def test_manifest_applied_again_without_the_size_keeps_it():
    stored = Webhook().mutate(build_jobset(SLICED))
    assert changed(stored, SLICED) == stored


def test_size_that_a_user_sets_replaces_the_default_and_stays():
    own = changed(Webhook().mutate(build_jobset(SLICED)), SLICED | BOTH | {SLICE_SIZE: "2"})
    assert get_notes(own) == SLICED | {SLICE_SIZE: "2"}
    assert get_notes(changed(own, get_notes(own), 8)) == SLICED | {SLICE_SIZE: "2"}


def test_own_size_equal_to_parallelism_stays_when_parallelism_changes():
    stored = Webhook().mutate(build_jobset(SLICED | {SLICE_SIZE: "4"}))
    assert get_notes(changed(stored, get_notes(stored), 8)) == SLICED | {SLICE_SIZE: "4"}


@pytest.mark.parametrize("notes", [{}, {SLICE_CONSTRAINTS: f'[{{"topology": "{RACK}", "size": 2}}]'}], ids=["no slices", "layers"])
def test_default_size_goes_with_the_slices(notes: Obj):
    assert get_notes(changed(Webhook().mutate(build_jobset(SLICED)), notes | BOTH)) == notes


def test_templates_of_a_running_jobset_get_no_size():
    old = build_jobset(SLICED, suspend=True)  # stored before sizes were written
    starts = [PodSetStart(p.name, True, annotations={WORKLOAD_ANNOTATION: "w"}) for p in KIND.list_pod_sets(old)]
    running = KIND.start(old, starts)
    labelled = deepcopy(running) | {"spec": running["spec"] | {"ttlSecondsAfterFinished": 60}}
    assert Webhook().mutate(running, old=old) == running
    assert Webhook().mutate(labelled, old=running) == labelled


def test_size_survives_start_and_stop():
    stored = Webhook().mutate(build_jobset(SLICED))
    pod_sets = KIND.list_pod_sets(stored)
    running = KIND.start(stored, [PodSetStart(p.name, True, annotations={WORKLOAD_ANNOTATION: "w"}) for p in pod_sets])
    stopped = KIND.restore(KIND.suspend(running), [p.to_wire() for p in pod_sets])
    assert get_notes(Webhook().mutate(stopped, old=running)) == SLICED | BOTH
