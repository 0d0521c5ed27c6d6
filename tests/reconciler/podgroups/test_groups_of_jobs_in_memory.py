"""PodGroups of jobs that ask for one: made once, kept in step, mended, and never taken from others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from core.jobs.annotation_catalog import GROUPED
from core.jobs.podgroup_annotation import with_membership
from core.names import EVENT_POD_GROUP_REFUSED, LWS_GROUP_INDEX_LABEL, LWS_NAME_LABEL, POD_GROUP_SCHEDULED
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.http.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, Unreachable
from reconciler.jobs.podgroups_of_jobs import JobKey, PodGroupsOfJobs
from sim.apiserver.server import Request
from sim.harness import Harness
from tests.reconciler.harness_groups import GroupsHarness
from tests.runtime.fakes import ManualClock
from tests.webhook.reviews.test_group_reviews import BY_NAME, build_object

NAMES = {kind: f"{kind}.{BY_NAME[kind].group}" for kind in GROUPED}


class JobsHarness(Harness):
    """Jobs, and the PodGroups that are made for them."""

    clock: ManualClock

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.part = PodGroupsOfJobs(self.observed, self.executor, self.clock)

    def submit(self, obj: Obj) -> Obj:
        """As the webhook leaves it."""
        obj = with_membership(BY_NAME[obj["kind"]], obj, "g")
        return self.put({**obj, "metadata": {**obj["metadata"], "uid": "u"}})

    def fail(self, error: KubeError) -> None:
        """So ends each write of a PodGroup from now on."""

        def raise_error(request: Request) -> None:
            if request.kind.kind == "PodGroup":
                raise error

        self.on_write = raise_error

    def look(self, kind: str = "Job") -> Result | KubeError:
        try:
            return self.wait_for(self.part.reconcile(JobKey(NAMES[kind], "team-a/train")))
        except KubeError as error:
            return error

    def due(self) -> set[object]:
        """Jobs that are looked at now."""

        async def take_all() -> list[object]:
            return [(await self.part.controller.queue.get()).key for _ in range(self.part.controller.queue.depth)]

        found = self.wait_for(take_all())
        for key in found:
            self.part.controller.queue.finish(cast("Any", key))
        return set(found)

    @property
    def group(self) -> Obj:
        return self.get("PodGroup", "g", "team-a")

    @property
    def applied(self) -> int:
        """How often a PodGroup was written."""
        return sum(request.kind.kind == "PodGroup" for request in self.writes)

    def report(self, **condition: str) -> None:
        """What the reconciler of groups writes into its status."""
        said = {"type": POD_GROUP_SCHEDULED, "message": "so it is", **condition}
        self.put({**self.group, "status": {"conditions": [said]}})

    @property
    def stories(self) -> list[tuple[str, str]]:
        """Reason and message of events, of which all but good ones are warnings."""
        assert all((event.type == "Normal") == (event.reason == "Scheduled") for event in self.events)
        return [(event.reason, event.message) for event in self.events]


@pytest.mark.parametrize("kind", GROUPED)
def test_a_job_gets_its_group_once(kind: str) -> None:
    harness = JobsHarness()
    harness.submit(build_object(kind))
    assert harness.due() == {JobKey(NAMES[kind], "team-a/train")}
    assert harness.look(kind) == Done()
    assert harness.look(kind) == Done()
    assert harness.applied == 1
    (owner,) = harness.group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (kind, "train", "u", True)


def test_job_that_requests_no_pod_group_is_never_due() -> None:
    harness = JobsHarness()
    harness.submit(build_object("Job", None))
    assert harness.due() == set()
    assert harness.look() == Done()
    assert harness.applied == 0


def test_a_job_that_is_resized_takes_its_group_along() -> None:
    harness = JobsHarness()
    job = build_object("Job")
    harness.submit(job)
    harness.look()
    group = harness.group
    harness.submit({**job, "spec": {**job["spec"], "parallelism": 3}})
    assert harness.due()
    harness.look()
    assert harness.group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert harness.group["metadata"]["uid"] == group["metadata"]["uid"]


def test_pod_group_of_a_job_is_restored_after_a_spec_change_or_deletion_but_not_after_a_status_change() -> None:
    harness = JobsHarness()
    harness.submit(build_object("Job"))
    harness.look()
    harness.due()
    harness.put({**harness.group, "status": {"conditions": []}})
    assert harness.due() == set()
    harness.put({**harness.group, "spec": {**harness.group["spec"], "replicas": 9}})
    assert harness.due() == {JobKey(NAMES["Job"], "team-a/train")}
    harness.look()
    assert harness.group["spec"]["replicas"] == 1
    harness.drop("PodGroup", "g", "team-a")
    assert harness.due()
    harness.look()
    assert harness.applied == 3


def test_condition_of_a_pod_group_is_reported_once_on_its_job() -> None:
    harness = JobsHarness()
    harness.submit(build_object("Job"))
    harness.look()
    harness.due()
    for status, reason in (("False", "Unschedulable"), ("False", "Unschedulable"), ("True", "Scheduled")):
        harness.report(status=status, reason=reason)
        if harness.due():
            assert harness.look() == Done()
    assert harness.stories == [("Unschedulable", "PodGroup g: so it is"), ("Scheduled", "PodGroup g: so it is")]
    assert harness.applied == 1


def test_condition_of_a_pod_group_is_reported_once_its_job_can_be_read() -> None:
    """Former defect: a job that could not be read cost the report."""
    harness = JobsHarness()
    job = harness.submit(build_object("Job"))
    harness.look()
    harness.put({**job, "spec": {**job["spec"], "completions": {}}})
    harness.report(status="True", reason="Scheduled")
    with pytest.raises(TypeError):
        harness.look()
    harness.put(job)
    harness.look()
    assert harness.stories == [("Scheduled", "PodGroup g: so it is")]


def test_condition_of_a_pod_group_reported_before_a_restart_is_not_reported_again() -> None:
    harness = JobsHarness()
    harness.submit(build_object("Job"))
    harness.look()
    group = harness.group
    harness.drop("PodGroup", "g", "team-a")
    harness.due()
    said = {"type": POD_GROUP_SCHEDULED, "status": "True", "reason": "Scheduled", "message": "so it is"}
    harness.put({**group, "status": {"conditions": [said]}})
    assert harness.due()
    harness.look()
    assert harness.stories == []


def test_pod_group_of_another_owner_is_not_changed_and_reported() -> None:
    harness = JobsHarness()
    job = harness.submit(build_object("Job"))
    harness.look()
    harness.put({**job, "metadata": {**job["metadata"], "uid": "another"}})
    assert isinstance(harness.look(), RequeueAfter)
    ((reason, message),) = harness.stories
    assert reason == EVENT_POD_GROUP_REFUSED
    assert "PodGroup g " in message
    assert harness.applied == 1


def test_a_job_that_goes_gets_none_any_more() -> None:
    harness = JobsHarness()
    job = harness.submit(build_object("Job"))
    harness.put({**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert harness.look() == Done()
    assert harness.applied == 0
    harness.drop("Job", "train", "team-a")
    assert harness.look() == Done()


@pytest.mark.parametrize("error", [Invalid(422, "Invalid", "too many levels"), Forbidden(403, "Forbidden", "quota of objects")])
def test_pod_group_of_a_job_that_the_api_server_rejects_is_reported_and_retried(error: KubeError) -> None:
    harness = JobsHarness()
    harness.submit(build_object("Job"))
    harness.fail(error)
    assert isinstance(harness.look(), RequeueAfter)
    ((reason, message),) = harness.stories
    assert reason == EVENT_POD_GROUP_REFUSED
    assert str(error) in message
    harness.on_write = lambda _: None
    assert harness.look() == Done()


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Conflict(409, "Conflict", "another uid"), 1.0), (NotFound(404, "NotFound", "no such kind"), pacing.JOB_GROUP_REFUSED_S)],
)
def test_pod_group_of_a_job_after_a_conflict_or_not_found_error_is_retried_without_an_event(error: KubeError, seconds: float) -> None:
    harness = JobsHarness()
    harness.submit(build_object("Job"))
    harness.fail(error)
    assert harness.look() == RequeueAfter(seconds)
    assert harness.stories == []


def test_other_failures_are_retried_by_the_controller() -> None:
    harness = JobsHarness()
    harness.submit(build_object("Job"))
    harness.fail(Unreachable("nobody there"))
    assert isinstance(harness.look(), Unreachable)


# --- replicas that come and go (a LeaderWorkerSet is scaled) -----------------------------------------------------


def test_removed_replica_is_no_longer_reported() -> None:
    harness = GroupsHarness({"r1": (1,), "r2": (1,)})
    group = harness.gang(1, replicas=3)
    for number in range(3):
        harness.add(f"p{number}", replica=str(number))
    for _ in range(6):
        for number in range(3):
            harness.look(replica=number)
    assert harness.says[0] == "False"
    harness.put({**harness.get("PodGroup", "g"), "spec": {**group["spec"], "replicas": 2}})
    harness.drop("Pod", "p2")
    for number in (0, 1, 2):
        harness.look(replica=number)
    assert harness.says[:2] == ("True", "Scheduled")
    assert "2 replicas" in harness.says[2]
    told = len(harness.told)
    for number in (0, 1, 2):
        harness.look(replica=number)
    assert len(harness.told) == told


def test_leader_worker_set_pods_are_placed_by_replica_once_labeled() -> None:
    harness = GroupsHarness({"r1": (2,), "r2": (2,)})
    harness.gang(2, replicas=2)
    harness.add("a0", "a1", "b0", "b1")
    for name in ("a0", "a1", "b0", "b1"):
        labels = {**harness.pods[name]["metadata"]["labels"], LWS_NAME_LABEL: "s"}
        harness.change(name, labels=labels)
    harness.settle()
    assert harness.where() == {}
    for name in ("a0", "a1", "b0", "b1"):
        harness.change(name, labels={**harness.pods[name]["metadata"]["labels"], LWS_GROUP_INDEX_LABEL: "0" if name[0] == "a" else "1"})
    harness.settle(replica=0)
    harness.settle(replica=1)
    where = harness.where()
    assert where["a0"] == where["a1"] != where["b0"] == where["b1"]
