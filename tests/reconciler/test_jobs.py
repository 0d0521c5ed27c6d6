"""Whether a running job is another by now than what was admitted, on paper."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.job import Job
from core.jobs.trainjob import TrainJob
from reconciler.jobs import _is_resized

NODE = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}, "spec": {"parallelism": 2}}


def train_job(nodes: int | None, *replicated: str, replicas: int = 1) -> dict[str, Any]:
    jobs = [{"name": name, "replicas": replicas, "template": NODE if name == "node" else {}} for name in replicated]
    trainer = {} if nodes is None else {"numNodes": nodes}
    job = {"metadata": {"name": "j"}, "spec": {"trainer": trainer, "runtimeRef": {"name": "r"}}}
    return TrainJob().expanded(job, {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}})


def workload(**counts: int) -> dict[str, Any]:
    return {"spec": {"podSets": [{"name": name, "count": count} for name, count in counts.items()]}}


@pytest.mark.parametrize(
    ("job", "is_resized"),
    [
        (train_job(4, "node"), False),
        (train_job(6, "node"), True),
        (train_job(2, "node", replicas=2), False),
        (train_job(4, "node", "evaluator"), False),
        (train_job(None, "node"), False),
        (train_job(4), False),
    ],
    ids=["as admitted", "resized", "replicas of the runtime", "runtime with more jobs", "nodes by the runtime", "runtime that is gone"],
)
def test_a_running_train_job_is_held_to_what_it_says_itself(job: dict[str, Any], is_resized: bool):
    assert _is_resized(TrainJob(), job, workload(node=4)) == is_resized


def test_a_running_job_is_held_to_its_templates():
    assert _is_resized(Job(), {"spec": {"parallelism": 3}}, workload(main=4))
    assert not _is_resized(Job(), {"spec": {"parallelism": 4}}, workload(main=4))
