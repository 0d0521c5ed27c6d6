"""Elastic jobs that wait to grow, and are deleted meanwhile: no Workload of them stays."""

from __future__ import annotations

import pytest

from core.model.gates import ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, ChosenGates
from core.names import ELASTIC_JOB
from e2e import manifests
from e2e.nodes import NodePool, node_objects
from sim.administrators import make_ready
from sim.models.base import JOB, POD
from sim.world import WORKLOADS, World

POOL = NodePool(blocks=1, racks=3, nodes=4, labels={"pool": "a"})


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
@pytest.mark.parametrize("is_emptied", [False, True], ids=["job", "all of the namespace"])
def test_no_workload_stays_of_a_job_that_is_deleted_while_it_waits_to_grow(policy: str, is_emptied: bool) -> None:
    world = World(1)
    for node in node_objects(POOL):
        world.apply(make_ready(node, "True"))
    world.apply(manifests.topology("t", POOL.levels))
    world.apply(manifests.flavor("f", {"pool": "a"}, "t"))
    world.apply(manifests.cluster_queue("cq", {"f": {"cpu": 100, "memory": "1Ti", "nvidia.com/gpu": 100}}))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    world.apply(manifests.local_queue("main", "ns", "cq"))
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: True}))
    job = manifests.job("j", "ns", pods=2, gpus=8, spec={"completions": 100}, required=POOL.rack_label)
    job["metadata"]["annotations"] = {ELASTIC_JOB: "true"}
    world.apply(job)
    world.run_for(30)
    world.patch(*JOB, job, {"spec": {"parallelism": 6}})
    world.run_for(20)
    assert len(world.objects(*WORKLOADS)) == 2, "a rack has room for four of its pods: it waits"
    others = [*world.objects(*POD), *world.objects(*WORKLOADS)] if is_emptied else []
    for obj in [job, *others]:
        world.delete(obj, propagationPolicy=policy)
    world.run_for(120)
    assert world.objects(*WORKLOADS) == []
    world.close()
