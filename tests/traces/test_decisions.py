"""What a decision leaves on the traces of those that it is about, with the scheduler that decides in production."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from core.model.admission import Admission
from core.names import EVENT_SECOND_PASS_FAILED, EVICTED, QUOTA_RESERVED, TRACEPARENT_ANNOTATION
from core.plan.steps.steps import make_plan
from core.plan.workloads.workload_steps import give_back, plan_eviction_of
from core.queueing.flavors.outcome import Admissible, NotAdmissible, Preempting
from core.resource import Obj
from core.runtime.report import telemetry
from core.state.facts import find_condition
from e2e.audit.otlp import SpanRecord
from reconciler.execute import tracing
from reconciler.execute.tracing import convert_to_nanoseconds
from tests.builders import RACK, build_pod_set_json
from tests.reconciler.harness_queues import QueuesHarness
from tests.reconciler.schedule.test_second_pass import PassHarness
from tests.traces.conftest import CollectAll

SOLVE = "placement.solve"
STORY = f"00-{'c' * 32}-{'d' * 16}-01"


class Told(QueuesHarness):
    """Workloads that have come by admission requests, each with a trace of its own."""

    def submit(self, name: str, *, count: int, priority: int = 0, topology: Mapping[str, Any] | None = None) -> Obj:
        story = f"00-{name.encode().hex():a>32}-{'b' * 16}-01"
        spec = {"queueName": "main", "priority": priority, "podSets": [build_pod_set_json("main", count, topology=topology)]}
        metadata = {"name": name, "annotations": {TRACEPARENT_ANNOTATION: story}, "creationTimestamp": "2026-01-01T00:00:10Z"}
        return self.put({"kind": "Workload", "metadata": metadata, "spec": spec})

    def sentence(self, name: str) -> str:
        """What the user reads of why it waits."""
        found = find_condition(self.get("Workload", name), QUOTA_RESERVED)
        assert found is not None
        assert found["status"] == "False"
        return str(found["message"])


def of(spans: list[SpanRecord], name: str, workload: str) -> list[SpanRecord]:
    """Spans of one name about one workload, by start."""
    return [span for span in spans if span.name == name and span.attributes.get("topogate.workload.name") == workload]


def list_events(span: SpanRecord, name: str) -> list[dict[str, Any]]:
    return [attributes for event, attributes in span.events if event == name]


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no rack holds it": ({"count": 5, "topology": {"required": RACK}}, {}),
    "its level does not exist": ({"count": 1, "topology": {"required": "no/such-level"}}, {}),
    "it asks for more than there is quota": ({"count": 11}, {}),
    "others hold the quota": ({"count": 4}, {"quota": {"gpu": "3"}}),
    "its queue is stopped": ({"count": 1}, {"stopPolicy": "Hold"}),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_solve_span_of_a_refused_workload_has_the_condition_message(why: str, collect_all: CollectAll):
    asked, queue = REFUSALS[why]
    harness = Told()
    harness.queue(**{"quota": {"gpu": "10"}, **queue})
    harness.submit("w", **asked)
    harness.decide()
    (solve,) = of(collect_all(), SOLVE, "w")
    assert solve.attributes["topogate.message"] == harness.sentence("w")
    assert solve.attributes["topogate.refused"] is True
    assert solve.attributes["topogate.decision.pass"] == "first"
    assert not solve.is_error


def test_each_flavor_tried_and_each_level_with_its_best_domain_are_events(collect_all: CollectAll):
    harness = Told()
    harness.submit("w", count=5, topology={"required": RACK})
    harness.decide()
    (solve,) = of(collect_all(), SOLVE, "w")
    (refused,) = list_events(solve, "flavor.refused")
    assert (refused["topogate.flavor.name"], refused["topogate.pod_set.name"]) == ("gpu", "main")
    (best,) = list_events(solve, "level.best_domain")
    found = {key.removeprefix("topogate."): value for key, value in best.items()}
    assert (found["topology.level"], found["domain.name"], found["domain.fit"], found["domain.wanted"]) == (RACK, "r1", 4, 5)


def test_solve_span_of_a_preferred_level_that_does_not_fit_shows_both_domains(collect_all: CollectAll):
    harness = Told()
    harness.submit("w", count=5, topology={"preferred": RACK})
    harness.decide()
    (solve,) = of(collect_all(), SOLVE, "w")
    assert solve.attributes["topogate.refused"] is False
    assert [attributes["topogate.flavor.name"] for attributes in list_events(solve, "flavor.assigned")] == ["gpu"]
    (chosen,) = list_events(solve, "domain.chosen")
    assert chosen["topogate.domain.count"] == 2
    assert chosen["topogate.domain.name"] == "r1, r2"


def test_victims_are_events_of_the_decision_and_their_evictions_are_linked_to_it(collect_all: CollectAll):
    harness = Told()
    harness.queue({"gpu": "4"}, preemption={"withinClusterQueue": "LowerPriority"})
    for name in ("small", "other"):
        harness.submit(name, count=2)
    harness.decide()
    harness.submit("large", count=4, priority=10)
    harness.decide()
    spans = collect_all()
    (solve,) = of(spans, SOLVE, "large")
    assert solve.attributes["topogate.victim.count"] == 2
    assert solve.attributes["topogate.message"] == harness.sentence("large")
    victims = {attributes["topogate.victim.name"]: attributes for attributes in list_events(solve, "victim.chosen")}
    assert set(victims) == {"ns/small", "ns/other"}
    assert victims["ns/small"]["topogate.reason"] == "InClusterQueue"
    assert list_events(solve, "pod_set.placed"), "where it will go"
    for name in ("small", "other"):
        (evicted,) = of(spans, "workload.evict", name)
        assert (solve.trace_id, solve.span_id) in evicted.links
        assert evicted.trace_id != solve.trace_id
        assert evicted.attributes["topogate.preemptor.name"] == "ns/large"
        told = find_condition(harness.get("Workload", name), EVICTED)
        assert told is not None
        assert evicted.attributes["topogate.message"] == told["message"]


def test_solve_span_of_a_waiting_preemptor_names_its_leaving_victims(collect_all: CollectAll):
    workload = Told().submit("large", count=4)
    waits = Preempting(Admissible(Admission("cq", ()), (), ()), (), ("ns/small",), unseen=("ns/new",))
    with tracing.trace_step(SOLVE, workload) as span:
        tracing.explain(
            span, workload, NotAdmissible("WaitingForPreempted", "waits until 1 evicted workload are gone", (), preempting=waits)
        )
    (solve,) = collect_all()
    assert list_events(solve, "victim.leaving") == [{"topogate.victim.name": "ns/small"}]
    assert list_events(solve, "victim.unseen") == [{"topogate.victim.name": "ns/new"}]
    assert solve.attributes["topogate.victim.count"] == 0


def test_after_an_eviction_the_wait_begins_anew_with_it(collect_all: CollectAll):
    harness = Told()
    harness.submit("w", count=4)
    harness.decide()
    harness.pass_time(30)
    now = harness.executor.format_now()
    evict = plan_eviction_of(harness.get("Workload", "w"), "PodsReadyTimeout", "not ready in time", now)
    harness.wait_for(harness.executor.execute(make_plan(evict)))
    place = "cloud/rack r1 (node r1-n)"
    harness.wait_for(harness.executor.execute(make_plan(give_back(harness.get("Workload", "w"), place, now))))
    workload = harness.get("Workload", "w")
    for condition in workload["status"]["conditions"]:
        if condition["type"] == EVICTED:
            condition["lastTransitionTime"] = "2026-01-01T00:17:00Z"
    harness.put({**workload, "status": {**workload["status"], "requeueState": {"count": 2}}})
    harness.decide()
    spans = collect_all()
    first, second = of(spans, "workload.queued", "w")
    created, evicted_at = (datetime.fromisoformat(f"2026-01-01T00:{when}+00:00") for when in ("00:10", "17:00"))
    assert (first.start_ns, second.start_ns) == (convert_to_nanoseconds(created), convert_to_nanoseconds(evicted_at))
    assert "topogate.workload.requeue_count" not in first.attributes
    assert second.attributes["topogate.workload.requeue_count"] == 2
    (evicted,), (released,) = of(spans, "workload.evict", "w"), of(spans, "workload.release", "w")
    assert evicted.attributes["topogate.reason"] == "PodsReadyTimeout"
    assert evicted.attributes["topogate.message"] == released.attributes["topogate.message"] == "not ready in time"
    before, after = of(spans, "workload.admit", "w")
    assert "topogate.former" not in before.attributes
    assert after.attributes["topogate.former"] == "not ready in time. It was on cloud/rack r1 (node r1-n). Placed again on the same"


def test_cycle_span_records_a_refusal(collect_all: CollectAll):
    harness = Told()
    harness.submit("fits", count=1)
    harness.decide()
    harness.submit("refused", count=11)
    harness.decide()
    cycles = [span.attributes for span in collect_all() if span.name == "scheduler.cycle"]
    assert cycles == [{"topogate.verdict.count": 1, "topogate.refused": refused} for refused in (False, True)]


def test_a_collector_that_hangs_slows_no_decision():
    """It takes connections and never says a word, for longer than the exporter would wait."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        sending = telemetry.set_up("x", endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        harness = Told()
        for number in range(40):
            harness.submit(f"w{number}", count=11)
            harness.decide()
        assert not sending.shutdown(timeout_s=0.1), "it hangs still"
    assert all(harness.sentence(f"w{number}") for number in range(40))


# --- the second pass ------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_attempts_of_a_second_pass_and_the_wait_for_its_checks_are_told(collect_all: CollectAll):
    harness = PassHarness()
    harness.submit(5)
    workload = harness.get("Workload", "w")
    harness.put({**workload, "metadata": {**workload["metadata"], "annotations": {TRACEPARENT_ANNOTATION: STORY}}})
    async with harness.running():
        await asyncio.sleep(1)
        harness.say_ready()
        await asyncio.sleep(15)  # virtual: two attempts fail
        harness.node("r1-m", "r1")
        await asyncio.sleep(1)
    spans = [span for span in collect_all() if span.trace_id == STORY.split("-")[1]]
    solves = [(s.attributes["topogate.decision.pass"], s.attributes["topogate.refused"]) for s in spans if s.name == SOLVE]
    assert solves == [("first", False), ("second", True), ("second", True), ("second", False)]
    failed = [span for span in spans if span.name == SOLVE and span.attributes["topogate.refused"]]
    told = {event.message for event in harness.events if event.reason == EVENT_SECOND_PASS_FAILED}
    assert {span.attributes["topogate.message"] for span in failed} == told
    (checked,) = [span for span in spans if span.name == "workload.checked"]
    assert list_events(checked, "check.state") == [{"topogate.check.name": "check", "topogate.check.state": "Ready"}]
    reserved, admitted = [span for span in spans if span.name == "workload.admit"]
    assert checked.start_ns == convert_to_nanoseconds(datetime(2026, 1, 1, tzinfo=UTC)), "when it got quota, by its clock"
    assert reserved.end_ns <= checked.end_ns <= admitted.start_ns
