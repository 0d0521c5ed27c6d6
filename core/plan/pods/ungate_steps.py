"""The steps for the pods of an admitted Workload: for stray pods, for pods that lose their gate, and the reports about both."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice

from core import trace_names as t
from core.model.admission import Admission, PodSetAdmission
from core.names import (
    ADMITTED,
    EVENT_POD_OUTSIDE_ASSIGNMENT,
    EVENT_STAYS_GATED,
    EVENT_WORKLOAD_REFUSED,
    HOSTNAME_LABEL,
    RESOURCE_IN_USE_FINALIZER,
    SLICE_NAME,
    TOPOLOGY_GATE,
)
from core.plan.pods.node_health import find_placed, is_pinned
from core.plan.pods.pod_units import is_unowned
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.steps import (
    MOST_SPAN_EVENTS,
    PASSED_OVER,
    Attributes,
    Event,
    Hold,
    Log,
    ParallelSteps,
    Plan,
    Span,
    Step,
    make_plan,
    report,
)
from core.plan.steps.ungate import Ungate, Ungatings, find_excess, plan_ungating
from core.plan.workloads.reports import report_rank_order
from core.resource import Obj
from core.state.facts import PodFacts, WorkloadFacts, build_object_key, find_condition, is_condition_true
from core.state.flavor_view import AssignedPlaces

UNGATE, BEGIN, BOUND = "ungate pods", "pods are there", "all pods are bound"


@dataclass(frozen=True, slots=True)
class UngatingFacts:
    """What is known of an admitted Workload and of the pods that name it.

    `facts` request no more than quota was reserved for; their `unhealthy_nodes` have names and hostnames. `nominates`:
    the node of a pod is named before its gate is removed. `waits_for_nodes`: pods stay gated while their node is not
    ready, since lost nodes are replaced. `pods`: objects of pods, those that name the Workload among them, by key;
    `nodes`: all Nodes by name; `hosts`: their names by hostname. `began`: when pods were first ungated since the
    admission; None where none were.
    """

    workload: Obj
    facts: WorkloadFacts
    admission: Admission
    naming: Sequence[PodFacts]
    places: AssignedPlaces
    pods: Mapping[str, Obj]
    nodes: Mapping[str, Obj]
    hosts: Mapping[str, Collection[str]]
    now: str
    began: datetime | None = None
    nominates: bool = False
    waits_for_nodes: bool = False

    @property
    def is_unowned(self) -> bool:
        """Returns whether the Workload was made without an owner, by hand (`pod_units.is_unowned`)."""
        return is_unowned(self.workload)

    def find_pod(self, pod: PodFacts) -> Obj | None:
        """Returns the object of a pod; None where it is gone."""
        return w.find_pod(self.pods, pod)

    def is_up(self, node: str) -> bool:
        """Returns whether the node of a name is there and ready."""
        found = self.nodes.get(node)  # read once: all plans of a large workload are made beside the event loop, which observes more
        return found is not None and is_condition_true(found, "Ready")


@dataclass(frozen=True, slots=True)
class PodsPlan:
    """The plan for the pods of a Workload, and the node selectors (label to value) of those that lose their gate, by uid of the pod; an
    empty one where no topology places it."""

    plan: Plan
    places: Mapping[str, Mapping[str, str]]


def _decide(f: UngatingFacts) -> tuple[Sequence[PodFacts], Ungatings, bool]:
    """The pods of the Workload's own, what is to be done with them, and whether gated pods that request too much are left out of them."""
    # Where the workload has lost its owner, no pod is its own (`Observed._find_owner`).
    pods = [pod for pod in f.naming if pod.owner_uid == f.facts.owner_uid is not None]
    named = len(pods)
    if f.is_unowned:  # its pods are not made by a template that was judged: quota limits what each requests, too
        pods = [pod for pod in pods if not (pod.gated and find_excess(pod, f.facts.pod_sets))]
    own = {pod.key for pod in pods}
    others = [pod for pod in f.naming if pod.key not in own and not pod.terminal and not pod.gated]
    is_elastic = SLICE_NAME in (f.workload["metadata"].get("annotations") or {})
    is_ready = partial(_has_ready_node, f)
    found = plan_ungating(f.facts, f.admission, pods, f.places.list_level_values, f.is_up, is_ready, others, is_elastic=is_elastic)
    return pods, replace(found, actions=found.actions[: pacing.MOST_UNGATED]), len(pods) < named


def plan_pods(f: UngatingFacts) -> PodsPlan:
    """Returns what is to be done with the pods of a Workload now. Strays that are not bound are deleted, others reported; pods are ungated,
    at most 5,000 (`MOST_UNGATED`); those that request too much get an event. What fails for one of them holds up no other. Of the pods that
    name the Workload only those with its owner are ungated; none where it has lost that. For a Workload made without an owner, gated pods
    that request more than their pod set are left out. Other pods past their gates use its places.

    The Workload is looked at again after 10 s while pods are held, after 60 s while some request too much. The order of ranks is reported
    in any case, since users of those that run look for it. It takes long where there are many pods; another thread may do it."""
    own, ungatings, leaves_out = _decide(f)
    ranked = any(action.by_rank for action in ungatings.actions)
    excessive = [(pod, message) for each, message in ungatings.excessive[: pacing.MOST_EXCESSIVE] if (pod := f.find_pod(each)) is not None]
    again_s = pacing.PODS_HELD_S if ungatings.held else pacing.EXCESS_S if ungatings.excessive or leaves_out else None
    plan = make_plan(
        *_plan_strays(f, ungatings.strays),
        _plan_finalizer(f) if ungatings.actions else None,
        *(report(Event(r.PODS, pod, EVENT_WORKLOAD_REFUSED, message, warning=True)) for pod, message in excessive),
        *(_ungate(f, ungatings.actions) if ungatings.actions else ()),
        report_rank_order(f.workload, ungatings.broken, f.now, kept=ranked),
        _report_bound(f, own),
        again_s=again_s,
    )
    return PodsPlan(plan, {action.pod.uid: action.node_selector for action in ungatings.actions})


def _has_ready_node(f: UngatingFacts, given: PodSetAdmission, values: tuple[str, ...]) -> bool:
    """Whether a pod that is sent to a domain could run there; where nothing replaces nodes it is sent in any case."""
    return not f.waits_for_nodes or any(map(f.is_up, f.places.list_domain_nodes(given, values)))


def _plan_strays(f: UngatingFacts, strays: Sequence[PodFacts]) -> list[Step | None]:
    """A pod that is not bound yet is deleted, so that another one comes in its place, gated; one that runs is reported. Neither holds up
    those that are ungated. Of many so many at once: those that are gone bring it back for the others."""
    placed = find_placed(f.facts)
    # Another pod has the place of a lost node now.
    bound = (_report_stray(f, pod) for pod in strays if pod.node in f.nodes)
    deleted = (step for pod in strays if not pod.node and (step := _delete_stray(f, pod, placed)) is not None)
    together = tuple(islice(deleted, pacing.MOST_PLANNED))
    return [
        *islice(bound, pacing.MOST_EXCESSIVE),
        Step("delete strays", ParallelSteps(together), holds_up=Hold.NEVER) if together else None,
    ]


def _report_stray(f: UngatingFacts, pod: PodFacts) -> Step:
    message = f"pod {pod.key.partition('/')[2]} runs on node {pod.node}, outside of the workload's assignment"
    return Step("report stray", events=(_build_event_of_stray(f, message),), log=_build_log_of_stray(pod))


def _delete_stray(f: UngatingFacts, pod: PodFacts, placed: Collection[str]) -> Step | None:
    if f.waits_for_nodes and is_pinned(pod, placed) and not any(map(f.is_up, f.hosts.get(pod.node_selector[HOSTNAME_LABEL], ()))):
        return None  # `node_health` ends it, in phase Failed with a reason that a podFailurePolicy can match
    seen = f.find_pod(pod)
    if seen is None:
        return None
    message = f"pod {pod.key.partition('/')[2]} was ungated by another assignment and is not bound yet; it is deleted"
    write, event = w.delete_pod(seen, w.Guard.WAITING), _build_event_of_stray(f, message)
    return Step("delete stray", write, (event,), _build_log_of_stray(pod), passes=PASSED_OVER)


def _build_event_of_stray(f: UngatingFacts, message: str) -> Event:
    return Event(r.WORKLOADS, f.workload, EVENT_POD_OUTSIDE_ASSIGNMENT, message, warning=True)


def _build_log_of_stray(pod: PodFacts) -> Log:
    return Log("pod outside of its workload's assignment", {"pod": pod.key, "node": pod.node}, warning=True)


def _plan_finalizer(f: UngatingFacts) -> Step | None:
    """With a finalizer: a Workload without an owner that is deleted holds its quota while pods of it run (`core.plan.pods.orphans`)."""
    finalizers = f.workload["metadata"].get("finalizers") or []
    if not f.is_unowned or RESOURCE_IN_USE_FINALIZER in finalizers:
        return None
    return Step("keep until pods end", w.set_finalizers(r.WORKLOADS, f.workload, [*finalizers, RESOURCE_IN_USE_FINALIZER]))


def _ungate(f: UngatingFacts, actions: Sequence[Ungate]) -> list[Step | None]:
    pods = tuple(pod for action in actions if (pod := f.find_pod(action.pod)) is not None)
    attributes: dict[str, str | int] = {t.WORKLOAD: f.workload["metadata"]["name"], t.POD_COUNT: len(actions)}
    domains = Counter((action.pod_set, "/".join(action.node_selector.values())) for action in actions)
    sent: list[tuple[str, Attributes, None]] = [
        (t.DOMAIN_UNGATED, {t.POD_SET: pod_set, t.DOMAIN: domain, t.POD_COUNT: count}, None)
        for (pod_set, domain), count in islice(domains.items(), MOST_SPAN_EVENTS)
    ]
    span = Span(t.UNGATE, f.workload, {**attributes, t.DOMAIN_COUNT: len(domains)}, True, causes=pods, events=tuple(sent))
    given = {pod_set.name: pod_set for pod_set in f.admission.pod_sets}
    return [
        _show_wait(f, pods, attributes) if f.began is None else None,
        Step(
            UNGATE,
            ParallelSteps(tuple(_name_node(f, given, action, step) for action in actions for step in [_ungate_pod(f, action)])),
            log=Log("pods ungated", {"workload": build_object_key(f.workload), "count": len(actions)}),
            span=span,
            holds_up=Hold.NEVER,
        ),
    ]


def _ungate_pod(f: UngatingFacts, action: Ungate) -> Step:
    """With an event where the API server does not let the pod be sent to its place."""

    def explain(refusal: str) -> Event:
        place = ", ".join(f"{key}={value}" for key, value in sorted(action.node_selector.items()))
        why = f"the gate {TOPOLOGY_GATE} stays on: the pod cannot be sent to {place}: {refusal}"
        what = "its nodeSelector was set otherwise, perhaps by another admission webhook; delete the pod once that is mended"
        return Event(r.PODS, f.find_pod(action.pod) or w.name_pod(action.pod), EVENT_STAYS_GATED, f"{why}; {what}", warning=True)

    return Step("ungate pod", w.ungate(action), passes=PASSED_OVER, if_refused=explain)


def _name_node(f: UngatingFacts, given: Mapping[str, PodSetAdmission], action: Ungate, ungate: Step) -> Step | tuple[Step, ...]:
    """Where a domain is one node, that node keeps the place of its pod against others from before the gate goes. Where that is
    refused the gate goes all the same: another pod may take the place, as it might without this."""
    node = _find_node(f, given.get(action.pod_set), action) if f.nominates else None
    if node is None:
        return ungate
    return Step("name node", w.nominate_node(action.pod, node), passes=PASSED_OVER, holds_up=Hold.NEVER), ungate


def _find_node(f: UngatingFacts, given: PodSetAdmission | None, action: Ungate) -> str | None:
    if given is None or given.assignment is None:
        return None
    nodes = f.places.list_domain_nodes(given, tuple(action.node_selector[level] for level in given.assignment.levels))
    return nodes[0] if len(nodes) == 1 else None


def _show_wait(f: UngatingFacts, pods: Sequence[Obj], attributes: Attributes) -> Step:
    """What the first pods have been waited for since: the admission, or where others run already their own creation."""
    since = (find_condition(f.workload, ADMITTED) or {}).get("lastTransitionTime") or ""
    if any(not pod.gated for pod in f.naming):
        since = max(since, min((pod["metadata"].get("creationTimestamp") or "" for pod in pods), default=""))
    return Step(BEGIN, span=Span(t.GATHERED, f.workload, attributes, start=since or None))


def _report_bound(f: UngatingFacts, pods: Sequence[PodFacts]) -> Step | None:
    """The trace of a workload ends once all of its pods are bound."""
    expected = sum(given.count for given in f.admission.pod_sets if given.assignment is not None)
    bound = sum(1 for pod in pods if pod.node and not pod.terminal and not pod.terminating)
    if f.began is None or bound < expected:
        return None
    attributes: Attributes = {t.WORKLOAD: f.workload["metadata"]["name"], t.POD_COUNT: bound}
    return Step(BOUND, span=Span(t.BOUND, f.workload, attributes, start=f.began))
