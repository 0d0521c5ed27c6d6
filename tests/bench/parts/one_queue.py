"""One queue over all nodes of a pool, as most benches need it."""

from __future__ import annotations

from typing import Any

from e2e import manifests
from e2e.cluster import Cluster
from e2e.nodes import NodePool


def open_queue(cluster: Cluster, pool: NodePool, name: str, quotas: dict[str, str | int], **spec: Any) -> None:
    """Makes a namespace with the LocalQueue `main`, and Topology, ResourceFlavor and ClusterQueue (`spec`: more of it), all of one name."""
    cluster.create_namespace(name)
    for obj in (
        manifests.build_topology(name, pool.levels),
        manifests.build_flavor(name, pool.labels, name),
        manifests.build_cluster_queue(name, {name: quotas}, **spec),
        manifests.build_local_queue("main", name, name),
    ):
        cluster.api.create(manifests.get_path(obj), obj)
