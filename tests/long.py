"""Marks most of many alike cases as long: `make test` plays some of them, `make test-all` all."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mark_long(cases: Iterable[Any], but: Collection[int]) -> list[Any]:
    """Parameters of a test, of which all but those at these positions carry the marker `long`."""
    return [
        case if number in but else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
        for number, case in enumerate(cases)
    ]
