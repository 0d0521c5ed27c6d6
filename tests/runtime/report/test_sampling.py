"""Which traces are sent: a share of them, and every one that turns out to be worth it. Time stands still here until it is told to move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.runtime.report import sampling
from core.runtime.report.sampling import HELD_S, MOST_OF_ONE, HeldSpans, Sampling
from tests.runtime.fakes import ManualClock


@dataclass
class Ends:
    """A status."""

    is_ok: bool = True


@dataclass
class Of:
    """A context."""

    trace_id: int


@dataclass
class Span:
    """As the SDK's, as far as it is looked at."""

    name: str
    context: Of
    attributes: Mapping[str, Any] = field(default_factory=dict)
    status: Ends = field(default_factory=Ends)
    start_time: int = 0
    end_time: int = 0


class Story:
    """What is sent of traces that are outside of the share."""

    def __init__(self, **rules: Any) -> None:
        self.clock, self.sent = ManualClock(), list[str]()
        rules = {"keeps": "refused", "alone": "begins", "work": frozenset({"solve", "review"}), **rules}
        self.held: HeldSpans[Span] = HeldSpans(Sampling(**rules), lambda span: self.sent.append(span.name), self.clock.monotonic)

    def tell(self, name: str, *, trace: int = 1, took_s: float = 0.0, failed: bool = False, **attributes: Any) -> None:
        self.held.add_span(Span(name, Of(trace), attributes, Ends(not failed), 0, int(took_s * 1e9)))


def test_unsampled_trace_without_a_refusal_is_not_sent():
    story = Story()
    for name in ("create", "queued", "solve", "admit", "bound"):
        story.tell(name, refused=False)
    assert story.sent == []
    assert len(story.held) == 5


@pytest.mark.parametrize("worth", [{"refused": True}, {"failed": True}, {"took_s": 0.25}])
def test_one_span_that_is_worth_it_brings_those_before_and_all_that_follow(worth: dict[str, Any]):
    story = Story()
    story.tell("create")
    story.tell("another", trace=2)
    story.tell("solve", **worth)
    story.tell("bound")
    assert story.sent == ["create", "solve", "bound"]
    assert len(story.held) == 1, "the other trace"


def test_only_work_is_slow_a_wait_may_last():
    story = Story(slow_s=0.1)
    story.tell("queued", took_s=3600)
    story.tell("solve", took_s=0.099)
    assert story.sent == []
    story.tell("review", took_s=0.1)
    assert story.sent == ["queued", "solve", "review"]


def test_root_span_of_an_unsampled_trace_is_sent_at_once():
    story = Story()
    story.tell("review", begins=True)
    story.tell("create")
    assert story.sent == ["review"]
    story.tell("solve", refused=True)
    assert story.sent == ["review", "create", "solve"]


def test_held_span_without_a_decision_in_time_is_dropped():
    story = Story()
    story.tell("create")
    story.clock.time += HELD_S - 1
    story.tell("create", trace=2)
    story.clock.time += 1
    story.tell("queued", trace=3)
    assert len(story.held) == 2, "the first is gone"
    story.tell("solve", refused=True)
    story.tell("solve", trace=2, refused=True)
    assert story.sent == ["solve", "create", "solve"]


def test_held_spans_are_limited_in_total_and_for_each_trace(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "MOST_HELD", 2 * MOST_OF_ONE)
    story = Story()
    for trace in (1, 2):
        for number in range(MOST_OF_ONE + 5):
            story.tell(f"{trace}.{number}", trace=trace)
    assert len(story.held) == 2 * MOST_OF_ONE
    story.tell("3.0", trace=3)
    assert len(story.held) == MOST_OF_ONE + 1, "the oldest trace gave way"
    story.tell("end", trace=2, refused=True)
    assert story.sent == [*(f"2.{number}" for number in range(5, MOST_OF_ONE + 5)), "end"], "the latest spans of it"
    story.tell("end", trace=1, refused=True)
    assert story.sent[-1] == "end"
    assert len(story.sent) == MOST_OF_ONE + 2


def test_traces_that_are_known_to_be_worth_it_have_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "MOST_KEPT", 2)
    story = Story()
    for trace in (1, 2, 1, 3):
        story.tell(f"refused {trace}", trace=trace, refused=True)
    for trace in (1, 2, 3):
        story.tell(f"after {trace}", trace=trace)
    assert story.sent[4:] == ["after 1", "after 3"], "the one that was longest without a span is forgotten"
