"""A running job is suspended: by its user, who wants it to stay so, or by topogate, which starts it again. On harness."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.contract import Defaults
from core.jobs.kinds.job import Job
from core.jobs.kinds.replica_types import ReplicatedKind
from core.names import FIELD_MANAGER, QUEUE_NAME_LABEL, REASON_SUSPENDED_BY_USER, RESOURCE_IN_USE_FINALIZER, WORKLOAD_ANNOTATION
from core.plan.steps import api_resources as r
from core.plan.workloads.desired_workload import build_workload_name
from core.resource import Obj, PatchKind
from core.runtime.http.errors import Conflict, Invalid
from core.runtime.workqueue import Item
from core.state.facts import find_condition
from reconciler.jobs.jobs import Jobs
from reconciler.observe.slim import list_writers, with_writers_of
from sim.apiserver.server import Request
from sim.harness import Harness
from tests.runtime.fakes import ManualClock

Json = dict[str, Any]
USER = "kubectl-patch"
JOBS = r.get_resource(Job())


def suspended_by(name: str) -> Json:
    """As the API server says who wrote `spec.suspend`."""
    return {"manager": name, "operation": "Update", "fieldsV1": {"f:spec": {"f:suspend": {}}}}


class JobHarness(Harness):
    """A Job that was admitted and runs, of two pods."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.jobs = Jobs(self.observed, self.executor, self.clock)
        metadata: Json = {"name": "train", "namespace": "ns", "labels": {QUEUE_NAME_LABEL: "main"}}
        spec: Json = {"parallelism": 2, "completions": 4, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}
        made = Job().default({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}, Defaults())
        job = self.wait_for(self.client.create(JOBS, made, field_manager=USER))
        self.owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"], "controller": True}
        conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
        given = [{"name": "main", "count": 2, "flavors": {}, "resourceUsage": {}}]
        self.name = build_workload_name(Job(), job)
        self.put(
            {
                "kind": "Workload",
                "metadata": {"name": self.name, "finalizers": [RESOURCE_IN_USE_FINALIZER], "ownerReferences": [self.owner]},
                "spec": {"queueName": "main", "active": True, "podSets": [pod_set.to_wire() for pod_set in Job().list_pod_sets(job)]},
                "status": {"conditions": conditions, "admission": {"clusterQueue": "q", "podSetAssignments": given}},
            }
        )
        self.write(suspend=False, template={"metadata": {"annotations": {WORKLOAD_ANNOTATION: self.name}}}, by=FIELD_MANAGER)

    @property
    def job(self) -> Obj:
        return self.get("Job", "train")

    def write(self, *, by: str, **spec: Any) -> None:
        """A change of the Job; the API server records which manager changed its suspension."""
        self.wait_for(self.client.patch(JOBS, "train", "ns", {"spec": spec}, kind=PatchKind.MERGE, field_manager=by))

    def put_back(self) -> None:
        """The Job as it was before it was started; its Workload is admitted."""
        self.write(suspend=True, template={"metadata": {"annotations": None}}, by=FIELD_MANAGER)
        assert not Job().is_started(self.job)

    def preempt(self) -> None:
        """For the sake of another workload."""
        evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "for another"}
        status = self.workload["status"]
        self.put({**self.workload, "status": {**status, "conditions": [*status["conditions"], evicted]}})

    def step(self, times: int = 1) -> None:
        """The reconciler on the Job."""

        async def reconcile() -> None:
            for _ in range(times):
                await self.jobs._reconcile(Item(("Job.batch", "ns/train"), frozenset(), 0.0))

        self.wait_for(reconcile())

    @property
    def workload(self) -> Obj:
        return self.get("Workload", self.name)

    @property
    def evicted_for(self) -> str:
        return str((find_condition(self.workload, "Evicted") or {}).get("reason") or "")


@pytest.fixture
def harness() -> JobHarness:
    return JobHarness()


def test_evicted_job_that_its_user_suspends_before_the_stop_is_deactivated_until_unsuspended(harness: JobHarness):
    harness.write(parallelism=4, by=USER)
    harness.step()
    assert harness.evicted_for == "DeactivatedDueToJobChanged"
    harness.write(suspend=True, by=USER)
    harness.step(6)
    assert harness.evicted_for == REASON_SUSPENDED_BY_USER
    assert harness.workload["spec"]["active"] is False
    assert "admission" not in harness.workload["status"]
    assert not Job().is_started(harness.job)
    harness.write(suspend=False, by=USER)
    harness.step(6)
    assert harness.workload["spec"]["active"] is True
    assert harness.job["spec"]["suspend"] is True


def test_a_stop_of_topogate_is_no_users_suspension(harness: JobHarness):
    harness.write(parallelism=4, by=USER)
    harness.step(2)
    assert harness.job["spec"]["suspend"] is True
    harness.write(suspend=True, by=USER)  # changes nothing: that it was meant cannot be seen
    harness.step(6)
    assert harness.evicted_for == "DeactivatedDueToJobChanged"
    assert harness.workload["spec"]["active"] is True
    assert harness.workload["spec"]["podSets"][0]["count"] == 4


def test_job_that_was_unsuspended_while_it_waited_starts_on_an_api_server_before_1_36(harness: JobHarness):
    """Found on Kubernetes 1.34: it refuses another template of a suspended Job that has a start time, and the Job never started."""
    harness.put_back()
    started = {"status": {"startTime": "2026-01-01T00:00:00Z"}}  # by the job controller, before topogate suspended it again
    harness.wait_for(harness.client.patch(JOBS, "train", "ns", started, kind=PatchKind.MERGE, subresource="status"))

    def refuse(request: Request) -> None:
        if request.kind.kind == "Job" and not request.subresource and "startTime" in (harness.job.get("status") or {}):
            raise Invalid(422, "Invalid", "spec.template: field is immutable")

    harness.on_write = refuse
    harness.step()
    assert harness.job["spec"]["suspend"] is False
    assert Job().is_started(harness.job)


def test_job_that_is_not_observed_to_be_started_is_stopped_before_its_quota_is_given_back(harness: JobHarness):
    harness.put_back()
    harness.late.add("Job")
    harness.step()
    assert harness.job["spec"]["suspend"] is False
    harness.preempt()
    while harness.job["spec"]["suspend"] is False:
        assert "admission" in harness.workload["status"]
        harness.step()
    harness.step(6)
    assert "admission" not in harness.workload["status"]
    assert not Job().is_started(harness.job)


def test_a_job_that_topogate_stopped_and_that_is_admitted_before_its_templates_are_restored_is_started_anew(harness: JobHarness):
    """As happens where its quota was given back too early, or its Workload deleted by force."""
    harness.write(suspend=True, by=FIELD_MANAGER)
    harness.step(3)
    assert harness.evicted_for == ""
    assert harness.workload["spec"]["active"] is True
    assert harness.job["spec"]["suspend"] is False
    assert Job().is_started(harness.job)


@pytest.mark.parametrize("known", [True, False], ids=["known by whom", "nobody knows by whom"])
def test_a_job_that_its_user_suspends_gives_its_quota_back(harness: JobHarness, known: bool):
    harness.write(suspend=True, by=USER)
    if not known:
        job = harness.job
        harness.drop("Job", "train")
        harness.put(job)
    harness.step(6)
    assert harness.evicted_for == REASON_SUSPENDED_BY_USER
    assert harness.workload["spec"]["active"] is False
    assert "admission" not in harness.workload["status"]


def test_workload_deactivated_by_administrator_stays_inactive_when_user_suspends_and_unsuspends_its_job(harness: JobHarness):
    workload = harness.workload
    harness.put({**workload, "spec": {**workload["spec"], "active": False}})
    harness.step()
    assert harness.evicted_for == "Deactivated"
    harness.write(suspend=True, by=USER)
    harness.step(6)
    harness.write(suspend=False, by=USER)
    harness.step(6)
    assert harness.workload["spec"]["active"] is False
    assert harness.job["spec"]["suspend"] is True


@pytest.mark.parametrize(("grace_s", "is_named", "gives_back"), [(0, True, True), (30, True, False), (30, False, True)])
def test_a_stopped_job_waits_for_pods_that_end_and_not_for_those_of_which_only_a_finalizer_is_left(
    harness: JobHarness, grace_s: int, is_named: bool, gives_back: bool
):
    """Of an index that fails by itself the Job controller keeps the last pod until it makes another, which needs the job to run. Nor is a
    pod waited for that the Job has adopted: it names no workload."""
    metadata = {
        "name": "train-0",
        "ownerReferences": [harness.owner],
        "deletionTimestamp": harness.now(),
        "deletionGracePeriodSeconds": grace_s,
    }
    metadata["annotations"] = {WORKLOAD_ANNOTATION: harness.name} if is_named else {}
    harness.put({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "lost", "containers": []}, "status": {"phase": "Running"}})
    harness.write(parallelism=4, by=USER)
    harness.step(2)
    harness.put({**harness.job, "status": {"terminating": 1}})
    harness.step(6)
    assert ("admission" not in harness.workload["status"]) == gives_back


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ([suspended_by("a"), {"manager": "b", "fieldsV1": {"f:spec": {"f:parallelism": {}}}}], {"a"}),
        ([suspended_by("a"), suspended_by("b")], {"a", "b"}),
        ([{"manager": "a", "fieldsV1": {"f:spec": {}}}, {"manager": "b"}, {"manager": "c", "fieldsV1": {"f:spec": None}}], set()),
        (None, set()),
    ],
    ids=["one", "two", "of another field", "not told"],
)
def test_of_managed_fields_only_the_writers_of_one_field_are_kept(entries: Any, names: set[str]):
    kept = with_writers_of(Job().suspend_path)({"metadata": {"name": "j", "managedFields": entries}, "spec": {"suspend": True}})
    assert list_writers(kept) == names
    assert kept["spec"] == {"suspend": True}
    assert "fieldsV1" not in str(kept)


def test_deep_fields_are_found():
    entry = {"manager": "a", "fieldsV1": {"f:spec": {"f:runPolicy": {"f:suspend": {}}}}}
    assert list_writers(with_writers_of(ReplicatedKind.suspend_path)({"metadata": {"managedFields": [entry]}})) == {"a"}


def test_an_eviction_of_a_job_suspended_by_its_user_undoes_nothing_that_was_written_meanwhile(harness: JobHarness):
    """Former defect: a body made from the cache was applied with force, and a replacement of nodes was undone under running pods."""

    def replace_meanwhile(request: Request) -> None:
        if (request.kind.kind, request.subresource) == ("Workload", "status"):
            harness.on_write = lambda _: None
            status = harness.workload["status"]
            harness.put({**harness.workload, "status": {**status, "admission": {**status["admission"], "clusterQueue": "another"}}})

    harness.on_write = replace_meanwhile
    harness.write(suspend=True, by=USER)
    with pytest.raises(Conflict):
        harness.step()
    assert harness.workload["status"]["admission"]["clusterQueue"] == "another"
    harness.step()
    assert harness.evicted_for == REASON_SUSPENDED_BY_USER
    assert harness.workload["status"]["admission"]["clusterQueue"] == "another"
