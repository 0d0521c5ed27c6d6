"""blockAdmission: no workload is admitted while the pods of another admitted workload are not ready (KEP-349, Waiting
for PodsReady condition)."""

from core.model.pods_ready_rules import PodsReadyRules, Scope
from core.names import REASON_WAITING_FOR_PODS_READY
from core.queueing.flavors.outcome import NotAdmissible
from core.state.cluster import ClusterState
from core.state.queue_facts import ClusterQueueFacts

_AMONG = {Scope.CLUSTER: "in the cluster", Scope.COHORT: "in the cohort", Scope.CLUSTER_QUEUE: "in the ClusterQueue"}


def find_obstacle(state: ClusterState, queue: ClusterQueueFacts, rules: PodsReadyRules | None) -> NotAdmissible | None:
    """Returns why a workload of `queue` has to wait: an admitted workload in the scope of `rules` has pods that are not ready; of several,
    the first by key is named. None: it need not wait, also where `rules` is None or blocks nothing."""
    if rules is None or rules.blocks is None:
        return None
    among = None if rules.blocks is Scope.CLUSTER else {queue.name}
    if rules.blocks is Scope.COHORT:
        among = {queue.name, *state.quota.list_relatives(queue.name)}
    first = min((key for key, name in state.list_starting() if among is None or name in among), default=None)
    if first is None:
        return None
    why = f"waits until the pods of workload {first} are ready: one workload {_AMONG[rules.blocks]} starts at a time (blockAdmission)"
    return NotAdmissible(REASON_WAITING_FOR_PODS_READY, why, ())
