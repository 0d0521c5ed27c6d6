"""Pods lead to the story of their workload, and where they came by requests of their own they are linked to it."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.contract import Defaults
from core.names import TRACEPARENT_ANNOTATION
from core.runtime.http.errors import Invalid
from e2e.audit.otlp import SpanRecord
from reconciler.execute import tracing
from tests.reconciler.harness_pods import KINDS, PodsHarness, admit, build_pod
from tests.reconciler.pods.test_ungater import Ungated
from tests.reconciler.pods.test_ungater import build_pod as gated_pod
from tests.reconciler.pods.test_ungater import build_workload as admitted_workload
from tests.traces.conftest import CollectAll


def story(letter: str) -> str:
    return f"00-{letter * 32}-{letter * 16}-01"


def link(letter: str) -> tuple[str, str]:
    return letter * 32, letter * 16


def named(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["annotations"][TRACEPARENT_ANNOTATION])


def by_name(spans: list[SpanRecord]) -> dict[str, SpanRecord]:
    return {span.name: span for span in spans}


def test_the_pods_of_a_group_are_linked_to_its_story_and_lead_to_it_once_they_are_started(collect_all: CollectAll):
    harness = PodsHarness()
    for name, letter in (("p0", "a"), ("p1", "b")):
        made = build_pod(name)
        made["metadata"]["annotations"][TRACEPARENT_ANNOTATION] = story(letter)
        harness.put(made)
    harness.run()
    (workload,) = harness.all("Workload")
    assert named(workload) == story("a"), "that of the pod which came first"
    admit(harness, workload["metadata"]["name"])
    harness.run()
    assert {named(obj) for obj in harness.all("Pod")} == {story("a")}
    spans = by_name(collect_all())
    for name in ("workload.create", "job.start"):
        assert spans[name].trace_id == "a" * 32
        assert link("b") in spans[name].links
        assert spans[name].attributes["topogate.object.kind"] == "PodGroup"


def test_ungate_span_of_a_batch_has_domains_cause_and_failed_pods(collect_all: CollectAll):
    harness = Ungated()
    workload = admitted_workload()
    workload["metadata"]["annotations"] = {TRACEPARENT_ANNOTATION: story("a")}
    harness.put(workload)
    for index in range(2):
        made = gated_pod(index)
        made["metadata"]["annotations"][TRACEPARENT_ANNOTATION] = story("a" if index else "b")
        harness.put(made)
    with tracing.trace_step("placement.solve", harness.get("Workload", "w")) as decision:
        tracing._store_trace(tracing._decision, story("a"), f"00-{'a' * 32}-{decision.get_span_context().span_id:016x}-01")
    harness.contradictory = {"p1"}
    with pytest.raises(Invalid):
        harness.reconcile()
    spans = by_name(collect_all())
    ungate = spans["pods.ungate"]
    assert ungate.links == [("a" * 32, spans["placement.solve"].span_id), link("b")]
    assert (ungate.attributes["topogate.pod.count"], ungate.attributes["topogate.domain.count"]) == (2, 2)
    domains = [attributes["topogate.domain.name"] for name, attributes in ungate.events if name == "domain.ungated"]
    assert domains == ["n0", "n1"]
    (failed,) = [attributes for name, attributes in ungate.events if name == "pod.failed"]
    assert failed["k8s.pod.name"] == "p1"
    assert "its own selector contradicts the domain" in failed["topogate.message"]


@pytest.mark.parametrize("kind", ["StatefulSet", "LeaderWorkerSet", "Deployment"])
def test_a_parent_of_pods_names_the_story_that_its_creation_began(kind: str):
    queued: dict[str, Any] = {"kind": kind, "metadata": {"name": "w", "labels": {"kueue.x-k8s.io/queue-name": "main"}}, "spec": {}}
    assert named(KINDS[kind].default(queued, Defaults(traceparent=story("a")))) == story("a")
    assert "annotations" not in KINDS[kind].default(queued, Defaults())["metadata"]
    unqueued = {**queued, "metadata": {"name": "w"}}
    assert "annotations" not in KINDS[kind].default(unqueued, Defaults(traceparent=story("a")))["metadata"]


def test_many_pods_of_other_stories_are_linked_up_to_a_bound():
    pods = [{"metadata": {"annotations": {TRACEPARENT_ANNOTATION: f"00-{i:032x}-{i:016x}-01"}}} for i in range(1, 100)]
    workload = {"metadata": {"annotations": {TRACEPARENT_ANNOTATION: story("a")}}}
    assert len(tracing.list_other_traces(pods, than=workload)) == tracing.MOST_LINKS
    assert tracing.list_other_traces(pods, than={"metadata": {}}) == [], "nothing is traced"


def test_gathering_of_first_pods_begins_with_their_admission(collect_all: CollectAll):
    """Though the pods are created later, and count as ungated from the moment that they are about to be."""
    harness, workload = Ungated(), admitted_workload()
    workload["metadata"]["annotations"] = {TRACEPARENT_ANNOTATION: story("a")}
    for condition in workload["status"]["conditions"]:
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    harness.put(workload)
    for index in range(2):
        made = gated_pod(index)
        made["metadata"]["creationTimestamp"] = "2026-01-01T00:05:00Z"
        harness.put(made)
    harness.reconcile()
    assert by_name(collect_all())["pods.gathered"].start_ns == 1_767_225_600_000_000_000
