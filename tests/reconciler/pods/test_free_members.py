"""With the feature gate of groups off, what they ask for is ignored: pods that wait for a place by their group are let go."""

from __future__ import annotations

from typing import Any

from core.names import MEMBER_OF_LABEL, PODGROUP_GATE, TOPOLOGY_GATE
from core.runtime.controller import Done
from reconciler.pods.free_members import FreeMembers
from sim.apiserver.server import Request
from sim.harness import Harness
from tests.runtime.fakes import ManualClock


class MembersHarness(Harness):
    """Pods, and who lets them go."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.members = FreeMembers(self.observed, self.executor, self.clock)
        self.tried: list[Request] = []
        self.on_write = self.tried.append

    def pod(self, name: str, *gates: str, **metadata: Any) -> None:
        labelled = {"name": name, "labels": {MEMBER_OF_LABEL: "g"}, **metadata}
        spec = {"schedulingGates": [{"name": gate} for gate in gates], "containers": []}
        self.put({"kind": "Pod", "metadata": labelled, "spec": spec})

    @property
    def let_go_of(self) -> list[tuple[str, Any]]:
        """Pods that were tried to be let go, each with what sends it to a node."""
        return [(request.name, request.body["spec"].get("affinity")) for request in self.tried]

    def work(self) -> list[object]:
        """Answers by what was due."""
        queue = self.members.controller.queue

        async def all_of_it() -> list[object]:
            found: list[object] = []
            while queue.depth:
                item = await queue.get()
                found.append(await self.members._reconcile(item))
                queue.finish(item.key)
            return found

        return self.wait_for(all_of_it())


def test_pods_with_the_gate_are_let_go_to_anywhere() -> None:
    harness = MembersHarness()
    harness.pod("p0", PODGROUP_GATE)
    harness.pod("p1", TOPOLOGY_GATE)
    harness.pod("p2", PODGROUP_GATE, deletionTimestamp="2026-01-01T00:00:00Z")
    harness.pod("p3")
    assert harness.work() == [Done()]
    assert harness.let_go_of == [("p0", None)]


def test_one_that_is_gone_or_was_changed_meanwhile_is_left_to_its_event() -> None:
    harness = MembersHarness()
    harness.pod("p0", PODGROUP_GATE)
    harness.drop("Pod", "p0")
    harness.pod("p1", PODGROUP_GATE)
    harness.late.add("Pod")
    pod = harness.get("Pod", "p1")
    harness.put({**pod, "metadata": {**pod["metadata"], "labels": {}}})
    assert harness.work() == [Done(), Done()]
    assert harness.let_go_of == [("p1", None)]
