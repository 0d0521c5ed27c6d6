"""The second pass: a place for workloads that have quota, once their admission checks have brought the nodes.

The flavor is the one that was chosen with the quota; what the checks add to the pod sets (a node selector for the new nodes,
tolerations) counts (KEP-2724, Support for ProvisioningRequests).
"""

from collections.abc import Iterable
from dataclasses import replace

from core.model.admission import Admission
from core.names import CHECK_READY, REASON_TOPOLOGY_PLACEMENT_FAILED, TOPOLOGY_PENDING, TOPOLOGY_READY
from core.placement.explain import truncate
from core.placement.profile import Profile, Profiles
from core.queueing.flavors import Search, found_by, place_unit
from core.queueing.order import queue_order
from core.queueing.outcome import Found, NotFound
from core.queueing.world import World
from core.state.cluster import ClusterState
from core.state.facts import CheckState, PodSetFacts, TopologyFacts, WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts


def due_for_second_pass(state: ClusterState) -> list[WorkloadFacts]:
    """Workloads that have quota and all their checks, and no place yet, the first to be served first."""
    return sorted((w for w in state.workloads.awaiting_topology() if _has_passed(state, w)), key=lambda w: (*queue_order(w), w.key))


def _has_passed(state: ClusterState, workload: WorkloadFacts) -> bool:
    queue = state.cluster_queues.get(workload.admission.cluster_queue) if workload.admission is not None else None
    if queue is None or workload.admission is None:
        return False
    ready = {check.name for check in workload.checks if check.state == CHECK_READY}
    flavors = {flavor for pod_set in workload.admission.pod_sets for flavor in pod_set.flavors.values()}
    return ready.issuperset(queue.checks_for(flavors))


def find_second_pass(state: ClusterState, workload: WorkloadFacts, queue: ClusterQueueFacts, profiles: Profiles) -> Found | NotFound:
    """The places of all pod sets that wait for one, all or none."""

    def profile_for(topology: TopologyFacts) -> Profile:
        return profiles.nearest(workload.profile, queue.profile, topology.profile)

    assert workload.admission is not None
    search = Search(World(state), profile_for, workload.together)
    waiting: dict[str, list[PodSetFacts]] = {}
    for pod_set, given in zip(workload.pod_sets, workload.admission.pod_sets, strict=True):
        flavor = state.topology_flavor(given.flavors.values())
        if given.delayed == TOPOLOGY_PENDING and flavor is not None:
            waiting.setdefault(flavor, []).append(_updated(pod_set, workload.checks))
    for name, pod_sets in waiting.items():
        if not place_unit(state, tuple(pod_sets), state.flavors[name], search):
            sentences = "; ".join(dict.fromkeys(attempt.sentence for attempt in search.attempts))
            names = ", ".join(pod_set.name for pod_set in pod_sets)
            message = truncate(f'couldn\'t place pod set {names} on the nodes of flavor "{name}": {sentences}')
            return NotFound(REASON_TOPOLOGY_PLACEMENT_FAILED, message, tuple(search.attempts))
    placed = {placement.pod_set: placement.assignment for _, placement in search.placements}
    pod_sets_given = tuple(
        replace(given, assignment=placed[given.name], delayed=TOPOLOGY_READY) if given.name in placed else given
        for given in workload.admission.pod_sets
    )
    return found_by(search, Admission(queue.name, pod_sets_given), queue)


def _updated(pod_set: PodSetFacts, checks: Iterable[CheckState]) -> PodSetFacts:
    """A pod set with what its admission checks add to it."""
    for check in checks:
        for update in check.updates:
            if update.get("name") == pod_set.name:
                selector = {**pod_set.node_selector, **(update.get("nodeSelector") or {})}
                pod_set = replace(pod_set, node_selector=selector, tolerations=pod_set.tolerations + tuple(update.get("tolerations") or ()))
    return pod_set
