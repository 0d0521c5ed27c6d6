"""JSON Patch (RFC 6902) from one object to another, as few operations as maps allow; lists are replaced whole."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core.jobs.template_parts import copy_object

Operation = dict[str, Any]


def diff(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> Iterator[Operation]:
    """Yields the operations that turn `old` into `new`, with paths below `path`: at each level removals before the others. Maps are
    compared within; a list that differs is replaced whole. 1, 1.0 and true are three values."""
    for key in old.keys() - new.keys():
        yield {"op": "remove", "path": _join(path, key)}
    for key, value in new.items():
        where = _join(path, key)
        if key not in old:
            yield {"op": "add", "path": where, "value": value}
        elif isinstance(value, dict) and isinstance(old[key], dict):
            yield from diff(old[key], value, where)
        elif not _is_same(value, old[key]):
            yield {"op": "replace", "path": where, "value": value}


def apply(obj: Mapping[str, Any], operations: Iterable[Operation]) -> dict[str, Any]:
    """Returns a changed copy of an object: what it becomes by operations such as `diff` yields, on maps alone. Raises KeyError where the
    way to a field, or one to remove, is not there."""
    changed = copy_object(obj)
    for operation in operations:
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        parent = changed
        for part in way:
            parent = parent[part]
        if operation["op"] == "remove":
            del parent[last]
        else:
            parent[last] = operation["value"]
    return changed


def _is_same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def _join(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
