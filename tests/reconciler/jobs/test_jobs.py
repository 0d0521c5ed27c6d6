"""Whether a running job is another by now than what was admitted, on an API server in memory."""

from __future__ import annotations

from typing import Any, cast

import pytest

from core.jobs.kinds.job import Job
from core.jobs.kinds.trainjob import TrainJob
from core.jobs.pod_rules import MAX_TEMPLATE_VALUES
from core.plan.jobs.job_facts import JobFacts
from core.plan.jobs.jobs import _is_resized
from core.plan.steps import pacing
from core.runtime.workqueue import Item
from reconciler.jobs.jobs import Jobs
from sim.harness import Harness
from tests.runtime.fakes import ManualClock

NODE = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}, "spec": {"parallelism": 2}}


def build_train_job(nodes: int | None, *replicated: str, replicas: int = 1) -> dict[str, Any]:
    jobs = [{"name": name, "replicas": replicas, "template": NODE if name == "node" else {}} for name in replicated]
    trainer = {} if nodes is None else {"numNodes": nodes}
    job = {"metadata": {"name": "j"}, "spec": {"trainer": trainer, "runtimeRef": {"name": "r"}}}
    return TrainJob().expand(job, {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}})


def build_workload(**counts: int) -> dict[str, Any]:
    return {"spec": {"podSets": [{"name": name, "count": count} for name, count in counts.items()]}}


@pytest.mark.parametrize(
    ("job", "is_resized"),
    [
        (build_train_job(4, "node"), False),
        (build_train_job(6, "node"), True),
        (build_train_job(2, "node", replicas=2), False),
        (build_train_job(4, "node", "evaluator"), False),
        (build_train_job(None, "node"), False),
        (build_train_job(4), False),
    ],
    ids=["as admitted", "resized", "replicas of the runtime", "runtime with more jobs", "nodes by the runtime", "runtime that is gone"],
)
def test_running_train_job_counts_as_resized_by_its_own_spec(job: dict[str, Any], is_resized: bool):
    assert _is_resized(JobFacts(TrainJob(), job, ""), build_workload(node=4)) == is_resized


def test_a_running_job_is_held_to_its_templates():
    assert _is_resized(JobFacts(Job(), {"spec": {"parallelism": 3}}, ""), build_workload(main=4))
    assert not _is_resized(JobFacts(Job(), {"spec": {"parallelism": 4}}, ""), build_workload(main=4))


@pytest.mark.parametrize(
    ("kind", "namespace", "added"),
    [("TrainingRuntime", "ns", ["ns/t0", "ns/t1", "ns/t2"]), ("TrainingRuntime", "other", []), ("ClusterTrainingRuntime", None, ["ns/c"])],
)
def test_train_jobs_are_queued_in_portions_when_their_runtime_changes(
    monkeypatch: pytest.MonkeyPatch, kind: str, namespace: str | None, added: list[str]
):
    """Found by an attack: a runtime of 50,000 TrainJobs took 0.2 s of the event loop, that of any other namespace 0.1 s."""
    monkeypatch.setattr(pacing, "REFERRING_AT_ONCE", 2)
    harness = Harness(ManualClock())
    watched = Jobs(harness.observed, harness.executor, harness.clock)
    for name in ("t0", "t1", "t2", "c"):
        runtime = {"name": "r", "kind": "ClusterTrainingRuntime" if name == "c" else "TrainingRuntime"}
        harness.put({"kind": "TrainJob", "metadata": {"name": name}, "spec": {"runtimeRef": runtime}})
    entries = watched._queue._state._entries
    entries.clear()
    harness.put({"kind": kind, "metadata": {"name": "r", "namespace": namespace}})
    (changed,) = entries
    turns: list[int] = []
    sleep = harness.clock.sleep

    async def count(seconds: float) -> None:
        turns.append(len(entries) - 1)
        await sleep(seconds)

    harness.clock.sleep = count  # type: ignore[method-assign]
    harness.wait_for(watched._reconcile(Item(changed, frozenset(), 0.0)))
    assert [key for _, key in cast("list[tuple[str, str]]", [key for key in entries if key != changed])] == added
    assert turns == [2] * (len(added) // 2)


def test_train_job_with_runtime_that_is_too_large_waits_until_it_is_smaller():
    """Found by an attack: no webhook judges a runtime, and one of 1.4 MB took 0.2 to 1 s of the event loop at each look at its TrainJob."""
    harness, kind = Harness(ManualClock()), TrainJob()
    job = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"runtimeRef": {"name": "r", "kind": "TrainingRuntime"}}}

    def put_runtime(arguments: int) -> None:
        template = {"spec": {"containers": [{"name": "c", "args": ["a"] * arguments}]}}
        spec = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}]}}}
        harness.put({"kind": "TrainingRuntime", "metadata": {"name": "r"}, "spec": spec})

    put_runtime(MAX_TEMPLATE_VALUES)
    expanded, why = harness.observed.related.expand(kind, job)
    assert why is not None
    assert why.startswith("TrainingRuntime r is too large: at most 20000 values")
    assert kind.list_pod_sets(expanded) == []
    put_runtime(10)
    expanded, why = harness.observed.related.expand(kind, job)
    assert why is None
    assert len(kind.list_pod_sets(expanded)) == 1
