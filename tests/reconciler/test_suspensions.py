"""A running job is suspended: by its user, who wants it to stay so, or by topogate, which starts it again. On paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from core.jobs.contract import Defaults, JobKind
from core.jobs.job import Job
from core.jobs.replicas import ReplicatedKind
from core.names import QUEUE_NAME_LABEL, REASON_SUSPENDED_BY_USER, RESOURCE_IN_USE_FINALIZER, WORKLOAD_ANNOTATION
from core.plan.merge import merge_patch
from core.plan.workload import workload_name
from core.runtime.resource import Obj
from core.runtime.watch_step import Applied
from core.runtime.workqueue import Item
from core.state.facts import find_condition
from reconciler.apply import FIELD_MANAGER, Writer
from reconciler.jobs import Jobs
from reconciler.slim import with_writers_of, writers
from tests.reconciler.paper import Paper

Json = dict[str, Any]
USER = "kubectl-patch"


def suspended_by(name: str) -> Json:
    """As the API server says who wrote `spec.suspend`."""
    return {"manager": name, "operation": "Update", "fieldsV1": {"f:spec": {"f:suspend": {}}}}


class JobPaper(Paper):
    """A Job that was admitted and runs, of two pods."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False  # the watch of Jobs brings nothing new
        self.jobs = Jobs(self.observed, cast("Writer", self), self.clock)
        self._informers["Job"] = self.observed.jobs["Job.batch"]
        metadata: Json = {"name": "train", "namespace": "ns", "labels": {QUEUE_NAME_LABEL: "main"}}
        spec: Json = {"parallelism": 2, "completions": 4, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}
        job = self.put(Job().default({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}, Defaults()))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
        conditions = [{"type": kind, "status": "True", "reason": kind, "message": ""} for kind in ("QuotaReserved", "Admitted")]
        given = [{"name": "main", "count": 2, "flavors": {}, "resourceUsage": {}}]
        self.name = workload_name(Job(), job)
        self.put(
            {
                "kind": "Workload",
                "metadata": {"name": self.name, "finalizers": [RESOURCE_IN_USE_FINALIZER], "ownerReferences": [owner]},
                "spec": {"queueName": "main", "active": True, "podSets": [pod_set.to_wire() for pod_set in Job().pod_sets(job)]},
                "status": {"conditions": conditions, "admission": {"clusterQueue": "q", "podSetAssignments": given}},
            }
        )
        started = {**job["spec"]["template"], "metadata": {"annotations": {WORKLOAD_ANNOTATION: self.name}}}
        self.write(suspend=False, template=started, by=FIELD_MANAGER)

    def write(self, *, by: str, **spec: Any) -> None:
        """A change of the Job; who changes its suspension is known from then on."""
        job = self.get("Job", "train")
        metadata = job["metadata"]
        if "suspend" in spec and spec["suspend"] != job["spec"].get("suspend"):
            metadata = {**metadata, "managedFields": [suspended_by(by)]}
        self.put({**job, "metadata": metadata, "spec": {**job["spec"], **spec}})

    def put(self, obj: Mapping[str, Any]) -> Obj:
        informer = self._informers.pop("Job") if self.is_late and obj["kind"] == "Job" else None
        stored = super().put(obj)
        if informer is not None:
            self._informers["Job"] = informer
        return stored

    def catch_up(self) -> None:
        """The watch brings what has happened."""
        self.is_late = False
        self.put(self.get("Job", "train"))

    def put_back(self) -> None:
        """The Job as it was before it was started; its Workload is admitted."""
        template = self.get("Job", "train")["spec"]["template"]
        self.write(suspend=True, template={**template, "metadata": {}}, by=FIELD_MANAGER)
        assert not Job().is_started(self.get("Job", "train"))

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

    async def change_job(self, kind: JobKind, job: Obj, changed: Mapping[str, Any]) -> Obj:
        spec = merge_patch(job, changed).get("spec") or {}
        self.write(by=FIELD_MANAGER, **{key: changed["spec"][key] for key in spec})
        return self.get("Job", "train")


@pytest.fixture
def paper() -> JobPaper:
    return JobPaper()


def test_a_user_who_suspends_before_topogate_stops_the_job_keeps_it_suspended(paper: JobPaper):
    paper.write(parallelism=4, by=USER)
    paper.step()
    assert paper.evicted_for == "DeactivatedDueToJobChanged"
    paper.write(suspend=True, by=USER)
    paper.step(6)
    assert paper.evicted_for == REASON_SUSPENDED_BY_USER
    assert paper.workload["spec"]["active"] is False
    assert "admission" not in paper.workload["status"]
    assert not Job().is_started(paper.get("Job", "train"))
    paper.write(suspend=False, by=USER)
    paper.step(6)
    assert paper.workload["spec"]["active"] is True
    assert paper.get("Job", "train")["spec"]["suspend"] is True


def test_a_stop_of_topogate_is_no_users_suspension(paper: JobPaper):
    paper.write(parallelism=4, by=USER)
    paper.step(2)
    assert paper.get("Job", "train")["spec"]["suspend"] is True
    paper.write(suspend=True, by=USER)  # changes nothing: that it was meant cannot be seen
    paper.step(6)
    assert paper.evicted_for == "DeactivatedDueToJobChanged"
    assert paper.workload["spec"]["active"] is True
    assert paper.workload["spec"]["podSets"][0]["count"] == 4


def test_a_start_that_is_not_seen_yet_is_not_taken_for_a_job_that_has_stopped(paper: JobPaper):
    """Its quota would be given back while it runs, and its next admission find it so."""
    paper.put_back()
    paper.is_late = True
    paper.step()
    assert paper.get("Job", "train")["spec"]["suspend"] is False
    paper.preempt()
    paper.step(6)
    assert "admission" in paper.workload["status"]
    paper.catch_up()
    paper.step(6)
    assert "admission" not in paper.workload["status"]
    assert paper.get("Job", "train")["spec"]["suspend"] is True
    assert not Job().is_started(paper.get("Job", "train"))


def test_a_job_made_anew_is_not_behind_what_was_written_to_the_one_before(paper: JobPaper):
    paper.put_back()
    paper.is_late = True
    paper.step()
    paper.is_late = False
    fresh = paper.get("Job", "train")
    for version in ("1", "2"):
        metadata = {**fresh["metadata"], "uid": "uid-another", "resourceVersion": version}
        paper.observed.jobs["Job.batch"]._fold(Applied({**fresh, "metadata": metadata}))
    assert paper.jobs._written == {}


def test_a_job_that_topogate_stopped_and_that_is_admitted_before_its_templates_are_restored_is_started_anew(paper: JobPaper):
    """As happens where its quota was given back too early, or its Workload deleted by force."""
    paper.write(suspend=True, by=FIELD_MANAGER)
    paper.step(3)
    assert paper.evicted_for == ""
    assert paper.workload["spec"]["active"] is True
    assert paper.get("Job", "train")["spec"]["suspend"] is False
    assert Job().is_started(paper.get("Job", "train"))


@pytest.mark.parametrize("known", [True, False], ids=["known by whom", "nobody knows by whom"])
def test_a_job_that_its_user_suspends_gives_its_quota_back(paper: JobPaper, known: bool):
    paper.write(suspend=True, by=USER)
    if not known:
        job = paper.get("Job", "train")
        paper.put({**job, "metadata": {key: value for key, value in job["metadata"].items() if key != "managedFields"}})
    paper.step(6)
    assert paper.evicted_for == REASON_SUSPENDED_BY_USER
    assert paper.workload["spec"]["active"] is False
    assert "admission" not in paper.workload["status"]


def test_what_an_administrator_deactivated_stays_so_when_the_user_suspends_and_unsuspends(paper: JobPaper):
    workload = paper.workload
    paper.put({**workload, "spec": {**workload["spec"], "active": False}})
    paper.step()
    assert paper.evicted_for == "Deactivated"
    paper.write(suspend=True, by=USER)
    paper.step(6)
    paper.write(suspend=False, by=USER)
    paper.step(6)
    assert paper.workload["spec"]["active"] is False
    assert paper.get("Job", "train")["spec"]["suspend"] is True


@pytest.mark.parametrize(("grace_s", "is_named", "gives_back"), [(0, True, True), (30, True, False), (30, False, True)])
def test_a_stopped_job_waits_for_pods_that_end_and_not_for_those_of_which_only_a_finalizer_is_left(
    paper: JobPaper, grace_s: int, is_named: bool, gives_back: bool
):
    """Of an index that fails by itself the Job controller keeps the last pod until it makes another, which needs the job to run. Nor is a
    pod waited for that the Job has adopted: it names no workload."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    metadata = {"name": "train-0", "ownerReferences": [owner], "deletionTimestamp": paper.now(), "deletionGracePeriodSeconds": grace_s}
    metadata["annotations"] = {WORKLOAD_ANNOTATION: paper.name} if is_named else {}
    paper.put({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "lost", "containers": []}, "status": {"phase": "Running"}})
    paper.write(parallelism=4, by=USER)
    paper.step(2)
    paper.put({**paper.get("Job", "train"), "status": {"terminating": 1}})
    paper.step(6)
    assert ("admission" not in paper.workload["status"]) == gives_back


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
    assert writers(kept) == names
    assert kept["spec"] == {"suspend": True}
    assert "fieldsV1" not in str(kept)


def test_deep_fields_are_found():
    entry = {"manager": "a", "fieldsV1": {"f:spec": {"f:runPolicy": {"f:suspend": {}}}}}
    assert writers(with_writers_of(ReplicatedKind.suspend_path)({"metadata": {"managedFields": [entry]}})) == {"a"}


def test_an_eviction_of_a_job_suspended_by_its_user_undoes_nothing_that_was_written_meanwhile(monkeypatch: pytest.MonkeyPatch):
    """Found defect D6: a body made from the cache was applied with force, and a replacement of nodes was undone under running pods."""
    paper = JobPaper()
    written: list[tuple[Any, bool]] = []
    apply, deactivate = paper.apply_admission, paper.deactivate

    async def replace_meanwhile(workload: Obj, reason: str) -> Obj:
        moved = paper.get("Workload", paper.name)
        status = {**moved["status"], "admission": {**moved["status"]["admission"], "clusterQueue": "another"}}
        paper.put({**moved, "status": status})
        return await deactivate(paper.get("Workload", paper.name), reason)

    async def note(workload: Obj, status: Mapping[str, Any], *, strict: bool) -> Obj:
        written.append(((status.get("admission") or {}).get("clusterQueue"), strict))
        return await apply(workload, status, strict=strict)

    monkeypatch.setattr(paper, "deactivate", replace_meanwhile)
    monkeypatch.setattr(paper, "apply_admission", note)
    paper.write(suspend=True, by=USER)
    paper.step(2)
    assert ("another", True) in written
    assert all(strict for _, strict in written)
