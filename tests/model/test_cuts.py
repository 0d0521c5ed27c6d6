"""How assignments are cut into slices is as it is written down."""

from __future__ import annotations

import pytest

from tests.model.cuts import WRITTEN, name_all, tell

_TOGETHER = 58
NAMES, LINES = name_all(), WRITTEN.read_text().splitlines()


@pytest.mark.parametrize("first", range(0, len(NAMES), _TOGETHER))
def test_the_cuts_are_those_that_are_written_down(first: int):
    """If one is meant to differ now: `python -m tests.model.cuts`, and the difference in the commit."""
    assert [tell(name) for name in NAMES[first : first + _TOGETHER]] == LINES[first : first + _TOGETHER]


def test_all_are_written_down_and_many_are_cut_into_several_slices():
    assert len(LINES) == len(NAMES)
    several = sum(", 1 slices," not in line for line in LINES)
    assert len(LINES) * 0.2 < several < len(LINES) * 0.95
