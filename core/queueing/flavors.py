"""Flavor search with topology inside: a flavor that has the quota but not the place is passed over,
and the next one is tried."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from core.model.admission import Admission, PodSetAdmission
from core.model.podset import Mode, PodSetRequest
from core.model.resources import add
from core.names import (
    REASON_EXCEEDS_MAX_QUOTA,
    REASON_NO_MATCHING_FLAVOR,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_QUOTA,
)
from core.placement.engine import Placement, place, take_from
from core.placement.explain import NotFit, refusal_sentence, truncate
from core.placement.feasibility import InvalidSelector, find_untolerated, labels_satisfy, taints_of
from core.placement.free import FreeCapacity, Matrix
from core.placement.profile import Profile
from core.queueing.quota import QuotaShortage, find_shortage, pod_set_usage
from core.state.cluster import ClusterState
from core.state.facts import ClusterQueueFacts, FlavorFacts, PodSetFacts, WorkloadFacts
from core.state.workloads import FlavorResource

Combination = tuple[tuple[tuple[str, ...], str, Mapping[str, int]], ...]  # per group: resources, flavor, its nominal quota


Unit = tuple[PodSetFacts, ...]  # pod sets that get one flavor and quota for all or none
_Refuse = Callable[..., bool]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One flavor tried for one pod set, and why it did not serve."""

    pod_set: str
    flavor: str
    reason: str
    sentence: str
    refusal: NotFit | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A way to admit a workload."""

    admission: Admission
    placements: tuple[tuple[str, Placement], ...]  # flavor, placement
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class NotFound:
    """No way to admit a workload now."""

    reason: str
    message: str
    attempts: tuple[Attempt, ...]


@dataclass(slots=True)
class _Search:
    """What the pod sets placed so far of one workload take."""

    used: dict[FlavorResource, int]
    taken: list[tuple[PodSetRequest, Placement]] = field(default_factory=list)
    placements: list[tuple[str, Placement]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def free(self, capacity: FreeCapacity) -> Matrix | None:
        """What these pod sets leave of a flavor's nodes, whichever flavor they have; None if there are none yet."""
        if not self.taken:
            return None
        free = capacity.free.copy()
        for request, placement in self.taken:
            take_from(capacity, free, request, placement.nodes)
        return free


def find_admission(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, profile: Profile) -> Found | NotFound:
    """Tries the queue's flavors in order for every pod set, quota and topology both."""
    search = _Search(dict(state.workloads.usage(queue.name)))
    given: dict[str, PodSetAdmission] = {}
    for unit in _units(workload.pod_sets):
        outcome = _find_for_unit(state, unit, queue, profile, search)
        if outcome is None:
            names = _names(unit)
            tried = [attempt for attempt in search.attempts if attempt.pod_set == names]
            sentences = "; ".join(dict.fromkeys(attempt.sentence for attempt in tried))
            message = f"couldn't assign flavors to pod set {names}: {sentences}"
            return NotFound(_worst(tried), truncate(message), tuple(search.attempts))
        given |= {admission.name: admission for admission in outcome}
    ordered = tuple(given[pod_set.name] for pod_set in workload.pod_sets)
    return Found(Admission(queue.name, ordered), tuple(search.placements), tuple(search.attempts))


def _units(pod_sets: Sequence[PodSetFacts]) -> list[Unit]:
    """What gets one flavor together: the pod sets of a group (DESIGN rule g), all others alone."""
    units: dict[str, list[PodSetFacts]] = {}
    for i, pod_set in enumerate(pod_sets):
        units.setdefault(f"group {pod_set.group}" if pod_set.group else f"pod set {i}", []).append(pod_set)
    return [tuple(unit) for unit in units.values()]


def _names(unit: Unit) -> str:
    return ", ".join(pod_set.name for pod_set in unit)


def _worst(attempts: list[Attempt]) -> str:
    """The reason that stands for all: what is nearest to being admitted."""
    reasons = {attempt.reason for attempt in attempts}
    for reason in (REASON_TOPOLOGY_PLACEMENT_FAILED, REASON_WAITING_FOR_QUOTA, REASON_EXCEEDS_MAX_QUOTA):
        if reason in reasons:
            return reason
    return REASON_NO_MATCHING_FLAVOR


def _find_for_unit(
    state: ClusterState, unit: Unit, queue: ClusterQueueFacts, profile: Profile, search: _Search
) -> list[PodSetAdmission] | None:
    usages = [pod_set_usage(pod_set, queue) for pod_set in unit]
    usage: dict[str, int] = {}
    for one in usages:
        add(usage, one)
    covered = {resource for group in queue.groups for resource in group.resources}
    uncovered = sorted(resource for resource, amount in usage.items() if amount and resource not in covered)
    if uncovered:
        sentence = f'ClusterQueue "{queue.name}" has no quota for {", ".join(uncovered)}'
        search.attempts.append(Attempt(_names(unit), "", REASON_NO_MATCHING_FLAVOR, sentence))
        return None
    if not queue.groups:
        search.attempts.append(Attempt(_names(unit), "", REASON_NO_MATCHING_FLAVOR, f'ClusterQueue "{queue.name}" has no flavor'))
        return None
    for combination in _combinations(queue, usage):
        if _try(state, unit, usage, combination, queue, profile, search):
            flavors = {resource: flavor for resources, flavor, _ in combination for resource in resources}
            for resource, flavor in flavors.items():
                search.used[flavor, resource] = search.used.get((flavor, resource), 0) + usage.get(resource, 0)
            assignments = {placement.pod_set: placement.assignment for _, placement in search.placements}
            return [
                PodSetAdmission(pod_set.name, flavors, {r: own.get(r, 0) for r in flavors}, pod_set.count, assignments.get(pod_set.name))
                for pod_set, own in zip(unit, usages, strict=True)
            ]
    return None


def _combinations(queue: ClusterQueueFacts, usage: Mapping[str, int]) -> Iterator[Combination]:
    """One flavor per resource group that pod sets need, in the order the queue lists them.

    A pod set that asks for nothing is placed by the first group's flavors, and holds none of each of their resources.
    """
    needed = [(tuple(r for r in group.resources if r in usage), group.quotas) for group in queue.groups]
    first = queue.groups[0]
    groups = [entry for entry in needed if entry[0]] or [(first.resources, first.quotas)]
    yield from product(*([(resources, flavor, nominal) for flavor, nominal in quotas] for resources, quotas in groups))


def _try(
    state: ClusterState,
    unit: Unit,
    usage: Mapping[str, int],
    combination: Combination,
    queue: ClusterQueueFacts,
    profile: Profile,
    search: _Search,
) -> bool:
    """Judges one choice of flavors; on success the placement, if any, is in `search`."""

    def refuse(flavor: str, reason: str, sentence: str, refusal: NotFit | None = None) -> bool:
        search.attempts.append(Attempt(_names(unit), flavor, reason, sentence, refusal))
        return False

    topological: list[FlavorFacts] = []
    for resources, name, nominal in combination:
        flavor = state.flavors.get(name)
        if flavor is None:
            return refuse(name, REASON_NO_MATCHING_FLAVOR, f'flavor "{name}" does not exist')
        mismatch = next((why for pod_set in unit if (why := _mismatch(state, pod_set, flavor, queue)) is not None), None)
        if mismatch is not None:
            return refuse(name, REASON_NO_MATCHING_FLAVOR, mismatch)
        shortage = find_shortage(name, resources, nominal, usage, search.used)
        if shortage is not None:
            return refuse(name, _quota_reason(shortage), str(shortage))
        if flavor.topology:
            topological.append(flavor)
    if not topological:
        return True
    if len({flavor.name for flavor in topological}) > 1:
        names = " and ".join(f'"{flavor.name}"' for flavor in topological)
        return refuse(topological[0].name, REASON_NO_MATCHING_FLAVOR, f"flavors {names} cannot place one pod set together")
    return _place(state, unit, topological[0], profile, search, refuse)


def _place(state: ClusterState, unit: Unit, flavor: FlavorFacts, profile: Profile, search: _Search, refuse: _Refuse) -> bool:
    view = state.view(flavor.name)
    if view is None:
        return refuse(flavor.name, REASON_NO_MATCHING_FLAVOR, f'flavor "{flavor.name}": topology "{flavor.topology}" does not exist')
    requests = [state.request_for(pod_set, flavor) for pod_set in unit]
    decision = place(view.capacity, requests, profile, free=search.free(view.capacity))
    if decision.refusal is not None:
        sentence = refusal_sentence(view.topology.name, decision.refusal)
        return refuse(flavor.name, REASON_TOPOLOGY_PLACEMENT_FAILED, sentence, decision.refusal)
    search.taken += zip(requests, decision.placements, strict=True)
    search.placements += ((flavor.name, placement) for placement in decision.placements)
    return True


def _quota_reason(shortage: QuotaShortage) -> str:
    return REASON_EXCEEDS_MAX_QUOTA if shortage.never_fits else REASON_WAITING_FOR_QUOTA


def _mismatch(state: ClusterState, pod_set: PodSetFacts, flavor: FlavorFacts, queue: ClusterQueueFacts) -> str | None:
    """Why a flavor cannot serve a pod set whatever is free, if so."""
    explicit = pod_set.topology is None or pod_set.topology.mode is not Mode.IMPLIED
    if explicit and not flavor.topology:
        return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
    if not explicit and flavor.topology and not all((f := state.flavors.get(name)) is not None and f.topology for name in queue.flavors):
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
    try:
        satisfied = labels_satisfy(flavor.node_labels, pod_set.node_selector, pod_set.affinity)
    except InvalidSelector as error:
        return f"pod set {pod_set.name}: {error}"
    if not satisfied:
        return f'the pod set\'s node selector or affinity does not match the node labels of flavor "{flavor.name}"'
    taint = find_untolerated(taints_of({"taints": flavor.node_taints}), pod_set.tolerations + flavor.tolerations)
    if taint is not None:
        key, value, effect = taint
        return f'taint {key}{"=" if value else ""}{value}:{effect} of flavor "{flavor.name}" is not tolerated'
    return None
