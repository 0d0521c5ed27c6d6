"""Pods as members of their group: which replica they are of, and in what order they come."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from core.model.pod_traits import PodTerm, PodTraits, Requirement
from core.names import (
    JOB_COMPLETION_INDEX_LABEL,
    JOBSET_JOB_INDEX_LABEL,
    JOBSET_ROLE_LABEL,
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MANAGED,
    MEMBER_OF_LABEL,
    QUEUE_NAME_LABEL,
    REPLICA_LABEL,
    STATEFULSET_INDEX_LABEL,
)
from core.placement.topology.pod_affinity import NoNeighbours
from core.podgroups.members import (
    MOST_PODS,
    MOST_SETS,
    MOST_TERMS,
    GroupKey,
    GroupTooLarge,
    Member,
    as_pod_sets,
    group_of,
    list_set_claims,
    order_members,
    read_member,
    split,
)


def build_pod(name: str = "p", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {MEMBER_OF_LABEL: "g", **labels}}, "spec": {}}


def member(name: str, **labels: str) -> Member:
    found = read_member(build_pod(name, **labels))
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
def test_leader_worker_set_pod_belongs_to_its_replica_unless_labeled_otherwise(labels: dict[str, str], replica: int) -> None:
    assert group_of(build_pod(**labels)) == GroupKey("ns", "g", replica)


def test_queued_pod_is_no_member() -> None:
    """It kept a place for ever, on any node of the cluster, though no quota was left to start it."""
    assert group_of(build_pod(**{MANAGED: "true", QUEUE_NAME_LABEL: "main"})) is None


def test_leader_worker_set_pod_without_a_replica_label_is_no_member() -> None:
    assert group_of(build_pod(**{LWS_NAME_LABEL: "s"})) is None
    assert read_member(build_pod(**{LWS_NAME_LABEL: "s"})) is None


def test_jobs_of_a_job_set_come_one_after_the_other() -> None:
    told = [
        (role, job, index) for index in ("1", "0") for job in ("10", "9") for role in ("workers", "driver")
    ]  # as their names would not sort them
    pods = [
        member(f"{role}-{job}-{index}", **{JOBSET_ROLE_LABEL: role, JOBSET_JOB_INDEX_LABEL: job, JOB_COMPLETION_INDEX_LABEL: index})
        for role, job, index in told
    ]
    expected = [f"ns/{role}-{job}-{index}" for role in ("driver", "workers") for job in (9, 10) for index in (0, 1)]
    assert [one.key for one in order_members(pods)] == expected


def test_the_leader_of_a_replica_comes_before_its_workers() -> None:
    """The ordinal of its StatefulSet is that of the replica."""
    labels = {LWS_NAME_LABEL: "s", LWS_GROUP_INDEX_LABEL: "7"}
    leader = member("leader", **labels, **{LWS_WORKER_INDEX_LABEL: "0", STATEFULSET_INDEX_LABEL: "7"})
    workers = [member(f"w{i}", **labels, **{LWS_WORKER_INDEX_LABEL: str(i), STATEFULSET_INDEX_LABEL: str(i)}) for i in (2, 1)]
    assert [one.key for one in order_members([*workers, leader])] == ["ns/leader", "ns/w1", "ns/w2"]


def members_of_jobs(count: int, **spec: Any) -> list[Member]:
    """A pod of each of some Jobs, as the controllers of JobSet and Job label it."""
    found = []
    for i in range(count):
        made = build_pod(f"p{i}", **{"job-name": f"j{i}", "batch.kubernetes.io/controller-uid": f"u{i}", JOBSET_JOB_INDEX_LABEL: str(i)})
        member = read_member({**made, "spec": spec})
        assert member is not None
        found.append(member)
    return found


def test_pods_of_several_jobs_are_one_set_where_no_term_asks_for_their_labels() -> None:
    (pods,) = as_pod_sets(split(members_of_jobs(4), NoNeighbours()))
    assert pods.count == 4
    assert len(list_set_claims(split(members_of_jobs(4), NoNeighbours()))) == 1


def test_pods_of_several_jobs_are_unlike_where_a_term_of_theirs_asks_for_the_job() -> None:
    apart = {"labelSelector": {"matchLabels": {"job-name": "j1"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    assert [pods.count for pods in as_pod_sets(split(members_of_jobs(4, affinity=affinity), NoNeighbours()))] == [1, 1, 1, 1]


def test_pods_of_several_jobs_are_unlike_where_others_keep_away_from_one_of_the_jobs() -> None:
    term = PodTerm("kubernetes.io/hostname", frozenset({"ns"}), None, (Requirement("job-name", "In", frozenset({"j1"})),))

    class Repelling(NoNeighbours):
        def is_repelled(self, traits: PodTraits) -> bool:
            return traits.labels.get("job-name") == "j1"

        def find_repelling(self, traits: PodTraits) -> Iterable[tuple[PodTerm, Collection[str]]]:
            return [(term, ["n0"])] if self.is_repelled(traits) else []

    assert [pods.count for pods in as_pod_sets(split(members_of_jobs(4), Repelling()))] == [1, 1, 2]


def build_unlike_members(count: int, kinds: int, terms: int = 0) -> list[Member]:
    """Pods that ask for different amounts, one kind after the other, and again."""
    apart = [{"labelSelector": {"matchLabels": {"a": f"{i}"}}, "topologyKey": "kubernetes.io/hostname"} for i in range(terms)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    found = []
    for i in range(count):
        containers = [{"resources": {"requests": {"cpu": f"{1 + i % kinds}"}}}]
        made = read_member({**build_pod(f"p{i}"), "spec": {"containers": containers, **({"affinity": affinity} if terms else {})}})
        assert made is not None
        found.append(made)
    return found


def test_kinds_in_turns_are_sets_of_their_own_while_these_are_few() -> None:
    assert [len(equal) for equal in split(build_unlike_members(MOST_SETS, 2), NoNeighbours())] == [1] * MOST_SETS


def test_equal_pods_are_one_set_where_there_would_be_too_many() -> None:
    first, second = split(build_unlike_members(MOST_SETS + 2, 2), NoNeighbours())
    assert [one.key for one in (*first, *second)] == [f"ns/p{i}" for i in (*range(0, MOST_SETS + 2, 2), *range(1, MOST_SETS + 2, 2))]


@pytest.mark.parametrize(
    ("count", "kinds", "terms", "message"),
    [
        (MOST_PODS + 1, 1, 0, f"pods: {MOST_PODS + 1} wait; at most {MOST_PODS} are placed together"),
        (MOST_SETS + 1, MOST_SETS + 1, 0, f"pods: {MOST_SETS + 1} of them ask for different things; at most {MOST_SETS} are accepted"),
        (20, 20, 15, f"pods that ask for different things have 300 terms between pods; at most {MOST_TERMS} are accepted"),
    ],
)
def test_group_too_large_to_be_placed_together_is_refused(count: int, kinds: int, terms: int, message: str) -> None:
    with pytest.raises(GroupTooLarge, match=message):
        split(build_unlike_members(count, kinds, terms), NoNeighbours())
