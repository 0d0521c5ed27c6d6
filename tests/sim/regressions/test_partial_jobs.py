"""Jobs that are admitted with fewer pods than they ask for (job-min-parallelism), some of whose pods are done when they are stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core.names import COMPLETIONS_EQUAL_PARALLELISM, MIN_PARALLELISM
from e2e import manifests
from e2e.nodes import NodePool
from sim.apiserver.server import Refused
from tests.sim.one_queue import make_world

Json = dict[str, Any]
KUEUE = "kueue.x-k8s.io"
INDEX = "batch.kubernetes.io/job-completion-index"
POOL = NodePool(blocks=1, racks=2, nodes=2)
PARTIAL, EQUAL = {MIN_PARALLELISM: "1"}, {MIN_PARALLELISM: "1", COMPLETIONS_EQUAL_PARALLELISM: "true"}


class Partial:
    """A cluster with one Indexed Job of six pods, one GPU each, in a queue with so many GPUs."""

    def __init__(self, gpus: int, notes: dict[str, str], *, has_topology: bool = True) -> None:
        self.world = make_world(POOL, gpus=gpus, levels=None if has_topology else ())
        self.world.start_replicas(1)
        self.world.run_for(5)
        placed = {"unconstrained": "true"} if has_topology else {}
        made = manifests.build_job("j", "ns", pods=6, gpus=1, indexed=True, **placed)  # type: ignore[arg-type]
        made["metadata"].setdefault("annotations", {}).update(notes)
        self.world.apply(made)
        self.world.run_for(10)

    @property
    def job(self) -> Json:
        [job] = self.world.objects("batch", "jobs")
        return job

    @property
    def workload(self) -> Json:
        [workload] = self.world.objects(KUEUE, "workloads")
        return workload

    @property
    def counts(self) -> tuple[Any, Any, Any]:
        """Parallelism and completions of the Job, and pods of it that are active."""
        return self.job["spec"]["parallelism"], self.job["spec"]["completions"], self.job["status"].get("active", 0)

    @property
    def evictions(self) -> int:
        stats = self.workload["status"].get("schedulingStats") or {}
        return sum(entry["count"] for entry in stats.get("evictions") or ())

    def change(self, spec: Json) -> None:
        self.world.patch("batch", "jobs", self.job, {"spec": spec})

    def succeed(self, count: int) -> None:
        """The pods of the lowest indexes that run succeed."""
        running = [pod for pod in self.world.objects("", "pods") if pod["status"].get("phase") == "Running"]
        for pod in sorted(running, key=lambda pod: int(pod["metadata"]["annotations"][INDEX]))[:count]:
            self.world.patch("", "pods", pod, {"status": {"phase": "Succeeded"}}, "status")
        self.world.run_for(5)

    def drain(self) -> None:
        """The queue evicts all, and takes new ones again."""
        for policy in ("HoldAndDrain", "None"):
            [queue] = self.world.objects(KUEUE, "clusterqueues")
            self.world.patch(KUEUE, "clusterqueues", queue, {"spec": {"stopPolicy": policy}})
            self.world.run_for(15)


@pytest.fixture
def opened() -> Iterator[list[Partial]]:
    made = list[Partial]()
    yield made
    for each in made:
        assert each.world.find_broken() == []
        each.world.close()


@pytest.mark.parametrize("notes", [PARTIAL, EQUAL])
def test_job_stopped_after_some_pods_succeeded_runs_the_others(opened: list[Partial], notes: dict[str, str]):
    opened.append(one := Partial(32, notes))
    one.succeed(4)
    one.drain()
    assert one.counts == (2, 6, 2)
    one.succeed(2)
    assert one.job["status"]["completedIndexes"] == "0-5"
    assert [condition["type"] for condition in one.job["status"]["conditions"] if condition["status"] == "True"][-1] == "Complete"


@pytest.mark.parametrize("notes", [PARTIAL, EQUAL])
def test_job_that_runs_its_last_pods_is_not_evicted_for_those_that_are_done(opened: list[Partial], notes: dict[str, str]):
    opened.append(one := Partial(32, notes))
    one.succeed(4)
    one.drain()
    before = one.world.server.writes
    one.world.run_for(120)
    assert (one.evictions, one.world.server.writes) == (1, before), "the drain alone"


def test_fewest_pods_above_those_that_are_left_let_the_job_be_started(opened: list[Partial]):
    opened.append(one := Partial(32, {MIN_PARALLELISM: "4"}))
    one.succeed(4)
    one.drain()
    assert one.counts == (2, 6, 2)


def test_done_pods_of_partially_admitted_job_give_back_their_quota(opened: list[Partial]):
    opened.append(one := Partial(3, PARTIAL))
    assert one.counts == (3, 6, 3)
    one.succeed(3)
    assert one.counts == (3, 6, 3), "the next three"
    one.succeed(2)
    assert one.counts == (3, 6, 1)
    [queue] = one.world.objects(KUEUE, "clusterqueues")
    used = {entry["name"]: entry["total"] for flavor in queue["status"]["flavorsUsage"] for entry in flavor["resources"]}
    assert used["nvidia.com/gpu"] == "1"


@pytest.mark.parametrize("has_topology", [True, False])
@pytest.mark.parametrize("notes", [PARTIAL, EQUAL])
def test_manifest_applied_again_leaves_a_job_with_fewer_pods_as_it_runs(opened: list[Partial], notes: dict[str, str], has_topology: bool):
    opened.append(one := Partial(3, notes, has_topology=has_topology))
    before = one.counts
    one.change({"parallelism": 6, "completions": 6})
    one.world.run_for(60)
    assert (one.counts, one.evictions) == (before, 0)


def test_manifest_applied_again_after_successes_does_not_make_a_job_complete(opened: list[Partial]):
    opened.append(one := Partial(32, EQUAL))
    one.succeed(4)
    one.drain()
    one.change({"parallelism": 6, "completions": 6})
    one.world.run_for(60)
    assert (one.counts, one.evictions) == ((2, 6, 2), 1)


def test_parallelism_lowered_while_job_runs_with_fewer_pods_is_kept(opened: list[Partial]):
    opened.append(one := Partial(3, PARTIAL))
    one.change({"parallelism": 2})
    one.world.run_for(60)
    assert one.counts == (2, 6, 2)


@pytest.mark.parametrize("parallelism", [2, 6])
def test_parallelism_changed_without_equal_completions_is_refused(opened: list[Partial], parallelism: int):
    opened.append(one := Partial(3, EQUAL))
    with pytest.raises(Refused, match="completions must equal"):
        one.change({"parallelism": parallelism})


def test_equal_counts_lowered_together_are_kept(opened: list[Partial]):
    opened.append(one := Partial(3, EQUAL))
    one.change({"parallelism": 2, "completions": 2})
    one.world.run_for(60)
    assert one.counts == (2, 2, 2)
