"""Metrics of a reconciler that works, on the real control plane: what they count is what the API has."""

from __future__ import annotations

import urllib.request

import pytest

from e2e.api import wait_for
from e2e.audit import truth
from e2e.topogate import Topogate
from tests.reconciler.scenes import GPU, Scene
from tests.scraped import Scraped

pytestmark = pytest.mark.cluster


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as reply:
        return str(reply.read().decode())


def test_metrics_scraped_while_jobs_run_agree_with_the_api(scene: Scene, topogate: Topogate) -> None:
    queue, flavor = f"{scene.prefix}queue", f"{scene.prefix}flavor"
    for name in ("a", "b"):
        scene.submit(name, pods=2, gpus=4, required=scene.rack)
    scene.submit("waits", pods=3, gpus=8, required=scene.rack)
    before = Scraped(get(topogate.metrics_url))
    scene.until_bound("a", 2)
    now = scene.until_bound("b", 2)
    scene.until_waiting("waits", "TopologyPlacementFailed")

    def agrees() -> Scraped | None:
        found = Scraped(get(topogate.metrics_url))
        gone = found.value("topogate_gated_pods") == 0
        return found if gone and found.rows("kueue_admitted_active_workloads", "cluster_queue").get((queue,)) == 2 else None

    found = wait_for("the metrics to count what is admitted", agrees)
    admitted = [workload for workload in now.workloads if truth.is_true(workload, "Admitted")]
    assert len(admitted) == 2
    for counter in ("kueue_admitted_workloads_total", "kueue_quota_reserved_workloads_total", "kueue_reserving_active_workloads"):
        assert found.value(counter, cluster_queue=queue) == len(admitted)
    assert found.rows("kueue_pending_workloads", "cluster_queue", "status")[queue, "inadmissible"] == 1
    assert found.value("kueue_admission_wait_time_seconds_count", cluster_queue=queue) == len(admitted)
    assert found.value("kueue_cluster_queue_resource_usage", cluster_queue=queue, resource=GPU) == 16
    assert found.value("topogate_flavor_capacity", flavor=flavor, resource=GPU) == 4 * 8
    assert found.value("topogate_flavor_free", flavor=flavor, resource=GPU) == 4 * 8 - 16
    bound = len(now.pods_of("a")) + len(now.pods_of("b"))
    assert found.sum("topogate_ungate_latency_seconds_count") - before.sum("topogate_ungate_latency_seconds_count") <= bound
    assert found.sum("topogate_ungate_latency_seconds_count") >= bound
    assert found.value("topogate_level_domains", flavor=flavor, level=scene.rack) == 2
    assert found.value("topogate_leader") == 1
    assert found.value("topogate_ledger_drift_nodes") == 0
    assert found.sum("topogate_reconciles_total", result="error") == 0
    scene.delete_job("a")
    wait_for(
        "what is free to be told",
        lambda: Scraped(get(topogate.metrics_url)).value("topogate_flavor_free", flavor=flavor, resource=GPU) == 24,
    )


def test_probes_and_the_webhooks_metrics_answer_while_they_work(scene: Scene, topogate: Topogate) -> None:
    assert (get(f"{topogate.health_url}/readyz"), get(f"{topogate.health_url}/healthz")) == ("ok", "ok")
    scene.submit("a", pods=1, gpus=1, required=scene.rack)
    scene.until_bound("a", 1)
    found = Scraped(get(topogate.webhook_metrics_url))
    assert found.sum("topogate_reviews_total", result="allowed") >= 2
    assert found.sum("topogate_reviews_total", result="failed") == 0
    assert found.value("topogate_certificate_expiry_seconds") > 86400
