"""What follows from what is judged of a workload's nodes: tables, without any double."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, combinations
from typing import Any

import pytest

from core.model.node_health_rules import HealthRules
from core.names import EVENT_NODE_UNHEALTHY, EVENT_POD_TERMINATED, HOSTNAME_LABEL, LOST_NODES_THRESHOLD
from core.plan.pods import node_steps
from core.plan.pods.node_health import NodeVerdict
from core.plan.pods.node_steps import REPORT_LOST, NodesFacts, list_waiting, plan_ends, plan_leftovers, plan_report
from core.plan.steps import writes as w
from core.plan.steps.steps import Overtaken, ParallelSteps, Plan, Step, Then
from core.plan.workloads.workload_steps import EVICT
from core.state.facts import PodFacts, WorkloadFacts
from tests.builders import build_pod_json, build_pod_set_json, build_workload_json


def list_first_steps(found: Plan) -> list[Step]:
    """Steps of the first of a plan, which are done together."""
    together = found.steps[0].write
    assert isinstance(together, ParallelSteps)
    return [step for step in together.steps if isinstance(step, Step)]


NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = ("n0", "n1", "n2")
SOME = list(chain.from_iterable(combinations(NODES, size) for size in range(3)))


def build_pinned_pod(node: str) -> dict[str, Any]:
    return build_pod_json(f"on-{node}", workload="w", owner="uid-job", node_selector={HOSTNAME_LABEL: node})


def plan(lost: Sequence[str], named: Sequence[str] = (), *, rules: HealthRules | None = None, is_just_reported: bool = False) -> Plan:
    """Of a workload on three nodes, of which its Workload names some as lost."""
    workload = build_workload_json("w", [build_pod_set_json(count=3)], owner="uid-job")
    workload["status"] = {"unhealthyNodes": [{"name": name} for name in named]}
    facts = WorkloadFacts.read(workload)
    return plan_report(NodesFacts(workload, facts, dict.fromkeys(lost, "it is gone"), 3, is_just_reported), rules or HealthRules(), NOW)


@pytest.mark.parametrize("lost", SOME)
@pytest.mark.parametrize("named", SOME)
def test_lost_nodes_are_named_in_one_write_where_the_workload_names_others(lost: Sequence[str], named: Sequence[str]):
    found = plan(lost, named)
    if set(lost) == set(named):
        assert found.names == ()
        return
    (step,) = found.steps
    assert step.name == REPORT_LOST
    assert isinstance(step.write, w.Apply)
    assert step.write.guard is w.Guard.AS_JUDGED
    assert step.write.body["status"].get("unhealthyNodes", []) == [{"name": node} for node in sorted(lost)]
    news = sorted(set(lost) - set(named))
    assert len(step.events) == len(news)
    assert all(f"node {node}" in event.message for node, event in zip(news, step.events, strict=True))
    assert all(event.reason == EVENT_NODE_UNHEALTHY for event in step.events)


@pytest.mark.parametrize("lost", SOME)
def test_pods_that_wait_for_nodes_are_ended_together(lost: Sequence[str]):
    verdicts = [(node, NodeVerdict("gone" if node in lost else "", in_the_way=(PodFacts.read(build_pinned_pod(node)),))) for node in NODES]
    pods = {f"ns/on-{node}": build_pinned_pod(node) for node in NODES}
    found = plan_ends(list_waiting(verdicts), lambda pod: pods.get(pod.key), NOW)
    for step, node in zip(list_first_steps(found), NODES, strict=True):
        assert [event.reason for event in step.events] == [EVENT_POD_TERMINATED]
        assert isinstance(step.write, w.Patch)
        assert step.write.guard is w.Guard.WAITING
        assert Overtaken.GONE in step.passes
        assert (Overtaken.CHANGED in step.passes) == (node not in lost), "a pod that is bound there shows that the node is not lost"


def test_pod_that_is_gone_is_passed_over():
    verdicts = [("n0", NodeVerdict("it is gone", in_the_way=(PodFacts.read(build_pinned_pod("n0")),)))]
    assert plan_ends(list_waiting(verdicts), lambda _: None, NOW).names == ()


def test_nodes_that_were_just_reported_are_not_reported_again():
    assert plan(["n0"], is_just_reported=True).names == ()


@pytest.mark.parametrize(("lost", "evicts"), [(2, False), (3, True)])
def test_workload_that_has_lost_more_nodes_than_its_own_threshold_is_evicted(lost: int, evicts: bool):
    workload = build_workload_json("w", [build_pod_set_json(count=5)], owner="uid-job")
    workload["metadata"]["annotations"] = {LOST_NODES_THRESHOLD: "2"}
    nodes = NodesFacts(workload, WorkloadFacts.read(workload), dict.fromkeys(map(str, range(lost)), "it is gone"), 5)
    assert (EVICT in plan_report(nodes, HealthRules(reads_threshold=True), NOW).names) is evicts
    assert EVICT not in plan_report(nodes, HealthRules(), NOW).names


@pytest.mark.parametrize(("rules", "why"), [(HealthRules(max_nodes=1), "maxNodes is 1"), (HealthRules(max_share=0.5), "maxShare is 0.5")])
def test_workload_that_has_lost_more_than_a_limit_is_evicted(rules: HealthRules, why: str):
    found = plan(["n0", "n1"], rules=rules)
    (step,) = found.steps
    assert step.name == EVICT
    assert isinstance(step.write, w.Apply)
    assert step.write.guard is w.Guard.AS_JUDGED
    assert all(part in step.events[0].message for part in ("2 of 3", f"nodeReplacement.{why}", "n0 (", "n1 ("))


def test_workload_with_more_lost_nodes_than_the_api_takes_is_evicted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(node_steps, "MOST_NAMED", 1)
    assert plan(["n0", "n1"]).names == (EVICT,)


def test_pods_of_an_admission_that_is_over_are_ended():
    pods = {f"ns/on-{node}": build_pinned_pod(node) for node in NODES[:2]}
    found = plan_leftovers([PodFacts.read(build_pinned_pod(node)) for node in NODES], lambda pod: pods.get(pod.key), NOW)
    assert len(list_first_steps(found)) == 2
    for step in list_first_steps(found):
        assert step.passes == {Overtaken.GONE, Overtaken.CHANGED}
        assert step.events[0].reason == EVENT_POD_TERMINATED


def test_eviction_behind_its_annotation_is_guarded_as_judged():
    """By a review: it was guarded by the version, and the pods that showed the loss were ended before."""
    seen = build_workload_json("w", [build_pod_set_json(count=3)], owner="uid-job")
    seen["status"] = {"schedulingStats": {"evictions": [{"reason": "NodeFailures", "count": 2}]}}
    seen["status"]["conditions"] = [{"type": "Admitted", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]
    facts = WorkloadFacts.read(seen)
    known = NodesFacts(seen, facts, dict.fromkeys(NODES, "it is gone"), 3)
    annotate, evict = plan_report(known, HealthRules(max_nodes=1), NOW).steps
    assert isinstance(annotate.write, w.Patch)
    assert annotate.write.guard is w.Guard.AS_JUDGED
    assert isinstance(evict.write, Then)
    built = evict.write.build(seen)
    assert isinstance(built, w.Apply)
    assert built.guard is w.Guard.AS_JUDGED
