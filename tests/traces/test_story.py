"""One trace tells a job's story from its admission request to bound pods, as a collector gets it from both processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from core.names import QUOTA_RESERVED, TRACEPARENT_ANNOTATION
from e2e.api import wait_for
from e2e.audit import stories, truth
from e2e.audit.otlp import Receiver, SpanRecord
from e2e.audit.stories import STORY
from e2e.cluster import Cluster
from tests.installed import Installed
from tests.traces.scene import Scene, scene

MALFORMED = "00-zz-\n-01" + "x" * 1000
CREATED_BY_USER, REVIEW = "/mutate-batch-v1-job", "admission.review"


@dataclass
class Told:
    """What was sent about a few jobs, and how they ended."""

    scene: Scene
    now: truth.Snapshot
    everything: list[SpanRecord]
    traces: dict[str, list[SpanRecord]] = field(default_factory=dict)  # by job

    def steps(self, job: str) -> dict[str, SpanRecord]:
        """The first span of each name: later ones are further reviews, or a second look before the first one's result was seen."""
        return {span.name: span for span in reversed(self.traces[job])}


@pytest.fixture(scope="module")
def told(cluster: Cluster, installed: Installed) -> Iterator[Told]:
    """A job that fits; two with traceparents of their own making, which fit, too; and one that does not."""
    with Receiver() as receiver:
        installed.run(otlp_endpoint=receiver.endpoint)
        with scene(cluster, "story") as here:
            here.submit("fits", pods=4, gpus=2)
            here.wait_bound("fits", 4)
            forged = f"00-{here.story('fits')}-{'1' * 16}-00"  # somebody else's trace, and not to be sampled
            here.submit("forged", pods=1, annotations={TRACEPARENT_ANNOTATION: forged})
            here.submit("malformed", pods=1, annotations={TRACEPARENT_ANNOTATION: MALFORMED, "keep": "this"})
            for job in ("forged", "malformed"):
                here.wait_bound(job, 1)
                patch = {"metadata": {"annotations": {TRACEPARENT_ANNOTATION: MALFORMED, "later": "too"}}}
                cluster.api.patch(f"/apis/batch/v1/namespaces/story/jobs/{job}", patch)
            here.submit("refused", pods=3, gpus=8)  # last, so that nothing changes its reason any more
            wait_for("a reason", lambda: truth.get_condition(here.read().workload_of("refused"), QUOTA_RESERVED))
            stories = {job: here.story(job) for job in ("fits", "refused", "forged", "malformed")}
            whole = {job: set(STORY) if job != "refused" else {REVIEW, "workload.create", "placement.solve"} for job in stories}

            def arrived() -> bool:
                return all(whole[job] <= {span.name for span in receiver.list_spans(trace)} for job, trace in stories.items())

            wait_for("the spans", arrived)
            yield Told(here, here.read(), receiver.list_spans(), {job: receiver.list_spans(trace) for job, trace in stories.items()})


@pytest.mark.parametrize("job", ["fits", "forged", "malformed"])
def test_the_trace_has_every_step_and_its_first_span_is_the_admission_request(told: Told, job: str):
    spans = told.traces[job]
    assert {span.name for span in spans} == set(STORY)
    (root,) = [span for span in spans if not span.parent_id]
    assert root is spans[0], "nothing comes before its cause"
    assert (root.name, root.service) == (REVIEW, "topogate-webhook")
    assert root.attributes["topogate.admission.path"] == CREATED_BY_USER
    assert {span.parent_id for span in spans if span is not root} == {root.span_id}
    assert not [span.name for span in spans if span.is_error]
    assert stories.find_problems(spans) == []


def test_the_steps_follow_each_other_in_the_order_in_which_they_happened(told: Told):
    steps = told.steps("fits")
    for earlier, later in pairwise(name for name in STORY[:-1] if name != "pods.gathered"):
        assert steps[earlier].start_ns <= steps[later].start_ns, f"{later} begins before {earlier}"
    assert follows(steps["workload.create"], steps["workload.queued"])
    assert steps["workload.queued"].end_ns <= steps["workload.admit"].start_ns
    assert follows(steps["workload.admit"], steps["pods.gathered"])
    assert steps["pods.gathered"].end_ns <= steps["pods.ungate"].start_ns
    assert steps["pods.bound"].end_ns >= steps["pods.ungate"].end_ns, "bound is the end of the story"
    assert all(span.start_ns <= span.end_ns for span in told.everything)


def follows(cause: SpanRecord, effect: SpanRecord) -> bool:
    """What a write brings about begins with its end, or with its beginning where it was seen before the reply had come."""
    return cause.end_ns <= effect.start_ns or cause.start_ns == effect.start_ns


def test_trace_of_a_job_contains_spans_of_each_process(told: Told):
    services = {(span.service, span.name == REVIEW) for trace in told.traces.values() for span in trace}
    assert services == {("topogate-webhook", True), ("topogate-reconciler", False)}


def test_decisions_are_linked_to_the_cycle_that_made_them(told: Told):
    cycles = {(span.trace_id, span.span_id): span for span in told.everything if span.name == "scheduler.cycle"}
    for job, names in (("fits", ("workload.queued", "placement.solve", "workload.admit")), ("refused", ("placement.solve",))):
        for name in names:
            (link,) = told.steps(job)[name].links
            assert link in cycles
            assert link[0] != told.steps(job)[name].trace_id
    assert all(cycle.attributes["topogate.verdict.count"] >= 1 for cycle in cycles.values()), "those that decide nothing are not sent"


def test_each_span_names_its_object(told: Told):
    workload = told.now.workload_of("fits")
    assert workload is not None
    for name, span in told.steps("fits").items():
        expected: dict[str, Any] = {"k8s.namespace.name": "story"}
        if name not in (REVIEW, "workload.create"):
            expected["topogate.workload.name"] = workload["metadata"]["name"]
        if name in ("workload.create", "job.start"):
            expected["k8s.job.name"] = "fits"
        if name in ("workload.queued", "placement.solve", "workload.admit"):
            expected["topogate.cluster_queue.name"] = "story"
        if name == "pods.bound":
            expected["topogate.pod.count"] = 4
        assert expected.items() <= span.attributes.items(), name
    ungated = [span.attributes["topogate.pod.count"] for span in told.traces["fits"] if span.name == "pods.ungate"]
    assert sum(ungated) >= 4, "in more than one step where the pods come one by one"
    assert told.steps("fits")["pods.gathered"].attributes["topogate.pod.count"] == ungated[0]
    reviews = [span.attributes for span in told.traces["fits"] if span.name == REVIEW]
    assert {(r["topogate.object.kind"], r["topogate.object.name"]) for r in reviews} == {
        ("Job", "fits"),
        ("Workload", workload["metadata"]["name"]),
    }
    assert all(r["topogate.admission.allowed"] and not r["topogate.admission.dry_run"] for r in reviews)


def test_the_placement_is_an_event_of_the_solve(told: Told):
    (assigned, flavor), (name, attributes), (chosen, why) = told.steps("fits")["placement.solve"].events
    assert (assigned, name, chosen) == ("flavor.assigned", "pod_set.placed", "domain.chosen")
    assert flavor == {"topogate.pod_set.name": "main", "topogate.flavor.name": "story", "topogate.pod.count": 4}
    assert "pod set main: " in why["topogate.message"]
    assert (why["topogate.topology.level"], why["topogate.domain.wanted"]) == (told.scene.pool.rack_label, 4)
    (pod_node,) = {pod["spec"]["nodeName"] for pod in told.now.pods_of("fits")}
    assert attributes == {
        "topogate.flavor.name": "story",
        "topogate.pod_set.name": "main",
        "topogate.topology.level": told.scene.pool.rack_label,
        "topogate.domain.count": 1,
        "topogate.pod.count": 4,
        "topogate.message": f"{pod_node}=4",
    }


def test_a_refusal_carries_the_sentence_of_the_condition_and_the_facts_behind_it(told: Told):
    condition = truth.get_condition(told.now.workload_of("refused"), QUOTA_RESERVED)
    solve = told.steps("refused")["placement.solve"]
    assert condition["status"] == "False"
    assert solve.attributes["topogate.message"] == condition["message"]
    assert solve.attributes["topogate.reason"] == condition["reason"]
    assert not solve.is_error, "a workload that waits is no failure"
    events = [(name, attributes) for name, attributes in solve.events]
    (refused,) = [attributes for name, attributes in events if name == "flavor.refused"]
    assert refused["topogate.message"] in condition["message"]
    levels = {attributes["topogate.topology.level"]: attributes for name, attributes in events if name == "level.best_domain"}
    assert set(levels) == {told.scene.pool.rack_label, told.scene.pool.block_label}
    assert "2 of 3 pods" in levels[told.scene.pool.rack_label]["topogate.message"]
    exclusions = {attributes["topogate.reason"]: attributes for name, attributes in events if name == "nodes.excluded"}
    busy = exclusions['resource "nvidia.com/gpu"']
    assert busy["topogate.node.count"] >= 1
    assert busy["k8s.node.name"] in told.now.nodes
    assert {span.name for span in told.traces["refused"]} == {REVIEW, "workload.create", "placement.solve"}


@pytest.mark.parametrize("job", ["forged", "malformed"])
def test_a_traceparent_of_the_users_making_does_no_harm(told: Told, job: str):
    traces = [spans[0].trace_id for spans in told.traces.values()]
    assert len(set(traces)) == len(traces), "no two jobs share a trace"
    assert not [span for span in told.everything if span.parent_id == "1" * 16]
    links = told.traces[job][0].links
    assert links == ([(told.traces["fits"][0].trace_id, "1" * 16)] if job == "forged" else [])
    stored = next(obj for obj in told.now.jobs if obj["metadata"]["name"] == job)
    assert stored["metadata"]["annotations"]["later"] == "too", "it can be changed afterwards, too"


def test_a_span_of_each_pod_could_join_the_story(told: Told):
    pods = told.now.pods_of("fits")
    assert len(pods) == 4
    assert {pod["metadata"]["annotations"][TRACEPARENT_ANNOTATION].split("-")[1] for pod in pods} == {told.traces["fits"][0].trace_id}
