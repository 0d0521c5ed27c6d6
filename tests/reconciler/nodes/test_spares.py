"""The loop that keeps nodes free: what it holds, names and tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from core.names import BORROWED_SPARES, FIELD_MANAGER, HOSTNAME_LABEL, LEAVING_TAINTS, LEND_SPARES, SPARE_NODES, SPARES, SPARES_HELD
from core.plan.steps import pacing
from core.plan.workloads.reports import SPARES_MANAGER
from core.resource import Obj
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.http.errors import Conflict
from core.state.facts import find_condition
from reconciler.nodes.spares import Spares
from sim.apiserver.server import Request
from tests.builders import build_condition_json
from tests.reconciler.harness_nodes import KEY, NodesHarness


class SparesHarness(NodesHarness):
    """A workload of one pod for which nodes are to be kept free."""

    def __init__(self) -> None:
        super().__init__()
        self.spares = Spares(self.observed, self.executor, self.clock, LEAVING_TAINTS, self.storms.is_affected)
        self.fails: Exception | None = None
        self.on_write = self.check

    def check(self, request: Request) -> None:
        if self.fails is not None:
            raise self.fails
        assert not self.observed.state.ledger.find_drift()
        assert request.params["fieldManager"] in (FIELD_MANAGER, SPARES_MANAGER)

    @property
    def patches(self) -> int:
        """How often nodes were named."""
        return sum(request.params["fieldManager"] == FIELD_MANAGER for request in self.writes)

    def asks(self, spares: int, *hosts: str, unhealthy: tuple[str, ...] = (), held: str | None = None, lends: bool = False) -> None:
        self.workload(*hosts, unhealthy=unhealthy)
        workload = self.now_as_it_is()
        (pod_set,) = workload["spec"]["podSets"]
        notes = {SPARE_NODES: str(spares)} | ({LEND_SPARES: "true"} if lends else {})
        template = {**pod_set["template"], "metadata": {"annotations": notes}}
        topology = {"required": "cloud/rack"}
        self.change({"spec": {**workload["spec"], "podSets": [{**pod_set, "template": template, "topologyRequest": topology}]}}, held)

    def borrower(self, name: str, host: str, pods: int) -> None:
        """Another workload, on a node that it has borrowed."""
        mine = self.now_as_it_is()
        given = {"name": "main", "count": pods, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(pods)}}
        values = [{"domainCount": 1, "podCounts": {"universal": pods}, "valuesPerLevel": [{"universal": host}]}]
        given["topologyAssignment"] = {"levels": [HOSTNAME_LABEL], "slices": values}
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
        spec = {"queueName": "main", "podSets": [{"name": "main", "count": pods, "template": template}]}
        metadata = {**mine["metadata"], "name": name, "uid": name, "annotations": {BORROWED_SPARES: json.dumps({"main": [host]})}}
        status = {**mine["status"], "admission": {"clusterQueue": "q", "podSetAssignments": [given]}}
        self.put({**mine, "metadata": metadata, "spec": spec, "status": status})

    def now_as_it_is(self) -> Obj:
        return self.get("Workload", "w")

    def change(self, parts: Mapping[str, Any], held: str | None = None) -> None:
        workload = {**self.now_as_it_is(), **parts}
        metadata = {**workload["metadata"], "annotations": {SPARES: held} if held else workload["metadata"].get("annotations") or {}}
        self.put({**workload, "metadata": metadata})

    def keep(self) -> Result:
        return self.wait_for(self.spares.reconcile(KEY))

    @property
    def named(self) -> str | None:
        text = (self.now_as_it_is()["metadata"].get("annotations") or {}).get(SPARES)
        return None if text is None else str(text)

    @property
    def said(self) -> tuple[str, str, str] | None:
        found = find_condition(self.now_as_it_is(), SPARES_HELD)
        return (found["status"], found["reason"], found["message"]) if found is not None else None

    def free(self, node: str) -> int:
        view = self.observed.state.get_view("f")
        assert view is not None
        return int(view.capacity.free[view.capacity.axis["cpu"], view.capacity.tree.index[node]])


def racks(*nodes: int) -> SparesHarness:
    harness = SparesHarness()
    for rack, count in enumerate(nodes):
        for i in range(count):
            harness.node(f"r{rack}-n{i}", rack=f"r{rack}")
    return harness


def test_missing_spare_node_is_held_named_and_reported() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    assert harness.keep() == RequeueAfter(pacing.SPARES_LOOK_S)
    assert harness.named == '{"main":["r0-n1"]}'
    assert harness.said is not None
    assert harness.said[:2] == ("True", "Held")
    assert all(part in harness.said[2] for part in ("pod set main", "1 of 1 spare node", "r0-n1"))
    assert harness.free("r0-n1") == 7000
    assert harness.spares.count() == {"q": ("q", 1, 0, 0)}


def test_complete_spare_nodes_are_written_once() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.keep()
    before = harness.now_as_it_is()
    assert harness.keep() == RequeueAfter(pacing.SPARES_LOOK_S)
    assert (harness.patches, harness.now_as_it_is()) == (1, before)


def test_one_that_is_named_is_kept_though_another_would_be_chosen_today() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0", held='{"main":["r0-n2"]}')
    assert harness.keep() == RequeueAfter(pacing.SPARES_LOOK_S)
    assert (harness.patches, harness.named) == (0, '{"main":["r0-n2"]}')


@pytest.mark.parametrize("spec", [{"unschedulable": True}, {"taints": [{"key": LEAVING_TAINTS[0], "effect": "PreferNoSchedule"}]}])
def test_one_that_is_drained_or_about_to_go_is_exchanged(spec: dict[str, Any]) -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.keep()
    harness.node("r0-n1", **spec)
    harness.keep()
    assert harness.named == '{"main":["r0-n2"]}'
    assert (harness.free("r0-n1"), harness.free("r0-n2")) == (8000, 7000)


def test_one_that_was_moved_to_another_rack_is_exchanged() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.keep()
    harness.node("r0-n1", rack="r9")
    harness.keep()
    assert harness.named == '{"main":["r0-n2"]}'


def test_spare_node_without_a_candidate_is_reported_missing_and_searched_again() -> None:
    harness = racks(2, 2)
    harness.asks(2, "r0-n0")
    assert harness.keep() == RequeueAfter(pacing.SPARES_FILL_S)
    assert harness.said is not None
    assert harness.said[:2] == ("False", "Missing")
    assert all(part in harness.said[2] for part in ("1 of 2 spare nodes", "r0-n1"))
    assert harness.spares.count() == {"q": ("q", 1, 1, 0)}
    harness.node("r0-n2")
    assert harness.keep() == RequeueAfter(pacing.SPARES_LOOK_S)
    assert harness.said[0] == "True"


def test_while_lost_nodes_are_to_be_replaced_nothing_is_exchanged() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0", unhealthy=("r0-n0",), held='{"main":["r0-n1"]}')
    harness.node("r0-n1", unschedulable=True)
    assert harness.keep() == RequeueAfter(pacing.SPARES_FILL_S)
    assert (harness.patches, harness.named) == (0, '{"main":["r0-n1"]}')


def test_in_a_storm_nothing_is_exchanged() -> None:
    harness = racks(8)
    harness.asks(1, "r0-n0", held='{"main":["r0-n1"]}')
    for i in range(1, 8):
        harness.node(f"r0-n{i}", ready=False, rack=f"r{i % 3}")
    assert harness.storms.find("t") is not None
    assert harness.keep() == RequeueAfter(pacing.SPARES_FILL_S)
    assert harness.patches == 0


def test_spare_node_after_a_failed_write_is_not_held() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.fails = Conflict(409, "changed since")
    with pytest.raises(Conflict):
        harness.keep()
    assert harness.free("r0-n1") == 8000
    assert not harness.observed.state.ledger.find_drift()
    harness.fails = None
    harness.keep()
    assert harness.free("r0-n1") == 7000


def test_evicted_workload_holds_no_spares_and_its_condition_reports_it() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.keep()
    status = harness.now_as_it_is()["status"]
    harness.change({"status": {"conditions": status["conditions"]}})
    assert harness.free("r0-n1") == 8000
    assert harness.keep() == Done()
    assert harness.said is not None
    assert harness.said[:2] == ("False", "NotAdmitted")
    assert harness.spares.count() == {}


def test_workload_that_requests_no_spare_nodes_is_not_written() -> None:
    harness = racks(3)
    harness.asks(0, "r0-n0")
    assert harness.keep() == Done()
    assert (harness.patches, harness.said) == (0, None)


def test_of_nodes_only_those_that_are_held_matter_unless_some_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.keep()
    looked: list[object] = []
    monkeypatch.setattr(harness.spares.controller.queue, "add_after", lambda key, *_: looked.append(key))
    harness.node("r0-n2", unschedulable=True)
    assert looked == []
    harness.node("r0-n1", unschedulable=True)
    assert looked == [KEY]
    harness.keep()
    looked.clear()
    harness.node("r0-n2")
    assert looked == [KEY]


def test_spares_condition_of_a_finished_workload_becomes_false() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.keep()
    status = harness.now_as_it_is()["status"]
    harness.change({"status": {**status, "conditions": [*status["conditions"], build_condition_json("Finished", True)]}})
    harness.keep()
    assert harness.said is not None
    assert harness.said[0] == "False"


def test_while_others_make_room_the_message_does_not_say_that_there_is_none() -> None:
    harness = racks(3)
    harness.asks(1, "r0-n0")
    harness.spares._makes_room = lambda: True
    harness.keep()
    assert harness.said is not None
    assert "make room" in harness.said[2]


def test_with_the_gate_of_replacement_off_none_are_kept() -> None:
    harness = racks(3)
    harness.observed._keeps_spares = False
    harness.asks(1, "r0-n0")
    harness.keep()
    assert harness.named is None
    assert harness.free("r0-n1") == 8000


def test_lent_spare_is_reported_with_its_borrower_and_again_when_the_borrower_leaves() -> None:
    harness = racks(2)
    harness.asks(1, "r0-n0", lends=True, held='{"main":["r0-n1"]}')
    spec = harness.now_as_it_is()["spec"]
    harness.change({"spec": {**spec, "priority": 5}})
    harness.keep()
    assert harness.spares.count() == {"q": ("q", 1, 0, 0)}
    looked: list[object] = []
    harness.spares.controller.queue.add_after = lambda key, *_: looked.append(key)  # type: ignore[method-assign]
    harness.borrower("low", "r0-n1", pods=8)
    assert looked == [KEY]
    harness.keep()
    assert harness.said is not None
    assert harness.said[:2] == ("True", "Held")
    assert all(part in harness.said[2] for part in ("pod set main", "1 of 1 spare node", "r0-n1 to ns/low"))
    assert harness.spares.count() == {"q": ("q", 1, 0, 1)}
    looked.clear()
    harness.drop("Workload", "low")
    assert looked == [KEY]
    harness.keep()
    assert harness.said is not None
    assert "lent" not in harness.said[2]
    assert harness.spares.count() == {"q": ("q", 1, 0, 0)}
