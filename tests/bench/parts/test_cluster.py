"""The bench of a cluster asks for what it says, the same each time, and its figures are those of the history."""

from __future__ import annotations

import pytest

from core.model.admission import Admission
from e2e.audit.history import Fact, JobFact, PodFact, WorkloadFact
from e2e.nodes import RACK_LABEL
from tests.bench.parts.cluster_load import GPU, NODES_A_RACK, Load
from tests.bench.parts.cluster_report import describe, summarise


@pytest.mark.parametrize("load", [Load(), Load(640, 500), Load(128, 100, asked=0.5)], ids=lambda load: f"{load.nodes}")
def test_the_load_asks_for_its_share_of_the_gpus_in_the_mean(load: Load):
    plan = load.plan()
    assert plan == load.plan()
    assert len(plan) == load.jobs
    asked = sum(job.in_all * job.run_s for job in plan) / (sum(job.pods for job in plan) / load.pods_per_s)
    assert asked / load.gpus == pytest.approx(load.asked, rel=0.05)


def test_the_full_load_is_of_one_to_128_pods_and_some_need_whole_racks():
    plan = Load().plan()
    assert {min(job.pods for job in plan), max(job.pods for job in plan)} == {1, 128}
    whole = [job for job in plan if job.pods == NODES_A_RACK]
    assert whole
    assert all((job.gpus, job.topology) == (8, {"required": RACK_LABEL}) for job in whole)


def test_the_figures_are_those_of_the_history():
    load = Load(nodes=16, jobs=2)
    plan = load.plan()
    facts: list[Fact] = []
    for i, job in enumerate(plan):
        facts.append(WorkloadFact(0, 10.0 * i + 1, job.name, job.name, Admission(job.queue, ()), {}, False, "", "", False))
        facts.append(JobFact(0, 10.0 * i + 1, job.name, False, 0, False, False, False))
        facts += [_pod(job.name, n, 10.0 * i + 3, job.gpus) for n in range(job.pods)]
        facts += [_pod(job.name, n, 10.0 * i + 8, job.gpus, ended=True) for n in range(job.pods)]
        facts.append(JobFact(0, 10.0 * i + 9, job.name, False, job.pods, True, False, False))
    applied = {job.name: 10.0 * i for i, job in enumerate(plan)}
    row = summarise(load, plan, applied, facts)
    assert row["waits"]["all"]["to_bound_s"] == [3.0, 3.0]
    assert row["waits"]["all"]["jobs"] == 2
    assert row["stages"]["made"] == [2.0, 2.0]
    assert row["free_racks"] == pytest.approx(0.5), "one rack, which has pods from 3 to 8 of the 10 s that count"
    assert row["in_use_by_tenth"] == [pytest.approx(plan[0].in_all / load.gpus * (3 <= second < 8), abs=0.005) for second in range(10)]
    table = describe(row | {"lasted_s": 20, "broken": [], "processes": {"etcd": {"cpu_s": 10.0, "peak_mb": 1}}})
    assert "promises broken at any moment: 0" in table
    assert table.splitlines()[-1].split() == ["etcd", "10.0", "0.50", "1"]


def _pod(workload: str, number: int, at: float, gpus: int, *, ended: bool = False) -> PodFact:
    return PodFact(0, at, f"{workload}-{number}", "", workload, "main", "rack-1", False, ended, False, {GPU: gpus})
