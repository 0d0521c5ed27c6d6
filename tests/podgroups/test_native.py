"""The native way: what kube-scheduler is told of a group, and what is said of what it made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.names import JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL
from core.podgroups.acting import GroupStep
from core.podgroups.algorithm import default_plugins
from core.podgroups.group import TopologyConstraint
from core.podgroups.members import GroupKey, Member, read_member
from core.podgroups.native import NotNative, build_native_group, plan_native_step
from core.podgroups.podgroup_facts import PodGroupFacts, read_pod_group
from tests.builders import BLOCK, NAMESPACE, RACK
from tests.podgroups.builders import build_cluster

KEY = GroupKey(NAMESPACE, "train")
IN_A_RACK = (TopologyConstraint(RACK),)


def build_facts(**other: Any) -> PodGroupFacts:
    return replace(PodGroupFacts(NAMESPACE, "train", "uid", IN_A_RACK, 3), **other)


def build_pod(number: int, on: str = "", *, said: str = "") -> Member:
    labels = {MEMBER_OF_LABEL: "train", JOB_COMPLETION_INDEX_LABEL: f"{number}"}
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}] if said else []
    member = read_member(
        {
            "metadata": {"name": f"p{number}", "namespace": NAMESPACE, "uid": f"u{number}", "labels": labels},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "nodeName": on},
            "status": {"conditions": conditions},
        }
    )
    assert member is not None
    return member


def step(nodes: dict[str, Sequence[int]], *members: Member, **other: Any) -> GroupStep:
    asked = build_facts(**other)
    found = plan_native_step(asked, asked.levels, KEY, members, build_cluster(nodes), default_plugins())
    assert (found.keep, found.let_go, found.give_back) == ((), (), ()), "nothing is done to pods that are kube-scheduler's"
    return found


@pytest.mark.parametrize("least", [None, 4])
def test_native_pod_group_has_the_same_levels_and_count(least: int | None):
    told = build_native_group(build_facts(min_count=least), IN_A_RACK, KEY)
    read = read_pod_group(told)
    assert (read.levels, read.min_count, read.name) == (IN_A_RACK, least, "train")
    assert [owner["uid"] for owner in told["metadata"]["ownerReferences"]] == ["uid"]


def test_each_replica_is_a_group_of_its_own():
    names = [build_native_group(build_facts(replicas=3), IN_A_RACK, GroupKey(NAMESPACE, "train", i))["metadata"]["name"] for i in range(3)]
    assert names == ["train", "train-1", "train-2"]


def test_native_pod_group_refusal_names_all_unsupported_fields():
    levels = (TopologyConstraint(BLOCK), TopologyConstraint(RACK, preferred=True))
    with pytest.raises(NotNative) as refusal:
        build_native_group(build_facts(levels=levels, desired_count=5, claim_templates=("t",)), levels, KEY)
    for words in ("2 levels (it takes one)", f"level {RACK} that is preferred", "desiredCount", "draConstraints"):
        assert words in str(refusal.value)


def test_native_group_bound_in_one_rack_is_scheduled():
    found = step({"r1": [2, 2]}, *(build_pod(i, f"r1-{i % 2}") for i in range(3)))
    assert found.is_scheduled
    assert all(part in found.message for part in ("kube-scheduler", "3 pods", "r1"))


def test_native_group_bound_in_several_racks_is_scattered():
    found = step({"r1": [2], "r2": [2]}, build_pod(0, "r1-0"), build_pod(1, "r2-0"), build_pod(2, "r1-0"))
    assert (found.is_scheduled, found.reason) == (False, "Scattered")
    assert all(part in found.message for part in ("3 pods", f"no one {RACK}", "r1 2, r2 1"))


def test_waiting_native_group_reports_the_lack_of_each_placement():
    found = step(
        {"r1": [2], "r2": [1]}, build_pod(0), build_pod(1), build_pod(2, said="0/2 placements are available, first placement status: ...")
    )
    assert (found.is_scheduled, found.reason, found.waits) == (False, "Unschedulable", True)
    assert "0 of 3 pods" in found.message
    assert found.explanation is not None
    assert [(fact.name, fact.fit) for fact in found.explanation.facts] == [("r1", 2), ("r2", 1)]


def test_waiting_native_group_with_room_reports_the_kube_scheduler_message():
    found = step({"r1": [4]}, build_pod(0), build_pod(1), build_pod(2, said="no volume"))
    assert all(part in found.message for part in ("0 of 3 pods", "placement r1", "no volume"))


def test_a_gang_that_is_not_all_there_waits_for_pods():
    found = step({"r1": [4]}, build_pod(0))
    assert found.reason == "WaitingForPods"
    assert "1 of at least 3 pods" in found.message


def test_those_that_come_later_are_looked_for_where_the_others_run():
    found = step({"r1": [0], "r2": [4]}, *(build_pod(i, "r1-0") for i in range(3)), build_pod(3))
    assert found.is_scheduled, "as many as there must be are"
    assert "3 of 4 pods" in found.message
