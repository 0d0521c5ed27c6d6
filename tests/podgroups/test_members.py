"""Pods as members of their group: which replica they are of, and in what order they come."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import (
    JOB_COMPLETION_INDEX_LABEL,
    JOBSET_JOB_INDEX_LABEL,
    JOBSET_ROLE_LABEL,
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MEMBER_OF_LABEL,
    REPLICA_LABEL,
    STATEFULSET_INDEX_LABEL,
)
from core.podgroups.members import GroupKey, Member, group_of, in_order, read_member


def pod(name: str = "p", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {MEMBER_OF_LABEL: "g", **labels}}, "spec": {}}


def member(name: str, **labels: str) -> Member:
    found = read_member(pod(name, **labels))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("labels", "replica"),
    [
        ({}, 0),
        ({REPLICA_LABEL: "2"}, 2),
        ({REPLICA_LABEL: "two"}, -1),
        ({LWS_NAME_LABEL: "s", LWS_GROUP_INDEX_LABEL: "3"}, 3),
        ({LWS_NAME_LABEL: "s", LWS_GROUP_INDEX_LABEL: "3", REPLICA_LABEL: "0"}, 0),
        ({LWS_GROUP_INDEX_LABEL: "3"}, 0),
    ],
)
def test_a_pod_of_a_leader_worker_set_is_of_its_replica_unless_it_says_another(labels: dict[str, str], replica: int) -> None:
    assert group_of(pod(**labels)) == GroupKey("ns", "g", replica)


def test_before_it_is_told_its_replica_it_is_no_member() -> None:
    assert group_of(pod(**{LWS_NAME_LABEL: "s"})) is None
    assert read_member(pod(**{LWS_NAME_LABEL: "s"})) is None


def test_jobs_of_a_job_set_come_one_after_the_other() -> None:
    told = [
        (role, job, index) for index in ("1", "0") for job in ("10", "9") for role in ("workers", "driver")
    ]  # as their names would not sort them
    pods = [
        member(f"{role}-{job}-{index}", **{JOBSET_ROLE_LABEL: role, JOBSET_JOB_INDEX_LABEL: job, JOB_COMPLETION_INDEX_LABEL: index})
        for role, job, index in told
    ]
    expected = [f"ns/{role}-{job}-{index}" for role in ("driver", "workers") for job in (9, 10) for index in (0, 1)]
    assert [one.key for one in in_order(pods)] == expected


def test_the_leader_of_a_replica_comes_before_its_workers() -> None:
    """The ordinal of its StatefulSet is that of the replica."""
    labels = {LWS_NAME_LABEL: "s", LWS_GROUP_INDEX_LABEL: "7"}
    leader = member("leader", **labels, **{LWS_WORKER_INDEX_LABEL: "0", STATEFULSET_INDEX_LABEL: "7"})
    workers = [member(f"w{i}", **labels, **{LWS_WORKER_INDEX_LABEL: str(i), STATEFULSET_INDEX_LABEL: str(i)}) for i in (2, 1)]
    assert [one.key for one in in_order([*workers, leader])] == ["ns/leader", "ns/w1", "ns/w2"]
