"""Which quota a workload lacks, which workloads hold it, and why none of them is preempted."""

from __future__ import annotations

from typing import Any

import pytest

from core.queueing.flavors.outcome import NotAdmissible
from core.queueing.preemption.missing_quota import explain_no_preemption, list_missing_quota, list_never_preempted
from tests.builders import NAMESPACE
from tests.queueing.shared import Shared

ANYWHERE = {"unconstrained": True}


def explain(made: Shared, name: str) -> list[str]:
    facts = made.state.workloads.facts[f"{NAMESPACE}/{name}"]
    queue = made.state.find_cluster_queue(facts)
    assert queue is not None
    return explain_no_preemption(made.state, facts, queue)


def build_full_scene(**preemption: Any) -> Shared:
    """Queue `a` in which `low` (priority -10) and `mid` (0) hold all quota."""
    made = Shared()
    made.rack("r", 8)
    made.pool("a", "8", preemption=preemption)
    made.submit("low", 2, queue="a", priority=-10, topology=ANYWHERE)
    made.submit("mid", 6, queue="a", topology=ANYWHERE)
    made.run()
    return made


def test_missing_quota_names_the_holders_the_largest_first():
    made = build_full_scene()
    made.submit("new", 3, queue="a", topology=ANYWHERE)
    facts = made.state.workloads.facts[f"{NAMESPACE}/new"]
    (missing,) = list_missing_quota(made.state, facts, made.state.cluster_queues["a"])
    assert (missing.flavor, missing.resource, missing.wanted, missing.available) == ("tas", "cpu", 3000, 0)
    assert [(h.workload.key.partition("/")[2], h.cluster_queue, h.amount) for h in missing.holders] == [
        ("mid", "a", 6000),
        ("low", "a", 2000),
    ]


def test_quota_that_one_flavor_has_is_not_missing():
    made = build_full_scene()
    made.finish("mid")
    made.submit("new", 3, queue="a", topology=ANYWHERE)
    assert list_missing_quota(made.state, made.state.workloads.facts[f"{NAMESPACE}/new"], made.state.cluster_queues["a"]) == []


def test_borrowed_quota_is_held_by_workloads_of_the_borrower():
    made = Shared()
    made.rack("r", 8)
    made.pool("lender", "6", "cohort")
    made.pool("borrower", "0", "cohort")
    made.submit("big", 6, queue="borrower", topology=ANYWHERE)
    made.run()
    made.submit("new", 2, queue="lender", topology=ANYWHERE)
    facts = made.state.workloads.facts[f"{NAMESPACE}/new"]
    (missing,) = list_missing_quota(made.state, facts, made.state.cluster_queues["lender"])
    assert [(holder.workload.key, holder.cluster_queue) for holder in missing.holders] == [(f"{NAMESPACE}/big", "borrower")]
    assert explain(made, "new") == [
        "1 other ClusterQueue (borrower) of cohort cohort holds borrowed quota, and reclaimWithinCohort of ClusterQueue lender is Never"
    ]


@pytest.mark.parametrize(("lends", "gained"), [(None, 6000), ("2", 2000), ("0", None)])
def test_quota_used_by_its_owners_is_missing_with_their_lendable_amount(lends: str | None, gained: int | None):
    made = Shared()
    made.rack("r", 16)
    made.pool("owner", "6", "cohort", **({"lendingLimit": lends} if lends is not None else {}))
    made.pool("idle", "2", "cohort")
    made.pool("asking", "1", "cohort")
    made.submit("big", 6, queue="owner", topology=ANYWHERE)
    made.run()
    made.submit("new", 9, queue="asking", topology=ANYWHERE)
    facts = made.state.workloads.facts[f"{NAMESPACE}/new"]
    before = dict(made.state.quota.get_usage("owner"))
    (missing,) = list_missing_quota(made.state, facts, made.state.cluster_queues["asking"])
    assert (missing.wanted, missing.available, missing.holders) == (9000, 3000, ())
    assert missing.owners == ((("owner", gained),) if gained is not None else ())
    assert made.state.quota.get_usage("owner") == before


def test_quota_beyond_a_borrowing_limit_is_used_by_no_owner():
    made = Shared()
    made.rack("r", 16)
    made.pool("owner", "6", "cohort")
    made.pool("asking", "1", "cohort", borrowingLimit="0")
    made.submit("big", 6, queue="owner", topology=ANYWHERE)
    made.run()
    made.submit("new", 9, queue="asking", topology=ANYWHERE)
    facts = made.state.workloads.facts[f"{NAMESPACE}/new"]
    (missing,) = list_missing_quota(made.state, facts, made.state.cluster_queues["asking"])
    assert (missing.holders, missing.owners) == ((), ())


@pytest.mark.parametrize(
    ("preemption", "priority", "says"),
    [
        ({}, 1000, "priority 1000 waits behind -10 (ns/low) because withinClusterQueue of ClusterQueue a is Never"),
        (
            {},
            -20,
            "no workload that holds quota of ClusterQueue a has a priority below -20: the lowest is -10 (ns/low);"
            " withinClusterQueue of ClusterQueue a is Never",
        ),
        (
            {"withinClusterQueue": "LowerPriority"},
            -10,
            "no workload that holds quota of ClusterQueue a has a priority below -10: the lowest is -10 (ns/low);"
            " withinClusterQueue of ClusterQueue a is LowerPriority",
        ),
        (
            {"withinClusterQueue": "LowerPriority"},
            -5,
            "withinClusterQueue of ClusterQueue a is LowerPriority, so that it may preempt 1 workload of its queue,"
            " which would not be enough",
        ),
        (
            {"withinClusterQueue": "LowerOrNewerEqualPriority"},
            -10,
            "no workload that holds quota of ClusterQueue a has a priority below -10 and none of the same priority was queued later:"
            " the lowest is -10 (ns/low); withinClusterQueue of ClusterQueue a is LowerOrNewerEqualPriority",
        ),
    ],
)
def test_refused_workload_names_the_setting_that_prevents_preemption(preemption: dict[str, Any], priority: int, says: str):
    made = build_full_scene(**preemption)
    made.submit("new", 8, queue="a", priority=priority, topology=ANYWHERE)
    outcome = made.run()["new"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is None
    assert explain(made, "new") == [says]


@pytest.mark.parametrize(
    ("preemption", "pods", "priority", "says"),
    [
        (
            {"reclaimWithinCohort": "LowerPriority"},
            4,
            0,
            "no workload of 1 other ClusterQueue (b) with borrowed quota has a priority below 0;",
        ),
        ({"reclaimWithinCohort": "Any"}, 7, 0, "it would have to borrow, and borrowWithinCohort of ClusterQueue a is Never"),
    ],
)
def test_refused_workload_of_a_cohort_names_the_setting_that_prevents_reclaim(
    preemption: dict[str, Any], pods: int, priority: int, says: str
):
    made = Shared()
    made.rack("r", 8)
    made.pool("a", "6", "cohort", preemption=preemption)
    made.pool("b", "2", "cohort")
    made.submit("big", 8, queue="b", topology=ANYWHERE)
    made.run()
    made.submit("new", pods, queue="a", priority=priority, topology=ANYWHERE)
    outcome = made.run()["new"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is None
    (sentence,) = explain(made, "new")
    assert sentence.startswith(says)


def test_queue_with_relatives_within_their_own_quota_has_nothing_to_reclaim():
    made = Shared()
    made.rack("r", 8)
    made.pool("a", "2", "cohort")
    made.pool("b", "4", "cohort")
    made.submit("own", 4, queue="b", topology=ANYWHERE)
    made.run()
    made.submit("new", 4, queue="a", topology=ANYWHERE)
    assert explain(made, "new") == [
        "no other ClusterQueue of cohort cohort borrows quota that this one could use, so that there is nothing to reclaim"
    ]


def test_borrowers_are_not_in_the_way_of_a_queue_without_a_right_to_borrow():
    """Found by a new user: `reclaimWithinCohort is Never` was the reason for a queue that has all of its own quota and may not borrow."""
    made = Shared()
    made.rack("r", 16)
    made.pool("lender", "6", "cohort")
    made.pool("borrower", "0", "cohort")
    made.pool("closed", "2", "cohort", borrowingLimit="0", lendingLimit="0")
    made.submit("big", 6, queue="borrower", topology=ANYWHERE)
    made.submit("own", 2, queue="closed", priority=9, topology=ANYWHERE)
    made.run()
    made.submit("new", 2, queue="closed", topology=ANYWHERE)
    closed = made.state.cluster_queues["closed"]
    (missing,) = list_missing_quota(made.state, made.state.workloads.facts[f"{NAMESPACE}/new"], closed)
    assert [holder.cluster_queue for holder in missing.holders] == ["closed"]
    assert list_never_preempted(made.state, closed, ["borrower"]) == [(9, "withinClusterQueue is Never")]
    assert list_never_preempted(made.state, made.state.cluster_queues["lender"], ["borrower"]) == [(0, "reclaimWithinCohort is Never")]
