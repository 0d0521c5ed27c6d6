"""An administrator's stop button: what is paused, since when, by which user and why.

It is stored in one ConfigMap, with a key for each thing that can be paused, so that pausing one does not affect the
other. A missing key pauses nothing. A key that exists pauses, whatever its value: its author wanted a stop, even if the
value cannot be read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ADMISSIONS, EVICTIONS = PAUSABLE = ("admissions", "evictions")
_MAX_REASON, _MAX_NAME = 200, 100  # characters that are shown: they are repeated on every pending workload


@dataclass(frozen=True, slots=True)
class Stop:
    """One thing that is paused. `since` is a time as the API writes it; `problem` is the reason why the other fields
    are unknown, where they are."""

    what: str
    since: str = ""
    by: str = ""
    reason: str = ""
    problem: str = ""

    @classmethod
    def read(cls, what: str, text: object) -> "Stop":
        """Returns the pause that the value of the key `what` describes. Texts are put on one line and cut (the reason at 200 characters,
        others at 100), missing ones are empty. Where it is no JSON object with texts only, `problem` says why, and only `what` is set
        beside it. It pauses all the same."""
        try:
            said = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError) as error:
            return cls(what, problem=_cut_text(f"it is not JSON ({error})", _MAX_REASON))
        if not isinstance(said, dict):
            return cls(what, problem="it is not a JSON object with since, by and reason")
        wrong = [name for name in ("since", "by", "reason") if not isinstance(said.get(name, ""), str)]
        if wrong:
            return cls(what, problem=f"{wrong[0]} is no text")
        since, by, reason = (said.get(name, "") for name in ("since", "by", "reason"))
        return cls(what, _cut_text(since, _MAX_NAME), _cut_text(by, _MAX_NAME), _cut_text(reason, _MAX_REASON))

    def to_text(self) -> str:
        """Returns the value of its key: a JSON object with `since`, `by` and `reason`; `problem` is not in it."""
        return json.dumps({"since": self.since, "by": self.by, "reason": self.reason}, ensure_ascii=False)

    @property
    def description(self) -> str:
        """The user, the time and the reason of the pause as text, as far as they are known; where the value of its key cannot be read,
        why that is so."""
        if self.problem:
            return f"as its key {self.what} says, which cannot be read: {self.problem}"
        by = f"by {self.by}" if self.by else "by an unnamed user"
        since = f" since {self.since}" if self.since else ""
        return f"{by}{since}{f': {self.reason}' if self.reason else ''}"

    @property
    def sentence(self) -> str:
        """The message for workloads that wait for the end of the pause: what is paused, `description`, and the command that ends it."""
        return f"{self.what} are paused {self.description}; `topogate resume {self.what}` ends that"


@dataclass(frozen=True, slots=True)
class Pause:
    """What is paused; by default nothing."""

    admissions: Stop | None = None
    evictions: Stop | None = None

    @classmethod
    def read(cls, config_map: Mapping[str, Any]) -> "Pause":
        """Returns what the ConfigMap pauses, one `Stop` for each of its keys that is one of `PAUSABLE`, in `data` before `binaryData`.
        Never fails: a value that cannot be read pauses."""
        said = {**(config_map.get("binaryData") or {}), **(config_map.get("data") or {})}
        return cls(*(Stop.read(what, said[what]) if what in said else None for what in PAUSABLE))

    def find_stop(self, what: str) -> Stop | None:
        """Returns the pause of `what`, one of `PAUSABLE`; None if it is not paused. Raises KeyError for any other text."""
        return {ADMISSIONS: self.admissions, EVICTIONS: self.evictions}[what]


NOTHING_PAUSED = Pause()


def _cut_text(text: str, limit: int) -> str:
    """On one line, and no longer than that; the cut is visible."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
