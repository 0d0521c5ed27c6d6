"""What a workload says for itself of how long, and which of its pods, waitForPodsReady waits for (KEP-4803, KEP-15423 of Kueue)."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.model.gates import MAX_NOT_READY, WORKLOAD_PODS_READY, ChosenGates
from core.model.pods_ready_rules import PodsReadyRules
from core.names import MAX_NOT_READY_COUNT, WAIT_FOR_PODS_READY

MOST_READY_S = 7200.0
"""The longest time that a workload may ask for, in seconds, unless the configuration has another (`maxTimeoutOnWorkload`)."""
_TIMEOUT, _RECOVERY = "timeoutSeconds", "recoveryTimeoutSeconds"
_EXAMPLE = f'{{"{_TIMEOUT}": 600, "{_RECOVERY}": 60}}'
_NUMBER = re.compile(r"[0-9]{1,9}")


class BadTimes(ValueError):
    """A value of WAIT_FOR_PODS_READY that cannot be; the message says what is accepted."""


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """The times that a workload asks for, in seconds, in place of `PodsReadyRules.timeout_s` and `recovery_timeout_s`."""

    timeout_s: float
    recovery_timeout_s: float


def parse_times(text: object, most_s: float) -> OwnTimes:
    """Returns the times in a value of WAIT_FOR_PODS_READY, JSON such as `{"timeoutSeconds": 600, "recoveryTimeoutSeconds": 60}`. Both are
    whole numbers from 1 to `most_s`; without the second it is the first. Raises BadTimes for any other value."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        found = None
    if not isinstance(found, dict):
        raise BadTimes(f"a JSON object such as {_EXAMPLE} is expected")
    if unknown := sorted(found.keys() - {_TIMEOUT, _RECOVERY}):
        raise BadTimes(f"{unknown[0][:40]!r} is not known; an object such as {_EXAMPLE} is expected")
    if _TIMEOUT not in found:
        raise BadTimes(f"{_TIMEOUT} is missing; an object such as {_EXAMPLE} is expected")
    for name, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most_s:
            raise BadTimes(f"{name}: a whole number of seconds from 1 to {most_s:g} is expected")
    timeout = float(found[_TIMEOUT])
    return OwnTimes(timeout, float(found[_RECOVERY]) if _RECOVERY in found else timeout)


@dataclass(frozen=True, slots=True)
class OwnPodsReady:
    """What is read of workloads and their pods. `reads_times`: WAIT_FOR_PODS_READY, up to `most_s` seconds; `tolerates`:
    MAX_NOT_READY_COUNT."""

    reads_times: bool = False
    tolerates: bool = False
    most_s: float = MOST_READY_S

    @classmethod
    def from_gates(cls, gates: ChosenGates, most_s: float | None) -> "OwnPodsReady":
        """Returns what the gates WORKLOAD_PODS_READY and MAX_NOT_READY ask for. `most_s`: None where no pods are waited for at all."""
        return cls(gates.is_on(WORKLOAD_PODS_READY) and most_s is not None, gates.is_on(MAX_NOT_READY), most_s or MOST_READY_S)

    def choose_rules(self, usual: PodsReadyRules | None, workload: Mapping[str, Any]) -> PodsReadyRules | None:
        """Returns the rules for a Workload (JSON): `usual` with its own times where it has any. Without `usual` they are the defaults with
        its own times, which block no other workload; None where it has none. A value that cannot be read counts as none: the webhook
        reports it."""
        text = (workload["metadata"].get("annotations") or {}).get(WAIT_FOR_PODS_READY)
        if not self.reads_times or text is None:
            return usual
        try:
            times = parse_times(text, self.most_s)
        except BadTimes:
            return usual
        return replace(usual or PodsReadyRules(), timeout_s=times.timeout_s, recovery_timeout_s=times.recovery_timeout_s)

    def count_tolerated(self, pods: Iterable[Mapping[str, Any]], total: int) -> int:
        """Returns how many of the `total` pods of a group may be not ready: the lowest MAX_NOT_READY_COUNT of its pods (JSON). A pod
        without a whole number from 0 to `total` - 1 counts as 0; so do no pods, and all of them where it is not read."""
        if not self.tolerates:
            return 0
        return min((_read_count((pod["metadata"].get("annotations") or {}).get(MAX_NOT_READY_COUNT), total) for pod in pods), default=0)


NOTHING_OWN = OwnPodsReady()


def _read_count(text: object, total: int) -> int:
    found = int(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else 0
    return found if found < total else 0
