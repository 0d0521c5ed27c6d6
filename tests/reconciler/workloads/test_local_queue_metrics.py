"""What is told by LocalQueue where the gate is on: the same as of the ClusterQueue, each of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.metric_names import BY_LOCAL_QUEUE
from core.names import EVICTED
from tests.builders import build_condition_json, build_local_queue_json
from tests.reconciler.measured import MeasuredHarness

MAIN = {"name": "main", "namespace": "ns"}


@pytest.fixture
def harness() -> Iterator[MeasuredHarness]:
    harness = MeasuredHarness(by_local_queue=True)
    harness.put({"kind": "LocalQueue", **build_local_queue_json("other", "cq")})
    yield harness
    assert harness.metrics.shutdown()


def test_local_queue_metrics_count_only_their_own_workloads(harness: MeasuredHarness):
    harness.workload("w", count=2, owner=None)
    harness.workload("large", count=100, owner=None)
    harness.workload("elsewhere", count=1, owner=None, queue="other")
    harness.pass_time(30)
    harness.decide()
    found = harness.scrape()
    for queue, cpus in (("main", 2), ("other", 1)):
        of = {"name": queue, "namespace": "ns"}
        assert found.value("kueue_local_queue_reserving_active_workloads", **of) == 1
        assert found.value("kueue_local_queue_admitted_active_workloads", **of) == 1
        assert found.value("kueue_local_queue_resource_reservation", **of, flavor="gpu", resource="cpu") == cpus
        assert found.value("kueue_local_queue_resource_usage", **of, flavor="gpu", resource="cpu") == cpus
        assert found.value("kueue_local_queue_admitted_workloads_total", **of) == 1
        assert found.value("kueue_local_queue_admission_wait_time_seconds_sum", **of) == 30
        assert found.value("kueue_local_queue_pending_workloads", **of, status="inadmissible") == (queue == "main")
    assert found.value("kueue_admitted_workloads_total", cluster_queue="cq") == 2


def test_reserved_workload_that_is_not_admitted_counts_as_reservation_and_its_eviction_has_a_reason(harness: MeasuredHarness):
    harness.workload("w", count=2, owner=None)
    harness.decide()
    harness.set_condition("w", "Admitted", status=False)
    found = harness.scrape()
    assert found.value("kueue_local_queue_resource_reservation", **MAIN) == 2
    assert found.sum("kueue_local_queue_resource_usage", **MAIN) == 0
    harness.set_condition("w", EVICTED, reason="Preempted")
    assert harness.scrape().value("kueue_local_queue_evicted_workloads_total", **MAIN, reason="Preempted") == 1


def test_a_queue_is_active_as_its_condition_says(harness: MeasuredHarness):
    def said() -> dict[tuple[str, ...], float]:
        return harness.scrape().rows("kueue_local_queue_status", "name", "active")

    assert said()["main", "Unknown"] == 1
    queue = {"kind": "LocalQueue", **build_local_queue_json("main", "cq")}
    harness.put({**queue, "status": {"conditions": [build_condition_json("Active", reason="Ready")]}})
    assert {key: value for key, value in said().items() if key[0] == "main"} == {
        ("main", "True"): 1,
        ("main", "False"): 0,
        ("main", "Unknown"): 0,
    }


def test_local_queue_metrics_without_the_feature_gate_do_not_exist():
    harness = MeasuredHarness()
    harness.workload("w", count=2, owner=None)
    harness.decide()
    names = {sample.name for sample in harness.scrape().samples}
    assert not [name for name in names if name.startswith("kueue_local_queue_")]
    assert harness.metrics.shutdown()


def test_a_mirror_has_the_labels_of_a_local_queue_in_place_of_the_others():
    for one, mirror in BY_LOCAL_QUEUE.items():
        assert [label.name for label in mirror.labels][:2] == ["name", "namespace"]
        assert not {"cluster_queue", "cohort"} & {label.name for label in mirror.labels}
        assert (mirror.kind, mirror.buckets) == (one.kind, one.buckets)
