"""Parts of queued objects that wait or have lost their owner, and pods that end: what a user of the namespace may change of them."""

from __future__ import annotations

import pytest

from core.names import QUEUE_NAME_LABEL, WORKLOAD_ANNOTATION
from e2e import manifests
from e2e.api import JSON_PATCH
from e2e.binaries import find_kubernetes_minor
from tests.e2e.users import assert_refused
from tests.reconciler.kinds.pods import build_template as pod_template
from tests.reconciler.scenes import GPU, JOBS
from tests.webhook import entry_points
from tests.webhook.entry_points import JOBSETS, LABELLED, MANAGED_NAMESPACE, PART_IS_KEPT, PODS, Stage

pytestmark = pytest.mark.cluster
stage = entry_points.stage
NAMESPACES = (MANAGED_NAMESPACE, LABELLED)


@pytest.mark.parametrize("stage", [MANAGED_NAMESPACE], indirect=True)
@pytest.mark.parametrize("was_admitted", [False, True])
def test_part_without_owner_and_queue_is_not_changed(stage: Stage, was_admitted: bool) -> None:
    """Found by an attack: the child Job of a JobSet deleted with `--cascade=orphan` ran without a queue, or grew beyond its quota."""
    scene = stage.scene
    job = manifests.build_job("left", scene.namespace, pods=1, gpus=100)  # more than its quota: it waits
    job["metadata"]["labels"] = {}
    path = stage.path(JOBS, "left")
    scene.api.create(JOBS.format(scene.namespace), job)
    if was_admitted:
        marks = {"template": {"metadata": {"annotations": {WORKLOAD_ANNOTATION: "gone"}}}}
        scene.api.patch(path, {"spec": marks})
    scene.api.patch(path, {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}})
    told = "has no owner and no queue"
    assert_refused(403, told, lambda: stage.user.patch(f"{path}?dryRun=All", {"spec": {"suspend": False}}))
    assert_refused(403, told, lambda: stage.user.patch(f"{path}?dryRun=All", {"spec": {"parallelism": 2}}))
    stage.user.patch(f"{path}?dryRun=All", {"metadata": {"labels": {QUEUE_NAME_LABEL: "main"}}})
    scene.api.request("DELETE", f"{path}?propagationPolicy=Background")


@pytest.mark.parametrize("stage", NAMESPACES, indirect=True)
def test_deletion_gives_a_pod_no_more_than_an_hour(stage: Stage) -> None:
    pod = next(pod for pod in stage.scene.read().pods_of("train") if pod["spec"].get("nodeName"))
    path = f"{PODS.format(stage.scene.namespace)}/{pod['metadata']['name']}?dryRun=All&gracePeriodSeconds="
    assert_refused(422, "gracePeriodSeconds: 3601: a pod of an admitted workload", lambda: stage.user.request("DELETE", path + "3601"))
    stage.user.request("DELETE", path + "3600")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    door = f"{PODS.format(stage.scene.namespace)}/{pod['metadata']['name']}/eviction?dryRun=All"
    for options, told in (
        ({"gracePeriodSeconds": 3601}, "deleteOptions.gracePeriodSeconds: 3601: an evicted pod"),
        ({"propagationPolicy": "Orphan"}, "with the pods that it"),
    ):
        assert_refused(422, told, lambda options=options: stage.user.create(door, eviction | {"deleteOptions": options}))


@pytest.mark.parametrize("stage", [LABELLED], indirect=True)
def test_pod_that_has_longer_to_end_of_old_is_deleted_as_it_says(stage: Stage) -> None:
    """The API server fills in the time of the pod where a deletion says nothing."""
    scene = stage.scene
    spec = {**pod_template(0)["spec"], "nodeName": next(iter(scene.read().nodes)), "terminationGracePeriodSeconds": 7200}
    metadata = {"name": "old", "namespace": scene.namespace, "annotations": {WORKLOAD_ANNOTATION: "gone"}}
    scene.api.create(PODS.format(scene.namespace), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = f"{PODS.format(scene.namespace)}/old"
    stage.user.request("DELETE", f"{path}?dryRun=All")
    assert_refused(422, "3600 seconds to end", lambda: stage.user.request("DELETE", f"{path}?dryRun=All&gracePeriodSeconds=7201"))
    scene.api.delete(path, grace_period_s=0)


@pytest.mark.parametrize("stage", NAMESPACES, indirect=True)
def test_suspended_part_keeps_its_size_and_requests(stage: Stage) -> None:
    """Found by an attack: the child Job of a JobSet that waited was given more pods and more GPUs, and was started as it was."""
    scene = stage.scene
    owner = scene.api.get(stage.path(JOBSETS, "set"))
    job = manifests.build_job("later", scene.namespace, pods=1, gpus=1)
    reference = {"apiVersion": owner["apiVersion"], "kind": "JobSet", "name": "set", "uid": owner["metadata"]["uid"], "controller": True}
    job["metadata"] |= {"labels": {}, "ownerReferences": [reference]}
    job["spec"]["suspend"] = True
    scene.api.create(JOBS.format(scene.namespace), job)
    path = stage.path(JOBS, "later")
    larger = [{"op": "replace", "path": "/spec/template/spec/containers/0/resources", "value": {"limits": {GPU: "8"}}}]
    assert_refused(403, PART_IS_KEPT, lambda: stage.user.patch(path, {"spec": {"parallelism": 2}}))
    assert_refused(403, PART_IS_KEPT, lambda: stage.user.patch(path, {"spec": {"suspend": False}}))
    if find_kubernetes_minor() in ("1.34", "1.35"):  # where no webhook is asked about what the API server refuses by itself
        assert_refused(422, "field is immutable", lambda: stage.user.patch(path, larger, JSON_PATCH))
    else:
        assert_refused(403, PART_IS_KEPT, lambda: stage.user.patch(path, larger, JSON_PATCH))
    scene.api.patch(path, {"spec": {"parallelism": 2}})
    scene.api.request("DELETE", f"{path}?propagationPolicy=Background")
