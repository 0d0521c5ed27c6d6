"""The load of the peer's performance rig (F.3), in Python: Workloads without jobs, whose execution is only pretended.

5 cohorts of 6 ClusterQueues; each gets workloads of three classes, one of a class every so often. Who is admitted runs for a while
and is then said to be finished; who is evicted gives its quota back at once and waits again.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    GROUP,
    HOSTNAME_LABEL,
    MANAGER_ADMISSION,
    MANAGER_JOB_CONTROLLER,
    QUOTA_RESERVED,
    VERSION,
)
from core.plan.steps.conditions import Condition, set_conditions
from core.plan.steps.managed_status import read_managed_status
from core.resource import Obj, Resource
from core.runtime.http.client import Client
from core.runtime.http.errors import Conflict, NotFound
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change, build_object_key
from core.state.facts import find_condition, is_condition_true
from e2e.nodes import BLOCK_LABEL, KWOK_ANNOTATION, RACK_LABEL

WORKLOADS = Resource(GROUP, VERSION, "workloads", "Workload")
NAMESPACE = "perf"
LEVELS = (BLOCK_LABEL, RACK_LABEL, HOSTNAME_LABEL)
NODE_LABELS = {"tas-node-group": "tas"}
FLAVOR, TOPOLOGY = "tas-flavor", "default-topology"
CLASS_LABEL, RUNNING_MS = "e2e.topogate.dev/class", "e2e.topogate.dev/running-ms"
AT_ONCE = 8
KINDS = ("required", "preferred", "slices")


@dataclass(frozen=True)
class Class:
    """Workloads of one size: how many of each kind a queue gets, their pods, how long they run, and how often one comes."""

    name: str
    counts: tuple[int, int, int]
    pods: int
    cpu_milli: int
    running_ms: int
    priority: int
    every_s: float
    slice_size: int


CLASSES = (
    Class("small", (120, 120, 110), 2, 500, 200, 50, 0.1, 1),
    Class("medium", (34, 33, 33), 4, 1250, 500, 100, 0.5, 2),
    Class("large", (17, 17, 16), 8, 2500, 1000, 200, 1.2, 4),
)


@dataclass(frozen=True)
class Load:
    """`share` of the workloads of a queue; hostnames as the peer's generator has them, the same in each rack, or unique ones."""

    cohorts: int = 5
    queues: int = 6
    share: float = 1.0
    racks: int = 10
    nodes: int = 64
    unique_hostnames: bool = False

    def node_objects(self) -> list[Obj]:
        """Nodes of 96 CPUs, 256 GiB and 110 pods in one block."""
        amounts = {"cpu": "96", "memory": "256Gi", "pods": "110"}
        objects = []
        for rack in range(self.racks):
            for i in range(self.nodes):
                name = f"rack-{rack}-node-{i}"
                hostname = name if self.unique_hostnames else f"node-{i}"
                labels = {BLOCK_LABEL: "block-0", RACK_LABEL: f"rack-{rack}", HOSTNAME_LABEL: hostname, "type": "kwok", **NODE_LABELS}
                metadata = {"name": name, "labels": labels, "annotations": dict(KWOK_ANNOTATION)}
                status = {"allocatable": amounts, "capacity": amounts}
                objects.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status})
        return objects

    def queue_names(self) -> list[tuple[str, str]]:
        """Cohort and ClusterQueue."""
        return [(f"cohort-{c}", f"cohort-{c}-queue-{q}") for c in range(self.cohorts) for q in range(self.queues)]

    def configuration(self) -> Iterator[Obj]:
        """Topology, flavor, queues, in the order in which they are to be made."""
        levels = [{"nodeLabel": label} for label in LEVELS]
        yield _build_object("Topology", TOPOLOGY, {"levels": levels})
        yield _build_object("ResourceFlavor", FLAVOR, {"nodeLabels": NODE_LABELS, "topologyName": TOPOLOGY})
        for cohort, name in self.queue_names():
            quota = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
            group = {"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}
            preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
            spec = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption}
            yield _build_object("ClusterQueue", name, spec)
            yield _build_object("LocalQueue", name, {"clusterQueue": name}, NAMESPACE)

    def streams(self) -> Iterator[tuple[Class, str, list[str]]]:
        """Per queue and class: the kinds of the workloads that come one after the other."""
        for _, queue in self.queue_names():
            for each in CLASSES:
                kinds = [kind for kind, count in zip(KINDS, each.counts, strict=True) for _ in range(round(count * self.share))]
                random.Random(f"{queue}/{each.name}").shuffle(kinds)
                yield each, queue, kinds


def _build_object(kind: str, name: str, spec: Mapping[str, Any], namespace: str | None = None) -> Obj:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": dict(spec)}


def build_workload(each: Class, queue: str, kind: str, number: int) -> Obj:
    """One workload of a class."""
    request: dict[str, Any] = (
        {kind: RACK_LABEL}
        if kind != "slices"
        else {
            "preferred": RACK_LABEL,
            "podSetSliceRequiredTopology": RACK_LABEL,
            "podSetSliceSize": each.slice_size,
        }
    )
    container = {"name": "c", "image": "example/none", "resources": {"requests": {"cpu": f"{each.cpu_milli}m"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_set = {"name": "main", "count": each.pods, "template": template, "topologyRequest": request}
    made = _build_object(
        "Workload", f"{queue}-{each.name}-{number}", {"queueName": queue, "priority": each.priority, "podSets": [pod_set]}, NAMESPACE
    )
    made["metadata"]["labels"] = {CLASS_LABEL: each.name, RUNNING_MS: str(each.running_ms)}
    return made


@dataclass
class Outcome:
    """What a run came to, times in seconds."""

    wall_s: float = 0.0
    created: int = 0
    finished: int = 0
    evictions: int = 0
    to_admission: dict[str, list[float]] = field(default_factory=dict)

    def averages(self) -> dict[str, float]:
        return {name: round(statistics.mean(times), 1) for name, times in sorted(self.to_admission.items())}


class Player:
    """Plays a load against an API server, and pretends that what is admitted runs."""

    def __init__(self, client: Client, load: Load) -> None:
        self._client, self._load = client, load
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._running: dict[str, str] = {}  # key -> the admission that it runs by
        self._evicted: set[str] = set()
        self._done = asyncio.Event()
        self._all_created = False
        self.outcome = Outcome()

    async def run(self, timeout_s: float) -> Outcome:
        """Creates all workloads and waits until the last is finished. Raises TimeoutError."""
        informer = Informer(self._client, WORKLOADS, namespace=NAMESPACE)
        began = time.monotonic()
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            self._group = group
            informer.add_handler(self._on_workload)
            watching = group.create_task(informer.run())
            await informer.wait_synced()
            began = time.monotonic()
            await asyncio.gather(*(self._create_all(*stream) for stream in self._load.streams()))
            self._all_created = True
            self._check()
            await self._done.wait()
            self.outcome.wall_s = round(time.monotonic() - began, 1)
            watching.cancel()
        return self.outcome

    async def _create_all(self, each: Class, queue: str, kinds: list[str]) -> None:
        began = time.monotonic()
        for number, kind in enumerate(kinds):
            await asyncio.sleep(max(0.0, began + number * each.every_s - time.monotonic()))
            async with self._gate:
                await self._client.create(WORKLOADS, build_workload(each, queue, kind, number), field_manager="perf-load")
            self.outcome.created += 1

    def _on_workload(self, change: Change) -> None:
        obj = change.new
        if obj is None or is_condition_true(obj, FINISHED):
            return
        key = build_object_key(obj)
        if is_condition_true(obj, EVICTED) and is_condition_true(obj, QUOTA_RESERVED):
            if key not in self._evicted:
                self._evicted.add(key)
                self._running.pop(key, None)
                self._group.create_task(self._release(obj))
        elif is_condition_true(obj, ADMITTED) and key not in self._running:
            self._evicted.discard(key)
            admitted = (find_condition(obj, ADMITTED) or {})["lastTransitionTime"]
            self._running[key] = admitted
            self._group.create_task(self._pretend(obj, admitted))

    async def _pretend(self, obj: Obj, admitted: str) -> None:
        key, labels = build_object_key(obj), obj["metadata"]["labels"]
        await asyncio.sleep(int(labels[RUNNING_MS]) / 1000)
        if self._running.get(key) != admitted:
            return
        generation = int(obj["metadata"].get("generation") or 0)
        condition = set_conditions([], [Condition(FINISHED, True, "ByTest", "")], now=format_now(), generation=generation)[0]
        body = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": {"conditions": [condition]}}
        async with self._gate:
            await self._apply(obj, body, MANAGER_JOB_CONTROLLER)
        waited = datetime.fromisoformat(admitted) - datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
        self.outcome.to_admission.setdefault(labels[CLASS_LABEL], []).append(waited.total_seconds())
        self.outcome.finished += 1
        self._check()

    async def _release(self, obj: Obj) -> None:
        """As a job controller does once all pods have ended: under the manager that wrote the admission, on the object as it is."""
        self.outcome.evictions += 1
        namespace, _, name = build_object_key(obj).partition("/")
        for _ in range(10):
            try:
                now = await self._client.get(WORKLOADS, name, namespace)
                status = read_managed_status(now)
                status.pop("admission", None)
                released = [
                    Condition(QUOTA_RESERVED, False, "Pending", "Evicted by the load"),
                    Condition(ADMITTED, False, "NoReservation", ""),
                ]
                generation = int(now["metadata"].get("generation") or 0)
                status["conditions"] = set_conditions(status["conditions"], released, now=format_now(), generation=generation)
                async with self._gate:
                    guard = {name: now["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}
                    await self._apply(now, {"metadata": guard, "status": status}, MANAGER_ADMISSION)
                return
            except Conflict:
                continue

    async def _apply(self, obj: Obj, body: Obj, manager: str) -> None:
        try:
            await self._client.apply(WORKLOADS, obj["metadata"]["name"], NAMESPACE, body, field_manager=manager, subresource="status")
        except NotFound:
            return

    def _check(self) -> None:
        if self._all_created and self.outcome.finished >= self.outcome.created:
            self._done.set()


def format_now() -> str:
    """The time as the API server writes it, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
