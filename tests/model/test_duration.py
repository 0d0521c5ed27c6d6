"""Durations as Go writes them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.duration import InvalidDuration, parse_duration

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("300ms", 0.3),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("0", 0.0),
        ("-0", 0.0),
        ("0s", 0.0),
        ("+2s", 2.0),
        ("-1m30s", -90.0),
        ("1ns", 1e-9),
        ("2us", 2e-6),
        ("30s5m", 330.0),
        ("2562047h47m16.854775807s", 9223372036.854775807),
    ],
)
def test_duration_that_go_accepts_is_parsed(text: str, seconds: float):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "5 m", "m", "5d", "5M", "1h-5m", "--5m", "5m ", " 5m", "5m\n", ".s", "1e3s", "٥m", "1:30", "00", "inf", "5mm"]
)
def test_duration_that_go_refuses_is_invalid(text: str):
    with pytest.raises(InvalidDuration, match="is no duration such as 5m, 1h30m or 300ms"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["2562047h47m16.854775808s", "-3000000h"])
def test_longer_than_64_bits_of_nanoseconds(text: str):
    with pytest.raises(InvalidDuration, match="longer than a duration can be"):
        parse_duration(text)


@given(st.lists(st.tuples(st.integers(0, 9999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=5))
def test_parts_add_up(parts: list[tuple[int, str]]):
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert parse_duration(text) == pytest.approx(sum(number * UNITS[unit] for number, unit in parts))


@given(st.text())
def test_any_text_is_seconds_or_refused(text: str):
    with contextlib.suppress(InvalidDuration):
        assert isinstance(parse_duration(text), float)
