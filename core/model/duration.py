"""Durations as Go writes them, which is how Kubernetes has them in its files: 5m, 1h30m, 300ms."""

import re
from fractions import Fraction

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"[-+]?(?:(?:{_PART.pattern})+|0)", re.ASCII)
_MAX_NS = 2**63 - 1  # Go counts nanoseconds in 64 bits, and takes nothing longer
_MAX_LENGTH = 64


class InvalidDuration(ValueError):
    """The text is no duration of Go's."""


def parse_duration(text: str) -> float:
    """Returns a duration of Go's (numbers with units from `ns` to `h`, or a 0 alone) in seconds; it is negative with a minus sign. Raises
    InvalidDuration where the text is none, has more than 64 characters, or is longer than 2**63 - 1 ns."""
    if len(text) > _MAX_LENGTH or not _WHOLE.fullmatch(text):
        raise InvalidDuration(f"{text[:_MAX_LENGTH]!r} is no duration such as 5m, 1h30m or 300ms")
    nanoseconds = sum(Fraction(number if number[0] != "." else f"0{number}") * _UNITS[unit] for number, unit in _PART.findall(text))
    if nanoseconds > _MAX_NS:
        raise InvalidDuration(f"{text!r} is longer than a duration can be (about 292 years)")
    return float(nanoseconds / 10**9) * (-1 if text.startswith("-") else 1)


def show_duration(seconds: float) -> str:
    """Returns seconds, which must not be negative, as hours, minutes and seconds, those left out that are 0: 5m, 1h30m, 1.5s; 0s for
    none."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{amount:g}{unit}" for amount, unit in parts if amount) or "0s"
