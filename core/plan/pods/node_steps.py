"""What follows from what is judged of the nodes of a workload: pods that wait for a node which takes none are ended, and lost nodes are
named on the Workload in one write, or it is evicted where they are too many."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from core.model.node_health_rules import HealthRules
from core.names import EVENT_NODE_UNHEALTHY, EVENT_POD_TERMINATED, HOSTNAME_LABEL
from core.plan.pods.node_health import NodeVerdict
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.actions import from_time
from core.plan.steps.steps import NOTHING, PASSED_OVER, Event, Log, Overtaken, ParallelSteps, Plan, Step, Then, make_plan
from core.plan.workloads.admission_status import read_managed_status
from core.plan.workloads.requeue import evict_for_lost_nodes
from core.plan.workloads.workload_steps import plan_action
from core.resource import Obj
from core.state.facts import PodFacts, WorkloadFacts

REPORT_LOST = "report lost nodes"
MOST_NAMED = 1000  # what the API takes (rule j of docs/decisions/0004)
MOST_SHOWN = 8  # lost nodes in a message
FindPod = Callable[[PodFacts], Obj | None]


class WaitingPod(NamedTuple):
    """A pod that waits for a node which will not take it: since the node is lost (`why`, else empty), or has no place for it."""

    node: str
    why: str
    pod: PodFacts


@dataclass(frozen=True, slots=True)
class NodesFacts:
    """A Workload that is admitted and the nodes that it has lost: why, by the name that its assignment has for each. `nodes`: to how many
    it is assigned. `is_just_reported`: these very nodes were reported a moment ago, and the same place was found again."""

    workload: Obj
    facts: WorkloadFacts
    lost: Mapping[str, str]
    nodes: int
    is_just_reported: bool = False

    @property
    def is_news(self) -> bool:
        """Returns whether the lost nodes, by name, are not exactly those that the Workload names (`unhealthy_nodes`): some are new, or some
        serve again."""
        return self.lost.keys() != self.facts.unhealthy_nodes


def list_waiting(verdicts: Iterable[tuple[str, NodeVerdict]]) -> list[WaitingPod]:
    """Returns the pods that wait for a node which will not take them (`in_the_way`), for verdicts by the name of the
    node, in their order."""
    return [WaitingPod(node, verdict.lost, pod) for node, verdict in verdicts for pod in verdict.in_the_way]


def plan_ends(waiting: Iterable[WaitingPod], find_pod: FindPod, now: datetime) -> Plan:
    """Returns the plan that sets waiting pods to Failed, as their node will not take them, so that others are made, which get another
    place. It is empty where there are none. One that is bound meanwhile, or changed again and again, shows that its node is not lost. That
    is a failure of its step, and holds up no other. A pod that `find_pod` returns None for is left out."""
    steps = tuple(step for one in waiting if (step := _end_pod(find_pod, one, now)) is not None)
    return make_plan(Step("end pods", ParallelSteps(steps)) if steps else None)


def plan_report(f: NodesFacts, rules: HealthRules, now: datetime) -> Plan:
    """Returns the plan that names exactly the lost nodes on the Workload in one write, or evicts it where they are too many: by `rules`, by
    its own threshold, or more than 1,000. It is empty where these are named already, or were a moment ago. The caller ends the pods that
    wait there before."""
    return _name_lost_or_evict(f, rules, now) if f.is_news and not f.is_just_reported else NOTHING


def plan_end_of_short(workload: Obj, shortage: str, rules: HealthRules, now: datetime) -> Plan:
    """Returns the plan that evicts a workload after a domain of several nodes has lost what was assigned to it. `shortage` describes that
    in a sentence, `rules` say after how long it is queued again."""
    why = f"Workload was evicted as its nodes failed: {shortage}"
    return plan_action(workload, evict_for_lost_nodes(workload, why, rules.requeue, now), from_time(now))


def plan_leftovers(pods: Iterable[PodFacts], find_pod: FindPod, now: datetime) -> Plan:
    """Returns the plan that sets to Failed pods that have a place from an admission that is over; empty where there are none. A pod that
    `find_pod` returns None for is left out; one that has changed is passed over. Raises KeyError for a pod without a hostname in its node
    selector."""
    why = "of which its workload has nothing"
    ends = (_end_pod(find_pod, WaitingPod(pod.node_selector[HOSTNAME_LABEL], why, pod), now) for pod in pods)
    steps = tuple(replace(step, passes=PASSED_OVER) for step in ends if step is not None)
    return make_plan(Step("end pods", ParallelSteps(steps)) if steps else None)


def _end_pod(find_pod: FindPod, waiting: WaitingPod, now: datetime) -> Step | None:
    seen = find_pod(waiting.pod)
    if seen is None:
        return None
    message = f"Pod terminated by topogate: it waits for node {waiting.node}, {waiting.why or 'which does not take it'}"
    event, log = Event(r.PODS, seen, EVENT_POD_TERMINATED, message), Log("pod terminated", {"pod": waiting.pod.key, "node": waiting.node})
    passes = frozenset({Overtaken.GONE}) if waiting.why else PASSED_OVER
    return Step("end pod", w.fail_pod(seen, message, from_time(now)), (event,), log, passes=passes)


def _name_lost_or_evict(f: NodesFacts, rules: HealthRules, now: datetime) -> Plan:
    """Plans the report of lost nodes, or an eviction. The evidence that a node is lost may have ended with its pods: so
    the verdict is reported, whatever else has changed since."""
    limit = rules.is_too_much(len(f.lost), f.nodes, f.facts.most_lost_nodes)
    limit = limit or (f"more than {MOST_NAMED} cannot be named" if len(f.lost) > MOST_NAMED else "")
    if limit:
        text = ", ".join(f"{name} ({why})" for name, why in sorted(f.lost.items())[:MOST_SHOWN])
        more = f" and {len(f.lost) - MOST_SHOWN} more" if len(f.lost) > MOST_SHOWN else ""
        message = (
            f"Workload eviction triggered due to multiple TAS assigned node failures: {len(f.lost)} of {f.nodes}, {limit}: {text}{more}"
        )
        plan = plan_action(f.workload, evict_for_lost_nodes(f.workload, message, rules.requeue, now), from_time(now))
    else:
        status = read_managed_status(f.workload)
        status.pop("unhealthyNodes", None)
        if f.lost:
            status["unhealthyNodes"] = [{"name": name} for name in sorted(f.lost)]
        new = sorted(f.lost.keys() - f.facts.unhealthy_nodes)
        events = tuple(Event(r.WORKLOADS, f.workload, EVENT_NODE_UNHEALTHY, f"node {name}: {f.lost[name]}", True) for name in new)
        log = Log("nodes lost", {"workload": f.facts.key, "nodes": dict(sorted(f.lost.items()))})
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
