"""A cluster in memory with one queue, for the tests of one way that a job may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.model.gates import NO_GATES, ChosenGates
from e2e import manifests
from e2e.nodes import NodePool, build_nodes
from sim.administrators import make_ready
from sim.world import World


def make_world(pool: NodePool, *, gpus: int, levels: Sequence[str] | None = None, gates: ChosenGates = NO_GATES, **queue: Any) -> World:
    """Nodes of a pool, all ready, and LocalQueue `main` of namespace `ns`; no reconciler yet. `levels` are of the topology (None: those of
    the pool; empty: the flavor has no topology), `gates` are the webhook's, `queue` is of the ClusterQueue's spec."""
    levels = pool.levels if levels is None else levels
    world = World(1, gates=gates)
    for node in build_nodes(pool):
        world.apply(make_ready(node, "True"))
    if levels:
        world.apply(manifests.build_topology("t", levels))
    world.apply(manifests.build_flavor("f", pool.labels, "t" if levels else None))
    world.apply(manifests.build_cluster_queue("cq", {"f": {"cpu": 100, "memory": "1Ti", "nvidia.com/gpu": gpus}}, **queue))
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    world.apply(manifests.build_local_queue("main", "ns", "cq"))
    return world
