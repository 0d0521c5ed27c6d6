"""Admission checks of a workload that has quota: what is to be done next (Kueue API, status.admissionChecks; KEP-2724, Error handling).

    checks                                            what is done
    not those that queue and flavors ask for          made so; new ones are Pending
    one is Rejected                                   quota given back, the workload deactivated
    one is Retry                                      quota given back, queued again after the time it asks for
    all are Ready, no place is to be found any more   admitted
    all are Ready, and no place found in time         those that brought the nodes fail: Retry, or Rejected where all attempts are spent
    the same, and no check has brought nodes          quota given back, queued again

A workload that is admitted already loses its place in the same way, where a check becomes Retry or Rejected later.

All times are those of the statuses, so that a restarted process continues where another stopped.
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
from core.plan.steps.actions import RESOLUTION_S, from_time, to_time
from core.plan.steps.conditions import Condition
from core.state.check_facts import RetryStrategy

Json = Mapping[str, Any]
_PLACE_WAITS = "There are pending delayed topology requests"
MAX_MESSAGE = 32768
_NAMED = 5  # checks that a message names


@dataclass(frozen=True, slots=True)
class Sync:
    """The list of checks is to be this."""

    checks: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """Nothing prevents the admission any more."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The workload loses its quota; it is queued again after some seconds, or deactivated."""

    message: str
    after_s: int = 0
    deactivates: bool = False


@dataclass(frozen=True, slots=True)
class WaitForChecks:
    """For the checks, or until so many seconds have gone by (None: for an event only)."""

    seconds: float | None = None


Action = Sync | Admit | GiveBack | WaitForChecks


def plan_checks(
    checks: Sequence[Json],
    needed: Sequence[str],
    *,
    awaits_topology: bool,
    now: datetime,
    timeout_s: float,
    retries: Mapping[str, RetryStrategy] | None = None,
    looked_since: datetime | None = None,
) -> Action:
    """Returns the next action for a workload that has quota, is not admitted and not evicted. `Sync` has the checks that it should have, or
    those that fail since no place was found. `GiveBack` follows a Retry or Rejected check, or no place in time; `WaitForChecks` checks that
    are not Ready. `needed` are the names of checks that it must pass, `timeout_s` the seconds for finding a place. `retries` has, for those
    that bring nodes, how often they may try again. Before `looked_since` no place was searched."""
    written = from_time(now)
    if {check["name"] for check in checks} != set(needed):
        return Sync(sync_checks(checks, needed, written))
    refused = plan_refused(checks)
    if refused is not None:
        return refused
    if any(check.get("state") != CHECK_READY for check in checks):
        return WaitForChecks()
    if not awaits_topology:
        return Admit()
    ready = max(find_ready_time(checks, now), looked_since or _time(None))
    left = (ready + timedelta(seconds=timeout_s + RESOLUTION_S) - now).total_seconds()
    if left > 0:
        return WaitForChecks(left)
    why = f"No place was found on the nodes within {timeout_s:g} s after all admission checks were Ready"
    # Other nodes are what may help: the same ones would be as scattered as they are.
    brought = {check["name"]: retry for check in checks if (retry := (retries or {}).get(check["name"])) and check.get("podSetUpdates")}
    if not brought:
        return GiveBack(why)
    return Sync(
        tuple(
            fail_check(check, brought[check["name"]], "placement", why, written) if check["name"] in brought else check for check in checks
        )
    )


def plan_refused(checks: Sequence[Json]) -> GiveBack | None:
    """Returns what follows for a workload, admitted or not, with a check that is Rejected: it is deactivated. Else, with one that is Retry,
    it is queued again after the longest `requeueAfterSeconds` of these, 0 if none has any. None if no check is either."""
    rejected = [check for check in checks if check.get("state") == CHECK_REJECTED]
    if rejected:
        return GiveBack(f"Admission check(s) rejected the workload: {_describe_checks(rejected)}", deactivates=True)
    retried = [check for check in checks if check.get("state") == CHECK_RETRY]
    if retried:
        after = max(int(check.get("requeueAfterSeconds") or 0) for check in retried)
        return GiveBack(f"At least one admission check is false: {_describe_checks(retried)}", after)
    return None


def count_attempts(check: Json) -> int:
    """Returns the number, from 1, of the attempt at a check that a workload is in."""
    return int(check.get("retryCount") or 0) + 1


def build_changed_check(check: Json, state: str, message: str, now: str) -> dict[str, Any]:
    """Returns a new check (JSON) in another state, or with another message (cut to 32768 characters). Of the old one only name and
    `retryCount` are kept, and the time of transition where the state stays."""
    kept = {name: check[name] for name in ("name", "retryCount") if name in check}
    since = check["lastTransitionTime"] if check.get("state") == state and check.get("lastTransitionTime") else now
    return {**kept, "state": state, "message": message[:MAX_MESSAGE], "lastTransitionTime": since}


def fail_check(check: Json, retry: RetryStrategy, what: str, why: str, now: str) -> dict[str, Any]:
    """Returns a check (JSON) after a failed attempt, which is number `count_attempts`. It is Retry with the seconds of delay while that is
    at most `retry.limit`, and Rejected after that. `what` and `why` are parts of its message."""
    attempt = count_attempts(check)
    if attempt <= retry.limit:
        again = build_changed_check(check, CHECK_RETRY, f"Retrying after {what}: {why}", now)
        return again | {"retryCount": attempt, "requeueAfterSeconds": retry.compute_delay_s(attempt)}
    text = f"{why} (given up after {attempt} attempt{'' if attempt == 1 else 's'})"
    return build_changed_check(check, CHECK_REJECTED, text, now)


def sync_checks(checks: Iterable[Json], needed: Sequence[str], now: str) -> tuple[dict[str, Any], ...]:
    """Returns copies of the checks that a workload must pass, in the order of `needed`: those it has as they are, others Pending since
    `now`."""
    known = {check["name"]: dict(check) for check in checks}
    fresh = {"state": CHECK_PENDING, "lastTransitionTime": now, "message": ""}
    return tuple(known.get(name, {"name": name} | fresh) for name in needed)


def describe_awaited_checks(checks: Iterable[Json]) -> str:
    """Returns for a message which checks are not Ready, after a semicolon; empty where all are."""
    names = [check["name"] for check in checks if check.get("state") != CHECK_READY]
    return f"; it is admitted once these AdmissionChecks are Ready: {', '.join(names)}" if names else ""


def reset_checks(checks: Iterable[Json], now: str) -> list[dict[str, Any]]:
    """Returns the same checks as Pending for the next attempt, without their results. Those that are Pending already stay as they are, and
    `retryCount` stays but for a check that was Rejected."""
    reset = []
    for check in checks:
        message = check.get("message") or ""
        # A workload that is reactivated after all attempts were spent has all of them again.
        counted = {name: check[name] for name in ("retryCount",) if name in check and check.get("state") != CHECK_REJECTED}
        before = f" Previously: {message}" if message and not message.startswith("Reset to Pending") else ""
        text = f"Reset to Pending after eviction.{before}"[:MAX_MESSAGE]
        if check.get("state") == CHECK_PENDING:
            reset.append(dict(check))
        else:
            fresh = {"name": check["name"], "state": CHECK_PENDING, "lastTransitionTime": now, "message": text}
            reset.append(fresh | counted)
    return reset


def build_admitted_condition(checks: Iterable[Json], *, awaits_topology: bool) -> Condition:
    """Returns the condition Admitted of a workload that has quota: True where all checks are Ready, or there are none, and no place is to
    be found any more. Else it is False, for the checks first."""
    left = [str(check["name"]) for check in checks if check.get("state") != CHECK_READY]
    if left:
        named = f"{', '.join(left[:_NAMED])}{f' and {len(left) - _NAMED} more' if len(left) > _NAMED else ''}"
        message = f"The workload has quota and waits for admission checks: {named}; its status.admissionChecks has their messages"
        return Condition(ADMITTED, False, REASON_UNSATISFIED_CHECKS, message)
    if awaits_topology:
        return Condition(ADMITTED, False, REASON_PENDING_TOPOLOGY, _PLACE_WAITS)
    return Condition(ADMITTED, True, ADMITTED, "The workload is admitted")


def find_ready_time(checks: Sequence[Json], now: datetime) -> datetime:
    """Returns when the last of the checks, which the caller knows to be Ready, became so; `now` if there are none. A check without a time
    counts as of 1970."""
    return max((_time(check.get("lastTransitionTime")) for check in checks), default=now)


def _describe_checks(checks: Sequence[Json]) -> str:
    return "; ".join(f"{check['name']}: {check.get('message') or 'no message'}" for check in checks)


def _time(text: str | None) -> datetime:
    return to_time(text) if text else datetime(1970, 1, 1, tzinfo=UTC)
