"""What follows from what is judged of the nodes of a workload: pods that wait for a node which takes none are ended, and lost nodes are
named on the Workload in one write, or it is evicted where they are too many."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from core.model.node_health import HealthRules
from core.names import EVENT_NODE_UNHEALTHY, EVENT_POD_TERMINATED, HOSTNAME_LABEL
from core.plan import pacing
from core.plan import resources as r
from core.plan import writes as w
from core.plan.actions import from_time
from core.plan.admission import managed_status
from core.plan.node_health import NodeVerdict
from core.plan.requeue import evict_for_lost_nodes
from core.plan.steps import NOTHING, PASSED_OVER, Event, Hold, Log, Overtaken, Plan, Step, Then, Together, make_plan
from core.plan.workload_steps import plan_action
from core.resource import Obj
from core.state.facts import PodFacts, WorkloadFacts

END_PODS, REPORT_LOST = "end pods", "report lost nodes"
MOST_NAMED = 1000  # what the API takes (rule j of docs/decisions/0004)
MOST_SHOWN = 8  # lost nodes in a message
FindPod = Callable[[PodFacts], Obj | None]


@dataclass(frozen=True, slots=True)
class NodesFacts:
    """A Workload that is admitted and what was judged of its nodes.

    `verdicts`: each behind the name of its node. `lost`: why, by the name that its assignment has for each; `nodes`: to how many it is
    assigned. `is_just_reported`: these very nodes were reported a moment ago, and the same place was found again. `find_pod`: a pod as it
    was seen last.
    """

    workload: Obj
    facts: WorkloadFacts
    verdicts: Sequence[tuple[str, NodeVerdict]]
    lost: Mapping[str, str]
    nodes: int
    find_pod: FindPod
    is_just_reported: bool = False

    @property
    def is_news(self) -> bool:
        """Whether the Workload names other nodes as lost."""
        return self.lost.keys() != self.facts.unhealthy_nodes


def plan_nodes(f: NodesFacts, rules: HealthRules, now: datetime) -> Plan:
    """The pods that wait for a lost node are ended first: one that has been bound meanwhile shows that the node is not lost."""
    ends = list(islice((step for node, verdict in f.verdicts for step in _end_pods(f.find_pod, node, verdict, now)), pacing.MOST_ENDED + 1))
    if len(ends) > pacing.MOST_ENDED:
        return make_plan(_end_together(ends[:-1]), again_s=pacing.NODES_BATCH_S)
    named = _name_lost_or_evict(f, rules, now) if f.is_news and not f.is_just_reported else NOTHING
    return make_plan(_end_together(ends)).extend(*named.steps)


def plan_end_of_short(workload: Obj, shortage: str, rules: HealthRules, now: datetime) -> Plan:
    """A domain of several nodes has not what was assigned to it any more: the workload is evicted. `shortage` says so in a sentence."""
    why = f"Workload was evicted as its nodes failed: {shortage}"
    return plan_action(workload, evict_for_lost_nodes(workload, why, rules.requeue, now), from_time(now))


def plan_leftovers(pods: Sequence[PodFacts], find_pod: FindPod, now: datetime) -> Plan:
    """Pods that have a place from an admission that is over."""
    verdict, ends = NodeVerdict("of which its workload has nothing"), list[Step]()
    for pod in pods[: pacing.MOST_ENDED]:
        ends += _end_pods(find_pod, pod.node_selector[HOSTNAME_LABEL], replace(verdict, in_the_way=(pod,)), now)
    again_s = pacing.NODES_BATCH_S if len(pods) > pacing.MOST_ENDED else None
    return make_plan(_end_together([replace(step, passes=PASSED_OVER) for step in ends]), again_s=again_s)


def _end_together(steps: Sequence[Step]) -> Step | None:
    return Step(END_PODS, Together(tuple(steps)), holds_up=Hold.UNLESS_REFUSED) if steps else None


def _end_pods(find_pod: FindPod, node: str, verdict: NodeVerdict, now: datetime) -> Iterator[Step]:
    """Ends pods that wait for a node which will not take them, so that others are made, which get another place."""
    why = verdict.lost or "which does not take it"
    for pod in verdict.in_the_way:
        seen = find_pod(pod)
        if seen is None:
            continue
        message = f"Pod terminated by topogate: it waits for node {node}, {why}"
        event, log = Event(r.PODS, seen, EVENT_POD_TERMINATED, message), Log("pod terminated", {"pod": pod.key, "node": node})
        # By one that is bound meanwhile what was judged of a lost node is wrong, and nothing follows from it.
        passes = frozenset({Overtaken.GONE}) if verdict.lost else PASSED_OVER
        terminate = w.terminate_pod(seen, message, from_time(now))
        yield Step("end pod", terminate, (event,), log, passes=passes)


def _name_lost_or_evict(f: NodesFacts, rules: HealthRules, now: datetime) -> Plan:
    """What showed that a node is lost may have ended with its pods: so what was judged is reported, whatever else has changed since."""
    limit = rules.is_too_much(len(f.lost), f.nodes) or (f"more than {MOST_NAMED} cannot be named" if len(f.lost) > MOST_NAMED else "")
    if limit:
        text = ", ".join(f"{name} ({why})" for name, why in sorted(f.lost.items())[:MOST_SHOWN])
        more = f" and {len(f.lost) - MOST_SHOWN} more" if len(f.lost) > MOST_SHOWN else ""
        message = (
            f"Workload eviction triggered due to multiple TAS assigned node failures: {len(f.lost)} of {f.nodes}, {limit}: {text}{more}"
        )
        plan = plan_action(f.workload, evict_for_lost_nodes(f.workload, message, rules.requeue, now), from_time(now))
    else:
        status = managed_status(f.workload)
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
