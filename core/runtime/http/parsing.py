"""JSON to and from the API server: as deep as it accepts it, and long lists an object at a time.

pydantic's parser and encoder take half of the time of Python's. What they refuse and API servers accept - objects of more than 200 levels,
halves of surrogate pairs - goes through Python's own.
"""

import asyncio
import json
import re
import sys
from json.decoder import JSONDecoder
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from core.resource import Obj
from core.runtime.http.errors import ServerError

DEEPEST_JSON = 10_100
"""Levels of JSON in an answer: API servers accept 10,000 in one object (Go's encoding/json), and a list adds a few."""
PIECE_CHARS = 1 << 20
"""Of a list are parsed between two turns of the event loop: some 10 ms. One object has 1.5 MB at most (etcd)."""
_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def encode(value: Any) -> bytes:
    """Returns plain values as JSON, in UTF-8 and without spaces. Raises TypeError for a value that JSON lacks."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        return json.dumps(value, separators=(",", ":")).encode()


def parse_object(data: bytes) -> Obj:
    """Returns the JSON object in a text. Raises ServerError if the text is something else."""
    try:
        parsed = from_json(data, cache_strings="all")
    except ValueError:
        parsed = _parse_slowly(data)
    if not isinstance(parsed, dict):
        raise ServerError(0, "NotJSON", "the answer is not a JSON object")
    return parsed


def _parse_slowly(data: bytes) -> Any:
    try:
        parsed, end = _parse_deep(text := data.decode(), 0)
        if end != len(text):
            raise ValueError(f"something follows at {end}")
    except (ValueError, RecursionError) as error:
        raise _explain(data) from error
    return parsed


async def parse_list(data: bytes) -> Obj:
    """Returns the JSON object of a list with `items`, as `parse_object`. During a long one other tasks have their turns: 100 pods of 1.5 MB
    take a second. Raises ServerError if the text is something else.
    """
    if len(data) <= PIECE_CHARS or data[:1] != b"{":
        return parse_object(data)
    try:
        return await _parse_in_pieces(data.decode())
    except (ValueError, RecursionError) as error:
        raise _explain(data) from error


def _explain(data: bytes) -> ServerError:
    return ServerError(0, "NotJSON", f"the answer is not JSON: {data[:200]!r}")


async def _parse_in_pieces(text: str) -> Obj:
    whole, at = Obj(), _skip(text, 0, "{")
    mark = text[at : at + 1]
    if mark == "}":
        at = _skip(text, at, "}")
    while mark != "}":
        key, at = _parse_deep(text, at)
        if not isinstance(key, str):
            raise ValueError(f"no key before {at}")
        at = _skip(text, at, ":")
        if key == "items" and text[at : at + 1] == "[":
            whole[key], at = await _parse_items(text, at)
        else:
            whole[key], at = _parse_deep(text, at)
        mark, at = text[at : at + 1], _skip(text, at, ",}")
    if at != len(text):
        raise ValueError(f"something follows at {at}")
    return whole


async def _parse_items(text: str, at: int) -> tuple[list[Any], int]:
    items, paused, at = list[Any](), at, _skip(text, at, "[")
    mark = text[at : at + 1]
    if mark == "]":
        at = _skip(text, at, "]")
    while mark != "]":
        item, at = _parse_deep(text, at)
        items.append(item)
        mark, at = text[at : at + 1], _skip(text, at, ",]")
        if at - paused > PIECE_CHARS:
            await asyncio.sleep(0)
            paused = at
    return items, at


def _skip(text: str, at: int, marks: str) -> int:
    """Where the next value begins after one of these marks. Raises ValueError if there is none of them."""
    if not text[at : at + 1] or text[at] not in marks:
        raise ValueError(f"no {' or '.join(marks)} at {at}")
    return _skip_space(text, at + 1)


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _parse_deep(text: str, at: int) -> tuple[Any, int]:
    """A value and where what follows it begins. An object may be nested as deeply as API servers accept it: with Python's own limit of
    1,000 levels one object of a user would end the watches of all objects of its kind."""
    at = _skip_space(text, at)
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + DEEPEST_JSON)
        try:
            value, end = _DECODER.raw_decode(text, at)
        finally:
            sys.setrecursionlimit(limit)
    return value, _skip_space(text, end)
