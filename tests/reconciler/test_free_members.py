"""With the feature gate of groups off, what they ask for is ignored: pods that wait for a place by their group are let go."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from core.names import MEMBER_OF_LABEL, PODGROUP_GATE, TOPOLOGY_GATE
from core.runtime.client import Client
from core.runtime.controller import Done
from core.runtime.errors import Conflict
from core.runtime.resource import Obj
from core.runtime.watch_step import Applied, Deleted
from reconciler.apply import Writer
from reconciler.free_members import FreeMembers
from reconciler.observed import Observed
from tests.runtime.fakes import ManualClock


class Paper:
    """Pods, and who lets them go."""

    def __init__(self) -> None:
        self.observed = Observed(cast("Client", None), ManualClock())
        self.members = FreeMembers(self.observed, cast("Writer", self), ManualClock())
        self.let_go_of: list[tuple[str, str]] = []
        self.answer: Conflict | None = None

    def pod(self, name: str, *gates: str, **metadata: Any) -> Obj:
        found = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": {MEMBER_OF_LABEL: "g"}, **metadata}
        pod = {"metadata": found, "spec": {"schedulingGates": [{"name": gate} for gate in gates], "containers": []}, "status": {}}
        self.observed.pods._fold(Applied(pod))
        return pod

    async def let_go(self, pod: Obj, node: str) -> Obj:
        self.let_go_of.append((pod["metadata"]["name"], node))
        if self.answer is not None:
            raise self.answer
        return pod

    def work(self) -> list[object]:
        """Answers by what was due."""
        queue = self.members.controller.queue

        async def all_of_it() -> list[object]:
            found: list[object] = []
            while queue.depth:
                item = await queue.get()
                found.append(await self.members._reconcile(item))
                queue.done(item.key)
            return found

        return asyncio.run(all_of_it())


def test_pods_with_the_gate_are_let_go_to_anywhere() -> None:
    paper = Paper()
    paper.pod("p0", PODGROUP_GATE)
    paper.pod("p1", TOPOLOGY_GATE)
    paper.pod("p2", PODGROUP_GATE, deletionTimestamp="2026-01-01T00:00:00Z")
    paper.pod("p3")
    assert paper.work() == [Done()]
    assert paper.let_go_of == [("p0", "")]


def test_one_that_is_gone_or_was_changed_meanwhile_is_left_to_its_event() -> None:
    paper = Paper()
    pod = paper.pod("p0", PODGROUP_GATE)
    paper.observed.pods._fold(Deleted(pod))
    paper.pod("p1", PODGROUP_GATE)
    paper.answer = Conflict(409, "Conflict", "changed")
    assert paper.work() == [Done(), Done()]
    assert paper.let_go_of == [("p1", "")]
