"""Case (g): how soon something is admitted after a start, and after the end of a leader, on a cluster that is full of pods of others."""

from __future__ import annotations

import time

from core.names import ADMITTED
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.audit.truth import is_true
from e2e.cluster import Cluster
from tests.bench.compared.managers import Measured, Window, make_manager
from tests.bench.compared.rig import OTHER_PARTS, wait_until_active
from tests.bench.compared.victims import build_pods
from tests.bench.failover import NAMESPACE, QUOTAS, build_pool, fill
from tests.bench.parts.one_queue import open_queue

POLL_S, TIMEOUT_S, FOLLOWED_S, GRACE_S = 0.1, 300.0, 10.0, 30.0


def measure_leaders(subject: str, nodes: int, pods: int) -> Measured:
    """One run on a new control plane. What waits is a Workload without a job. Raises TimeoutError."""
    pool = build_pool(nodes)
    with Cluster() as cluster, make_manager(subject, cluster, elects=True) as manager:
        names = cluster.add_nodes(pool, timeout_s=600)
        open_queue(cluster, pool, NAMESPACE, QUOTAS)
        wait_until_active(cluster)
        for part in OTHER_PARTS:
            cluster.stop_part(part)
        fill(cluster.api, names, pods)
        _time_admission(cluster.api, "before", time.monotonic())
        manager.stop(GRACE_S)
        window = Window(cluster, manager)
        _create(cluster.api, "waits")
        began = time.monotonic()
        manager.start_again()
        _wait_for(cluster.api, "waits")
        started_s = time.monotonic() - began
        manager.start_another()
        time.sleep(FOLLOWED_S)  # the other one has read all that there is
        killed = time.monotonic()
        manager.stop()
        led_s = _time_admission(cluster.api, "next", killed)
        figures = {
            "from a start to the first admission, s": round(started_s, 1),
            "from the end of the leader to the next admission, s": round(led_s, 1),
        }
        return window.close(len(names), figures)


def _time_admission(api: Api, name: str, began: float) -> float:
    _create(api, name)
    _wait_for(api, name)
    return time.monotonic() - began


def _create(api: Api, name: str) -> None:
    workload = build_pods(name, NAMESPACE, 1, {"cpu": "1"})
    api.create(manifests.get_path(workload), workload)


def _wait_for(api: Api, name: str) -> None:
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads/{name}"
    wait_for(f"Workload {name} to be admitted", lambda: is_true(api.get(path), ADMITTED), TIMEOUT_S, POLL_S)
