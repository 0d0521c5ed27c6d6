"""Pods that stay gated: while their node is not ready, and while pods that the owner lost use their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.model.admission import Admission, PodSetAdmission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL, JOB_COMPLETION_INDEX_LABEL
from core.plan.steps.ungate import plan_ungating
from core.state.facts import PodFacts, WorkloadFacts
from tests.builders import build_pod_json, build_pod_set_json, build_workload_json

OWNER = "uid-job"


def build_pods(count: int) -> list[PodFacts]:
    return [PodFacts.read(build_pod_json(f"p{i}", workload="w", owner=OWNER, gated=True)) for i in range(count)]


def build_workload(count: int) -> tuple[WorkloadFacts, Admission]:
    hosts = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((f"n{i}",), 1) for i in range(count)))
    admission = Admission("cq", (PodSetAdmission("main", {"cpu": "tas"}, {}, count, hosts),))
    return WorkloadFacts.read(build_workload_json("w", [build_pod_set_json(count=count)], owner=OWNER)), admission


def test_a_pod_stays_gated_while_its_node_is_not_ready():
    """Former defect: it was ungated there, ended as Failed half a minute later, and cost the job a retry."""
    facts, admission = build_workload(3)
    plan = plan_ungating(facts, admission, build_pods(3), is_ready=lambda given, values: values != ("n1",))
    assert sorted(action.node_selector[HOSTNAME_LABEL] for action in plan.actions) == ["n0", "n2"]
    assert plan.held == 1


@pytest.mark.parametrize(("others", "ungated"), [(0, 4), (1, 3), (4, 0), (9, 0)])
def test_pods_that_the_owner_lost_keep_their_places(others: int, ungated: int):
    """Former defect: the Job controller made replacements for pods that a user took from it, and twice as many ran."""
    facts, admission = build_workload(4)
    released = [replace(pod, key=f"ns/released-{i}", gated=False) for i, pod in enumerate(build_pods(others))]
    plan = plan_ungating(facts, admission, build_pods(4), others=released)
    assert len(plan.actions) == ungated
    assert plan.held == 4 - ungated


@pytest.mark.parametrize("inside", range(3))
@pytest.mark.parametrize("strays", range(5))
@pytest.mark.parametrize("waiting", range(5))
@pytest.mark.parametrize("ended", [0, 7])
def test_pods_outside_of_the_assignment_count_among_those_admitted(inside: int, strays: int, waiting: int, ended: int):
    """Former defect: pods of an elastic job ran outside of its assignment, and 24 GPUs of a quota of 16 were used."""
    facts, admission = build_workload(3)
    there = [*(f"n{i}" for i in range(inside)), *(f"elsewhere{i}" for i in range(strays))]
    run = [
        PodFacts.read(build_pod_json(f"r{i}", workload="w", owner=OWNER, node=node, node_selector={HOSTNAME_LABEL: node}))
        for i, node in enumerate(there)
    ]
    over = [PodFacts.read(build_pod_json(f"e{i}", workload="w", owner=OWNER, node="n2", phase="Succeeded")) for i in range(ended)]
    plan = plan_ungating(facts, admission, [*run, *over, *build_pods(waiting)])
    assert len(plan.actions) == min(waiting, max(0, 3 - inside - strays))
    assert len(plan.strays) == strays


def test_pod_of_the_same_index_as_a_released_pod_waits_for_the_place_of_that_pod():
    """Seed 2039 of an attack: another pod of the pod set had no place at that time, and three pods ran in a domain for two."""
    topology = {"required": "rack", "podIndexLabel": JOB_COMPLETION_INDEX_LABEL}
    facts = WorkloadFacts.read(build_workload_json("w", [build_pod_set_json(count=3, topology=topology)], owner=OWNER))
    _, admission = build_workload(3)

    def build(name: str, index: int, *, runs: bool) -> PodFacts:
        where = {"node": f"n{index}", "node_selector": {HOSTNAME_LABEL: f"n{index}"}} if runs else {"gated": True}
        return PodFacts.read(build_pod_json(name, workload="w", owner=OWNER, labels={JOB_COMPLETION_INDEX_LABEL: str(index)}, **where))

    own = [build("p0", 0, runs=True), build("new", 2, runs=False)]  # the pod of index 1 is not made anew yet
    plan = plan_ungating(facts, admission, own, others=[build("released", 2, runs=True)])
    assert (plan.actions, plan.held) == ((), 1)
    own.append(build("p1", 1, runs=False))
    plan = plan_ungating(facts, admission, own, others=[build("released", 2, runs=True)])
    assert [action.node_selector[HOSTNAME_LABEL] for action in plan.actions] == ["n1"]


@pytest.mark.parametrize(("up", "ungated"), [(True, 0), (False, 1)])
def test_a_pod_that_ends_keeps_its_place_from_the_one_made_instead(up: bool, ungated: int):
    """A pod with a long grace period runs on after it is deleted: its user must not double what runs by that."""
    topology = {"required": "rack", "podIndexLabel": JOB_COMPLETION_INDEX_LABEL}
    facts = WorkloadFacts.read(build_workload_json("w", [build_pod_set_json(count=1, topology=topology)], owner=OWNER))
    _, admission = build_workload(1)
    labels = {JOB_COMPLETION_INDEX_LABEL: "0"}
    there = build_pod_json(
        "ends", workload="w", owner=OWNER, node="n0", node_selector={HOSTNAME_LABEL: "n0"}, terminating=True, labels=labels
    )
    new = PodFacts.read(build_pod_json("new", workload="w", owner=OWNER, gated=True, labels=labels))
    ends = PodFacts.read(there)
    assert len(plan_ungating(facts, admission, [ends, new], is_up=lambda node: up).actions) == ungated
    assert len(plan_ungating(facts, admission, [replace(ends, dropped=True), new], is_up=lambda node: True).actions) == 1


@pytest.mark.parametrize(("lost", "ungated"), [("", ["n1"]), ("n1", [])])
def test_pod_ending_in_a_domain_keeps_that_place_and_not_the_one_in_another_domain(lost: str, ungated: list[str]):
    """Seed 171 of failing nodes, kube-scheduler 0.7 s late: the new pod took room on n0 that was promised to another workload."""
    _, admission = build_workload(2)
    topology = {"required": "rack", "podIndexLabel": JOB_COMPLETION_INDEX_LABEL}
    facts = WorkloadFacts.read(build_workload_json("w", [build_pod_set_json(count=2, topology=topology)], owner=OWNER))
    new = [
        PodFacts.read(build_pod_json(f"p{i}", workload="w", owner=OWNER, gated=True, labels={JOB_COMPLETION_INDEX_LABEL: str(i)}))
        for i in range(2)
    ]
    there: dict[str, Any] = {"node": "n0", "node_selector": {HOSTNAME_LABEL: "n0"}, "labels": {JOB_COMPLETION_INDEX_LABEL: "0"}}
    ends = PodFacts.read(build_pod_json("ends", workload="w", owner=OWNER, terminating=True, **there))
    plan = plan_ungating(replace(facts, unhealthy_nodes=frozenset({lost})), admission, [ends, *new], is_up=lambda node: True)
    assert [action.node_selector[HOSTNAME_LABEL] for action in plan.actions] == ungated


class CountedDomains(tuple[DomainCount, ...]):
    """Domains that count how often they are gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[DomainCount]:
        CountedDomains.rounds += 1
        return super().__iter__()


def test_plan_with_many_pods_that_end_reads_the_assignment_as_often_as_with_few():
    rounds = []
    for ending in (2, 20):
        facts, admission = build_workload(20)
        given = admission.pod_sets[0]
        assert given.assignment is not None
        counted = replace(given, assignment=replace(given.assignment, domains=CountedDomains(given.assignment.domains)))
        there = [
            PodFacts.read(
                build_pod_json(f"e{i}", workload="w", owner=OWNER, node="x", node_selector={HOSTNAME_LABEL: "x"}, terminating=True)
            )
            for i in range(ending)
        ]
        CountedDomains.rounds = 0
        plan_ungating(facts, replace(admission, pod_sets=(counted,)), [*there, *build_pods(20)], is_up=lambda node: True)
        rounds.append(CountedDomains.rounds)
    assert rounds[0] == rounds[1]


def test_whether_a_domain_is_ready_is_asked_once_for_all_its_pods():
    facts, admission = build_workload(1)
    given, asked = admission.pod_sets[0], list[tuple[str, ...]]()
    wide = replace(given, count=20, assignment=TopologyAssignment(("rack",), (DomainCount(("r0",), 20),)))

    def is_ready(given: PodSetAdmission, values: tuple[str, ...]) -> bool:
        asked.append(values)
        return True

    plan = plan_ungating(
        replace(facts, pod_sets=(replace(facts.pod_sets[0], count=20),)), Admission("cq", (wide,)), build_pods(20), is_ready=is_ready
    )
    assert len(plan.actions) == 20
    assert asked == [("r0",)]
