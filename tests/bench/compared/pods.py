"""Case (d): how fast the gated pods of one job are ungated."""

from __future__ import annotations

import threading
import time
from typing import Any

from core.names import TOPOLOGY_GATE
from e2e import manifests
from e2e.api import wait_for
from e2e.cluster import Cluster
from tests.bench.compared.managers import Measured, Window, make_manager
from tests.bench.compared.rig import wait_until_active
from tests.bench.ungate import NAMESPACE, TIMEOUT_S, build_pool, count_active, count_gated, is_gated, open_gated_queue

Obj = dict[str, Any]


class Ungated:
    """Hears of pods, and notes when the first and the last of `count` were without a gate."""

    def __init__(self, count: int) -> None:
        self._count, self._names = count, set[str]()
        self.first_at = self.last_at = 0.0
        self.are_all = threading.Event()

    def hear(self, kind: str, pod: Obj) -> None:
        if kind == "DELETED" or is_gated(pod) or pod["metadata"]["name"] in self._names:
            return
        self._names.add(pod["metadata"]["name"])
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at
        if len(self._names) == self._count:
            self.are_all.set()


def measure_pods(subject: str, pods: int) -> Measured:
    """One run on a new control plane: all pods are there, gated, before the manager starts. kube-scheduler is stopped.
    Raises TimeoutError."""
    pool = build_pool(pods)
    with Cluster() as cluster, make_manager(subject, cluster) as manager:
        open_gated_queue(cluster, pool, pods)
        wait_until_active(cluster)
        job = manifests.build_job("large", NAMESPACE, pods=pods, gpus=0, unconstrained="true", indexed=True)
        path = manifests.get_path(job)
        cluster.api.create(path, job)
        wait_for("the job to be started", lambda: not cluster.api.get(f"{path}/large")["spec"].get("suspend") or None, TIMEOUT_S)
        manager.stop()
        wait_for("all pods to be there", lambda: count_active(cluster.api.get(f"{path}/large")) >= pods or None, TIMEOUT_S, 1.0)
        cluster.stop_part("kube-scheduler")
        early = pods - count_gated(cluster.api)  # ungated while their job was still making others
        ungated = Ungated(pods)
        follower = cluster.follow(f"/api/v1/namespaces/{NAMESPACE}/pods", ungated.hear)
        window = Window(cluster, manager)
        began, ungated.first_at = time.monotonic(), 0.0
        manager.start_again()
        if not ungated.are_all.wait(TIMEOUT_S):
            raise TimeoutError(f"not all of {pods} pods were ungated in {TIMEOUT_S:g} s, which have the gate {TOPOLOGY_GATE}")
        follower.stop()
        took = max(0.001, ungated.last_at - ungated.first_at)
        figures = {
            "from the first pod to the last, s": round(took, 2),
            "pods a second": round((pods - early) / took),
            "from the start of the manager to the last, s": round(ungated.last_at - began, 2),
            "pods ungated before": early,
        }
        return window.close(pods, figures)
