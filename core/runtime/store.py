"""Copies of objects by key, with indexes, kept right by a watcher's events.

Objects are shared with every reader and never changed in place; a newer state is another object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from core.runtime.resource import Obj
from core.runtime.watch_step import Applied, Deleted, Event, Init, InitApply, InitDone

IndexFn = Callable[[Obj], Iterable[str]]
Objs = list[Obj]


def object_key(obj: Obj) -> str:
    """`namespace/name`, or `name` for what lives in no namespace."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one object: created (`old` None), deleted (`new` None) or another state of the same uid. Never both None.

    `initial` marks what was there before we looked (first list, replay to a late handler): it may wait behind what happens now.
    """

    old: Obj | None
    new: Obj | None
    initial: bool = False

    @property
    def obj(self) -> Obj:
        """The newest state known, whatever happened."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


Changes = list[Change]


class Store:
    """The fold of a watcher's events.

    A list (Init ... InitDone) is gathered aside and folded in once it is whole, at once or in pieces (`take_list`). What is missing from it
    was deleted while no watch was open, and those deletions are made up from the last known state.
    Changes that change nothing are not reported. `on_error` is called with an object for which the function of an index raises, and with
    what it raised; such an object is in no index. Without it the error is raised.
    """

    def __init__(self, on_error: Callable[[Obj, Exception], None] | None = None) -> None:
        self._on_error = on_error
        self._objects: dict[str, Obj] = {}
        self._relisted: dict[str, Obj] | None = None
        self._indexes: dict[str, _Index] = {}
        self.synced = False
        """Whether a first list has been swapped in. It stays so during later lists: the old state is served until the new one is whole."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    @property
    def gathered(self) -> int:
        """How many objects of a list that is under way have come."""
        return len(self._relisted) if self._relisted is not None else 0

    def get(self, key: str) -> Obj | None:
        return self._objects.get(key)

    def list(self) -> Objs:
        """All objects, by key: the order never depends on the order of events."""
        return [self._objects[key] for key in sorted(self._objects)]

    def keys(self) -> Iterable[str]:
        return self._objects.keys()

    def add_index(self, name: str, fn: IndexFn) -> None:
        """Find objects by what `fn` says of them; it must depend on the object alone. May be added at any time, once by name."""
        if name in self._indexes:
            raise ValueError(f"the index {name} exists")
        index = _Index(fn)
        for key, obj in self._objects.items():
            self._put(index, key, obj)
        self._indexes[name] = index

    def _put(self, index: _Index, key: str, obj: Obj) -> None:
        try:
            index.put(key, obj)
        except Exception as error:
            index.drop(key)
            if self._on_error is None:
                raise
            self._on_error(obj, error)

    def by_index(self, name: str, value: str) -> Objs:
        """The objects of which the index says `value`, by key."""
        return [self._objects[key] for key in sorted(self._indexes[name].keys_of(value))]

    def count_by_index(self, name: str, value: str) -> int:
        """How many objects that is."""
        return len(self._indexes[name].keys_of(value))

    def apply(self, event: Event) -> Changes:
        """Fold one event in and say what changed. The same name with another uid is another object: deleted and created, two changes."""
        match event:
            case Init():
                self._relisted = {}
                return []
            case InitApply(obj):
                if self._relisted is None:
                    self._relisted = {}
                self._relisted[object_key(obj)] = obj
                return []
            case InitDone():
                return [change for piece in self.take_list() for change in piece]
            case Applied(obj):
                return self._set(object_key(obj), obj, initial=False)
            case Deleted(obj):
                key = object_key(obj)
                known = self._objects.get(key)
                if known is None or _uid(known) != _uid(obj):
                    return []
                return self._drop(key)

    def take_list(self, at_once: int | None = None) -> Iterator[Changes]:
        """The same as `apply(InitDone())`, so many objects at once, each as if it had come by itself. Nothing else may be folded in
        meanwhile but a new list, which makes this one void.
        """
        fresh = self._relisted if self._relisted is not None else {}
        self._relisted = None
        initial = not self.synced
        keys = [*sorted(self._objects.keys() - fresh.keys()), *sorted(fresh)]
        size = at_once or len(keys) or 1
        for start in range(0, len(keys), size):
            changes: Changes = []
            for key in keys[start : start + size]:
                changes += self._set(key, fresh[key], initial=initial) if key in fresh else self._drop(key)
            yield changes
        self.synced = True

    def _set(self, key: str, obj: Obj, *, initial: bool) -> Changes:
        known = self._objects.get(key)
        changes: Changes = []
        if known is not None:
            if _uid(known) != _uid(obj):
                changes = self._drop(key)
                known = None
            elif _version(known) == _version(obj):
                return []
        self._objects[key] = obj
        for index in self._indexes.values():
            self._put(index, key, obj)
        changes.append(Change(known, obj, initial))
        return changes

    def _drop(self, key: str) -> Changes:
        obj = self._objects.pop(key)
        for index in self._indexes.values():
            index.drop(key)
        return [Change(obj, None)]


class _Index:
    """value -> keys, and key -> values as they were, so that taking a key out never asks about an object's older state again."""

    def __init__(self, fn: IndexFn) -> None:
        self._fn = fn
        self._keys: dict[str, set[str]] = {}
        self._values: dict[str, frozenset[str]] = {}

    def keys_of(self, value: str) -> Collection[str]:
        return self._keys.get(value, ())

    def put(self, key: str, obj: Obj) -> None:
        values = frozenset(self._fn(obj))
        if self._values.get(key) == values:
            return
        self.drop(key)
        if values:
            self._values[key] = values
            for value in values:
                self._keys.setdefault(value, set()).add(key)

    def drop(self, key: str) -> None:
        for value in self._values.pop(key, frozenset()):
            keys = self._keys[value]
            keys.discard(key)
            if not keys:
                del self._keys[value]


def _uid(obj: Obj) -> str | None:
    uid: str | None = obj["metadata"].get("uid")
    return uid


def _version(obj: Obj) -> str:
    return str(obj["metadata"]["resourceVersion"])
