"""A small queue over four nodes in two racks, and what became of the jobs in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.names import ACTIVE, TRACEPARENT_ANNOTATION
from e2e import manifests
from e2e.api import wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.nodes import NodePool

QUOTA = {"cpu": 100, "nvidia.com/gpu": 100}


@dataclass(frozen=True)
class Scene:
    """Everything in it is named after it."""

    cluster: Cluster
    name: str
    pool: NodePool

    def submit(self, name: str, *, annotations: Mapping[str, str] | None = None, **options: Any) -> dict[str, Any]:
        """Creates a job that wants one rack; `annotations` are the job's own."""
        job = manifests.build_job(name, self.name, required=self.pool.rack_label, **options)
        job["metadata"]["annotations"] = dict(annotations or {})
        return self.cluster.api.create(manifests.get_path(job), job)

    def read(self) -> truth.Snapshot:
        return truth.read(self.cluster.api, [self.name])

    def wait_bound(self, name: str, pods: int) -> None:
        wait_for(f"job {name} to be bound", lambda: not truth.check_all_bound(self.read(), name, pods), poll_s=0.2)

    def story(self, name: str) -> str:
        """The trace id that a job's workload names."""
        workload = wait_for(f"a workload of job {name}", lambda: self.read().workload_of(name))
        return str(workload["metadata"]["annotations"][TRACEPARENT_ANNOTATION].split("-")[1])


def is_active(cluster: Cluster, path: str) -> bool:
    return truth.is_true(cluster.api.get(path), ACTIVE)


@contextmanager
def scene(cluster: Cluster, name: str) -> Iterator[Scene]:
    """While topogate runs: what is made for it has finalizers that topogate takes off."""
    pool = NodePool(blocks=1, racks=2, nodes=2, prefix=f"{name}-", labels={"node-group": name})
    cluster.create_namespace(name)
    objects = [
        manifests.build_topology(name, pool.levels),
        manifests.build_flavor(name, pool.labels, name),
        manifests.build_cluster_queue(name, {name: QUOTA}),
        manifests.build_local_queue("main", name, name),
    ]
    nodes = cluster.add_nodes(pool)
    try:
        for obj in objects:
            cluster.api.create(manifests.get_path(obj), obj)
        # Each kind has a watch of its own: a job could be seen before its queue, and its story would begin with a refusal.
        for obj in objects[-2:]:
            path = f"{manifests.get_path(obj)}/{obj['metadata']['name']}"
            wait_for(f"{obj['kind']} {name} to be active", partial(is_active, cluster, path))
        yield Scene(cluster, name, pool)
    finally:
        cluster.delete_namespace(name)
        for obj in reversed(objects):
            cluster.api.delete(f"{manifests.get_path(obj)}/{obj['metadata']['name']}")
        cluster.delete_nodes(nodes)
