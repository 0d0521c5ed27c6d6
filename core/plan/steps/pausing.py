"""What a write to a Workload begins, and whether an administrator's pause allows it: the one gate of all admissions and
evictions.

What a user sets for the own job takes effect whatever is paused: that it is not to run (`spec.active`, `suspend`), or
that it is another one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.model.admission import decode_admission
from core.model.pause_state import Pause, Stop
from core.names import (
    ADMITTED,
    EVENT_ADMISSION_PAUSED,
    EVENT_EVICTION_PAUSED,
    EVICTED,
    QUOTA_RESERVED,
    REASON_DEACTIVATED,
    REASON_JOB_CHANGED,
    REASON_PREEMPTED,
    REASON_SUSPENDED_BY_USER,
)

Json = Mapping[str, Any]
_BY_ITS_USER = (REASON_DEACTIVATED, REASON_SUSPENDED_BY_USER, REASON_JOB_CHANGED)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A write that a pause does not allow; reason and message of the event that reports it."""

    stop: Stop
    reason: str
    message: str


def find_stopped(pause: Pause, workload: Json, status: Json) -> Stopped | None:
    """Returns the pause that keeps a Workload, as it is seen, from getting this status: by it an eviction would begin, or quota, an
    admission or other places would be granted. None where nothing does. Raises InvalidAssignment or InvalidQuantity where an admission
    cannot be read."""
    if pause.admissions is None and pause.evictions is None:
        return None
    before, after = _list_true(workload.get("status") or {}), _list_true(status)
    if EVICTED in after and EVICTED not in before:
        evicted = after[EVICTED]
        return find_held_eviction(pause, str(evicted.get("reason") or ""), str(evicted.get("message") or ""))
    if pause.admissions is not None and _is_granting(workload.get("status") or {}, status):
        return Stopped(pause.admissions, EVENT_ADMISSION_PAUSED, f"It would be admitted, but {pause.admissions.sentence}")
    return None


def find_held_eviction(pause: Pause, reason: str, message: str) -> Stopped | None:
    """Returns the pause that keeps an eviction for a reason from being begun; None where nothing does, as for what the workload's user has
    set. A pause of evictions holds all others; one of admissions only preemptions, which are the first half of one. `message` is for the
    text."""
    stop = None if reason in _BY_ITS_USER else pause.evictions or (pause.admissions if reason == REASON_PREEMPTED else None)
    if stop is None:
        return None
    why = f"{reason}: {message}" if message else reason
    return Stopped(stop, EVENT_EVICTION_PAUSED, f"It would be evicted, but {stop.sentence}. Why it would be: {why}")


def has_effect(workload: Json) -> bool:
    """Returns whether deactivating a workload takes something from it: it has quota, and is not evicted yet."""
    true = _list_true(workload.get("status") or {})
    return QUOTA_RESERVED in true and EVICTED not in true


def _is_granting(before: Json, after: Json) -> bool:
    """Whether a status grants what the previous one does not: quota, admission, or another place for pods on nodes that
    have failed or reject them."""
    had, has = _list_true(before), _list_true(after)
    if any(kind in has and kind not in had for kind in (QUOTA_RESERVED, ADMITTED)):
        return True
    was, now = before.get("admission"), after.get("admission")
    if not was or not now or was == now or EVICTED in has:
        return False
    is_replaced = bool(before.get("unhealthyNodes")) and not after.get("unhealthyNodes")
    return is_replaced or bool(_count_places(now) - _count_places(was))


def _count_places(admission: Json) -> Counter[tuple[str, tuple[str, ...]]]:
    """Pods by pod set and domain."""
    found = Counter[tuple[str, tuple[str, ...]]]()
    read = decode_admission(admission)
    for given in read.pod_sets if read is not None else ():
        for domain in given.assignment.domains if given.assignment is not None else ():
            found[given.name, domain.values] += domain.count
    return found


def _list_true(status: Json) -> dict[str, Json]:
    """Conditions that are True, by type."""
    conditions: Iterable[Json] = status.get("conditions") or ()
    return {condition["type"]: condition for condition in conditions if condition.get("status") == "True"}
