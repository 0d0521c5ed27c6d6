"""Who goes first: priority, then time, then a stable tie-break that depends on nothing else."""

from core.state.facts import WorkloadFacts


def queue_order(workload: WorkloadFacts) -> tuple[int, str, str, str]:
    """Sort key: higher priority, longer in the queue, created earlier, then uid (KEP-2724 leaves ties open)."""
    return (-workload.priority, workload.queued_since, workload.created, workload.uid)
