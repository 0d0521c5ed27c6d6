"""Elastic jobs that wait to grow, and are deleted meanwhile: no Workload of them stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.model.gates import ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, ChosenGates
from core.names import ELASTIC_JOB, PRIORITY_CLASS_LABEL, RESOURCE_IN_USE_FINALIZER, SLICE_NAME, WORKLOAD_ANNOTATION
from core.plan.jobs.resize import MOST_REPLACED
from e2e import manifests
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.ending import find_unsettled
from sim.models.base import JOB, POD
from sim.models.checks import CHECK, LONGEST_S, CheckController, make_check
from sim.world import WORKLOADS, World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
CHECKS = {"admissionChecks": [{"name": CHECK}]}
POOL = NodePool(blocks=1, racks=3, nodes=4, labels={"pool": "a"})


def start(gpus: int, **queue: Any) -> World:
    world = make_world(POOL, gpus=gpus, **queue)
    world.start_reconciler(gates=ChosenGates({ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: True}))
    return world


def start_job(world: World, *, pods: int, gpus: int) -> Json:
    job = manifests.build_job("j", "ns", pods=pods, gpus=gpus, spec={"completions": 100}, required=POOL.rack_label)
    job["metadata"]["annotations"] = {ELASTIC_JOB: "true"}
    world.apply(job)
    world.run_for(30)
    return job


def scale(world: World, pods: int) -> None:
    [job] = world.objects(*JOB)
    world.patch(*JOB, job, {"spec": {"parallelism": pods}})
    world.run_for(20)


def is_held(workload: Json) -> bool:
    return has_condition(workload, "QuotaReserved") and not has_condition(workload, "Evicted")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
@pytest.mark.parametrize("is_emptied", [False, True], ids=["job", "all of the namespace"])
def test_no_workload_stays_of_a_job_that_is_deleted_while_it_waits_to_grow(policy: str, is_emptied: bool) -> None:
    world = start(100)
    job = start_job(world, pods=2, gpus=8)
    scale(world, 6)
    assert len(world.objects(*WORKLOADS)) == 2, "a rack has room for four of its pods: it waits"
    others = [*world.objects(*POD), *world.objects(*WORKLOADS)] if is_emptied else []
    for obj in [job, *others]:
        world.delete(obj, propagationPolicy=policy)
    world.run_for(120)
    assert world.objects(*WORKLOADS) == []
    world.close()


@pytest.fixture
def growing() -> Iterator[World]:
    """A job that runs with one pod and waits with a second Workload, of two pods, for an admission check that nobody answers any more."""
    world = start(3, preemption={"withinClusterQueue": "LowerPriority"}, admissionChecksStrategy=CHECKS)
    world.apply(make_check(world.time()))
    world.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10})
    [controller] = [model for model in world.models if isinstance(model, CheckController)]
    controller.retries = False
    start_job(world, pods=1, gpus=1)
    world.run_for(LONGEST_S)
    controller.is_stopped = True
    scale(world, 2)
    assert [is_held(workload) for workload in world.objects(*WORKLOADS)] == [True, True]
    yield world
    world.close()


def test_second_workload_that_is_preempted_while_it_waits_for_checks_gives_its_quota_back(growing: World) -> None:
    high = manifests.build_job("high", "ns", pods=2, gpus=1, required=POOL.rack_label)
    high["metadata"]["labels"][PRIORITY_CLASS_LABEL] = "high"
    growing.apply(high)
    growing.run_for(20)
    [workload] = [each for each in growing.objects(*WORKLOADS) if "high" in each["metadata"]["name"]]
    assert is_held(workload)
    assert list(find_unsettled(growing)) == []


def test_job_that_is_scaled_again_while_it_waits_for_checks_asks_for_the_new_size(growing: World) -> None:
    scale(growing, 3)
    counts = [workload["spec"]["podSets"][0]["count"] for workload in growing.objects(*WORKLOADS) if is_held(workload)]
    assert sorted(counts) == [1, 3]


def test_finished_workload_of_a_job_that_is_done_keeps_no_finalizer(growing: World) -> None:
    """Seed 467: the process was killed between the two writes at the end of the second Workload, and began anew with both finished."""
    [job] = growing.objects(*JOB)
    done = {"type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "", "lastTransitionTime": growing.time()}
    for pod in growing.objects(*POD):
        growing.patch(*POD, pod, {"status": {"phase": "Succeeded"}}, "status")
    growing.patch(*JOB, job, {"status": {"conditions": [done]}}, "status")
    growing.run_for(30)
    assert [has_condition(workload, "Finished") for workload in growing.objects(*WORKLOADS)] == [True, True]
    for workload in growing.objects(*WORKLOADS):
        growing.patch(*WORKLOADS, workload, {"metadata": {"finalizers": [RESOURCE_IN_USE_FINALIZER]}})
    growing.run_for(30)
    assert [workload["metadata"].get("finalizers") for workload in growing.objects(*WORKLOADS)] == [None, None]


def test_workload_that_waits_to_replace_another_follows_the_priority_class_of_its_job() -> None:
    """Seed 2103: it was made with the class that the job had when it started."""
    world = start(100)
    for name in ("low", "high"):
        world.apply(
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": len(name)}
        )
    start_job(world, pods=2, gpus=8)
    [job] = world.objects(*JOB)
    for name, pods in (("low", 9), ("high", 9), ("high", 8)):
        world.patch(*JOB, job, {"metadata": {"labels": {PRIORITY_CLASS_LABEL: name}}})
        scale(world, pods)
        [waiting] = [workload for workload in world.objects(*WORKLOADS) if not is_held(workload)]
        assert (waiting["spec"]["priorityClassRef"]["name"], waiting["spec"]["priority"]) == (name, len(name))
        assert waiting["spec"]["podSets"][0]["count"] == pods
        assert list(find_unsettled(world)) == []
    world.close()


def test_workload_that_was_replaced_keeps_no_finalizer_while_the_job_runs_on() -> None:
    """Seed 788: the process was killed between finishing it and letting it go, and no other did the latter before the end of the job."""
    world = start(100)
    start_job(world, pods=2, gpus=1)
    scale(world, 3)
    [replaced] = [workload for workload in world.objects(*WORKLOADS) if has_condition(workload, "Finished")]
    world.patch(*WORKLOADS, replaced, {"metadata": {"finalizers": [RESOURCE_IN_USE_FINALIZER]}})
    world.run_for(30)
    assert [workload["metadata"].get("finalizers") for workload in world.objects(*WORKLOADS)] == [None, [RESOURCE_IN_USE_FINALIZER]]
    assert list(find_unsettled(world)) == []
    world.close()


def test_job_that_grows_and_shrinks_again_and_again_keeps_few_workloads() -> None:
    """Former defect: each growth left one more, 33 in 40 s."""
    world = start(100)
    start_job(world, pods=2, gpus=1)
    for _ in range(8):
        scale(world, 3)
        scale(world, 2)
    workloads = world.objects(*WORKLOADS)
    first = {workload["metadata"]["annotations"][SLICE_NAME] for workload in workloads}
    assert len(workloads) == 2 + MOST_REPLACED, "the first, the present one and the last ones that are over"
    assert len([workload for workload in workloads if is_held(workload) and not has_condition(workload, "Finished")]) == 1
    assert first <= {workload["metadata"]["name"] for workload in workloads}, "pods name the first"
    running = [pod for pod in world.objects(*POD) if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running"]
    assert len(running) == 2
    assert list(find_unsettled(world)) == []


def test_job_that_was_started_again_keeps_the_workload_that_its_pods_name() -> None:
    """Former defect: it was none of the last four, nor the first, and was deleted."""
    world = start(100)
    start_job(world, pods=2, gpus=1)
    scale(world, 3)
    [present] = [workload for workload in world.objects(*WORKLOADS) if not has_condition(workload, "Finished")]
    for is_active in (False, True):
        world.patch(*WORKLOADS, present, {"spec": {"active": is_active}})
        world.run_for(60)
    for pods in (4, 3) * 7:
        scale(world, pods)
    named = {pod["metadata"]["annotations"][WORKLOAD_ANNOTATION] for pod in world.objects(*POD) if pod["status"]["phase"] == "Running"}
    assert present["metadata"]["name"] in named
    assert named <= {workload["metadata"]["name"] for workload in world.objects(*WORKLOADS)}
    assert len(world.objects(*WORKLOADS)) <= 3 + MOST_REPLACED
    world.close()
