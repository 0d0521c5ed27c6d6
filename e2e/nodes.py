"""A pool of simulated nodes from a small description: blocks x racks x nodes, resources, labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.clock import CLOCK

BLOCK_LABEL = "cloud.provider.com/topology-block"
RACK_LABEL = "cloud.provider.com/topology-rack"
HOSTNAME_LABEL = "kubernetes.io/hostname"
KWOK_ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
DEFAULT_ALLOCATABLE = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}


@dataclass(frozen=True)
class NodePool:
    """`blocks` of `racks` of `nodes`, all alike. Names are `<prefix>b1-r2-n3`; rack names are unique across blocks."""

    blocks: int = 2
    racks: int = 3
    nodes: int = 8
    prefix: str = ""
    allocatable: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_ALLOCATABLE))
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    block_label: str = BLOCK_LABEL
    rack_label: str = RACK_LABEL

    @property
    def levels(self) -> list[str]:
        """The labels from the highest level to the lowest, as a Topology names them."""
        return [self.block_label, self.rack_label, HOSTNAME_LABEL]


def build_nodes(pool: NodePool) -> list[dict[str, Any]]:
    """The Node objects, in the order of their names' numbers."""
    return [
        build_node(pool, block, rack, node)
        for block in range(1, pool.blocks + 1)
        for rack in range(1, pool.racks + 1)
        for node in range(1, pool.nodes + 1)
    ]


def build_node(pool: NodePool, block: int, rack: int, node: int) -> dict[str, Any]:
    """One node of the pool's kind; its place may lie outside the pool, to add one more later."""
    block_name = f"{pool.prefix}b{block}"
    rack_name = f"{block_name}-r{rack}"
    name = f"{rack_name}-n{node}"
    labels = {pool.block_label: block_name, pool.rack_label: rack_name, HOSTNAME_LABEL: name, "type": "kwok", **pool.labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": dict(KWOK_ANNOTATION)},
        "spec": {"taints": [dict(taint) for taint in pool.taints]} if pool.taints else {},
        "status": {"allocatable": dict(pool.allocatable), "capacity": dict(pool.allocatable)},
    }


def build_ready_condition(*, ready: bool) -> dict[str, str]:
    """The condition Ready of a node as it stays: kwok leaves alone what has one of these reasons (`e2e/stages/node.yaml`)."""
    now = CLOCK.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "Ready", "status": str(ready), "reason": "E2EReady" if ready else "E2EFailed", "lastTransitionTime": now}


def is_schedulable(node: Mapping[str, Any]) -> bool:
    """Ready, and no longer carrying the taint that the API server gives to every new node."""
    conditions = node.get("status", {}).get("conditions") or []
    taints = node.get("spec", {}).get("taints") or []
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)
