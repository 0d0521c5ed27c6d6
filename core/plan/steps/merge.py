"""JSON merge patch (RFC 7386): what turns one object into another."""

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a new patch that makes `old` into `new`, empty where they are equal: lists are replaced whole, what `new` lacks is removed
    (null). What `new` has as null is removed, too: a merge patch cannot express a null."""
    patch: dict[str, Any] = {key: None for key in old if key not in new and old[key] is not None}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif isinstance(value, Mapping):
            if before is None or value != before:
                patch[key] = merge_patch({}, value)
        elif before != value or type(before) is not type(value):
            patch[key] = value
    return patch
