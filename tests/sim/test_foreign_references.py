"""References from one namespace to an object of another: the object is no owner there, whatever uid is named."""

from __future__ import annotations

from copy import deepcopy

import pytest

from core.model.gates import ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, ChosenGates
from core.names import ELASTIC_JOB
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.models.base import JOB, POD
from sim.world import WORKLOADS
from tests.sim.one_queue import make_world

POOL = NodePool(blocks=1, racks=3, nodes=4, labels={"pool": "a"})


@pytest.mark.parametrize("is_elastic", [False, True], ids=["plain", "elastic"])
def test_job_is_not_stopped_by_a_workload_of_another_namespace_that_names_it_as_owner(is_elastic: bool) -> None:
    """Attack 30: the Workload was being deleted and held by a finalizer, and the namespace came first by name; the job was stopped."""
    world = make_world(POOL, gpus=100)
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: True}))
    job = manifests.job("j", "ns", pods=2, gpus=1, required=POOL.rack_label)
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
