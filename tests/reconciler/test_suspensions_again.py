"""A job that another program resumes again and again is suspended ever more seldom, if its pods wait behind gates."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from core.jobs.contract import Defaults
from core.jobs.kinds import KINDS
from core.runtime.controller import Done, RequeueAfter
from reconciler.suspensions import FREE, LONGEST_S, REMEMBERED_S, Suspensions
from tests.runtime.fakes import ManualClock

Json = dict[str, Any]
JOB = next(kind for kind in KINDS if (kind.kind, kind.group) == ("Job", "batch"))


class Recorder:
    """An executor that counts writes and keeps the messages of events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.writes = 0
        self.reporter = self

    def event(self, resource: Any, obj: Json, reason: str, message: str) -> None:
        self.events.append(message)

    async def do(self, write: Any) -> None:
        self.writes += 1


def build_job(*, is_gated: bool = True) -> Json:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "s", "controller": True}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "labels": labels, "ownerReferences": [owner]}
    job = JOB.default({"metadata": metadata, "spec": {"template": {"spec": {"containers": []}}}}, Defaults())
    return {**job, "spec": {**job["spec"], "suspend": False}} if is_gated else JOB.ungate(job)


async def suspend_for(seconds: float, job: Json, *, may_wait: bool = True) -> tuple[Recorder, list[float]]:
    """The other program resumes the job as soon as it is suspended; returns the times at which that was, too."""
    recorder, clock = Recorder(), ManualClock()
    suspensions = Suspensions(cast(Any, recorder), clock)
    times, until = [], clock.monotonic() + seconds
    while clock.monotonic() < until:
        result = await suspensions.suspend(JOB, job, "Suspended: it is not admitted", may_wait=may_wait)
        if isinstance(result, Done):
            times.append(clock.monotonic())
        await clock.sleep(result.seconds if isinstance(result, RequeueAfter) else 0.05)
    return recorder, times


async def test_job_with_gated_pods_is_suspended_ever_more_seldom():
    recorder, times = await suspend_for(600, build_job())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([0.05] * (FREE - 1) + [1, 2, 4] + [LONGEST_S] * (len(gaps) - FREE - 2), abs=0.1)
    assert recorder.writes == len(recorder.events) < 130
    assert recorder.events[0] == "Suspended: it is not admitted"
    why = "JobSet set resumes it again and again: the label kueue.x-k8s.io/queue-name belongs on that"
    assert recorder.events[-1] == f"Suspended: it is not admitted. {why}"


@pytest.mark.parametrize(("is_gated", "may_wait"), [(False, True), (True, False)])
async def test_job_with_pods_that_can_run_or_with_quota_is_suspended_at_once(is_gated: bool, may_wait: bool):
    recorder, _ = await suspend_for(10, build_job(is_gated=is_gated), may_wait=may_wait)
    assert recorder.writes == pytest.approx(200, abs=2)


async def test_job_that_was_left_alone_for_minutes_is_suspended_at_once_again():
    recorder, clock = Recorder(), ManualClock()
    suspensions = Suspensions(cast(Any, recorder), clock)
    for _ in range(FREE):
        assert isinstance(await suspensions.suspend(JOB, build_job(), "why", may_wait=True), Done)
    assert isinstance(await suspensions.suspend(JOB, build_job(), "why", may_wait=True), RequeueAfter)
    await clock.sleep(REMEMBERED_S + 1)
    assert isinstance(await suspensions.suspend(JOB, build_job(), "why", may_wait=True), Done)
