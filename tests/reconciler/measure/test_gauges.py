"""What is read when somebody scrapes: queues, quota, levels, gated pods, decisions."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest

from core.model.pause_state import Pause, Stop
from core.names import EVICTED, HOSTNAME_LABEL, QUOTA_RESERVED, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.runtime.controller import Done, Result
from core.runtime.report.metrics import Reading
from core.runtime.workqueue import Item
from core.state.cluster import ClusterState
from reconciler.execute.controllers import build_controller
from reconciler.execute.event_recorder import Reporter
from reconciler.measure.gauges import read_controllers
from tests.builders import RACK, Node, build_cluster_queue_json, build_node_json
from tests.reconciler.measured import MeasuredHarness


@pytest.fixture
def harness() -> Iterator[MeasuredHarness]:
    harness = MeasuredHarness()
    yield harness
    assert harness.metrics.shutdown()


@pytest.fixture
def fair() -> Iterator[MeasuredHarness]:
    harness = MeasuredHarness(shares_fairly=True)
    yield harness
    assert harness.metrics.shutdown()


def put_queue(harness: MeasuredHarness, name: str = "cq", cpu: str = "10", **spec: Any) -> None:
    harness.put({"kind": "ClusterQueue", **build_cluster_queue_json(name, {"gpu": cpu}, **spec)})


def get_pending(harness: MeasuredHarness, queue: str = "cq") -> tuple[float, float]:
    """Active and inadmissible ones."""
    found = harness.scrape()
    active, inadmissible = (found.value("kueue_pending_workloads", cluster_queue=queue, status=s) for s in ("active", "inadmissible"))
    return active, inadmissible


# --- queues ----------------------------------------------------------------------------------------------


def test_pending_workload_counts_as_active_until_refused_and_again_after_a_change(harness: MeasuredHarness):
    harness.workload("w", count=11, owner=None)
    assert get_pending(harness) == (1, 0)
    harness.decide()
    assert get_pending(harness) == (0, 1)
    harness.workload("new", count=12, owner=None)
    assert get_pending(harness) == (1, 1)
    for name in ("n1", "n2"):
        harness.node(name, "r3")
    put_queue(harness, cpu="11")
    harness.decide()
    assert get_pending(harness) == (0, 1)
    found = harness.scrape()
    assert found.value("kueue_reserving_active_workloads", cluster_queue="cq") == 1
    assert found.value("kueue_admitted_active_workloads", cluster_queue="cq") == 1


def test_in_a_strict_queue_all_wait_for_their_turn(harness: MeasuredHarness):
    put_queue(harness, cpu="1")
    for name in ("a", "b"):
        harness.workload(name, count=2, owner=None)
    harness.decide()
    assert get_pending(harness) == (0, 2)
    put_queue(harness, cpu="1", strict=True)
    harness.decide()
    assert get_pending(harness) == (2, 0)


def test_pending_workloads_that_ask_for_the_same_are_one_scheduling_hash(harness: MeasuredHarness):
    for name, count in (("a", 11), ("b", 11), ("c", 12)):
        harness.workload(name, count=count, owner=None)
    harness.decide()
    rows = harness.scrape().rows("kueue_pending_scheduling_hashes", "cluster_queue", "status")
    assert rows == {("cq", "active"): 0, ("cq", "inadmissible"): 2}
    put_queue(harness, cpu="1", strict=True)
    harness.decide()
    rows = harness.scrape().rows("kueue_pending_scheduling_hashes", "cluster_queue", "status")
    assert rows == {("cq", "active"): 2, ("cq", "inadmissible"): 0}


def test_pending_workload_in_a_stopped_queue_counts_as_inadmissible(harness: MeasuredHarness):
    put_queue(harness, stopPolicy="Hold")
    harness.workload("w", count=1, owner=None)
    harness.decide()
    assert get_pending(harness) == (0, 1)
    rows = harness.scrape().rows("kueue_cluster_queue_status", "cluster_queue", "status")
    assert rows == {("cq", "pending"): 1, ("cq", "active"): 0, ("cq", "terminating"): 0}


def test_pending_workload_before_its_requeue_time_counts_as_inadmissible(harness: MeasuredHarness):
    workload = harness.workload("w", count=1, owner=None)
    harness.put({**workload, "status": {"requeueState": {"count": 1, "requeueAt": "2026-01-02T00:00:00Z"}}})
    harness.decide()
    assert get_pending(harness) == (0, 1)


def test_a_queue_that_can_admit_is_active(harness: MeasuredHarness):
    rows = harness.scrape().rows("kueue_cluster_queue_status", "cluster_queue", "status")
    assert rows == {("cq", "pending"): 0, ("cq", "active"): 1, ("cq", "terminating"): 0}


def test_quota_metrics_are_in_cores_and_include_configured_limits(harness: MeasuredHarness):
    limits = {"name": "cpu", "nominalQuota": "2500m", "borrowingLimit": "4", "lendingLimit": "500m"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "gpu", "resources": [limits]}]}
    put_queue(harness, cohortName="team", resourceGroups=[group])
    harness.workload("w", count=2, owner=None)
    harness.decide()
    found = harness.scrape()
    labels = {"cohort": "team", "cluster_queue": "cq", "flavor": "gpu", "resource": "cpu"}
    told = {"nominal_quota": 2.5, "borrowing_limit": 4, "lending_limit": 0.5, "resource_usage": 2, "resource_reservation": 2}
    assert {name: found.value(f"kueue_cluster_queue_{name}", **labels) for name in told} == told
    put_queue(harness)
    assert harness.scrape().rows("kueue_cluster_queue_borrowing_limit", "cluster_queue") == {}


def test_quota_that_waits_for_checks_is_reserved_and_not_used(harness: MeasuredHarness):
    harness.workload("w", count=2, owner=None)
    harness.decide()
    harness.set_condition("w", "Admitted", status=False)
    found = harness.scrape()
    assert found.value("kueue_cluster_queue_resource_reservation", cluster_queue="cq") == 2
    assert found.value("kueue_cluster_queue_resource_usage", cluster_queue="cq") == 0
    assert found.value("kueue_reserving_active_workloads", cluster_queue="cq") == 1
    assert found.value("kueue_admitted_active_workloads", cluster_queue="cq") == 0


def test_share_metrics_exist_only_with_fair_sharing(harness: MeasuredHarness, fair: MeasuredHarness):
    for one in (harness, fair):
        put_queue(one, cpu="1", cohortName="team")
        put_queue(one, "lender", cpu="3", cohortName="team")
        one.workload("w", count=2, owner=None)
        one.decide()
    assert fair.scrape().rows("kueue_cluster_queue_weighted_share", "cluster_queue") == {("cq",): 250, ("lender",): 0}
    assert harness.scrape().rows("kueue_cluster_queue_weighted_share", "cluster_queue") == {}


# --- decisions -------------------------------------------------------------------------------------------


def test_scheduling_cycle_that_reserves_quota_counts_as_successful_attempt(harness: MeasuredHarness):
    harness.workload("w", count=1, owner=None)
    harness.decide()
    harness.decide()
    harness.workload("large", count=11, owner=None)
    harness.decide()
    found = harness.scrape()
    assert found.rows("kueue_admission_attempts_total", "result") == {("success",): 1, ("inadmissible",): 1}
    assert found.value("kueue_admission_attempt_duration_seconds_count", result="success") == 1
    assert found.rows("topogate_decision_duration_seconds_count", "outcome") == {("found",): 1, ("refused",): 1}
    assert found.value("topogate_admission_write_seconds_count") == 1


def test_scheduler_wait_metric_shows_age_of_the_oldest_undecided_change(harness: MeasuredHarness):
    harness.pass_time(60)
    assert harness.scrape().value("topogate_scheduler_wait_seconds") == 60, "for all that was put there"
    harness.scheduler._wake.clear()
    assert harness.scrape().value("topogate_scheduler_wait_seconds") == 0
    harness.workload("w", count=1, owner=None)
    harness.pass_time(3)
    assert harness.scrape().value("topogate_scheduler_wait_seconds") == 3


def test_placements_are_held_against_the_fewest_domains(harness: MeasuredHarness):
    harness.workload("w", count=6, owner=None, topology={"preferred": RACK})
    harness.decide()
    found = harness.scrape()
    assert found.value("topogate_placement_excess_domains_bucket", level=RACK, le="0.0") == 1
    assert found.sum("topogate_placement_excess_domains_count") == 1


# --- levels ----------------------------------------------------------------------------------------------


def get_level_metric(harness: MeasuredHarness, name: str) -> dict[str, float]:
    return {level: value for (level,), value in harness.scrape().rows(f"topogate_level_{name}", "level").items()}


def test_level_metrics_show_free_capacity_and_fragmentation(harness: MeasuredHarness):
    harness.node("r1-m", "r1")
    harness.decide()  # builds the tree
    found = harness.scrape()
    assert found.rows("topogate_flavor_nodes", "flavor", "state") == {("gpu", "usable"): 3, ("gpu", "cordoned"): 0, ("gpu", "not_ready"): 0}
    assert get_level_metric(harness, "domains") == {RACK: 2, HOSTNAME_LABEL: 3}
    assert get_level_metric(harness, "largest_domain_capacity") == {RACK: 8, HOSTNAME_LABEL: 4}
    assert get_level_metric(harness, "fragmentation_ratio") == {RACK: 0, HOSTNAME_LABEL: 0}
    harness.workload("w", count=1, owner=None, topology={"required": RACK})
    harness.decide()  # the tightest rack is the one of one node
    found = harness.scrape()
    assert found.value("topogate_flavor_capacity", flavor="gpu", resource="cpu") == 12
    assert found.value("topogate_flavor_free", flavor="gpu", resource="cpu") == 11
    assert get_level_metric(harness, "largest_domain_free") == {RACK: 8, HOSTNAME_LABEL: 4}
    assert get_level_metric(harness, "fragmentation_ratio") == pytest.approx({RACK: 3 / 11, HOSTNAME_LABEL: 3 / 11})


def test_nodes_that_claim_to_have_everything_make_no_negative_capacity(harness: MeasuredHarness):
    """Two nodes with the most that is counted: their sum went below zero."""
    for name in ("r1-m", "r1-o", "r1-p"):
        labels = {RACK: "r1", HOSTNAME_LABEL: name}
        node = {"kind": "Node", **build_node_json(Node(name, labels, {"cpu": 4000, "pods": 110}))}
        node["status"]["allocatable"]["cpu"] = "10e399"
        harness.put(node)
    harness.decide()
    found = harness.scrape()
    assert found.value("topogate_flavor_capacity", flavor="gpu", resource="cpu") > 2**60 / 1000
    assert found.value("topogate_flavor_free", flavor="gpu", resource="cpu") > 2**60 / 1000
    assert all(value > 0 for value in get_level_metric(harness, "largest_domain_capacity").values())
    assert get_level_metric(harness, "fragmentation_ratio") == {RACK: 0, HOSTNAME_LABEL: 0}


def test_nodes_that_take_no_pods_are_no_capacity(harness: MeasuredHarness):
    harness.decide()
    labels = {RACK: "r1", HOSTNAME_LABEL: "r1-n"}
    harness.put({"kind": "Node", **build_node_json(Node("r1-n", labels, {"cpu": 4000, "pods": 110}, unschedulable=True))})
    labels = {RACK: "r2", HOSTNAME_LABEL: "r2-n"}
    harness.put({"kind": "Node", **build_node_json(Node("r2-n", labels, {"cpu": 4000, "pods": 110}, ready=False))})
    found = harness.scrape()
    assert found.rows("topogate_flavor_nodes", "state") == {("usable",): 0, ("cordoned",): 1, ("not_ready",): 1}
    assert found.value("topogate_flavor_capacity", flavor="gpu", resource="cpu") == 0
    assert get_level_metric(harness, "fragmentation_ratio") == {RACK: 0, HOSTNAME_LABEL: 0}


def test_scrape_builds_no_tree_and_shows_the_last_known_one(harness: MeasuredHarness, monkeypatch: pytest.MonkeyPatch):
    harness.decide()
    assert get_level_metric(harness, "domains") == {RACK: 2, HOSTNAME_LABEL: 2}
    harness.node("r3-n", "r3")  # the tree is dropped
    monkeypatch.setattr(ClusterState, "get_view", lambda *_: pytest.fail("a scrape must not build trees"))
    assert get_level_metric(harness, "domains") == {RACK: 2, HOSTNAME_LABEL: 2}
    monkeypatch.undo()
    harness.decide()
    assert get_level_metric(harness, "domains") == {RACK: 3, HOSTNAME_LABEL: 3}
    harness.drop("ResourceFlavor", "gpu")
    assert get_level_metric(harness, "domains") == {}


def test_ledger_drift_metric_shows_the_drifting_nodes(harness: MeasuredHarness):
    assert harness.scrape().value("topogate_ledger_drift_nodes") == 0
    harness.gauges.drifting = 3
    assert harness.scrape().value("topogate_ledger_drift_nodes") == 3


def test_paused_metric_while_evictions_are_paused_is_one_for_evictions_only(harness: MeasuredHarness):
    read = [harness.scrape().value("topogate_paused", what=what) for what in ("admissions", "evictions")]
    harness.observed.state.observe_pause(Pause(evictions=Stop("evictions")))
    read += [harness.scrape().value("topogate_paused", what=what) for what in ("admissions", "evictions")]
    assert read == [0, 0, 0, 1]


# --- pods ------------------------------------------------------------------------------------------------


def put_pod(harness: MeasuredHarness, name: str, *, workload: str = "w", gated: bool = True) -> None:
    spec = {"schedulingGates": [{"name": TOPOLOGY_GATE}]} if gated else {}
    harness.put({"kind": "Pod", "metadata": {"name": name, "annotations": {WORKLOAD_ANNOTATION: workload}}, "spec": spec})


def gates(harness: MeasuredHarness) -> tuple[float, float]:
    found = harness.scrape()
    return found.value("topogate_gated_pods"), found.value("topogate_gate_age_seconds")


def test_gated_pods_count_and_age_from_the_admission_of_their_workload(harness: MeasuredHarness):
    harness.workload("w", count=2, owner=None, topology={"required": RACK})
    put_pod(harness, "early")
    harness.pass_time(500)
    assert gates(harness) == (0, 0)
    harness.set_condition("w", QUOTA_RESERVED)
    assert gates(harness) == (0, 0), "its checks are not passed"
    harness.set_condition("w", QUOTA_RESERVED, status=False)
    harness.decide()
    harness.pass_time(30)
    put_pod(harness, "late")
    harness.pass_time(10)
    assert gates(harness) == (2, 40)
    put_pod(harness, "early", gated=False)
    assert gates(harness) == (1, 10)
    harness.set_condition("w", EVICTED)
    assert gates(harness) == (0, 0)
    harness.drop("Pod", "late")
    assert harness.gauges._gated == {}


# --- the process -----------------------------------------------------------------------------------------


def test_watch_metrics_show_restarts_by_cause_and_silence(harness: MeasuredHarness):
    for event in ("pods", "nodes"):
        informer = getattr(harness.observed, event)
        informer.watcher._received_at = harness.clock.monotonic()
    harness.observed.pods.watcher.restarts["gone"] = 2
    harness.observed.pods._synced.set()
    harness.pass_time(5)
    found = harness.scrape()
    assert found.value("topogate_watch_restarts_total", resource="pods", cause="gone") == 2
    assert found.value("topogate_watch_restarts_total", resource="nodes", cause="gone") == 0
    assert found.rows("topogate_watch_age_seconds", "resource") == {("pods",): 5}


def test_controller_metrics_show_queue_age_and_reconcile_results(harness: MeasuredHarness):
    async def reconcile(item: Item) -> Result:
        return Done()

    controller = build_controller("jobs", reconcile, harness.clock)

    async def work() -> None:
        controller.queue.add("a", "it is new")
        await controller._run(await controller.queue.get())
        controller.queue.finish("a")
        controller.queue.add("b", "it is new")

    harness.wait_for(work())
    harness.pass_time(8)

    def read() -> Reading:
        return read_controllers([controller])

    harness.metrics.read_by(read)
    found = harness.scrape()
    assert found.value("topogate_work_queue_depth", controller="jobs") == 1
    assert found.value("topogate_work_queue_age_seconds", controller="jobs") == 8
    assert found.value("topogate_reconciles_total", controller="jobs", result="done") == 1
    assert found.value("topogate_reconciles_total", controller="jobs", result="error") == 0


def test_events_that_are_left_out_are_counted(harness: MeasuredHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pacing, "EVENTS_WAITING", 20)
    workload = harness.workload("w", count=1, owner=None)
    reporter = Reporter(harness.client, harness.clock, harness.observed, harness.recorder)

    async def report() -> None:
        for number in range(pacing.EVENTS_WAITING + 3):
            reporter.record_event(r.WORKLOADS, workload, "Reason", f"message {number}")
        await reporter.settle()

    harness.wait_for(report())
    assert harness.scrape().value("topogate_events_dropped_total") == 3


def test_second_scrape_without_changes_shows_the_same_values(harness: MeasuredHarness):
    for number in range(20):
        put_queue(harness, f"q{number}")
    rows = harness.scrape().rows("kueue_cluster_queue_nominal_quota", "cluster_queue")
    assert rows == harness.scrape().rows("kueue_cluster_queue_nominal_quota", "cluster_queue")
    assert len(rows) == 21


def test_build_is_shown_by_the_name_of_kueue(harness: MeasuredHarness):
    assert harness.scrape().value("kueue_build_info", git_version=version("topogate")) == 1
