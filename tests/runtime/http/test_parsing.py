"""Answers of the API server are read as `json` reads them, long lists in pieces."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runtime.http import parsing
from core.runtime.http.errors import ServerError
from core.runtime.http.parsing import encode, parse_list, parse_object

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12)
OBJECTS = st.dictionaries(st.text() | st.just("items"), VALUES, max_size=5)
TEXTS = st.builds(
    lambda value, spaces, is_ascii: json.dumps(value, indent=spaces, ensure_ascii=is_ascii),
    OBJECTS,
    st.none() | st.integers(0, 2),
    st.booleans(),
)


@pytest.fixture(autouse=True)
def _all_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "PIECE_CHARS", 0)


def read_list(data: bytes) -> dict[str, Any]:
    return asyncio.run(parse_list(data))


@given(text=TEXTS)
def test_object_and_list_of_any_form_are_read_as_json_reads_them(text: str):
    expected, data = json.loads(text), text.encode(errors="surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return  # no API server sends it
    assert parse_object(data) == expected
    assert read_list(data) == expected


@given(text=TEXTS, cut=st.integers(1, 20))
def test_text_that_breaks_off_is_an_error_of_the_server(text: str, cut: int):
    data = text[:-cut].encode(errors="replace")
    for read in (parse_object, read_list):
        with pytest.raises(ServerError):
            read(data)


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "{} {}", "{1:2}", '{"items":[]]', '{"items":[1 2]}', '{"items":[1,]}', '{"a":1,}', '{"a" 1}', "\xff"]
)
def test_text_that_is_no_object_is_an_error_of_the_server(text: str):
    for read in (parse_object, read_list):
        with pytest.raises(ServerError):
            read(text.encode("latin-1"))


async def test_other_tasks_have_their_turns_while_a_long_list_is_read():
    turns: list[int] = []

    async def count() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(count())
    found = await parse_list(json.dumps({"items": [{"number": number} for number in range(20)], "metadata": {}}).encode())
    task.cancel()
    await asyncio.wait([task])
    assert len(found["items"]) == 20
    assert len(turns) >= 20


@given(value=OBJECTS)
def test_encoded_value_is_read_as_it_was(value: dict[str, Any]):
    assert json.loads(encode(value)) == json.loads(json.dumps(value))


@pytest.mark.parametrize("levels", [100, 300])
def test_deep_object_is_encoded_and_read(levels: int):
    deep: dict[str, Any] = {}
    for _ in range(levels):
        deep = {"a": deep}
    assert parse_object(encode(deep)) == deep


def test_half_of_a_surrogate_pair_is_read_and_encoded_as_it_stands():
    text = b'{"a":"\\ud800"}'
    assert parse_object(text) == {"a": "\ud800"}
    assert encode(parse_object(text)) == text


def test_value_that_json_does_not_have_is_not_encoded():
    with pytest.raises(TypeError):
        encode({"a": object()})
