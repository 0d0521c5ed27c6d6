"""Kubernetes quantities as exact integers.

The core counts in canonical units: `cpu` in milli-cpu, everything else in whole units
(bytes, GPUs, pods). Fractions are rounded up, as the API server does for `Value()`:
a request is never made smaller than it was written.

No amount of one object is larger than `LARGEST`: what is read, summed or multiplied beyond it is cut there
(`saturate`). The sum and the difference of two such amounts fit the 64 bits of the engine's arrays. Running
totals over many objects are Python integers, which are exact.
"""

import re
from fractions import Fraction
from functools import lru_cache

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_PATTERN = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]?))")
LARGEST = 2**62 - 1
"""The largest amount that one object can have, in canonical units: 4 EiB less a byte."""
_MAX_LENGTH = 256  # of a quantity that is read exactly
_MOST_POWER = 2 * _MAX_LENGTH  # with more a quantity is beyond `LARGEST` whatever its digits, or with less below any unit
_USUAL_LENGTH = 32  # longer ones are not kept
_BINARY_RESOURCES = ("memory", "ephemeral-storage", "storage")


def saturate(amount: int) -> int:
    """Returns the amount, cut to the range from `-LARGEST` to `LARGEST`."""
    return max(-LARGEST, min(LARGEST, amount))


class InvalidQuantity(ValueError):
    """The text is no Kubernetes quantity."""

    def __init__(self, text: object) -> None:
        super().__init__(f"{text!r} is no quantity; a number with an optional suffix such as 500m, 4, 1.5Gi is expected")


def parse_quantity(text: str | int | float, *, milli: bool = False) -> int:
    """Returns a quantity in thousandths if `milli`, in whole units else; rounded up (away from the smaller value) and cut by `saturate`.

    Raises InvalidQuantity where the text is no quantity.
    """
    written = str(text).strip()
    value = (_parse if len(written) <= _USUAL_LENGTH else _parse.__wrapped__)(written, milli)
    if value is None:
        raise InvalidQuantity(text)
    return value


def parse_exact_quantity(text: str) -> Fraction:
    """Returns a quantity in whole units as it is written, without rounding. Raises InvalidQuantity where the text is none, has more than
    256 characters, or a power of ten beyond 512."""
    value = _read(text.strip()) if len(text) <= _MAX_LENGTH else None
    if value is None:
        raise InvalidQuantity(text)
    return value


@lru_cache(4096)  # nodes and pods have the same few quantities over and over
def _parse(written: str, milli: bool) -> int | None:
    value = _read(written, cuts=True)
    if value is None:
        return None
    if milli:
        value *= 1000
    return saturate(-(-value.numerator // value.denominator))


def _read(written: str, *, cuts: bool = False) -> Fraction | None:
    """The value; None of what is no quantity. Where it `cuts`, powers of ten are cut to `_MOST_POWER`, and digits to so many as matter;
    else what has more is none either."""
    match = _PATTERN.fullmatch(written)
    if match is None:
        return None
    sign, digits, exponent, suffix = match.groups()
    number, power = _read_digits(digits)
    if exponent is not None:
        power += int(exponent[1 : 2 * _USUAL_LENGTH])
    elif suffix in _BINARY:
        number *= 2 ** _BINARY[suffix]
    else:
        power += _DECIMAL[suffix or ""]
    if abs(power) > _MOST_POWER and not cuts:
        return None
    value = Fraction(number) * Fraction(10) ** max(-_MOST_POWER, min(_MOST_POWER, power))
    return -value if sign == "-" else value


def _read_digits(digits: str) -> tuple[int, int]:
    """A number and the power of ten by which it is to be multiplied. Of very many digits the first, with one more in the place of the
    last of these: too much, by so little that it does not matter."""
    whole, _, part = digits.partition(".")
    significant = (whole + part).lstrip("0")
    kept, rest = significant[:_MAX_LENGTH], significant[_MAX_LENGTH:]
    return int(kept or "0") + bool(rest.strip("0")), len(rest) - len(part)


def parse_canonical(resource: str, text: str | int | float) -> int:
    """Returns a quantity of a resource in the unit that the core counts it in: `cpu` in thousandths, all else in whole units; rounded up
    and cut to the range from `-LARGEST` to `LARGEST`. Raises InvalidQuantity where the text is no quantity."""
    return parse_quantity(text, milli=resource == "cpu")


def format_quantity(resource: str, amount: int) -> str:
    """Returns a Kubernetes quantity of a canonical amount: `cpu` in whole cores or thousandths (`4`, `2500m`), memory and storage with the
    largest binary suffix without a fraction (`64Gi`), all else as a plain number."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and resource.startswith(_BINARY_RESOURCES):
        for suffix, power in reversed(_BINARY.items()):
            if amount % 2**power == 0:
                return f"{amount // 2**power}{suffix}"
    return str(amount)


def show_count(count: int, noun: str) -> str:
    """Returns an amount of things with the right plural: 1 pod, 2 pods, 0 pods. `noun` is the singular, and the plural ends with an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
