"""What the load of `tests.bench.admission` takes of an API server before anybody decides anything.

    python -m tests.bench.parts.floor [--count 1500]

Each workload is created, has an admission written and is said to be finished: one request each, with nobody watching. The sum of what
that takes of all processors is the least time in which so many workloads can be served on this machine, whoever decides.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from core.names import ADMITTED, FINISHED, MANAGER_ADMISSION, MANAGER_JOB_CONTROLLER, QUOTA_RESERVED
from core.plan.steps.conditions import Condition, set_conditions
from core.resource import Obj, Resource
from core.runtime.http.client import Client
from core.runtime.watch.store import Change, build_object_key
from core.state.facts import is_condition_true
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.crds import register_conversion
from e2e.perf_load import AT_ONCE, CLASSES, FLAVOR, NAMESPACE, WORKLOADS, Load, Player, build_workload, format_now
from e2e.topogate import Topogate
from tests.bench.parts.meter import Meter

WHOLE = 15_000
NOW = "2026-01-01T00:00:00Z"
EVENTS = Resource("", "v1", "events", "Event")
Step = Callable[[Obj], Awaitable[Obj]]
RESERVED_AND_ADMITTED = (
    Condition(QUOTA_RESERVED, True, QUOTA_RESERVED, "reserved"),
    Condition(ADMITTED, True, ADMITTED, "admitted"),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.parts.floor", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1500, help="workloads (default: 1500)")
    count = parser.parse_args(arguments).count
    ensure_binaries()
    total = 0.0
    for name, per_second, cpu_ms in measure(count):
        total += sum(cpu_ms.values())
        print(f"{name:<10}{per_second:6.0f} a second   processor time each (ms): {cpu_ms}")
    processors = os.cpu_count() or 1
    least = total * WHOLE / 1000 / processors
    print(f"{WHOLE} workloads on {processors} processors: {least:.0f} s at least, at {total:.1f} ms each")
    return 0


def measure(count: int) -> Iterator[tuple[str, float, Mapping[str, float]]]:
    """Per step its name, how many a second, and the processor time of each by process. What comes before the first is not measured."""
    with Cluster() as cluster, contextlib.ExitStack() as stack:
        topogate = Topogate(cluster, leader_election=False).start(converts_only=True)
        stack.callback(topogate.stop)
        register_conversion(cluster.api, {"strategy": "None"})
        cluster.create_namespace(NAMESPACE)
        for part in ("kube-scheduler", "kube-controller-manager", "kwok"):
            cluster.stop_part(part)
        yield from asyncio.run(_play(cluster, count))


async def _play(cluster: Cluster, count: int) -> list[tuple[str, float, Mapping[str, float]]]:
    pids = {name: cluster.pids[name] for name in ("etcd", "kube-apiserver")} | {"load generator": os.getpid()}
    async with await Client.connect(str(cluster.kubeconfig), user_agent="perf-floor") as client:
        steps = _steps(client)
        await _all(steps, [build_workload(CLASSES[2], "warming-up", "preferred", i) for i in range(200)], pids)
        return await _all(steps, [build_workload(CLASSES[2], "queue", "preferred", i) for i in range(count)], pids)


def _steps(client: Client) -> Mapping[str, Step]:
    async def apply(obj: Obj, status: Mapping[str, Any], manager: str) -> Obj:
        body = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": status}
        name = obj["metadata"]["name"]
        return await client.apply(WORKLOADS, name, NAMESPACE, body, field_manager=manager, subresource="status")

    async def create(obj: Obj) -> Obj:
        return await client.create(WORKLOADS, obj, field_manager="perf-floor")

    async def admit(obj: Obj) -> Obj:
        conditions = RESERVED_AND_ADMITTED
        return await apply(obj, {"admission": build_admission(obj), "conditions": _written(conditions)}, MANAGER_ADMISSION)

    async def finish(obj: Obj) -> Obj:
        return await apply(obj, {"conditions": _written([Condition(FINISHED, True, "ByTest", "")])}, MANAGER_JOB_CONTROLLER)

    return {"create": create, "admit": admit, "finish": finish}


def _written(conditions: Sequence[Condition], now: str = NOW, generation: int = 1) -> list[dict[str, Any]]:
    return set_conditions([], conditions, now=now, generation=generation)


def build_admission(workload: Obj) -> Obj:
    """All pods of a Workload of the load on one node, whether there is room or not."""
    [pod_set], queue = workload["spec"]["podSets"], workload["spec"]["queueName"]
    [container] = pod_set["template"]["spec"]["containers"]
    count, cpu_milli = pod_set["count"], int(container["resources"]["requests"]["cpu"].removesuffix("m"))
    each = {"domainCount": 1, "podCounts": {"universal": count}, "valuesPerLevel": [{"universal": "rack-0-node-10"}]}
    assigned = {
        "name": pod_set["name"],
        "count": count,
        "flavors": {"cpu": FLAVOR},
        "resourceUsage": {"cpu": f"{count * cpu_milli}m"},
        "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": [each]},
    }
    return {"clusterQueue": queue, "podSetAssignments": [assigned]}


class FloorPlayer(Player):
    """Plays a load without a manager: admits each Workload as soon as its watch shows it, in one request, and writes the two events of the
    contract. Quota and room are not looked at, and no workload is evicted."""

    def __init__(self, client: Client, load: Load) -> None:
        super().__init__(client, load)
        self._admitted: set[str] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)  # of its own: topogate and the load do not wait for each other either

    def _on_workload(self, change: Change) -> None:
        obj = change.new
        if obj is None or is_condition_true(obj, QUOTA_RESERVED):
            super()._on_workload(change)
        elif (key := build_object_key(obj)) not in self._admitted:
            self._admitted.add(key)
            self._group.create_task(self._admit(obj))

    async def _admit(self, obj: Obj) -> None:
        generation = int(obj["metadata"].get("generation") or 0)
        conditions = _written(RESERVED_AND_ADMITTED, format_now(), generation)
        body = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": {"admission": build_admission(obj), "conditions": conditions}}
        async with self._turns:
            await self._apply(obj, body, MANAGER_ADMISSION)
        for reason in (QUOTA_RESERVED, ADMITTED):
            async with self._turns:
                await self._client.create(EVENTS, build_event(obj, reason))


def build_event(workload: Obj, reason: str) -> Obj:
    """A Normal event on a Workload."""
    metadata, now = workload["metadata"], format_now()
    about = {"apiVersion": workload["apiVersion"], "kind": "Workload", **{name: metadata[name] for name in ("name", "namespace", "uid")}}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": about,
        "reason": reason,
        "message": f"{reason} in the ClusterQueue {workload['spec']['queueName']}, wait time since queued was 1s",
        "type": "Normal",
        "source": {"component": "floor"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


async def _all(steps: Mapping[str, Step], objects: list[Obj], pids: dict[str, int]) -> list[tuple[str, float, Mapping[str, float]]]:
    gate = asyncio.Semaphore(AT_ONCE)
    rows: list[tuple[str, float, Mapping[str, float]]] = []

    async def one(step: Step, obj: Obj) -> Obj:
        async with gate:
            return await step(obj)

    for name, step in steps.items():
        meter, began = Meter.of(pids), time.monotonic()
        objects = await asyncio.gather(*(one(step, obj) for obj in objects))
        took = time.monotonic() - began
        cpu_ms = {part: round(1000 * used.cpu_s / len(objects), 2) for part, used in meter.read().items()}
        rows.append((name, len(objects) / took, cpu_ms))
    return rows


if __name__ == "__main__":
    sys.exit(main())
