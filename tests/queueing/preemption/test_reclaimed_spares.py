"""A holder of spares that has lost nodes waits for those who go for its sake: nobody takes what it is to get beside what it lent."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.pause_state import NOTHING_PAUSED, Pause, Stop
from core.names import EVICTED, HOSTNAME_LABEL, PREEMPTED, REASON_NODE_FAILURES, REASON_TOPOLOGY_PLACEMENT_FAILED
from core.queueing.flavors.outcome import Admissible
from core.queueing.flavors.spare_lending import Borrower, Loan
from core.queueing.preemption.reclaimed_spares import find_needed
from tests.builders import NAMESPACE, RACK, Node, build_pod_set_json, build_workload_json
from tests.queueing.flavors.test_lending import Lending
from tests.queueing.running import NOW, get_refusal
from tests.queueing.scene import list_admitted


def build_waiting_scene(*, cpu: int = 4, port: int | None = None) -> Lending:
    """`w` has lost both of its nodes. One pod is to go to `r0-n2`, its spare, which `low` has been told to leave, the other to `r0-n3`,
    which is free."""
    scene = Lending()
    for i, size in enumerate((4, 4, 4, cpu)):
        scene.node(Node(f"r0-n{i}", {RACK: "r0", HOSTNAME_LABEL: f"r0-n{i}"}, {"cpu": size * 1000, "pods": 10}))
    scene.change("r0-n3", unschedulable=True)
    scene.ask("w", 2, 1)
    if port is not None:
        scene.workload(with_port(scene.objects["w"], port))
    scene.run()
    scene.submit("low", 1, cpu="4")
    scene.run()
    assert scene.lent() == {"r0-n2": ("low",)}
    scene.change("r0-n3")
    for node in ("r0-n0", "r0-n1"):
        scene.break_down(node)
    scene.lose("w", "r0-n0", "r0-n1")
    preempting = get_refusal(scene.run()["w"]).preempting
    assert preempting is not None
    assert [victim.workload.key for victim in preempting.victims] == [f"{NAMESPACE}/low"]
    return scene


def with_port(wire: dict[str, Any], port: int) -> dict[str, Any]:
    (container,) = wire["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["ports"] = [{"containerPort": port, "hostPort": port}]
    return wire


def is_whole(scene: Lending) -> bool:
    return scene.where("w") == {"r0-n2": 1, "r0-n3": 1} and not scene.facts("w").unhealthy_nodes


@pytest.mark.parametrize("priority", [0, 10, 20])
def test_free_node_promised_beside_the_spare_is_not_given_to_another_workload(priority: int) -> None:
    scene = build_waiting_scene()
    scene.submit("thief", 1, cpu="4", priority=priority)
    assert get_refusal(scene.run()["thief"]).reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    assert scene.run() == {}
    assert not scene.state.ledger.find_drift()
    scene.leave("low")
    assert list_admitted(scene.run()) == {"w"}
    assert is_whole(scene)


def test_rest_of_a_node_promised_beside_the_spare_is_free_for_other_workloads() -> None:
    scene = build_waiting_scene(cpu=6)
    scene.submit("beside", 1, cpu="2")
    scene.submit("thief", 1, cpu="1")
    assert list_admitted(scene.run()) == {"beside"}
    scene.leave("low")
    assert list_admitted(scene.run()) == {"w"}
    assert is_whole(scene)


def test_its_ports_are_kept_for_it_too() -> None:
    scene = build_waiting_scene(cpu=6, port=8080)
    thief = build_workload_json("thief", [build_pod_set_json(cpu="1", topology={"required": RACK})])
    scene.workload(with_port(thief, 8080))
    assert not list_admitted(scene.run())
    scene.leave("low")
    assert list_admitted(scene.run()) == {"w"}
    assert is_whole(scene)


def test_free_node_promised_beside_the_spare_is_no_replacement_for_a_higher_priority() -> None:
    scene = build_waiting_scene()
    scene.rack("r1", 1)
    scene.submit("first", 1, cpu="4", priority=20, topology={"preferred": RACK})
    assert list_admitted(scene.run()) == {"first"}
    scene.break_down("r1-n0")
    scene.lose("first", "r1-n0")
    outcome = get_refusal(scene.run()["first"])
    assert (outcome.evicts, outcome.reason) == (True, REASON_NODE_FAILURES)
    scene.leave("low")
    assert "w" in list_admitted(scene.run())
    assert is_whole(scene)


def test_cycle_makes_room_until_the_holder_has_reclaimed_its_spare() -> None:
    scene = build_waiting_scene()
    assert scene.cycle.makes_room
    scene.leave("low")
    assert list_admitted(scene.run()) == {"w"}
    scene.run()
    assert not scene.cycle.makes_room


def test_it_is_kept_while_a_verdict_is_being_written_and_when_one_could_not_be() -> None:
    scene = build_waiting_scene()
    scene.submit("thief", 1, cpu="4", priority=20)
    assert [verdict.workload.key for verdict in scene.verdicts("w")] == [f"{NAMESPACE}/thief"]
    assert not scene.where("thief")
    scene.leave("low")
    (found, *_) = scene.verdicts()
    assert isinstance(found.outcome, Admissible)
    scene.state.drop_assumed(f"{NAMESPACE}/w")
    scene.cycle.requeue_workload("uid-w")
    assert not any(isinstance(verdict.outcome, Admissible) for verdict in scene.cycle.run(is_held_back=lambda uid: uid == "uid-w"))
    assert list_admitted(scene.run()) == {"w"}
    assert is_whole(scene)


def test_restarted_scheduler_reserves_the_node_promised_beside_the_spare() -> None:
    scene, later = build_waiting_scene(), Lending()
    for i in range(4):
        later.state.observe_node(f"r0-n{i}", scene.state.nodes[f"r0-n{i}"])
    for name in ("low", "w"):
        later.workload(scene.objects[name])
    later.submit("thief", 1, cpu="4", priority=20)
    assert not list_admitted(later.run())
    later.leave("low")
    assert list_admitted(later.run()) == {"w"}
    assert is_whole(later)


def test_once_it_waits_no_more_others_have_it() -> None:
    scene = build_waiting_scene()
    scene.submit("thief", 1, cpu="4")
    assert not list_admitted(scene.run())
    for node in ("r0-n0", "r0-n1"):
        scene.change(node)
    scene.lose("w")
    assert list_admitted(scene.run()) == {"thief"}
    assert scene.where("thief") == {"r0-n3": 1}
    assert not scene.cycle.makes_room


def test_it_is_not_evicted_for_a_node_that_fails_while_others_go_for_its_sake() -> None:
    scene = build_waiting_scene()
    scene.break_down("r0-n3")
    outcome = get_refusal(scene.run()["w"])
    assert (outcome.evicts, outcome.reason) == (False, REASON_TOPOLOGY_PLACEMENT_FAILED)
    scene.change("r0-n3")
    scene.submit("thief", 1, cpu="4", priority=20)
    assert not list_admitted(scene.run())
    scene.leave("low")
    assert list_admitted(scene.run()) == {"w"}
    assert is_whole(scene)


@pytest.mark.parametrize("spare_fails", [False, True])
def test_holder_with_a_failed_promised_node_or_spare_is_evicted(spare_fails: bool) -> None:
    scene = build_waiting_scene()
    scene.break_down("r0-n3")
    if spare_fails:
        scene.break_down("r0-n2")
    else:
        scene.run()
        scene.leave("low")
    outcome = get_refusal(scene.run()["w"])
    assert (outcome.evicts, outcome.reason) == (True, REASON_NODE_FAILURES)
    scene.leave("w")
    scene.run()
    assert not scene.cycle.makes_room


def test_holder_with_a_borrower_that_was_not_evicted_is_evicted_when_the_promised_node_fails() -> None:
    scene = build_waiting_scene()
    low = scene.objects["low"]
    conditions = [one for one in low["status"]["conditions"] if one["type"] not in (EVICTED, PREEMPTED)]
    scene.set_status("low", {**low["status"], "conditions": conditions})
    scene.cycle.exclude_victim(f"{NAMESPACE}/low")
    scene.break_down("r0-n3")
    assert get_refusal(scene.run()["w"]).evicts


def test_a_pause_of_admissions_gives_nothing_away() -> None:
    scene = build_waiting_scene()
    scene.submit("thief", 1, cpu="4", priority=20)
    scene.state.observe_pause(Pause(admissions=Stop("admissions", "why", "who", NOW)))
    assert not list_admitted(scene.run())
    assert scene.cycle.makes_room
    scene.state.observe_pause(NOTHING_PAUSED)
    assert not list_admitted(scene.run())
    scene.leave("low")
    assert list_admitted(scene.run()) == {"w"}
    assert is_whole(scene)


def test_of_two_lent_nodes_that_one_is_taken_which_fewer_have_to_leave() -> None:
    scene = Lending()
    scene.rack("r0", 3)
    scene.ask("w", 1, 2)
    scene.run()
    for name, cpu in (("c", "3"), ("a", "1")):
        scene.submit(name, 1, cpu=cpu)
        scene.run()
    scene.submit("b", 1, cpu="4")
    scene.run()
    shared, alone = sorted(scene.lent(), key=lambda node: -len(scene.lent()[node]))
    assert {node: set(names) for node, names in scene.lent().items()} == {shared: {"a", "c"}, alone: {"b"}}
    assert shared < alone
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    preempting = get_refusal(scene.run()["w"]).preempting
    assert preempting is not None
    assert [victim.workload.key for victim in preempting.victims] == [f"{NAMESPACE}/b"]


def test_borrower_evicted_for_one_node_counts_as_leaving_the_next() -> None:
    scene = Lending()
    scene.rack("r0", 2)
    for name in ("one", "both"):
        scene.submit(name, 1, cpu="1")
    (view,) = (view for name in scene.state.flavors if (view := scene.state.get_view(name)) is not None)
    one, both = (Borrower(scene.facts(name), {"cpu": 4000}) for name in ("one", "both"))
    loans = [Loan("r0-n0", (both,), {"cpu": 4000}, {}), Loan("r0-n1", (one, both), {"cpu": 8000}, {})]
    left = view.capacity.free.copy()
    left[view.capacity.axis["cpu"]] = -4000
    borrowers, short = find_needed(view.capacity, left, ["r0-n0", "r0-n1"], loans)
    assert ([borrower.workload.key for borrower in borrowers], short) == ([f"{NAMESPACE}/both"], ["r0-n0", "r0-n1"])
