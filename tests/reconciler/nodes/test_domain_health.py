"""Workloads in racks whose nodes fail: they stay as long as what is left holds them, else they are evicted with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.node_health_rules import HealthRules
from core.names import EVICTED, PODSET_LABEL, RANK_ANNOTATION, WORKLOAD_ANNOTATION
from core.plan.steps import pacing
from core.plan.workloads.requeue import count_in_a_row
from core.runtime.controller import Done, RequeueAfter
from core.runtime.workqueue import WorkQueue
from core.state.facts import find_condition
from reconciler.nodes.domain_health import DomainHealth
from tests.builders import RACK, build_topology_json
from tests.reconciler.harness_nodes import KEY, OWNER, NodesHarness

DELAY_S = HealthRules().not_ready_delay_s


class RacksHarness(NodesHarness):
    """A topology of racks without hostnames; each node has room for eight pods of one CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.put({"kind": "Topology", **build_topology_json("t", [RACK])})
        self.held = False
        self.health = DomainHealth(self.observed, self.executor, self.clock, HealthRules(), lambda facts: self.held)  # type: ignore[assignment]

    def rack_workload(
        self, count: int, *, done: int = 0, rack: str = "r0", slices: list[dict[str, Any]] | None = None, asked: int | None = None
    ) -> None:
        """`asked`: of so many pods, and it can do with one."""
        values = slices or [{"domainCount": 1, "podCounts": {"universal": count}, "valuesPerLevel": [{"universal": rack}]}]
        given = {"name": "main", "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(count)}}
        given["topologyAssignment"] = {"levels": [RACK], "slices": values}
        status: dict[str, Any] = {
            "admission": {"clusterQueue": "q", "podSetAssignments": [given]},
            "conditions": [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")],
            "reclaimablePods": [{"name": "main", "count": done}] if done else [],
        }
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
        fewest = {"minCount": 1} if asked is not None else {}
        spec = {"queueName": "main", "podSets": [{"name": "main", "count": asked or count, "template": template, **fewest}]}
        self.put({"kind": "Workload", "metadata": {"name": "w", "ownerReferences": [OWNER]}, "spec": spec, "status": status})

    def rack_pods(self, *names: str, node: str = "", phase: str = "Running", ending: bool = False, cpu: str = "1") -> None:
        for name in names:
            containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
            spec: dict[str, Any] = {"containers": containers, "nodeSelector": {RACK: "r0"}} | ({"nodeName": node} if node else {})
            metadata: dict[str, Any] = {"name": name, "labels": {PODSET_LABEL: "main"}, "ownerReferences": [OWNER]}
            metadata |= {"annotations": {WORKLOAD_ANNOTATION: "w", RANK_ANNOTATION: "0"}}
            metadata |= {"deletionTimestamp": self.now()} if ending else {}
            self.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}})

    def strangers(self, node: str, cpu: int) -> None:
        spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}
        self.put({"kind": "Pod", "metadata": {"name": f"other-{node}"}, "spec": spec, "status": {"phase": "Running"}})

    def evicted(self) -> str | None:
        """Why, if it was."""
        found = find_condition({"status": self.statuses[-1]}, EVICTED) if self.statuses else None
        return str(found["message"]) if found is not None else None

    def wait(self, seconds: float) -> None:
        self.clock.time += seconds


@pytest.fixture
def racks() -> RacksHarness:
    """A workload of ten pods in a rack of two nodes, eight on a and two on b."""
    racks = RacksHarness()
    for name in ("a", "b"):
        racks.node(name)
    racks.rack_workload(10)
    racks.rack_pods(*(f"a{i}" for i in range(8)), node="a")
    racks.rack_pods("b0", "b1", node="b")
    return racks


def test_nothing_is_done_while_all_run_or_the_rest_holds_them(racks: RacksHarness):
    assert racks.look() == Done()
    racks.drop("Pod", "b0")
    assert racks.look() == Done(), "it is made anew, and the place is kept"
    racks.node("b", unschedulable=True)
    racks.drop("Pod", "a0")
    assert isinstance(racks.look(), RequeueAfter), "a takes the one, and b takes the other no more"
    racks.drop("Pod", "a1")
    racks.rack_pods("new", node="a")
    racks.node("b")
    assert racks.look() == Done()
    assert racks.statuses == []


def test_workload_that_its_rack_cannot_hold_after_a_node_failure_is_evicted_after_the_delay(racks: RacksHarness):
    racks.node("b", ready=False)
    assert racks.look() == Done(), "its pods may be there again"
    racks.drop("Pod", "b0")
    racks.drop("Pod", "b1")
    assert racks.look() == RequeueAfter(DELAY_S)
    racks.wait(DELAY_S - 1)
    assert racks.look() == RequeueAfter(1)
    racks.wait(1)
    assert racks.look() == Done()
    assert all(part in (racks.evicted() or "") for part in (f"{RACK} r0", "0 of 2 pods of pod set main", "b (NotReady)"))
    assert count_in_a_row({"metadata": {}, "status": racks.statuses[-1]}) == 1


def test_a_shortage_that_ends_in_time_is_forgotten(racks: RacksHarness):
    racks.node("b", ready=False)
    racks.drop("Pod", "b0")
    assert racks.look() == RequeueAfter(DELAY_S)
    racks.wait(DELAY_S - 1)
    racks.node("b")
    assert racks.look() == Done()
    racks.node("b", ready=False)
    assert racks.look() == RequeueAfter(DELAY_S)
    assert racks.statuses == []


def test_pods_that_end_on_a_node_that_is_up_make_room_for_the_next(racks: RacksHarness):
    racks.strangers("b", 6)
    racks.rack_pods("b0", "b1", node="b", ending=True)
    assert racks.look() == Done()
    racks.node("b", ready=False)
    assert racks.look() == RequeueAfter(DELAY_S), "on one that is not they may end for ever"


def test_a_node_that_is_gone_holds_nothing(racks: RacksHarness):
    racks.drop("Node", "b")
    racks.wait(0)
    assert racks.look() == RequeueAfter(DELAY_S)
    racks.drop("Node", "a")
    racks.wait(DELAY_S)
    racks.look()
    assert all(part in (racks.evicted() or "") for part in (f"{RACK} r0", "0 of 10 pods of pod set main", "no node of flavor f"))


def test_look_with_pods_that_run_on_nodes_without_rack_label_evicts_nothing(racks: RacksHarness):
    for name in ("a", "b"):
        racks.node(name, rack="")
    assert racks.look() == Done()
    racks.wait(10 * DELAY_S)
    assert racks.look() == Done()
    racks.drop("Pod", "b0")
    assert racks.look() == RequeueAfter(DELAY_S), "a pod has to come, and no node can take it"
    racks.node("a")
    racks.drop("Pod", "a0")
    assert racks.look() == RequeueAfter(DELAY_S), "the rack has room for one of two pods"
    racks.rack_pods("new", node="a")
    racks.node("b")
    assert racks.look() == Done()
    assert racks.statuses == []


def test_look_with_a_pod_to_come_blames_no_domain_in_which_all_pods_run(racks: RacksHarness):
    """The pod has room in rack r1. That the nodes of rack r0 have lost their label is no shortage."""
    racks.node("c", rack="r1")
    values = [
        {"domainCount": 1, "podCounts": {"universal": 10}, "valuesPerLevel": [{"universal": "r0"}]},
        {"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": "r1"}]},
    ]
    racks.rack_workload(11, slices=values)
    for name in ("a", "b"):
        racks.node(name, rack="")
    assert racks.look() == Done()


def test_pods_that_come_no_more_need_no_room(racks: RacksHarness):
    racks.rack_pods("b0", "b1", node="b", phase="Succeeded")
    racks.node("b", ready=False)
    assert racks.look() == Done()
    racks.drop("Pod", "b0")
    racks.rack_workload(10, done=2)
    assert racks.look() == Done()


def test_workload_on_failed_nodes_is_not_evicted_while_evictions_are_held(racks: RacksHarness):
    racks.held = True
    racks.node("b", ready=False)
    racks.drop("Pod", "b0")
    racks.look()
    racks.wait(DELAY_S)
    assert racks.look() == RequeueAfter(pacing.STORM_LOOK_S)
    racks.held = False
    assert racks.look() == Done()
    assert racks.evicted() is not None


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Keys that were put in line since."""
    put: list[object] = []
    monkeypatch.setattr(WorkQueue, "add_after", lambda self, key, delay, reason="": put.append(key))
    return put


def test_workload_in_a_rack_is_due_only_when_its_nodes_or_pods_change(racks: RacksHarness, due: list[object]):
    racks.node("c", rack="r9")
    assert due == []
    racks.node("b", ready=False)
    assert KEY in due
    due.clear()
    racks.drop("Pod", "b0")
    assert KEY in due
    due.clear()
    racks.rack_workload(10, rack="r9")
    assert KEY in due
    due.clear()
    racks.node("b")
    assert due == []
    racks.node("c", rack="r9", ready=False)
    assert KEY in due


def test_pods_of_a_job_with_fewer_pods_than_asked_for_need_no_room_while_they_run():
    harness = RacksHarness()
    harness.node("a", rack="r0")
    harness.node("b", rack="r0")
    harness.rack_workload(4, asked=9)
    harness.rack_pods("p0", "p1", node="a")
    harness.rack_pods("p2", "p3", node="b")
    harness.strangers("a", 6)
    harness.node("b", rack="r1")
    for _ in range(3):
        assert isinstance(harness.look(), Done)
        harness.wait(60)
    assert harness.evicted() is None
