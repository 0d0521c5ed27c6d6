"""A job that another program resumes again and again is suspended ever more seldom, if its pods wait behind gates."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from core.jobs.contract import Defaults
from core.jobs.kinds.registry import KINDS
from core.plan.jobs.job_facts import JobFacts
from core.plan.jobs.jobs import FREE_SUSPENSIONS, SUSPEND, plan_job
from core.plan.steps import pacing
from core.plan.steps.steps import Plan
from reconciler.jobs.suspensions import Suspensions
from tests.runtime.fakes import ManualClock

Json = dict[str, Any]
JOB = next(kind for kind in KINDS if (kind.kind, kind.group) == ("Job", "batch"))


def build_job(*, is_gated: bool = True) -> Json:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "s", "controller": True}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": labels, "ownerReferences": [owner]}
    job = JOB.default({"metadata": metadata, "spec": {"template": {"spec": {"containers": []}}}}, Defaults())
    job = job if is_gated else JOB.ungate(job)
    return {**job, "spec": {**job["spec"], "suspend": False}}


def plan(job: Json, suspensions: Suspensions, *, has_quota: bool = False) -> Plan:
    metadata = {"name": "w", "namespace": "ns", "uid": "w", "resourceVersion": "1"}
    workload = {"metadata": metadata, "spec": {"podSets": []}, "status": {"admission": {}}} if has_quota else None
    facts = JobFacts(JOB, job, "2026-01-01T00:00:00Z", workload)
    return plan_job(replace(facts, suspensions=suspensions.count("u"), suspension_wait_s=suspensions.find_wait("u")))


async def suspend_for(seconds: float, job: Json, *, has_quota: bool = False) -> tuple[list[str], list[float]]:
    """The other program resumes the job as soon as it is suspended; returns the messages of all suspensions, and their times."""
    clock = ManualClock()
    suspensions = Suspensions(clock)
    messages, times, until = list[str](), list[float](), clock.monotonic() + seconds
    while clock.monotonic() < until:
        planned = plan(job, suspensions, has_quota=has_quota)
        if planned.names == (SUSPEND,):
            suspensions.note("u")
            times.append(clock.monotonic())
            messages += [event.message for event in planned.steps[0].events]
        await clock.sleep(planned.again_s or 0.05)
    return messages, times


async def test_job_with_gated_pods_is_suspended_ever_more_seldom():
    messages, times = await suspend_for(600, build_job())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx(
        [0.05] * (FREE_SUSPENSIONS - 1) + [1, 2, 4] + [pacing.SUSPENSION_LONGEST_S] * (len(gaps) - FREE_SUSPENSIONS - 2), abs=0.1
    )
    assert len(messages) < 130
    assert messages[-1].startswith(messages[0])
    named = ("JobSet set", "kueue.x-k8s.io/queue-name")
    assert [[name in message for name in named] for message in (messages[0], messages[-1])] == [[False, False], [True, True]]


@pytest.mark.parametrize(("is_gated", "has_quota"), [(False, False), (True, True)])
async def test_job_with_pods_that_can_run_or_with_quota_is_suspended_at_once(is_gated: bool, has_quota: bool):
    messages, _ = await suspend_for(10, build_job(is_gated=is_gated), has_quota=has_quota)
    assert len(messages) == pytest.approx(200, abs=2)


async def test_job_that_was_left_alone_for_minutes_is_suspended_at_once_again():
    clock = ManualClock()
    suspensions = Suspensions(clock)
    for _ in range(FREE_SUSPENSIONS):
        assert plan(build_job(), suspensions).names == (SUSPEND,)
        suspensions.note("u")
    assert plan(build_job(), suspensions).names == ()
    await clock.sleep(pacing.SUSPENSION_REMEMBERED_S + 1)
    assert plan(build_job(), suspensions).names == (SUSPEND,)
