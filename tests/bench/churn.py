"""Many workloads placed and released on a cluster that is nearly full: how fast, and how much whole room is left.

    python -m tests.bench.churn [--nodes 10240] [--workloads 10000] [--load 0.9] [--json]

Jobs of 1 to 1,024 GPUs (even in their logarithm) in pods of 1, 2, 4 or 8, some with a required rack or block, some with a
preferred one, some with slices, come one after the other; while more than `load` of the GPUs would be in use, running
ones end, drawn at random. The clock runs for decisions, encoding and releases. Fragmentation is looked at every 500
workloads once the cluster is full, and the mean is told:

    free            share of all GPUs that nobody uses
    free racks      racks of which no GPU is in use, and how many the free GPUs would make if they lay together
    largest rack    GPUs of the largest job that still fits in one rack, in pods of one GPU
    partly used     share of the free GPUs that lie on nodes of which some are in use
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from typing import Any

import numpy as np

from core.model.podset import Mode, SliceLayer, TopologyRequest
from core.model.wire.encoding import encode
from core.placement.topology.free_capacity import NodeState
from core.queueing.flavors.outcome import Admissible
from core.state.facts import NodeFacts, PodSetFacts
from tests.bench.parts.life import NAMESPACE, Life, workload_of
from tests.bench.parts.shapes import ALLOCATABLE, LEVELS, PER_RACK, build_labels, per_gpu

GPU, EVERY, SEED = "nvidia.com/gpu", 500, 5
PER_NODE = ALLOCATABLE[GPU]
_GPUS_OF_A_RACK = PER_RACK * PER_NODE


def draw_pod_set(chance: random.Random) -> PodSetFacts:
    """What one job asks for."""
    gpus = chance.choice([1, 1, 2, 4, 8, 8])
    count = max(1, round(2 ** chance.uniform(0, 10)) // gpus)
    kind = chance.random()
    slices: tuple[SliceLayer, ...] = ()
    if kind < 0.2 and count * gpus <= _GPUS_OF_A_RACK:
        topology = TopologyRequest(Mode.REQUIRED, "rack")
    elif kind < 0.4:
        if count * gpus >= 64:
            size = 32 // gpus
            count, slices = count // size * size, (SliceLayer("rack", size),)
        topology = TopologyRequest(Mode.REQUIRED, "block", slices)
    elif kind < 0.8:
        topology = TopologyRequest(Mode.PREFERRED, chance.choice(["rack", "block"]))
    else:
        topology = TopologyRequest(Mode.UNCONSTRAINED)
    return PodSetFacts("main", count, per_gpu(gpus), topology, {}, None, ())


def look_at(life: Life) -> dict[str, float]:
    """Fragmentation now."""
    capacity = life.capacity
    free = capacity.free[capacity.axis[GPU]]
    per_rack = capacity.tree.sum_nodes(LEVELS.index("rack"), free)
    all_free = int(free.sum())
    return {
        "free": all_free / (len(free) * PER_NODE),
        "free_racks": int((per_rack == _GPUS_OF_A_RACK).sum()),
        "possible_racks": all_free // _GPUS_OF_A_RACK,
        "largest_rack": int(per_rack.max()),
        "partly_used": int(free[free < PER_NODE].sum()) / max(all_free, 1),
    }


def churn(nodes: int, workloads: int, load: float) -> dict[str, Any]:
    """Lives through so many workloads."""
    chance, state = random.Random(SEED), NodeState(ALLOCATABLE)
    life = Life(LEVELS, (NodeFacts(node.name, node.labels, state) for node in build_labels(nodes)))
    most, in_use, refused, pods, seconds, is_full = load * nodes * PER_NODE, 0, 0, 0, 0.0, False
    running: list[tuple[str, int]] = []
    looks: list[dict[str, float]] = []
    for number in range(workloads):
        pod_set = draw_pod_set(chance)
        wanted = pod_set.count * pod_set.requests[GPU]
        while running and in_use + wanted > most:
            is_full, drawn = True, chance.randrange(len(running))
            running[drawn], running[-1] = running[-1], running[drawn]
            ended, given = running.pop()
            in_use -= given
            began = time.perf_counter()
            life.release(f"{NAMESPACE}/{ended}")
            seconds += time.perf_counter() - began
        workload = workload_of(f"job-{number}", (pod_set,))
        began = time.perf_counter()
        outcome = life.decide(workload)
        if isinstance(outcome, Admissible):
            encode(outcome.placements[0][1].assignment)
        seconds += time.perf_counter() - began
        if isinstance(outcome, Admissible):
            running.append((f"job-{number}", wanted))
            in_use += wanted
            pods += pod_set.count
        else:
            refused += 1
            life.release(workload.key)
        if is_full and number % EVERY == 0:
            looks.append(look_at(life))
    looks = looks or [look_at(life)]
    assert int(np.sum(life.capacity.allocatable[life.capacity.axis[GPU]] - life.capacity.free[life.capacity.axis[GPU]])) == in_use
    return {
        "nodes": nodes,
        "workloads": workloads,
        "refused": refused,
        "running": len(running),
        "placements_per_s": round((workloads - refused) / seconds, 1),
        "pods_per_s": round(pods / seconds),
        **{name: round(statistics.fmean(look[name] for look in looks), 3) for name in looks[0]},
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.churn", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_240, help="(default: %(default)s)")
    parser.add_argument("--workloads", type=int, default=10_000, help="(default: %(default)s)")
    parser.add_argument("--load", type=float, default=0.9, help="of all GPUs (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = churn(options.nodes, options.workloads, options.load)
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{found['workloads']} workloads on {found['nodes']} nodes, {found['refused']} refused, {found['running']} run at the end")
    print(f"  {found['placements_per_s']:.0f} placements/s, {found['pods_per_s']} pods/s")
    print(
        f"  {found['free']:.1%} of the GPUs free: {found['free_racks']:.0f} of {found['possible_racks']:.0f} possible racks whole, "
        f"largest rack job {found['largest_rack']:.0f} of {_GPUS_OF_A_RACK} GPUs, {found['partly_used']:.1%} on nodes partly used"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
