"""What decisions own of a Workload's status, and whether it is still as a decision has found it.

The planners begin the status that they write with it, and the executor compares it (`Guard.AS_JUDGED`).
"""

from collections.abc import Mapping
from typing import Any

from core.names import ADMITTED, DEACTIVATION_TARGET, EVICTED, FINISHED, PODS_READY, PREEMPTED, QUOTA_RESERVED, REQUEUED

Json = Mapping[str, Any]
MANAGED_CONDITIONS = (
    QUOTA_RESERVED,
    "BlockedOnPreemptionGates",
    EVICTED,
    ADMITTED,
    PREEMPTED,
    REQUEUED,
    DEACTIVATION_TARGET,
    FINISHED,
    PODS_READY,
)
MANAGED_FIELDS = (
    "requeueState",
    "admissionChecks",
    "accumulatedPastExecutionTimeSeconds",
    "schedulingStats",
    "clusterName",
    "nominatedClusterNames",
    "preemptionGates",
)


def read_managed_status(workload: Json) -> dict[str, Any]:
    """Returns a new map of what `kueue-admission` owns of a Workload's status, with admission, unhealthy nodes and resource requests.
    Conditions are copies, other values are shared. Fields that are empty are absent, but for `conditions`."""
    status = workload.get("status") or {}
    kept = {name: status[name] for name in (*MANAGED_FIELDS, "admission", "unhealthyNodes", "resourceRequests") if status.get(name)}
    kept["conditions"] = [dict(c) for c in status.get("conditions") or () if c.get("type") in MANAGED_CONDITIONS]
    return kept


def is_as_judged(now: Json, seen: Json) -> bool:
    """Returns whether nothing of a Workload has changed by which decisions on it are made: uid, generation, deletion, and what
    `read_managed_status` returns."""
    parts = ("uid", "generation", "deletionTimestamp")
    is_alike = all(now["metadata"].get(part) == seen["metadata"].get(part) for part in parts)
    return is_alike and read_managed_status(now) == read_managed_status(seen)
