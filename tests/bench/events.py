"""What one event costs, and what a node costs in memory.

    python -m tests.bench.events [--nodes 10240,102400] [--json]

Every event goes through `ClusterState`, from the object's facts on, on a cluster of which half is in use. A change of
capacity, taints or readiness, a pod that comes and one that goes: median and 99th percentile of 2,000, in microseconds; a pod of
ours that is bound or ends belongs to a workload of 1,000 pods on as many nodes. A node relabelled, added or deleted:
median of 6, in milliseconds, with the new tree, in which any number of such nodes are one batch.

Memory is counted by tracemalloc per node, at cpu, memory and GPUs (and pods, which every node has): the arrays; the
whole engine with its names, paths and indices; what it keeps after 300 different requests; what are not the engine's,
the objects of labels and of the other facts of a node, each apart.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from core.model.podset import Mode, TopologyRequest
from core.placement.algorithms.profile import MIXED
from core.placement.engine import place
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.tree import NodeLabels, TopologyTree
from core.queueing.flavors.outcome import Admissible
from core.state.facts import NodeFacts, PodSetFacts
from tests.bench.parts.life import Life, build_pod, workload_of
from tests.bench.parts.shapes import ALLOCATABLE, LEVELS, build_labels, build_requests, build_used, per_gpu

EVENTS, OWN_PODS, REBUILDS, REQUESTS, SEED = 2000, 1000, 3, 300, 11
EVENT_BUDGET_US, MEMORY_BUDGET = 50, 1024
_KINDS = ("capacity", "taint", "ready", "heartbeat", "pod", "pod_gone", "own_pod", "own_pod_gone")


def measure(nodes: int) -> dict[str, Any]:
    """One row: times, then bytes a node."""
    return {"nodes": nodes, **measure_events(nodes), **measure_rebuilds(nodes), **measure_memory(nodes)}


def _build_life(nodes: int) -> Life:
    labels, used = build_labels(nodes), build_used(nodes)
    life = Life(LEVELS, (NodeFacts(node.name, node.labels, NodeState(dict(ALLOCATABLE))) for node in labels))
    for node, gpus in zip(labels, used, strict=True):
        if gpus:
            life.state.observe_pod(f"other/on-{node.name}", build_pod(f"on-{node.name}", node.name, per_gpu(gpus)))
    return life


def measure_events(nodes: int) -> dict[str, float]:
    """Microseconds, median and 99th percentile, of an event that leaves every node where it is."""
    life, chance = _build_life(nodes), random.Random(SEED)
    state = life.state
    drawn = [state.nodes[f"node-{chance.randrange(nodes):06d}"] for _ in range(EVENTS)]
    taint = (("key", "value", "NoSchedule"),)
    less = {**ALLOCATABLE, "cpu": ALLOCATABLE["cpu"] // 2}

    def toggled(**change: Any) -> Iterator[Callable[[], None]]:
        # Every second event takes the first one back, so that each changes something.
        for node in drawn[: EVENTS // 2]:
            for changed in (replace(node, state=replace(node.state, **change)), node):
                yield partial(state.observe_node, node.name, changed)

    pods = [build_pod(f"new-{i}", node.name, {"cpu": 500, "memory": 2**30}) for i, node in enumerate(drawn)]
    workload = workload_of("large", (PodSetFacts("main", OWN_PODS, per_gpu(8), TopologyRequest(Mode.UNCONSTRAINED), {}, None, ()),))
    outcome = life.decide(workload)
    assert isinstance(outcome, Admissible)
    ours = [
        replace(build_pod(f"ours-{i}", node, per_gpu(8)), workload=workload.key, pod_set="main", owner_uid=workload.owner_uid)
        for i, (node, _) in enumerate(outcome.placements[0][1].nodes)
    ]
    kinds = {
        "capacity": toggled(allocatable=less),
        "taint": toggled(taints=taint),
        "ready": toggled(ready=False),
        "heartbeat": (partial(state.observe_node, node.name, replace(node, labels=dict(node.labels))) for node in drawn),
        "pod": (partial(state.observe_pod, pod.key, pod) for pod in pods),
        "pod_gone": (partial(state.observe_pod, pod.key, None) for pod in pods),
        "own_pod": (partial(state.observe_pod, pod.key, pod) for pod in ours),
        "own_pod_gone": (partial(state.observe_pod, pod.key, None) for pod in ours),
    }
    figures: dict[str, float] = {}
    for kind, calls in kinds.items():
        taken = sorted(_time_each_us(calls))
        figures |= {f"{kind}_us": round(statistics.median(taken), 2), f"{kind}_p99_us": round(taken[len(taken) * 99 // 100], 2)}
    return figures


def measure_rebuilds(nodes: int) -> dict[str, float]:
    """Median milliseconds of an event that makes a new tree, with the tree."""
    state = _build_life(nodes).state
    first = state.nodes["node-000000"]
    labels = {**first.labels, "rack": "elsewhere"}
    new = NodeFacts("node-new", {**first.labels, LEVELS[-1]: "node-new"}, first.state)

    def rebuild(name: str, node: NodeFacts | None) -> None:
        state.observe_node(name, node)
        state.refresh()

    relabelled = [replace(first, labels=labels), first] * REBUILDS
    came_and_went = [new, None] * REBUILDS
    return {
        "relabelled_ms": round(statistics.median(_time_each_us(partial(rebuild, first.name, node) for node in relabelled)) / 1000, 2),
        "added_ms": round(statistics.median(_time_each_us(partial(rebuild, new.name, node) for node in came_and_went)) / 1000, 2),
    }


def _time_each_us(calls: Iterable[Callable[[], None]]) -> list[float]:
    figures = []
    for call in calls:
        began = time.perf_counter()
        call()
        figures.append((time.perf_counter() - began) * 1e6)
    return figures


def measure_memory(nodes: int) -> dict[str, float]:
    """Bytes a node."""
    build_labels(1)
    gc.collect()
    tracemalloc.start()
    try:
        grown = _Growth(nodes)
        labels = build_labels(nodes)
        labels_bytes = grown.since_last()
        states = {node.name: NodeState(dict(ALLOCATABLE)) for node in labels}
        facts = [NodeFacts(node.name, node.labels, states[node.name]) for node in labels]
        facts_bytes = grown.since_last()
        engine = FreeCapacity(TopologyTree(LEVELS, [NodeLabels(node.name, node.labels) for node in labels]), states)
        first, *others = build_requests(REQUESTS)
        place(engine, [first], MIXED)
        arrays = count_array_bytes(engine) / nodes
        engine_bytes = grown.since_last()
        for request in others:
            place(engine, [request], MIXED)
        kept_bytes = grown.since_last()
        del engine
        grown.since_last()
        life = Life(LEVELS, facts)
        state_bytes = grown.since_last() - engine_bytes
        del life
    finally:
        tracemalloc.stop()
    return {
        "array_bytes": round(arrays),
        "engine_bytes": engine_bytes,
        "kept_bytes": kept_bytes,
        "label_bytes": labels_bytes,
        "fact_bytes": facts_bytes,
        "state_bytes": state_bytes,
    }


class _Growth:
    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._last = tracemalloc.get_traced_memory()[0]

    def since_last(self) -> int:
        """Bytes a node that came since this was asked last."""
        gc.collect()
        last, self._last = self._last, tracemalloc.get_traced_memory()[0]
        return round((self._last - last) / self._nodes)


def count_array_bytes(thing: object, seen: set[int] | None = None) -> int:
    """Bytes of all arrays that are reached from an object's attributes, each once."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes if thing.base is None else count_array_bytes(thing.base, seen)
    if isinstance(thing, dict):
        return sum(count_array_bytes(value, seen) for value in thing.values())
    if isinstance(thing, tuple | list) and any(not isinstance(entry, str | int | tuple) for entry in thing[:2]):
        return sum(count_array_bytes(value, seen) for value in thing)
    if is_dataclass(thing):
        return sum(count_array_bytes(getattr(thing, field.name), seen) for field in fields(thing))
    return sum(count_array_bytes(value, seen) for value in vars(thing).values()) if hasattr(thing, "__dict__") else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.events", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="10240,102400", help="comma-separated (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = [measure(int(nodes)) for nodes in options.nodes.split(",")]
    if options.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(f"{row['nodes']} nodes")
        told = ", ".join(f"{kind.replace('_', ' ')} {row[f'{kind}_us']:.1f} ({row[f'{kind}_p99_us']:.0f})" for kind in _KINDS)
        print(f"  event, us, median (p99): {told}; budget {EVENT_BUDGET_US}")
        print(f"  new tree, ms:            node relabelled {row['relabelled_ms']:.0f}, added {row['added_ms']:.0f}")
        print(
            f"  memory, bytes a node:    engine {row['engine_bytes']}, of which arrays {row['array_bytes']}; "
            f"kept by it after {REQUESTS} different requests {row['kept_bytes']}; budget {MEMORY_BUDGET}"
        )
        others = ", ".join(f"{name}s {row[f'{name}_bytes']}" for name in ("label", "fact"))
        print(f"                           not the engine's: {others}, state {row['state_bytes']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
