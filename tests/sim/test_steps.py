"""Steps of scenarios: what they change, and what they put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from core.names import COMPLETIONS_EQUAL_PARALLELISM, HOSTNAME_LABEL, MIN_PARALLELISM
from e2e import manifests
from e2e.nodes import NodePool
from sim.administrators import POOL_LABEL, Administrators
from sim.catalogue import make_job
from sim.models.base import JOB
from sim.records import Records
from sim.users import Users
from sim.world import World

Json = dict[str, Any]
KUEUE = "kueue.x-k8s.io"
POOL = NodePool(blocks=2, racks=1, nodes=4)
JOBS = "batch", "jobs"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    Administrators(world, POOL, lowers_quota=False).make_nodes()
    world.apply(manifests.build_topology("t", POOL.levels))
    world.apply(manifests.build_flavor("f", {}, "t"))
    world.apply(manifests.build_cluster_queue("cq", {"f": {"cpu": 100, "nvidia.com/gpu": 1000}}))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    world.apply(manifests.build_local_queue("main", "team", "cq"))
    for name in ("low", "high"):
        world.apply({"apiVersion": f"{KUEUE}/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": 1})
    world.start_replicas(1)
    world.run_for(5)
    yield world
    world.close()


def read_labels(world: World) -> dict[str, Json]:
    return {node["metadata"]["name"]: node["metadata"]["labels"] for node in world.objects("", "nodes")}


def test_node_that_loses_a_label_gets_it_back(world: World):
    administrators, before = Administrators(world, POOL, lowers_quota=False), read_labels(world)
    for seed in range(6):
        administrators.play("remove_label", random.Random(seed))
    assert world.unlabelled
    assert any(len(labels) < len(before[name]) for name, labels in read_labels(world).items())
    world.run_for(100)
    assert (read_labels(world), world.unlabelled) == (before, set())


def test_node_that_is_deleted_without_a_label_gets_it_when_it_is_restored(world: World):
    administrators, before = Administrators(world, POOL, lowers_quota=False), read_labels(world)
    administrators.play("remove_label", random.Random(0))
    [name] = world.unlabelled
    [node] = [node for node in world.objects("", "nodes") if node["metadata"]["name"] == name]
    administrators._chance = random.Random(1)  # of which the first is below 0.4
    assert administrators._fail(node) == f"{name} is gone"
    world.run_for(200)
    administrators.restore()
    assert (read_labels(world), world.unlabelled) == (before, set())


def test_node_that_is_moved_is_in_the_other_pool(world: World):
    before = read_labels(world)
    assert {labels[POOL_LABEL] for labels in before.values()} == {"a", "b"}
    Administrators(world, POOL, lowers_quota=False).play("move_node", random.Random(1))
    changed = {name for name, labels in read_labels(world).items() if labels[POOL_LABEL] != before[name][POOL_LABEL]}
    assert len(changed) == 1
    assert all(labels[HOSTNAME_LABEL] == name for name, labels in read_labels(world).items())


def test_queue_made_anew_is_another_object_with_the_same_spec(world: World):
    [before] = world.objects(KUEUE, "localqueues")
    Administrators(world, POOL, lowers_quota=False).play("make_queue_anew", random.Random(1))
    assert world.objects(KUEUE, "localqueues") == []
    world.run_for(30)
    [after] = world.objects(KUEUE, "localqueues")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["conditions"][0]["reason"] == "Ready"


@pytest.mark.parametrize("example", ["partial", "failed-index"])
def test_indexed_jobs_of_the_catalogue_come_to_their_ends(world: World, example: str):
    records, chance = Records(world.server), random.Random(1)
    for number in range(8):
        [job] = make_job(f"job-{number}", "team", chance, 4, example)
        world.apply(job)
    world.run_for(1800)
    ends = {c["type"] for job in world.objects(*JOBS) for c in job["status"]["conditions"] if c["type"] in ("Complete", "Failed")}
    assert ends == ({"Complete"} if example == "partial" else {"Failed"})
    if example == "failed-index":
        assert {job["status"].get("failedIndexes", "").isdigit() and job["status"]["succeeded"] > 0 for job in world.objects(*JOBS)} == {
            True
        }
    assert (list(records.find_incomplete()), list(records.find_excess(8))) == ([], [])


def test_manifest_is_applied_again_some_times(world: World):
    users = Users(world, ["team"], 2)
    users.submit(1, random.Random(1), "job-one-rack")
    world.run_for(5)
    users.play("sync_manifest", random.Random(1))
    world.run_for(200)
    assert list(users.find_changed()) == []


def make_indexed(notes: Json, completions: int = 4) -> Json:
    made = manifests.build_job("ranks", "team", pods=4, indexed=True, annotations=notes)
    made["spec"]["completions"] = completions
    return made


def complete(world: World, succeeded: int, completions: int) -> None:
    """The end of a Job as its controller writes it."""
    [job] = world.objects(*JOBS)
    world.patch(*JOBS, job, {"spec": {"completions": completions, "parallelism": completions}})
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    world.patch(*JOBS, job, {"status": {"succeeded": succeeded, "conditions": [condition]}}, "status")


def test_job_that_is_complete_without_all_of_its_ranks_is_found(world: World):
    """Found by an attack: after a stop a Job with equal completions ran with as many as were left, and was complete."""
    records = Records(world.server)
    job = make_indexed({MIN_PARALLELISM: "1", COMPLETIONS_EQUAL_PARALLELISM: "true"})
    del job["metadata"]["labels"]
    world.apply(job)
    world.patch(*JOBS, job, {"status": {"succeeded": 1}}, "status")
    complete(world, 2, 2)
    assert list(records.find_incomplete()) == ["Job ranks is complete with 2 succeeded pods of 4"]
    world.patch(*JOBS, job, {"status": {"succeeded": 4}}, "status")
    assert list(records.find_incomplete()) == []


def test_job_that_was_written_too_often_is_found(world: World):
    records = Records(world.server)
    job = world.apply(manifests.build_job("often", "team", pods=1))
    for number in range(60):
        world.patch(*JOB, job, {"metadata": {"annotations": {"example.com/number": str(number)}}})
    assert list(records.find_excess(0)) == ["Job often was written 61 times, at most 50 are expected"]
    assert list(records.find_excess(10)) == []
