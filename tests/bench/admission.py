"""Admissions a second on a real API server, under the load of the peer's performance rig.

    python -m tests.bench.admission [--share 1.0] [--unique-hostnames] [--qps 50] [--json]

Wall time from the first workload to the end of the last, average time to admission per class, processor time and resident
memory of the reconciler, and API calls per workload. The peer on the same two cores, with the API server beside it (F.5):
263 s, 76 CPU seconds and 451 MB; with its client limit of 50 a second 391 s, 97 CPU seconds and 742 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
from typing import Any

from core.runtime.http.client import Client
from e2e import manifests
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.crds import register_conversion
from e2e.perf_load import NAMESPACE, Load, Outcome, Player
from e2e.topogate import Topogate
from tests.bench.parts.meter import Meter, Used

TIMEOUT_S = 1200.0
_COUNTED = "workloads|events|clusterqueues|localqueues|cohorts|jobs|pods"
_CALLS = re.compile(rf'^apiserver_request_total\{{[^}}]*resource="({_COUNTED})"[^}}]*verb="(\w+)"[^}}]*\}} (\S+)')
PEER = {None: {"wall_s": 263, "cpu_s": 76, "rss_mb": 451}, 50.0: {"wall_s": 391, "cpu_s": 97, "rss_mb": 742}}


def measure(load: Load, qps: float | None = None, *, converts: bool = False) -> dict[str, Any]:
    """One run on a control plane of its own. As long as a CRD serves an old version, too, the API server converts what is stored to that
    for its watch cache, though nobody asks: two calls of the webhook per write. The peer's rig has no webhook."""
    with Cluster() as cluster, contextlib.ExitStack() as stack:
        topogate = Topogate(cluster, leader_election=False).start(converts_only=True)
        stack.callback(topogate.stop)
        if not converts:
            register_conversion(cluster.api, {"strategy": "None"})
        cluster.add_nodes(load.node_objects())
        cluster.create_namespace(NAMESPACE)
        for part in ("kube-scheduler", "kube-controller-manager", "kwok"):
            cluster.stop_part(part)  # the peer's rig has none of them, and nodes that nobody looks after stay ready
        for obj in load.configuration():
            cluster.api.create(manifests.get_path(obj), obj)
        topogate.start_reconciler(options=["--kube-api-qps", str(qps), "--kube-api-burst", str(int(2 * qps))] if qps else [])
        assert topogate.reconciler is not None
        before, meter = (
            count_calls(cluster),
            Meter.of(_pids(cluster, topogate)),
        )
        outcome = asyncio.run(_play(cluster, load))
        calls = {name: count - before.get(name, 0) for name, count in count_calls(cluster).items()}
        return _row(outcome, meter.read(), calls, qps)


def _pids(cluster: Cluster, topogate: Topogate) -> dict[str, int]:
    ours = {"webhook": topogate.webhook, "reconciler": topogate.reconciler}
    pids = {name: process.pid for name, process in ours.items() if process is not None}
    return dict(cluster.pids) | pids | {"load generator": os.getpid()}


async def _play(cluster: Cluster, load: Load) -> Outcome:
    async with await Client.connect(str(cluster.kubeconfig), user_agent="perf-load") as client:
        return await Player(client, load).run(TIMEOUT_S)


def _row(outcome: Outcome, used: dict[str, Used], calls: dict[str, int], qps: float | None) -> dict[str, Any]:
    return {
        "workloads": outcome.finished,
        "qps": qps,
        "wall_s": outcome.wall_s,
        "per_second": round(outcome.finished / outcome.wall_s, 1),
        "evictions": outcome.evictions,
        "to_admission_s": outcome.averages(),
        "cpu_s": {name: each.cpu_s for name, each in used.items()},
        "peak_mb": {name: each.peak_mb for name, each in used.items()},
        "calls_per_workload": {name: round(count / max(1, outcome.finished), 2) for name, count in sorted(calls.items()) if count},
        "peer": PEER.get(qps),
    }


def count_calls(cluster: Cluster) -> dict[str, int]:
    """Requests so far by resource and verb, the load's own among them."""
    found: dict[str, int] = {}
    for line in cluster.api.text("/metrics").splitlines():
        match = _CALLS.match(line)
        if match and match[2] not in ("LIST", "WATCH"):
            name = f"{match[1]} {match[2].lower()}"
            found[name] = found.get(name, 0) + int(float(match[3]))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.admission", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the 15,000 workloads (default: all)")
    parser.add_argument("--unique-hostnames", action="store_true", help="the peer's generator gives ten nodes one hostname")
    parser.add_argument("--qps", type=float, help="limit the reconciler's requests a second, as the peer's rig does with 50")
    parser.add_argument("--converts", action="store_true", help="with the conversion webhook, as users have it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    ensure_binaries()
    row = measure(Load(share=options.share, unique_hostnames=options.unique_hostnames), options.qps, converts=options.converts)
    if options.json:
        print(json.dumps(row))
    else:
        for name, value in row.items():
            print(f"{name:<20}{value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
