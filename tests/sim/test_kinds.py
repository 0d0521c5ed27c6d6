"""Jobs of every kind run in a cluster in memory, come to rest, and leave nothing behind when they are deleted."""

from __future__ import annotations

import random

from core.jobs.kinds.registry import KINDS
from e2e import manifests
from sim.catalogue import make_job, read_examples
from sim.ending import find_unsettled, has_ended, list_roots
from tests.sim.test_world import open_world

SERVING = {"Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster", "RayService"}


def test_examples_have_jobs_of_every_kind():
    found = {objects[-1]["kind"] for objects in read_examples().values()}
    assert found >= {kind.kind for kind in KINDS} | {"Pod", "Deployment", "StatefulSet", "LeaderWorkerSet"}


def test_jobs_of_every_kind_come_to_rest_and_leave_nothing_when_deleted():
    world, chance = open_world(1), random.Random(1)
    for name in ("low", "high"):
        world.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": 1})
    world.apply(manifests.build_local_queue("other", "team", "cq"))
    for number, name in enumerate(read_examples()):
        for obj in make_job(f"job-{number}", "team", chance, 3, name):
            world.apply(obj)
        world.run_for(20)
        assert world.find_broken() == []
    world.run_for(1800)
    assert list(find_unsettled(world)) == []
    assert {root["kind"] for root in list_roots(world) if not has_ended(root)} >= SERVING, "these never end"
    before = world.server.writes
    world.run_for(300)
    assert world.server.writes == before, "nothing is written once nothing changes"
    for root in list_roots(world):
        world.delete(root, propagationPolicy=chance.choice(["Background", "Foreground"]))
    world.run_for(300)
    for resource in (("", "pods"), ("kueue.x-k8s.io", "workloads"), ("batch", "jobs"), ("apps", "statefulsets"), ("ray.io", "rayclusters")):
        assert world.objects(*resource) == []
    world.close()
