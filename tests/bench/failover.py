"""A leader is killed on a large cluster: how soon its successor decides, and what it takes of memory and of its event loop.

    python -m tests.bench.failover [--nodes 5000] [--pods 50000] [--json]

Two reconcilers follow the same cluster; the one that leads is killed (SIGKILL) while jobs come, one every quarter of a second. Measured are
the seconds from the kill until the other leads and until it first admits a job that came after the kill; the memory of the successor at
its peak; how late its event loop was, asked twice a second, from its start until `WATCHED_S` after it began to lead. The pods are on the
nodes and belong to no queue. Nothing runs them: kwok, kube-scheduler and kube-controller-manager are stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.names import ADMITTED
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.audit.truth import is_true
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.process import Process, find_free_ports
from e2e.topogate import READY_MARK, Topogate
from tests.bench.parts.meter import Meter
from tests.bench.parts.one_queue import open_queue
from tests.scraped import Scraped

NAMESPACE = "failover"
QUOTAS: dict[str, str | int] = {"cpu": 1_000_000}
AIM_S, AIM_MB, AIM_LAG_S = 15.0, 1024, 0.1
WATCHED_S = 20.0
EVERY_S = 0.25
_AT_ONCE = 8
_PART_OF_ALL = 0.99
_LAG = "topogate_event_loop_lag_seconds"
_WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"


def measure(nodes: int, pods: int) -> dict[str, Any]:
    pool = build_pool(nodes)
    with Cluster() as cluster, Topogate(cluster) as topogate:
        names = cluster.add_nodes(pool, timeout_s=600)
        open_queue(cluster, pool, NAMESPACE, QUOTAS)
        for part in ("kube-scheduler", "kube-controller-manager", "kwok"):
            cluster.stop_part(part)
        fill(cluster.api, names, pods)
        first = topogate.reconciler
        assert first is not None
        health, metrics = find_free_ports(2)
        topogate.start_reconciler(wait=False, options=["--health-port", str(health), "--metrics-port", str(metrics)])
        second = topogate.reconciler
        assert second is not None
        meter = Meter.of({"reconciler": second.pid})
        wait_for("the second one to have seen everything", lambda: "state is complete" in second.log.read_text(), 300)
        found = _kill(cluster.api, first, second, metrics)
        return {"nodes": len(names), "pods": pods, **found, "peak_mb": meter.read()["reconciler"].peak_mb}


def _kill(api: Api, first: Process, second: Process, metrics: int) -> dict[str, Any]:
    killed, led, decided, number = 0.0, 0.0, 0.0, 0
    submitted: dict[str, float] = {}
    began = time.monotonic()
    while not led or time.monotonic() < led + WATCHED_S:
        number += 1
        name = f"job-{number:04}"
        job = manifests.build_job(name, NAMESPACE, pods=1, gpus=0, unconstrained="true")
        api.create(manifests.get_path(job), job)
        submitted[name] = time.monotonic()
        if not killed and time.monotonic() > began + 3.0:
            first.stop(grace_s=0)
            killed = time.monotonic()
        if killed and not led and READY_MARK in second.log.read_text():
            led = time.monotonic()
        if killed and not decided and _first_admitted_after(api, {n for n, at in submitted.items() if at > killed}):
            decided = time.monotonic()
        time.sleep(EVERY_S)
    admitted = wait_for("all jobs to be decided on", lambda: _whole(api, number), 120)
    return {
        "leads_s": round(led - killed, 1),
        "decides_s": round(decided - killed, 1),
        "jobs": number,
        "admitted": admitted,
        **_lags(metrics),
    }


def _first_admitted_after(api: Api, names: set[str]) -> bool:
    return any(is_true(w, ADMITTED) and w["metadata"]["ownerReferences"][0]["name"] in names for w in api.list(_WORKLOADS))


def _whole(api: Api, jobs: int) -> int | None:
    """How many workloads there are, once each job has one and all are admitted; None before."""
    found = api.list(_WORKLOADS)
    owners = {w["metadata"]["ownerReferences"][0]["name"] for w in found}
    return len(found) if len(owners) == len(found) == jobs and all(is_true(w, ADMITTED) for w in found) else None


def _lags(port: int) -> dict[str, float]:
    """Bounds of the histogram's buckets in which the 99th of a hundred lags and the longest are, and how many are longer than the aim."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        scraped = Scraped(reply.read().decode())
    buckets = sorted((math.inf if le == "+Inf" else float(le), count) for (le,), count in scraped.rows(f"{_LAG}_bucket", "le").items())
    total, in_time = buckets[-1][1], max(count for bound, count in buckets if bound <= AIM_LAG_S)
    p99, longest = (next(bound for bound, count in buckets if count >= part * total) for part in (_PART_OF_ALL, 1))
    return {"lag_p99_at_most_s": p99, "lag_longest_at_most_s": longest, "lags": total, "lags_too_long": total - in_time}


def build_pool(nodes: int) -> NodePool:
    """Racks of up to 50 nodes, in blocks of ten racks."""
    return NodePool(max(1, nodes // 500), 10, min(50, max(1, nodes // 10)), labels={"pool": "failover"})


def fill(api: Api, names: list[str], pods: int) -> None:
    """Pods of nobody's queue, on all nodes alike."""
    requests = {"requests": {"cpu": "100m", "memory": "128Mi"}}

    def create(number: int) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"other-{number:06}", "labels": {"app": f"app-{number % 500}"}},
            "spec": {
                "nodeName": names[number % len(names)],
                "containers": [{"name": "main", "image": "registry.example/other:1", "resources": requests}],
            },
        }
        api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", body)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(create, range(pods)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.failover", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    ensure_binaries()
    row = measure(options.nodes, options.pods)
    if options.json:
        print(json.dumps(row))
        return 0
    print("{nodes} nodes, {pods} pods of others; {jobs} jobs came, {admitted} workloads, each job admitted once".format(**row))
    print(f"killed; the other leads after {row['leads_s']} s, a job that came later is admitted after {row['decides_s']} s (aim {AIM_S:g})")
    print(f"memory at its peak {row['peak_mb']} MB (aim {AIM_MB})")
    print(f"99 of 100 times the event loop was late by at most {row['lag_p99_at_most_s']:g} s (aim {AIM_LAG_S:g}), always by at most")
    print(f"{row['lag_longest_at_most_s']:g} s; {row['lags_too_long']:g} of {row['lags']:g} times it was later than that aim")
    return 0


if __name__ == "__main__":
    sys.exit(main())
