"""What a CRD schema says beyond types: CEL rules, list kinds, server-side defaults - written beside the field they hold for.

Each mark is put into an `Annotated[...]`, or into the class keyword `rules=` of a model; `core.api.schema` carries it
into the generated YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

# Only what is marked reaches the API server as a default. A Python default is for reading: an absent counter reads as 0.
SERVER_DEFAULT = "x-server-default"
RULES = "x-kubernetes-validations"


@dataclass(frozen=True, eq=False)  # by identity: what `Annotated[...]` holds must be hashable
class Mark:
    """Keywords to add to the schema of what it annotates; lists (of rules) are added to, not replaced."""

    values: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return merge(handler(core_schema), self.values)


def merge(schema: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a new schema with the values of a mark: a list is added after that of the schema, any other value replaces it. Neither
    argument is changed."""
    merged = dict(schema)
    for key, value in values.items():
        merged[key] = [*merged[key], *value] if isinstance(value, list) and key in merged else value
    return merged


def add_rule(expression: str, message: str) -> Mark:
    """Returns the mark of a CEL rule (`expression`, with its white space reduced); the message is what a user reads, so it says what would
    be right."""
    return Mark({RULES: [{"rule": " ".join(expression.split()), "message": message}]})


IMMUTABLE = add_rule("self == oldSelf", "the field cannot be changed")


def default_on_server(value: Any) -> Mark:
    """Returns the mark of a default, which the API server fills in where the field is absent. The value is the JSON as it is in the CRD;
    the default in Python is separate."""
    return Mark({SERVER_DEFAULT: value})


def list_map(*keys: str) -> Mark:
    """Returns the mark of a list with items that these keys (JSON names of fields) distinguish: server-side apply owns item by item."""
    return Mark({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


ATOMIC_LIST = Mark({"x-kubernetes-list-type": "atomic"})
SET_LIST = Mark({"x-kubernetes-list-type": "set"})
ATOMIC_MAP = Mark({"x-kubernetes-map-type": "atomic"})


def set_int_format(name: str) -> Mark:
    """Returns the mark of an integer's format: `int32` or `int64`."""
    return Mark({"format": name})
