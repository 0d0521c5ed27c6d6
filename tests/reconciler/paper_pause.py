"""The reconciler on paper with its real writer: what it sends to an API server is written into the paper, and seen at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from core.model.configuration import SecondPass
from core.model.pause import Stop
from core.model.pods_ready import PodsReadyRules
from core.names import MANAGER_ADMISSION, PAUSE_CONFIG_MAP
from core.placement.profile import STANDARD
from core.runtime.client import Client
from core.runtime.errors import Conflict
from core.runtime.resource import Obj, Resource
from core.state.facts import condition_is_true, find_condition
from reconciler import resources as r
from reconciler.activity import Activity
from reconciler.apply import Writer
from reconciler.checks import Checks
from reconciler.pausing import Pausing
from reconciler.pods_ready import PodsReady
from reconciler.queues import Queues
from reconciler.scheduler import Scheduler
from reconciler.steps import WorkloadSteps
from tests.reconciler.paper_queues import CLUSTER_SCOPED, QueuesPaper
from tests.runtime.fakes import LoopClock

RULES = PodsReadyRules(timeout_s=10, recovery_timeout_s=5, backoff_base_s=20, backoff_limit=3)


class PaperClient:
    """The verbs that a writer uses on Workloads, queues and events. `latency_s` passes before a write arrives."""

    def __init__(self, paper: PausePaper) -> None:
        self._paper, self.latency_s = paper, 0.0

    async def apply(
        self, resource: Resource, name: str, namespace: str | None, body: Mapping[str, Any], *, field_manager: str, subresource: str
    ) -> Obj:
        await asyncio.sleep(self.latency_s)
        whole = self._seen(resource, name, namespace, body)
        status = dict(body["status"])
        if resource is r.WORKLOADS and field_manager != MANAGER_ADMISSION:
            changed = {condition["type"] for condition in status["conditions"]}
            before = whole.get("status") or {}
            kept = [condition for condition in before.get("conditions") or () if condition["type"] not in changed]
            status = {**before, "conditions": [*kept, *status["conditions"]]}
        return self._paper.put({**whole, "status": status})

    async def get(self, resource: Resource, name: str, namespace: str | None) -> Obj:
        return self._seen(resource, name, namespace, {})

    async def patch(self, resource: Resource, name: str, namespace: str | None, body: Mapping[str, Any], **_options: Any) -> Obj:
        await asyncio.sleep(self.latency_s)
        whole = self._seen(resource, name, namespace, body)
        return self._paper.put({**whole, "spec": {**whole["spec"], **body.get("spec", {})}})

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None, **_options: Any) -> Obj:
        assert resource is r.EVENTS
        about = body["involvedObject"]
        self._paper.stories.append((about["kind"], about["name"], body["reason"], body["message"]))
        return dict(body)

    def _seen(self, resource: Resource, name: str, namespace: str | None, body: Mapping[str, Any]) -> Obj:
        whole = self._paper.get(resource.kind, name, "None" if resource.kind in CLUSTER_SCOPED else str(namespace))
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != whole["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "it has changed")
        return whole


class PausePaper(QueuesPaper):
    """Everything that admits and evicts at work."""

    def __init__(self) -> None:
        super().__init__()
        self.time = LoopClock()
        self.client = PaperClient(self)
        self._informers |= {"ConfigMap": self.observed.pauses, "AdmissionCheck": self.observed.admission_checks}
        self.writer = Writer(cast("Client", self.client), self.time, paused=lambda: self.observed.state.pause)
        self.scheduler = Scheduler(self.observed, self.writer, self.time, STANDARD)
        parts = (
            Queues(self.observed, self.writer, self.time),
            PodsReady(self.observed, self.writer, self.time, RULES, jitter=lambda: 0.0),
            Activity(self.observed, self.writer, self.time),
            Checks(self.observed, self.writer, self.time, SecondPass()),
        )
        self.controllers = [part.controller for part in parts]
        self.pausing = Pausing(self.observed, lambda: self.controllers)

    def put(self, obj: Mapping[str, Any]) -> Obj:
        return super().put({**obj, "metadata": {"generation": 1, **obj["metadata"]}})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As a process that has just been started: everything is listed once."""
        tasks = [asyncio.create_task(self.scheduler.run()), *(asyncio.create_task(controller.run()) for controller in self.controllers)]
        for kind in ("ConfigMap", "AdmissionCheck", "ClusterQueue", "LocalQueue", "Workload"):
            for obj in self.all(kind):
                self.put(obj)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def pause(self, *what: str, reason: str = "rewiring") -> None:
        """Exactly this is paused from now on."""
        data = {key: Stop(key, self.now(), "alice", reason).to_text() for key in what}
        self.put({"kind": "ConfigMap", "metadata": {"name": PAUSE_CONFIG_MAP}, "data": data})

    def now(self) -> str:
        return self.time.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def change(self, name: str, patch: Mapping[str, Any]) -> None:
        """Somebody else changes a Workload."""
        whole = self.get("Workload", name)
        self.put(_merged(whole, patch))

    def is_true(self, kind: str, name: str = "train") -> bool:
        return condition_is_true(self.get("Workload", name), kind)

    def said(self, kind: str, name: str = "train") -> tuple[str, str]:
        """Reason and message of a condition."""
        found = find_condition(self.get("Workload", name), kind) or {}
        return str(found.get("reason")), str(found.get("message"))

    def of_queue(self, kind: str) -> Obj:
        """A condition of the only ClusterQueue."""
        return dict(find_condition(self.get("ClusterQueue", "cq", "None"), kind) or {})

    async def stop_job(self, name: str = "train") -> None:
        """What the controller of jobs does once its pods are gone."""
        assert await WorkloadSteps(self.observed, self.writer).give_back(self.get("Workload", name))


def _merged(whole: Mapping[str, Any], patch: Mapping[str, Any]) -> Obj:
    merged = dict(whole)
    for key, value in patch.items():
        merged[key] = _merged(merged.get(key) or {}, value) if isinstance(value, Mapping) else value
    return merged


async def until(seconds: float) -> None:
    """The world as it is at this time, counted from the beginning."""
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())
