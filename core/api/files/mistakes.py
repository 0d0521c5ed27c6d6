"""What is wrong with a file that a person wrote, in words: where, what stands there, what would be accepted."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SHOWN = 80
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mistake:
    """Where (empty: the file as a whole), and what is wrong there and would not be."""

    path: str
    problem: str

    def __str__(self) -> str:
        text = f"{self.path}: {self.problem}" if self.path else self.problem
        # One line, whatever was quoted from the file.
        return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


class InvalidFile(ValueError):
    """A file that cannot be used; says everything that is wrong with it, one mistake a line."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = tuple(mistakes)


def format_choice(names: Iterable[str]) -> str:
    """Returns names as a choice: `A, B or C`. Raises ValueError without any name."""
    *some, last = names
    return f"{', '.join(some)} or {last}" if some else last


def find_nearest(key: str, names: Iterable[str]) -> str | None:
    """Returns the known name nearest to what was written, without regard to case. Of `key` the first `_SHOWN` characters are compared. None
    if no name has a ratio of 0.6 or more by `difflib`."""
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower()[:_SHOWN], by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def format_value(value: object) -> str:
    """Returns a value of JSON as it may stand in a message, in one line. Text is in quotes and cut to `_SHOWN` characters; a list or an
    object shows only that it is one, an integer above 64 bits only how many it has. Of any other value it returns the name of its type."""
    if isinstance(value, str):
        short = value if len(value) <= _SHOWN else f"{value[: _SHOWN - 1]}…"
        return json.dumps(short, ensure_ascii=not short.isprintable())  # what begins a new line, and halves of characters, are escaped
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        # Thousands of digits are an error of Python's, not only unreadable.
        return str(value) if isinstance(value, float) or value.bit_length() <= 64 else f"a number of {value.bit_length()} bits"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return type(value).__name__


def build_path(path: str, *parts: str | int) -> str:
    """Returns a path with more parts: `a.b[0][odd/key]`. A key that is not plain (letters, digits, `_`, `-`), or longer than `_SHOWN`, is
    in brackets and cut. A number is an index."""
    for part in parts:
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part) and len(part) <= _SHOWN:
            path = f"{path}.{part}" if path else part
        else:
            path += f"[{part if isinstance(part, int) else format_value(part)[1:-1]}]"
    return path
