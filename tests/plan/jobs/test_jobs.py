"""The next steps of a job by what is known of it: a table, and all combinations of what it may look like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from core.jobs.contract import Defaults, PodSetStart
from core.jobs.kinds.job import Job
from core.model.admission import Admission, PodSetAdmission
from core.names import (
    ADMITTED,
    EVICTED,
    FIELD_MANAGER,
    FINISHED,
    JOB_UID_LABEL,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    QUOTA_RESERVED,
    REASON_JOB_CHANGED,
    REASON_SUSPENDED_BY_USER,
    WORKLOAD_ANNOTATION,
)
from core.plan.jobs import jobs
from core.plan.jobs.job_facts import Holder, JobFacts, PodsOfJob
from core.plan.jobs.jobs import CREATE, PODS_LEFT, RESTORE, START, SUSPEND, UPDATE, plan_job
from core.plan.steps import pacing
from core.plan.steps.steps import Plan
from core.plan.steps.writes import Apply, Create, Patch
from core.plan.workloads.desired_workload import build_workload
from core.plan.workloads.workload_steps import DEACTIVATE, DROP_FINALIZER, END_POD, EVICT, FINISH, RELEASE
from core.state.facts import FlavorFacts, PodFacts, WorkloadFacts, is_condition_true

Json = dict[str, Any]
KIND, NOW = Job(), "2026-01-01T00:00:00Z"
START_OF_POD_SET = PodSetStart("main", True, annotations={WORKLOAD_ANNOTATION: "w"})
POD = PodFacts("ns/p", "uid-p", "n", False, False, False, {}, "ns/w", "main", "u", {}, {})


def make_job(*, running: bool = False, started: bool = False, parallelism: int = 2, **metadata: Any) -> Json:
    labels = {QUEUE_NAME_LABEL: "main", **metadata.pop("labels", {})}
    identity = {"name": "train", "namespace": "ns", "uid": "u", "resourceVersion": "5", "labels": labels, **metadata}
    spec = {"parallelism": parallelism, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}
    job = KIND.default({"apiVersion": "batch/v1", "kind": "Job", "metadata": identity, "spec": spec}, Defaults())
    if started:
        job = KIND.start(job, [START_OF_POD_SET])
    return {**job, "spec": {**job["spec"], "suspend": not running}}


def make_workload(*true: str, active: bool = True, reason: str = "Preempted", **metadata: Any) -> Json:
    """The Workload of the job as it was made, with conditions that are true."""
    made = build_workload(KIND, make_job(), priority=0, priority_class=None)
    conditions = [
        {"type": kind, "status": "True", "reason": reason if kind == EVICTED else kind, "message": f"for {kind}", "lastTransitionTime": NOW}
        for kind in true
    ]
    given = [{"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {}}]
    admission = {"clusterQueue": "q", "podSetAssignments": given}
    status = {"conditions": conditions, **({"admission": admission} if QUOTA_RESERVED in true else {})}
    identity = {"uid": "w", "resourceVersion": "7", "generation": 1, **metadata}
    return {**made, "metadata": {**made["metadata"], **identity}, "spec": {**made["spec"], "active": active}, "status": status}


def make_facts(job: Json, workload: Json | None = None, **more: Any) -> JobFacts:
    facts = None
    if workload is not None:
        facts = WorkloadFacts.read(workload)
        if "admission" in workload["status"]:
            facts = replace(facts, admission=Admission("q", (PodSetAdmission("main", {"cpu": "f"}, {}, 2, None),)))
    return JobFacts(
        KIND,
        job,
        NOW,
        workload,
        [workload] if workload is not None else [],
        facts=facts,
        flavors={"f": FlavorFacts.read({"metadata": {"name": "f"}})},
        **more,
    )


def has_pods() -> PodsOfJob:
    return PodsOfJob(has_any=True, running=[POD], left=[POD])


RESERVED, RUNS = (QUOTA_RESERVED,), (QUOTA_RESERVED, ADMITTED)
ENDED = {"status": {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}}


@pytest.mark.parametrize(
    ("facts", "names", "again_s"),
    [
        (make_facts(make_job()), (CREATE,), None),
        (make_facts(make_job(running=True)), (SUSPEND,), None),
        (make_facts(make_job(started=True)), (RESTORE,), None),
        (make_facts(make_job(started=True), pods=has_pods()), (), pacing.STOP_POLL_S),
        (make_facts(make_job(), make_workload()), (), None),
        (make_facts(make_job(parallelism=3), make_workload()), (UPDATE,), None),
        (make_facts(make_job(parallelism=3), make_workload(*RESERVED)), (EVICT,), None),
        (make_facts(make_job(parallelism=3), make_workload(*RUNS)), (EVICT,), None),
        (make_facts(make_job(), make_workload(*RUNS)), (START,), None),
        (make_facts(make_job(), make_workload(*RUNS), pods=has_pods()), ("report",), pacing.STOP_POLL_S),
        (make_facts(make_job(), make_workload(*RUNS), pods=PodsOfJob(may_have_run=True)), (), pacing.STOP_POLL_S),
        (make_facts(make_job(running=True, started=True), make_workload(*RUNS)), (), None),
        (make_facts(make_job(running=True, started=True, parallelism=3), make_workload(*RUNS)), (EVICT,), None),
        (make_facts(make_job(running=True, started=True), make_workload(*RUNS, active=False)), (EVICT,), None),
        (make_facts(make_job(running=True, started=True), make_workload(*RUNS, EVICTED)), (SUSPEND,), None),
        (make_facts(make_job(started=True), make_workload(*RUNS, EVICTED), pods=has_pods()), (), pacing.STOP_POLL_S),
        (make_facts(make_job(started=True), make_workload(*RUNS, EVICTED)), (RESTORE, RELEASE), None),
        (make_facts(make_job(), make_workload(*RUNS, EVICTED)), (RELEASE,), None),
        (make_facts(make_job(started=True), make_workload(*RUNS)), (DEACTIVATE, EVICT, "report"), None),
        (make_facts(make_job(started=True), make_workload(*RUNS), writers=frozenset({FIELD_MANAGER})), (RESTORE,), None),
        (make_facts(make_job(started=True), make_workload(*RUNS, EVICTED), writers=frozenset({"kubectl"})), (EVICT,), None),
        (make_facts({**make_job(), **ENDED}, make_workload(*RUNS)), (FINISH, "report", DROP_FINALIZER), None),
        (make_facts({**make_job(), **ENDED}, make_workload(*RUNS), pods=has_pods()), (PODS_LEFT,), pacing.LEFT_POLL_S),
        (make_facts({**make_job(), **ENDED}, make_workload(*RUNS, EVICTED), pods=has_pods()), (END_POD, PODS_LEFT), pacing.LEFT_POLL_S),
        (make_facts(make_job(), make_workload(FINISHED)), ("delete workload",), None),
        (make_facts(make_job(), make_workload(*RUNS), is_queued=False), ("delete workload",), None),
        (make_facts(make_job(running=True), make_workload(*RUNS, deletionTimestamp=NOW)), ("stop",), None),
        (make_facts(make_job(), make_workload(*RUNS, deletionTimestamp=NOW), pods=has_pods()), (), pacing.STOP_POLL_S),
        (make_facts(make_job(), make_workload(deletionTimestamp=NOW)), (DROP_FINALIZER, "report"), None),
        (make_facts(make_job(deletionTimestamp=NOW), make_workload(*RUNS, EVICTED)), (RELEASE,), None),
        (make_facts(make_job(deletionTimestamp=NOW), make_workload(*RUNS, EVICTED), pods=has_pods()), (END_POD,), pacing.STOP_POLL_S),
        (make_facts(make_job(deletionTimestamp=NOW), make_workload(*RUNS)), (), None),
    ],
)
def test_job_in_a_state_gets_its_next_step(facts: JobFacts, names: tuple[str, ...], again_s: float | None):
    plan = plan_job(facts)
    assert (plan.names, plan.again_s, plan.problem) == (names, again_s, "")


def test_job_with_a_class_that_does_not_exist_has_a_problem():
    plan = plan_job(make_facts(make_job(labels={PRIORITY_CLASS_LABEL: "urgent"})))
    assert plan.steps == ()
    assert 'WorkloadPriorityClass "urgent"' in plan.problem


def test_new_workload_has_the_labels_of_its_job_that_are_to_be_copied():
    job = make_job(labels={"team": "a", "other": "b", JOB_UID_LABEL: "forged"})
    copied = ("team", "stage", JOB_UID_LABEL, QUEUE_NAME_LABEL)
    created = plan_job(make_facts(job, copied_labels=copied)).steps[0].write
    assert isinstance(created, Create)
    assert created.seen["metadata"]["labels"] == {"team": "a", JOB_UID_LABEL: "u", QUEUE_NAME_LABEL: "main"}
    bare = plan_job(make_facts(job)).steps[0].write
    assert isinstance(bare, Create)
    assert bare.seen["metadata"]["labels"] == {JOB_UID_LABEL: "u"}


def test_job_without_its_templates_waits_for_them_and_can_be_stopped():
    missing = "TrainingRuntime r does not exist"
    assert plan_job(make_facts(make_job(), missing=missing)).problem == missing
    running = make_facts(make_job(running=True, started=True), make_workload(*RUNS, EVICTED), missing=missing)
    assert plan_job(running).names == (SUSPEND,)


def test_job_suspended_by_its_user_is_evicted_for_that_as_the_deactivation_left_it():
    plan = plan_job(make_facts(make_job(started=True), make_workload(*RUNS)))
    deactivate, evict, _ = (step.write for step in plan.steps)
    assert [event.reason for event in plan.steps[-1].events] == ["Stopped"], "at the suspension, not once the job is unsuspended"
    assert isinstance(deactivate, Patch)
    assert deactivate.evicts_for == REASON_SUSPENDED_BY_USER
    assert not isinstance(evict, Patch)
    left = make_workload(*RUNS, active=False, generation=2)
    assert evict is not None
    assert hasattr(evict, "build")
    written = evict.build(left)
    assert isinstance(written, Apply)
    [evicted] = [one for one in written.body["status"]["conditions"] if one["type"] == EVICTED]
    assert (evicted["reason"], evicted["observedGeneration"]) == (REASON_SUSPENDED_BY_USER, 2)


@pytest.mark.parametrize(
    ("held", "names", "again_s"),
    [
        (Holder(None), ("report",), None),
        (Holder(make_workload(deletionTimestamp=NOW)), ("report",), None),
        (Holder(make_workload(), "Job other"), ("report",), pacing.OTHERS_HELD_S),
        (Holder(make_workload()), ("take workload",), None),
    ],
    ids=["is not there", "goes", "is another's", "is free"],
)
def test_job_that_names_a_workload_takes_it_where_it_is_free(held: Holder, names: tuple[str, ...], again_s: float | None):
    plan = plan_job(make_facts(make_job(labels={PREBUILT_WORKLOAD: "made"}), named=held))
    assert (plan.names, plan.again_s) == (names, again_s)


def test_start_that_an_admission_webhook_refuses_for_long_deactivates_the_workload():
    facts, workload = make_facts(make_job(), make_workload(*RUNS)), make_workload(*RUNS)
    reported = jobs.plan_refused_start(facts, workload, "no", is_invalid=False, deactivates=False, shown="no")
    assert [event.obj["kind"] for event in reported.steps[0].events] == ["Job", "Workload"]
    assert jobs.plan_refused_start(facts, workload, "no", is_invalid=True, deactivates=True, shown="no").names[-1] == "amend"


def list_states() -> Iterator[tuple[str, JobFacts]]:
    """All combinations of what a job, its Workload and its pods may look like."""
    conditions = [(), RESERVED, RUNS, (*RUNS, EVICTED), (*RESERVED, EVICTED), (EVICTED,), (FINISHED,), (*RUNS, FINISHED)]
    pods = [PodsOfJob(), has_pods(), PodsOfJob(may_be_unseen=True, may_have_run=True)]
    bools, writers = (False, True), (frozenset[str](), frozenset({FIELD_MANAGER}), frozenset({"kubectl"}))
    for running, started, going, ended, leaves, active in product(bools, repeat=6):
        left: Json = {"deletionTimestamp": NOW}
        job = make_job(running=running, started=started, **(left if going else {}))
        job |= ENDED if ended else {}
        for true, seen, by in product((None, *conditions), range(len(pods)), writers):
            workload = None
            if true is not None:
                workload = make_workload(*true, active=active, **(left if leaves else {}))
            shown = f"{running=} {started=} {going=} {ended=} {leaves=} {active=} {true=} {seen=} {by=}"
            yield shown, make_facts(job, workload, pods=pods[seen], writers=by)


def gives_up(plan: Plan) -> bool:
    """Whether quota, places or the Workload itself are let go of."""
    return bool({RELEASE, FINISH, DROP_FINALIZER} & set(plan.names))


def test_no_state_lets_a_job_past_its_admission_or_gives_its_quota_away_too_early():
    count = 0
    for shown, f in list_states():
        plan, workload = plan_job(f), f.workload
        count += 1
        admitted = workload is not None and is_condition_true(workload, ADMITTED) and not is_condition_true(workload, EVICTED)
        may_run = admitted and workload is not None and workload["spec"]["active"] and "deletionTimestamp" not in workload["metadata"]
        is_over = f.kind.find_finish(f.job) is not None
        has_some = f.pods.has_any or f.pods.may_be_unseen
        if START in plan.names:
            assert may_run, shown
            assert not has_some, shown
        if workload is not None and not is_condition_true(workload, FINISHED) and gives_up(plan):
            assert not has_some, shown
        if not f.suspended and not may_run and not is_over and not f.is_going:
            known = is_condition_true(workload, FINISHED) if workload is not None else False
            assert {SUSPEND, "stop", EVICT} & set(plan.names) or known, shown
        assert len(plan.names) == len([step for step in plan.steps if step is not None]), shown
    assert count > 5_000


def test_running_job_that_is_another_one_by_now_is_evicted_for_that():
    plan = plan_job(make_facts(make_job(running=True, started=True, parallelism=3), make_workload(*RUNS)))
    write = plan.steps[0].write
    assert isinstance(write, Apply)
    assert any(one["reason"] == REASON_JOB_CHANGED for one in write.body["status"]["conditions"])
