"""What follows from what is judged of the nodes of a workload: pods that wait for a node which takes none are ended, and lost nodes are
named on the Workload in one write, or it is evicted where they are too many. Pods that a node rejects though it serves others are reported.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from core.model.node_health_rules import HealthRules
from core.names import EVENT_NODE_UNHEALTHY, EVENT_POD_TERMINATED, HOSTNAME_LABEL
from core.plan.pods.node_health import NodeShare, NodeVerdict, Place, count_stuck
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.actions import from_time
from core.plan.steps.managed_status import read_managed_status
from core.plan.steps.steps import (
    NOTHING,
    PASSED_OVER,
    Event,
    Hold,
    Log,
    MadeSteps,
    Overtaken,
    ParallelSteps,
    Plan,
    Step,
    Then,
    make_plan,
    wait,
)
from core.plan.workloads.reports import report_stuck
from core.plan.workloads.requeue import evict_for_lost_nodes
from core.plan.workloads.workload_steps import plan_action
from core.resource import Obj
from core.state.facts import PodFacts, WorkloadFacts

REPORT_LOST = "report lost nodes"
MOST_NAMED = 1000  # what the API takes (rule j of docs/decisions/0004)
MOST_SHOWN = 8  # lost nodes in a message


class WaitingPod(NamedTuple):
    """A pod that waits for a node which will not take it: since the node is lost (`why`, else empty), or has no place for it."""

    node: str
    why: str
    pod: PodFacts
    seen: Obj


@dataclass(frozen=True, slots=True)
class NodesFacts:
    """A Workload that is admitted, and what is judged of its nodes, by place.

    `nodes`: to how many it is assigned. `lost`: the lost ones, with the name that the assignment has for each. `pods`: objects of pods, its
    own among them, by key. `reported`: the names of lost nodes that were reported a moment ago; were the same place found again these very
    nodes would not be reported for `rest_s` seconds from `now`, which is when all that was judged.
    """

    workload: Obj
    facts: WorkloadFacts
    nodes: int
    shares: Mapping[Place, NodeShare]
    verdicts: Mapping[Place, NodeVerdict]
    lost: Mapping[Place, str]
    pods: Mapping[str, Obj]
    now: datetime
    is_in_storm: bool = False
    reported: Collection[str] = frozenset()
    rest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodesPlan:
    """The plan for a Workload by what is judged of its nodes, and its pods that are `stuck`: by pod set, as (node, pods). None: what is
    known of these stays as it is."""

    plan: Plan
    stuck: Mapping[str, tuple[tuple[str, int], ...]] | None


def plan_nodes(f: NodesFacts, rules: HealthRules) -> NodesPlan:
    """Returns what follows for a Workload. In a storm it loses no more nodes: then it is only looked at again.

    Else waiting pods are set to Failed, as their node will not take them, so that others are made, which get another place. One
    that is bound meanwhile, or changed again and again, shows that its node is not lost. That is a failure of
    its step, and holds up no other. Then exactly the lost nodes are named in one write, but for those with such pods; what showed that the
    others are lost may have ended with their pods. Or the Workload is evicted where they are too many: by `rules`, by its own threshold, or
    more than 1,000. Nothing is written where these are named already, or were a moment ago. At last stuck pods are reported, of which a
    node serves others; pods that no controller makes again (`WorkloadFacts.remade`) do not count."""
    if f.is_in_storm and not f.facts.unhealthy_nodes.issuperset(f.lost.values()):
        return NodesPlan(wait(pacing.STORM_LOOK_S), None)
    waiting = [
        WaitingPod(name, verdict.lost, pod, seen)
        for (name, _), verdict in f.verdicts.items()
        for pod in verdict.in_the_way
        if (seen := w.find_pod(f.pods, pod)) is not None
    ]
    stuck, pods = _find_stuck(f)
    rest, ends = partial(_plan_report, f, rules, pods), MadeSteps(waiting, partial(_end_pod, f.now))
    plan = Plan((Step("end pods", ParallelSteps(ends), holds_up=Hold.NEVER),), rest=rest) if waiting else rest((), f.now)
    return NodesPlan(plan, None if _is_waiting_for_storm(f) else stuck)


def _plan_report(f: NodesFacts, rules: HealthRules, stuck: Sequence[tuple[str, PodFacts]], unsure: Collection[str], now: datetime) -> Plan:
    """Behind the pods that are ended: `unsure` are those that could not be, by key. That may have taken minutes until `now`."""
    lost = {
        name: f.verdicts[place].lost
        for place, name in f.lost.items()
        if name in f.facts.unhealthy_nodes or not any(pod.key in unsure for pod in f.verdicts[place].in_the_way)
    }
    is_changed = lost.keys() != f.facts.unhealthy_nodes  # some are new, or some serve again
    is_same = is_changed and lost and lost.keys() == set(f.reported)
    rest_s = f.rest_s - (now - f.now).total_seconds() if is_same else 0.0
    plan = _name_lost_or_evict(f, lost, rules, now) if is_changed and rest_s <= 0 else NOTHING
    if unsure:
        return plan
    if _is_waiting_for_storm(f):
        return replace(plan, again_s=pacing.STORM_LOOK_S)
    waits = [verdict.look_again_s for verdict in f.verdicts.values() if verdict.look_again_s is not None]
    waits += [rest_s] if rest_s > 0 else []
    waits += [pacing.STUCK_LOOK_S] if stuck else []
    return replace(plan.extend(report_stuck(f.workload, stuck, from_time(now))), again_s=min(waits, default=None))


def _is_waiting_for_storm(f: NodesFacts) -> bool:
    return f.is_in_storm and any(verdict.stuck for verdict in f.verdicts.values())


def _find_stuck(f: NodesFacts) -> tuple[Mapping[str, tuple[tuple[str, int], ...]], list[tuple[str, PodFacts]]]:
    """Places that are to be found elsewhere, by pod set, as (node, pods), and the pods, each behind its node. None while nodes are lost."""
    places: dict[str, tuple[tuple[str, int], ...]] = {}
    pods: list[tuple[str, PodFacts]] = []
    named = {} if f.lost or not f.facts.remade else {host or name: (name, host) for name, host in f.verdicts}
    for node, place in sorted(named.items()):
        stuck = f.verdicts[place].stuck
        counts = count_stuck(f.shares[place], stuck) if stuck else {}
        for pod_set, count in counts.items():
            places[pod_set] = (*places.get(pod_set, ()), (node, count))
        pods += [(node, pod) for pod in stuck if counts]
    return places, pods


def plan_end_of_short(workload: Obj, shortage: str, rules: HealthRules, now: datetime) -> Plan:
    """Returns the plan that evicts a workload after a domain of several nodes has lost what was assigned to it. `shortage` describes that
    in a sentence, `rules` say after how long it is queued again."""
    why = f"Workload was evicted as its nodes failed: {shortage}"
    return plan_action(workload, evict_for_lost_nodes(workload, why, rules.requeue, now), from_time(now))


def plan_leftovers(workload: Obj, left: Sequence[PodFacts], pods: Mapping[str, Obj], now: datetime) -> Plan:
    """Returns the plan for a workload that does not run. Its pods `left`, which have a place from an admission that is over, are set to
    Failed, and no pod of it counts as stuck. A pod that is not among the objects `pods`, by key, is left out; one that has changed is
    passed over. Raises KeyError for a pod without a hostname in its node selector."""
    why = "of which its workload has nothing"
    found = ((pod, seen) for pod in left if (seen := w.find_pod(pods, pod)) is not None)
    waiting = [WaitingPod(pod.node_selector[HOSTNAME_LABEL], why, pod, seen) for pod, seen in found]
    return make_plan(
        report_stuck(workload, (), from_time(now), runs=False),
        Step("end pods", ParallelSteps(MadeSteps(waiting, partial(_end_pod, now, is_evidence=False)))) if waiting else None,
    )


def _end_pod(now: datetime, waiting: WaitingPod, *, is_evidence: bool = True) -> Step:
    """`is_evidence`: where it is bound meanwhile its node is not lost, though it seemed to be."""
    seen = waiting.seen
    message = f"Pod terminated by topogate: it waits for node {waiting.node}, {waiting.why or 'which does not take it'}"
    event, log = Event(r.PODS, seen, EVENT_POD_TERMINATED, message), Log("pod terminated", {"pod": waiting.pod.key, "node": waiting.node})
    passes = frozenset({Overtaken.GONE}) if waiting.why and is_evidence else PASSED_OVER
    return Step("end pod", w.fail_pod(seen, message, from_time(now)), (event,), log, passes=passes)


def _name_lost_or_evict(f: NodesFacts, lost: Mapping[str, str], rules: HealthRules, now: datetime) -> Plan:
    """Plans the report of lost nodes: why, by name; or an eviction. The evidence that a node is lost may have ended with
    its pods: so the verdict is reported, whatever else has changed since."""
    limit = rules.is_too_much(len(lost), f.nodes, f.facts.most_lost_nodes)
    limit = limit or (f"more than {MOST_NAMED} cannot be named" if len(lost) > MOST_NAMED else "")
    if limit:
        text = ", ".join(f"{name} ({why})" for name, why in sorted(lost.items())[:MOST_SHOWN])
        more = f" and {len(lost) - MOST_SHOWN} more" if len(lost) > MOST_SHOWN else ""
        message = f"Workload eviction triggered due to multiple TAS assigned node failures: {len(lost)} of {f.nodes}, {limit}: {text}{more}"
        plan = plan_action(f.workload, evict_for_lost_nodes(f.workload, message, rules.requeue, now), from_time(now))
    else:
        status = read_managed_status(f.workload)
        status.pop("unhealthyNodes", None)
        if lost:
            status["unhealthyNodes"] = [{"name": name} for name in sorted(lost)]
        new = sorted(lost.keys() - f.facts.unhealthy_nodes)
        events = tuple(Event(r.WORKLOADS, f.workload, EVENT_NODE_UNHEALTHY, f"node {name}: {lost[name]}", True) for name in new)
        log = Log("nodes lost", {"workload": f.facts.key, "nodes": dict(sorted(lost.items()))})
        plan = make_plan(Step(REPORT_LOST, w.apply_admission(f.workload, status), events, log))
    return replace(plan, steps=tuple(map(_write_as_judged, plan.steps)))


def _write_as_judged(step: Step) -> Step:
    match step.write:
        case w.Apply() | w.Patch() as write:
            return replace(step, write=replace(write, guard=w.Guard.AS_JUDGED))
        case Then(build=build) as then:
            return replace(step, write=replace(then, build=lambda seen: _guard_as_judged(build(seen))))
        case _:
            return step


def _guard_as_judged(write: w.Write) -> w.Write:
    return replace(write, guard=w.Guard.AS_JUDGED) if isinstance(write, w.Apply | w.Patch) else write
