"""Patches of the API server: merge patch (RFC 7386), strategic merge patch (of built-in types) and JSON patch (RFC 6902)."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.apiserver.kinds import SETS

Json = dict[str, Any]
_REMOVES = "$deleteFromPrimitiveList/"


def merge(target: Any, patch: Any) -> Any:
    """A merge patch: nulls remove, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def merge_strategically(keys: Mapping[str, str], target: Any, patch: Json) -> Json:
    """A strategic merge patch: lists with a merge key are merged by it, `$patch: delete` removes, sets of texts are joined."""
    merged = dict(target) if isinstance(target, dict) else {}
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    for name, value in patch.items():
        if name.startswith(_REMOVES):
            listed = name.removeprefix(_REMOVES)
            left = [item for item in merged.get(listed) or () if item not in value]
            merged[listed] = left
            if not left:
                del merged[listed]
        elif name.startswith("$setElementOrder/") or name == "$patch":
            continue
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = merge_strategically(keys, merged.get(name), value)
        elif isinstance(value, list) and name in keys and all(isinstance(item, dict) for item in value):
            merged[name] = _merge_list(keys, keys[name], merged.get(name) or [], value)
            if not merged[name]:
                del merged[name]
        elif isinstance(value, list) and name in SETS:
            there = merged.get(name) or []
            merged[name] = [*there, *(item for item in value if item not in there)]
        else:
            merged[name] = value
    return merged


def _merge_list(keys: Mapping[str, str], key: str, target: list[Json], patch: list[Json]) -> list[Json]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    deleted = {item.get(key) for item in patch if item.get("$patch") == "delete"}
    there = {item.get(key): item for item in target if item.get(key) not in deleted}
    named = {item.get(key): item for item in patch if "$patch" not in item}
    patched = {name: merge_strategically(keys, there.get(name), item) for name, item in named.items()}
    return [found[name] for name, found in _sort_elements(there, patched)]


def _sort_elements(there: dict[Any, Json], patched: dict[Any, Json]) -> list[tuple[Any, Json]]:
    """Elements that were there only before a patched one that stood behind them; all others of the patch come first."""
    left, right, order = [name for name in there if name not in patched], list(patched), list(there)
    result = []
    while left or right:
        takes_left = not right or (bool(left) and right[0] in there and order.index(left[0]) < order.index(right[0]))
        result.append((left.pop(0), there) if takes_left else (right.pop(0), patched))
    return result


def apply_json_patch(obj: Json, operations: Sequence[Mapping[str, Any]]) -> Json:
    """A JSON patch with add, replace and remove."""
    for operation in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        obj = _change(obj, path, operation)
    return obj


def _change(value: Any, path: Sequence[str], operation: Mapping[str, Any]) -> Any:
    if not path:
        return operation["value"]
    name, rest = path[0], path[1:]
    if isinstance(value, list):
        items, at = list(value), len(value) if name == "-" else int(name)
        if rest:
            items[at] = _change(items[at], rest, operation)
        elif operation["op"] == "remove":
            del items[at]
        elif operation["op"] == "add":
            items.insert(at, operation["value"])
        else:
            items[at] = operation["value"]
        return items
    changed = dict(value)
    if not rest and operation["op"] == "remove":
        del changed[name]
    else:
        changed[name] = _change(value.get(name), rest, operation) if rest else operation["value"]
    return changed
