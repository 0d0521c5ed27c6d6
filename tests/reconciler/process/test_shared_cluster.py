"""Jobs of six teams on one cluster: all end, nothing is ever booked twice, and a crash in the middle costs time only."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from e2e.api import PATIENCE_S, wait_for
from e2e.audit import truth
from e2e.audit.audit import audit
from e2e.audit.history import Fact, History, JobFact, PodFact, WorkloadFact
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.reconciler.shared_cluster import GPU, NAMESPACE, QUEUES, Asked, SharedCluster, draw_crowd

pytestmark = pytest.mark.cluster
COUNTS = [80, pytest.param(500, marks=pytest.mark.long)]


@pytest.fixture
def shared(cluster: Cluster, topogate: Topogate) -> Iterator[SharedCluster]:
    with SharedCluster(cluster) as opened:
        yield opened


@pytest.mark.parametrize("count", COUNTS)
def test_a_crowd_of_jobs_runs_to_its_end_across_a_crash(cluster: Cluster, shared: SharedCluster, topogate: Topogate, count: int) -> None:
    crowd = draw_crowd(count)
    with History(cluster, NAMESPACE) as history, ThreadPoolExecutor(1) as threads:
        shared.submit(crowd[:1])
        wait_for("the first to be admitted", partial(_all_are, shared, "Admitted"))
        submitting = threads.submit(shared.submit, crowd[1:])
        _wait_until_complete(history, shared, count * 2 // 5)
        topogate.kill_reconciler()
        topogate.start_reconciler()
        submitting.result()
        _wait_until_complete(history, shared, len(crowd))
        # A job is complete before its workload is: that follows from it.
        now = wait_for("their workloads to be finished", partial(_all_are, shared, "Finished"))
    facts = history.facts()
    required = {asked.name: asked.required for asked in crowd if asked.required is not None}
    assert audit(facts, shared.nodes(), shared.queues(), required) == []
    assert [pod["metadata"]["name"] for pod in now.pods_in(NAMESPACE) if truth.has_gate(pod)] == []
    assert _failed(facts) == set()
    _assert_nothing_ran_twice(crowd, facts)
    _assert_the_crowd_was_a_crowd(facts)


def _wait_until_complete(history: History, shared: SharedCluster, count: int) -> None:
    """Ends with a picture of what waits and why if nothing gets on any more."""
    while len(history.complete) < count:
        still = time.monotonic() - history.changed_at
        if still > PATIENCE_S:
            pytest.fail(f"nothing has got on for {still:.0f} s:\n{shared.picture()}")
        time.sleep(0.1)


def _all_are(shared: SharedCluster, condition: str) -> truth.Snapshot | None:
    now = shared.read()
    return now if now.workloads and all(truth.is_true(workload, condition) for workload in now.workloads) else None


def _failed(facts: list[Fact]) -> set[str]:
    return {fact.name for fact in facts if isinstance(fact, JobFact) and fact.failed}


def _assert_nothing_ran_twice(crowd: list[Asked], facts: list[Fact]) -> None:
    """Who was never stopped had as many pods as it asked for, crash or no crash; and whoever was stopped was preempted."""
    jobs = {fact.name: fact.job for fact in facts if isinstance(fact, WorkloadFact)}
    stopped = {fact.job: fact.evicted for fact in facts if isinstance(fact, WorkloadFact) and fact.evicted}
    assert set(stopped.values()) <= {"Preempted"}
    made: dict[str, set[str]] = defaultdict(set)
    for fact in facts:
        if isinstance(fact, PodFact):
            made[jobs[fact.workload]].add(fact.uid)
    wrong = {asked.name: (len(made[asked.name]), asked.pods) for asked in crowd if asked.name not in stopped}
    assert {name: counts for name, counts in wrong.items() if counts[0] != counts[1]} == {}


def _assert_the_crowd_was_a_crowd(facts: list[Fact]) -> None:
    """Queues borrowed, and some were stopped, the first for one of higher priority: else the test shows nothing."""
    assert {"InClusterQueue", "InCohortReclamation"} & {fact.preempted for fact in facts if isinstance(fact, WorkloadFact)}
    most: Counter[str] = Counter()
    held: dict[str, tuple[str, int]] = {}
    for fact in facts:
        if isinstance(fact, WorkloadFact):
            held.pop(fact.name, None)
            if fact.admission is not None and not fact.finished:
                queue = fact.admission.cluster_queue
                held[fact.name] = (queue, sum(pod_set.usage.get(GPU, 0) for pod_set in fact.admission.pod_sets))
                most[queue] = max(most[queue], sum(gpus for owner, gpus in held.values() if owner == queue))
    assert [queue for queue, (_, own, _) in QUEUES.items() if most[queue] > own], f"no queue borrowed: {most}"
