"""What may be done with a workload by its own statuses: the steps that readiness, time and activity ask for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from core.plan.steps.conditions import Condition

Json = Mapping[str, Any]
# Times of the API have whole seconds, rounded down: what began then may have begun almost a second later.
RESOLUTION_S = 1.0


@dataclass(frozen=True, slots=True)
class Amend:
    """Conditions to be set and dropped, and the `requeue_state` from then on. `annotations` of the workload are written
    before."""

    set: tuple[Condition, ...]
    requeue_state: Json | None
    drop: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evict:
    """The workload is to be stopped, with other conditions and the state of its requeuing in the same write. `annotations` are written
    before."""

    reason: str
    message: str
    also: tuple[Condition, ...]
    requeue_state: Json = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deactivate:
    """`spec.active` is to be false."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Time itself will change something after so many seconds."""

    seconds: float


Action = Amend | Evict | Deactivate | Wait


def to_time(text: str) -> datetime:
    """Returns a time of the API (RFC 3339) as a datetime with its time zone; a text without one gives a datetime without one. Raises
    ValueError for a text that is no time."""
    return datetime.fromisoformat(text)


def from_time(time: datetime) -> str:
    """Returns a time as the API writes it, in UTC with whole seconds, rounded down. A time without a time zone is taken for local time."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def format_rounded_up(time: datetime) -> str:
    """Returns a time as the API writes it, in UTC with whole seconds, rounded up: never before the time that is meant."""
    whole = time.astimezone(UTC).replace(microsecond=0)
    return from_time(whole if whole == time else whole + timedelta(seconds=1))
