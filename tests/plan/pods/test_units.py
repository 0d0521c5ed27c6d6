"""The next steps of a unit of pods by what is known of it, and all combinations of what it may look like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from core.jobs.kinds.pod import Pod, build_pod_topology_request, has_admission_gate
from core.jobs.kinds.registry import KINDS
from core.model.admission import Admission, PodSetAdmission
from core.names import (
    ADMISSION_GATE,
    ADMITTED,
    EVICTED,
    FINISHED,
    MANAGED,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    QUOTA_RESERVED,
)
from core.plan.pods.pod_units import ALONE, GROUP, Unit
from core.plan.pods.units import CREATE, START, WAITING, PodsToRead, UnitFacts, plan_refused_name, plan_unit
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.steps import ParallelSteps, Plan
from core.plan.steps.writes import Create
from core.plan.workloads.workload_steps import DROP_FINALIZER, FINISH, RELEASE
from core.state.facts import FlavorFacts, PodFacts, WorkloadFacts, is_condition_true
from core.state.owners import mark_uid

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
MARKED = mark_uid(r.show_kind(r.PODS), "uid-sts")
GROUP_UNIT, LONE = Unit(GROUP, "ns", "g"), Unit(ALONE, "ns", "a")


def make_pod(name: str, *, gated: bool = True, total: int = 2, phase: str = "Pending", of_group: bool = True, **metadata: Any) -> Json:
    labels = {MANAGED: "true", QUEUE_NAME_LABEL: "main", **({POD_GROUP_NAME: "g"} if of_group else {}), **metadata.pop("labels", {})}
    notes = {POD_GROUP_TOTAL_COUNT: str(total)} if of_group else {}
    identity = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": NOW}
    spec = {"containers": [{"name": "c"}], "schedulingGates": [{"name": ADMISSION_GATE}] if gated else []}
    finalizers = [MANAGED]
    return {
        "metadata": {**identity, "labels": labels, "annotations": notes, "finalizers": finalizers, **metadata},
        "spec": spec,
        "status": {"phase": phase},
    }


ASKED = build_pod_topology_request(make_pod("a"))


def make_workload(*true: str, active: bool = True, count: int = 2, **metadata: Any) -> Json:
    conditions = [{"type": kind, "status": "True", "reason": kind, "message": kind, "lastTransitionTime": NOW} for kind in true]
    given = [{"name": "main", "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {}}]
    admission = {"clusterQueue": "q", "podSetAssignments": given}
    pod_sets = [{"name": "main", "count": count, "template": {"spec": {"containers": [{"name": "c"}]}}, "topologyRequest": ASKED}]
    identity = {
        "name": "g",
        "namespace": "ns",
        "uid": "w",
        "resourceVersion": "7",
        "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
    }
    return {
        "metadata": {**identity, "finalizers": ["kueue.x-k8s.io/resource-in-use"], **metadata},
        "spec": {"queueName": "main", "active": active, "podSets": pod_sets},
        "status": {"conditions": conditions, **({"admission": admission} if QUOTA_RESERVED in true else {})},
    }


def make_facts(*pods: Json, workload: Json | None = None, unit: Unit = GROUP_UNIT, **more: Any) -> UnitFacts:
    facts = None
    if workload is not None:
        facts = WorkloadFacts.read(workload)
        if "admission" in workload["status"]:
            facts = replace(facts, admission=Admission("q", (PodSetAdmission("main", {"cpu": "f"}, {}, 2, None),)))
    naming = [] if workload is None else [read_pod(pod) for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
    flavors, admitted = {"f": FlavorFacts.read({"metadata": {"name": "f"}})}, {"main": {"pods": 1}}
    source = pods[0] if pods else None
    return UnitFacts(unit, NOW, Pod(tuple(KINDS)), source, workload, list(pods), naming, facts, admitted, flavors, **more)


def read_pod(pod: Json) -> PodFacts:
    metadata = pod["metadata"]
    key, is_going = f"ns/{metadata['name']}", "deletionTimestamp" in metadata
    return PodFacts(key, metadata["uid"], "", False, is_going, has_admission_gate(pod), {}, "ns/g", "main", "u", {}, {})


def build_pods_of_class(name: str) -> list[Json]:
    return [make_pod(pod, labels={PRIORITY_CLASS_LABEL: name}) for pod in ("a", "b")]


def plan(facts: UnitFacts) -> Plan:
    planned = plan_unit(facts)
    assert isinstance(planned, Plan)
    return planned


RUNS = (QUOTA_RESERVED, ADMITTED)
A, B = make_pod("a"), make_pod("b")
A_DONE = make_pod("a", gated=False, phase="Succeeded")
A_RUNS, B_RUNS = make_pod("a", gated=False, phase="Running"), make_pod("b", gated=False, phase="Running")


@pytest.mark.parametrize(
    ("facts", "names", "again_s"),
    [
        (make_facts(A), (WAITING,), pacing.GROUP_PATIENCE_S + 0.1),
        (make_facts(A, waited_s=pacing.GROUP_PATIENCE_S), (WAITING,), None),
        (make_facts(A, B, examples={"main": A}), (CREATE,), None),
        (make_facts(A_RUNS, B, examples={"main": A}), ("delete pods", CREATE), None),
        (make_facts(A, B, workload=make_workload()), (), None),
        (make_facts(A_RUNS, B, workload=make_workload()), ("delete pods",), pacing.STOP_POLL_S),
        (make_facts(A, B, workload=make_workload(*RUNS)), (START,), None),
        (make_facts(A_RUNS, B_RUNS, workload=make_workload(*RUNS)), (), None),
        (make_facts(A_RUNS, B_RUNS, workload=make_workload(*RUNS, active=False)), ("evict",), None),
        (make_facts(A_RUNS, B_RUNS, workload=make_workload(*RUNS, EVICTED)), ("delete pods",), pacing.STOP_POLL_S),
        (make_facts(A, B, workload=make_workload(*RUNS, EVICTED)), (RELEASE,), None),
        (make_facts(A, B, make_pod("c"), workload=make_workload()), ("delete pods",), None),
        (make_facts(workload=make_workload(*RUNS)), ("delete workload",), None),
        (make_facts(A_RUNS, workload=make_workload(*RUNS, deletionTimestamp=NOW)), ("delete pods",), pacing.STOP_POLL_S),
        (
            make_facts(make_pod("a", phase="Succeeded", gated=False), workload=make_workload(FINISHED)),
            ("release pods", DROP_FINALIZER),
            None,
        ),
    ],
)
def test_group_in_a_state_gets_its_next_step(facts: UnitFacts, names: tuple[str, ...], again_s: float | None):
    planned = plan(facts)
    assert (planned.names, planned.again_s, planned.problem) == (names, again_s, "")


def test_group_of_pods_that_succeeded_is_finished():
    done = [make_pod(name, gated=False, phase="Succeeded") for name in ("a", "b")]
    assert plan(make_facts(*done, workload=make_workload(*RUNS))).names == (FINISH, "report")


def test_lone_pod_is_read_before_its_workload_is_made():
    pod = make_pod("a", of_group=False)
    assert plan_unit(make_facts(pod, unit=LONE)) == PodsToRead({"main": "a"})
    assert plan(make_facts(pod, unit=LONE, examples={"main": pod})).names == (CREATE,)
    assert plan(make_facts(pod, unit=LONE, examples={})).names == ()


def test_group_with_a_class_that_does_not_exist_has_a_problem_and_an_event():
    pods = build_pods_of_class("urgent")
    planned = plan(make_facts(*pods, examples={"main": pods[0]}))
    assert planned.names == ("report",)
    assert 'WorkloadPriorityClass "urgent"' in planned.problem


def test_workload_of_a_group_has_the_copied_labels_that_any_of_its_pods_has():
    pods = make_pod("a"), make_pod("b", labels={"team": "x", "other": "y"})
    planned = plan(make_facts(*pods, examples={"main": pods[0]}, copied_labels=("team", "stage")))
    (created,) = [step.write for step in planned.steps if isinstance(step.write, Create)]
    assert created.seen["metadata"]["labels"] == {"team": "x"}


def test_group_of_pods_that_differ_in_a_copied_label_gets_no_workload():
    pods = make_pod("a", labels={"team": "x"}), make_pod("b", labels={"team": "y"})
    planned = plan(make_facts(*pods, examples={"main": pods[0]}, copied_labels=("team",)))
    assert planned.names == ("report",)
    assert "label team: x and y" in str(planned.steps[0].events)
    assert plan(make_facts(*pods, examples={"main": pods[0]})).names == (CREATE,)
    assert plan(make_facts(*pods, workload=make_workload(*RUNS), copied_labels=("team",))).names == (START,)


def test_group_called_as_the_workload_of_another_says_so():
    facts = make_facts(A, B)
    assert plan_refused_name(facts, "g", make_workload()).names == ()
    owned = make_workload(ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}])
    assert plan_refused_name(facts, "g", owned).names == ("report",)


def list_states() -> Iterator[tuple[str, UnitFacts]]:
    """All combinations of two pods and their workload."""
    looks = [None, A, A_RUNS, make_pod("a", gated=False, phase="Succeeded"), make_pod("a", gated=False, phase="Failed")]
    looks += [make_pod("a", gated=gated, phase="Running", deletionTimestamp=NOW) for gated in (True, False)]
    others = [look and {**look, "metadata": {**look["metadata"], "name": "b", "uid": "uid-b"}} for look in looks]
    conditions = [None, (), (QUOTA_RESERVED,), RUNS, (*RUNS, EVICTED), (EVICTED,), (FINISHED,), (*RUNS, FINISHED)]
    for one, other, true, active, leaves in product(looks, others, conditions, (True, False), (True, False)):
        pods = [pod for pod in (one, other) if pod is not None]
        workload = None
        if true is not None:
            going: Json = {"deletionTimestamp": NOW} if leaves else {}
            workload = make_workload(*true, active=active, **going)
        shown = f"{[(p['metadata']['name'], has_admission_gate(p), p['status'], 'deletionTimestamp' in p['metadata']) for p in pods]}"
        yield f"{shown} {true=} {active=} {leaves=}", make_facts(*pods, workload=workload, examples={"main": A})


def test_no_state_lets_a_pod_past_its_admission_or_gives_quota_away_too_early():
    count = 0
    for shown, f in list_states():
        planned, workload = plan(f), f.workload
        count += 1
        admitted = workload is not None and is_condition_true(workload, ADMITTED) and not is_condition_true(workload, EVICTED)
        may_run = admitted and workload is not None and workload["spec"]["active"] and "deletionTimestamp" not in workload["metadata"]
        runs = [pod for pod in f.pods if not has_admission_gate(pod) and pod["status"]["phase"] not in ("Succeeded", "Failed")]
        if START in planned.names:
            assert may_run, shown
            [start] = [step.write for step in planned.steps if step.name == START]
            assert isinstance(start, ParallelSteps)
            assert len(start.steps) + len(runs) <= 2, shown
        if workload is not None and not is_condition_true(workload, FINISHED) and {RELEASE, FINISH, DROP_FINALIZER} & set(planned.names):
            assert not runs, shown
    assert count > 1_000


@pytest.mark.parametrize(
    ("ready", "dropped", "is_over"), [(True, True, False), (False, True, True), (None, True, True), (False, False, False)]
)
def test_pod_is_over_but_for_finalizers_once_it_was_dropped_on_a_lost_node(ready: bool | None, dropped: bool, is_over: bool):
    pod = replace(read_pod(make_pod("a", gated=False)), node="n0", dropped=dropped)
    nodes = {} if ready is None else {"n0": {"status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}}
    f = make_facts(make_pod("a"), seen={"ns/a": pod}, nodes=nodes)
    assert f.is_over_but_for_finalizers("ns/a") is is_over
    assert not f.is_over_but_for_finalizers("ns/b"), "it is gone"


@pytest.mark.parametrize(("owner", "is_own"), [("uid-sts", True), (MARKED, True), ("another", False), ("", False)])
def test_pod_is_made_for_its_source_where_its_controller_or_its_root_is(owner: str, is_own: bool):
    source = {"metadata": {"name": "s", "namespace": "ns", "uid": "uid-sts"}}
    owners = [{"kind": "StatefulSet", "name": "s", "uid": owner, "controller": True}] if owner else []
    pod = make_pod("a", ownerReferences=owners)
    f = replace(make_facts(pod), source=source)
    assert f.is_own(pod) is is_own
    assert replace(f, seen={"ns/a": replace(read_pod(pod), owner_uid="uid-sts")}).is_own(pod), "by what is above its controller"
    assert replace(f, source=None).is_own(pod)


def test_unit_with_a_pod_that_claims_more_than_was_admitted_is_looked_at_again():
    pods, workload = (make_pod("a"), make_pod("b")), make_workload(QUOTA_RESERVED, ADMITTED)
    facts = make_facts(*pods, workload=workload, seen={"ns/a": replace(read_pod(pods[0]), claimed={"d": 1})})
    found = plan(facts)
    assert START in found.names
    assert found.again_s == pacing.EXCESS_S
    assert plan(replace(facts, seen={})).again_s is None
