"""What the API server makes of an object before it is stored: defaults, unknown fields pruned, and what it refuses."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sim.apiserver.kinds import Kind

Json = dict[str, Any]
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_OF_OBJECT = ("apiVersion", "kind", "metadata")


def complete(kind: Kind, obj: Json, old: Json) -> Json:
    """With defaults and without fields that its schema does not know, but for parts that are as in `old`, which has been completed.

    What Kubernetes itself serves stays as it is.
    """
    if kind.schema is None:
        return obj
    known = kind.schema.get("properties") or {}
    parts = {
        name: old[name] if name in old and old[name] == value else _complete(known[name], value)
        for name, value in obj.items()
        if name in known and name not in _OF_OBJECT
    }
    return {**{name: obj[name] for name in _OF_OBJECT if name in obj}, **_fill_in(known, parts)}


def _complete(schema: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, dict):
        known, others = schema.get("properties") or {}, schema.get("additionalProperties")
        keeps = schema.get("x-kubernetes-preserve-unknown-fields") or (not known and not others and schema.get("type") != "object")
        found = {}
        for name, inner in value.items():
            if name in known:
                if inner is None and not known[name].get("nullable") and "default" in known[name]:
                    continue  # filled in below
                found[name] = _complete(known[name], inner)
            elif isinstance(others, dict):
                found[name] = _complete(others, inner)
            elif keeps or others is True or schema.get("x-kubernetes-embedded-resource"):
                found[name] = inner
        return _fill_in(known, found)
    if isinstance(value, list):
        return [_complete(schema.get("items") or {}, item) for item in value]
    return value


def _fill_in(known: Mapping[str, Any], found: Json) -> Json:
    missing = {name: _complete(inner, inner["default"]) for name, inner in known.items() if "default" in inner and name not in found}
    return {**found, **missing} if missing else found


def find_problems(kind: Kind, new: Json, old: Json | None) -> list[str]:
    """Why the API server refuses an object by its schema. Rules in CEL are left to the real one."""
    if kind.schema is None:
        return []
    known = kind.schema.get("properties") or {}
    missing = [name for name in kind.schema.get("required") or () if name not in new and name not in _OF_OBJECT]
    problems = [f"{name}: Required value" for name in missing]
    for name, value in new.items():
        if name in known and name not in _OF_OBJECT and (old is None or old.get(name) != value):
            problems += _find_problems(known[name], value, name, None if old is None else old.get(name))
    return problems


def _find_problems(schema: Mapping[str, Any], value: Any, path: str, old: Any = None) -> Iterator[str]:
    """`old` is what is stored there, which has no problems: its parts are not looked at again."""
    if value is None:
        if "type" in schema and not schema.get("nullable"):
            yield f'{path}: Invalid value: "null": {path} in body must be of type {schema.get("type")}: "null"'
        return
    wanted = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        wanted = None
    expected = _TYPES.get(wanted) if wanted else None
    if expected is not None and (not isinstance(value, expected) or (isinstance(value, bool) and wanted != "boolean")):
        yield f"{path}: Invalid value: {path} in body must be of type {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {value!r}"
    if isinstance(value, str):
        yield from _find_in_text(schema, value, path)
    elif isinstance(value, bool):
        return
    elif isinstance(value, int | float):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            yield f"{path}: Invalid value: {value}: {path} in body should be within its limits"
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{path}: Too many or too few: {len(value)}"
        yield from _find_twice(schema, value, path)
        known_items = old if isinstance(old, list) else ()
        for number, item in enumerate(value):
            before = known_items[number] if number < len(known_items) else None
            if before is None or item != before:
                yield from _find_problems(schema.get("items") or {}, item, f"{path}[{number}]", before)
    elif isinstance(value, dict):
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            yield f"{path}: Too many or too few: {len(value)}"
        for name in schema.get("required") or ():
            if name not in value:
                yield f"{path}.{name}: Required value"
        known, others = schema.get("properties") or {}, schema.get("additionalProperties")
        known_parts = old if isinstance(old, dict) else {}
        for name, inner in value.items():
            before = known_parts.get(name)
            if before is None or inner != before:
                below = known.get(name) or (others if isinstance(others, dict) else {})
                yield from _find_problems(below, inner, f"{path}.{name}", before)


def _find_in_text(schema: Mapping[str, Any], value: str, path: str) -> Iterator[str]:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{path}: Invalid value: {value!r}: {path} in body has the wrong length"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: Invalid value: {value!r}: {path} in body should match '{schema['pattern']}'"


def _find_twice(schema: Mapping[str, Any], value: list[Any], path: str) -> Iterator[str]:
    """Elements of a set, or of a list with keys, that are there twice."""
    how = schema.get("x-kubernetes-list-type")
    if how == "set":
        names = [repr(item) for item in value]
    elif how == "map":
        keys = schema["x-kubernetes-list-map-keys"]
        names = [repr([item.get(key) for key in keys]) if isinstance(item, dict) else "" for item in value]
    else:
        return
    for number, name in enumerate(names):
        if name in names[:number]:
            yield f"{path}[{number}]: Duplicate value: {name}"
