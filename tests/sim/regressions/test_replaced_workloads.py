"""Workloads of an elastic job that were replaced: which of them are deleted (`core.plan.jobs.resize`)."""

from __future__ import annotations

from core.names import SLICE_NAME
from core.plan.jobs.resize import MOST_REPLACED
from e2e.standins.pods import has_condition
from sim.world import WORKLOADS
from tests.sim.regressions.test_growing_jobs import scale, start, start_job


def test_replaced_workloads_that_are_kept_are_the_first_one_and_the_newest():
    world = start(100)
    start_job(world, pods=2, gpus=1)
    seen: dict[str, str] = {}
    for _ in range(7):
        for pods in (3, 2):
            scale(world, pods)
            seen |= {each["metadata"]["name"]: each["metadata"]["creationTimestamp"] for each in world.objects(*WORKLOADS)}
    workloads = world.objects(*WORKLOADS)
    first = {each["metadata"]["annotations"][SLICE_NAME] for each in workloads}
    replaced = sorted((name for name in seen if name not in first), key=seen.__getitem__)[:-1]
    assert len(replaced) > MOST_REPLACED
    assert {each["metadata"]["name"] for each in workloads if has_condition(each, "Finished")} == first | set(replaced[-MOST_REPLACED:])


def test_workload_of_an_elastic_job_that_is_finished_for_another_reason_is_kept():
    world = start(100)
    start_job(world, pods=2, gpus=1)
    scale(world, 3)
    replaced = next(each for each in world.objects(*WORKLOADS) if has_condition(each, "Finished"))
    metadata = {key: replaced["metadata"][key] for key in ("namespace", "annotations", "ownerReferences")}
    finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    world.apply({**replaced, "metadata": {**metadata, "name": "other"}, "status": {"conditions": [finished]}})
    for _ in range(2 * MOST_REPLACED):
        for pods in (2, 3):
            scale(world, pods)
    assert "other" in {each["metadata"]["name"] for each in world.objects(*WORKLOADS)}
