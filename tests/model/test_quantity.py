"""Quantities: exact, rounded up, and the same after writing and reading."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.model.quantity import LARGEST, InvalidQuantity, format_quantity, parse_canonical, parse_quantity

RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "pods", "nvidia.com/gpu"])
SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


@given(RESOURCES, st.integers(-(10**15), 10**15))
def test_formatted_quantity_is_read_as_the_same_amount(resource, amount):
    assert parse_canonical(resource, format_quantity(resource, amount)) == amount


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)), st.booleans(), st.booleans())
def test_decimal_fractions_are_rounded_up_and_never_down(whole, thousandths, suffix, negative, milli):
    value = (Fraction(whole) + Fraction(thousandths, 1000)) * Fraction(10) ** SUFFIXES[suffix] * (1000 if milli else 1)
    text = f"{'-' if negative else ''}{whole}.{thousandths:03}{suffix}"
    exact = math.ceil(-value if negative else value)
    assert parse_quantity(text, milli=milli) == max(-LARGEST, min(LARGEST, exact))


@given(st.integers(0, 10**4), st.integers(0, 999), st.sampled_from(sorted(BINARY)))
@example(1, 0, "Pi")
@example(1, 0, "Ei")
def test_binary_suffixes_are_powers_of_1024(whole, thousandths, suffix):
    value = (Fraction(whole) + Fraction(thousandths, 1000)) * 1024 ** BINARY[suffix]
    assert parse_quantity(f"{whole}.{thousandths:03}{suffix}") == min(LARGEST, math.ceil(value))


@given(st.integers(-(10**6), 10**6), st.integers(-12, 9), st.sampled_from("eE"))
def test_exponents_count(mantissa, power, sign):
    assert parse_quantity(f"{mantissa}{sign}{power}") == math.ceil(Fraction(mantissa) * Fraction(10) ** power)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "4", 4000),
        ("cpu", "2500m", 2500),
        ("cpu", 4, 4000),
        ("cpu", 0.1, 100),
        ("cpu", "0.1", 100),
        ("cpu", "1n", 1),
        ("cpu", "1e3", 1_000_000),
        ("memory", "64Gi", 64 * 2**30),
        ("memory", "60000M", 60_000_000_000),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", "100m", 1),
        ("memory", "128974848", 128974848),
        ("memory", "129e6", 129_000_000),
        ("memory", "1E", 10**18),
        ("pods", ".5", 1),
        ("pods", "+5", 5),
        ("pods", "5.", 5),
        ("pods", "-1.5", -1),
    ],
)
def test_quantities_as_the_api_server_reads_them(resource, text, amount):
    assert parse_canonical(resource, text) == amount


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "1K", "0x10", "1e", "1e+", "--1", "1.2.3", ".", "1_000", "٣", True, None, []])
def test_invalid_quantity_is_refused_with_a_format_hint(text):
    with pytest.raises(InvalidQuantity, match="a number with an optional suffix"):
        parse_canonical("cpu", text)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_refused(text):
    with contextlib.suppress(InvalidQuantity):
        assert isinstance(parse_canonical("memory", text), int)


@pytest.mark.parametrize(
    "text", ["10E", "99999999999999999999", "9.3e18", "16Ei", "10e399", "1e99999999", "1e" + "9" * 5000, "9" * 5000, "9" * 10**6 + "Ki"]
)
def test_more_than_64_bits_are_cut_to_that_as_kubernetes_does(text):
    """Else one absurd request would stop the scheduler, whose matrix holds 64 bits."""
    assert parse_canonical("memory", text) == LARGEST
    assert parse_canonical("memory", f"-{text}") == -LARGEST
    assert parse_canonical("cpu", "10P") == LARGEST


@pytest.mark.parametrize("text", ["1e-99999999", "0." + "0" * 10**6 + "1", "0.0000000001", "0." + "0" * 600 + "1E", "1e-" + "9" * 5000])
def test_the_smallest_amounts_count_as_one_unit(text):
    assert parse_canonical("cpu", text) == parse_canonical("memory", text) == 1
    assert parse_canonical("memory", f"-{text}") == 0


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1" + "0" * 1000 + "e-990", 10**10),
        ("0." + "0" * 400 + "25e403", 250),
        ("0" * 500 + "7", 7),
        ("7." + "0" * 500, 7),
        ("0e999999", 0),
    ],
)
def test_many_digits_and_powers_are_added_up(text, amount):
    assert parse_canonical("memory", text) == amount
    assert parse_canonical("cpu", text) == 1000 * amount


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 4000, "4"),
        ("cpu", 2500, "2500m"),
        ("cpu", 0, "0"),
        ("memory", 0, "0"),
        ("memory", 2**30, "1Gi"),
        ("memory", 3 * 2**29, "1536Mi"),
        ("memory", 1000, "1000"),
        ("pods", 1024, "1024"),
        ("memory", -1024, "-1Ki"),
    ],
)
def test_amounts_are_written_short(resource, amount, text):
    assert format_quantity(resource, amount) == text
