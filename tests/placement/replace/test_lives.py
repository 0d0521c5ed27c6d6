"""The engine's answers to many lives of workloads are those that are written down, and keep what was promised."""

from __future__ import annotations

import pytest

from core.placement.algorithms import domain_capacity
from tests.placement.lives import ANSWERS, LIVES, Life, tell

WRITTEN = ANSWERS.read_text().splitlines()
_TOGETHER = 50


@pytest.mark.parametrize("first", range(0, LIVES, _TOGETHER))
def test_the_answers_are_those_that_are_written_down(first: int, monkeypatch: pytest.MonkeyPatch):
    """If one is meant to differ now: `python -m tests.placement.lives`, and the difference in the commit.

    They were written with everything counted anew at each turn, and are read with what was counted mended.
    """
    monkeypatch.setattr(domain_capacity, "_FEW_NODES", -(10**6))
    for seed in range(first, first + _TOGETHER):
        life = Life(seed)
        assert tell(life) == WRITTEN[seed]
        assert not life.broken


def test_all_lives_are_written_down_and_every_turn_is_among_them():
    assert len(WRITTEN) == LIVES
    turns = [answer.split(":")[0].split()[0] for line in WRITTEN for answer in line.split(" || ")[1:]]
    assert all(turns.count(turn) >= 400 for turn in ("placed", "again", "beside", "without", "as"))
    refused = sum("NOT_FIT" in line for line in WRITTEN)
    assert LIVES * 0.3 < refused < LIVES * 0.9
