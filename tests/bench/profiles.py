"""What the profile `compact` is worth beside `kep`: the same jobs come and go on a cluster that is nearly full.

    python -m tests.bench.profiles [--seeds 2] [--first-seed 1] [--workers 1] [--json]

2,560 nodes of 8 GPUs, 16 a rack, 10 racks a block. Jobs come at random and run for an hour or so on average, so that
all of them, placed at once, would use 90 % of the GPUs. By GPU time 30 % are small (1 to 16 GPUs; a third of them with no
topology, a third preferring a rack, a third requiring one), 25 % take 2 to 12 nodes (half prefer a rack, half require
one), 25 % a rack (all require one) and 20 % two to eight racks (prefer a block, or require a block and whole racks, or
prefer a block and half racks). A job is tried when it comes; whenever one has ended all that wait are tried in the order
in which they came, and what does not fit waits on (BestEffortFIFO). Both profiles get the same jobs at the same times,
which run equally long. Time is virtual. After five hours to fill up, fifteen are looked at:

    free racks      whole racks that nobody uses, mean over time
    wait, p90       minutes that jobs of a rack or more waited, mean and 90th percentile; who still waits counts so far
    utilisation     share of the GPUs in use, mean over time
    partly used     share of the free GPUs that lie on nodes of which some are in use, mean over time
    racks           racks that a job of two nodes or more has for each that it needs at least

Told per profile with the standard deviation over the seeds, and the difference seed by seed with its standard error.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from core.model.podset import IMPLIED, Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import COMPACT, MIXED, Profile
from core.placement.engine import PodSetPlacement, place
from core.placement.topology.free_capacity import FreeCapacity, NodeState, with_pod
from core.placement.topology.node_counts import NodeCounts
from core.placement.topology.tree import NodeLabels, TopologyTree
from tests.bench.parts.shapes import ALLOCATABLE, per_gpu

GPU, LEVELS = "nvidia.com/gpu", ("block", "rack", HOSTNAME_LABEL)
NODES, PER_RACK, RACKS_PER_BLOCK, PER_NODE = 2560, 16, 10, 8
LOAD, MEAN_RUN_MIN, WARM_UP_MIN, END_MIN = 0.9, 60.0, 300, 1200
SHARES = {"small": 0.30, "nodes": 0.25, "rack": 0.25, "racks": 0.20}  # of the GPU time
LARGE = ("rack", "racks")
FIGURES = ("free racks", "wait", "p90", "utilisation", "partly used", "racks")
_REQUIRED, _PREFERRED = TopologyRequest(Mode.REQUIRED, "rack"), TopologyRequest(Mode.PREFERRED, "rack")


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a stream."""

    kind: str
    came: float
    runs: float
    request: PodSetRequest

    @property
    def gpus(self) -> int:
        return self.request.count * self.request.requests[GPU]


def draw_request(kind: str, chance: random.Random) -> PodSetRequest:
    """What a job of a kind asks for."""
    gpus, topology = PER_NODE, IMPLIED
    if kind == "small":
        gpus, count = chance.choice([(1, 1), (1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (2, 2), (8, 1), (1, 8), (4, 2), (8, 2), (2, 6)])
        topology = chance.choice([IMPLIED, _PREFERRED, _REQUIRED])
    elif kind == "nodes":
        nodes, gpus = chance.randint(2, 12), chance.choice([8, 8, 4, 2])
        count = nodes * PER_NODE // gpus
        topology = chance.choice([_PREFERRED, _REQUIRED])
    elif kind == "rack":
        gpus = chance.choice([8, 8, 4])
        count, topology = PER_RACK * PER_NODE // gpus, _REQUIRED
    else:
        count = PER_RACK * chance.choice([2, 2, 3, 4, 8])
        topology = chance.choice(
            [
                TopologyRequest(Mode.PREFERRED, "block"),
                TopologyRequest(Mode.REQUIRED, "block", (SliceLayer("rack", PER_RACK),)),
                TopologyRequest(Mode.PREFERRED, "block", (SliceLayer("rack", PER_RACK // 2),)),
            ]
        )
    return PodSetRequest("main", count, per_gpu(gpus), topology)


def draw_jobs(seed: int) -> list[Job]:
    """A stream, in the order in which its jobs come."""
    jobs = []
    for kind, share in SHARES.items():
        chance = random.Random(f"{seed}-{kind}")
        sizes = random.Random(kind)
        drawn = [draw_request(kind, sizes) for _ in range(5000)]
        mean = statistics.fmean(request.count * request.requests[GPU] for request in drawn)
        rate = LOAD * share * NODES * PER_NODE / mean / MEAN_RUN_MIN  # jobs a minute
        now = chance.expovariate(rate)
        while now < END_MIN:
            jobs.append(Job(kind, now, chance.expovariate(1 / MEAN_RUN_MIN), draw_request(kind, chance)))
            now += chance.expovariate(rate)
    for _ in range(5):  # chance aside: the stream asks for LOAD while it is looked at
        longer = LOAD / asked_for(jobs)
        jobs = [replace(job, runs=job.runs * longer) for job in jobs]
    return sorted(jobs, key=lambda job: job.came)


def asked_for(jobs: Sequence[Job]) -> float:
    """The share of the GPUs that would be in use while it is looked at if every job ran at once."""
    spans = ((job.gpus, min(job.came + job.runs, END_MIN) - max(job.came, WARM_UP_MIN)) for job in jobs)
    return sum(gpus * max(span, 0.0) for gpus, span in spans) / (NODES * PER_NODE * (END_MIN - WARM_UP_MIN))


def build_cluster() -> FreeCapacity:
    labels = []
    for i in range(NODES):
        rack, name = i // PER_RACK, f"node-{i:06d}"
        labels.append(NodeLabels(name, {"block": f"b{rack // RACKS_PER_BLOCK:03d}", "rack": f"r{rack:05d}", HOSTNAME_LABEL: name}))
    state = NodeState(ALLOCATABLE)
    return FreeCapacity(TopologyTree(LEVELS, labels), {node.name: state for node in labels})


@dataclass
class World:
    """A cluster, who runs on it and who waits."""

    profile: Profile
    cluster: FreeCapacity = field(default_factory=build_cluster)
    running: list[tuple[float, int, Job, PodSetPlacement]] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    proven: list[bool] = field(default_factory=list)
    free_racks: list[int] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    partly: list[float] = field(default_factory=list)
    placed: int = 0
    minute: int = 0

    def live(self, jobs: Sequence[Job]) -> dict[str, float]:
        """Lives through a stream: what comes is tried at once, what waits whenever a job has ended."""
        for job in jobs:
            self._go_on(job.came)
            if not self._start(job, job.came):
                self.waiting.append(job)
        self._go_on(END_MIN)
        taken = NODES * PER_NODE - int(self.cluster.free[self.cluster.axis[GPU]].sum())
        assert taken == sum(job.gpus for _, _, job, _ in self.running)
        self.waits += [END_MIN - late.came for late in self.waiting if late.kind in LARGE and late.came > WARM_UP_MIN]
        return {
            "free racks": statistics.fmean(self.free_racks),
            "wait": statistics.fmean(self.waits),
            "p90": statistics.quantiles(self.waits, n=10)[-1],
            "utilisation": statistics.fmean(self.used),
            "partly used": statistics.fmean(self.partly),
            "racks": statistics.fmean(self.spread),
            "ms": 1000 * statistics.fmean(self.seconds),
            "proven": statistics.fmean(self.proven) if self.proven else 0.0,
            "waiting": len(self.waiting),
        }

    def _go_on(self, until: float) -> None:
        """Lets time pass: whenever a job ends, those that wait are tried; every minute the racks are looked at."""
        while True:
            ends = self.running[0][0] if self.running else math.inf
            if min(ends, self.minute + 1) > until:
                return
            if ends <= self.minute + 1:
                _, _, job, placement = heapq.heappop(self.running)
                self._take(job, placement, -1)
                if self.waiting:
                    self._try_all(ends)
            else:
                self.minute += 1
                if self.minute > WARM_UP_MIN:
                    self._look()

    def _try_all(self, now: float) -> None:
        refused: set[tuple[int, int, TopologyRequest | None]] = set()
        left = int(self.cluster.free[self.cluster.axis[GPU]].sum())
        still = []
        for job in self.waiting:
            shape = (job.request.requests[GPU], job.request.count, job.request.topology)
            if job.gpus > left or shape in refused or not self._start(job, now):
                refused.add(shape)
                still.append(job)
            else:
                left -= job.gpus
        self.waiting = still

    def _start(self, job: Job, now: float) -> bool:
        began = time.perf_counter()
        decision = place(self.cluster, [job.request], self.profile)
        self.seconds.append(time.perf_counter() - began)
        if decision.refusal is not None:
            return False
        (placement,) = decision.placements
        self._take(job, placement, 1)
        self.placed += 1
        heapq.heappush(self.running, (now + job.runs, self.placed, job, placement))
        if job.came > WARM_UP_MIN:
            if job.kind in LARGE:
                self.waits.append(now - job.came)
            if job.kind != "small":
                assert isinstance(placement.nodes, NodeCounts)
                racks = len(set((placement.nodes.at // PER_RACK).tolist()))
                self.spread.append(racks / -(-job.gpus // (PER_RACK * PER_NODE)))
            if placement.search is not None:
                self.proven.append(placement.search.optimal)
        return True

    def _take(self, job: Job, placement: PodSetPlacement, times: int) -> None:
        assert isinstance(placement.nodes, NodeCounts)
        self.cluster.use_nodes(placement.nodes.at, with_pod(job.request.requests), placement.nodes.counts * times)

    def _look(self) -> None:
        free = self.cluster.free[self.cluster.axis[GPU]]
        self.free_racks.append(int((self.cluster.tree.sum_nodes(1, free) == PER_RACK * PER_NODE).sum()))
        self.used.append(1 - float(np.sum(free)) / (NODES * PER_NODE))
        self.partly.append(float(np.sum(free[free < PER_NODE]) / max(np.sum(free), 1)))


def live_with_both(seed: int) -> dict[str, dict[str, float]]:
    """Figures per profile."""
    jobs = draw_jobs(seed)
    return {profile.name: World(profile).live(jobs) for profile in (MIXED, COMPACT)}


def compare(seeds: Sequence[int], workers: int) -> dict[str, list[dict[str, float]]]:
    """Figures per profile and seed."""
    with ProcessPoolExecutor(workers) as pool:
        runs = list(pool.map(live_with_both, seeds))
    return {profile.name: [run[profile.name] for run in runs] for profile in (MIXED, COMPACT)}


def summarise(found: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Per figure mean and standard deviation of both profiles, and the difference with its standard error."""
    table = {}
    for figure in FIGURES:
        kep, compact = ([run[figure] for run in found[name]] for name in ("kep", "compact"))
        apart = [new - old for new, old in zip(compact, kep, strict=True)]
        table[figure] = {
            "kep": statistics.fmean(kep),
            "kep_sd": _deviation(kep),
            "compact": statistics.fmean(compact),
            "compact_sd": _deviation(compact),
            "difference": statistics.fmean(apart),
            "standard_error": _deviation(apart) / len(apart) ** 0.5,
            "relative": statistics.fmean(compact) / statistics.fmean(kep) - 1,
        }
    return table


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profiles", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2, help="how many (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a seed of its own (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = compare(range(options.first_seed, options.first_seed + options.seeds), options.workers)
    table = summarise(found)
    if options.json:
        print(json.dumps({"runs": found, "summary": table}))
        return 0
    print(f"  {options.seeds} seeds: mean (standard deviation over seeds); difference +- its standard error")
    for figure, row in table.items():
        kep, compact = (f"{row[name]:8.3f} ({row[f'{name}_sd']:.3f})" for name in ("kep", "compact"))
        print(
            f"  {figure:12} kep {kep}  compact {compact}  {row['difference']:+.3f} +- {row['standard_error']:.3f} ({row['relative']:+.1%})"
        )
    for name, runs in found.items():
        print(f"  {name}: {statistics.fmean(run['ms'] for run in runs):.2f} ms a decision", end="; ")
    print(f"{statistics.fmean(run['proven'] for run in found['compact']):.1%} of compact's answers proven optimal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
