"""Pods of a workload that was stopped which nobody waits for any more, as they were deleted by force, and which still count on their
nodes: as long as something keeps what is left of them.

The Job controller keeps the last pod of an index until it has made another, and of a suspended job it makes none. Where such a pod has
the only place that the workload could have, each would wait for the other. So that place is the workload's, where it has no other.
"""

from collections.abc import Sequence

from core.model.resources import Resources
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts

Leftovers = Sequence[tuple[Resources, Sequence[tuple[str, int]]]]  # requests of one pod, pods per node


def leftovers_of(state: ClusterState, workload: WorkloadFacts) -> Leftovers:
    """Of its pod sets that have no place now."""
    keys = ((workload.pods_key, pod_set.name, workload.owner_uid) for pod_set in workload.pod_sets)
    return [(pod.requests, [(pod.node, 1)]) for key in keys for pod in state.ledger.left_behind(key)]
