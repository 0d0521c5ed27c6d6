"""Counters and waits of workloads' lives, by the peer's names: what they say is what the objects say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from core.names import (
    ADMISSION_GATE,
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    QUOTA_RESERVED,
    REASON_RECOVERED,
    REASON_STARTED,
    REASON_WAIT_FOR_RECOVERY,
    TOPOLOGY_GATE,
    TRACEPARENT_ANNOTATION,
    WORKLOAD_ANNOTATION,
)
from core.runtime.watch.watch_step import InitApply, InitDone
from tests.builders import RACK, build_cluster_queue_json
from tests.reconciler.measured import MeasuredHarness


@pytest.fixture
def harness() -> Iterator[MeasuredHarness]:
    harness = MeasuredHarness()
    yield harness
    assert harness.metrics.shutdown()


def evict(harness: MeasuredHarness, name: str, reason: str) -> None:
    harness.set_condition(name, EVICTED, reason=reason)


def stop(harness: MeasuredHarness, name: str) -> None:
    """Its job has stopped: quota is given back."""
    for kind in (ADMITTED, QUOTA_RESERVED):
        harness.set_condition(name, kind, status=False, admission=None)


def test_an_admission_is_counted_once_with_its_wait(harness: MeasuredHarness):
    harness.workload("w", count=2, owner=None, topology={"required": RACK})
    harness.pass_time(30)
    harness.decide()
    found = harness.scrape()
    for total in ("kueue_quota_reserved_workloads_total", "kueue_admitted_workloads_total"):
        assert found.rows(total, "cluster_queue") == {("cq",): 1}
    for wait in ("kueue_quota_reserved_wait_time_seconds", "kueue_admission_wait_time_seconds"):
        assert found.value(f"{wait}_count", cluster_queue="cq") == 1
        assert found.value(f"{wait}_sum", cluster_queue="cq") == 30
        assert found.value(f"{wait}_bucket", cluster_queue="cq", le="20.0") == 0
        assert found.value(f"{wait}_bucket", cluster_queue="cq", le="40.0") == 1
    assert found.sum("kueue_admission_checks_wait_time_seconds_count") == 0
    harness.put(harness.get("Workload", "w"))
    assert harness.scrape().value("kueue_admitted_workloads_total", cluster_queue="cq") == 1


def test_the_bucket_of_a_wait_leads_to_the_trace_of_the_workload(harness: MeasuredHarness):
    workload = harness.workload("w", count=1, owner=None)
    story = f"00-{'ab' * 16}-{'cd' * 8}-01"
    harness.put({**workload, "metadata": {**workload["metadata"], "annotations": {TRACEPARENT_ANNOTATION: story}}})
    harness.pass_time(3)
    harness.decide()
    text, _ = harness.metrics.expose("application/openmetrics-text; version=1.0.0")
    examples = {
        (family.name, sample.labels["le"]): sample.exemplar.labels["trace_id"]
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.exemplar is not None
    }
    waits = [("kueue_admission_wait_time_seconds", "5.0"), ("kueue_quota_reserved_wait_time_seconds", "5.0")]
    assert {name: examples[name] for name in waits} == dict.fromkeys(waits, "ab" * 16)


def test_counters_of_a_queue_begin_at_zero(harness: MeasuredHarness):
    assert harness.scrape().value("kueue_admitted_workloads_total", cluster_queue="cq") == 0


def test_workloads_listed_at_start_are_not_counted_as_admitted_or_evicted(harness: MeasuredHarness):
    workload = harness.workload("w", count=1, owner=None)
    harness.drop("Workload", "w")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": harness.now()} for kind in (QUOTA_RESERVED, ADMITTED, EVICTED)]
    known = {**workload, "status": {"conditions": conditions, "admission": {"clusterQueue": "cq", "podSetAssignments": []}}}
    for event in (InitApply(known), InitDone()):
        harness.observed.workloads._fold(event)
    found = harness.scrape()
    assert found.value("kueue_admitted_workloads_total", cluster_queue="cq") == 0
    assert found.sum("kueue_evicted_workloads_total") == 0


def test_an_eviction_is_counted_by_its_reason_and_the_next_wait_begins_with_it(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    harness.decide()
    harness.pass_time(100)
    evict(harness, "w", "PodsReadyTimeout")
    harness.set_condition("w", "Requeued")
    assert harness.scrape().rows("kueue_evicted_workloads_total", "cluster_queue", "reason") == {("cq", "PodsReadyTimeout"): 1}
    stop(harness, "w")
    harness.pass_time(20)
    harness.decide()
    found = harness.scrape()
    assert found.value("kueue_admitted_workloads_total", cluster_queue="cq") == 2
    assert found.value("kueue_admission_wait_time_seconds_sum", cluster_queue="cq") == 20
    evict(harness, "w", "Preempted")
    assert harness.scrape().sum("kueue_evicted_workloads_total") == 2


CAUSES: dict[str, tuple[str, str]] = {
    "Preempted": ("Preempted", ""),
    "NodeFailures": ("NodeFailures", ""),
    "DeactivatedDueToRequeuingLimitExceeded": ("Deactivated", "RequeuingLimitExceeded"),
    "DeactivatedDueToSomethingOfMyOwn": ("Deactivated", "other"),
    "SomethingOfMyOwn": ("other", ""),
}


@pytest.mark.parametrize("written", CAUSES)
def test_eviction_metric_maps_reasons_to_known_values(harness: MeasuredHarness, written: str):
    harness.workload("w", count=1, owner=None)
    harness.decide()
    evict(harness, "w", written)
    rows = harness.scrape().rows("kueue_evicted_workloads_total", "cluster_queue", "reason", "underlying_cause")
    assert rows == {("cq", *CAUSES[written]): 1}


def test_eviction_that_releases_quota_in_the_same_write_is_counted_for_its_queue(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    harness.decide()
    harness.set_condition("w", EVICTED, reason="AdmissionCheck", admission=None)
    assert harness.scrape().rows("kueue_evicted_workloads_total", "cluster_queue", "reason") == {("cq", "AdmissionCheck"): 1}


def test_checks_wait_time_of_workload_with_admission_checks_is_recorded(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    admission = {"clusterQueue": "cq", "podSetAssignments": []}
    harness.pass_time(10)
    harness.set_condition("w", QUOTA_RESERVED, admission=admission, admissionChecks=[{"name": "c", "state": "Pending"}])
    harness.pass_time(50)
    harness.set_condition("w", ADMITTED)
    found = harness.scrape()
    assert found.value("kueue_quota_reserved_wait_time_seconds_sum", cluster_queue="cq") == 10
    assert found.value("kueue_admission_checks_wait_time_seconds_sum", cluster_queue="cq") == 50
    assert found.value("kueue_admission_wait_time_seconds_sum", cluster_queue="cq") == 60


def test_pods_ready_wait_is_recorded_since_queueing_and_since_admission(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    harness.pass_time(7)
    harness.decide()
    harness.pass_time(5)
    harness.set_condition("w", PODS_READY)
    found = harness.scrape()
    assert found.value("kueue_ready_wait_time_seconds_sum", cluster_queue="cq") == 12
    assert found.value("kueue_admitted_until_ready_wait_time_seconds_sum", cluster_queue="cq") == 5


def test_recovery_wait_is_recorded_apart_from_the_wait_for_the_first_start(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    harness.decide()
    harness.set_condition("w", PODS_READY, reason=REASON_STARTED)
    harness.set_condition("w", PODS_READY, status=False, reason=REASON_WAIT_FOR_RECOVERY)
    harness.pass_time(45)
    harness.set_condition("w", PODS_READY, reason=REASON_RECOVERED)
    found = harness.scrape()
    assert found.value("kueue_workload_recovery_wait_time_seconds_sum", cluster_queue="cq") == 45
    assert found.value("kueue_ready_wait_time_seconds_count", cluster_queue="cq") == 1


def test_execution_time_is_that_of_all_admissions_of_a_finished_workload(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    harness.decide()
    harness.pass_time(100)
    harness.set_condition("w", PODS_READY, accumulatedPastExecutionTimeSeconds=20)
    assert harness.scrape().sum("kueue_execution_time_seconds_count") == 0
    harness.set_condition("w", FINISHED)
    found = harness.scrape()
    assert found.value("kueue_execution_time_seconds_sum", cluster_queue="cq") == 120
    assert found.value("kueue_execution_time_seconds_count", cluster_queue="cq") == 1


def test_execution_time_of_a_workload_that_finished_before_the_start_is_not_recorded(harness: MeasuredHarness):
    workload = harness.workload("w", count=1, owner=None)
    harness.drop("Workload", "w")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": harness.now()} for kind in (QUOTA_RESERVED, ADMITTED, FINISHED)]
    known = {**workload, "status": {"conditions": conditions, "admission": {"clusterQueue": "cq", "podSetAssignments": []}}}
    for event in (InitApply(known), InitDone()):
        harness.observed.workloads._fold(event)
    assert harness.scrape().sum("kueue_execution_time_seconds_count") == 0


def test_preempted_workload_is_counted_for_the_queue_of_its_preemptor(harness: MeasuredHarness):
    preemption = {"withinClusterQueue": "LowerPriority"}
    harness.put({"kind": "ClusterQueue", **build_cluster_queue_json("cq", {"gpu": "2"}, preemption=preemption)})
    harness.workload("low", count=2, owner=None)
    harness.decide()
    urgent: dict[str, Any] = harness.workload("high", count=2, owner=None)
    harness.put({**urgent, "spec": {**urgent["spec"], "priority": 100}})
    harness.decide()
    found = harness.scrape()
    assert found.rows("kueue_preempted_workloads_total", "preempting_cluster_queue", "reason") == {("cq", "InClusterQueue"): 1}
    assert found.rows("kueue_evicted_workloads_total", "cluster_queue", "reason") == {("cq", "Preempted"): 1}


def test_latency_metrics_drop_their_record_of_a_deleted_workload(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    harness.decide()
    assert len(harness.milestones._queued) == 1
    harness.drop("Workload", "w")
    assert harness.milestones._queued == {}


def test_workload_that_is_evicted_again_is_counted_once_among_those_that_were_evicted(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    for times in (1, 2):
        harness.decide()
        stats = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": times}]}
        harness.set_condition("w", EVICTED, reason="Preempted", schedulingStats=stats)
        stop(harness, "w")
        harness.set_condition("w", EVICTED, status=False)
    found = harness.scrape()
    assert found.rows("kueue_evicted_workloads_total", "cluster_queue", "reason") == {("cq", "Preempted"): 2}
    assert found.rows("kueue_evicted_workloads_once_total", "cluster_queue", "reason") == {("cq", "Preempted"): 1}


@pytest.mark.parametrize("gate", [ADMISSION_GATE, TOPOLOGY_GATE])
def test_removed_gate_is_recorded_with_the_time_since_the_admission(harness: MeasuredHarness, gate: str):
    harness.workload("w", count=1, owner=None)
    metadata = {"name": "p", "annotations": {WORKLOAD_ANNOTATION: "w"}}
    gated = {"kind": "Pod", "metadata": metadata, "spec": {"schedulingGates": [{"name": gate}]}}
    harness.put(gated)
    harness.decide()
    harness.pass_time(4)
    harness.put({**gated, "spec": {}})
    found, name = harness.scrape(), "kueue_pod_scheduling_gate_removal_seconds"
    marks = {"cluster_queue": "cq", "name": gate, "is_group": "false"}
    assert (found.value(f"{name}_count", **marks), found.value(f"{name}_sum", **marks)) == (1, 4)


def test_gate_of_a_pod_of_a_workload_that_is_not_admitted_is_not_recorded(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    gated = {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {WORKLOAD_ANNOTATION: "w"}},
        "spec": {"schedulingGates": [{"name": TOPOLOGY_GATE}]},
    }
    harness.put(gated)
    harness.put({**gated, "spec": {}})
    assert harness.scrape().sum("kueue_pod_scheduling_gate_removal_seconds_count") == 0
