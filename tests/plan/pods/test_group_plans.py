"""What is written and reported of a replica of a PodGroup by the step that was decided on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from core import trace_names as t
from core.names import POD_GROUP_SCHEDULED, POD_GROUP_VERIFIED, PODGROUP_GATE, TRACEPARENT_ANNOTATION
from core.plan.pods.group_plans import DecidedGroup, plan_bound, plan_group, plan_group_condition, plan_return
from core.plan.steps import api_resources as r
from core.plan.steps.steps import MOST_SPAN_EVENTS, NOTHING, Hold, ParallelSteps, Plan, Step
from core.plan.steps.writes import Apply, Create, Patch
from core.podgroups.acting import SCHEDULED, UNSCHEDULABLE, GroupStep
from core.podgroups.group_explanation import GroupExplanation, PlacementFact
from core.podgroups.members import GroupKey, Member
from tests.builders import request

Obj = dict[str, Any]
KEY = GroupKey("ns", "g")
BEGAN, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
WRITTEN = "2026-01-01T00:00:01Z"
GROUP = {"apiVersion": r.POD_GROUPS.api_version, "metadata": {"namespace": "ns", "name": "g", "uid": "u", "generation": 3}, "spec": {}}
NATIVE = {**GROUP, "apiVersion": r.NATIVE_POD_GROUPS.api_version}
PLACED = GroupStep(True, SCHEDULED, "2 pods have their places")
LACKS = GroupExplanation("g", "rack", 4, 4, (PlacementFact("r1", 2, 1),), (), 2)
WAITS = GroupStep(False, UNSCHEDULABLE, "none of 2 placements takes 4", waits=True, explanation=LACKS)


def make_member(name: str) -> Member:
    return Member(f"ns/{name}", f"uid-{name}", KEY, request(1), gated=True)


def make_pod(name: str) -> Obj:
    spec = {"schedulingGates": [{"name": PODGROUP_GATE}]}
    return {"metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "5"}, "spec": spec}


A, B = make_member("a"), make_member("b")


def plan(group: Obj | None = GROUP, traceparent: str | None = None, **step: Any) -> Plan:
    decided = GroupStep(True, SCHEDULED, "why", **step)
    pods = {member.key: make_pod(member.key.partition("/")[2]) for member, _ in decided.let_go}
    return plan_group(DecidedGroup(KEY, group, decided, pods, BEGAN, NOW, traceparent))


def list_writes(step: Step) -> list[Patch]:
    assert isinstance(step.write, ParallelSteps)
    found = [each.write for each in step.write.steps if isinstance(each, Step)]
    assert all(isinstance(write, Patch) for write in found)
    return [write for write in found if isinstance(write, Patch)]


@pytest.mark.parametrize(
    ("group", "step", "names"),
    [
        (GROUP, {}, ()),
        (GROUP, {"give_back": (A,)}, ("give places back",)),
        (GROUP, {"keep": ((A, "n1"),)}, ("report decision", "keep places")),
        (GROUP, {"let_go": ((A, "n1"),)}, ("let go",)),
        (GROUP, {"hand_over": NATIVE}, ("hand over",)),
        (None, {"give_back": (A,)}, ("give places back",)),
        (None, {"keep": ((A, "n1"),), "let_go": ((B, "n1"),)}, ()),
        (
            GROUP,
            {"give_back": (A,), "keep": ((A, "n1"),), "let_go": ((B, "n1"),), "hand_over": NATIVE},
            ("hand over", "give places back", "report decision", "keep places", "let go"),
        ),
    ],
)
def test_step_of_a_group_leads_to_its_writes_in_their_order(group: Obj | None, step: Obj, names: tuple[str, ...]):
    planned = plan(group, **step)
    assert planned.names == names
    assert [each.holds_up for each in planned.steps if isinstance(each.write, ParallelSteps)] == [
        Hold.NEVER for name in names if name in ("give places back", "keep places", "let go")
    ], "a pod that is refused keeps no other from being written"


def test_places_of_pods_are_kept_by_their_nominated_nodes_in_a_span():
    decision, keep = plan(keep=((A, "n1"), (B, "n1"))).steps
    assert [(write.seen["metadata"]["uid"], write.body) for write in list_writes(keep)] == [
        (uid, {"status": {"nominatedNodeName": "n1"}}) for uid in ("uid-a", "uid-b")
    ]
    assert decision.span is not None
    assert keep.span is not None
    attributes = {t.POD_GROUP: "g", t.REPLICA: 0, t.POD_COUNT: 2}
    assert (decision.span.name, decision.span.start, decision.span.end) == (t.SOLVE, BEGAN, NOW)
    assert decision.span.attributes == attributes | {t.REFUSED: False, t.REASON: SCHEDULED, t.MESSAGE: "why"}
    assert decision.span.events == ((t.NODE_KEPT, {t.NODE_NAME: "n1", t.POD_COUNT: 2}, None),)
    assert (keep.span.name, keep.span.attributes) == (t.KEEP, attributes)


def test_places_given_back_are_removed_from_the_pods():
    for planned in (plan(give_back=(A, B)), plan_return([A, B])):
        (step,) = planned.steps
        assert [write.body for write in list_writes(step)] == [{"status": {"nominatedNodeName": None}}] * 2
    assert plan_return([]) == NOTHING


@pytest.mark.parametrize("traceparent", [None, "00-1-2-01"])
def test_ungated_pod_is_pinned_to_its_node_if_it_has_one(traceparent: str | None):
    (step,) = plan(traceparent=traceparent, let_go=((A, "n1"), (B, ""))).steps
    pinned, free = list_writes(step)
    assert (pinned.seen, free.seen) == (make_pod("a"), make_pod("b"))
    assert "affinity" in pinned.body["spec"]
    assert "affinity" not in free.body["spec"]
    notes = {} if traceparent is None else {"annotations": {TRACEPARENT_ANNOTATION: traceparent}}
    assert [write.body.get("metadata", {}) for write in (pinned, free)] == [notes, notes]
    assert step.span is not None
    assert step.log is not None
    assert (step.span.name, step.log.fields) == (t.UNGATE, {"group": "ns/g", "count": 2})


def test_span_of_many_places_names_some_of_the_nodes():
    places = tuple((make_member(f"p{i}"), f"n{i}") for i in range(MOST_SPAN_EVENTS + 1))
    decision = plan(keep=places).steps[0]
    assert decision.span is not None
    assert len(decision.span.events) == MOST_SPAN_EVENTS


def test_group_that_is_handed_over_is_created_unless_it_is_there():
    (step,) = plan(hand_over=NATIVE).steps
    assert step.write == Create(r.NATIVE_POD_GROUPS, NATIVE)
    assert step.passes
    assert step.holds_up is Hold.ALWAYS


def judge(group: Obj, steps: dict[int, GroupStep], *, note: str = "", by: int = 0) -> Plan:
    judged = {GroupKey("ns", "g", replica): step for replica, step in steps.items()}
    return plan_group_condition(group, GroupKey("ns", "g", by), steps[by], judged, note, NOW)


def read_condition(planned: Plan) -> Obj:
    write = planned.steps[0].write
    assert isinstance(write, Apply)
    (condition,) = write.body["status"]["conditions"]
    return dict(condition)


@pytest.mark.parametrize(
    ("group", "steps", "note", "expected"),
    [
        (GROUP, {0: PLACED}, "", (POD_GROUP_SCHEDULED, "True", SCHEDULED, "2 pods have their places")),
        (GROUP, {0: PLACED}, "a plugin is slow", (POD_GROUP_SCHEDULED, "True", SCHEDULED, "2 pods have their places; a plugin is slow")),
        (NATIVE, {0: WAITS}, "", (POD_GROUP_VERIFIED, "False", UNSCHEDULABLE, WAITS.message)),
        (
            {**GROUP, "spec": {"replicas": 2}},
            {1: WAITS, 0: PLACED},
            "",
            (POD_GROUP_SCHEDULED, "False", UNSCHEDULABLE, f"replica 1: {WAITS.message}"),
        ),
        (
            {**GROUP, "spec": {"replicas": 2}},
            {0: PLACED, 1: PLACED},
            "",
            (POD_GROUP_SCHEDULED, "True", SCHEDULED, "2 replicas have their places"),
        ),
        (
            {**GROUP, "spec": {"replicas": 5}},
            dict.fromkeys(range(5), WAITS),
            "n",
            (
                POD_GROUP_SCHEDULED,
                "False",
                UNSCHEDULABLE,
                f"{'; '.join(f'replica {i}: {WAITS.message}' for i in range(3))}; and 2 more; n",
            ),
        ),
    ],
)
def test_condition_of_a_group_describes_all_its_replicas(group: Obj, steps: dict[int, GroupStep], note: str, expected: tuple[str, ...]):
    planned = judge(group, steps, note=note)
    condition = read_condition(planned)
    assert tuple(condition[name] for name in ("type", "status", "reason", "message")) == expected
    assert (condition["observedGeneration"], condition["lastTransitionTime"]) == (3, WRITTEN)
    (event,) = planned.steps[0].events
    assert (event.reason, event.message, event.warning) == (expected[2], expected[3], expected[1] == "False")


def test_condition_of_a_group_is_written_once_but_again_without_an_event_for_a_new_generation():
    condition = read_condition(judge(GROUP, {0: PLACED}))
    assert judge({**GROUP, "status": {"conditions": [condition]}}, {0: PLACED}) == NOTHING
    again = judge({**GROUP, "status": {"conditions": [{**condition, "observedGeneration": 2}]}}, {0: PLACED})
    assert read_condition(again) == condition
    assert [(step.events, step.log) for step in again.steps] == [((), None)]


def test_refusal_of_a_group_has_a_span_with_the_lacks_of_each_placement():
    planned = judge(GROUP, {0: WAITS})
    assert planned.names == ("judge group", "report refusal")
    span = planned.steps[1].span
    assert span is not None
    assert (span.name, span.start, span.end) == (t.SOLVE, NOW, NOW)
    assert span.attributes == {t.POD_GROUP: "g", t.REPLICA: 0, t.REFUSED: True, t.REASON: UNSCHEDULABLE, t.MESSAGE: WAITS.message}
    assert span.events == ((t.PLACEMENT_LACKS, {t.DOMAIN: "r1", t.DOMAIN_FIT: 1, t.NODE_COUNT: 2, t.MESSAGE: ""}, None),)
    assert judge(GROUP, {0: PLACED}).names == ("judge group",)


def test_replica_with_all_pods_bound_has_a_span_from_the_first_ungated_pod():
    (step,) = plan_bound(GROUP, KEY, 2, BEGAN).steps
    assert step.write is None
    assert step.span is not None
    assert (step.span.name, step.span.start, step.span.attributes[t.POD_COUNT]) == (t.BOUND, BEGAN, 2)
