"""The shapes that the peer was measured on (vectors/BENCH.md), and what it took on them.

Levels block/rack/hostname, 16 nodes a rack, 40 racks a block; nodes of 192 cpu, 2 TiB, 8 GPUs and 110
pods, of which 45 % are full, 45 % empty and 10 % partly used; seeded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import MIXED, Profile, read_profile
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.tree import NodeLabels, TopologyTree

LEVELS = ("block", "rack", HOSTNAME_LABEL)
PER_RACK, RACKS_PER_BLOCK = 16, 40
GIB = 2**30
ALLOCATABLE = {"cpu": 192_000, "memory": 2048 * GIB, "nvidia.com/gpu": 8, "pods": 110}

# Milliseconds, median, `ready` column of BENCH.md: the peer's repeated find on one snapshot, its best figure.
PEER_MS = {
    "a": {640: 0.18, 2560: 0.81, 10240: 4.46, 40960: 39.65, 102400: 106.74},
    "b": {640: 0.46, 2560: 1.09, 10240: 6.18, 40960: 37.60, 102400: 97.26},
    "c": {640: 0.54, 2560: 2.02, 10240: 11.37, 40960: 72.77, 102400: 242.00},
    "d": {640: 0.25, 2560: 0.85, 10240: 4.12, 40960: 35.38, 102400: 99.35},
    "e": {640: 8.74, 2560: 11.21, 10240: 25.68, 40960: 61.30, 102400: 168.24},
    "f": {640: 0.41, 2560: 1.58, 10240: 11.87, 40960: 48.66, 102400: 149.74},
}


def per_gpu(gpus: int) -> dict[str, int]:
    """Requests of a pod by its GPUs."""
    return {"cpu": 8000 * gpus, "memory": 64 * GIB * gpus, "nvidia.com/gpu": gpus}


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked for, and with which gates."""

    requests: tuple[PodSetRequest, ...]
    profile: Profile = MIXED


_IN_BLOCK = TopologyRequest(Mode.REQUIRED, "block", group="g")

CASES = {
    "a": Case((PodSetRequest("main", 16, per_gpu(4), TopologyRequest(Mode.REQUIRED, "rack")),)),
    "b": Case((PodSetRequest("main", 256, per_gpu(8), TopologyRequest(Mode.PREFERRED, "block")),)),
    "c": Case((PodSetRequest("main", 1000, per_gpu(1), TopologyRequest(Mode.UNCONSTRAINED)),)),
    "d": Case((PodSetRequest("main", 256, per_gpu(2), TopologyRequest(Mode.REQUIRED, "block", (SliceLayer("rack", 16),))),)),
    "e": Case(
        (PodSetRequest("main", 256, per_gpu(4), TopologyRequest(Mode.PREFERRED, "rack")),),
        read_profile({"TASBalancedPlacement": True}),
    ),
    "f": Case(
        (
            PodSetRequest("leader", 1, {"cpu": 8000, "memory": 32 * GIB}, _IN_BLOCK),
            PodSetRequest("workers", 63, per_gpu(8), _IN_BLOCK),
        )
    ),
}


def build_labels(nodes: int) -> list[NodeLabels]:
    """The nodes of a cluster of so many."""
    labels = []
    for i in range(nodes):
        rack, name = i // PER_RACK, f"node-{i:06d}"
        places = {"block": f"b{rack // RACKS_PER_BLOCK:03d}", "rack": f"r{rack:05d}", HOSTNAME_LABEL: name, "pool": "gpu"}
        labels.append(NodeLabels(name, places))
    return labels


def build_used(nodes: int, seed: int = 7) -> list[int]:
    """GPUs in use on each node of a cluster of so many."""
    chance = random.Random(f"{seed}-{nodes}-{PER_RACK}")
    used = []
    for _ in range(nodes):
        x = chance.random()
        used.append(8 if x < 0.45 else (0 if x < 0.9 else chance.randint(1, 7)))
    return used


def build_view(nodes: int, seed: int = 7) -> FreeCapacity:
    """Free capacity of a cluster of so many nodes."""
    labels, state = build_labels(nodes), NodeState(ALLOCATABLE)
    view = FreeCapacity(TopologyTree(LEVELS, labels), {node.name: state for node in labels})
    for node, gpus in zip(labels, build_used(nodes, seed), strict=True):
        if gpus:
            view.use_node(node.name, {**per_gpu(1), "pods": 1}, gpus)
    return view


def build_requests(count: int) -> list[PodSetRequest]:
    """So many requests of which no two are the same, on these clusters."""
    modes = [TopologyRequest(Mode.REQUIRED, "block"), TopologyRequest(Mode.PREFERRED, "rack"), TopologyRequest(Mode.UNCONSTRAINED)]
    selectors = [{}, {"pool": "gpu"}, {"block": "b000"}]
    return [
        PodSetRequest("main", 1 + i % 50, {**per_gpu(1 + i % 8), "cpu": 1000 + i}, modes[i % 3], selectors[i // 3 % 3])
        for i in range(count)
    ]
