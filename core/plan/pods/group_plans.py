"""What is written and reported of a replica of a PodGroup: the places of its pods, the condition of the group, and the spans of its trace.
`core.podgroups.acting` decides on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from core import trace_names as t
from core.names import POD_GROUP_SCHEDULED, POD_GROUP_VERIFIED
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.actions import from_time
from core.plan.steps.conditions import Condition, has_condition, set_conditions
from core.plan.steps.steps import (
    MOST_SPAN_EVENTS,
    NOTHING,
    Attributes,
    Event,
    Hold,
    Log,
    MadeSteps,
    Overtaken,
    ParallelSteps,
    Plan,
    Span,
    Step,
    make_plan,
)
from core.podgroups.acting import GroupStep, Place
from core.podgroups.members import GroupKey, Member
from core.resource import Obj

_SHOWN = 3  # replicas that a condition names


@dataclass(frozen=True, slots=True)
class DecidedGroup:
    """A replica of a group, and the step that was decided on between `began` and `ended`.

    `group`: None where there is none; then places are only given back. `pods`: those to be ungated, by key. `traceparent`: what these get
    as their annotation for that; None: none.
    """

    key: GroupKey
    group: Obj | None
    step: GroupStep
    pods: Mapping[str, Obj]
    began: datetime
    ended: datetime
    traceparent: str | None = None


def is_native(group: Obj) -> bool:
    """Whether a PodGroup is one of kube-scheduler's own, by its apiVersion."""
    return bool(group.get("apiVersion") == r.NATIVE_POD_GROUPS.api_version)


def plan_group(f: DecidedGroup) -> Plan:
    """Returns the writes of a step: the PodGroup that is handed over to kube-scheduler, where only a failure of that keeps the others from
    being done; places that are given back; those that are kept; pods that are ungated."""
    step, group = f.step, f.group
    handed_over = None
    if step.hand_over is not None:
        create = w.Create(r.NATIVE_POD_GROUPS, dict(step.hand_over))
        handed_over = Step("hand over", create, passes=frozenset({Overtaken.CHANGED}))  # there is one already
    plan = make_plan(handed_over, *plan_return(step.give_back).steps)
    if group is not None and step.keep:
        attributes = _build_attributes(f.key, len(step.keep))
        found: Attributes = {t.REFUSED: False, t.REASON: step.reason, t.MESSAGE: step.message}
        decision = Span(t.SOLVE, group, {**attributes, **found}, start=f.began, end=f.ended, events=_list_nodes(step.keep))
        plan = plan.extend(Step("report decision", span=decision), _nominate("keep places", step.keep, Span(t.KEEP, group, attributes)))
    if group is not None and step.let_go:
        span = Span(t.UNGATE, group, _build_attributes(f.key, len(step.let_go)), events=_list_nodes(step.let_go))
        log = Log("pods of a group let go", {"group": str(f.key), "count": len(step.let_go)})
        ungate = MadeSteps(step.let_go, lambda place: Step("ungate", w.ungate_to_node(f.pods[place[0].key], place[1], f.traceparent)))
        plan = plan.extend(Step("let go", ParallelSteps(ungate), log=log, span=span, holds_up=Hold.NEVER))
    return plan


def plan_return(members: Sequence[Member]) -> Plan:
    """Returns the plan that gives back the places which are kept for pods of a group. It is empty where there are no pods."""
    return make_plan(_nominate("give places back", [(member, "") for member in members]) if members else None)


def plan_group_condition(
    group: Obj, key: GroupKey, step: GroupStep, judged: Mapping[GroupKey, GroupStep], note: str, now: datetime
) -> Plan:
    """Returns the plan that writes the condition of a group, logs it and emits it as an event, where it has changed: one for all its
    replicas together, by the step of each (`judged`), with the addition `note` if that is not empty. It is only written where nothing but
    the group's generation is another. `step`: that of the replica `key`, which led here: where it has an explanation why pods wait, a span
    has it, too."""
    before = (group.get("status") or {}).get("conditions") or []
    condition, generation = _build_condition(group, judged, note), int(group["metadata"].get("generation") or 0)
    is_new = not has_condition(before, condition)
    if not is_new and any(one.get("type") == condition.type and one.get("observedGeneration") == generation for one in before):
        return NOTHING
    wire = set_conditions(before, [condition], now=from_time(now), generation=generation)
    resource = r.NATIVE_POD_GROUPS if is_native(group) else r.POD_GROUPS
    write = w.patch_status(resource, group, {"conditions": [one for one in wire if one["type"] == condition.type]})
    if not is_new:
        return make_plan(Step("judge group", write))
    event = Event(resource, group, condition.reason, condition.message, warning=not condition.status)
    log = Log("group judged", {"group": str(key), "scheduled": condition.status, "why": condition.message})
    return make_plan(Step("judge group", write, (event,), log), _trace_refusal(group, key, step, condition.message, now))


def plan_bound(group: Obj, key: GroupKey, pods: int, since: datetime) -> Plan:
    """Returns the plan that reports a replica with all pods on their nodes: a span from when the first of them was ungated. `pods`: how
    many they are."""
    return make_plan(Step("report bound", span=Span(t.BOUND, group, _build_attributes(key, pods), start=since)))


def _nominate(name: str, places: Sequence[Place], span: Span | None = None) -> Step:
    nominate = MadeSteps(places, lambda place: Step("nominate", w.nominate_node(*place)))
    return Step(name, ParallelSteps(nominate), span=span, holds_up=Hold.NEVER)


def _build_condition(group: Obj, judged: Mapping[GroupKey, GroupStep], note: str) -> Condition:
    kind = POD_GROUP_VERIFIED if is_native(group) else POD_GROUP_SCHEDULED
    first, addition = next(iter(judged.values())), f"; {note}" if note else ""
    if len(judged) == 1 and (is_native(group) or int(group["spec"].get("replicas") or 1) == 1):
        return Condition(kind, first.is_scheduled, first.reason, f"{first.message}{addition}")
    lacking = [(key, step) for key, step in sorted(judged.items(), key=lambda one: one[0]) if not step.is_scheduled]
    if not lacking:
        return Condition(kind, True, first.reason, f"{len(judged)} replicas have their places{addition}")
    texts = [f"replica {key.replica}: {step.message}" for key, step in lacking[:_SHOWN]]
    more = f"; and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
    return Condition(kind, False, lacking[0][1].reason, f"{'; '.join(texts)}{more}{addition}")


def _trace_refusal(group: Obj, key: GroupKey, step: GroupStep, message: str, now: datetime) -> Step | None:
    if step.is_scheduled or step.explanation is None:
        return None
    lacks = list[tuple[str, Attributes, None]]()
    for fact in step.explanation.facts[:MOST_SPAN_EVENTS]:
        placement: Attributes = {t.DOMAIN: fact.name, t.DOMAIN_FIT: fact.fit, t.NODE_COUNT: fact.nodes}
        lacks.append((t.PLACEMENT_LACKS, {**placement, t.MESSAGE: ", ".join(map(str, fact.short))}, None))
    attributes = _build_attributes(key) | {t.REFUSED: True, t.REASON: step.reason, t.MESSAGE: message}
    return Step("report refusal", span=Span(t.SOLVE, group, attributes, start=now, end=now, events=tuple(lacks)))


def _build_attributes(key: GroupKey, pods: int | None = None) -> dict[str, str | int]:
    named: dict[str, str | int] = {t.POD_GROUP: key.name, t.REPLICA: key.replica}
    return named | ({t.POD_COUNT: pods} if pods is not None else {})


def _list_nodes(places: Sequence[Place]) -> tuple[tuple[str, Attributes, str | None], ...]:
    counts: dict[str, int] = {}
    for _, node in places:
        counts[node] = counts.get(node, 0) + 1
    return tuple((t.NODE_KEPT, {t.NODE_NAME: node, t.POD_COUNT: pods}, None) for node, pods in list(counts.items())[:MOST_SPAN_EVENTS])
