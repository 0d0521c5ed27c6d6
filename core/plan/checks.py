"""Admission checks of a workload that has quota: what is to be done next (Kueue API, status.admissionChecks; KEP-2724, Error handling).

    checks                                            what is done
    not those that queue and flavors ask for          made so; new ones are Pending
    one is Rejected                                   quota given back, the workload deactivated
    one says Retry                                    quota given back, queued again after the time it asks for
    all are Ready, no place is to be found any more   admitted
    all are Ready, and no place found in time         quota given back, queued again

All times are those of the statuses, so that whoever starts anew goes on where another stopped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from core.names import (
    ADMITTED,
    CHECK_PENDING,
    CHECK_READY,
    CHECK_REJECTED,
    CHECK_RETRY,
    REASON_PENDING_TOPOLOGY,
    REASON_UNSATISFIED_CHECKS,
)
from core.plan.conditions import Condition

Json = Mapping[str, Any]
_PLACE_WAITS = "There are pending delayed topology requests"
# Times of the API have whole seconds, rounded down: what began then may have begun almost a second later.
RESOLUTION_S = 1.0


@dataclass(frozen=True, slots=True)
class Sync:
    """The list of checks is to be this."""

    checks: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """Nothing is in the way any more."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The workload loses its quota; it is queued again after some seconds, or deactivated."""

    message: str
    after_s: int = 0
    deactivates: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """For the checks, or until so many seconds have gone by (None: for an event only)."""

    seconds: float | None = None


Action = Sync | Admit | GiveBack | Wait


def plan_checks(checks: Sequence[Json], needed: Sequence[str], *, awaits_topology: bool, now: datetime, timeout_s: float) -> Action:
    """For a workload that has quota, is not admitted and not evicted. `needed` are the checks that it must pass."""
    if {check["name"] for check in checks} != set(needed):
        return Sync(sync_checks(checks, needed, now.strftime("%Y-%m-%dT%H:%M:%SZ")))
    rejected = [check for check in checks if check.get("state") == CHECK_REJECTED]
    if rejected:
        return GiveBack(f"Admission check(s) rejected the workload: {_told(rejected)}", deactivates=True)
    retried = [check for check in checks if check.get("state") == CHECK_RETRY]
    if retried:
        after = max(int(check.get("requeueAfterSeconds") or 0) for check in retried)
        return GiveBack(f"At least one admission check is false: {_told(retried)}", after)
    if any(check.get("state") != CHECK_READY for check in checks):
        return Wait()
    if not awaits_topology:
        return Admit()
    ready = all_ready_since(checks, now)
    left = (ready + timedelta(seconds=timeout_s + RESOLUTION_S) - now).total_seconds()
    if left > 0:
        return Wait(left)
    return GiveBack(f"No place was found on the nodes within {timeout_s:g} s after all admission checks were Ready")


def sync_checks(checks: Iterable[Json], needed: Sequence[str], now: str) -> tuple[dict[str, Any], ...]:
    """The checks that a workload must pass, as far as it is with them."""
    known = {check["name"]: dict(check) for check in checks}
    fresh = {"state": CHECK_PENDING, "lastTransitionTime": now, "message": ""}
    return tuple(known.get(name, {"name": name} | fresh) for name in needed)


def reset_checks(checks: Iterable[Json], now: str) -> list[dict[str, Any]]:
    """The same checks for the next attempt: what they said holds no more."""
    reset = []
    for check in checks:
        message, counted = check.get("message") or "", {name: check[name] for name in ("retryCount",) if name in check}
        before = f" Previously: {message}" if message and not message.startswith("Reset to Pending") else ""
        told = f"Reset to Pending after eviction.{before}"[:32768]
        if check.get("state") == CHECK_PENDING:
            reset.append(dict(check))
        else:
            fresh = {"name": check["name"], "state": CHECK_PENDING, "lastTransitionTime": now, "message": told}
            reset.append(fresh | counted)
    return reset


def admitted_condition(checks: Iterable[Json], *, awaits_topology: bool) -> Condition:
    """Whether a workload that has quota is admitted."""
    if any(check.get("state") != CHECK_READY for check in checks):
        return Condition(ADMITTED, False, REASON_UNSATISFIED_CHECKS, "The workload has not all checks ready")
    if awaits_topology:
        return Condition(ADMITTED, False, REASON_PENDING_TOPOLOGY, _PLACE_WAITS)
    return Condition(ADMITTED, True, ADMITTED, "The workload is admitted")


def all_ready_since(checks: Sequence[Json], now: datetime) -> datetime:
    """When the last of the checks, which are all Ready, became so; now if there are none."""
    return max((_time(check.get("lastTransitionTime")) for check in checks), default=now)


def _told(checks: Sequence[Json]) -> str:
    return "; ".join(f"{check['name']}: {check.get('message') or 'no message'}" for check in checks)


def _time(text: str | None) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else datetime(1970, 1, 1, tzinfo=UTC)
