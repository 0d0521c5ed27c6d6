"""PodGroups of jobs that ask for one: made once, kept in step, mended, and never taken from others."""

from __future__ import annotations

import asyncio
import copy
import itertools
from typing import Any, cast

import pytest

from core.jobs.known_names import GROUPED
from core.jobs.podgroup import with_membership
from core.names import EVENT_POD_GROUP_REFUSED, LWS_GROUP_INDEX_LABEL, LWS_NAME_LABEL, POD_GROUP_SCHEDULED
from core.runtime.client import Client
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, Unreachable
from core.runtime.resource import Obj
from core.runtime.watch_step import Deleted
from reconciler.apply import Writer
from reconciler.observed import Observed
from reconciler.podgroups_of_jobs import REFUSED_S, JobKey, PodGroupsOfJobs
from tests.reconciler.paper_groups import PaperGroups
from tests.runtime.fakes import ManualClock
from tests.webhook.test_group_reviews import BY_NAME, made

NAMES = {kind: f"{kind}.{BY_NAME[kind].group}" for kind in GROUPED}


class Paper:
    """Jobs as the API server has them; what is applied is seen at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.observed = Observed(cast("Client", None), self.clock)
        self.part = PodGroupsOfJobs(self.observed, cast("Writer", self), self.clock)
        self.applied: list[Obj] = []
        self.events: list[tuple[str, str]] = []
        self.fails: KubeError | None = None
        self._versions = itertools.count(1)

    def put(self, obj: Obj, *, uid: str = "u") -> Obj:
        obj = with_membership(BY_NAME[obj["kind"]], obj, "g")
        return self.see({**obj, "metadata": {**obj["metadata"], "uid": uid}})

    def see(self, obj: Obj) -> Obj:
        kind = obj["kind"]
        informer = self.observed.parents[kind] if kind in self.observed.parents else self.observed.jobs[NAMES[kind]]
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self._versions))}}
        informer.put(obj)
        return obj

    def look(self, kind: str = "Job") -> Result | KubeError:
        try:
            return asyncio.run(self.part.look(JobKey(NAMES[kind], "team-a/train")))
        except KubeError as error:
            return error

    def due(self) -> set[object]:
        """Jobs that are looked at now."""

        async def all_of() -> list[object]:
            return [(await self.part.controller.queue.get()).key for _ in range(self.part.controller.queue.depth)]

        found = asyncio.run(all_of())
        for key in found:
            self.part.controller.queue.done(cast("Any", key))
        return set(found)

    def group(self) -> Obj:
        found = self.observed.pod_groups.store.get("team-a/g")
        assert found is not None
        return found

    # --- the writer -----------------------------------------------------------------------------------------------

    async def apply_pod_group(self, group: Obj, present: Obj | None) -> Obj:
        if self.fails is not None:
            raise self.fails
        self.applied.append(group)
        metadata = {**group["metadata"], "uid": "of-g" if present is None else present["metadata"]["uid"]}
        stored = {**copy.deepcopy(group), "metadata": metadata | {"resourceVersion": str(next(self._versions))}}
        self.observed.pod_groups.put(stored)
        return stored

    async def event(self, resource: Any, obj: Obj, reason: str, message: str, *, warning: bool) -> None:
        assert warning == (reason != "Scheduled")
        self.events.append((reason, message))


@pytest.mark.parametrize("kind", GROUPED)
def test_a_job_gets_its_group_once(kind: str) -> None:
    paper = Paper()
    paper.put(made(kind))
    assert paper.due() == {JobKey(NAMES[kind], "team-a/train")}
    assert paper.look(kind) == Done()
    assert paper.look(kind) == Done()
    assert len(paper.applied) == 1
    (owner,) = paper.group()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (kind, "train", "u", True)


def test_who_does_not_ask_is_never_looked_at() -> None:
    paper = Paper()
    paper.put(made("Job", None))
    assert paper.due() == set()
    assert paper.look() == Done()
    assert paper.applied == []


def test_a_job_that_is_resized_takes_its_group_along() -> None:
    paper = Paper()
    job = made("Job")
    paper.put(job)
    paper.look()
    paper.put({**job, "spec": {**job["spec"], "parallelism": 3}})
    assert paper.due()
    paper.look()
    assert paper.group()["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert paper.group()["metadata"]["uid"] == "of-g"


def test_what_others_make_of_it_is_mended_and_its_status_is_nobodys_business() -> None:
    paper = Paper()
    paper.put(made("Job"))
    paper.look()
    paper.due()
    group = paper.group()
    paper.observed.pod_groups.put({**group, "status": {"conditions": []}, "metadata": {**group["metadata"], "resourceVersion": "91"}})
    assert paper.due() == set()
    changed = {**group, "spec": {**group["spec"], "replicas": 9}, "metadata": {**group["metadata"], "resourceVersion": "92"}}
    paper.observed.pod_groups.put(changed)
    assert paper.due() == {JobKey(NAMES["Job"], "team-a/train")}
    paper.look()
    assert paper.group()["spec"]["replicas"] == 1
    paper.observed.pod_groups._fold(Deleted(paper.group()))
    assert paper.due()
    paper.look()
    assert len(paper.applied) == 3


def test_what_becomes_of_a_group_is_told_of_its_job_once() -> None:
    paper = Paper()
    paper.put(made("Job"))
    paper.look()
    paper.due()
    for version, status, reason in ((90, "False", "Unschedulable"), (91, "False", "Unschedulable"), (92, "True", "Scheduled")):
        group = paper.group()
        said = {"type": POD_GROUP_SCHEDULED, "status": status, "reason": reason, "message": "so it is"}
        changed = {"status": {"conditions": [said]}, "metadata": {**group["metadata"], "resourceVersion": str(version)}}
        paper.observed.pod_groups.put({**group, **changed})
        if paper.due():
            assert paper.look() == Done()
    assert paper.events == [("Unschedulable", "PodGroup g: so it is"), ("Scheduled", "PodGroup g: so it is")]
    assert len(paper.applied) == 1


def test_what_was_told_before_a_start_is_not_told_again() -> None:
    paper = Paper()
    paper.put(made("Job"))
    paper.look()
    group = paper.group()
    paper.observed.pod_groups._fold(Deleted(group))
    paper.due()
    said = {"type": POD_GROUP_SCHEDULED, "status": "True", "reason": "Scheduled", "message": "so it is"}
    paper.observed.pod_groups.put({**group, "status": {"conditions": [said]}, "metadata": {**group["metadata"], "resourceVersion": "91"}})
    assert paper.due()
    paper.look()
    assert paper.events == []


def test_a_group_that_is_anothers_is_left_alone_and_told() -> None:
    paper = Paper()
    job = paper.put(made("Job"))
    paper.look()
    paper.see({**job, "metadata": {**job["metadata"], "uid": "another"}})
    assert isinstance(paper.look(), RequeueAfter)
    assert paper.events == [(EVENT_POD_GROUP_REFUSED, "there is a PodGroup g that is not of this job; its pods wait")]
    assert len(paper.applied) == 1


def test_a_job_that_goes_gets_none_any_more() -> None:
    paper = Paper()
    job = paper.put(made("Job"))
    paper.see({**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert paper.look() == Done()
    assert paper.applied == []
    paper.observed.jobs[NAMES["Job"]]._fold(Deleted(job))
    assert paper.look() == Done()


@pytest.mark.parametrize("error", [Invalid(422, "Invalid", "too many levels"), Forbidden(403, "Forbidden", "quota of objects")])
def test_what_the_api_server_does_not_take_is_told_and_tried_again(error: KubeError) -> None:
    paper = Paper()
    paper.put(made("Job"))
    paper.fails = error
    assert isinstance(paper.look(), RequeueAfter)
    ((reason, message),) = paper.events
    assert reason == EVENT_POD_GROUP_REFUSED
    assert message == f"the API server does not take its PodGroup: {error}; its pods wait"
    paper.fails = None
    assert paper.look() == Done()


@pytest.mark.parametrize(
    ("error", "seconds"), [(Conflict(409, "Conflict", "another uid"), 1.0), (NotFound(404, "NotFound", "no such kind"), REFUSED_S)]
)
def test_who_comes_too_late_looks_again_and_seldom_where_nobody_serves_groups(error: KubeError, seconds: float) -> None:
    paper = Paper()
    paper.put(made("Job"))
    paper.fails = error
    assert paper.look() == RequeueAfter(seconds)
    assert paper.events == []


def test_other_failures_are_retried_by_the_controller() -> None:
    paper = Paper()
    paper.put(made("Job"))
    paper.fails = Unreachable("nobody there")
    assert paper.look() is paper.fails


# --- replicas that come and go (a LeaderWorkerSet is scaled) -----------------------------------------------------


def test_a_replica_that_is_gone_is_not_told_of_any_more() -> None:
    paper = PaperGroups({"r1": (1,), "r2": (1,)})
    group = paper.gang(1, replicas=3)
    for number in range(3):
        paper.add(f"p{number}", replica=str(number))
    for _ in range(6):
        for number in range(3):
            paper.look(replica=number)
    assert paper.says[0] == "False"
    present = paper.observed.pod_groups.store.get("ns/g")
    assert present is not None
    fewer = {**present, "spec": {**group["spec"], "replicas": 2}, "metadata": {**present["metadata"], "resourceVersion": "901"}}
    paper.observed.pod_groups.put(fewer)
    paper.drop("p2")
    for number in (0, 1, 2):
        paper.look(replica=number)
    assert paper.says == ("True", "Scheduled", "2 replicas have their places")
    told = len(paper.told)
    for number in (0, 1, 2):
        paper.look(replica=number)
    assert len(paper.told) == told


def test_pods_of_a_leader_worker_set_are_placed_by_replica_once_they_are_told_theirs() -> None:
    paper = PaperGroups({"r1": (2,), "r2": (2,)})
    paper.gang(2, replicas=2)
    paper.add("a0", "a1", "b0", "b1")
    for name in ("a0", "a1", "b0", "b1"):
        labels = {**paper.pods[name]["metadata"]["labels"], LWS_NAME_LABEL: "s"}
        paper.change(name, labels=labels)
    paper.settle()
    assert paper.where() == {}
    for name in ("a0", "a1", "b0", "b1"):
        paper.change(name, labels={**paper.pods[name]["metadata"]["labels"], LWS_GROUP_INDEX_LABEL: "0" if name[0] == "a" else "1"})
    paper.settle(replica=0)
    paper.settle(replica=1)
    where = paper.where()
    assert where["a0"] == where["a1"] != where["b0"] == where["b1"]
