"""The span of an admission review: where a story begins, what joins it, and what an answer of no looks like."""

from __future__ import annotations

import pytest

from core.names import TRACEPARENT_ANNOTATION
from e2e import manifests
from tests.traces.conftest import Collect
from tests.webhook.asking import MUTATE_JOB, VALIDATE_JOB, Webhook, apply, patch_of

REVIEW = "admission.review"
ANOTHERS = f"00-{'a' * 32}-{'1' * 16}-01"
JOB = manifests.build_job("train", "team-a", pods=4)


def annotated(traceparent: str) -> dict:
    return {**JOB, "metadata": {**JOB["metadata"], "annotations": {TRACEPARENT_ANNOTATION: traceparent, "keep": "this"}}}


def named_by(job: dict) -> tuple[str, str]:
    """Trace and span that a job names, which must be sampled."""
    version, trace_id, span_id, flags = job["metadata"]["annotations"][TRACEPARENT_ANNOTATION].split("-")
    assert version == "00"
    assert int(flags, 16) & 1
    return trace_id, span_id


def test_the_creation_of_a_job_begins_a_story_that_the_job_names(collect: Collect):
    stored = Webhook().mutate(JOB)
    root = collect()[REVIEW]
    assert (root.parent_id, root.links) == ("", [])
    assert set(stored["metadata"]["annotations"]) == {TRACEPARENT_ANNOTATION}
    assert named_by(stored) == (root.trace_id, root.span_id)
    assert (
        root.attributes.items()
        >= {
            "topogate.admission.path": MUTATE_JOB,
            "topogate.admission.operation": "CREATE",
            "topogate.object.kind": "Job",
            "topogate.trace.begins": True,
            "topogate.refused": False,
            "topogate.admission.uid": "4f0c",
            "topogate.admission.allowed": True,
            "k8s.namespace.name": "team-a",
        }.items()
    )


@pytest.mark.parametrize("traceparent", [ANOTHERS, ANOTHERS[:-1] + "0"], ids=["sampled", "not to be sampled"])
def test_a_job_that_was_copied_with_its_annotation_begins_a_story_of_its_own_and_is_linked(collect: Collect, traceparent: str):
    stored = Webhook().mutate(annotated(traceparent))
    root = collect()[REVIEW]
    assert root.trace_id != "a" * 32
    assert root.links == [("a" * 32, "1" * 16)]
    assert stored["metadata"]["annotations"]["keep"] == "this"
    assert named_by(stored) == (root.trace_id, root.span_id)


@pytest.mark.parametrize("traceparent", ["", "garbage", 7, None, ["x"], "x" * 100_000], ids=repr)
def test_a_malformed_one_is_replaced(collect: Collect, traceparent: str):
    webhook = Webhook()
    response = webhook.ask(MUTATE_JOB, annotated(traceparent))
    assert response["allowed"]
    root = collect()[REVIEW]
    assert (root.parent_id, root.links) == ("", [])
    if isinstance(traceparent, str):
        stored = apply(annotated(traceparent), patch_of(response))
        assert root.trace_id in stored["metadata"]["annotations"][TRACEPARENT_ANNOTATION]


def test_later_reviews_of_the_job_join_its_story(collect: Collect):
    Webhook().ask(VALIDATE_JOB, annotated(ANOTHERS))
    span = collect()[REVIEW]
    assert (span.trace_id, span.parent_id, span.links) == ("a" * 32, "1" * 16, [])


def test_review_span_of_a_refusal_has_its_message_and_no_error(collect: Collect):
    response = Webhook().ask(VALIDATE_JOB, manifests.build_job("train", "team-a", pods=4, required="not a label"))
    span = collect()[REVIEW]
    assert span.attributes["topogate.admission.allowed"] is False
    assert span.attributes["topogate.message"] == response["status"]["message"]
    assert not span.is_error


def test_a_look_up_that_failed_is_an_error(collect: Collect):
    Webhook(default_queue=None).ask(MUTATE_JOB, manifests.build_job("train", "team-a", pods=4, queue=None))
    span = collect()[REVIEW]
    assert span.is_error
    assert span.attributes["topogate.message"].endswith("try again")


def test_a_cluster_scoped_object_has_no_namespace(collect: Collect):
    Webhook().ask("/validate-kueue-x-k8s-io-v1beta2-topology", manifests.build_topology("t", ["rack"]), namespace="")
    assert "k8s.namespace.name" not in collect()[REVIEW].attributes


def test_review_of_a_changed_stateful_set_joins_its_trace(collect: Collect):
    """StatefulSets and their like are defaulted with every change."""
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "serve", "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": {TRACEPARENT_ANNOTATION: ANOTHERS}},
        "spec": {"replicas": 2, "template": {"metadata": {}, "spec": {"containers": []}}},
    }
    webhook = Webhook()
    response = webhook.ask("/mutate-apps-v1-statefulset", stateful, old=stateful, operation="UPDATE")
    assert apply(stateful, patch_of(response))["metadata"]["annotations"][TRACEPARENT_ANNOTATION] == ANOTHERS
    span = collect()[REVIEW]
    assert (span.trace_id, span.parent_id, span.links) == ("a" * 32, "1" * 16, [])
    assert "topogate.trace.begins" not in span.attributes
