"""Everything that admits and evicts at work on an API server in memory, and administrators who pause it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from core.model.configuration import SecondPass
from core.model.pause_state import Stop
from core.model.pods_ready_rules import PodsReadyRules
from core.names import PAUSE_CONFIG_MAP, SYSTEM_NAMESPACE
from reconciler.workloads.activity import Activity
from reconciler.workloads.checks import Checks
from reconciler.workloads.pausing import Pausing
from reconciler.workloads.pods_ready import PodsReady
from sim.apiserver.patches import merge
from tests.reconciler.harness_queues import QueuesHarness
from tests.runtime.fakes import LoopClock

RULES = PodsReadyRules(timeout_s=10, recovery_timeout_s=5, backoff_base_s=20, backoff_limit=3)


class PauseHarness(QueuesHarness):
    """To be made on the loop of the test, whose time is its own."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        parts = (
            self.queues,
            PodsReady(self.observed, self.executor, self.clock, RULES, jitter=lambda: 0.0),
            Activity(self.observed, self.executor, self.clock),
            Checks(self.observed, self.executor, self.clock, SecondPass()),
        )
        self.controllers = [part.controller for part in parts]
        self.pausing = Pausing(self.observed, lambda: self.controllers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.run_parts(self.scheduler.run(), *(controller.run() for controller in self.controllers)):
            yield

    def pause(self, *what: str, reason: str = "rewiring") -> None:
        """Exactly this is paused from now on."""
        self.put_pause({key: Stop(key, self.now(), "alice", reason).to_text() for key in what})

    def put_pause(self, data: Mapping[str, str]) -> None:
        self.put({"kind": "ConfigMap", "metadata": {"name": PAUSE_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE}, "data": data})

    def change(self, name: str, patch: Mapping[str, Any]) -> None:
        """Somebody else changes a Workload."""
        self.put(merge(self.get("Workload", name), patch))

    def said(self, kind: str, name: str = "train") -> tuple[str, str]:
        """Reason and message of a condition."""
        found = self.find_condition(kind, name)
        return str(found.get("reason")), str(found.get("message"))

    def of_queue(self, kind: str) -> dict[str, Any]:
        """A condition of the only ClusterQueue."""
        return self.find_condition(kind, "cq", "ClusterQueue")
