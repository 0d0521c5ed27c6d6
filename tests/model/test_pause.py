"""What an administrator's ConfigMap pauses: whatever stands there, on the safe side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.pause_state import NOTHING_PAUSED, PAUSABLE, Pause, Stop

SAID = Stop("admissions", "2026-11-22T10:00:00Z", "alice", "rack r1 is being rewired")


def read(**data: Any) -> Pause:
    return Pause.read({"kind": "ConfigMap", "data": data})


def test_written_pause_is_read_again():
    assert read(admissions=SAID.to_text()) == Pause(admissions=SAID)
    assert read(admissions=SAID.to_text()).evictions is None


def test_pause_sentence_names_author_time_reason_and_resume_command():
    assert all(part in SAID.sentence for part in ("alice", "2026-11-22T10:00:00Z", SAID.reason, "`topogate resume admissions`"))


def test_pause_sentence_without_details_omits_them():
    assert read(evictions="{}").evictions == Stop("evictions")
    assert "`topogate resume evictions`" in Stop("evictions").sentence
    assert "since" not in Stop("evictions").sentence


@pytest.mark.parametrize(
    "obj", [{}, {"data": None}, {"data": {}}, {"data": {"admission": "{}"}}], ids=["no data", "null", "empty", "another key"]
)
def test_a_key_that_is_missing_pauses_nothing(obj: dict[str, Any]):
    assert Pause.read(obj) == NOTHING_PAUSED


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not JSON"),
        ("yes please", "it is not JSON"),
        ("true", "it is not a JSON object with since, by and reason"),
        ("[1]", "it is not a JSON object with since, by and reason"),
        ('{"by": 1}', "by is no text"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_pause_text_that_cannot_be_read_pauses_with_the_problem(text: str, problem: str):
    stop = read(admissions=text).admissions
    assert stop is not None
    assert problem in stop.problem
    assert "cannot be read" in stop.sentence
    assert "topogate resume admissions" in stop.sentence


def test_pause_in_binary_data_pauses_with_a_problem():
    stop = Pause.read({"binaryData": {"evictions": "AAA="}}).evictions
    assert stop is not None
    assert stop.problem


@given(
    st.dictionaries(
        st.sampled_from([*PAUSABLE, "other"]),
        st.text()
        | st.none()
        | st.integers()
        | st.builds(json.dumps, st.dictionaries(st.sampled_from(["since", "by", "reason"]), st.text(max_size=500) | st.integers())),
    )
)
def test_random_pause_data_pauses_with_one_short_sentence(data: dict[str, Any]):
    pause = read(**data)
    for what in PAUSABLE:
        stop = pause.find_stop(what)
        assert (stop is not None) == (what in data)
        if stop is not None:
            assert len(stop.sentence) < 600
            assert "\n" not in stop.sentence
