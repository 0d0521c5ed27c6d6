"""The loop that keeps nodes free: what it holds, names and tells, on paper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from core.names import BORROWED_SPARES, HOSTNAME_LABEL, LEAVING_TAINTS, LEND_SPARES, SPARE_NODES, SPARES, SPARES_HELD
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import Conflict
from core.runtime.resource import Obj
from core.state.facts import find_condition
from reconciler.apply import Writer
from reconciler.spares import FILL_S, LOOK_S, MANAGER, Spares
from tests.builders import condition_json
from tests.reconciler.paper_nodes import KEY, PaperNodes


class PaperSpares(PaperNodes):
    """A workload of one pod for which nodes are to be kept free; what is written is observed at once."""

    def __init__(self) -> None:
        super().__init__()
        self.spares = Spares(self.observed, cast("Writer", self), self.clock, LEAVING_TAINTS, self.storms.holds)
        self.fails: Exception | None = None
        self.patches = 0

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
        self.observed.workloads.put({**mine, "metadata": metadata, "spec": spec, "status": status})

    def now_as_it_is(self) -> Obj:
        workload = self.observed.workloads.store.get(KEY)
        assert workload is not None
        return workload

    def change(self, parts: Mapping[str, Any], held: str | None = None) -> None:
        workload = {**self.now_as_it_is(), **parts}
        metadata = {**workload["metadata"], "annotations": {SPARES: held} if held else workload["metadata"].get("annotations") or {}}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1000)
        self.observed.workloads.put({**workload, "metadata": metadata})

    def keep(self) -> Result:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(self.spares.look(KEY))
        finally:
            loop.close()

    @property
    def named(self) -> str | None:
        text = (self.now_as_it_is()["metadata"].get("annotations") or {}).get(SPARES)
        return None if text is None else str(text)

    @property
    def told(self) -> tuple[str, str, str] | None:
        found = find_condition(self.now_as_it_is(), SPARES_HELD)
        return (found["status"], found["reason"], found["message"]) if found is not None else None

    def free(self, node: str) -> int:
        view = self.observed.state.view("f")
        assert view is not None
        return int(view.capacity.free[view.capacity.axis["cpu"], view.capacity.tree.index[node]])

    # --- the writer ---------------------------------------------------------------------------------------------

    async def patch_workload(self, workload: Obj, body: Mapping[str, Any]) -> Obj:
        self.patches += 1
        if self.fails is not None:
            raise self.fails
        assert not self.observed.state.ledger.drift()
        text = body["metadata"]["annotations"][SPARES]
        metadata = {**workload["metadata"], "annotations": {SPARES: text} if text else {}}
        written = {**workload, "metadata": {**metadata, "resourceVersion": str(int(metadata["resourceVersion"]) + 1)}}
        self.observed.workloads.put(written)
        return written

    async def apply_workload_condition(self, workload: Obj, condition: Mapping[str, Any], manager: str = "") -> Obj:
        assert manager == MANAGER
        now = self.now_as_it_is()
        others = [c for c in now["status"]["conditions"] if c["type"] != condition["type"]]
        self.change({"status": {**now["status"], "conditions": [*others, dict(condition)]}})
        return now


def racks(*nodes: int) -> PaperSpares:
    paper = PaperSpares()
    for rack, count in enumerate(nodes):
        for i in range(count):
            paper.node(f"r{rack}-n{i}", rack=f"r{rack}")
    return paper


def test_what_is_missing_is_held_named_and_told() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    assert paper.keep() == RequeueAfter(LOOK_S)
    assert paper.named == '{"main":["r0-n1"]}'
    assert paper.told == ("True", "Held", "pod set main: 1 of 1 spare node(s) kept free for 1 pod(s) each: r0-n1")
    assert paper.free("r0-n1") == 7000
    assert paper.spares.count() == {"q": ("q", 1, 0, 0)}


def test_what_is_well_is_written_once() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.keep()
    before = paper.now_as_it_is()
    assert paper.keep() == RequeueAfter(LOOK_S)
    assert (paper.patches, paper.now_as_it_is()) == (1, before)


def test_one_that_is_named_is_kept_though_another_would_be_chosen_today() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0", held='{"main":["r0-n2"]}')
    assert paper.keep() == RequeueAfter(LOOK_S)
    assert (paper.patches, paper.named) == (0, '{"main":["r0-n2"]}')


@pytest.mark.parametrize("spec", [{"unschedulable": True}, {"taints": [{"key": LEAVING_TAINTS[0], "effect": "PreferNoSchedule"}]}])
def test_one_that_is_drained_or_about_to_go_is_exchanged(spec: dict[str, Any]) -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.keep()
    paper.node("r0-n1", **spec)
    paper.keep()
    assert paper.named == '{"main":["r0-n2"]}'
    assert (paper.free("r0-n1"), paper.free("r0-n2")) == (8000, 7000)


def test_one_that_was_moved_to_another_rack_is_exchanged() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.keep()
    paper.node("r0-n1", rack="r9")
    paper.keep()
    assert paper.named == '{"main":["r0-n2"]}'


def test_where_there_is_no_other_what_lacks_is_told_and_looked_for_again() -> None:
    paper = racks(2, 2)
    paper.asks(2, "r0-n0")
    assert paper.keep() == RequeueAfter(FILL_S)
    assert paper.told is not None
    assert paper.told[:2] == ("False", "Missing")
    assert "1 of 2 spare node(s) kept free for 1 pod(s) each: r0-n1; no other node of its domain has room" in paper.told[2]
    assert paper.spares.count() == {"q": ("q", 1, 1, 0)}
    paper.node("r0-n2")
    assert paper.keep() == RequeueAfter(LOOK_S)
    assert paper.told[0] == "True"


def test_while_lost_nodes_are_to_be_replaced_nothing_is_exchanged() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0", unhealthy=("r0-n0",), held='{"main":["r0-n1"]}')
    paper.node("r0-n1", unschedulable=True)
    assert paper.keep() == RequeueAfter(FILL_S)
    assert (paper.patches, paper.named) == (0, '{"main":["r0-n1"]}')


def test_in_a_storm_nothing_is_exchanged() -> None:
    paper = racks(8)
    paper.asks(1, "r0-n0", held='{"main":["r0-n1"]}')
    for i in range(1, 8):
        paper.node(f"r0-n{i}", ready=False, rack=f"r{i % 3}")
    assert paper.storms.find("t") is not None
    assert paper.keep() == RequeueAfter(FILL_S)
    assert paper.patches == 0


def test_what_could_not_be_written_is_not_held() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.fails = Conflict(409, "changed since")
    with pytest.raises(Conflict):
        paper.keep()
    assert paper.free("r0-n1") == 8000
    assert not paper.observed.state.ledger.drift()
    paper.fails = None
    paper.keep()
    assert paper.free("r0-n1") == 7000


def test_a_workload_that_lost_its_place_has_nothing_kept_and_says_so() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.keep()
    status = paper.now_as_it_is()["status"]
    paper.change({"status": {"conditions": status["conditions"]}})
    assert paper.free("r0-n1") == 8000
    assert paper.keep() == Done()
    assert paper.told is not None
    assert paper.told[:2] == ("False", "NotAdmitted")
    assert paper.spares.count() == {}


def test_who_asks_for_none_is_left_alone() -> None:
    paper = racks(3)
    paper.asks(0, "r0-n0")
    assert paper.keep() == Done()
    assert (paper.patches, paper.told) == (0, None)


def test_of_nodes_only_those_that_are_held_matter_unless_some_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.keep()
    looked: list[object] = []
    monkeypatch.setattr(paper.spares.controller.queue, "add_after", lambda key, *_: looked.append(key))
    paper.node("r0-n2", unschedulable=True)
    assert looked == []
    paper.node("r0-n1", unschedulable=True)
    assert looked == [KEY]
    paper.keep()
    looked.clear()
    paper.node("r0-n2")
    assert looked == [KEY]


def test_what_was_kept_for_one_that_has_finished_is_told_no_more() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.keep()
    status = paper.now_as_it_is()["status"]
    paper.change({"status": {**status, "conditions": [*status["conditions"], condition_json("Finished", True)]}})
    paper.keep()
    assert paper.told is not None
    assert paper.told[0] == "False"


def test_while_others_make_room_the_message_does_not_say_that_there_is_none() -> None:
    paper = racks(3)
    paper.asks(1, "r0-n0")
    paper.spares._makes_room = lambda: True
    paper.keep()
    assert paper.told is not None
    assert "no other is taken while workloads make room for one that waits" in paper.told[2]


def test_with_the_gate_of_replacement_off_none_are_kept() -> None:
    paper = racks(3)
    paper.observed._keeps_spares = False
    paper.asks(1, "r0-n0")
    paper.keep()
    assert paper.named is None
    assert paper.free("r0-n1") == 8000


def test_one_that_is_lent_is_told_with_whom_and_counted_and_told_again_when_it_is_left() -> None:
    paper = racks(2)
    paper.asks(1, "r0-n0", lends=True, held='{"main":["r0-n1"]}')
    spec = paper.now_as_it_is()["spec"]
    paper.change({"spec": {**spec, "priority": 5}})
    paper.keep()
    assert paper.spares.count() == {"q": ("q", 1, 0, 0)}
    looked: list[object] = []
    paper.spares.controller.queue.add_after = lambda key, *_: looked.append(key)  # type: ignore[method-assign]
    paper.borrower("low", "r0-n1", pods=8)
    assert looked == [KEY]
    paper.keep()
    assert paper.told == (
        "True",
        "Held",
        "pod set main: 1 of 1 spare node(s) kept free for 1 pod(s) each: r0-n1; 1 of these lent: r0-n1 to ns/low",
    )
    assert paper.spares.count() == {"q": ("q", 1, 0, 1)}
    looked.clear()
    paper.observed.workloads.fill([paper.now_as_it_is()])
    assert looked == [KEY]
    paper.keep()
    assert paper.told is not None
    assert "lent" not in paper.told[2]
    assert paper.spares.count() == {"q": ("q", 1, 0, 0)}
