"""Many teams on one cluster: 6 queues of 2 cohorts over 200 nodes, and jobs of mixed size and priority that run and finish."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from core.names import API_VERSION, PRIORITY_CLASS_LABEL
from e2e import manifests
from e2e.api import ApiError
from e2e.audit import truth
from e2e.audit.waiting import describe_waiting
from e2e.cluster import Cluster
from e2e.nodes import BLOCK_LABEL, RACK_LABEL, NodePool

Obj = dict[str, Any]
SEED = 7
NAMESPACE = "shared"
GPU, CPU = "nvidia.com/gpu", "cpu"
GPUS = 4  # of a node
_AMOUNTS = {"cpu": "32", "memory": "256Gi", "pods": "110", GPU: str(GPUS)}
POOL = NodePool(blocks=4, racks=5, nodes=10, prefix="shared-", labels={"pool": "shared"}, allocatable=_AMOUNTS)
FLAVOR = TOPOLOGY = "shared"
PRIORITIES = {"shared-low": 0, "shared-normal": 100, "shared-high": 1000}
PREEMPTS = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
# Cohort, nominal quota of GPUs, what else. The quotas add up to all GPUs there are.
QUEUES: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "east-strict": ("east", 140, {"strategy": "StrictFIFO", "preemption": PREEMPTS}),
    "east-own": ("east", 140, {"preemption": PREEMPTS}),
    "east-guest": ("east", 120, {}),
    "west-own": ("west", 200, {"preemption": PREEMPTS}),
    "west-limited": ("west", 150, {"preemption": {**PREEMPTS, "reclaimWithinCohort": "LowerPriority"}, "borrowing_limit": 20}),
    "west-guest": ("west", 50, {}),
}
GUESTS = ("east-guest", "west-guest")
_AT_ONCE, _EVERY_S = 6, 0.05


@dataclass(frozen=True)
class Asked:
    """A job of the crowd."""

    name: str
    queue: str
    priority: str
    pods: int
    gpus: int
    run_seconds: int
    topology: Mapping[str, str | int]

    @property
    def required(self) -> str | None:
        level = self.topology.get("required")
        return None if level is None else str(level)

    def manifest(self) -> Obj:
        asked = {"pods": self.pods, "gpus": self.gpus, "queue": self.queue, "run_seconds": self.run_seconds, **self.topology}
        return manifests.build_job(self.name, NAMESPACE, labels={PRIORITY_CLASS_LABEL: self.priority}, **asked)  # type: ignore[arg-type]


def draw_crowd(count: int) -> list[Asked]:
    """First one job that fills its queue, and one of higher priority that needs some of it. Then guests, which borrow, then everybody, and
    owners want their own back."""
    chance, anywhere = random.Random(SEED), {"unconstrained": "true"}
    low = Asked("job-low", "west-limited", "shared-low", 42, GPUS, 25, anywhere)
    crowd = [low, Asked("job-high", "west-limited", "shared-high", 16, GPUS, 5, anywhere)]
    for number in range(count):
        queue = chance.choice(GUESTS if number < count // 5 else list(QUEUES))
        priority = chance.choices(list(PRIORITIES), (5, 3, 2))[0]
        gpus = chance.choice([1, 2, GPUS, GPUS])
        pods = chance.choices([1, 2, 4, 8, 16], (8, 6, 4, 2, 1))[0]
        crowd.append(Asked(f"job-{number:03}", queue, priority, pods, gpus, chance.randint(2, 12), _draw_topology(chance, pods, gpus)))
    return crowd


def _draw_topology(chance: random.Random, pods: int, gpus: int) -> Mapping[str, str | int]:
    kind = chance.random()
    if pods >= 8 and kind < 0.3:
        return {"required": BLOCK_LABEL, "slice_topology": RACK_LABEL, "slice_size": 4}
    if kind < 0.5:
        return {"required": RACK_LABEL if pods * gpus <= POOL.nodes * GPUS else BLOCK_LABEL}
    if kind < 0.8:
        return {"preferred": RACK_LABEL}
    return {"unconstrained": "true"}


class SharedCluster:
    """The nodes, queues and priority classes, in place while the `with` block runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self.api = cluster, cluster.api

    def __enter__(self) -> SharedCluster:
        self._cluster.add_nodes(POOL)
        self._cluster.create_namespace(NAMESPACE)
        for obj in _configuration():
            self.api.create(manifests.get_path(obj), obj)
        return self

    def __exit__(self, *_: object) -> None:
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs?propagationPolicy=Background"
        workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
        for path in (jobs, workloads, f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0"):
            self._delete_all(path)
        self._cluster.delete_namespace(NAMESPACE)
        for obj in reversed(list(_configuration())):
            self.api.delete(f"{manifests.get_path(obj)}/{obj['metadata']['name']}")
        self._cluster.delete_nodes([node for node in self.read().nodes if node.startswith(POOL.prefix)])

    def _delete_all(self, path: str) -> None:
        """A loaded server gives up on it after a minute; what it has done by then is done."""
        for _ in range(5):
            with contextlib.suppress(ApiError):
                self.api.request("DELETE", path)
                return

    def submit(self, crowd: list[Asked]) -> None:
        """One after the other, some 20 a second."""

        def apply(asked: tuple[int, Asked]) -> None:
            time.sleep(max(0.0, began + asked[0] * _EVERY_S - time.monotonic()))
            manifest = asked[1].manifest()
            self.api.create(manifests.get_path(manifest), manifest)

        began = time.monotonic()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(apply, enumerate(crowd)))

    def read(self) -> truth.Snapshot:
        return truth.read(self.api, [NAMESPACE])

    def picture(self) -> str:
        return describe_waiting(self.read())

    def nodes(self) -> list[Obj]:
        return [node for name, node in self.read().nodes.items() if name.startswith(POOL.prefix)]

    def queues(self) -> list[Obj]:
        found = self.api.list(f"/apis/{API_VERSION}/clusterqueues")
        return [queue for queue in found if queue["metadata"]["name"] in QUEUES]


def _configuration() -> Iterator[Obj]:
    yield manifests.build_topology(TOPOLOGY, POOL.levels)
    yield manifests.build_flavor(FLAVOR, POOL.labels, TOPOLOGY)
    for name, value in PRIORITIES.items():
        yield {"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
    for name, (cohort, gpus, given) in QUEUES.items():
        spec = dict(given)
        limit = spec.pop("borrowing_limit", None)
        queue = manifests.build_cluster_queue(name, {FLAVOR: {CPU: 10_000, GPU: gpus}}, cohortName=cohort, **spec)
        if limit is not None:
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][1]["borrowingLimit"] = limit
        yield queue
    for name in QUEUES:
        yield manifests.build_local_queue(name, NAMESPACE, name)
