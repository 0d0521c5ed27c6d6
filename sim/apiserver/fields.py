"""Which manager set which field: server-side apply, and what every other write does to it (KEP-555, structured-merge-diff).

A set of fields is a set of paths. An element of a path is what `managedFields` calls it: `f:name` of a field, `k:{"type":"X"}` of the
element of a list with keys, `v:"x"` of the element of a set. A path that ends at the element of a list with keys says that the element is
there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sim.apiserver.kinds import METADATA, POD_LISTS, SETS, Kind

Json = dict[str, Any]
Path = tuple[str, ...]
Leaves = dict[Path, Any]
Paths = frozenset[Path]
NO_PATHS: Paths = frozenset()
_THERE = "it is there"
# Of built-in types what is there even if it is empty: parts that are structures, not pointers to them.
_PARTS = (
    *(("metadata",), ("spec",), ("status",), ("spec", "containers"), ("spec", "template"), ("spec", "selector")),
    *(("spec", "template", part) for part in ("metadata", "spec")),
)
_ALWAYS = [(tuple(f"f:{name}" for name in names), names) for names in _PARTS]
_OF_OTHERS = {"built-in": True, "x-kubernetes-list-type": "atomic"}  # of built-in types: what no table names
_OF_LISTS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"built-in": True, "x-kubernetes-list-type": "set"} for name in SETS},
    **{name: {"built-in": True, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} for name, key in POD_LISTS.items()},
}
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_NOBODYS = {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
_NOBODYS_OF_METADATA = {
    f"f:{name}"
    for name in (
        "name", "namespace", "creationTimestamp", "uid", "generation", "resourceVersion", "managedFields", "selfLink",
        "deletionTimestamp", "deletionGracePeriodSeconds", "generateName",
    )
}  # fmt: skip


class Manager(NamedTuple):
    """Who writes: managers of one name that apply and that update, or that write to another subresource, are different ones."""

    name: str
    operation: str
    subresource: str = ""


Managers = Mapping[Manager, Paths]


@dataclass(frozen=True, slots=True)
class Taken(Exception):
    """An apply would change fields of other managers."""

    fields: Mapping[Manager, Paths]


def _below(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties = schema.get("properties") or {}
    if name in properties:
        found: Mapping[str, Any] = properties[name]
        return found
    if schema.get("built-in"):
        return _OF_LISTS.get(name, _OF_OTHERS)
    others = schema.get("additionalProperties")
    return others if isinstance(others, dict) else {}


def _get_item_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if schema.get("built-in"):
        return {"built-in": True}
    return schema.get("items") or {}


def _list_type(schema: Mapping[str, Any]) -> str:
    return str(schema.get("x-kubernetes-list-type") or "atomic")


def _encode_element(schema: Mapping[str, Any], item: Any) -> str:
    if _list_type(schema) == "set":
        return "v:" + _ENCODER.encode(item)
    keys, found = schema["x-kubernetes-list-map-keys"], _get_item_schema(schema).get("properties") or {}
    if len(keys) == 1 and type(value := item.get(keys[0])) is str:
        return _write_key(keys[0], value)
    values = {key: item.get(key, (found.get(key) or {}).get("default")) for key in keys}
    return "k:" + _ENCODER.encode({key: value for key, value in sorted(values.items()) if value is not None})


@lru_cache(4096)
def _write_key(key: str, value: str) -> str:
    return "k:" + _ENCODER.encode({key: value})


def flatten(schema: Mapping[str, Any], value: Any, *, is_whole: bool = False) -> Leaves:
    """Paths of all leaves, each with its value; if `is_whole` those of objects and lists, too."""
    leaves = Leaves()
    _flatten(schema, value, (), leaves, is_whole)
    return leaves


def _flatten(schema: Mapping[str, Any], value: Any, path: Path, leaves: Leaves, is_whole: bool = True) -> None:
    """Adds the leaves of a value to others."""
    if isinstance(value, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        if (is_whole and path) or not value:
            leaves[path] = _THERE
        for name, inner in value.items():
            here = (*path, f"f:{name}")
            if isinstance(inner, dict | list):
                _flatten(_below(schema, name), inner, here, leaves, is_whole)
            else:
                leaves[here] = inner
    elif isinstance(value, list) and _list_type(schema) in ("set", "map"):
        if is_whole:
            leaves[path] = _THERE
        items, is_map = _get_item_schema(schema), _list_type(schema) == "map"
        for item in value:
            here = (*path, _encode_element(schema, item))
            leaves[here] = _THERE if is_map else item
            if is_map and item:
                _flatten(items, item, here, leaves, is_whole)
    else:
        leaves[path] = value


def list_owned(schema: Mapping[str, Any], value: Any) -> Paths:
    """The fields that somebody owns who writes this object."""
    return frozenset(path for path in flatten(schema, value) if not _is_nobodys(path))


def _is_nobodys(path: Path) -> bool:
    return path in _NOBODYS or (len(path) > 1 and path[0] == "f:metadata" and path[1] in _NOBODYS_OF_METADATA)


class Change(NamedTuple):
    """What one write changed."""

    set: Paths  # added, or with another value
    removed: Paths


def compare(kind: Kind, live: Json | None, new: Json) -> Change:
    """The difference of two objects."""
    before, now = Leaves(), Leaves()
    _flatten_differing(kind.schema_of_fields, live or {}, new, (), before, now)
    if not kind.is_custom:
        before |= {path: _THERE for path, names in _ALWAYS if path not in before and not _is_there(live or {}, names)}
    emptied = {path for path, value in now.items() if value is None and before.get(path) == _THERE}  # what had parts, and is kept
    differing = (path for path, value in now.items() if (path not in before or before[path] != value) and path not in emptied)
    return Change(frozenset(path for path in differing if not _is_nobodys(path)), frozenset(path for path in before if path not in now))


def _flatten_differing(schema: Mapping[str, Any], live: Any, new: Any, path: Path, before: Leaves, now: Leaves) -> None:
    """Adds to `before` and `now` all leaves of two values but for parts that are equal: most of an object is."""
    is_parted = isinstance(live, dict) and isinstance(new, dict) and schema.get("x-kubernetes-map-type") != "atomic"
    if not is_parted or not new or (path and not live):
        _flatten(schema, live, path, before)
        _flatten(schema, new, path, now)
        return
    for name in {**live, **new}:
        below, here = _below(schema, name), (*path, f"f:{name}")
        if name not in new:
            _flatten(below, live[name], here, before)
        elif name not in live:
            _flatten(below, new[name], here, now)
        elif live[name] != new[name]:
            _flatten_differing(below, live[name], new[name], here, before, now)


def _is_there(obj: Json, names: Sequence[str]) -> bool:
    """Whether an object has a field."""
    found: Any = obj
    for name in names:
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
    return True


def note_update(managers: Managers, manager: Manager, change: Change) -> Managers:
    """Who owns what after an update: what was changed is the manager's own, what was removed is nobody's."""
    others = _give_up(managers, manager, change)
    own = (managers.get(manager, NO_PATHS) | change.set) - change.removed
    return {each: paths for each, paths in {**others, manager: own}.items() if paths}


def _give_up(managers: Managers, writer: Manager, change: Change) -> dict[Manager, Paths]:
    """What all managers but the writer own after a change."""
    lost = change.set | change.removed
    return {each: paths if paths.isdisjoint(lost) else paths - lost for each, paths in managers.items() if each != writer}


def apply(kind: Kind, live: Json | None, wanted: Json, managers: Managers, manager: Manager, *, force: bool) -> tuple[Json, Managers]:
    """The object and the managers after an apply. Raises Taken."""
    schema = kind.schema_of_fields
    own, before = list_owned(schema, wanted), managers.get(manager, NO_PATHS)
    merged = _merge(schema, live, wanted) if live is not None else wanted
    if not before <= own:
        others = NO_PATHS.union(*(paths for other, paths in managers.items() if other != manager))
        if not before <= own | others:
            merged = _prune(schema, merged, before, others.union(flatten(schema, wanted)))
    change = compare(kind, live, merged)
    taken = {other: lost for other, paths in managers.items() if other != manager and (lost := paths & change.set)}
    if taken and not force:
        raise Taken(taken)
    left = _give_up(managers, manager, change)
    return merged, {each: paths for each, paths in {**left, manager: own}.items() if paths}


def _merge(schema: Mapping[str, Any], live: Any, wanted: Any) -> Any:
    if isinstance(live, dict) and isinstance(wanted, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        return {**live, **{name: _merge(_below(schema, name), live.get(name), inner) for name, inner in wanted.items()}}
    if isinstance(live, list) and isinstance(wanted, list) and _list_type(schema) in ("set", "map"):
        return _merge_lists(schema, live, wanted)
    return wanted


def _merge_lists(schema: Mapping[str, Any], live: list[Any], wanted: list[Any]) -> list[Any]:
    """In the order of what is applied; elements of others come before what is applied next."""
    is_set, items = _list_type(schema) == "set", _get_item_schema(schema)
    there = {_encode_element(schema, item): item for item in live}
    asked = {_encode_element(schema, item): item for item in wanted}
    merged = [(name, _merge(items, there.get(name), item) if not is_set else item) for name, item in asked.items()]
    result, waiting = list[Any](), list(there)
    for name, item in merged:
        while waiting and waiting[0] not in asked:
            result.append(there[waiting.pop(0)])
        if name in waiting:
            waiting.remove(name)
        result.append(item)
    return [*result, *(there[name] for name in waiting if name not in asked)]


def _has_parts(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether parts of a value have owners of their own."""
    if isinstance(value, list):
        return _list_type(schema) in ("set", "map")
    return isinstance(value, dict) and schema.get("x-kubernetes-map-type") != "atomic"


def _prune(schema: Mapping[str, Any], merged: Json, before: Paths, owned: Paths) -> Json:
    """The object without the fields that a manager applied before and that nobody owns now (`prune` of structured-merge-diff).

    What holds only such fields goes with them, and with it what no set of fields mentions: an empty list.
    """
    heads = {path[0][2:] for path in before}
    part = {name: value for name, value in merged.items() if name in heads}
    last, there = _with_parents(schema, before), _with_parents(schema, flatten(schema, part))
    kept = _list_left(schema, part, last) | _with_parents(schema, (path for path in owned if path[0][2:] in heads))
    gone = (there - _list_left(schema, part, there - kept)) & last
    return {**{name: value for name, value in merged.items() if name not in heads}, **(_remove(schema, part, gone) or {})}


def _list_left(schema: Mapping[str, Any], value: Json, gone: Iterable[Path]) -> set[Path]:
    """The fields of an object without some of them."""
    left = _remove(schema, value, gone)
    return _with_parents(schema, flatten(schema, left)) if left else set()


def _with_parents(schema: Mapping[str, Any], paths: Iterable[Path]) -> set[Path]:
    """Paths, and the fields above them that the schema names (`EnsureNamedFieldsAreMembers` of structured-merge-diff)."""
    found = set(paths)
    for path in tuple(found):
        here = schema
        for number, element in enumerate(path[:-1], 1):
            if not element.startswith("f:"):
                here = _get_item_schema(here)
                continue
            name = element[2:]
            if here is METADATA or here.get("built-in") or name in (here.get("properties") or {}):
                found.add(path[:number])
            here = _below(here, name)
    return found


def _remove(schema: Mapping[str, Any], value: Any, gone: Iterable[Path]) -> Any:
    """A value without some fields; None where nothing is left, and of what has no parts (`RemoveItems` of structured-merge-diff)."""
    if not isinstance(value, dict | list):
        return value
    if not value or not _has_parts(schema, value):
        return None
    whole, below = set[str](), dict[str, list[Path]]()
    for element, *rest in gone:
        if rest:
            below.setdefault(element, []).append(tuple(rest))
        else:
            whole.add(element)
    if isinstance(value, dict):
        left = {name: inner for name, inner in value.items() if f"f:{name}" not in whole}
        parted = [name for name in left if f"f:{name}" in below]
        return {**left, **{name: _remove(_below(schema, name), left[name], below[f"f:{name}"]) for name in parted}} or None
    items, left_items = _get_item_schema(schema), []
    for item in value:
        element = _encode_element(schema, item)
        if element in below and element not in whole:
            left_items.append(_remove(items, item, below[element]) or type(item)())
        elif element not in whole:
            left_items.append(item)
    return left_items or None


def write_managers(managers: Managers, api_version: str, times: Mapping[Manager, str]) -> list[Json]:
    """`metadata.managedFields`."""
    entries = []
    for manager, paths in sorted(managers.items(), key=lambda entry: (entry[0].operation, times.get(entry[0], ""), entry[0].name)):
        entry: Json = {"manager": manager.name, "operation": manager.operation, "apiVersion": api_version, "time": times.get(manager, "")}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": _write_paths(paths)}
        entries.append(entry | ({"subresource": manager.subresource} if manager.subresource else {}))
    return entries


@lru_cache(1024)
def _write_paths(paths: Paths) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        here = tree
        for element in path:
            here = here.setdefault(element, {})
    return _mark(tree, (), paths)


def _mark(tree: Json, path: Path, paths: Paths) -> Json:
    """With a point where what has parts is owned itself."""
    marked = {name: _mark(inner, (*path, name), paths) for name, inner in tree.items()}
    return {".": {}, **marked} if path in paths and (marked or path[-1].startswith("k:")) else marked


def show_path(path: Path) -> str:
    """`.status.conditions[type="A"].reason`."""
    shown = ""
    for element in path:
        kind, _, value = element.partition(":")
        if kind == "f":
            shown += f".{value}"
        else:
            keys = json.loads(value)
            shown += f"[{','.join(f'{key}={json.dumps(inner)}' for key, inner in keys.items())}]" if kind == "k" else f"[={value}]"
    return shown
