"""Who goes first: priority, then time, then who came first.

Times have whole seconds. Within one, the order in which workloads were first seen is the order in which the API server
made them, but for those that were there before this process: these go by what the first list says (KEP-2724 leaves ties
open; a blocked head of a StrictFIFO queue must not be overtaken by chance).
"""

from collections.abc import Iterable

from core.state.facts import WorkloadFacts
from core.state.workloads import Workloads


def queue_order(workload: WorkloadFacts) -> tuple[int, str, str]:
    """Sort key: higher priority, longer in the queue, created earlier."""
    return (-workload.priority, workload.queued_since, workload.created)


def in_queue_order(workloads: Workloads) -> Iterable[WorkloadFacts]:
    """Workloads that wait, the first to be served first."""
    return sorted(workloads.pending(), key=lambda workload: (*queue_order(workload), workloads.arrival(workload.key)))
