"""Objects with content that cannot be handled: set aside, counted and reported, and tried again when they change."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from core.resource import Obj, Resource
from core.runtime.clock import Clock, SystemClock

logger = logging.getLogger(__name__)
_LOGGED = 1024
_MOST_CHARACTERS = 256
_REPORT_S = 60.0  # an object that changes draws no more than one report in this time, however its error reads
_REPEAT_S = 600.0  # nor more than one of the same error in this time


@dataclass(frozen=True, slots=True)
class Aside:
    """One object, as it was when it could not be handled, and why: the error as text."""

    resource: Resource
    obj: Obj
    why: str


class SetAside:
    """The objects that are set aside now, by resource and key.

    An error of an object is logged at most once in `_REPORT_S`, the same one at most once in `_REPEAT_S`; `on_add` functions are called
    as often.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[tuple[Resource, str], Aside] = {}
        self._logged: OrderedDict[tuple[Resource, str], tuple[str, float]] = OrderedDict()
        self.on_add: list[Callable[[Aside], None]] = []

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def objects(self) -> Collection[Aside]:
        """Returns a view of all objects that are set aside now, the one that was added last at the end."""
        return self._objects.values()

    def count_by_resource(self) -> Mapping[str, int]:
        """Returns how many objects are set aside by resource (`plural.group`), as a new map; only resources that have some are in it."""
        return Counter(str(resource) for resource, _ in self._objects)

    def add(self, resource: Resource, key: str, obj: Obj, error: Exception) -> None:
        """Records that an object with a key cannot be handled, because of an error; does nothing where it is recorded already. Logs it and
        calls `on_add`, unless the key was last logged less than `_REPORT_S` seconds ago, or with the same error less than `_REPEAT_S`
        seconds ago."""
        at, why = (resource, key), _cut(f"{type(error).__name__}: {error}")
        if at in self._objects:
            return
        aside = self._objects[at] = Aside(resource, obj, why)
        now = self._clock.monotonic()
        logged, since = self._logged.get(at, ("", -_REPEAT_S))
        if now - since < (_REPEAT_S if logged == why else _REPORT_S):
            return
        self._logged[at] = (why, now)
        self._logged.move_to_end(at)
        while len(self._logged) > _LOGGED:
            self._logged.popitem(last=False)
        # The error has the value that is not accepted; for any other error the place where it was raised matters.
        trace = None if isinstance(error, ValueError) else error
        logger.warning("object set aside", extra={"resource": str(resource), "object": key, "error": why}, exc_info=trace)
        for report in self.on_add:
            report(aside)

    def remove(self, resource: Resource, key: str) -> None:
        """Removes the entry of an object, if there is one, so that it counts as set aside no longer and a new error is recorded. It tries
        nothing again: the caller does. When its last error was logged stays known."""
        if self._objects:
            self._objects.pop((resource, key), None)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
