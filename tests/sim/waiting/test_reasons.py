"""A waiting workload gives a reason that holds now, once nothing has happened for some seconds."""

from __future__ import annotations

from sim.world import World
from tests.sim.test_world import POOL, build_job, open_world


def find_reason(world: World, name: str) -> str:
    [message] = [
        condition["message"]
        for workload in world.objects("kueue.x-k8s.io", "workloads")
        if workload["metadata"]["ownerReferences"][0]["name"] == name
        for condition in workload["status"]["conditions"]
        if condition["type"] == "QuotaReserved"
    ]
    return str(message)


def test_reason_of_quota_after_another_admission_names_present_amounts():
    """Found by the simulation: what others are given helps nobody who waits, and the reason was from before."""
    world = open_world(1)
    world.apply(build_job("runs", 4, seconds=None, rack=POOL.rack_label))
    world.run_for(5)
    world.apply(build_job("waits", 3, seconds=None))
    world.run_for(5)
    assert "needs 8 more nvidia.com/gpu; 32 of 48 in use" in find_reason(world, "waits")
    world.apply(build_job("small", 1, seconds=None))
    world.run_for(30)
    assert "needs 16 more nvidia.com/gpu; 40 of 48 in use" in find_reason(world, "waits")
    before = world.server.writes
    world.run_for(300)
    assert world.server.writes == before, "a reason that holds is not written anew"
    world.close()
