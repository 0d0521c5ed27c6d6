"""How fast a job's pods are ungated, on a real control plane: pods a second and writes per pod.

    python -m tests.bench.ungate [--pods N] [--nominate] [--scheduler] [--json]

All pods exist, gated, before the clock starts: the reconciler is stopped once the job runs, and started again for the
measurement. The aim on two cores, which API server and reconciler share: 500 pods/s, with --nominate 250 (one write more
a pod). Without --scheduler kube-scheduler is stopped meanwhile, so that what is measured is ungating. The time is of the
machine as it is; processor time a pod, of each process, is what a busy machine changes least.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from core.names import TOPOLOGY_GATE
from core.plan.steps import pacing
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.topogate import Topogate
from tests.bench.parts.one_queue import open_queue

NAMESPACE = "bench"
PODS_A_NODE = 100
_COUNTED = re.compile(
    r'^apiserver_request_total\{(?=[^}]*resource="pods")[^}]*subresource="(\w*)"[^}]*verb="(PATCH|APPLY|PUT|DELETE)"[^}]*\} (\S+)'
)
TIMEOUT_S = 900.0
_UNGATED = re.compile(r'"pods ungated".*"count": (\d+)')
_PARTS = ("kube-apiserver", "etcd", "kube-controller-manager", "kwok")


def measure(pods: int, *, nominate: bool = False, scheduler: bool = False) -> dict[str, Any]:
    """Starts a control plane, fills it with gated pods and ungates them all."""
    pool = build_pool(pods)
    with Cluster() as cluster, Topogate(cluster, leader_election=False) as topogate:
        open_gated_queue(cluster, pool, pods)
        api = cluster.api
        job = manifests.build_job("large", NAMESPACE, pods=pods, gpus=0, unconstrained="true", indexed=True)
        api.create(manifests.get_path(job), job)
        path = f"{manifests.get_path(job)}/large"
        wait_for("the job to be started", lambda: not api.get(path)["spec"].get("suspend") or None, 60)
        topogate.kill_reconciler()
        wait_for("all pods to be there", lambda: count_active(api.get(path)) >= pods or None, TIMEOUT_S, 1.0)
        if not scheduler:
            cluster.stop_part("kube-scheduler")
        gated, before = count_gated(api), _writes(api)
        topogate.start_reconciler(options=["--nominate-nodes"] if nominate else [])
        assert topogate.reconciler is not None
        pids = {name: pid for name, pid in cluster.pids.items() if name in _PARTS} | {"reconciler": topogate.reconciler.pid}
        used = {name: _cpu_s(pid) for name, pid in pids.items()}
        log = topogate.reconciler.log
        start = time.monotonic()  # its state is complete; the first batch is gathered for a second
        # By its log, since asking the API server for its metrics costs it some 50 ms each time.
        wait_for("all to be ungated", lambda: sum(map(int, _UNGATED.findall(log.read_text()))) >= gated or None, TIMEOUT_S, 0.05)
        seconds = time.monotonic() - start - pacing.UNGATING_BATCH_S
        cpu = {name: round(1000 * (_cpu_s(pid) - used[name]) / gated, 2) for name, pid in pids.items()}
        wait_for("no pod to be gated", lambda: count_gated(api) == 0 or None, TIMEOUT_S, 1.0)
        writes = _writes(api) - before
    return {
        "pods": gated,
        "seconds": round(seconds, 2),
        "pods_per_second": round(gated / seconds),
        "writes_per_pod": round(sum(writes.values()) / gated, 3),
        "cpu_ms_per_pod": cpu,
    }


def build_pool(pods: int) -> NodePool:
    """Racks of 16 nodes with room for so many pods."""
    racks = -(-pods // (PODS_A_NODE * 16))
    allocatable = {"cpu": "1000", "memory": "1Ti", "pods": str(PODS_A_NODE)}
    return NodePool(1, racks, 16, labels={"pool": "bench"}, allocatable=allocatable)


def _cpu_s(pid: int) -> float:
    """Processor time of a process so far, its children not included (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_gated_queue(cluster: Cluster, pool: NodePool, pods: int) -> None:
    """Adds the nodes, and a queue with quota for many more than so many pods."""
    cluster.add_nodes(pool)
    open_queue(cluster, pool, NAMESPACE, {"cpu": 10 * pods})


def count_gated(api: Api) -> int:
    """Pods that have the gate."""
    return sum(is_gated(pod) for pod in api.list(f"/api/v1/namespaces/{NAMESPACE}/pods"))


def count_active(job: dict[str, Any]) -> int:
    """Pods of a job that are there and have not ended, as its status counts them."""
    return int((job.get("status") or {}).get("active") or 0)


def is_gated(pod: dict[str, Any]) -> bool:
    """Whether a pod waits for its place."""
    return any(gate["name"] == TOPOLOGY_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _writes(api: Api) -> Counter[str]:
    """Writes to pods so far, by subresource, as the API server counts them."""
    found: Counter[str] = Counter()
    for line in api.text("/metrics").splitlines():
        match = _COUNTED.match(line)
        if match:
            found[match[1]] += int(float(match[3]))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ungate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--nominate", action="store_true", help="each pod's slot is kept by one more write")
    parser.add_argument("--scheduler", action="store_true", help="kube-scheduler binds meanwhile")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    ensure_binaries()
    row = measure(options.pods, nominate=options.nominate, scheduler=options.scheduler)
    if options.json:
        print(json.dumps(row))
    else:
        print(f"{row['pods']} pods ungated in {row['seconds']} s: {row['pods_per_second']} a second, {row['writes_per_pod']} writes a pod")
        print("processor time, ms a pod: " + ", ".join(f"{name} {ms}" for name, ms in row["cpu_ms_per_pod"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
