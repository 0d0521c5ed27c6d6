"""Whether domains of several nodes still hold the pods that were assigned to them (KEP-2724, Node failures, with another lowest level
than the hostname).

Which node of its domain a pod gets is kube-scheduler's to choose, and so is another one when it has lost that. What was assigned is lost
only where the nodes that are left do not hold all of it. A pod that runs needs no room, whatever the labels of its node are by now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.model.admission import PodSetAdmission
from core.model.podset import PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.feasibility import InvalidSelector
from core.placement.free import FreeCapacity, with_pod
from core.placement.survey import out_of_use
from core.placement.tree import Indices
from core.state.cluster import ClusterState
from core.state.facts import NodeFacts, PodFacts, PodSetFacts, WorkloadFacts
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
        where = f"{self.level} {'/'.join(self.values)} has room for {self.room} of {self.missing} pod(s) of pod set {self.pod_set}"
        if self.is_empty:
            return f"{where}; no node of flavor {self.flavor} is in that domain"
        names = sorted(self.out)
        shown = ", ".join(f"{name} ({self.out[name]})" for name in names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"{where}; out of use: {shown}{more}" if names else where


def find_short(state: ClusterState, workload: WorkloadFacts, pods: Sequence[PodFacts]) -> Short | None:
    """The first of its domains that does not hold what it should; `pods` are the workload's own."""
    for pod_set, given in zip(workload.pod_sets, workload.admission.pod_sets if workload.admission is not None else (), strict=False):
        flavor = state.topology_flavor(given.flavors.values())
        view = state.view(flavor) if flavor is not None else None
        if given.assignment is None or given.assignment.levels[-1] == HOSTNAME_LABEL or view is None:
            continue
        mine = [pod for pod in pods if pod.pod_set == pod_set.name]
        expected = state.ledger.expected((workload.pods_key, pod_set.name, workload.owner_uid))
        try:
            short = _find_short(view, state.request_for(pod_set, view.flavor), given, pod_set, mine, expected, state.nodes)
        except InvalidSelector:  # of a flavor that has changed: nobody knows what it means
            continue
        if short is not None:
            return short
    return None


def _find_short(
    view: FlavorView,
    request: PodSetRequest,
    given: PodSetAdmission,
    pod_set: PodSetFacts,
    pods: Sequence[PodFacts],
    expected: Mapping[str, int],
    known: Mapping[str, NodeFacts],
) -> Short | None:
    assert given.assignment is not None
    capacity, levels = view.capacity, given.assignment.levels
    to_come = pod_set.count - sum(pod.holds and not pod.terminating and pod.node in known for pod in pods)
    assigned = {name for domain in given.assignment.domains for name in view.get_domain_names(domain.values)}
    # Pods on nodes that have left their domain, by the domain that they were sent to: they have no other place in the assignment.
    elsewhere = [pod for pod in pods if pod.node in known and pod.node not in assigned]
    for domain in given.assignment.domains:
        nodes = np.array([capacity.tree.index[name] for name in view.domain_nodes(domain.values)], dtype=np.int64)
        ready = {capacity.tree.names[node] for node in nodes if capacity.ready[node]}
        there = {capacity.tree.names[node] for node in nodes}
        # What ends on a node that is up makes room for the next; what ends on one that is not may do so for ever.
        placed = sum(pod.node in there and (pod.succeeded or (pod.holds and (not pod.terminating or pod.node in ready))) for pod in pods)
        placed += sum(
            (pod.succeeded or (pod.holds and not pod.terminating)) and _is_sent_to(pod, levels, domain.values) for pod in elsewhere
        )
        missing = min(domain.count - placed, to_come)
        room = _room(capacity, request, nodes, expected) if missing > 0 else 0
        if missing > room:
            out = {name: why for why, names in out_of_use(capacity, request).items() for name in names if name in there}
            return Short(pod_set.name, levels[-1], domain.values, missing, room, out, view.flavor.name, not there)
    return None


def _is_sent_to(pod: PodFacts, levels: Sequence[str], values: tuple[str, ...]) -> bool:
    return all(pod.node_selector.get(level) == value for level, value in zip(levels, values, strict=True))


def _room(capacity: FreeCapacity, request: PodSetRequest, nodes: Indices, expected: Mapping[str, int]) -> int:
    """Pods that some nodes hold, with what is kept there for those that are expected."""
    free = capacity.free.copy()
    kept = np.array([expected.get(capacity.tree.names[node], 0) for node in nodes], dtype=np.int64)
    for resource, amount in with_pod(request.requests).items():
        row = capacity.axis.get(resource)
        if row is not None:
            free[row, nodes] += amount * kept
    return int(np.where(capacity.eligible(request, nodes), capacity.pods_that_fit(request, free, nodes), 0).sum())
