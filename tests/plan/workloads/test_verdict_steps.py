"""What is written and reported of a decision: tables of outcomes and of what a workload is before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from core import trace_names as t
from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.configuration import ResourceRules, SecondPass
from core.model.node_health_rules import RequeueRules
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import (
    ADMITTED,
    EVENT_PODS_MOVED,
    EVENT_SECOND_PASS_FAILED,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    HOSTNAME_LABEL,
    PREEMPTED,
    QUOTA_RESERVED,
    REASON_IN_QUEUE,
    REASON_NODE_FAILURES,
    SPARES,
    TOPOLOGY_PENDING,
)
from core.plan.steps import api_resources as r
from core.plan.steps.steps import Plan, Step
from core.plan.steps.writes import Apply, Delete, Guard, Patch
from core.plan.workloads.admission_status import MAX_ETCD_BYTES
from core.plan.workloads.verdict_steps import (
    LOST_ANSWER,
    DecidedWorkload,
    Judged,
    PresentVictim,
    VerdictRules,
    list_swapped_in,
    plan_lost_answer,
    plan_preemption,
    plan_verdict,
    refuse_too_large,
)
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible, Preempting, Victim
from core.state.facts import WorkloadFacts, find_condition, is_condition_true
from tests.builders import build_condition_json, build_pod_set_json, build_workload_json

Json = dict[str, Any]
BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
NOW = BEGAN + timedelta(seconds=3)
WRITTEN = "2026-01-02T00:00:03Z"
RULES = VerdictRules(ResourceRules(), SecondPass(), RequeueRules())
WAITS = NotAdmissible("InsufficientQuota", "no quota for 2 pods", ())
BREAKS = replace(WAITS, breaks_rule=True)
LOSES = NotAdmissible(REASON_NODE_FAILURES, "no other place", (), evicts=True)


def admit(*nodes: str, spares: tuple[str, ...] = (), delayed: str | None = None) -> Admission:
    """One pod on each of these nodes."""
    domains = tuple(DomainCount((node,), 1) for node in nodes)
    assignment = TopologyAssignment((HOSTNAME_LABEL,), domains) if nodes else None
    return Admission("cq", (PodSetAdmission("main", {"cpu": "gpu"}, {"cpu": 1000}, 2, assignment, delayed, spares),))


def find(*nodes: str, **more: Any) -> Admissible:
    """A place on these nodes."""
    return Admissible(admit(*nodes, **more), (), ())


def make_workload(*true: str, admission: Admission | None = None, unhealthy: str = "", **status: Any) -> Json:
    wire = build_workload_json("w", [build_pod_set_json(count=2)], conditions=[build_condition_json(kind) for kind in true])
    wire["status"] |= status | ({"admission": encode_admission(admission)} if admission is not None else {})
    if unhealthy:
        wire["status"]["unhealthyNodes"] = [{"name": unhealthy}]
    return wire


def decide(outcome: Admissible | NotAdmissible, wire: Json | None = None, *, second: bool = False, **more: Any) -> DecidedWorkload:
    wire = wire if wire is not None else make_workload()
    verdict = Verdict(WorkloadFacts.read(wire), outcome, second)
    return DecidedWorkload(wire, Judged(verdict, BEGAN, BEGAN), outcome, NOW, RULES, "cq", **more)


def preempt(seen: Json) -> list[Step]:
    """The steps that evict a victim, as it is by now, of workload `high`."""
    owner = {"kind": "Job", "name": "j", "uid": "job-1", "controller": True}
    wire = make_workload()
    wire = {**wire, "metadata": {**wire["metadata"], "name": "high", "uid": "high", "ownerReferences": [owner]}}
    present = PresentVictim(Victim(WorkloadFacts.read(make_workload(*RUNS, admission=admit("n1"))), REASON_IN_QUEUE), seen, "/root/b")
    f = decide(replace(WAITS, preempting=Preempting(find("n1"), (), ())), wire, path="/root/a", victims=(present,))
    return [*plan_preemption(f, present, WRITTEN).steps]


def read_status(plan: Plan) -> Json:
    """The one status that a plan writes."""
    (write,) = (step.write for step in plan.steps if isinstance(step.write, Apply))
    assert write.guard is Guard.AS_SEEN
    return {"status": dict(write.body["status"])}


def list_reasons(plan: Plan) -> list[str]:
    return [event.reason for step in plan.steps for event in step.events if not event.on_job]


def list_reasons_on_job(plan: Plan) -> list[str]:
    return [event.reason for step in plan.steps for event in step.events if event.on_job]


def list_spans(plan: Plan) -> list[str]:
    return [step.span.name for step in plan.steps if step.span is not None]


RUNS = (QUOTA_RESERVED, ADMITTED)


def test_first_admission_is_one_write_after_the_wait_and_the_decision():
    plan = plan_verdict(decide(find("n1", "n2")))
    assert plan.names == ("report wait", "report decision", "admit")
    assert list_spans(plan) == [t.QUEUED, t.SOLVE, t.ADMIT]
    assert is_condition_true(read_status(plan), ADMITTED)
    assert list_reasons(plan) == [QUOTA_RESERVED, ADMITTED]


def test_admission_with_checks_to_pass_is_not_reported_as_one():
    plan = plan_verdict(decide(replace(find("n1"), checks=("nodes",))))
    assert not is_condition_true(read_status(plan), ADMITTED)
    assert list_reasons(plan) == [QUOTA_RESERVED]


def test_place_found_in_a_second_pass_says_how_long_the_checks_took():
    before = make_workload(QUOTA_RESERVED, admission=admit(delayed=TOPOLOGY_PENDING))
    plan = plan_verdict(decide(find("n1"), before, second=True))
    assert list_spans(plan) == [t.CHECKED, t.SOLVE, t.ADMIT]
    assert list_reasons(plan) == [ADMITTED]
    (event,) = plan.steps[-1].events
    assert "86403s" in event.message


def test_spares_are_named_before_the_admission_by_which_they_are_held():
    plan = plan_verdict(decide(find("n1", spares=("n9",))))
    assert plan.names == ("report wait", "report decision", "name spares", "admit")
    patch = plan.steps[2].write
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {SPARES: '{"main":["n9"]}'}}}


@pytest.mark.parametrize(("unhealthy", "ends"), [("n1", False), ("", True)])
def test_another_place_ends_stuck_pods_and_is_reported_on_the_job(unhealthy: str, ends: bool):
    before = make_workload(*RUNS, admission=admit("n1", "n2"), unhealthy=unhealthy)
    stuck = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {}}
    plan = plan_verdict(decide(find("n3", "n2"), before, second=True, moved=(stuck,) if ends else ()))
    assert plan.names == ("report decision", *(("end stuck pod",) if ends else ()), "admit")
    assert (list_reasons(plan), list_reasons_on_job(plan)) == ([EVENT_PODS_MOVED], [EVENT_PODS_MOVED])
    assert "unhealthyNodes" not in read_status(plan)["status"]
    if ends:
        assert plan.steps[1].write == Delete(r.PODS, stuck, Guard.WAITING)


def test_place_for_a_stuck_pod_that_is_bound_by_now_is_not_written():
    before = make_workload(*RUNS, admission=admit("n1", "n2"))
    bound = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "n1"}}
    plan = plan_verdict(decide(find("n3", "n2"), before, second=True, moved=(bound,)))
    assert not plan.steps
    assert "pod ns/p" in plan.problem


@pytest.mark.parametrize("outcome", [WAITS, BREAKS])
def test_refusal_is_written_and_reported_once(outcome: NotAdmissible):
    plan = plan_verdict(decide(outcome))
    deactivates = ("deactivate",) if outcome.breaks_rule else ()
    assert plan.names == ("report decision", "let wait", *deactivates, "report refusal")
    assert list_reasons(plan) == [outcome.reason]
    assert list_reasons_on_job(plan) == [EVENT_WORKLOAD_REFUSED if outcome.breaks_rule else outcome.reason]
    told = {**make_workload(), **read_status(plan)}
    assert plan_verdict(decide(outcome, told)).names == deactivates, "what is written already is not written again"


def test_failed_second_pass_writes_nothing_and_is_made_again():
    check = {"name": "c", "state": "Ready", "lastTransitionTime": WRITTEN, "message": ""}
    before = make_workload(QUOTA_RESERVED, admission=admit(delayed=TOPOLOGY_PENDING), admissionChecks=[check])
    plan = plan_verdict(decide(WAITS, before, second=True))
    assert [step.write for step in plan.steps] == [None, None]
    assert plan.again_s == SecondPass().compute_wait_s(0.0)
    assert (list_reasons(plan), list_reasons_on_job(plan)) == ([EVENT_SECOND_PASS_FAILED], [EVENT_SECOND_PASS_FAILED])


def test_second_pass_without_checks_is_made_again_by_events_only():
    before = make_workload(*RUNS, admission=admit("n1"), unhealthy="n1")
    assert plan_verdict(decide(WAITS, before, second=True)).again_s is None


def test_workload_that_has_no_other_place_is_evicted_with_its_reason():
    before = make_workload(*RUNS, admission=admit("n1"), unhealthy="n1")
    plan = plan_verdict(decide(LOSES, before, second=True))
    assert plan.names[-1] == "evict"
    status = read_status(plan)
    assert is_condition_true(status, EVICTED)
    why = (find_condition(status, EVICTED) or {})["message"]
    assert why.startswith("no other place")
    (event,) = plan.steps[-1].events
    assert (event.reason, event.message) == (f"EvictedDueTo{REASON_NODE_FAILURES}", why)


@pytest.mark.parametrize(
    ("outcome", "wire", "second"),
    list(
        product(
            [find("n1", "n2"), find("n1", "n2", spares=("n3",)), find(delayed=TOPOLOGY_PENDING), WAITS, BREAKS, LOSES],
            [
                make_workload(),
                make_workload(EVICTED),
                make_workload(QUOTA_RESERVED, admission=admit(delayed=TOPOLOGY_PENDING)),
                make_workload(*RUNS, admission=admit("n4", "n5", spares=("n1",)), unhealthy="n4"),
                make_workload(*RUNS, EVICTED, admission=admit("n4", "n5")),
            ],
            [False, True],
        )
    ),
)
def test_every_plan_writes_one_status_at_most_and_reports_the_decision(outcome: Admissible | NotAdmissible, wire: Json, second: bool):
    f = decide(outcome, wire, second=second)
    plan = plan_verdict(f)
    assert plan == plan_verdict(f), "it is computed from its facts alone"
    statuses = [step for step in plan.steps if isinstance(step.write, Apply)]
    assert len(statuses) <= 1
    if isinstance(outcome, Admissible):
        assert read_status(plan)["status"]["admission"] == encode_admission(outcome.admission)
    assert not plan.steps or list_spans(plan).count(t.SOLVE) == 1


def test_place_that_etcd_would_not_take_is_refused_with_its_size():
    assert refuse_too_large(make_workload(), find("n1")) is None
    assert refuse_too_large(make_workload(), WAITS) is None
    heavy = make_workload()
    heavy["metadata"]["annotations"] = {"a": "x" * MAX_ETCD_BYTES}
    for outcome in (find("n1"), replace(WAITS, preempting=Preempting(find("n1"), (), ()))):
        refused = refuse_too_large(heavy, outcome)
        assert refused is not None
        assert f"etcd takes {MAX_ETCD_BYTES}" in refused.message
    assert refuse_too_large(heavy, replace(LOSES, preempting=Preempting(find("n1"), (), ()))) is None


@pytest.mark.parametrize(
    ("before", "now", "second", "arrived"),
    [
        (make_workload(), make_workload(), False, False),
        (make_workload(), make_workload(*RUNS, admission=admit("n1")), False, True),
        (
            make_workload(QUOTA_RESERVED, admission=admit(delayed=TOPOLOGY_PENDING)),
            make_workload(QUOTA_RESERVED, admission=admit(delayed=TOPOLOGY_PENDING)),
            True,
            False,
        ),
        (make_workload(QUOTA_RESERVED, admission=admit(delayed=TOPOLOGY_PENDING)), make_workload(*RUNS, admission=admit("n1")), True, True),
        (
            make_workload(*RUNS, admission=admit("n1"), unhealthy="n1"),
            make_workload(*RUNS, admission=admit("n1"), unhealthy="n1"),
            True,
            False,
        ),
        (make_workload(*RUNS, admission=admit("n1"), unhealthy="n1"), make_workload(*RUNS, admission=admit("n2")), True, True),
        (make_workload(*RUNS, admission=admit("n1")), make_workload(*RUNS, admission=admit("n1")), True, False),
        (make_workload(*RUNS, admission=admit("n1")), make_workload(*RUNS, admission=admit("n2")), True, True),
        (make_workload(*RUNS, admission=admit("n1")), make_workload(), True, False),
    ],
)
def test_write_without_an_answer_is_looked_up_and_one_that_did_not_arrive_never_will(before: Json, now: Json, second: bool, arrived: bool):
    verdict = Verdict(WorkloadFacts.read(before), find("n2"), second)
    plan = plan_lost_answer(verdict, now, WRITTEN, ResourceRules())
    assert (plan.steps == ()) is arrived
    if arrived:
        return
    (write,) = (step.write for step in plan.steps)
    assert isinstance(write, Apply)
    assert (write.seen, write.guard) == (now, Guard.AS_SEEN)
    assert write.body["status"].get("admission") == now["status"].get("admission"), "it takes no place away"
    texts = [condition["message"] for condition in write.body["status"]["conditions"]]
    assert LOST_ANSWER in texts


def test_spares_that_took_pods_are_those_that_are_held_no_more():
    facts = WorkloadFacts.read(make_workload(*RUNS, admission=admit("n1")))
    assert facts.admission is not None
    held = replace(facts, admission=admit("n1", spares=("n8", "n9")))
    assert list_swapped_in(held, find("n8", spares=("n9",))) == ["n8"]
    assert list_swapped_in(held, WAITS) == []


@pytest.mark.parametrize(
    ("seen", "goes"),
    [
        (make_workload(*RUNS, admission=admit("n1")), True),
        (make_workload(*RUNS, EVICTED, admission=admit("n1")), False),
        ({**make_workload(*RUNS), "metadata": {**make_workload()["metadata"], "uid": "another"}}, False),
    ],
)
def test_victim_is_evicted_once_and_reported_with_the_path_of_its_queue(seen: Json, goes: bool):
    steps = preempt(seen)
    if not goes:
        assert steps == []
        return
    (step,) = steps
    assert isinstance(step.write, Apply)
    assert step.write.guard is Guard.AS_JUDGED
    status = {"status": step.write.body["status"]}
    assert is_condition_true(status, EVICTED)
    assert [event.reason for event in step.events] == [PREEMPTED, f"EvictedDueTo{PREEMPTED}"]
    message = (find_condition(status, PREEMPTED) or {})["message"]
    named = ("UID: high", "JobUID: job-1", "prioritization in the ClusterQueue", "preemptor path: /root/a", "preemptee path: /root/b")
    assert all(part in message for part in named)
