"""Jobs come, run, end and are deleted for a long time: what both processes hold of memory, files and tasks must not grow with what is over.

    python -m tests.bench.soak [--minutes 30] [--per-second 4] [--bound 2.0] [--json]

Jobs of 1 to 4 pods that run 5 s go through webhook, queue, placement, ungating and kube-scheduler; one in twenty fits nowhere and is
deleted while it waits. Every 5 s both are asked for their metrics. After the warm-up (a fifth of the time, five minutes at least) a line
is laid through resident memory over workloads admitted so far: its slope is what a thousand workloads leave behind. Ends with 1 if that
is more than `--bound` MB, if open files or tasks have grown, if a job did not end, or if the recount from objects alone ever found a node
or a quota exceeded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from e2e import manifests
from e2e.api import wait_for
from e2e.audit.recount import recount
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.progress import Progress
from e2e.topogate import Topogate
from tests.scraped import Scraped

NAMESPACE = NAME = "soak"
POOL = NodePool(2, 4, 8, labels={"pool": NAME})
GPU, GPUS_A_NODE = "nvidia.com/gpu", 8
NODES = POOL.blocks * POOL.racks * POOL.nodes
RUN_S, KEPT_S, EVERY_S, AT_ONCE = 5, 10, 5.0, 6
TOO_LARGE = 20  # one job in so many
REMEMBERED_S = 300.0  # what is expected is waited for so long, and by its key a queue knows what is over until then
GROWN = 20  # open files or tasks more than at the beginning
PARTS = ("webhook", "reconciler")
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_QUIET_KWOK = {"node-lease-duration-seconds": "400"}
_QUIET_MANAGER = {"node-monitor-grace-period": "600s", "node-monitor-period": "10s"}


@dataclass(frozen=True)
class Held:
    """By one process at one time."""

    mb: float
    files: int
    tasks: int


@dataclass(frozen=True)
class Sample:
    """`admitted` workloads so far."""

    at_s: float
    admitted: int
    held: dict[str, Held]
    broken: tuple[str, ...] = ()  # by the recount from objects alone


def measure(minutes: float, per_second: float) -> list[Sample]:
    """One run on a control plane of its own; raises TimeoutError where a job does not end."""
    with Cluster(kwok_flags=_QUIET_KWOK, controller_manager_flags=_QUIET_MANAGER) as cluster:
        cluster.add_nodes(POOL)
        with Topogate(cluster, leader_election=False) as topogate:
            _open(cluster)
            samples = list(_watch(cluster, topogate, minutes, per_second))
            wait_for("the last jobs to end", lambda: not cluster.api.list(_JOBS), 180)
            return samples


def _open(cluster: Cluster) -> None:
    cluster.create_namespace(NAMESPACE)
    for obj in (
        manifests.build_topology(NAME, POOL.levels),
        manifests.build_flavor(NAME, POOL.labels, NAME),
        manifests.build_cluster_queue(NAME, {NAME: {"cpu": 100_000, GPU: NODES * GPUS_A_NODE}}),
        manifests.build_local_queue("main", NAMESPACE, NAME),
    ):
        cluster.api.create(manifests.get_path(obj), obj)


def _watch(cluster: Cluster, topogate: Topogate, minutes: float, per_second: float) -> Iterator[Sample]:
    jobs = round(minutes * 60 * per_second)
    progress, began = Progress("bench-soak"), time.monotonic()
    with ThreadPoolExecutor(1) as thread:
        applying = thread.submit(_apply, cluster, began, jobs, per_second)
        while not applying.done():
            time.sleep(EVERY_S)
            sample = replace(_sample(topogate, time.monotonic() - began), broken=tuple(recount(cluster.api)))
            progress.update(f"{sample.admitted} of {jobs} jobs admitted, {_in_short(sample)}")
            yield sample
        applying.result()
    progress.finish("all jobs are applied")


def _apply(cluster: Cluster, began: float, jobs: int, per_second: float) -> None:
    """Each at its time; what fits nowhere is taken back later."""
    later = round(KEPT_S * per_second)

    def apply(number: int) -> None:
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        job, stale = _job(number), number - later
        if number < jobs:
            cluster.api.create(manifests.get_path(job), job)
        if stale >= 0 and _fits_nowhere(stale):
            cluster.api.request("DELETE", f"{_JOBS}/{_job(stale)['metadata']['name']}?propagationPolicy=Background")

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(apply, range(jobs + later)))


def _fits_nowhere(number: int) -> bool:
    return number % TOO_LARGE == TOO_LARGE - 1


def _job(number: int) -> dict[str, Any]:
    topology = ({"required": POOL.rack_label}, {"preferred": POOL.rack_label}, {"unconstrained": "true"})[number % 3]
    pods = POOL.nodes + 1 if _fits_nowhere(number) else (1, 1, 1, 2, 4)[number % 5]
    if _fits_nowhere(number):
        topology = {"required": POOL.rack_label}
    gpus = GPUS_A_NODE if _fits_nowhere(number) else 1
    return manifests.build_job(
        f"job-{number:06}",
        NAMESPACE,
        pods=pods,
        gpus=gpus,
        run_seconds=RUN_S,
        spec={"ttlSecondsAfterFinished": KEPT_S},
        **topology,  # type: ignore[arg-type]
    )


# --- what is held -------------------------------------------------------------------------------------


def _sample(topogate: Topogate, at_s: float) -> Sample:
    scraped = {part: _scrape(url) for part, url in zip(PARTS, (topogate.webhook_metrics_url, topogate.metrics_url), strict=True)}
    held = {
        part: Held(
            round(found.value("process_resident_memory_bytes") / 2**20, 1),
            int(found.value("process_open_fds")),
            int(found.value("topogate_tasks")),
        )
        for part, found in scraped.items()
    }
    return Sample(round(at_s, 1), int(scraped["reconciler"].sum("kueue_admitted_workloads_total")), held)


def _scrape(url: str) -> Scraped:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return Scraped(reply.read().decode())


def _in_short(sample: Sample) -> str:
    return ", ".join(f"{part} {held.mb:.0f} MB" for part, held in sample.held.items())


# --- what it means ------------------------------------------------------------------------------------


def warmed_up(samples: Sequence[Sample], minutes: float) -> list[Sample]:
    """Those after the warm-up."""
    since_s = max(REMEMBERED_S, minutes * 60 / 5)
    return [sample for sample in samples if sample.at_s >= since_s]


def left_behind_mb(samples: Sequence[Sample], part: str) -> float:
    """By a thousand workloads."""
    slope, _ = statistics.linear_regression([sample.admitted for sample in samples], [sample.held[part].mb for sample in samples])
    return 1000 * slope


def grown(samples: Sequence[Sample], part: str, what: str) -> float:
    """How many more at the end than at the beginning, in the median of a quarter of the time."""
    counts = [getattr(sample.held[part], what) for sample in samples]
    quarter = max(1, len(counts) // 4)
    return float(statistics.median(counts[-quarter:]) - statistics.median(counts[:quarter]))


def problems(samples: Sequence[Sample], bound_mb: float) -> list[str]:
    """What grows, in words."""
    found = []
    for part in PARTS:
        slope = left_behind_mb(samples, part)
        if slope > bound_mb:
            found.append(f"the {part} keeps {slope:.1f} MB of a thousand workloads that are over; {bound_mb:g} at most are accepted")
        for what in ("files", "tasks"):
            more = grown(samples, part, what)
            if more > GROWN:
                found.append(f"the {part} has {more:.0f} more {what} at the end than at the beginning; {GROWN} at most are accepted")
    return found


def describe(samples: Sequence[Sample], minutes: float) -> str:
    """A line a minute, and what a thousand workloads leave."""
    lines = ["minute  admitted" + "".join(f"  {part:>10} MB  files  tasks" for part in PARTS)]
    minute = 0
    for sample in samples:
        if sample.at_s >= 60 * (minute + 1):
            minute += 1
            held = "".join(f"  {one.mb:13.1f}  {one.files:5}  {one.tasks:5}" for one in (sample.held[part] for part in PARTS))
            lines.append(f"{minute:6}  {sample.admitted:8}{held}")
    after = warmed_up(samples, minutes)
    lines += [f"{part}: {left_behind_mb(after, part):+.2f} MB for each 1,000 workloads, after the warm-up" for part in PARTS]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="at least 7: the first five are warm-up")
    parser.add_argument("--per-second", type=float, default=4.0, help="how fast jobs come")
    parser.add_argument("--bound", type=float, default=2.0, help="MB that a thousand workloads may leave behind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.minutes < 7:
        parser.error(f"argument --minutes: {options.minutes:g} is not accepted; 7 or more are expected")
    ensure_binaries()
    samples = measure(options.minutes, options.per_second)
    after = warmed_up(samples, options.minutes)
    found = [*problems(after, options.bound), *dict.fromkeys(text for sample in samples for text in sample.broken)]
    if options.json:
        left = {part: round(left_behind_mb(after, part), 3) for part in PARTS}
        print(json.dumps({"samples": len(samples), "admitted": samples[-1].admitted, "left_behind_mb": left, "problems": found}))
    else:
        print(describe(samples, options.minutes), *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
