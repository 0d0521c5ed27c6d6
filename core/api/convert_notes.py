"""Notes: what one version of an object cannot express, kept as JSON in an annotation of the object in that version.

A note is only ever a supplement. A reader uses the parts of it that agree with the fields beside it and are valid by
themselves, and nothing else: any client that may write the object may write its annotations, and old clients change
fields and do not know notes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def remove_note(obj: Json, name: str) -> Json:
    """Removes the annotation `name` from the object, which then gets new metadata, and returns the note in it. Empty where there is none,
    or it is no JSON object; one that cannot be read is removed, too. The object stays as it is where it has no such annotation."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict) or name not in annotations:
        return {}
    rest = {key: value for key, value in annotations.items() if key != name}
    obj["metadata"] = {key: value for key, value in obj["metadata"].items() if key != "annotations"} | (
        {"annotations": rest} if rest else {}
    )
    try:
        said = json.loads(annotations[name])
    except (ValueError, TypeError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def put_note(obj: Json, name: str, note: Mapping[str, Any]) -> None:
    """Writes the note as JSON into the annotation `name` of the object, which gets new metadata; other annotations stay. Parts that are
    None or an empty object are left out; where none is left nothing is changed."""
    said = {key: value for key, value in note.items() if value not in ({}, None)}
    if not said:
        return
    metadata = obj.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    written = json.dumps(said, separators=(",", ":"), ensure_ascii=False)
    metadata["annotations"] = {**(annotations if isinstance(annotations, dict) else {}), name: written}
    obj["metadata"] = metadata


def get_part(note: Mapping[str, Any], *way: str) -> Any:
    """Returns the part of a note at the keys of `way`, one in the other; None if it has none there, or anything but an object is on the
    way."""
    found: Any = note
    for name in way:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def copy_object(parent: Json, name: str) -> Json | None:
    """Replaces the object at a field by a copy of one level that may be changed, and returns the copy; None, without a change, where
    there is no object."""
    child = parent.get(name)
    if not isinstance(child, dict):
        return None
    parent[name] = dict(child)
    copied: Json = parent[name]
    return copied


def copy_items(parent: Json, name: str) -> list[Json]:
    """Replaces the list at a field by one with copies (of one level) of its objects that may be changed, and returns the copies. There
    are none where it is no list. What is no object stays in its place and is not returned."""
    items = parent.get(name)
    if not isinstance(items, list):
        return []
    parent[name] = copies = [dict(item) if isinstance(item, dict) else item for item in items]
    return [item for item in copies if isinstance(item, dict)]


def rename(node: Json | None, old: str, new: str) -> None:
    """Renames a field in place; does nothing where `node` is None. What stands under the new name is removed, also where there is no field
    to rename: the version that is converted does not know it."""
    if node is None:
        return
    node.pop(new, None)
    if old in node:
        node[new] = node.pop(old)
