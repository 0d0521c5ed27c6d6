"""Five of a hundred nodes fail in one second under running jobs: how soon every affected workload is whole again or evicted.

    python -m tests.bench.node_failures [--nodes 1000] [--jobs 500] [--share 0.05] [--json]

Jobs of three pods that require a rack fill three quarters of the GPUs. Then the share of the nodes is not ready, drawn at random, and their
pods are deleted, as a node's lifecycle would have them; kwok runs what is bound, the Job controller makes new pods, kube-scheduler binds.
Measured are the seconds until the last affected workload names no unhealthy node and has all its pods on nodes that are well, or is
evicted; how many were evicted; requests to the API server; and pods of healthy nodes that are gone though their workload was not evicted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.names import ADMITTED, EVICTED
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.audit.recount import recount
from e2e.audit.truth import get_condition, is_true
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.topogate import Topogate
from tests.bench.admission import count_calls
from tests.bench.parts.meter import Meter
from tests.bench.parts.one_queue import open_queue

NOBODY = ""
QUOTAS: dict[str, str | int] = {"cpu": 1_000_000, "nvidia.com/gpu": 1_000_000}
NAMESPACE, SEED, PODS_OF_A_JOB, PATIENCE_S = "failing", 7, 3, 900.0
_AT_ONCE = 16
_WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def measure(nodes: int, jobs: int, share: float) -> dict[str, Any]:
    """A row of the table."""
    pool = build_pool(nodes)
    with Cluster() as cluster, Topogate(cluster, leader_election=False) as topogate:
        names = cluster.add_nodes(pool, timeout_s=600)
        open_queue(cluster, pool, NAMESPACE, QUOTAS)
        before = run_jobs(cluster.api, jobs)
        assert topogate.reconciler is not None
        meter, calls = Meter.of({"reconciler": topogate.reconciler.pid}), count_calls(cluster)
        row = fail_nodes(cluster, names, before, share)
        used, more = meter.read()["reconciler"], count_calls(cluster)
        return {
            "nodes": len(names),
            "workloads": jobs,
            **row,
            "cpu_s": used.cpu_s,
            "peak_mb": used.peak_mb,
            "calls": {name: more[name] - calls.get(name, 0) for name in sorted(more) if more[name] > calls.get(name, 0)},
        }


def build_pool(nodes: int) -> NodePool:
    """Racks of ten nodes, in blocks of ten racks."""
    return NodePool(max(1, nodes // 100), 10, max(1, min(10, nodes // 10)), labels={"pool": NAMESPACE})


def run_jobs(api: Api, jobs: int) -> dict[str, Any]:
    """Returns the pods of so many jobs, by name, once all of them run."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda number: submit(api, f"job-{number:04}"), range(jobs)))
    wait_for("all jobs to run", lambda: len(placed(api)) == jobs * PODS_OF_A_JOB, PATIENCE_S, poll_s=2)
    return placed(api)


def fail_nodes(cluster: Cluster, names: Sequence[str], before: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Lets a share of the nodes fail, and returns what became of it once every affected workload is whole or evicted. `before`: the pods
    that run, by name."""
    chosen = set(random.Random(SEED).sample(names, int(share * len(names))))
    hit = {pod["metadata"]["ownerReferences"][0]["name"] for pod in before.values() if pod["spec"]["nodeName"] in chosen}
    began = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda name: cluster.set_node_ready(name, ready=False), sorted(chosen)))
        failed_s = time.monotonic() - began
        ended = [pod["metadata"]["name"] for pod in before.values() if pod["spec"]["nodeName"] in chosen]
        list(threads.map(lambda name: cluster.api.delete(f"{_PODS}/{name}", grace_period_s=0), ended))
    what = "every affected workload to be whole or evicted"
    evicted = wait_for(what, lambda: _settled(cluster.api, hit, chosen), PATIENCE_S, poll_s=0.5) - {NOBODY}
    settled_s = time.monotonic() - began
    after = placed(cluster.api)
    moved = [name for name, pod in before.items() if pod["spec"]["nodeName"] not in chosen and name not in after]
    return {
        "failed": len(chosen),
        "in_s": round(failed_s, 1),
        "affected": len(hit),
        "pods_lost": len(ended),
        "settled_s": round(settled_s, 1),
        "evicted": len(evicted),
        "healthy_pods_gone": len([name for name in moved if _job_of(before[name]) not in evicted]),
        "broken": recount(cluster.api),
    }


def _settled(api: Api, hit: set[str], gone: set[str]) -> set[str] | None:
    """Jobs that were evicted, once all are whole that do not wait for another place; None before."""
    evicted: set[str] = set()
    waiting: set[str] = set()
    for workload in api.list(_WORKLOADS):
        owner = workload["metadata"]["ownerReferences"][0]["name"]
        status = workload.get("status") or {}
        if owner in hit and status.get("unhealthyNodes"):
            return None
        if owner in hit and get_condition(workload, EVICTED):  # also of one that has found another place since
            evicted.add(owner)
            if not is_true(workload, ADMITTED):
                waiting.add(owner)
    pods: dict[str, int] = {}
    for pod in placed(api).values():
        if pod["spec"]["nodeName"] not in gone:
            pods[_job_of(pod)] = pods.get(_job_of(pod), 0) + 1
    return evicted | {NOBODY} if all(owner in waiting or pods.get(owner) == PODS_OF_A_JOB for owner in hit) else None


def placed(api: Api) -> dict[str, Any]:
    """Live pods that are on a node, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in api.list(_PODS)
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") == "Running"
    }


def _job_of(pod: Any) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["name"])


def submit(api: Api, name: str) -> None:
    """A job whose pods may fail as often as it takes."""
    job = manifests.build_job(name, NAMESPACE, pods=PODS_OF_A_JOB, gpus=4, required="cloud.provider.com/topology-rack", indexed=True)
    job["spec"]["backoffLimit"] = 1000
    api.create(manifests.get_path(job), job)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ensure_binaries()
    row = measure(options.nodes, options.jobs, options.share)
    if options.json:
        json.dump(row, sys.stdout)
        print()
    else:
        for name, value in row.items():
            print(f"{name:20} {value}")
    return 1 if row["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
