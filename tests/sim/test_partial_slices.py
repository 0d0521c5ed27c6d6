"""A job whose slices leave pods over, from the webhook to its pods: with the gate TASPartialSlices, and without it."""

from __future__ import annotations

from typing import Any

from core.model.gates import NO_GATES, PARTIAL_SLICES, ChosenGates
from core.model.wire.assignment import TopologyAssignment
from core.model.wire.encoding import decode
from core.names import JOB_COMPLETION_INDEX_LABEL
from e2e import manifests
from e2e.audit.recount_promises import find_misshapen
from e2e.nodes import NodePool
from sim.models.base import NODE, POD
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
ON = ChosenGates({PARTIAL_SLICES: True})
POOL = NodePool(blocks=1, racks=3, nodes=2, labels={"pool": "a"})  # of 8 GPUs each: a rack has room for one slice of four pods


def run(pods: int, *, reconciler: ChosenGates = ON) -> World:
    world = make_world(POOL, gpus=100, gates=ON)
    world.start_reconciler(gates=reconciler)
    job = manifests.build_job(
        "j",
        "ns",
        pods=pods,
        gpus=4,
        required=POOL.block_label,
        slice_topology=POOL.rack_label,
        slice_size=4,
        spec={"completionMode": "Indexed", "completions": pods},
    )
    world.apply(job)
    world.run_for(60)
    return world


def get_assignment(world: World) -> TopologyAssignment:
    [workload] = world.objects(*WORKLOADS)
    return decode(workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"])


def list_racks(world: World) -> list[str]:
    """The rack of each pod, in the order of ranks."""
    racks = {node["metadata"]["name"]: node["metadata"]["labels"][POOL.rack_label] for node in world.objects(*NODE)}
    pods = sorted(world.objects(*POD), key=lambda pod: int(pod["metadata"]["labels"][JOB_COMPLETION_INDEX_LABEL]))
    return [racks[pod["spec"]["nodeName"]] for pod in pods if pod["status"].get("phase") not in ("Failed", "Succeeded")]


def test_pods_of_a_partial_slice_share_a_rack_and_have_the_last_ranks() -> None:
    world = run(10)
    assert get_assignment(world).count == 10
    racks = list_racks(world)
    assert len(racks) == 10
    assert len(set(racks[:4])) == len(set(racks[4:8])) == len(set(racks[8:])) == 1
    assert racks[8] not in racks[:8]
    assert list(find_misshapen(world.objects(*WORKLOADS), world.objects(*NODE))) == []
    world.close()


def test_job_with_pods_left_over_is_deactivated_where_only_the_webhook_has_the_gate() -> None:
    world = run(10, reconciler=NO_GATES)
    [workload] = world.objects(*WORKLOADS)
    assert workload["spec"]["active"] is False
    [condition] = [each for each in workload["status"]["conditions"] if each["type"] == "QuotaReserved"]
    assert "slice size 4 does not evenly divide the 10 pods; with feature gate TASPartialSlices" in condition["message"]
    world.close()


def test_node_of_a_partial_slice_that_is_lost_is_replaced_and_the_slice_stays_last() -> None:
    world = run(6)
    lost = get_assignment(world).domains[-1].values[-1]
    world.delete(next(node for node in world.objects(*NODE) if node["metadata"]["name"] == lost))
    world.run_for(400)
    now = get_assignment(world)
    assert now.count == 6
    assert lost not in [domain.values[-1] for domain in now.domains]
    assert list(find_misshapen(world.objects(*WORKLOADS), world.objects(*NODE))) == []
    racks = list_racks(world)
    assert len(racks) == 6
    world.close()
