"""The PodGroup of a job that asks for one: how many pods it has at once by kind, and that its schema takes it."""

from __future__ import annotations

from typing import Any

import pytest

from core.api.kinds import meta
from core.api.kinds.podgroup_kinds import PodGroup
from core.jobs import podgroup_levels
from core.jobs.podgroup_annotation import Grouping, with_membership
from core.jobs.podgroup_levels import read_levels
from core.names import EVENT_POD_GROUP_REFUSED, POD_GROUP_SCHEDULED, QUEUE_NAME_LABEL
from core.plan.jobs.job_podgroup import build_pod_group, plan_job_group, plan_refused_group
from core.plan.steps import pacing
from core.plan.steps.conditions import Condition
from core.plan.steps.steps import Plan
from core.plan.steps.writes import Apply, Guard
from core.podgroups.group import TopologyConstraint
from core.podgroups.podgroup_facts import read_pod_group
from core.resource import Resource
from tests.webhook.reviews.test_group_reviews import BY_NAME, RACK, build_object, build_template

Obj = dict[str, Any]


def member(obj: Obj) -> Obj:
    """The object as the webhook makes it and the API server stores it."""
    return with_membership(get_kind(obj), {**obj, "metadata": {**obj["metadata"], "uid": "u"}}, "g")


def get_kind(obj: Obj) -> Grouping:
    return BY_NAME[obj["kind"]]


def group(obj: Obj) -> Obj:
    built = build_pod_group(get_kind(obj), member(obj))
    assert built is not None
    PodGroup.model_validate(built)
    return built


def get_counts(kind: str, **spec: Any) -> tuple[int, int]:
    """Pods at once, and replicas."""
    obj = build_object(kind)
    facts = read_pod_group(group({**obj, "spec": {**obj["spec"], **spec}}))
    assert facts.min_count is not None
    return facts.min_count, facts.replicas


def test_it_is_controlled_by_the_job_and_has_its_levels():
    obj = build_object("Job", f"block, {RACK}:Preferred")
    built = group(obj)
    assert built["metadata"] == {
        "name": "g",
        "namespace": "team-a",
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}],
    }
    assert read_pod_group(built).levels == (TopologyConstraint("block"), TopologyConstraint(RACK, preferred=True))


JOBS = Resource("batch", "v1", "jobs", "Job")
SCHEDULED = Condition(POD_GROUP_SCHEDULED, True, "Scheduled", "4 pods have their places")
WAITS = Condition(POD_GROUP_SCHEDULED, False, "Unschedulable", "no rack has room")


def plan(present: Obj | None = None, verdict: Condition | None = None) -> Plan:
    job = member(build_object("Job"))
    return plan_job_group(JOBS, job, group(build_object("Job")), present, verdict)


def list_events(planned: Plan) -> list[tuple[str, str, bool]]:
    return [(event.reason, event.message, event.warning) for step in planned.steps for event in step.events]


def store(**changed: Any) -> Obj:
    """The group of the job as it was written."""
    built = group(build_object("Job"))
    return {**built, "metadata": {**built["metadata"], "uid": "g-uid", **changed.pop("metadata", {})}, **changed}


@pytest.mark.parametrize(
    ("present", "verdict", "names", "events"),
    [
        (None, None, ("write group",), []),
        (None, SCHEDULED, ("write group",), []),
        (store(), None, (), []),
        (store(), SCHEDULED, ("report",), [("Scheduled", "PodGroup g: 4 pods have their places", False)]),
        (store(), WAITS, ("report",), [("Unschedulable", "PodGroup g: no rack has room", True)]),
        (store(spec={}), None, ("write group",), []),
        (store(spec={}), WAITS, ("report", "write group"), [("Unschedulable", "PodGroup g: no rack has room", True)]),
    ],
    ids=["missing", "missing, with an old condition", "as it should be", "placed", "waits", "changed", "changed, waits"],
)
def test_pod_group_of_a_job_is_written_if_it_differs_while_its_condition_is_emitted_on_the_job(
    present: Obj | None, verdict: Condition | None, names: tuple[str, ...], events: list[tuple[str, str, bool]]
):
    planned = plan(present, verdict)
    assert (planned.names, list_events(planned), planned.again_s) == (names, events, None)
    for write in (step.write for step in planned.steps if step.write is not None):
        assert isinstance(write, Apply)
        assert write.guard is (Guard.ANY if present is None else Guard.SAME)


@pytest.mark.parametrize("owners", [[], [{"controller": True, "uid": "another"}], [{"controller": False, "uid": "u"}]])
def test_pod_group_of_another_owner_is_left_alone_with_an_event_on_the_job(owners: list[Obj]):
    planned = plan(store(metadata={"ownerReferences": owners}, spec={}), WAITS)
    assert [(reason, warning) for reason, _, warning in list_events(planned)] == [(EVENT_POD_GROUP_REFUSED, True)]
    assert (planned.names, planned.again_s) == (("report",), pacing.JOB_GROUP_REFUSED_S)


def test_pod_group_that_the_api_server_refuses_is_reported_on_the_job_then_tried_again():
    planned = plan_refused_group(JOBS, member(build_object("Job")), "a policy")
    assert list_events(planned) == [(EVENT_POD_GROUP_REFUSED, "a policy; its pods wait", True)]
    assert planned.again_s == pacing.JOB_GROUP_REFUSED_S


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 4),
        ({"parallelism": 4, "completions": 3}, 3),
        ({"parallelism": 4, "completions": 10}, 4),
        ({"parallelism": 4, "completions": None}, 4),
        ({"parallelism": None, "completions": None}, 1),
        ({"parallelism": 0}, 1),
    ],
)
def test_a_job_is_all_pods_that_run_at_once(spec: Obj, expected: int):
    assert get_counts("Job", **spec) == (expected, 1)


@pytest.mark.parametrize(
    ("spec", "succeeded", "expected"),
    [
        ({"parallelism": 4, "completions": 4}, 0, 4),
        ({"parallelism": 4, "completions": 4}, 3, 1),
        ({"parallelism": 4, "completions": 4}, 4, 1),
        ({"parallelism": 4, "completions": 10}, 6, 4),
        ({"parallelism": 4, "completions": 10}, 8, 2),
    ],
)
def test_pods_of_a_job_that_have_succeeded_and_may_be_gone_are_not_waited_for(spec: Obj, succeeded: int, expected: int):
    obj = {**build_object("Job"), "spec": {"template": build_template(), **spec}, "status": {"succeeded": succeeded}}
    assert group(obj)["spec"]["schedulingPolicy"] == {"gang": {"minCount": expected}}


def test_pod_group_of_a_job_set_keeps_pods_of_succeeded_jobs_and_counts_the_first_job_if_in_order():
    obj = {**build_object("JobSet"), "status": {"replicatedJobsStatus": [{"name": "a", "succeeded": 1}]}}
    assert group(obj)["spec"]["schedulingPolicy"] == {"gang": {"minCount": 6}}
    obj["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    assert group(obj)["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}


def replicated(name: str, count: int, **more: Any) -> Obj:
    return {"name": name, "replicas": count, "template": {"spec": {"parallelism": 2, "template": build_template()}}, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 8),
        ({"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}, 8),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, 4),
        ({"replicatedJobs": [replicated("a", 3), replicated("b", 1, dependsOn=[{"name": "a", "status": "Ready"}])]}, 6),
    ],
    ids=["all", "any order", "in order", "one after another"],
)
def test_a_job_set_is_all_pods_that_need_not_wait_for_others_of_it(spec: Obj, expected: int):
    assert get_counts("JobSet", **spec) == (expected, 1)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 4),
        ({"launcherCreationPolicy": "AtStartup"}, 4),
        ({"launcherCreationPolicy": "WaitForWorkersReady"}, 3),
        ({"mpiReplicaSpecs": {"Launcher": {"template": build_template()}}}, 1),
    ],
)
def test_an_mpi_job_is_its_workers_and_a_launcher_that_does_not_wait_for_them(spec: Obj, expected: int):
    assert get_counts("MPIJob", **spec) == (expected, 1)


def surge(most: Any) -> Obj:
    return {"rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": most}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (3, 2)),
        ({"startupPolicy": "LeaderCreated"}, (3, 2)),
        ({"startupPolicy": "LeaderReady"}, (1, 2)),
        ({"replicas": 0}, (3, 1)),
        ({"replicas": None}, (3, 1)),
        (surge(2), (3, 4)),
        (surge("50%"), (3, 3)),
        (surge("1%"), (3, 3)),
        (surge("some"), (3, 2)),
        (surge(True), (3, 2)),
        ({"leaderWorkerTemplate": {"size": 5, "workerTemplate": build_template()}}, (5, 2)),
    ],
)
def test_a_leader_worker_set_is_a_group_per_replica(spec: Obj, expected: tuple[int, int]):
    assert get_counts("LeaderWorkerSet", **spec) == expected


@pytest.mark.parametrize("change", ["not asked", "no member", "queued", "no levels"])
def test_job_that_requests_no_group_or_is_no_member_or_is_queued_has_no_pod_group(change: str):
    obj = build_object("Job", None if change == "not asked" else "rack of ours" if change == "no levels" else RACK)
    if change == "queued":
        obj["metadata"]["labels"] = {QUEUE_NAME_LABEL: "main"}
    stored = {**obj, "metadata": {**obj["metadata"], "uid": "u"}} if change == "no member" else member(obj)
    assert build_pod_group(get_kind(obj), stored) is None


def test_pod_group_topology_with_an_invalid_level_has_no_levels():
    assert read_levels(f"{RACK},?") == ()


def test_as_many_levels_may_be_named_as_a_group_holds():
    assert podgroup_levels.MAX_LEVELS == meta.MAX_LEVELS
    levels = read_levels(",".join(f"l{i}" for i in range(meta.MAX_LEVELS)))
    assert len(levels) == meta.MAX_LEVELS
