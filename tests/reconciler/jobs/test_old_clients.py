"""The reconciler, which speaks v1beta2, and clients of v1beta1 on the same Workloads: neither takes anything from the other."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from core.names import FIELDS_OF_V1BETA2, HOSTNAME_LABEL, OLD_API_VERSION, RANK_ORDER_KEPT, SLICE_CONSTRAINTS
from e2e.api import APPLY_PATCH, ApiError, wait_for
from e2e.audit import truth
from tests.reconciler.scenes import GPU, WORKLOADS, Scene

CHANGING = ("resourceVersion", "managedFields", "labels")


def submit(scene: Scene, name: str) -> list[dict[str, Any]]:
    """A job of eight pods in nested slices: four in a rack, two on a node; the layers as v1beta2 stores them."""
    layers = [{"topology": scene.rack, "size": 4}, {"topology": HOSTNAME_LABEL, "size": 2}]
    scene.submit(name, pods=8, gpus=4, indexed=True, required=scene.block, annotations={SLICE_CONSTRAINTS: json.dumps(layers)})
    return layers


def paths(scene: Scene, job: str) -> tuple[str, str]:
    """Where the job's Workload is, in v1beta1 and in v1beta2."""
    found = scene.eventually(f"the workload of {job}", lambda now: now.workload_of(job)).workload_of(job)
    assert found is not None
    new = f"{WORKLOADS.format(scene.namespace)}/{found['metadata']['name']}"
    return new.replace("v1beta2", "v1beta1"), new


def meaning(workload: dict[str, Any]) -> dict[str, Any]:
    return {**workload, "metadata": {key: value for key, value in workload["metadata"].items() if key not in CHANGING}}


def test_an_admitted_workload_is_read_and_labelled_as_v1beta1_and_loses_nothing(scene: Scene) -> None:
    layers = submit(scene, "train")
    now = scene.until_bound("train", 8)
    scene.eventually("the last word on its ranks", lambda now: truth.is_true(now.workload_of("train"), RANK_ORDER_KEPT))
    old, new = paths(scene, "train")
    before = scene.api.get(new)
    assert before["spec"]["podSets"][0]["topologyRequest"]["podsetSliceRequiredTopologyConstraints"] == layers

    read = scene.api.get(old)
    (given,) = read["status"]["admission"]["podSetAssignments"]
    shown = given["topologyAssignment"]
    assert shown["levels"] == [HOSTNAME_LABEL]
    assert sum(domain["count"] for domain in shown["domains"]) == 8
    nodes = {pod["spec"]["nodeName"] for pod in now.pods_of("train")}
    assert {domain["values"][0] for domain in shown["domains"]} == nodes
    assert json.loads(read["metadata"]["annotations"][FIELDS_OF_V1BETA2]) == {"constraints": {"main": layers}}

    written = copy.deepcopy(read)
    written["metadata"].setdefault("labels", {})["team"] = "put"
    scene.api.replace(old, written)
    scene.api.patch(old, {"metadata": {"labels": {"team-2": "patched"}}})
    applied = {key: read[key] for key in ("apiVersion", "kind")} | {
        "metadata": {"name": read["metadata"]["name"], "labels": {"team-3": "x"}}
    }
    scene.api.patch(f"{old}?fieldManager=dashboard", applied, APPLY_PATCH)
    after = scene.api.get(new)
    assert {"team", "team-2", "team-3"} <= after["metadata"]["labels"].keys()
    assert meaning(after) == meaning(before)

    # The reconciler goes on with it: a pod that is lost is made anew and ungated to where the assignment says.
    lost = scene.read().pods_of("train")[0]["metadata"]
    scene.api.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{lost['name']}", grace_period_s=0)
    scene.eventually("the pod to be gone", lambda now: lost["uid"] not in {pod["metadata"]["uid"] for pod in now.pods})
    now = scene.until_bound("train", 8)
    assert truth.as_assigned(now, "train") == []


def test_a_waiting_workload_written_as_v1beta1_is_still_placed_in_its_nested_slices(scene: Scene) -> None:
    submit(scene, "first")
    scene.until_bound("first", 8)
    layers = submit(scene, "second")
    scene.until_waiting("second", "TopologyPlacementFailed")
    old, new = paths(scene, "second")
    read = scene.api.get(old)
    assert "podsetSliceRequiredTopologyConstraints" not in read["spec"]["podSets"][0]["topologyRequest"]
    read["metadata"].setdefault("labels", {})["team"] = "a"
    scene.api.replace(old, read)
    assert scene.api.get(new)["spec"]["podSets"][0]["topologyRequest"]["podsetSliceRequiredTopologyConstraints"] == layers
    scene.delete_job("first")
    now = scene.until_bound("second", 8)
    assert truth.check_slices(now, "second", scene.rack, 4) == []
    assert truth.check_slices(now, "second", HOSTNAME_LABEL, 2) == []
    assert scene.api.get(new)["metadata"]["labels"]["team"] == "a"


@pytest.mark.long
def test_an_old_client_deactivates_and_activates_a_workload(scene: Scene) -> None:
    submit(scene, "train")
    scene.until_bound("train", 8)
    old, _ = paths(scene, "train")
    scene.api.patch(old, {"spec": {"active": False}})
    scene.eventually("the pods to be gone", lambda now: not now.pods_of("train"))
    wait_for("the admission to be taken back", lambda: "admission" not in scene.api.get(old)["status"])
    scene.api.patch(old, {"spec": {"active": True}})
    now = scene.until_bound("train", 8)
    assert truth.check_slices(now, "train", scene.rack, 4) == []


def test_cluster_queue_written_as_v1beta1_is_validated_and_used_as_v1beta2(scene: Scene) -> None:
    name = f"{scene.prefix}old"
    flavor: dict[str, Any] = {
        "name": f"{scene.prefix}flavor",
        "resources": [{"name": "cpu", "nominalQuota": -1}, {"name": GPU, "nominalQuota": 16}],
    }
    spec = {
        "cohort": name,
        "namespaceSelector": {},
        "flavorFungibility": {"whenCanBorrow": "Borrow"},
        "resourceGroups": [{"coveredResources": ["cpu", GPU], "flavors": [flavor]}],
    }
    queue = {"apiVersion": OLD_API_VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
    with pytest.raises(ApiError) as refused:
        scene.create(queue)
    assert [cause["field"] for cause in refused.value.causes] == ["spec.resourceGroups[0].flavors[0].resources[0].nominalQuota[cpu]"]
    flavor["resources"][0]["nominalQuota"] = 100
    scene.create(queue)
    local = {"name": "old", "namespace": scene.namespace}
    scene.create({"apiVersion": OLD_API_VERSION, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}})
    scene.submit("train", pods=2, gpus=8, queue="old", required=scene.rack)
    now = scene.until_bound("train", 2)
    assert truth.check_one_domain(now, "train", scene.rack) == []
    path = f"/apis/{OLD_API_VERSION}/clusterqueues/{name}"
    wait_for("the queue to say so", lambda: scene.api.get(path).get("status", {}).get("admittedWorkloads") == 1)
    assert scene.api.get(path)["spec"]["flavorFungibility"]["whenCanBorrow"] == "Borrow"
    scene.clear()
    scene.api.delete(path)
