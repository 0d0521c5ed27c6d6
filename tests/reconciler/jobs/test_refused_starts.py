"""A job that has its quota and whose start is refused: the reason is reported, and its quota is given back after some time. On harness."""

from __future__ import annotations

import contextlib

import pytest

from core.names import CLUSTER_QUEUE_LABEL, FIELD_MANAGER, PODSET_LABEL, TOPOLOGY_GATE
from core.plan.steps import pacing
from core.runtime.http.errors import BadRequest, Forbidden, Invalid, KubeError, ServerError
from core.runtime.workqueue import Item
from core.state.facts import find_condition, is_condition_true
from reconciler.workloads.activity import Activity
from sim.apiserver.server import Request
from tests.reconciler.jobs.test_suspensions import JobHarness

DENIED = 'admission webhook "names.example.com" denied the request: spec.template: no'
REFUSED = "DeactivatedDueToStartRefused"


class RefusingHarness(JobHarness):
    """A Job that was admitted and that waits for its start."""

    def __init__(self) -> None:
        super().__init__()
        self.activity = Activity(self.observed, self.executor, self.clock)
        self.put_back()
        status = self.workload["status"]
        conditions = [{**condition, "lastTransitionTime": self.now()} for condition in status["conditions"]]
        self.put({**self.workload, "status": {**status, "conditions": conditions}})

    def refuse_starts(self, error: KubeError) -> None:
        def meet(request: Request) -> None:
            if request.kind.kind == "Job" and request.params.get("fieldManager") == FIELD_MANAGER and not request.subresource:
                raise error

        self.on_write = meet

    def start(self) -> None:
        """Steps of the reconciler; the last error of a refused start is passed over, as the queue of the controller does."""

        async def settle() -> None:
            for _ in range(3):
                await self.activity._reconcile(Item(f"ns/{self.name}", frozenset(), 0.0))

        with contextlib.suppress(KubeError):
            self.step(2)
        self.wait_for(settle())


@pytest.fixture
def harness() -> RefusingHarness:
    return RefusingHarness()


@pytest.mark.parametrize(
    "error",
    [Invalid(422, "Invalid", DENIED), Forbidden(403, "Forbidden", DENIED), BadRequest(400, "BadRequest", DENIED)],
    ids=lambda e: e.reason,
)
def test_refused_start_is_reported_at_once_and_gives_quota_back_after_some_time(harness: RefusingHarness, error: KubeError):
    """Such a job held its quota without pods for as long as it lived."""
    harness.refuse_starts(error)
    harness.start()
    assert [event.reason for event in harness.events if event.kind == "Job"] == ["WorkloadRefused"]
    assert DENIED in next(event.message for event in harness.events)
    assert [event.reason for event in harness.events if event.kind == "Workload"] == ["WorkloadRefused"]
    assert harness.evicted_for == ""
    harness.clock.time += pacing.START_PATIENCE_S  # type: ignore[attr-defined]
    harness.start()
    assert harness.evicted_for == REFUSED
    harness.on_write = lambda _: None
    harness.step(3)
    assert "admission" not in harness.workload["status"]
    assert harness.workload["spec"]["active"] is False
    message = (find_condition(harness.workload, "Evicted") or {})["message"]
    assert "Job train" in message
    assert DENIED in message
    harness.write(parallelism=1, by="kubectl")
    harness.step(3)
    assert harness.workload["spec"]["active"] is True, "the changed job is queued again"


@pytest.mark.parametrize("is_of_start", [True, False])
def test_pods_without_their_annotation_stop_the_job_with_the_true_reason(harness: RefusingHarness, is_of_start: bool):
    """Another webhook removed it: the job was started and stopped in a circle, and the reason was another."""
    harness.start()
    assert harness.job["spec"]["suspend"] is False
    labels = {PODSET_LABEL: "main", CLUSTER_QUEUE_LABEL: "q"} if is_of_start else {}
    metadata = {"name": "train-0", "labels": labels, "ownerReferences": [harness.owner]}
    harness.put({"kind": "Pod", "metadata": metadata, "spec": {"schedulingGates": [{"name": TOPOLOGY_GATE}], "containers": []}})
    harness.start()
    message = str((find_condition(harness.workload, "Evicted") or {}).get("message"))
    if not is_of_start:
        assert harness.evicted_for == "DeactivatedDueToJobChanged"
        assert "before it was started" in message
        return
    assert harness.evicted_for == REFUSED
    assert harness.workload["spec"]["active"] is False
    assert "pod train-0 has no annotation kueue.x-k8s.io/workload" in message
    assert any(event.reason == "WorkloadRefused" and event.kind == "Job" for event in harness.events)


@pytest.mark.parametrize(
    "error",
    [ServerError(500, "InternalError", DENIED), Forbidden(403, "Forbidden", 'User "topogate" cannot patch resource "jobs"')],
    ids=["an outage", "a missing right"],
)
def test_start_that_fails_for_no_fault_of_the_job_is_tried_for_ever(harness: RefusingHarness, error: KubeError):
    harness.refuse_starts(error)
    harness.clock.time += 10 * pacing.START_PATIENCE_S  # type: ignore[attr-defined]
    harness.start()
    assert not is_condition_true(harness.workload, "DeactivationTarget")
    assert harness.evicted_for == ""
    harness.on_write = lambda _: None
    harness.start()
    assert harness.job["spec"]["suspend"] is False


def test_start_that_is_refused_once_long_after_the_admission_is_tried_again(harness: RefusingHarness):
    harness.clock.time += 10 * pacing.START_PATIENCE_S  # type: ignore[attr-defined]
    harness.refuse_starts(Forbidden(403, "Forbidden", DENIED))
    harness.start()
    assert harness.evicted_for == ""
    harness.on_write = lambda _: None
    harness.start()
    assert harness.job["spec"]["suspend"] is False
