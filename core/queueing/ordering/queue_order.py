"""Who goes first: priority, then time, then who came first.

Times have whole seconds. Within one, the order in which workloads were first seen is the order in which the API server
made them, but for those that were there before this process: these go by what the first list says (KEP-2724 leaves ties
open; a blocked head of a StrictFIFO queue must not be overtaken by chance).
"""

from core.model.pods_ready_rules import PodsReadyRules, RequeueTime
from core.names import REASON_PODS_READY_TIMEOUT
from core.state.facts import WorkloadFacts


def queue_order(workload: WorkloadFacts, rules: PodsReadyRules | None = None) -> tuple[int, str, str]:
    """Sort key: higher priority, longer in the queue, created earlier.

    Who was evicted queues up from then on, unless it was because its pods were not ready, and the rules say that this
    costs nobody its place (KEP-349, requeuingStrategy.timestamp).
    """
    keeps_its_place = rules is not None and rules.requeue_time is RequeueTime.CREATION and workload.evicted_for == REASON_PODS_READY_TIMEOUT
    return (-workload.priority, workload.created if keeps_its_place else workload.queued_since, workload.created)
