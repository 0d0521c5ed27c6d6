"""The keys of a file as a JSON schema, for the chart: `python -m core.api.files.key_schema` prints what belongs into
`charts/topogate/values.schema.json`.

It knows keys, not values: these are judged by the process that reads the file, with the nearest accepted one in the message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from core.api.files.configuration_wire import ConfigurationFile
from core.api.files.strict import Strict, find_blocks


def build_key_schema(block: type[Strict] = ConfigurationFile) -> dict[str, Any]:
    """Returns the JSON schema of the keys of a block and of its inner blocks, also of those in lists: an object with other keys does not
    match. What is in a map, or may be one of several blocks, is not looked into."""
    properties = {field.alias or name: _build_field_schema(field.annotation) for name, field in block.model_fields.items()}
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _build_field_schema(annotation: Any) -> dict[str, Any]:
    blocks = list(dict.fromkeys(find_blocks(annotation)))
    if len(blocks) != 1 or _has_origin(annotation, (dict, Mapping)):
        return {}
    inner = build_key_schema(blocks[0])
    return {"type": ["array", "null"], "items": inner} if _has_origin(annotation, (list, tuple)) else inner


def _has_origin(annotation: Any, origins: tuple[Any, ...]) -> bool:
    return get_origin(annotation) in origins or any(_has_origin(part, origins) for part in get_args(annotation))


if __name__ == "__main__":
    print(json.dumps(build_key_schema()))
