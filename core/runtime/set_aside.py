"""Objects with content that cannot be handled: set aside, counted and reported, and tried again when they change."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from core.runtime.resource import Obj, Resource

logger = logging.getLogger(__name__)
_LOGGED = 1024


@dataclass(frozen=True, slots=True)
class Aside:
    """One object, as it was when it could not be handled, and why: the error as text."""

    resource: Resource
    obj: Obj
    why: str


class SetAside:
    """The objects that are set aside now, by resource and key.

    The first error of an object is logged once; `on_add` functions are called for each object that is added.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[Resource, str], Aside] = {}
        self._logged: OrderedDict[tuple[Resource, str], str] = OrderedDict()
        self.on_add: list[Callable[[Aside], None]] = []

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def objects(self) -> Collection[Aside]:
        """All of them, the one that was added last at the end."""
        return self._objects.values()

    def count_by_resource(self) -> Mapping[str, int]:
        """How many there are by resource (`plural.group`)."""
        return Counter(str(resource) for resource, _ in self._objects)

    def add(self, resource: Resource, key: str, obj: Obj, error: Exception) -> None:
        """Sets an object aside for an error; of several errors the first stands."""
        at, why = (resource, key), f"{type(error).__name__}: {error}"
        if at in self._objects:
            return
        aside = self._objects[at] = Aside(resource, obj, why)
        if self._logged.get(at) == why:
            return
        self._logged[at] = why
        while len(self._logged) > _LOGGED:
            self._logged.popitem(last=False)
        # What a value is not accepted for is said by the error; of anything else it matters where it was raised.
        trace = None if isinstance(error, ValueError) else error
        logger.warning("object set aside", extra={"resource": str(resource), "object": key, "error": why}, exc_info=trace)
        for report in self.on_add:
            report(aside)

    def remove(self, resource: Resource, key: str) -> None:
        """An object has changed or is gone: it is tried again."""
        if self._objects:
            self._objects.pop((resource, key), None)
