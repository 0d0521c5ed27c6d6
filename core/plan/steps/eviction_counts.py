"""How often a workload was evicted, by reason (`status.schedulingStats.evictions`). These numbers only go up."""

from collections.abc import Mapping
from typing import Any

from core.names import EVICTED, REASON_DEACTIVATED
from core.state.facts import is_condition_true

Json = Mapping[str, Any]


def count_evictions(workload: Json, reason: str) -> int:
    """Returns how often a workload was evicted so far for a reason, as the condition Evicted gives it; 0 where it was not. Each cause of a
    deactivation (`DeactivatedDueTo...`) is counted by itself."""
    return next((int(entry["count"]) for entry in _list_entries(workload) if _name(entry) == _split(reason)), 0)


def count_all_evictions(workload: Json) -> int:
    """Returns how often a workload was evicted so far, for any reason."""
    return sum(int(entry.get("count") or 0) for entry in _list_entries(workload))


def build_eviction_stats(workload: Json, reason: str) -> dict[str, Any]:
    """Returns a new `status.schedulingStats` with one more eviction for a reason. For a workload that is evicted already it is a copy as it
    stands."""
    stats = dict((workload.get("status") or {}).get("schedulingStats") or {})
    if is_condition_true(workload, EVICTED):
        return stats
    count, (why, cause) = count_evictions(workload, reason) + 1, _split(reason)
    others = [dict(entry) for entry in _list_entries(workload) if _name(entry) != (why, cause)]
    return {**stats, "evictions": [*others, {"reason": why, "underlyingCause": cause, "count": count}]}


def _list_entries(workload: Json) -> tuple[Json, ...]:
    return tuple(((workload.get("status") or {}).get("schedulingStats") or {}).get("evictions") or ())


def _name(entry: Json) -> tuple[str, str]:
    return entry["reason"], entry.get("underlyingCause") or ""


def _split(reason: str) -> tuple[str, str]:
    """Deactivation has its cause in the reason of the condition, and apart from it in the statistics."""
    why, due_to, cause = reason.partition("DueTo")
    return (why, cause) if due_to and why == REASON_DEACTIVATED else (reason, "")
