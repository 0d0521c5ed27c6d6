"""What follows from what is judged of a workload's nodes: tables, without any double."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations
from typing import Any

import pytest

from core.model.node_health_rules import HealthRules
from core.names import EVENT_NODE_UNHEALTHY, EVENT_POD_TERMINATED, HOSTNAME_LABEL, LOST_NODES_THRESHOLD
from core.plan.pods.node_health import NodeVerdict
from core.plan.pods.node_steps import MOST_NAMED, REPORT_LOST, NodesFacts, plan_leftovers, plan_nodes
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.steps import Hold, MadeSteps, Overtaken, ParallelSteps, Plan, Step, Then
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


def build_pinned_pod(node: str, name: str = "") -> dict[str, Any]:
    return build_pod_json(name or f"on-{node}", workload="w", owner="uid-job", node_selector={HOSTNAME_LABEL: node})


def judge(
    lost: Sequence[str], workload: dict[str, Any] | None = None, *, nodes: int = 3, waiting: Mapping[str, Sequence[str]] = {}, **more: Any
) -> NodesFacts:
    """Some of its nodes are lost; names of pods that are `waiting` for a node."""
    wire = workload or build_workload_json("w", [build_pod_set_json(count=3)], owner="uid-job")
    pods = {f"ns/{name}": build_pinned_pod(node, name) for node, names in waiting.items() for name in names}
    in_the_way = {node: tuple(PodFacts.read(pods[f"ns/{name}"]) for name in names) for node, names in waiting.items()}
    verdicts = {(node, ""): NodeVerdict("it is gone" if node in lost else "", None, in_the_way.get(node, ())) for node in {*lost, *waiting}}
    named = {(node, ""): node for node in lost}
    return replace(NodesFacts(wire, WorkloadFacts.read(wire), nodes, {}, verdicts, named, pods, NOW), **more)


def follow(found: Plan, *failed: str, now: datetime = NOW) -> Plan:
    """What follows once pods are ended, but for those that failed."""
    assert found.rest is not None
    return found.rest([f"ns/{name}" for name in failed], now)


def plan(lost: Sequence[str], named: Sequence[str] = (), *, rules: HealthRules | None = None, **more: Any) -> Plan:
    """Of a workload on three nodes, of which its Workload names some as lost."""
    workload = build_workload_json("w", [build_pod_set_json(count=3)], owner="uid-job")
    workload["status"] = {"unhealthyNodes": [{"name": name} for name in named]}
    return plan_nodes(judge(lost, workload, **more), rules or HealthRules()).plan


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
    found = plan(lost, waiting={node: [f"on-{node}"] for node in NODES})
    assert found.steps[0].holds_up is Hold.NEVER
    for step in list_first_steps(found):
        (node,) = (node for node in NODES if f"node {node}," in step.events[0].message)
        assert [event.reason for event in step.events] == [EVENT_POD_TERMINATED]
        assert isinstance(step.write, w.Patch)
        assert step.write.guard is w.Guard.WAITING
        assert Overtaken.GONE in step.passes
        assert (Overtaken.CHANGED in step.passes) == (node not in lost), "a pod that is bound there shows that the node is not lost"


def test_pod_that_is_gone_is_passed_over():
    assert plan(["n0"], ["n0"], waiting={"n0": ["a"]}, pods={}).names == ()


@pytest.mark.parametrize(("failed", "named"), [((), ["n0", "n1"]), (("b",), ["n1"]), (("c",), ["n0"]), (("a", "c"), [])])
def test_node_with_a_pod_that_could_not_be_ended_is_not_named(failed: Sequence[str], named: Sequence[str]):
    """What showed that the others are lost may have ended with their pods."""
    found = follow(plan(["n0", "n1"], waiting={"n0": ["a", "b"], "n1": ["c"]}), *failed)
    assert found.names == ((REPORT_LOST,) if named else ())
    for step in found.steps:
        assert isinstance(step.write, w.Apply)
        assert step.write.body["status"]["unhealthyNodes"] == [{"name": node} for node in named]


def test_node_that_is_named_already_stays_named_whether_its_pods_could_be_ended():
    assert follow(plan(["n0"], ["n0"], waiting={"n0": ["a"]}), "a").names == ()


def test_step_of_a_waiting_pod_is_made_when_its_turn_comes():
    """50,000 at once would keep the event loop from all else."""
    together = plan(["n0"], waiting={"n0": ["a", "b"]}).steps[0].write
    assert isinstance(together, ParallelSteps)
    assert isinstance(together.steps, MadeSteps)
    assert [step.name for step in together.steps] == ["end pod", "end pod"]


@pytest.mark.parametrize(("named", "names"), [([], ()), (["n0"], ("end pods",))])
def test_nothing_is_lost_in_a_storm_that_was_not_lost_before(named: Sequence[str], names: tuple[str, ...]):
    found = plan(["n0"], named, waiting={"n0": ["a"]}, is_in_storm=True)
    assert found.names == names
    assert found.again_s == (None if names else pacing.STORM_LOOK_S)


@pytest.mark.parametrize(("reported", "again_s"), [(["n0"], 7.0), (["n1"], None), ([], None)])
def test_nodes_that_were_just_reported_are_not_reported_again(reported: Sequence[str], again_s: float | None):
    found = plan(["n0"], reported=reported, rest_s=7.0)
    assert (found.names, found.again_s) == ((REPORT_LOST,) if again_s is None else (), again_s)


@pytest.mark.parametrize(("seconds", "names"), [(6, ()), (8, (REPORT_LOST,))])
def test_ending_of_pods_takes_from_the_time_in_which_nodes_are_not_reported_again(seconds: float, names: tuple[str, ...]):
    found = plan(["n0"], reported=["n0"], rest_s=7.0, waiting={"n0": ["a"]})
    assert follow(found, now=NOW + timedelta(seconds=seconds)).names == names


@pytest.mark.parametrize(("lost", "evicts"), [(2, False), (3, True)])
def test_workload_that_has_lost_more_nodes_than_its_own_threshold_is_evicted(lost: int, evicts: bool):
    workload = build_workload_json("w", [build_pod_set_json(count=5)], owner="uid-job")
    workload["metadata"]["annotations"] = {LOST_NODES_THRESHOLD: "2"}
    nodes = judge([str(number) for number in range(lost)], workload, nodes=5)
    assert (EVICT in plan_nodes(nodes, HealthRules(reads_threshold=True)).plan.names) is evicts
    assert EVICT not in plan_nodes(nodes, HealthRules()).plan.names


@pytest.mark.parametrize(("rules", "why"), [(HealthRules(max_nodes=1), "maxNodes is 1"), (HealthRules(max_share=0.5), "maxShare is 0.5")])
def test_workload_that_has_lost_more_than_a_limit_is_evicted(rules: HealthRules, why: str):
    found = plan(["n0", "n1"], rules=rules)
    (step,) = found.steps
    assert step.name == EVICT
    assert isinstance(step.write, w.Apply)
    assert step.write.guard is w.Guard.AS_JUDGED
    assert all(part in step.events[0].message for part in ("2 of 3", f"nodeReplacement.{why}", "n0 (", "n1 ("))


def test_workload_with_more_lost_nodes_than_the_api_takes_is_evicted():
    lost = [f"n{number}" for number in range(MOST_NAMED + 1)]
    assert plan(lost[1:], nodes=len(lost)).names == (REPORT_LOST,)
    assert plan(lost, nodes=len(lost)).names == (EVICT,)


def test_pods_of_an_admission_that_is_over_are_ended():
    pods = {f"ns/on-{node}": build_pinned_pod(node) for node in NODES[:2]}
    found = plan_leftovers(build_workload_json("w", []), [PodFacts.read(build_pinned_pod(node)) for node in NODES], pods, NOW)
    assert len(list_first_steps(found)) == 2
    for step in list_first_steps(found):
        assert step.passes == {Overtaken.GONE, Overtaken.CHANGED}
        assert step.events[0].reason == EVENT_POD_TERMINATED


def test_eviction_behind_its_annotation_is_guarded_as_judged():
    """By a review: it was guarded by the version, and the pods that showed the loss were ended before."""
    seen = build_workload_json("w", [build_pod_set_json(count=3)], owner="uid-job")
    seen["status"] = {"schedulingStats": {"evictions": [{"reason": "NodeFailures", "count": 2}]}}
    seen["status"]["conditions"] = [{"type": "Admitted", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]
    annotate, evict = plan_nodes(judge(NODES, seen), HealthRules(max_nodes=1)).plan.steps
    assert isinstance(annotate.write, w.Patch)
    assert annotate.write.guard is w.Guard.AS_JUDGED
    assert isinstance(evict.write, Then)
    built = evict.write.build(seen)
    assert isinstance(built, w.Apply)
    assert built.guard is w.Guard.AS_JUDGED
