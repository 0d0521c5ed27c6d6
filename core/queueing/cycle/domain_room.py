"""Whether domains of several nodes still hold the pods that were assigned to them (KEP-2724, Node failures, with
another lowest level than the hostname).

kube-scheduler chooses the node of a pod in its domain, and another one when that node is lost. What was assigned is
lost only where the remaining nodes do not hold all of it. A running pod needs no room, whatever the present labels of
its node are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.model.admission import PodSetAdmission
from core.model.podset import PodSetRequest
from core.model.quantity import show_count
from core.model.wire.assignment import DomainCount
from core.names import HOSTNAME_LABEL
from core.placement.explain.survey import list_out_of_use
from core.placement.topology.free_capacity import FreeCapacity, Matrix, with_pod
from core.placement.topology.node_eligibility import InvalidSelector
from core.placement.topology.tree import Indices
from core.state.cluster import ClusterState
from core.state.facts import PodFacts, PodSetFacts, WorkloadFacts
from core.state.flavor_view import FlavorView

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Short:
    """A domain in which more pods of a workload wait than its nodes have room for. `out`: why nodes of it take none, by name.
    `is_empty`: no node of `flavor` is in the domain."""

    pod_set: str
    level: str
    values: tuple[str, ...]
    missing: int
    room: int
    out: Mapping[str, str]
    flavor: str = ""
    is_empty: bool = False

    @property
    def sentence(self) -> str:
        """Returns the shortage as a message: how many of the missing pods have room, and the first five nodes out of use, by name, with
        why."""
        where = (
            f"{self.level} {'/'.join(self.values)} has room for {self.room} of {show_count(self.missing, 'pod')} of pod set {self.pod_set}"
        )
        if self.is_empty:
            return f"{where}; no node of flavor {self.flavor} is in that domain"
        names = sorted(self.out)
        shown = ", ".join(f"{name} ({self.out[name]})" for name in names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"{where}; out of use: {shown}{more}" if names else where


@dataclass(frozen=True, slots=True)
class Wide:
    """A pod set that was assigned to domains of several nodes; `nodes` are the names of these."""

    pod_set: PodSetFacts
    given: PodSetAdmission
    view: FlavorView
    nodes: Collection[str]

    @property
    def domains(self) -> Sequence[DomainCount]:
        """Returns the domains of the assignment, in its order, each with its values and the number of pods assigned to it. Raises
        AssertionError without an assignment."""
        assert self.given.assignment is not None
        return self.given.assignment.domains

    @property
    def levels(self) -> Sequence[str]:
        """Returns the node labels of the levels that the domains are named by, coarse to fine. Raises AssertionError without an
        assignment."""
        assert self.given.assignment is not None
        return self.given.assignment.levels


@dataclass(slots=True)
class DomainPodCounts:
    """Pods of a pod set. `running`: on nodes that are there. By node of the assignment: `placed`, which run there or have succeeded, and
    `ending`. `sent`: pods on nodes that have left their domain, by the domain that they were sent to; they have no other place."""

    running: int = 0
    placed: Counter[str] = field(default_factory=Counter)
    ending: Counter[str] = field(default_factory=Counter)
    sent: Counter[tuple[str, ...]] = field(default_factory=Counter)


def list_wide(state: ClusterState, workload: WorkloadFacts) -> list[Wide]:
    """Returns the pod sets of a workload, in its order, with an assignment to domains above single nodes, and the nodes that are in these
    now. Left out are those of a flavor that is gone or has no nodes by topology; empty for a workload without admission."""
    found = []
    for pod_set, given in zip(workload.pod_sets, workload.admission.pod_sets if workload.admission is not None else (), strict=False):
        flavor = state.find_topology_flavor(given.flavors.values())
        view = state.get_view(flavor) if flavor is not None else None
        if given.assignment is not None and given.assignment.levels[-1] != HOSTNAME_LABEL and view is not None:
            nodes = {name for domain in given.assignment.domains for name in view.get_domain_names(domain.values)}
            found.append(Wide(pod_set, given, view, nodes))
    return found


def count_pods(wide: Sequence[Wide], owner_uid: str | None, pods: Iterable[PodFacts], known: Collection[str]) -> dict[str, DomainPodCounts]:
    """Returns the pods of an owner by pod set, with an entry for each of `wide`, in one pass: a job may have 50,000 in as many domains as
    there are nodes. Pods of others or of other pod sets do not count; all counts are 0 where `owner_uid` is None. `pods` may be any;
    `known` are the names of the nodes that are there. Nothing of the state is read, so it may run in a thread."""
    asked, found = {each.pod_set.name: each for each in wide}, {each.pod_set.name: DomainPodCounts() for each in wide}
    for pod in pods:
        of = asked.get(pod.pod_set or "")
        if of is None or owner_uid is None or pod.owner_uid != owner_uid:
            continue
        counted, stays = found[of.pod_set.name], pod.holds and not pod.terminating
        counted.running += stays and pod.node in known
        if stays or pod.succeeded:
            if pod.node in of.nodes:
                counted.placed[pod.node] += 1
            elif pod.node in known:
                counted.sent[tuple(pod.node_selector.get(level, "") for level in of.levels)] += 1
        elif pod.holds:
            counted.ending[pod.node] += 1
    return found


def find_short(state: ClusterState, workload: WorkloadFacts, wide: Sequence[Wide], counted: Mapping[str, DomainPodCounts]) -> Short | None:
    """Returns the first domain of a workload in which more pods are still to come than its nodes have room for; None if there is none. They
    are looked at in the order of `wide`, then of each assignment. What is kept for these pods counts as room. `counted` must have each pod
    set of `wide` (else KeyError). Pod sets with a selector that cannot be evaluated are left out."""
    for each in wide:
        expected = state.ledger.count_expected((workload.pods_key, each.pod_set.name, workload.owner_uid))
        try:
            short = _find_short(each, state.request_for(each.pod_set, each.view.flavor), counted[each.pod_set.name], expected)
        except InvalidSelector:  # the flavor has changed, and its old selector cannot be evaluated
            continue
        if short is not None:
            return short
    return None


def _find_short(wide: Wide, request: PodSetRequest, counted: DomainPodCounts, expected: Mapping[str, int]) -> Short | None:
    capacity, to_come = wide.view.capacity, min(wide.given.count, wide.pod_set.count) - counted.running
    if to_come <= 0:
        return None
    free = capacity.free.copy()
    for domain in wide.domains:
        nodes, names = wide.view.find_domain_places(domain.values), wide.view.list_domain_nodes(domain.values)
        # What ends on a node that is up makes room for the next; what ends on one that is not may do so for ever.
        placed = counted.sent[domain.values] + sum(
            counted.placed[name] + (counted.ending[name] if capacity.ready[node] else 0) for node, name in zip(nodes, names, strict=True)
        )
        missing = min(domain.count - placed, to_come)
        room = _count_room(capacity, free, request, nodes, expected) if missing > 0 else 0
        if missing > room:
            there = set(names)
            out = {name: why for why, named in list_out_of_use(capacity, request).items() for name in named if name in there}
            return Short(wide.pod_set.name, wide.levels[-1], domain.values, missing, room, out, wide.view.flavor.name, not there)
    return None


def _count_room(capacity: FreeCapacity, free: Matrix, request: PodSetRequest, nodes: Indices, expected: Mapping[str, int]) -> int:
    """Pods that some nodes hold, with what is kept there for those that are expected: it is added to `free`, once for each node."""
    kept = np.array([expected.get(capacity.tree.names[node], 0) for node in nodes], dtype=np.int64)
    for resource, amount in with_pod(request.requests).items():
        row = capacity.axis.get(resource)
        if row is not None:
            free[row, nodes] += amount * kept
    return int(np.where(capacity.find_eligible(request, nodes), capacity.count_pods_that_fit(request, free, nodes), 0).sum())
