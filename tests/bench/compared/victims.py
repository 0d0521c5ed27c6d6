"""Case (e): a workload that needs a whole rack preempts, among many candidates of a lower priority in its own queue."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping

from core.names import ADMITTED, EVICTED, QUOTA_RESERVED
from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change, build_object_key
from core.state.facts import is_condition_true
from e2e.cluster import Cluster
from e2e.nodes import RACK_LABEL, NodePool
from e2e.perf_load import NAMESPACE, WORKLOADS, Load, Player
from tests.bench.compared.managers import Manager, Measured, Window, make_manager
from tests.bench.compared.rig import OTHER_PARTS, wait_until_active
from tests.bench.parts.one_queue import open_queue

GPUS, RACK_NODES, GPU = 8, 16, "nvidia.com/gpu"
QUOTAS: dict[str, str | int] = {"cpu": 1_000_000, GPU: 1_000_000}
TIMEOUT_S, RACK = 1800.0, f"{NAMESPACE}/rack"


def measure_victims(subject: str, candidates: int) -> Measured:
    """One run on a new control plane: candidates of one GPU each fill all racks but a part of one. Raises TimeoutError."""
    racks = -(-candidates // (GPUS * RACK_NODES))
    pool = NodePool(1, racks, RACK_NODES, labels={"pool": "victims"})
    with Cluster() as cluster, make_manager(subject, cluster) as manager:
        cluster.add_nodes(pool, timeout_s=600)
        open_queue(cluster, pool, NAMESPACE, QUOTAS, preemption={"withinClusterQueue": "LowerPriority"})
        for part in OTHER_PARTS:
            cluster.stop_part(part)
        wait_until_active(cluster)
        return asyncio.run(_measure(cluster, manager, candidates))


async def _measure(cluster: Cluster, manager: Manager, candidates: int) -> Measured:
    async with await Client.connect(str(cluster.kubeconfig), user_agent="perf-load") as client:
        player = _Player(client)
        async with asyncio.timeout(TIMEOUT_S), player.follow():
            filled_s = await player.fill(candidates)
            window = Window(cluster, manager)
            found = await player.preempt()
            return window.close(candidates, {**found, "admission of all candidates before, s": filled_s})


class _Player(Player):
    """Makes candidates and a preemptor, and gives back the quota of what is evicted, as a job controller does."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, Load())
        self._admitted: set[str] = set()
        self._first_eviction = 0.0
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def follow(self) -> AsyncIterator[None]:
        """Hears of Workloads inside."""
        informer = Informer(self._client, WORKLOADS, namespace=NAMESPACE)
        informer.add_handler(self._on_workload)
        async with asyncio.TaskGroup() as group:
            self._group = group
            watching = group.create_task(informer.run())
            await informer.wait_synced()
            yield
            watching.cancel()

    async def fill(self, candidates: int) -> float:
        """Returns the seconds until all candidates are admitted."""
        began = time.monotonic()

        async def create(number: int) -> None:
            async with self._gate:
                await self._client.create(
                    WORKLOADS, build_pods(f"candidate-{number:05}", NAMESPACE, 1, {"cpu": "1", GPU: "1"}), field_manager="perf-load"
                )

        await asyncio.gather(*map(create, range(candidates)))
        await self._wait_for(lambda: len(self._admitted) == candidates)
        return round(time.monotonic() - began, 1)

    async def preempt(self) -> dict[str, float]:
        """Returns how long it takes from the creation of the preemptor to the first eviction and to its admission."""
        began = time.monotonic()
        rack = build_pods("rack", NAMESPACE, RACK_NODES, {"cpu": "1", GPU: str(GPUS)}, priority=100, required=RACK_LABEL)
        await self._client.create(WORKLOADS, rack, field_manager="perf-load")
        await self._wait_for(lambda: RACK in self._admitted)
        admitted = time.monotonic()
        return {
            "from the preemptor to the first eviction, s": round(self._first_eviction - began, 2),
            "from the preemptor to its admission, s": round(admitted - began, 2),
            "evictions": len(self._evicted),
        }

    async def _wait_for(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    def _on_workload(self, change: Change) -> None:
        obj = change.new
        if obj is None:
            return
        key = build_object_key(obj)
        if is_condition_true(obj, EVICTED) and is_condition_true(obj, QUOTA_RESERVED):
            if key not in self._evicted:
                self._first_eviction = self._first_eviction or time.monotonic()
                self._evicted.add(key)
                self._group.create_task(self._release(obj))
        elif is_condition_true(obj, ADMITTED):
            self._admitted.add(key)
        self._changed.set()


def build_pods(
    name: str, namespace: str, count: int, requests: Mapping[str, str], *, priority: int = 0, required: str | None = None
) -> Obj:
    """A Workload of pods with these requests each, in one domain of a level or anywhere (None)."""
    container = {"name": "c", "image": "example/none", "resources": {"requests": dict(requests)}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    request: Obj = {"unconstrained": True} if required is None else {"required": required}
    pod_set = {"name": "main", "count": count, "template": template, "topologyRequest": request}
    spec = {"queueName": "main", "priority": priority, "podSets": [pod_set]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
