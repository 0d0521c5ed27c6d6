"""Which gated pods get which node selector: from an admission and the pods observed."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.model.admission import Admission, PodSetAdmission
from core.names import HOSTNAME_LABEL
from core.placement.ranks import RankedPod, distribute
from core.state.facts import PodFacts, PodSetFacts, WorkloadFacts


@dataclass(frozen=True, slots=True)
class Ungate:
    """Take the topology gate off a pod and pin it to a domain, in one write."""

    pod: PodFacts
    pod_set: str
    node_selector: dict[str, str]
    by_rank: bool


@dataclass(frozen=True, slots=True)
class UngatePlan:
    """What to ungate now; `broken` says per pod set why the order of ranks could not be kept."""

    actions: tuple[Ungate, ...]
    broken: dict[str, str]


def plan_ungating(workload: WorkloadFacts, admission: Admission, pods: Sequence[PodFacts]) -> UngatePlan:
    """Plans for all pod sets with an assignment; `pods` are those that name the workload, in a stable order.

    Pods whose place is on a node known to be unhealthy stay gated until they have another one.
    """
    starts = _first_ranks(workload.pod_sets)
    actions: list[Ungate] = []
    broken: dict[str, str] = {}
    for pod_set, given in zip(workload.pod_sets, admission.pod_sets, strict=False):
        if given.assignment is None:
            continue
        live = [pod for pod in pods if pod.pod_set == pod_set.name and not pod.terminal]
        if not any(pod.gated for pod in live):
            continue
        found, problem = _plan_pod_set(pod_set, given, live, starts[pod_set.name])
        actions += [action for action in found if action.node_selector.get(HOSTNAME_LABEL) not in workload.unhealthy_nodes]
        if problem is not None:
            broken[pod_set.name] = problem
    return UngatePlan(tuple(actions), broken)


def _plan_pod_set(pod_set: PodSetFacts, given: PodSetAdmission, live: Sequence[PodFacts], start: int) -> tuple[list[Ungate], str | None]:
    assignment = given.assignment
    assert assignment is not None
    by_name = {pod.key: pod for pod in live}
    ranked = [RankedPod(pod.key, pod.labels, None if pod.gated else _domain(pod, assignment.levels), pod.terminating) for pod in live]
    distribution = distribute(assignment, ranked, pod_set.topology, offset=start, count=given.count)
    actions = [
        Ungate(by_name[name], pod_set.name, assignment.selector(domain), distribution.by_rank)
        for name, domain in distribution.domains.items()
    ]
    return actions, distribution.broken


def _first_ranks(pod_sets: Sequence[PodSetFacts]) -> dict[str, int]:
    """Where the ranks of each pod set start: its index offset; in a group, whose indexes run through, after the smaller pod sets."""
    starts: dict[str, int] = {}
    groups: dict[str, int] = {}
    for pod_set in sorted(pod_sets, key=lambda entry: entry.count):
        before = groups.get(pod_set.group, 0) if pod_set.group else 0
        if pod_set.group:
            groups[pod_set.group] = before + pod_set.count
        starts[pod_set.name] = pod_set.index_offset or before
    return starts


def _domain(pod: PodFacts, levels: tuple[str, ...]) -> tuple[str, ...]:
    """Where an ungated pod is pinned; a pod that someone bound by hand is in the domain of nobody."""
    selected = tuple(pod.node_selector.get(level, "") for level in levels)
    return selected if all(selected) else ("",) * len(levels)
