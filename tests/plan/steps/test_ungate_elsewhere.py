"""Pods that are sent to another node follow those that were on the former one, and do not run beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.model.admission import decode_admission
from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL, PODSET_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.plan.steps.ungate import plan_ungating
from core.state.facts import PodFacts, WorkloadFacts

ASSIGNED = {
    "levels": [HOSTNAME_LABEL],
    "slices": [{"domainCount": 2, "podCounts": {"universal": 1}, "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}]}],
}
ADMISSION = {
    "clusterQueue": "q",
    "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "f"}, "topologyAssignment": ASSIGNED}],
}
WORKLOAD = {
    "metadata": {"name": "w", "namespace": "ns", "uid": "w"},
    "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": []}}}]},
    "status": {"admission": ADMISSION},
}


def build_pod(name: str, node: str = "", *, ending: bool = False) -> PodFacts:
    """On a node, or gated."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": name, "labels": {PODSET_LABEL: "main"}}
    metadata |= {"annotations": {WORKLOAD_ANNOTATION: "w"}} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if ending else {})
    where = {"nodeName": node, "nodeSelector": {HOSTNAME_LABEL: node}} if node else {"schedulingGates": [{"name": TOPOLOGY_GATE}]}
    return PodFacts.read({"metadata": metadata, "spec": {"containers": [], **where}, "status": {"phase": "Running"}})


@pytest.mark.parametrize(
    ("up", "sent"),
    [({"n0", "n1", "n2"}, []), ({"n1", "n2"}, ["ns/new"])],
    ids=["it ends on a node that is up", "nobody would tell that it has ended"],
)
def test_a_pod_waits_for_the_one_it_follows(up: set[str], sent: list[str]):
    admission = decode_admission(ADMISSION)
    assert admission is not None
    pods = [build_pod("stays", "n1"), build_pod("ends", "n0", ending=True), build_pod("new")]
    plan = plan_ungating(WorkloadFacts.read(WORKLOAD), admission, pods, is_up=up.__contains__)
    assert [action.pod.key for action in plan.actions] == sent
    gone = plan_ungating(WorkloadFacts.read(WORKLOAD), admission, [pods[0], pods[2]], is_up=up.__contains__)
    assert [(action.pod.key, action.node_selector) for action in gone.actions] == [("ns/new", {HOSTNAME_LABEL: "n2"})]


def test_of_several_only_as_many_wait_as_are_followed():
    admission = decode_admission(ADMISSION)
    assert admission is not None
    plan = plan_ungating(
        WorkloadFacts.read(WORKLOAD),
        admission,
        [build_pod("ends", "n0", ending=True), build_pod("a"), build_pod("b")],
        is_up=lambda _: True,
    )
    assert [action.pod.key for action in plan.actions] == ["ns/a"]


def test_succeeded_pod_needs_no_node_and_a_pending_pod_waits_for_a_terminating_one():
    admission = decode_admission(ADMISSION)
    assert admission is not None
    done = PodFacts.read(
        {
            "metadata": {"name": "done", "namespace": "ns", "labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: "w"}},
            "spec": {"containers": [], "nodeName": "n1", "nodeSelector": {HOSTNAME_LABEL: "n1"}},
            "status": {"phase": "Succeeded"},
        }
    )
    plan = plan_ungating(
        WorkloadFacts.read(WORKLOAD), admission, [done, build_pod("ends", "n0", ending=True), build_pod("new")], is_up=lambda _: True
    )
    assert (plan.actions, plan.held) == ((), 1)


def test_ranked_pod_waits_only_for_its_own_terminating_predecessor():
    admission = decode_admission(ADMISSION)
    assert admission is not None
    pods = [build_ranked_pod("ends", 0, "n0", ending=True), build_ranked_pod("first", 0), build_ranked_pod("second", 1)]
    plan = plan_ungating(WorkloadFacts.read(WORKLOAD), admission, pods, is_up=lambda _: True)
    assert [action.pod.key for action in plan.actions] == ["ns/second"]


def build_ranked_pod(name: str, index: int, node: str = "", *, ending: bool = False) -> PodFacts:
    made = build_pod(name, node, ending=ending)
    return replace(made, labels={**made.labels, JOB_COMPLETION_INDEX_LABEL: str(index)})
