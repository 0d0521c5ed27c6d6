"""Spares that are lent: who borrows them, who does not, and how their holder gets them back."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.admission import Admission
from core.model.configuration import ResourceRules
from core.model.pause_state import Pause, Stop
from core.model.spare_nodes import show_borrowed
from core.names import (
    BORROWED_SPARES,
    EVICTED,
    HOSTNAME_LABEL,
    LEND_SPARES,
    PREEMPTED,
    REASON_NODE_FAILURES,
    REASON_SPARES_TAKEN_BACK,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    REASON_WAITING_FOR_PREEMPTED,
    SLICE_NAME,
    SLICE_REPLACES,
    SPARE_NODES,
)
from core.plan.workloads.admission_status import build_preempted_status, build_released_status
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.flavors.spare_lending import list_borrowed, list_loans
from core.state.facts import WorkloadFacts
from tests.builders import NAMESPACE, RACK, Node, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.cycle.test_spares import Sparing
from tests.queueing.running import NOW, get_refusal
from tests.queueing.scene import build_times, list_admitted, list_shortages


class Lending(Sparing):
    """A scene of one workload `w` that lends its spares, whose victims are told to go as the reconciler does, and go on demand."""

    def ask(self, name: str, count: int, spares: int, *, lends: str = "true", priority: int = 10, **options: Any) -> str:
        topology, cpu = options.pop("topology", None), options.pop("cpu", "4")
        pod_set = build_pod_set_json(count=count, cpu=cpu, topology={"required": RACK} if topology is None else topology)
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: str(spares), LEND_SPARES: lends}}
        return self.workload(build_workload_json(name, [pod_set], owner=f"owner-{name}", priority=priority, **options))

    def write(self, verdict: Verdict) -> None:
        name = verdict.workload.key.partition("/")[2]
        if isinstance(verdict.outcome, Admissible) and not verdict.workload.unhealthy_nodes:
            self.name_borrowed(name, verdict.outcome.admission)
        super().write(verdict)
        preempting = verdict.outcome.preempting if isinstance(verdict.outcome, NotAdmissible) else None
        for victim in preempting.victims if preempting is not None else ():
            other = victim.workload.key.partition("/")[2]
            self.set_status(other, build_preempted_status(self.objects[other], victim.reason, victim.why, NOW))

    def name_borrowed(self, name: str, admission: Admission) -> None:
        wire, text = self.objects[name], show_borrowed(admission)
        notes = {key: value for key, value in (wire["metadata"].get("annotations") or {}).items() if key != BORROWED_SPARES}
        self.objects[name] = {**wire, "metadata": {**wire["metadata"], "annotations": notes | ({BORROWED_SPARES: text} if text else {})}}

    def leave(self, name: str) -> None:
        """Who was evicted has stopped, and is queued again."""
        self.set_status(name, build_released_status(self.objects[name], "stopped", NOW))

    def facts(self, name: str) -> WorkloadFacts:
        return self.state.workloads.facts[f"{NAMESPACE}/{name}"]

    def lent(self, holder: str = "w") -> dict[str, tuple[str, ...]]:
        """The keys of those who stand on spares of a workload, by node."""
        loans = list_loans(self.state, self.facts(holder))
        return {loan.node: tuple(key.partition("/")[2] for key in loan.keys) for loan in loans}


def build_lending_scene(*racks: int, cpu: int = 4, **options: Any) -> Lending:
    scene = Lending(**options)
    for i, nodes in enumerate(racks):
        scene.rack(f"r{i}", nodes, cpu=cpu)
    return scene


def build_scene_with_one_lent_spare(**options: Any) -> Lending:
    """Three full nodes: two of `w`, and its spare, on which `low` stands."""
    scene = build_lending_scene(3, **options)
    scene.ask("w", 2, 1)
    assert list_admitted(scene.run()) == {"w"}
    scene.submit("low", 1, cpu="4")
    assert list_admitted(scene.run()) == {"low"}
    assert scene.lent() == {"r0-n2": ("low",)}
    return scene


# --- who borrows ----------------------------------------------------------------------------------------


def test_workload_without_other_nodes_borrows_a_spare_of_a_higher_priority_and_records_it() -> None:
    scene = build_lending_scene(3)
    scene.ask("w", 2, 1)
    scene.run()
    scene.submit("low", 1, cpu="4")
    outcome = scene.run()["low"]
    assert isinstance(outcome, Admissible)
    assert outcome.loans == ((f"{NAMESPACE}/w", ("r0-n2",)),)
    assert scene.objects["low"]["metadata"]["annotations"] == {BORROWED_SPARES: '{"main":["r0-n2"]}'}
    assert list_borrowed(scene.state, scene.facts("low")) == [(f"{NAMESPACE}/w", ("r0-n2",))]
    assert (scene.held("w"), scene.free("r0-n2")) == (("r0-n2",), -4)
    assert not scene.state.ledger.find_drift()


def test_free_node_is_assigned_before_a_lent_spare() -> None:
    scene = build_lending_scene(4)
    scene.ask("w", 2, 1)
    scene.submit("low", 1, cpu="4")
    scene.run()
    assert (scene.where("low"), scene.lent()) == ({"r0-n3": 1}, {})
    assert BORROWED_SPARES not in (scene.objects["low"]["metadata"].get("annotations") or {})


@pytest.mark.parametrize(("lends", "priority"), [("false", 0), ("true", 10), ("true", 11)])
def test_spare_that_is_not_lent_or_of_no_higher_priority_is_not_borrowed(lends: str, priority: int) -> None:
    scene = build_lending_scene(3)
    scene.ask("w", 2, 1, lends=lends)
    scene.run()
    scene.submit("other", 1, cpu="4", priority=priority)
    assert get_refusal(scene.run()["other"]).reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    assert scene.free("r0-n2") == 0


def test_two_do_not_borrow_the_same() -> None:
    scene = build_lending_scene(3)
    scene.ask("w", 2, 1)
    scene.run()
    scene.submit("a", 1, cpu="3")
    scene.submit("b", 1, cpu="2")
    scene.submit("c", 1, cpu="1")
    assert list_admitted(scene.run()) == {"a", "c"}
    assert set(scene.lent()["r0-n2"]) == {"a", "c"}


def test_no_spares_are_kept_on_spares_of_another() -> None:
    scene = build_lending_scene(4)
    scene.ask("w", 2, 1)
    scene.run()
    scene.ask("v", 1, 1, priority=0)
    assert get_refusal(scene.run()["v"]).reason == REASON_TOPOLOGY_PLACEMENT_FAILED


def test_the_borrower_uses_quota_of_its_own_as_always() -> None:
    scene = build_lending_scene(3, resource_rules=ResourceRules(counts_spares=True), quota="15")
    scene.ask("w", 2, 1)
    scene.run()
    scene.submit("low", 1, cpu="4")
    (shortage,) = list_shortages(scene.run()["low"])
    assert (shortage.used, shortage.nominal) == (12000, 15000)
    scene.queue("cq", {"tas": "16"})
    assert list_admitted(scene.run()) == {"low"}
    assert scene.state.quota.get_usage("cq")["tas", "cpu"] == 16000


def test_waiting_workload_is_judged_again_when_a_holder_starts_to_lend() -> None:
    scene = build_lending_scene(3)
    scene.ask("w", 2, 1, lends="false")
    scene.submit("low", 1, cpu="4")
    assert list_admitted(scene.run()) == {"w"}
    wire = scene.objects["w"]
    wire["spec"]["podSets"][0]["template"]["metadata"]["annotations"][LEND_SPARES] = "true"
    scene.workload(wire)
    assert list_admitted(scene.run()) == {"low"}


def test_waiting_workload_is_judged_again_when_the_holder_has_no_lost_node() -> None:
    scene = build_lending_scene(3)
    scene.ask("w", 2, 1)
    scene.run()
    scene.lose("w", "a-node-that-is-not-its-own-any-more")
    scene.submit("low", 1, cpu="4")
    assert get_refusal(scene.run()["low"]).reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    scene.lose("w")
    assert list_admitted(scene.run()) == {"low"}


def test_preemptor_waits_for_its_victims_instead_of_borrowing_a_spare() -> None:
    scene = build_lending_scene(4)
    scene.queue("cq", {"tas": "100"}, preemption={"withinClusterQueue": "LowerPriority"})
    scene.ask("w", 2, 1, lends="false")
    scene.run()
    scene.submit("low", 1, cpu="4")
    scene.run()
    scene.submit("mid", 1, cpu="4", priority=5)
    assert get_refusal(scene.run()["mid"]).preempting is not None
    wire = scene.objects["w"]
    wire["spec"]["podSets"][0]["template"]["metadata"]["annotations"][LEND_SPARES] = "true"
    scene.workload(wire)
    assert not list_admitted(scene.run())
    scene.leave("low")
    assert list_admitted(scene.run()) == {"mid", "low"}
    assert (scene.where("mid"), scene.lent()) == ({"r0-n3": 1}, {"r0-n2": ("low",)})


# --- given back -------------------------------------------------------------------------------------------


def test_holder_with_a_lost_node_reclaims_its_lent_spare_and_no_other_workload_gets_it() -> None:
    scene = build_scene_with_one_lent_spare()
    scene.submit("lurks", 1, cpu="4", priority=5)
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    outcomes = scene.run()
    waits = get_refusal(outcomes["w"])
    assert (waits.reason, waits.evicts) == (REASON_WAITING_FOR_PREEMPTED, False)
    assert "r0-n2" in waits.message
    assert waits.preempting is not None
    assert [victim.workload.key for victim in waits.preempting.victims] == [f"{NAMESPACE}/low"]
    assert scene.conditions("low")[PREEMPTED] == ("True", REASON_SPARES_TAKEN_BACK)
    assert list_admitted(outcomes) == set()
    assert list_admitted(scene.run()) == set()
    scene.leave("low")
    outcomes = scene.run()
    assert list_admitted(outcomes) == {"w"}
    assert scene.where("w") == {"r0-n0": 1, "r0-n2": 1}
    assert get_refusal(outcomes["low"]).reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    assert not scene.where("lurks")
    assert not scene.state.ledger.find_drift()


def test_borrower_to_evict_is_named_once_and_again_after_a_failed_write() -> None:
    scene = build_scene_with_one_lent_spare()
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    (verdict,) = [verdict for verdict in scene.verdicts() if verdict.is_second_pass]
    assert get_refusal(verdict.outcome).preempting is not None
    scene.state.changes += 1
    (verdict,) = [verdict for verdict in scene.verdicts() if verdict.is_second_pass]
    preempting = get_refusal(verdict.outcome).preempting
    assert preempting is not None
    assert (preempting.victims, preempting.leaving) == ((), (f"{NAMESPACE}/low",))
    scene.cycle.exclude_victim(f"{NAMESPACE}/low")
    (verdict,) = [verdict for verdict in scene.verdicts() if verdict.is_second_pass]
    preempting = get_refusal(verdict.outcome).preempting
    assert preempting is not None
    assert len(preempting.victims) == 1


def test_holder_with_a_lost_node_uses_a_free_node_before_it_reclaims_a_lent_spare() -> None:
    scene = build_scene_with_one_lent_spare()
    scene.node(Node("r0-n5", {RACK: "r0", HOSTNAME_LABEL: "r0-n5"}, {"cpu": 4000, "pods": 10}))
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    assert list_admitted(scene.run()) == {"w"}
    assert scene.where("w") == {"r0-n0": 1, "r0-n5": 1}
    assert (scene.held("w"), scene.lent()) == (("r0-n2",), {"r0-n2": ("low",)})


def test_lent_spare_is_reclaimed_before_pods_of_a_preferred_rack_spread() -> None:
    scene = build_lending_scene(3)
    scene.ask("w", 2, 1, topology={"preferred": RACK})
    scene.run()
    scene.submit("low", 1, cpu="4")
    scene.run()
    scene.rack("r9", 1)
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    assert get_refusal(scene.run()["w"]).preempting is not None
    scene.leave("low")
    assert list_admitted(scene.run()) >= {"w"}
    assert scene.where("w") == {"r0-n0": 1, "r0-n2": 1}


def test_spare_without_a_borrower_is_used_before_a_lent_spare() -> None:
    scene = build_lending_scene(4)
    scene.ask("w", 2, 2)
    scene.run()
    scene.submit("low", 1, cpu="4")
    scene.run()
    (lent,) = scene.lent()
    (unused,) = set(scene.held("w")) - {lent}
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    assert list_admitted(scene.run()) == {"w"}
    assert scene.where("w") == {"r0-n1": 1, unused: 1}
    assert (scene.held("w"), set(scene.lent())) == ((lent,), {lent})


def test_only_as_many_go_as_must() -> None:
    scene = build_lending_scene(4)
    scene.ask("w", 2, 2)
    scene.run()
    for name in ("a", "b"):
        scene.submit(name, 1, cpu="4")
    scene.run()
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    preempting = get_refusal(scene.run()["w"]).preempting
    assert preempting is not None
    assert len(preempting.victims) == 1
    (victim,) = preempting.victims
    scene.leave(victim.workload.key.partition("/")[2])
    assert "w" in list_admitted(scene.run())
    (left,) = {"a", "b"} - {victim.workload.key.partition("/")[2]}
    assert list(scene.lent().values()) == [(left,)]


def test_workload_beside_the_spare_on_a_larger_node_is_not_evicted_by_reclaim() -> None:
    scene = Lending()
    for node, cpu in (("n0", 4), ("n1", 4), ("n2", 8)):
        scene.node(Node(f"r0-{node}", {RACK: "r0", HOSTNAME_LABEL: f"r0-{node}"}, {"cpu": cpu * 1000, "pods": 10}))
    scene.ask("w", 2, 1)
    scene.run()
    scene.submit("beside", 1, cpu="4")
    scene.run()
    scene.submit("low", 1, cpu="4", priority=5)
    scene.run()
    assert (scene.lent(), scene.free("r0-n2")) == ({"r0-n2": ("low",)}, -4)
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    preempting = get_refusal(scene.run()["w"]).preempting
    assert preempting is not None
    assert [victim.workload.key for victim in preempting.victims] == [f"{NAMESPACE}/low"]


def test_partly_vacated_spare_is_not_lent_again() -> None:
    scene = build_lending_scene(3)
    scene.ask("w", 2, 1)
    scene.run()
    for name in ("a", "b"):
        scene.submit(name, 1, cpu="2")
    scene.run()
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    scene.run()
    scene.submit("lurks", 1, cpu="2", priority=5)
    scene.leave("a")
    assert list_admitted(scene.run()) == set()
    scene.leave("b")
    assert list_admitted(scene.run()) == {"w"}


def test_reclaim_waits_for_a_leaving_borrower_before_it_evicts_another() -> None:
    scene = Lending()
    for node, cpu in (("n0", 4), ("n1", 4), ("n2", 8)):
        scene.node(Node(f"r0-{node}", {RACK: "r0", HOSTNAME_LABEL: f"r0-{node}"}, {"cpu": cpu * 1000, "pods": 10}))
    scene.ask("w", 2, 1)
    scene.run()
    for name in ("beside", "a", "b"):
        scene.submit(name, 1, cpu="4", created=build_times(("beside", "a", "b"))[name])
        scene.run()
        if name == "a":
            scene.delete("beside")
    assert scene.lent() == {"r0-n2": ("b",)}
    scene.set_status("a", build_preempted_status(scene.objects["a"], "InClusterQueue", "for another's sake", NOW))
    assert scene.lent() == {"r0-n2": ("a",)}
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    preempting = get_refusal(scene.run()["w"]).preempting
    assert preempting is not None
    assert (preempting.victims, preempting.leaving) == ((), (f"{NAMESPACE}/a",))


def test_a_loan_ends_by_itself_where_there_is_room_for_both() -> None:
    scene = Lending()
    for node, cpu in (("n0", 4), ("n1", 4), ("n2", 8)):
        scene.node(Node(f"r0-{node}", {RACK: "r0", HOSTNAME_LABEL: f"r0-{node}"}, {"cpu": cpu * 1000, "pods": 10}))
    scene.ask("w", 2, 1)
    scene.run()
    scene.submit("beside", 1, cpu="4")
    scene.run()
    scene.submit("low", 1, cpu="4")
    scene.run()
    scene.delete("beside")
    assert (scene.lent(), scene.free("r0-n2")) == ({}, 0)
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    assert list_admitted(scene.run()) == {"w"}


def test_a_borrower_that_was_raised_keeps_its_place_and_another_spare_is_kept() -> None:
    scene = build_scene_with_one_lent_spare()
    wire = scene.objects["low"]
    scene.workload({**wire, "spec": {**wire["spec"], "priority": 10}})
    assert scene.lent() == {}
    scene.node(Node("r0-n5", {RACK: "r0", HOSTNAME_LABEL: "r0-n5"}, {"cpu": 4000, "pods": 10}))
    assert scene.keep("w").serving == ("r0-n5",)
    assert scene.where("low") == {"r0-n2": 1}


def test_reclaim_of_a_lent_spare_while_evictions_are_paused_evicts_no_workload() -> None:
    scene = build_scene_with_one_lent_spare()
    scene.state.observe_pause(Pause(evictions=Stop("evictions", "why", "who", NOW)))
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    outcome = get_refusal(scene.run()["w"])
    assert (outcome.preempting, outcome.evicts) == (None, False)
    assert "evictions are paused" in outcome.message


def test_where_even_the_lent_spare_does_not_serve_it_is_evicted_as_ever() -> None:
    scene = build_scene_with_one_lent_spare()
    scene.break_down("r0-n2")
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    outcome = get_refusal(scene.run()["w"])
    assert (outcome.evicts, outcome.reason, outcome.preempting) == (True, REASON_NODE_FAILURES, None)
    assert EVICTED not in scene.conditions("low")


def test_pods_of_a_borrower_that_is_gone_are_waited_for() -> None:
    scene = build_scene_with_one_lent_spare()
    scene.pod(build_pod_json("low-0", node="r0-n2", workload="low", cpu="4", terminating=True))
    scene.delete("low")
    assert scene.free("r0-n2") == -4
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    waits = get_refusal(scene.run()["w"])
    assert (waits.reason, waits.evicts) == (REASON_WAITING_FOR_PREEMPTED, False)
    assert waits.preempting is not None
    assert waits.preempting.victims == ()
    scene.state.observe_pod(f"{NAMESPACE}/low-0", None)
    assert list_admitted(scene.run()) == {"w"}


def test_nodes_that_are_called_otherwise_than_their_hostname_are_lent_and_given_back() -> None:
    scene = Lending()
    for i in range(3):
        scene.node(Node(f"n{i}", {RACK: "r0", HOSTNAME_LABEL: f"host-{i}"}, {"cpu": 4000, "pods": 10}))
    scene.ask("w", 2, 1)
    scene.run()
    scene.submit("low", 1, cpu="4")
    outcome = scene.run()["low"]
    assert isinstance(outcome, Admissible)
    assert outcome.loans == ((f"{NAMESPACE}/w", ("n2",)),)
    assert scene.objects["low"]["metadata"]["annotations"] == {BORROWED_SPARES: '{"main":["host-2"]}'}
    assert scene.lent() == {"n2": ("low",)}
    scene.break_down("n1")
    scene.lose("w", "n1")
    assert get_refusal(scene.run()["w"]).preempting is not None
    scene.leave("low")
    assert list_admitted(scene.run()) == {"w"}
    assert scene.where("w") == {"host-0": 1, "host-2": 1}


# --- kept ---------------------------------------------------------------------------------------------------


def test_a_lent_spare_serves_and_its_borrower_is_named() -> None:
    scene = build_scene_with_one_lent_spare()
    kept = scene.keep("w")
    assert (kept.serving, kept.missing) == (("r0-n2",), 0)
    assert f"r0-n2 to {NAMESPACE}/low" in str(kept)


def test_restarted_scheduler_reads_the_same_loans() -> None:
    scene = build_scene_with_one_lent_spare()
    later = build_lending_scene(3)
    for name in ("low", "w"):
        later.workload(scene.objects[name])
    later.state.refresh()
    assert later.lent() == scene.lent()
    later.break_down("r0-n1")
    later.lose("w", "r0-n1")
    assert get_refusal(later.run()["w"]).preempting is not None


def grow(scene: Lending, before: str, name: str, count: int, *, spares: int = 0, priority: int = 0, cpu: str = "4") -> None:
    pod_set = build_pod_set_json(count=count, cpu=cpu, topology={"required": RACK})
    if spares:
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: str(spares), LEND_SPARES: "true"}}
    heir = build_workload_json(name, [pod_set], owner=f"owner-{before}", priority=priority)
    heir["metadata"]["annotations"] = {SLICE_NAME: before, SLICE_REPLACES: f"{NAMESPACE}/{before}"}
    scene.workload(heir)


def test_growing_borrower_keeps_its_borrowed_spare_and_borrows_no_other() -> None:
    scene = build_lending_scene(4)
    scene.ask("w", 2, 2)
    scene.run()
    pod_set = build_pod_set_json(count=1, cpu="2", topology={"required": RACK})
    scene.workload(build_workload_json("low", [pod_set], owner="owner-low"))
    scene.run()
    (lent,) = scene.lent()
    grow(scene, "low", "low2", 2, cpu="2")
    assert list_admitted(scene.run()) == {"low2"}
    assert (scene.where("low2"), scene.lent()) == ({lent: 2}, {lent: ("low2",)})
    grow(scene, "low2", "low3", 3, cpu="2")
    assert isinstance(scene.run()["low3"], NotAdmissible)
    assert not scene.state.ledger.find_drift()


def test_a_holder_that_grows_keeps_the_spares_that_it_lent() -> None:
    scene = build_lending_scene(4)
    scene.ask("w", 2, 1)
    scene.run()
    scene.submit("fills", 1, cpu="4", priority=10)
    scene.run()
    scene.submit("low", 1, cpu="4")
    scene.run()
    (lent,) = scene.lent()
    scene.delete("fills")
    grow(scene, "w", "w2", 3, spares=1, priority=10)
    assert list_admitted(scene.run()) == {"w2"}
    assert (scene.held("w2"), scene.lent("w2")) == ((lent,), {lent: ("low",)})


def test_borrower_of_several_spares_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = build_lending_scene(5)
    scene.ask("w", 2, 3)
    scene.run()
    scene.submit("low", 3, cpu="4")
    assert list_admitted(scene.run()) == {"low"}
    asked: list[str] = []
    held_by = scene.state.ledger.list_held
    monkeypatch.setattr(scene.state.ledger, "list_held", lambda key: asked.append(key) or held_by(key))  # type: ignore[func-returns-value]
    assert scene.lent() == {f"r0-n{number}": ("low",) for number in (2, 3, 4)}
    assert asked == [f"{NAMESPACE}/low"]
