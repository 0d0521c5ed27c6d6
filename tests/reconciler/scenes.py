"""A scene: nodes, queues and a namespace of its own on the session's control plane, checked for the invariant at its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from e2e import manifests
from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.nodes import NodePool

GPU = "nvidia.com/gpu"
_numbers = itertools.count(1)
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
LOWER_PRIORITY = {"withinClusterQueue": "LowerPriority"}


class Scene:
    """Objects of one test. All names carry the scene's prefix, so scenes on one cluster do not meet."""

    unclosed: ClassVar[list[Scene]] = []
    """Opened, and not closed yet."""
    by_host = True
    """Whether the hostname is the lowest level of its topology."""

    def __init__(self, cluster: Cluster, *, blocks: int = 1, racks: int = 2, nodes: int = 2, gpus: int = 8) -> None:
        self.cluster, self.api = cluster, cluster.api
        self._is_open = False  # or was, before it was closed
        self.prefix = f"s{next(_numbers)}-"
        self.namespace = f"{self.prefix}team"
        allocatable = {"cpu": "32", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
        self.pool = NodePool(blocks, racks, nodes, prefix=self.prefix, labels={"pool": self.prefix.rstrip("-")}, allocatable=allocatable)

    @property
    def rack(self) -> str:
        return self.pool.rack_label

    @property
    def block(self) -> str:
        return self.pool.block_label

    def open_without_queue(self) -> Scene:
        """Its nodes and its namespace."""
        self._is_open = True
        self.unclosed.append(self)
        self.cluster.add_nodes(self.pool)
        self.cluster.create_namespace(self.namespace)
        return self

    def open(self, *, quota: int = 1000, strategy: str = "BestEffortFIFO") -> Scene:
        self.open_without_queue()
        topology, flavor = f"{self.prefix}topology", f"{self.prefix}flavor"
        self.create(manifests.build_topology(topology, self.pool.levels if self.by_host else self.pool.levels[:-1]))
        self.create(manifests.build_flavor(flavor, self.pool.labels, topology))
        self.create(manifests.build_cluster_queue(f"{self.prefix}queue", {flavor: {"cpu": 1000, GPU: quota}}, strategy=strategy))
        self.create(manifests.build_local_queue("main", self.namespace, f"{self.prefix}queue"))
        return self

    def close(self) -> None:
        """Deletes everything, once; the invariant must have held before."""
        assert self._is_open, "what was never opened is not deleted, and stays in the way of all tests that follow"
        if self not in self.unclosed:
            return
        broken = truth.check_invariants(self.read())
        self._delete_everything()  # whatever is broken: what a failed test leaves must not be in the way of all that follow
        assert broken == []

    def _delete_everything(self) -> None:
        self.unclosed.remove(self)
        self.clear()
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")
        self.eventually("pods to be gone", lambda now: not now.pods_in(self.namespace))
        for workload in self.read().workloads:  # the next test's are not to wait for these, whether a reconciler runs or not
            with suppress(ApiError):  # gone by now
                self.api.patch(f"{WORKLOADS.format(self.namespace)}/{workload['metadata']['name']}", {"metadata": {"finalizers": None}})
        for plural, name in (("clusterqueues", "queue"), ("resourceflavors", "flavor"), ("topologies", "topology")):
            self.api.delete(f"/apis/kueue.x-k8s.io/v1beta2/{plural}/{self.prefix}{name}")
        self.cluster.delete_nodes([name for name in self.read().nodes if name.startswith(self.prefix)])

    # --- doing ------------------------------------------------------------------------------------------

    def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        return self.api.create(manifests.get_path(obj), dict(obj))

    def submit(self, name: str, **asked: Any) -> dict[str, Any]:
        return self.create(manifests.build_job(name, self.namespace, **asked))

    def patch_job(self, name: str, body: Mapping[str, Any]) -> None:
        self.api.patch(f"{JOBS.format(self.namespace)}/{name}", dict(body))

    def patch_workload(self, job: str, body: Mapping[str, Any]) -> None:
        workload = self.read().workload_of(job)
        assert workload is not None
        self.api.patch(f"{WORKLOADS.format(self.namespace)}/{workload['metadata']['name']}", dict(body))

    def delete_job(self, name: str) -> None:
        self.api.request("DELETE", f"{JOBS.format(self.namespace)}/{name}?propagationPolicy=Background")

    def clear(self) -> None:
        """Deletes all jobs with what is theirs: not left to the garbage collector, which takes its time on a new cluster."""
        self.api.request("DELETE", f"{JOBS.format(self.namespace)}?propagationPolicy=Background")
        self.api.request("DELETE", WORKLOADS.format(self.namespace))
        self.api.request("DELETE", f"/api/v1/namespaces/{self.namespace}/pods?gracePeriodSeconds=0")

    def end_pod(self, name: str, status: Mapping[str, Any]) -> None:
        """Writes how a pod has ended, once kwok has written that it runs: a late "Running" would take it back."""

        def runs(now: truth.Snapshot) -> bool:
            pods = [pod for pod in now.pods if pod["metadata"]["name"] == name]
            return any(pod["status"].get("phase") == "Running" for pod in pods)

        self.eventually(f"pod {name} to run", runs)
        self.api.patch(f"/api/v1/namespaces/{self.namespace}/pods/{name}/status", {"status": dict(status)})

    def allow_preemption(self) -> None:
        """Lets workloads of the queue preempt those of lower priority in it."""
        self.api.patch(f"{QUEUES}/{self.prefix}queue", {"spec": {"preemption": LOWER_PRIORITY}})

    # --- seeing -----------------------------------------------------------------------------------------

    def read(self) -> truth.Snapshot:
        return truth.read(self.api, [self.namespace])

    def job(self, name: str) -> dict[str, Any]:
        return self.api.get(f"{JOBS.format(self.namespace)}/{name}")

    def eventually(self, what: str, probe: Callable[[truth.Snapshot], object]) -> truth.Snapshot:
        """The first snapshot for which the probe holds."""

        def look() -> truth.Snapshot | None:
            now = self.read()
            return now if probe(now) else None

        return wait_for(what, look)

    def until_bound(self, name: str, pods: int) -> truth.Snapshot:
        return self.eventually(f"{name} to be bound", lambda now: truth.check_all_bound(now, name, pods) == [])

    def until_waiting(self, name: str, reason: str) -> str:
        """The message with which a job waits for this reason."""

        def waits(now: truth.Snapshot) -> bool:
            condition = truth.get_condition(now.workload_of(name), "QuotaReserved")
            return condition.get("status") == "False" and condition.get("reason") == reason

        now = self.eventually(f"{name} to wait for {reason}", waits)
        return str(truth.get_condition(now.workload_of(name), "QuotaReserved")["message"])
