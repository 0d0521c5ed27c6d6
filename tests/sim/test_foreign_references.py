"""References with the uid of a job of another namespace, or by the name of another kind: they make nothing part of the job."""

from __future__ import annotations

from copy import deepcopy

import pytest

from core.model.gates import ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, ChosenGates
from core.names import CLUSTER_QUEUE_LABEL, ELASTIC_JOB, PODSET_LABEL, TOPOLOGY_GATE
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.models.base import JOB, POD
from sim.world import WORKLOADS
from tests.sim.one_queue import make_world

POOL = NodePool(blocks=1, racks=3, nodes=4, labels={"pool": "a"})
MARKS = {PODSET_LABEL: "main", CLUSTER_QUEUE_LABEL: "cq"}


@pytest.mark.parametrize("is_elastic", [False, True], ids=["plain", "elastic"])
def test_job_is_not_stopped_by_a_workload_of_another_namespace_that_names_it_as_owner(is_elastic: bool) -> None:
    """Former defect: the Workload was being deleted and held by a finalizer, and the namespace came first by name; the job was stopped."""
    world = make_world(POOL, gpus=100)
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: True}))
    job = manifests.build_job("j", "ns", pods=2, gpus=1, required=POOL.rack_label)
    job["metadata"]["annotations"] = {ELASTIC_JOB: "true"} if is_elastic else {}
    world.apply(job)
    world.run_for(30)
    [workload], pods = world.objects(*WORKLOADS), world.objects(*POD)
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    copied = {key: deepcopy(workload["metadata"].get(key)) for key in ("name", "annotations", "ownerReferences")}
    forged = {**workload, "metadata": {**copied, "namespace": "a", "finalizers": ["example.com/stay"]}}
    world.apply({key: value for key, value in forged.items() if key != "status"})
    world.run_for(5)
    [job] = world.objects(*JOB)
    world.patch(*JOB, job, {"metadata": {"annotations": {"touched": "true"}}})
    world.run_for(60)
    others = [each for each in world.objects(*WORKLOADS) if each["metadata"]["namespace"] == "a"]
    assert [bool(each["metadata"].get("deletionTimestamp")) for each in others] == [True], "the garbage collector found no owner"
    [job] = world.objects(*JOB)
    assert not job["spec"].get("suspend")
    assert [pod["metadata"]["uid"] for pod in world.objects(*POD)] == [pod["metadata"]["uid"] for pod in pods]
    assert all(has_condition(each, "Admitted") for each in world.objects(*WORKLOADS) if each["metadata"]["namespace"] == "ns")
    world.close()


@pytest.mark.parametrize("labels", [{}, MARKS], ids=["no labels", "labels of a start"])
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("namespace", ["a", "ns"])
def test_job_is_not_stopped_by_gated_pods_that_name_a_pod_with_its_uid_as_owner(
    namespace: str, version: str, labels: dict[str, str]
) -> None:
    """Any user may create such pods. Former defect: the job was evicted with each of them, or its Workload was deactivated."""
    world = make_world(POOL, gpus=100)
    world.start_reconciler()
    world.apply(manifests.build_job("j", "ns", pods=2, gpus=1, required=POOL.rack_label))
    world.run_for(30)
    [job], pods = world.objects(*JOB), {pod["metadata"]["uid"] for pod in world.objects(*POD)}
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    owner = {"apiVersion": version, "kind": "Pod", "name": "any", "uid": job["metadata"]["uid"], "controller": True}
    for number in range(3):
        metadata = {"name": f"x{number}", "namespace": namespace, "ownerReferences": [owner], "labels": labels}
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": TOPOLOGY_GATE}]}
        world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        world.run_for(20)
    [job] = world.objects(*JOB)
    assert not job["spec"].get("suspend")
    assert pods <= {pod["metadata"]["uid"] for pod in world.objects(*POD)}
    [workload] = world.objects(*WORKLOADS)
    assert workload["spec"].get("active", True)
    assert has_condition(workload, "Admitted")
    assert not has_condition(workload, "Evicted")
    world.close()
