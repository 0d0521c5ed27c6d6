"""Kueue and topogate in turn, each on a control plane of its own, under the same load on the same nodes, and the floor beside them.

    python -m tests.bench.kueue [--share 0.2] [--rounds 2] [--minutes 60] [--write]

Case (a): the load of Kueue's performance rig. The floor has the same writes and the events of the contract with one watcher, and no
manager that decides. Each run is kept in `out/bench-kueue.json`: started again with the same options and the same code, the command goes
on where it stopped. `--write` puts the tables into docs/compared.md once all runs are there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.resource import Obj
from core.runtime.http.client import Client
from e2e import manifests
from e2e.api import wait_for
from e2e.binaries import ETCD_VERSION, KUBERNETES_VERSIONS, ensure_binaries, find_kubernetes_minor
from e2e.cluster import Cluster
from e2e.crds import install_crds, register_conversion
from e2e.operators.build import ensure_operator
from e2e.operators.kueue import KUEUE as KUEUE_MANAGER
from e2e.operators.running import RunningOperator
from e2e.perf_load import NAMESPACE, Load, Outcome, Player
from e2e.topogate import Topogate
from tests.bench.admission import TIMEOUT_S, count_calls
from tests.bench.parts.comparison import (
    FLOOR,
    KUEUE,
    TOPOGATE,
    Run,
    Settings,
    list_missing_runs,
    read_runs,
    render_report,
    replace_report,
    write_runs,
)
from tests.bench.parts.floor import FloorPlayer
from tests.bench.parts.meter import Meter

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "out" / "bench-kueue.json", ROOT / "docs" / "compared.md"
OTHER_PARTS = ("kube-scheduler", "kube-controller-manager", "kwok")
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
GAUGES, GAUGE_STEPS = 5, 1_000_000
CODE = ("core", "reconciler", "webhook", "certs", "e2e/perf_load.py")
WORKLOADS_OF_LOAD, MOST_CHECKED = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads", 500
Pids = dict[str, int]


class NotPlaced(Exception):
    """A manager has admitted workloads without placing them."""


def measure_gauge() -> float:
    """Processor time of a fixed loop in seconds, the median of some: how fast this machine is just now."""
    return statistics.median(_run_loop() for _ in range(GAUGES))


def _run_loop() -> float:
    began, total = time.process_time(), 0
    for i in range(GAUGE_STEPS):
        total += i * i % 7
    return time.process_time() - began


def measure_run(subject: str, number: int, load: Load) -> Run:
    """One run on a new control plane. Raises TimeoutError if the load does not end, and NotPlaced."""
    date = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    gauges, loads = [measure_gauge()], [os.getloadavg()[0]]
    with Cluster() as cluster, contextlib.ExitStack() as stack:
        managers = START[subject](cluster, stack)
        _prepare(cluster, load, has_manager=bool(managers))
        ours = {"apiserver": cluster.pids["kube-apiserver"], "etcd": cluster.pids["etcd"], "load": os.getpid()}
        before, meter = count_calls(cluster), Meter.of(ours | managers)
        outcome = asyncio.run(_play(cluster, load, FloorPlayer if subject == FLOOR else Player))
        used = meter.read()
        calls = {name: count - before.get(name, 0) for name, count in count_calls(cluster).items()}
        _check_placed(cluster)
    gauges.append(measure_gauge())
    loads.append(os.getloadavg()[0])
    return Run(
        subject=subject,
        round=number,
        date=date,
        workloads=outcome.finished,
        wall_s=outcome.wall_s,
        evictions=outcome.evictions,
        to_admission_s=outcome.averages(),
        manager_cpu_s=round(sum(used[name].cpu_s for name in managers), 1),
        manager_peak_mb=sum(used[name].peak_mb for name in managers),
        apiserver_cpu_s=used["apiserver"].cpu_s,
        etcd_cpu_s=used["etcd"].cpu_s,
        load_cpu_s=used["load"].cpu_s,
        calls={name: round(count / outcome.finished, 2) for name, count in calls.items() if count},
        gauge_s=[round(each, 4) for each in gauges],
        load=[round(each, 2) for each in loads],
    )


def _start_floor(cluster: Cluster, _: contextlib.ExitStack) -> Pids:
    install_crds(cluster.api)
    register_conversion(cluster.api, {"strategy": "None"})
    return {}


def _start_kueue(cluster: Cluster, stack: contextlib.ExitStack) -> Pids:
    """With its webhooks, as published; the API server converts nothing by webhook, as beside topogate."""
    running = stack.enter_context(RunningOperator(cluster, ensure_operator(KUEUE_MANAGER)))
    assert running.process is not None
    return {"manager": running.process.pid}


def _start_topogate(cluster: Cluster, stack: contextlib.ExitStack) -> Pids:
    """With its webhook and policies, as installed; the API server converts nothing by webhook, as beside Kueue."""
    topogate = stack.enter_context(Topogate(cluster, leader_election=False))
    register_conversion(cluster.api, {"strategy": "None"})
    assert topogate.webhook is not None
    assert topogate.reconciler is not None
    return {"webhook": topogate.webhook.pid, "reconciler": topogate.reconciler.pid}


START: dict[str, Callable[[Cluster, contextlib.ExitStack], Pids]] = {
    FLOOR: _start_floor,
    KUEUE: _start_kueue,
    TOPOGATE: _start_topogate,
}


def _prepare(cluster: Cluster, load: Load, *, has_manager: bool) -> None:
    """Nodes and queues of the load, and no other controller than the manager."""
    cluster.add_nodes(load.node_objects())
    cluster.create_namespace(NAMESPACE)
    for part in OTHER_PARTS:
        cluster.stop_part(part)
    for obj in load.configuration():
        cluster.api.create(manifests.get_path(obj), obj)
    if has_manager:
        wait_for("all ClusterQueues to be active", lambda: all(map(_is_active, cluster.api.list(QUEUES))))


def _is_active(queue: Obj) -> bool:
    conditions: list[dict[str, Any]] = (queue.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Active" and condition["status"] == "True" for condition in conditions)


def _check_placed(cluster: Cluster) -> None:
    """Raises NotPlaced if a Workload was admitted without domains: that would be another load than placement by topology. Those that were
    evicted just before the load finished them have no admission any more, and are not judged."""
    for workload in cluster.api.get(f"{WORKLOADS_OF_LOAD}?limit={MOST_CHECKED}")["items"]:
        admission = (workload.get("status") or {}).get("admission")
        if admission and not all(each.get("topologyAssignment") for each in admission["podSetAssignments"]):
            raise NotPlaced(f"the Workload {workload['metadata']['name']} was admitted without a topologyAssignment")


async def _play(cluster: Cluster, load: Load, player: type[Player]) -> Outcome:
    async with await Client.connect(str(cluster.kubeconfig), user_agent="perf-load") as client:
        return await player(client, load).run(TIMEOUT_S)


def build_settings(share: float, unique_hostnames: bool) -> Settings:
    """All that runs must have in common to be compared."""
    hostnames = "unique" if unique_hostnames else "as in Kueue's rig"
    minor = find_kubernetes_minor()
    return {
        "share": share,
        "hostnames": hostnames,
        "Kueue": KUEUE_MANAGER.version,
        "topogate": compute_code_hash(),
        "Kubernetes": KUBERNETES_VERSIONS[minor],
        "etcd": ETCD_VERSION,
        "processors": os.cpu_count(),
    }


def compute_code_hash() -> str:
    """A name of the code that is measured: runs of other code are not compared with it."""
    digest = hashlib.sha256()
    for path in sorted(_list_code()):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _list_code() -> Iterator[Path]:
    for name in CODE:
        path = ROOT / name
        yield from path.rglob("*.py") if path.is_dir() else [path]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kueue", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=0.2, help="of the 15,000 workloads (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=60, help="start no run after so many; started again it goes on (default: %(default)s)"
    )
    parser.add_argument("--unique-hostnames", action="store_true", help="Kueue's generator gives ten nodes one hostname")
    parser.add_argument("--again", action="store_true", help="drop the runs that are kept")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/compared.md")
    options = parser.parse_args(arguments)
    if not 0 < options.share <= 1 or options.rounds < 1:
        parser.error("--share is above 0 and at most 1, --rounds at least 1")
    ends = time.monotonic() + 60 * options.minutes
    ensure_binaries()
    ensure_operator(KUEUE_MANAGER)
    load = Load(share=options.share, unique_hostnames=options.unique_hostnames)
    settings = build_settings(options.share, options.unique_hostnames)
    runs = [] if options.again else read_runs(RESULTS, settings)
    for number, subject in list_missing_runs(options.rounds, runs):
        if time.monotonic() >= ends:
            print(f"{options.minutes:g} minutes are over; the same command, without --again, goes on")
            return 0
        run = measure_run(subject, number, load)
        runs.append(run)
        write_runs(RESULTS, settings, runs)
        print(f"round {number}, {subject}: {run.wall_s} s, {run.manager_cpu_s} CPU s, {run.manager_peak_mb} MB", flush=True)
    report = render_report(settings, [run for run in runs if run.round <= options.rounds])
    print(report)
    if options.write:
        PAGE.write_text(replace_report(PAGE.read_text(), report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
