"""The kind cluster's shape: which container is which node of which rack of which block."""

from __future__ import annotations

from typing import Any

from e2e.nodes import HOSTNAME_LABEL, NodePool, build_nodes

# Kubernetes of the minor version of `e2e.binaries`; the digest is the one that kind v0.33.0 was released with.
NODE_IMAGE = "kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed"
POOL_LABEL = "pool"
POOL = "kind"
OPERATORS_LABEL = {"e2e.topogate.dev/role": "operators"}
SHAPE = NodePool(blocks=2, racks=2, nodes=2, labels={POOL_LABEL: POOL})


def build_places(pool: NodePool) -> list[dict[str, str]]:
    """Labels of a pool's nodes without those that a real node has of its own."""
    made = []
    for node in build_nodes(pool):
        labels = dict(node["metadata"]["labels"])
        del labels[HOSTNAME_LABEL], labels["type"]
        made.append(labels)
    return made


def build_config() -> dict[str, Any]:
    """What `kind create cluster --config` is given.

    A worker beside those of the shape takes the operators, so that their pods take no room where a scene counts it.
    """
    workers = [OPERATORS_LABEL, *build_places(SHAPE)]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [
            {"role": "control-plane", "image": NODE_IMAGE},
            *({"role": "worker", "image": NODE_IMAGE, "labels": labels} for labels in workers),
        ],
    }
