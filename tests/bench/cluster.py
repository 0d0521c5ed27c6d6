"""A cluster as users have it: jobs that really run and finish, through webhook, queue, placement, ungating and kube-scheduler.

    python -m tests.bench.cluster [--nodes 2560] [--jobs 2000] [--share 1.0] [--asked 0.9] [--pods-per-second 16] [--json]

`--share 0.05` takes a twentieth of nodes and jobs, and two minutes. What was chosen is printed first, progress on stderr; how to
read the table: docs/development/bench-cluster.md. Ends with 1 if a job did not end, or if a promise of `e2e.audit.audit` was broken at any
moment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from core.model.quantity import show_count
from e2e import manifests
from e2e.api import ApiError
from e2e.audit import truth
from e2e.audit.audit import audit
from e2e.audit.history import History
from e2e.audit.recount import recount
from e2e.audit.waiting import describe_waiting
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.progress import Progress
from e2e.topogate import Topogate
from tests.bench.parts.cluster_load import KEPT_S, NAMESPACE, Load, Planned
from tests.bench.parts.cluster_report import describe, summarise
from tests.bench.parts.meter import Meter

AT_ONCE, TRIES = 8, 5  # jobs being applied, and how often each is if it fails
CONFLICT = 409  # it arrived all the same
STILL_S = 180.0  # nothing gets on: the bench gives up, and says what waits
# Heartbeats of 2,560 pretended nodes every 10 s would be most of what the API server does. Nobody fails here.
QUIET_KWOK = {"node-lease-duration-seconds": "400"}
QUIET_MANAGER = {"node-monitor-grace-period": "600s", "node-monitor-period": "10s"}


class Stuck(Exception):
    """Nothing gets on any more; the message has what waits and why."""


def measure(load: Load) -> dict[str, Any]:
    """One run on a control plane of its own."""
    planned = load.plan()
    with Cluster(kwok_flags=QUIET_KWOK, controller_manager_flags=QUIET_MANAGER) as cluster:
        _say(f"adding {load.gpus // 8} nodes")
        cluster.add_nodes(load.pool, timeout_s=600)
        with Topogate(cluster, leader_election=False) as topogate:
            open_queues(cluster, load)
            assert topogate.webhook is not None
            assert topogate.reconciler is not None
            return play(cluster, {"webhook": topogate.webhook.pid, "reconciler": topogate.reconciler.pid}, load, planned)


def open_queues(cluster: Cluster, load: Load) -> None:
    """Namespace and queues of a load."""
    cluster.create_namespace(NAMESPACE)
    for obj in load.configuration():
        cluster.api.create(manifests.get_path(obj), obj)


def play(cluster: Cluster, managers: Mapping[str, int], load: Load, planned: list[Planned]) -> dict[str, Any]:
    """Plays the jobs, and returns what came of them; `managers` are process ids by name. Raises Stuck where nothing gets on any more."""
    ours = {**managers, "load generator": os.getpid()}
    nodes, queues = cluster.api.list("/api/v1/nodes"), cluster.api.list("/apis/kueue.x-k8s.io/v1beta2/clusterqueues")
    applied: dict[str, float] = {}
    with History(cluster, NAMESPACE) as history:
        meter = Meter.of(dict(cluster.pids) | ours)
        began = time.monotonic()
        applying = threading.Thread(target=_apply, args=[cluster, planned, began, applied], daemon=True)
        applying.start()
        _wait(cluster, history, planned, applied)
        applying.join()
        used, lasted_s = meter.read(), time.monotonic() - began
    facts = history.facts()
    required = {job.name: str(job.topology["required"]) for job in planned if "required" in job.topology}
    broken = [*audit(facts, nodes, queues, required), *recount(cluster.api)]
    return summarise(load, planned, applied, facts) | {
        "lasted_s": round(lasted_s),
        "broken": broken,
        "processes": {name: asdict(each) for name, each in used.items()},
    }


def _apply(cluster: Cluster, planned: list[Planned], began: float, applied: dict[str, float]) -> None:
    """Each job at its time, whatever became of those before it."""

    def apply(job: Planned) -> None:
        time.sleep(max(0.0, began + job.at_s - time.monotonic()))
        manifest = job.manifest()
        applied[job.name] = time.monotonic()
        for _ in range(TRIES):  # as a user does whose request timed out; what is waited for counts from the first
            try:
                cluster.api.create(manifests.get_path(manifest), manifest)
            except ApiError as error:
                if error.status != CONFLICT:
                    continue
            return

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(apply, planned))


def _wait(cluster: Cluster, history: History, planned: list[Planned], applied: dict[str, float]) -> None:
    progress, began, longest_s = Progress("bench-cluster"), time.monotonic(), max(job.run_s for job in planned)
    while len(history.complete) < len(planned):
        progress.update(f"{len(applied)} of {len(planned)} jobs applied, {len(history.complete)} complete")
        if time.monotonic() > max(history.changed_at, began) + STILL_S + longest_s:
            raise Stuck(describe_waiting(truth.read(cluster.api, [NAMESPACE])))
        time.sleep(0.5)
    progress.finish("all jobs are complete")


def _say(what: str) -> None:
    print(f"==> bench-cluster: {what}", file=sys.stderr, flush=True)


def _chosen(load: Load) -> str:
    planned, pool = load.plan(), load.pool
    sizes, runs = sorted(job.pods for job in planned), sorted(job.run_s for job in planned)
    racks = pool.blocks * pool.racks
    return (
        f"{racks * pool.nodes} nodes in {show_count(racks, 'rack')} and {show_count(pool.blocks, 'block')}, {load.gpus} GPUs; "
        f"{len(planned)} jobs of {sizes[0]} to "
        f"{sizes[-1]} pods come in {planned[-1].at_s:.0f} s, {sum(sizes)} pods at {load.pods_per_s:g} a second; they run {runs[0]} to "
        f"{runs[-1]} s, {sum(runs) / len(runs):.0f} s in the mean, so that {load.asked:.0%} of the GPUs are asked for; a job is deleted "
        f"{KEPT_S} s after its end"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2560, help="of 8 GPUs, in racks of 16")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--share", type=float, default=1.0, help="of both nodes and jobs")
    parser.add_argument("--asked", type=float, default=0.9, help="share of the GPUs that is asked for in the mean")
    parser.add_argument("--pods-per-second", type=float, default=16.0, help="how fast pods come: what the API server bears")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    load = Load(round(options.nodes * options.share), round(options.jobs * options.share), options.asked, options.pods_per_second)
    ensure_binaries()
    _say(_chosen(load))
    try:
        row = measure(load)
    except Stuck as stuck:
        print(f"nothing gets on any more: {stuck}", file=sys.stderr)
        return 1
    print(json.dumps(row) if options.json else f"{_chosen(load)}\n\n{describe(row)}")
    return 1 if row["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
