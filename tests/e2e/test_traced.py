"""Whether a trace is a whole story, what Jaeger's own form of it says, and what it looks like."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from core.names import QUOTA_RESERVED, TRACEPARENT_ANNOTATION
from e2e.audit import stories
from e2e.audit.otlp import SpanRecord
from e2e.audit.waterfall import to_svg
from e2e.jaeger import __main__ as run
from e2e.jaeger.server import JAEGER, VERSION, _read_records

SECOND = 1_000_000_000
TRACE = "c" * 32
SENTENCE = "couldn't assign flavors: <no rack> holds 9 & more"


def build_span(name: str, start: float, end: float, parent: str = "root", **attributes: Any) -> SpanRecord:
    told = {f"topogate.{key}": value for key, value in attributes.items()}
    return SpanRecord("topogate-reconciler", name, TRACE, name, parent, int(start * SECOND), int(end * SECOND), told)


def build_whole_story() -> list[SpanRecord]:
    """A story of which each step lasts a second."""
    first = SpanRecord("topogate-webhook", stories.STORY[0], TRACE, "root", "", 0, SECOND, {})
    return [first, *(build_span(name, start, start + 1.0) for start, name in enumerate(stories.STORY[1:], start=1))]


def test_a_whole_story_has_no_problem():
    assert stories.find_problems(build_whole_story()) == []


@pytest.mark.parametrize("name", stories.STORY[1:])
def test_a_missing_step_is_a_problem(name: str):
    assert f"the trace lacks the step {name}" in stories.find_problems([one for one in build_whole_story() if one.name != name])


def test_a_parent_from_elsewhere_is_a_problem():
    assert stories.find_problems([*build_whole_story(), build_span("x", 1, 2, parent="unknown")]) == [
        "span x has a parent outside of the trace"
    ]


def test_time_gap_in_a_trace_is_a_problem_unless_another_span_covers_it():
    late = [*build_whole_story(), build_span("late", 30, 31)]
    assert stories.find_problems(late) == ["nothing is told of the 21.0 s before late"]
    assert stories.find_problems([*late, build_span("wait", 5, 30)]) == []


def build_workload(status: str, message: str = SENTENCE) -> dict[str, Any]:
    condition = {"type": QUOTA_RESERVED, "status": status, "reason": "", "message": message}
    metadata = {"name": "w", "annotations": {TRACEPARENT_ANNOTATION: f"00-{TRACE}-{'1' * 16}-01"}}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


def test_trace_of_a_refused_workload_must_contain_the_exact_message():
    told = [build_span("placement.solve", 0, 1, refused=True, message=SENTENCE)]
    assert (
        stories.find_unreported_refusals(
            [build_workload("False"), build_workload("True", "other")], lambda trace: told if trace == TRACE else []
        )
        == []
    )
    missing = f"the trace of workload w does not say: {SENTENCE}."
    assert stories.find_unreported_refusals([build_workload("False", SENTENCE + ".")], lambda trace: told) == [missing]
    assert (
        stories.find_unreported_refusals(
            [build_workload("False")], lambda trace: [build_span("placement.solve", 0, 1, refused=False, message=SENTENCE)]
        )
        != []
    )
    assert stories.trace_of(None) == stories.trace_of({"metadata": {}}) == ""


def test_a_trace_of_jaeger_is_read_as_it_was_sent():
    own = {"traceID": "c" * 32, "spanID": "2" * 16, "operationName": "placement.solve", "startTime": 5_000_000, "duration": 250}
    references = [
        {"refType": "CHILD_OF", "traceID": "c" * 32, "spanID": "1" * 16},
        {"refType": "FOLLOWS_FROM", "traceID": "d" * 31, "spanID": "3" * 16},
    ]
    tags = [{"key": "topogate.refused", "type": "bool", "value": True}, {"key": "error", "type": "bool", "value": True}]
    fields = [{"key": "event", "type": "string", "value": "flavor.refused"}, {"key": "topogate.reason", "type": "string", "value": "r"}]
    logs = [{"timestamp": 5_000_100, "fields": fields}]
    trace = {
        "traceID": "c" * 32,
        "spans": [{**own, "references": references, "tags": tags, "logs": logs, "processID": "p1"}],
        "processes": {"p1": {"serviceName": "topogate-reconciler"}},
    }
    (read,) = _read_records(trace)
    assert (read.service, read.name, read.trace_id, read.parent_id) == ("topogate-reconciler", "placement.solve", "c" * 32, "1" * 16)
    assert (read.start_ns, read.end_ns) == (5 * SECOND, 5 * SECOND + 250_000)
    assert read.links == [("0" + "d" * 31, "3" * 16)]
    assert read.events == [("flavor.refused", {"topogate.reason": "r"})]
    assert read.attributes["topogate.refused"] is True
    assert read.is_error


def test_a_job_that_was_never_refused_is_not_the_one_to_show():
    def solve(refused: bool, start: float) -> SpanRecord:
        return build_span("placement.solve", start, start + 1, refused=refused)

    assert run.was_refused_then_admitted([solve(True, 0), solve(False, 1)]) == []
    for answers in ([], [False], [True], [False, True]):
        assert run.was_refused_then_admitted([solve(answer, i) for i, answer in enumerate(answers)]) != []


def test_the_picture_has_each_step_with_its_time_and_the_sentence_of_the_refusal():
    refused = build_span("placement.solve", 2, 2.0005, refused=True, reason="WaitingForQuota", message=SENTENCE)
    svg = to_svg([*build_whole_story(), refused, build_span(stories.STORY[0], 3, 4)], "A job & its story")
    root = ElementTree.fromstring(svg)
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in stories.STORY].count(stories.STORY[0]) == 1, "later reviews are left out"
    assert {*stories.STORY} <= set(texts)
    assert f"WaitingForQuota: {SENTENCE}" in texts
    assert {"0.5 ms", "1.0 s", "A job & its story", "0 s"} <= set(texts)
    width = float(root.attrib["width"])
    bars = [bar.attrib for bar in root.iter("{http://www.w3.org/2000/svg}rect") if "x" in bar.attrib]
    assert all(0 <= float(bar["x"]) <= float(bar["x"]) + float(bar["width"]) <= width for bar in bars)


def test_the_jaeger_is_the_one_that_is_pinned():
    pinned = (JAEGER.folder / "go.mod").read_text()
    assert f"github.com/jaegertracing/jaeger v{VERSION} // indirect\n" in pinned
    assert f"tool {JAEGER.package}\n" in pinned
    assert (JAEGER.folder / "go.sum").exists()
