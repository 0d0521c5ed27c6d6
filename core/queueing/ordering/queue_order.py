"""The order in a queue: priority, then time, then namespace and name.

Times have whole seconds. KEP-2724 leaves ties of one second open. Names decide them, so that every process, and `topogate queue`, has the
same order whatever it has seen first, and no workload overtakes the blocked head of a StrictFIFO queue by chance.
"""

from core.model.pods_ready_rules import PodsReadyRules, RequeueTime
from core.names import REASON_PODS_READY_TIMEOUT
from core.state.facts import WorkloadFacts


def queue_order(workload: WorkloadFacts, rules: PodsReadyRules | None = None) -> tuple[int, str, str]:
    """Returns the sort key: higher priority first, then longer in the queue, then created earlier.

    An evicted workload is queued again as of its eviction. It keeps its place if it was evicted because its pods were not ready and `rules`
    have requeuingStrategy.timestamp Creation (KEP-349).
    """
    keeps_its_place = rules is not None and rules.requeue_time is RequeueTime.CREATION and workload.evicted_for == REASON_PODS_READY_TIMEOUT
    return (-workload.priority, workload.created if keeps_its_place else workload.queued_since, workload.created)
