"""A group of pods is one trace: why it waited, where it went, until it was bound; and it stays one when another process goes on."""

from __future__ import annotations

from core.names import TRACEPARENT_ANNOTATION
from e2e.audit.otlp import SpanRecord
from tests.reconciler.harness_groups import GroupsHarness
from tests.traces.conftest import CollectAll


def get_traceparent(harness: GroupsHarness, name: str = "g") -> str:
    return str(harness.get("PodGroup", name)["metadata"]["annotations"][TRACEPARENT_ANNOTATION])


def list_names(spans: list[SpanRecord]) -> list[str]:
    return sorted(span.name for span in spans)


def test_group_that_waited_has_one_complete_trace(collect_all: CollectAll):
    harness = GroupsHarness({"r1": (1, 1), "r2": (1,)})
    harness.gang(3)
    harness.add("p0", "p1", "p2")
    harness.settle()
    waited = harness.says[2]
    harness.node("r2-1", "r2", 2)
    harness.settle()
    harness.bind()
    harness.settle()
    spans = collect_all()
    assert list_names(spans) == ["placement.solve", "placement.solve", "places.keep", "podgroup.observe", "pods.bound", "pods.ungate"]
    (first,), (ungated,) = ([span for span in spans if span.name == name] for name in ("podgroup.observe", "pods.ungate"))
    refused, found = sorted((s for s in spans if s.name == "placement.solve"), key=lambda span: not span.attributes["topogate.refused"])
    assert {span.trace_id for span in spans} == {first.trace_id}
    assert {span.parent_id for span in spans if span is not first} == {first.span_id}
    assert (refused.attributes["topogate.refused"], refused.attributes["topogate.message"]) == (True, waited)
    assert [(name, event["topogate.domain.name"], event["topogate.domain.fit"]) for name, event in refused.events] == [
        ("placement.lacks", "r1", 2),
        ("placement.lacks", "r2", 1),
    ]
    assert found.attributes["topogate.refused"] is False
    places = {event["k8s.node.name"]: event["topogate.pod.count"] for _, event in ungated.events}
    assert places == {"r2-0": 1, "r2-1": 2}
    assert {pod["metadata"]["annotations"][TRACEPARENT_ANNOTATION] for pod in harness.pods.values()} == {get_traceparent(harness)}
    assert get_traceparent(harness).split("-")[1:3] == [first.trace_id, first.span_id]


def test_group_with_a_trace_annotation_continues_its_trace(collect_all: CollectAll):
    harness = GroupsHarness({"r1": (2,)})
    group = harness.gang(1)
    story = f"00-{'a' * 32}-{'b' * 16}-01"
    harness.put({**group, "metadata": {**group["metadata"], "annotations": {TRACEPARENT_ANNOTATION: story}}})
    harness.add("p0")
    harness.settle()
    spans = collect_all()
    assert list_names(spans) == ["placement.solve", "places.keep", "pods.ungate"]
    assert {(span.trace_id, span.parent_id) for span in spans} == {("a" * 32, "b" * 16)}


def test_group_without_tracing_gets_no_trace_annotation():
    harness = GroupsHarness({"r1": (2,)})
    harness.gang(1)
    harness.add("p0")
    harness.settle()
    assert "annotations" not in harness.get("PodGroup", "g")["metadata"]
    assert "annotations" not in harness.pods["p0"]["metadata"]
