"""The scheduler and the reconciler of queues on an API server in memory: a small cluster with one queue, and workloads that wait in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from core.model.admission import decode_admission
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import STANDARD
from core.plan.steps.steps import make_plan
from core.plan.workloads.workload_steps import give_back
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.http.errors import NotFound
from core.runtime.workqueue import Item
from core.state.facts import find_condition, is_condition_true
from core.state.whereabouts import describe_place
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.schedule.scheduler import Scheduler
from reconciler.workloads.queues import Queues
from sim.harness import Harness
from tests.builders import RACK, Node, build_cluster_queue_json, build_flavor_json, build_node_json, build_pod_set_json, build_topology_json
from tests.runtime.fakes import ManualClock


class QueuesHarness(Harness):
    """Two racks of one node each, quota for ten CPUs, LocalQueue `main` in namespace `ns`."""

    def __init__(self, recorder: Recorder = UNRECORDED, clock: Clock | None = None) -> None:
        super().__init__(clock or ManualClock())
        self.scheduler = Scheduler(self.observed, self.executor, self.clock, STANDARD, recorder=recorder)
        self.queues = Queues(self.observed, self.executor, self.clock)
        self.put({"kind": "Topology", **build_topology_json("t", [RACK, HOSTNAME_LABEL])})
        self.put({"kind": "ResourceFlavor", **build_flavor_json("gpu", "t")})
        self.queue({"gpu": "10"})
        self.put({"kind": "LocalQueue", "metadata": {"name": "main"}, "spec": {"clusterQueue": "cq"}})
        for rack in ("r1", "r2"):
            self.node(f"{rack}-n", rack)

    def node(self, name: str, rack: str, *, cpu: int = 4000) -> None:
        self.put({"kind": "Node", **build_node_json(Node(name, {RACK: rack, HOSTNAME_LABEL: name}, {"cpu": cpu, "pods": 110}))})

    def queue(self, quota: Mapping[str, str], **spec: Any) -> None:
        """The ClusterQueue as it is from now on; quota for CPUs by flavor."""
        self.put({"kind": "ClusterQueue", **build_cluster_queue_json("cq", quota, **spec)})

    def workload(
        self,
        name: str,
        *,
        count: int,
        owner: tuple[str, str, str] | None,
        topology: Mapping[str, Any] | None = None,
        queue: str = "main",
    ) -> Obj:
        """A Workload that waits; `owner` is apiVersion, kind and name."""
        owners = []
        if owner is not None:
            version, kind, called = owner
            owners = [{"apiVersion": version, "kind": kind, "name": called, "uid": f"uid-{called}", "controller": True}]
        spec = {"queueName": queue, "podSets": [build_pod_set_json("main", count, topology=topology)]}
        return self.put({"kind": "Workload", "metadata": {"name": name, "ownerReferences": owners}, "spec": spec})

    def decide(self) -> None:
        """One cycle, with its writes."""

        async def decide() -> None:
            await self.scheduler.run_cycle()
            await self.scheduler.settle()

        self.wait_for(decide())

    def reconcile(self, plural: str, name: str) -> None:
        """One run on one queue, flavor or topology."""
        with suppress(NotFound):  # a status that was to be written on what had just lost its last finalizer
            self.wait_for(self.queues._reconcile(Item((plural, name), frozenset(), 0.0)))

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.time += seconds

    @asynccontextmanager
    async def run_parts(self, *parts: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
        """As a process that has just been started: everything is listed once."""
        tasks = [asyncio.create_task(part) for part in (*parts, self.executor.reporter.run())]
        for kind in ("ConfigMap", "AdmissionCheck", "ClusterQueue", "LocalQueue", "Job", "Pod", "Workload"):
            for obj in self.all(kind):
                self.put(obj)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop_job(self, name: str = "train") -> None:
        """What the controller of jobs does once its pods are gone."""
        workload = self.get("Workload", name)
        admission = decode_admission(workload["status"]["admission"])
        assert admission is not None
        released = give_back(workload, describe_place(self.observed.state, admission), self.executor.format_now())
        assert released is not None
        await self.executor.execute(make_plan(released))

    def is_true(self, kind: str, name: str = "train") -> bool:
        return is_condition_true(self.get("Workload", name), kind)

    def find_condition(self, type_: str, name: str = "train", kind: str = "Workload") -> Obj:
        """A condition of an object; empty where there is none of the type."""
        return dict(find_condition(self.get(kind, name), type_) or {})

    def told(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of the events on one object of any kind."""
        return [(event.reason, event.message) for event in self.events if event.key.rpartition("/")[2] == name]


async def wait_until(seconds: float) -> None:
    """The world as it is at this time, counted from the beginning."""
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())
