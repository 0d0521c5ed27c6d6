"""Reclaimable pods: what kinds tell of them, what is written, and what quota and requests come to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs.contract import Reclaiming
from core.jobs.kinds.job import Job
from core.jobs.kinds.jobset import JobSet
from core.jobs.kinds.registry import KINDS
from core.model.admission import Admission, PodSetAdmission
from core.names import ADMITTED, EVICTED, FINISHED, PODSET_LABEL, QUOTA_RESERVED
from core.plan.jobs.reclaimable import count_succeeded, plan_finished_pods, plan_reclaimable
from core.state.facts import WorkloadFacts
from core.state.workload_state import subtract_reclaimed
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json

Json = dict[str, Any]
RESERVED = build_condition_json(QUOTA_RESERVED)


def build_workload(*conditions: Json, count: int = 4, reclaimable: int | None = None) -> Json:
    wire = build_workload_json("w", [build_pod_set_json("main", count)], conditions=conditions)
    wire["status"] |= {"reclaimablePods": [{"name": "main", "count": reclaimable}]} if reclaimable is not None else {}
    return wire


def test_running_pods_give_no_quota_back_however_many_are_done() -> None:
    """A Job counts successes of pods that its user let it adopt."""
    assert plan_reclaimable(build_workload(RESERVED, count=2), {"main": 2}, {"main": 2}) is None
    assert plan_reclaimable(build_workload(RESERVED, count=2), {"main": 2}, {"main": 1}) == [{"name": "main", "count": 1}]
    assert plan_reclaimable(build_workload(RESERVED, count=2, reclaimable=1), {"main": 2}, {"main": 2}) is None


# --- kinds ----------------------------------------------------------------------------------------------


def build_job(succeeded: int, parallelism: int | None, completions: int | None) -> Json:
    spec = {"parallelism": parallelism, "completions": completions}
    return {"spec": {name: value for name, value in spec.items() if value is not None}, "status": {"succeeded": succeeded}}


@pytest.mark.parametrize(
    ("succeeded", "parallelism", "completions", "done"),
    [
        (0, 4, 4, 0),
        (1, 4, 4, 1),
        (3, 4, 4, 3),
        (2, 4, 6, 0),
        (3, 4, 6, 1),
        (5, 4, 6, 3),
        (1, 4, 2, 1),
        (1, 4, None, 1),
        (0, None, None, 0),
        (9, 4, 6, 4),
    ],
    ids=str,
)
def test_a_job_needs_no_more_pods_than_completions_are_missing(succeeded: int, parallelism: int, completions: int, done: int):
    assert Job().count_reclaimable_pods(build_job(succeeded, parallelism, completions)) == ({"main": done} if done else {})


@given(st.integers(1, 50), st.integers(1, 50), st.data())
def test_a_job_that_runs_keeps_at_least_one_pod_and_at_most_those_it_runs_at_once(parallelism: int, completions: int, data: st.DataObject):
    succeeded = data.draw(st.integers(0, completions - 1))
    done = Job().count_reclaimable_pods(build_job(succeeded, parallelism, completions)).get("main", 0)
    needed = min(parallelism, completions) - done
    assert needed == min(parallelism, completions, completions - succeeded)


def test_a_jobset_gives_back_the_jobs_that_have_succeeded():
    spec = [
        {"name": "a", "replicas": 3, "template": {"spec": {"parallelism": 2, "completions": 2}}},
        {"name": "b", "replicas": 1, "template": {"spec": {"parallelism": 4, "completions": 4}}},
    ]
    status = [{"name": "a", "succeeded": 2}, {"name": "b", "succeeded": 0}, {"name": "gone", "succeeded": 1}]
    assert JobSet().count_reclaimable_pods({"spec": {"replicatedJobs": spec}, "status": {"replicatedJobsStatus": status}}) == {"a": 4}
    assert JobSet().count_reclaimable_pods({"spec": {"replicatedJobs": spec}}) == {}


def test_only_kinds_with_succeeded_pods_in_their_status_have_reclaimable_pods():
    assert {kind.kind for kind in KINDS if isinstance(kind, Reclaiming)} == {"Job", "JobSet", "TrainJob"}


def test_pods_of_a_group_are_counted_by_role():
    def pod(role: str, phase: str) -> Json:
        return {"metadata": {"labels": {PODSET_LABEL: role}}, "status": {"phase": phase}}

    assert count_succeeded([pod("a", "Succeeded"), pod("a", "Failed"), pod("b", "Succeeded"), pod("a", "Succeeded")]) == {"a": 2, "b": 1}


# --- what is written --------------------------------------------------------------------------------------


def test_it_is_written_once():
    assert plan_reclaimable(build_workload(RESERVED), {}) is None
    assert plan_reclaimable(build_workload(RESERVED), {"main": 2}) == [{"name": "main", "count": 2}]
    assert plan_reclaimable(build_workload(RESERVED, reclaimable=2), {"main": 2}) is None
    assert plan_reclaimable(build_workload(RESERVED), {"main": 9, "other": 3}) == [{"name": "main", "count": 4}]
    assert plan_reclaimable(build_workload(RESERVED, build_condition_json(FINISHED)), {"main": 2}) is None


def test_it_goes_down_only_once_the_quota_is_given_back():
    assert plan_reclaimable(build_workload(RESERVED, reclaimable=3), {"main": 1}) is None
    assert plan_reclaimable(build_workload(reclaimable=3), {"main": 1}) == [{"name": "main", "count": 1}]
    assert plan_reclaimable(build_workload(reclaimable=3), {}) == []


RUNS = (RESERVED, build_condition_json(ADMITTED))


@pytest.mark.parametrize(
    ("wire", "done", "has_job", "names"),
    [
        (build_workload(*RUNS), 0, True, ()),
        (build_workload(*RUNS), 1, True, ("report reclaimable pods",)),
        (build_workload(*RUNS, reclaimable=3), 3, True, ()),
        (build_workload(*RUNS, reclaimable=3), 1, True, ("evict",)),
        (build_workload(*RUNS, reclaimable=3), 1, False, ()),
        (build_workload(*RUNS, build_condition_json(EVICTED), reclaimable=3), 1, True, ()),
        (build_workload(RESERVED, reclaimable=3), 1, True, ()),
        (build_workload(reclaimable=3), 1, True, ("report reclaimable pods",)),
    ],
)
def test_finished_pods_are_reported_but_those_created_again_lead_to_an_eviction(
    wire: Json, done: int, has_job: bool, names: tuple[str, ...]
):
    assert plan_finished_pods(wire, {"main": done}, {}, "2026-01-01T00:00:00Z", has_job=has_job).names == names


# --- what it is good for ------------------------------------------------------------------------------------


def test_waiting_workload_with_reclaimable_pods_requests_its_remaining_pods():
    (pod_set,) = WorkloadFacts.read(build_workload(reclaimable=3)).pod_sets
    assert (pod_set.count, pod_set.reclaimed) == (1, 3)
    (pod_set,) = WorkloadFacts.read(build_workload(reclaimable=9)).pod_sets
    assert (pod_set.count, pod_set.reclaimed) == (0, 4), "who wrote nonsense frees no more than there is"


@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 1000))
def test_quota_is_used_for_pods_that_are_needed(count: int, given: int, reclaimed: int, each: int):
    given = min(given, count)
    admission = Admission("cq", (PodSetAdmission("main", {"cpu": "f"}, {"cpu": each * given}, given),))
    facts = WorkloadFacts.read(build_workload(count=count, reclaimable=reclaimed))
    (held,) = subtract_reclaimed(admission, facts).pod_sets
    assert held.usage == {"cpu": each * min(given, max(0, count - reclaimed))}
    assert held.count == given
    if not reclaimed:
        assert subtract_reclaimed(admission, facts) is admission
