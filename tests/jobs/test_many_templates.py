"""Objects with very many pod templates are refused after a look at the first ones: each costs a copy, and a user chooses how many."""

from __future__ import annotations

from typing import Any

import pytest

from core.api.admission_review import MAX_CAUSES
from core.jobs.contract import Defaults, ErrorType, PodSetStart
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.registry import KINDS
from core.jobs.kinds.trainjob import MAX_PATCHES, TrainJob
from core.jobs.pod_rules import MAX_TEMPLATE_VALUES
from core.jobs.schema_check import MOST_MISMATCHES, find_misshapen
from core.jobs.templated import MAX_POD_SETS, MOST_ROLES, TemplatedKind
from core.names import QUEUE_NAME_LABEL
from tests.webhook.asking import Webhook

Obj = dict[str, Any]
MANY = 3_000
BY_KIND = {kind.kind: kind for kind in KINDS if isinstance(kind, TemplatedKind)}
TEMPLATE: Obj = {"spec": {"containers": [{"name": "c"}]}}


def build_jobset_spec(count: int) -> Obj:
    return {"replicatedJobs": [{"name": f"r{number}", "template": {"spec": {"template": TEMPLATE}}} for number in range(count)]}


def of_spec(spec: Obj) -> Obj:
    return {"metadata": {"name": "many", "labels": {}}, "spec": spec}


def build_train_job(count: int, patches: int = 0) -> Obj:
    replicated = [{"name": f"r{number % count}"} for number in range(patches)]
    patch = {"manager": "tests.example.com/user", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}}}
    job = of_spec({"runtimeRef": {"name": "r"}, "runtimePatches": [patch]})
    return TrainJob().expand(job, {"spec": {"template": {"spec": build_jobset_spec(count)}}})


def build_app_wrapper(count: int) -> Obj:
    """One component, with all of its template as each of its pod sets."""
    wrapped = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "a"}, "spec": build_jobset_spec(count)}
    return of_spec({"components": [{"template": wrapped, "podSets": [{"path": "template"}] * count}]})


def build_ray_cluster(count: int) -> Obj:
    groups = [{"groupName": f"g{number}", "replicas": 1, "template": TEMPLATE} for number in range(count)]
    return of_spec({"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": groups})


OBJECTS = {
    "JobSet": of_spec(build_jobset_spec(MANY)),
    "RayCluster": build_ray_cluster(MANY),
    "TrainJob": build_train_job(MANY),
    "AppWrapper": build_app_wrapper(MANY),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_object_with_very_many_templates_is_refused_after_the_first_ones(name: str):
    """Found by an attack: an AppWrapper of 75 KB took 6 s of the event loop of the webhook."""
    kind, obj = BY_KIND[name], OBJECTS[name]
    assert MAX_POD_SETS < len(kind.list_roles(obj)) <= MOST_ROLES + 1
    errors = kind.validate_create(obj).errors
    assert ErrorType.TOO_MANY in {error.type for error in errors}
    assert len(errors) <= 4 * MOST_ROLES


def test_train_job_with_very_many_patches_is_refused():
    """Found by an attack: each patch was compared with each template of the runtime, which its user makes, too."""
    errors = TrainJob().validate_create(build_train_job(1, MAX_PATCHES + 1)).errors
    assert [(error.type, error.field) for error in errors] == [(ErrorType.TOO_MANY, "spec.runtimePatches")]
    assert not TrainJob().validate_create(build_train_job(1, MAX_PATCHES)).errors


def test_object_with_very_many_entries_of_a_wrong_type_is_refused_after_the_first_ones():
    """Found by an attack: 60,000 of them took 0.3 s of the event loop of the webhook."""
    kind = BY_KIND["JobSet"]
    assert len(find_misshapen(kind.spec_shape, of_spec({"replicatedJobs": [1] * MANY}))) == MOST_MISMATCHES
    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **of_spec({"replicatedJobs": [1] * MANY})}
    job["metadata"]["labels"] = {QUEUE_NAME_LABEL: "main"}
    response = Webhook().validate(job, None)
    assert not response["allowed"]
    assert len(response["status"]["details"]["causes"]) == MAX_CAUSES


def test_pod_with_very_many_labels_is_refused():
    """Its Workload has them, too: near what etcd takes it could be admitted, and not be evicted."""
    labels = {f"k{number}": "" for number in range(MAX_TEMPLATE_VALUES)}
    pod = Pod().default({"kind": "Pod", "metadata": {"name": "p", "labels": labels}, **TEMPLATE}, Defaults("main"))
    assert [(error.type, error.field) for error in Pod().validate_create(pod).errors] == [(ErrorType.TOO_MANY, "metadata")]


def test_train_job_with_the_most_patches_can_be_started():
    """The start adds a patch of its own, which the webhook judges like any other change."""
    kind = TrainJob()
    job = build_train_job(1, patches=MAX_PATCHES)
    job["metadata"]["labels"][QUEUE_NAME_LABEL] = "main"
    job["spec"]["suspend"] = True
    assert kind.validate_create(job).errors == ()
    started = kind.start(job, [PodSetStart("r0", gated=True, node_selector={"pool": "a"})])
    assert len(started["spec"]["runtimePatches"]) == 2
    assert kind.validate_update(job, started).errors == ()
