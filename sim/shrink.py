"""Fewer steps that fail alike: what a scenario needs to break."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
_NAMES = re.compile(r"\b[\w.-]*\d[\w.-]*\b")


def get_failure_kind(problem: str) -> str:
    """What kind of failure a problem is: its first sentence without numbers and names of objects, which have one; empty for none."""
    return _NAMES.sub("#", problem.partition(";")[0].partition(", ")[0].strip())


def shrink(steps: Sequence[Item], fails: Callable[[Sequence[Item]], bool], has_time: Callable[[], bool]) -> list[Item]:
    """The fewest steps found that still fail: parts are left out, half of them at first and one at last, as long as there is time."""
    left, size = list(steps), max(1, len(steps) // 2)
    while has_time():
        begin, is_smaller = 0, False
        while begin < len(left) and has_time():
            fewer = left[:begin] + left[begin + size :]
            if fails(fewer):
                left, is_smaller = fewer, True
            else:
                begin += size
        if size == 1 and not is_smaller:
            break
        size = max(1, size // 2)
    return left
