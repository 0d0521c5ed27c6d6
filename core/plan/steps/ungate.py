"""Which gated pods get which node selector: from an admission and the pods observed. `core.plan.pods.ungate_steps` makes steps of that."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.model.admission import Admission, PodSetAdmission
from core.model.places import count_ended_since
from core.model.pod_resources import PODS
from core.model.quantity import format_quantity
from core.model.wire.assignment import TopologyAssignment
from core.names import HOSTNAME_LABEL, INDEX_LABELS
from core.placement.algorithms.ranks import Distribution, RankedPod, assign_pods
from core.plan.steps.coordinates import Coordinates, compute_coordinates
from core.plan.steps.excess import OF_CONTROLLERS, explain_excess
from core.state.facts import PodFacts, PodSetFacts, WorkloadFacts

# Level values of a domain of a pod set's assignment, from the top of its topology down.
Locate = Callable[[PodSetAdmission, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Ungate:
    """Removes the topology gate of a pod, pins the pod to a domain and gives it its coordinates, in one write."""

    pod: PodFacts
    pod_set: str
    node_selector: dict[str, str]
    by_rank: bool
    coordinates: Coordinates


@dataclass(frozen=True, slots=True)
class Ungatings:
    """What to ungate now; `broken` has, per pod set, the reason why the order of ranks could not be kept.

    `strays` were ungated into domains that the assignment does not give them, as by an older one. `held` pods wait for
    those that they replace. `excessive` pods request more than was admitted for one, and stay gated; each has a message
    with the excess.
    """

    actions: tuple[Ungate, ...]
    broken: dict[str, str]
    strays: tuple[PodFacts, ...] = ()
    held: int = 0
    excessive: tuple[tuple[PodFacts, str], ...] = ()


def _list_emitted_values(given: PodSetAdmission, domain: int) -> Sequence[str]:
    """Level values as far as the assignment itself names them."""
    return given.assignment.domains[domain].values if given.assignment is not None else ()


def _find_no_node(_: str) -> bool:
    return False


IsReady = Callable[[PodSetAdmission, tuple[str, ...]], bool]
"""Whether a node of a domain, named by its values in a pod set's assignment, takes pods now."""


def _is_always_ready(_: PodSetAdmission, __: tuple[str, ...]) -> bool:
    return True


def plan_ungating(
    workload: WorkloadFacts,
    admission: Admission,
    pods: Sequence[PodFacts],
    locate: Locate = _list_emitted_values,
    is_up: Callable[[str], bool] = _find_no_node,
    is_ready: IsReady = _is_always_ready,
    others: Sequence[PodFacts] = (),
    *,
    is_elastic: bool = False,
) -> Ungatings:
    """Returns which gated pods are to be ungated now and where they go, for all pod sets with an assignment.

    `pods` are those that name the workload, in a stable order; pod sets of workload and admission are matched by position.
    `locate` returns the level values that a pod of a domain gets as its coordinates; by default those that the assignment has.
    - Pods assigned to an unhealthy node stay gated until they have another place.
    - Pods with a changed place stay gated until the pods that they replace are gone, if these end on a node that `is_up`.
    - Pods stay gated while no node of their domain `is_ready`.
    - `others` are ungated pods that name the workload and have another owner, or none. They use places of the workload,
      each in its domain, so that as many of the workload's own pods stay gated.
    - Pods of a job that `is_elastic` also wait on flavors without a topology until there is quota for them.
    """
    starts = _compute_first_ranks(workload.pod_sets, {given.name: given.count for given in admission.pod_sets})
    actions: list[Ungate] = []
    strays: list[PodFacts] = []
    broken: dict[str, str] = {}
    excessive: list[tuple[PodFacts, str]] = []
    held = 0
    for pod_set, given in zip(workload.pod_sets, admission.pod_sets, strict=False):
        if given.assignment is None and not (is_elastic and given.delayed is None):
            continue
        live = [pod for pod in pods if pod.pod_set == pod_set.name and not pod.terminal]
        if given.assignment is None:
            released = [Ungate(pod, pod_set.name, {}, False, Coordinates()) for pod in live if pod.gated]
            over = _find_excessive(pod_set, released)
            excessive += over.values()
            released = [action for action in released if action.pod.key not in over]
            actions += released[: max(0, given.count - _count_staying(live))]
            continue
        strays += find_strays(given.assignment, live)
        if not any(pod.gated for pod in live):
            continue
        start = starts[pod_set.name]
        surplus = max(0, given.assignment.count - pod_set.count) if pod_set.reclaimed else 0
        succeeded = (pod for pod in pods if pod.pod_set == pod_set.name and pod.succeeded)
        ended = count_ended_since(
            ((pod.created, _find_domain(pod, given.assignment.levels)) for pod in succeeded), pod_set.reclaimed - surplus
        )
        distribution = _assign_pods(pod_set, given, live, start, ended, surplus)
        planned = _list_actions(pod_set, given, live, distribution, start, locate, workload.unhealthy_nodes)
        if over := _find_excessive(pod_set, planned):
            planned = [action for action in planned if action.pod.key not in over]
            excessive += over.values()
        others_of = [pod for pod in others if pod.pod_set == pod_set.name]
        sent = _send_with_room(planned, given, given.assignment, live, ended, surplus, others_of, is_up, is_ready)
        held += len(planned) - len(sent)
        actions += sent
        if distribution.broken is not None:
            broken[pod_set.name] = distribution.broken
    return Ungatings(tuple(actions), broken, tuple(strays), held, tuple(excessive))


def _send_with_room(
    planned: list[Ungate],
    given: PodSetAdmission,
    assignment: TopologyAssignment,
    live: Sequence[PodFacts],
    ended: Counter[tuple[str, ...]],
    surplus: int,
    others: Sequence[PodFacts],
    is_up: Callable[[str], bool],
    is_ready: IsReady,
) -> list[Ungate]:
    """Those of a pod set that may go now: the pods that they follow are gone, a node of their domain is ready, and there is room."""
    leaving = _find_leaving(assignment, live, is_up)
    sent = _remove_followers(planned, leaving, given.count - _count_staying(live) - sum(ended.values()))
    places = {tuple(action.node_selector.values()) for action in sent}  # many pods may share a domain of many nodes
    ready = {values for values in places if is_ready(given, values)}
    sent = [action for action in sent if tuple(action.node_selector.values()) in ready]
    # What ends has its place until it is gone, however long it takes: a pod may have asked for a day.
    ending = [pod for pod in live if pod.terminating and not pod.dropped and is_up(pod.node)]
    used = [*ending, *others]
    sent = _filter_with_room(sent, assignment, live, ended, used) if used else sent
    # A pod outside of the assignment takes no place of it, and yet it is one of those that were admitted; one that was never sent
    # anywhere is deleted before it is bound (`strays`).
    nowhere = sum(1 for pod in live if _is_nowhere(pod, assignment.levels))
    past = sum(ended.values()) if used else surplus  # a Job with more completions than pods makes others after those that ended
    return sent[: max(0, given.count - _count_staying(live) + nowhere - past - len(used))]


def _find_excessive(pod_set: PodSetFacts, planned: Sequence[Ungate]) -> dict[str, tuple[PodFacts, str]]:
    """Pods by key that request more than was admitted of one, each with a message; those that are alike are judged once."""
    admitted = dict(pod_set.counted_requests)
    for name, amount in OF_CONTROLLERS.items():
        admitted[name] = max(amount, admitted.get(name, 0))
    admitted[PODS] = 1
    judged: dict[frozenset[tuple[str, int]], str] = {}
    over: dict[str, tuple[PodFacts, str]] = {}
    for pod in (action.pod for action in planned):
        asked = pod.counted_requests
        alike = frozenset(asked.items())
        if alike not in judged:
            judged[alike] = explain_excess(asked, admitted, pod_set.name)
        if judged[alike]:
            over[pod.key] = pod, judged[alike]
    return over


def find_excess(pod: PodFacts, pod_sets: Sequence[PodSetFacts]) -> str:
    """Returns the first resource that a pod requests beyond its pod set, for which quota was reserved, as a sentence without its subject.
    Empty if it requests no more, or is of none of these pod sets. The number of pods is not compared."""
    for pod_set in pod_sets:
        for resource, amount in pod.counted_requests.items() if pod.pod_set == pod_set.name else ():
            asked = pod_set.counted_requests.get(resource, 0)
            if resource != PODS and amount > asked:
                few, many = format_quantity(resource, asked), format_quantity(resource, amount)
                return f"requests {many} {resource}; a pod of pod set {pod_set.name} requests {few}"
    return ""


def _assign_pods(
    pod_set: PodSetFacts, given: PodSetAdmission, live: Sequence[PodFacts], start: int, ended: Counter[tuple[str, ...]], surplus: int
) -> Distribution:
    """Assigns the live pods of a pod set. `ended` are pods that have succeeded, per domain: where they are not replaced
    their places are given up."""
    assignment = given.assignment
    assert assignment is not None
    ranked = [RankedPod(pod.key, pod.labels, None if pod.gated else _find_domain(pod, assignment.levels), pod.terminating) for pod in live]
    return assign_pods(assignment, ranked, pod_set.topology, offset=start, count=given.count, ended=ended, surplus=surplus)


def _list_actions(
    pod_set: PodSetFacts,
    given: PodSetAdmission,
    live: Sequence[PodFacts],
    distribution: Distribution,
    start: int,
    locate: Locate,
    unhealthy: frozenset[str],
) -> list[Ungate]:
    assignment = given.assignment
    assert assignment is not None
    by_name, actions = {pod.key: pod for pod in live}, []
    places: dict[int, Sequence[str]] = {}
    for name, domain in distribution.domains.items():
        selector = assignment.build_selector(domain)
        if selector.get(HOSTNAME_LABEL) in unhealthy:
            continue
        if domain not in places:
            places[domain] = locate(given, domain)
        rank = distribution.ranks.get(name)
        pod = by_name[name]
        size = assignment.domains[domain].count
        stamp = compute_coordinates(places[domain], domain, size, None if rank is None else rank + start, pod.coordinates)
        actions.append(Ungate(pod, pod_set.name, selector, distribution.by_rank, stamp))
    return actions


def find_strays(assignment: TopologyAssignment, live: Sequence[PodFacts]) -> list[PodFacts]:
    """Returns ungated pods, not being deleted, beyond what the assignment gives their domain; a domain outside of it is given none. Of too
    many in one domain they are those that are not bound, then the last by key. `live`: the pods of the pod set that have not ended."""
    room = Counter({domain.values: domain.count for domain in assignment.domains})
    strays = []
    for pod in sorted(live, key=lambda pod: (not pod.node, pod.key)):
        if pod.gated or pod.terminating:
            continue
        domain = _find_domain(pod, assignment.levels)
        room[domain] -= 1
        if room[domain] < 0:
            strays.append(pod)
    return strays


def _remove_followers(planned: list[Ungate], leaving: Sequence[PodFacts], places: int) -> list[Ungate]:
    """Returns the ungatings without those of pods that replace pods which are not gone yet: of the same index, where
    pods have one, and no more than there are places."""
    if not leaving:
        return planned
    indexes = {index for pod in leaving if (index := _index_of(pod)) is not None}
    free = [action for action in planned if _index_of(action.pod) not in indexes] if indexes else planned
    return free[: max(0, places - len(leaving))]


def _filter_with_room(
    sent: list[Ungate], assignment: TopologyAssignment, live: Sequence[PodFacts], ended: Counter[tuple[str, ...]], used: Sequence[PodFacts]
) -> list[Ungate]:
    """Returns those for which their domain has a place left beside pods that still use places there: they end, or have another owner."""
    using = Counter(_find_domain(pod, assignment.levels) for pod in used)
    room = Counter({domain.values: domain.count for domain in assignment.domains})
    room.subtract(using + ended)
    room.subtract(_find_domain(pod, assignment.levels) for pod in live if not pod.gated and not pod.terminating)
    kept = []
    for action in sent:
        domain = tuple(action.node_selector[level] for level in assignment.levels)
        room[domain] -= 1
        if room[domain] >= 0 or not using[domain]:
            kept.append(action)
    return kept


def _index_of(pod: PodFacts) -> str | None:
    return next((pod.labels[label] for label in INDEX_LABELS if label in pod.labels), None)


def _count_staying(live: Sequence[PodFacts]) -> int:
    return sum(1 for pod in live if not pod.gated and not pod.terminating)


def _is_nowhere(pod: PodFacts, levels: tuple[str, ...]) -> bool:
    """Whether a pod that stays is neither bound nor sent to any domain."""
    return not pod.gated and not pod.terminating and not pod.node and not any(pod.node_selector.get(level) for level in levels)


def _find_leaving(assignment: TopologyAssignment, live: Sequence[PodFacts], is_up: Callable[[str], bool]) -> list[PodFacts]:
    """Pods that end on a node that is up, outside of the assignment."""
    assigned = {domain.values for domain in assignment.domains}
    return [pod for pod in live if pod.terminating and is_up(pod.node) and _find_domain(pod, assignment.levels) not in assigned]


def _compute_first_ranks(pod_sets: Sequence[PodSetFacts], admitted: Mapping[str, int]) -> dict[str, int]:
    """Returns where the ranks of each pod set start: its index offset; in a group with continuous indexes, after the
    smaller pod sets."""
    starts: dict[str, int] = {}
    groups: dict[str, int] = {}
    whole = {pod_set.name: pod_set.count + pod_set.reclaimed for pod_set in pod_sets}
    for pod_set in sorted(pod_sets, key=lambda entry: whole[entry.name]):
        before = groups.get(pod_set.group, 0) if pod_set.group else 0
        if pod_set.group:
            partial = admitted.get(pod_set.name) if pod_set.min_count is not None else None
            groups[pod_set.group] = before + (whole[pod_set.name] if partial is None else partial)
        starts[pod_set.name] = before if pod_set.index_offset is None else pod_set.index_offset
    return starts


def _find_domain(pod: PodFacts, levels: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the domain to which an ungated pod is pinned; empty level values for a pod that was bound by hand."""
    selected = tuple(pod.node_selector.get(level, "") for level in levels)
    return selected if all(selected) else ("",) * len(levels)
