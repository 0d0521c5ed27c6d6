"""Copies of objects by key, with indexes, kept right by a watcher's events, and by what the API server answers to writes.

Objects are shared with every reader and never changed in place; a newer state is another object.

An answer is as true as an event and comes earlier. `put_reply` folds it in, so that every reader sees what was written at once; events and
lists that are older are passed over until the watch has caught up. That takes resource versions that can be compared: those of one
resource can since Kubernetes 1.35 (KEP-5504), and could before. An answer with another version is left to the watch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.resource import Obj
from core.runtime.watch.watch_step import Applied, Deleted, Event, Init, InitApply, InitDone

IndexFn = Callable[[Obj], Iterable[str]]
Objs = list[Obj]


def build_object_key(obj: Obj) -> str:
    """Returns the key of an object: `namespace/name`, or `name` for what lives in no namespace."""
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
        """Returns the newest known state of the object, of a deleted one the last."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


Changes = list[Change]


class Store:
    """The fold of a watcher's events.

    A list (Init ... InitDone) is gathered aside and folded in once it is whole, whole or in pieces (`apply_list`). What is missing from it
    was deleted while no watch was open, and those deletions are made up from the last known state.
    A reply that is newer than what the watch has brought stays until an event or a list has its version or a later one, or until a second
    list is whole: lists are read from what is stored, so that only a server which has lost writes lacks it then.
    Changes that change nothing are not reported. `on_error` is called with an object for which the function of an index raises, and with
    what it raised; such an object is in no index. Without it the error is raised.
    """

    def __init__(self, on_error: Callable[[Obj, Exception], None] | None = None) -> None:
        self._on_error = on_error
        self._objects: dict[str, Obj] = {}
        self._relisted: dict[str, Obj] | None = None
        self._unfolded: dict[str, Obj] = {}  # of a list that is being applied: the objects that are not applied yet
        self._indexes: dict[str, _Index] = {}
        self._version = 0  # up to which the watch has brought everything
        self._ahead: dict[str, int] = {}  # by key of objects from replies: their versions, which the watch has not reached
        self._outlived: dict[str, int] = {}  # those of them that were there when the last list became whole
        self.synced = False
        """Whether a first list has been swapped in. It stays so during later lists: the old state is served until the new one is whole."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    @property
    def gathered(self) -> int:
        """Returns how many objects have come of a list that is under way; 0 where none is."""
        return len(self._relisted) if self._relisted is not None else 0

    def get(self, key: str) -> Obj | None:
        """Returns the object with a key; None where there is none."""
        return self._objects.get(key)

    def list(self) -> Objs:
        """Returns all objects, in the order of their keys: it never depends on the order of events."""
        return [self._objects[key] for key in sorted(self._objects)]

    @property
    def objects(self) -> Mapping[str, Obj]:
        """Returns a view of all objects by key, which shows their present state and cannot be written."""
        return MappingProxyType(self._objects)

    def list_keys(self) -> Iterable[str]:
        """Returns a view of the keys of all objects, in no order; it must not be iterated over while objects come or go."""
        return self._objects.keys()

    def add_index(self, name: str, fn: IndexFn) -> None:
        """Adds an index by the values that `fn` returns for an object; it must depend on the object alone. May be added at any time: all
        objects go into it at once. Raises ValueError where an index has that name. What `fn` raises goes to `on_error`, if there is one."""
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

    def list_by_index(self, name: str, value: str) -> Objs:
        """Returns the objects with the value `value` in the index, in the order of their keys; empty where none has it. Raises KeyError
        where there is no such index.
        """
        return [self._objects[key] for key in sorted(self._indexes[name].list_keys_of(value))]

    def count_by_index(self, name: str, value: str) -> int:
        """Returns how many objects have the value `value` in the index. Raises KeyError where there is no such index."""
        return len(self._indexes[name].list_keys_of(value))

    def apply(self, event: Event) -> Changes:
        """Applies one event and returns the changes, in their order; the objects of a list change with its end. There are none where an
        Applied is older than a reply, a Deleted has another uid than the object here, or nothing changes. The same name with another uid is
        another object: deleted and created, two changes.
        """
        match event:
            case Init():
                self._relisted = {}
                return []
            case InitApply(obj):
                if self._relisted is None:
                    self._relisted = {}
                self._relisted[build_object_key(obj)] = obj
                return []
            case InitDone(version):
                return [change for piece in self.apply_list(version=version) for change in piece]
            case Applied(obj):
                key, number = build_object_key(obj), read_version(obj)
                self._version = max(self._version, number)
                if number < self._ahead.get(key, 0):
                    return []
                self._ahead.pop(key, None)
                return self._set(key, obj, initial=False)
            case Deleted(obj):
                key = build_object_key(obj)
                self._version = max(self._version, read_version(obj))
                known = self._objects.get(key)
                if known is None or _get_uid(known) != _get_uid(obj):
                    return []
                return self._drop(key)

    def replace_all(self, objects: Iterable[Obj]) -> Changes:
        """Applies a list whole, without a version, as `apply` does object by object. Returns the changes."""
        self._relisted = {build_object_key(obj): obj for obj in objects}
        return self.apply(InitDone())

    def is_newer(self, reply: Obj) -> bool:
        """Whether an object that the API server has answered with is newer than the one here and than all that the watch has brought."""
        number, known = read_version(reply), self._objects.get(build_object_key(reply))
        return number > self._version and (known is None or number > read_version(known))

    def put_reply(self, reply: Obj) -> Changes:
        """Folds in an object that the API server has answered a write with, or a read of it alone, if that is newer than what is here. Of a
        list that is being taken the state in the list is folded in instead, where that is newer. Returns the changes.
        """
        key = build_object_key(reply)
        if not self.is_newer(reply):
            return self._fold_listed(key, initial=not self.synced)
        changes = self._set(key, reply, initial=False)
        self._ahead[key] = read_version(reply)
        return changes

    def _fold_listed(self, key: str, *, initial: bool) -> Changes:
        """Applies one object of the list that is being applied, if it is not applied yet."""
        listed = self._unfolded.pop(key, None)
        return self._set(key, listed, initial=initial) if listed is not None and key not in self._ahead else []

    def apply_list(self, at_once: int | None = None, version: str = "") -> Iterator[Changes]:
        """Yields the changes of `apply(InitDone(version))`, of `at_once` objects at a time (None: all), each as if it had come by itself;
        sets `synced` at the end. Without a `version` no reply counts as newer than the list. Nothing else may be folded in meanwhile but
        replies, and a new list, which makes this one void."""
        fresh = self._relisted if self._relisted is not None else {}
        self._relisted = None
        initial = not self.synced
        self._version = int(version) if version.isdecimal() else max(map(read_version, fresh.values()), default=0)
        ahead = self._ahead.items() if version.isdecimal() else ()
        self._ahead = {key: number for key, number in ahead if number > self._version and self._outlived.get(key) != number}
        self._outlived = dict(self._ahead)
        gone, self._unfolded = self._objects.keys() - fresh.keys(), fresh
        keys = [*sorted(gone), *sorted(fresh)]
        size = at_once or len(keys) or 1
        for start in range(0, len(keys), size):
            changes: Changes = []
            for key in keys[start : start + size]:
                if key not in gone:
                    changes += self._fold_listed(key, initial=initial)
                elif key not in self._ahead:
                    changes += self._drop(key)
            yield changes
        self.synced = True

    def _set(self, key: str, obj: Obj, *, initial: bool) -> Changes:
        known = self._objects.get(key)
        changes: Changes = []
        if known is not None:
            if _get_uid(known) != _get_uid(obj):
                changes = self._drop(key)
                known = None
            elif _get_version(known) == _get_version(obj):
                return []
        self._objects[key] = obj
        for index in self._indexes.values():
            self._put(index, key, obj)
        changes.append(Change(known, obj, initial))
        return changes

    def _drop(self, key: str) -> Changes:
        obj = self._objects.pop(key)
        self._ahead.pop(key, None)
        for index in self._indexes.values():
            index.drop(key)
        return [Change(obj, None)]


class _Index:
    """value -> keys, and key -> values as they were, so that taking a key out never asks about an object's older state again."""

    def __init__(self, fn: IndexFn) -> None:
        self._fn = fn
        self._keys: dict[str, set[str]] = {}
        self._values: dict[str, frozenset[str]] = {}

    def list_keys_of(self, value: str) -> Collection[str]:
        return self._keys.get(value, ())

    def put(self, key: str, obj: Obj) -> None:
        values, known = frozenset(self._fn(obj)), self._values.get(key)
        if known == values:
            return
        if known is not None:
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


def _get_uid(obj: Obj) -> str | None:
    uid: str | None = obj["metadata"].get("uid")
    return uid


def _get_version(obj: Obj) -> str:
    return str(obj["metadata"]["resourceVersion"])


def read_version(obj: Obj) -> int:
    """Returns the resource version of an object as a number; 0 where it is none."""
    version = str(obj["metadata"].get("resourceVersion") or "")
    return int(version) if version.isdecimal() else 0
