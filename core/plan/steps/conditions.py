"""Conditions of `status.conditions`: set without losing what stays, and without touching what is the same."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.placement.refusals import truncate

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to be set."""

    type: str
    status: bool
    reason: str
    message: str


def set_conditions(old: Iterable[Json], new: Iterable[Condition], *, now: str, generation: int) -> list[dict[str, Any]]:
    """Returns copies of all conditions (JSON) with some set: a transition gets the time `now`, an unchanged status keeps its own. Messages
    are cut to 4096 characters. `generation` is that of the object; those that are not set stay as they are, in their order, new ones
    follow."""
    merged = {condition["type"]: dict(condition) for condition in old}
    for condition in new:
        status = "True" if condition.status else "False"
        before = merged.get(condition.type, {})
        merged[condition.type] = {
            "type": condition.type,
            "status": status,
            "reason": condition.reason,
            "message": truncate(condition.message, 4096),
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == status else now,
        }
    return list(merged.values())


def has_condition(conditions: Iterable[Json], condition: Condition) -> bool:
    """Returns whether one of `conditions` (JSON) has type, status, reason and message of `condition`. The message is compared as it is
    written, cut to 4096 characters; times are not looked at."""
    status = "True" if condition.status else "False"
    wanted = (condition.type, status, condition.reason, truncate(condition.message, 4096))
    return any((c.get("type"), c.get("status"), c.get("reason"), c.get("message")) == wanted for c in conditions)
