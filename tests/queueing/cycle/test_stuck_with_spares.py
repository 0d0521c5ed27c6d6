"""Pods that their node does not take beside others of their workload, where nodes are kept free for that workload or for another."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.names import LEAVING_TAINTS, SPARE_NODES
from core.queueing.flavors.outcome import Admissible
from tests.builders import NAMESPACE, RACK, build_pod_set_json, build_workload_json
from tests.queueing.cycle.test_spares import Sparing, build_sparing_scene, check
from tests.queueing.running import get_refusal
from tests.queueing.scene import list_admitted
from tests.strategies import scale_examples


def observe_stuck(scene: Sparing, name: str, *pods: tuple[str, int], pod_set: str = "main") -> None:
    scene.state.observe_stuck(f"{NAMESPACE}/{name}", {pod_set: pods})


def test_a_pod_that_is_stuck_gets_a_spare_and_another_is_kept_in_its_stead() -> None:
    scene = build_sparing_scene(5)
    scene.ask("w", 4, 1, cpu="2")
    scene.run()
    assert (scene.where("w"), scene.held("w")) == ({"r0-n0": 2, "r0-n1": 2}, ("r0-n2",))
    observe_stuck(scene, "w", ("r0-n0", 1))
    assert list_admitted(scene.run()) == {"w"}
    assert (scene.where("w"), scene.held("w")) == ({"r0-n0": 1, "r0-n1": 2, "r0-n2": 1}, ())
    assert scene.keep("w").serving == ("r0-n3",)
    assert scene.run() == {}
    check(scene, ["w"])


def test_one_that_is_about_to_go_is_not_the_first_to_be_taken() -> None:
    scene = build_sparing_scene(4)
    scene.ask("w", 4, 1, cpu="2")
    scene.run()
    (spare,) = scene.held("w")
    scene.change(spare, taints=((LEAVING_TAINTS[0], "", "PreferNoSchedule"),))
    observe_stuck(scene, "w", ("r0-n0", 1))
    assert list_admitted(scene.run()) == {"w"}
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 2, "r0-n3": 1}
    assert scene.held("w") == (spare,)
    check(scene, ["w"])


def test_stuck_pod_does_not_move_to_a_spare_node_of_another_workload() -> None:
    scene = build_sparing_scene(4)
    scene.ask("w", 4, 0, cpu="2")
    scene.ask("x", 1, 1, cpu="4")
    assert list_admitted(scene.run()) == {"w", "x"}
    observe_stuck(scene, "w", ("r0-n0", 1))
    assert not get_refusal(scene.run()["w"]).evicts
    assert scene.where("w") == {"r0-n0": 2, "r0-n1": 2}
    check(scene, ["w", "x"])


def test_more_than_the_spares_hold_go_where_all_have_room() -> None:
    scene = build_sparing_scene(6)
    scene.ask("w", 6, 1, cpu="2")
    scene.run()
    (spare,) = scene.held("w")
    observe_stuck(scene, "w", ("r0-n0", 1), ("r0-n1", 1), ("r0-n2", 1))
    assert list_admitted(scene.run()) == {"w"}
    now = scene.where("w")
    assert (now["r0-n0"], now["r0-n1"], now["r0-n2"], sum(now.values())) == (1, 1, 1, 6)
    check(scene, ["w"])
    if spare in now:
        assert spare not in scene.held("w")


def test_a_spare_that_pods_of_another_pod_set_took_is_none_any_more() -> None:
    scene = build_sparing_scene(4)
    sets = []
    for name in ("a", "b"):
        pod_set: dict[str, Any] = build_pod_set_json(name, 2, cpu="2", topology={"required": RACK})
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: "1"}}
        sets.append(pod_set)
    scene.workload(build_workload_json("w", sets, owner="owner-w"))
    assert list_admitted(scene.run()) == {"w"}
    (of_a, of_b), ((node,),) = _held(scene), [domain.values for domain in _assigned(scene, "a")]
    assert (of_a, of_b) == (("r0-n1",), ("r0-n3",))
    scene.change("r0-n1", unschedulable=True)
    observe_stuck(scene, "w", (node, 1), pod_set="a")
    assert list_admitted(scene.run()) == {"w"}
    assert {domain.values[-1]: domain.count for domain in _assigned(scene, "a")} == {node: 1, "r0-n3": 1}
    assert _held(scene) == [("r0-n1",), ()]
    check(scene, [])


def _held(scene: Sparing) -> list[tuple[str, ...]]:
    holding = scene.state.workloads.find_holding(f"{NAMESPACE}/w")
    assert holding is not None
    return [given_.spares for given_ in holding.pod_sets]


def _assigned(scene: Sparing, name: str) -> Any:
    holding = scene.state.workloads.find_holding(f"{NAMESPACE}/w")
    assert holding is not None
    (assignment,) = [each.assignment for each in holding.pod_sets if each.name == name]
    assert assignment is not None
    return assignment.domains


@settings(max_examples=scale_examples(1.5))
@given(st.data())
def test_whatever_is_lost_and_stuck_only_so_many_move_and_spares_stay_whole(data: st.DataObject) -> None:
    scene, names = build_sparing_scene(4, 4), ["w0", "w1"]
    for name in names:
        asked: list[dict[str, Any]] = [{"required": RACK}, {"preferred": RACK}, {"unconstrained": True}]
        count, spares = data.draw(st.integers(2, 6)), data.draw(st.integers(0, 2))
        scene.ask(name, count, spares, cpu=data.draw(st.sampled_from("12")), topology=data.draw(st.sampled_from(asked)))
    scene.run()
    for _ in range(data.draw(st.integers(1, 6))):
        name = data.draw(st.sampled_from(names))
        key, before = f"{NAMESPACE}/{name}", scene.where(name)
        facts = scene.state.workloads.facts[key]
        crowded = sorted(node for node, count in before.items() if count > 1)
        match data.draw(st.sampled_from(["stick", "stick", "break", "keep"])):
            case "stick" if crowded and facts.runs and not facts.unhealthy_nodes:
                node = data.draw(st.sampled_from(crowded))
                stuck = data.draw(st.integers(1, before[node] - 1))
                observe_stuck(scene, name, (node, stuck))
                outcome = scene.run()[name]
                after = scene.where(name)
                if isinstance(outcome, Admissible):
                    assert after[node] == before[node] - stuck
                    assert all(after[other] >= count for other, count in before.items() if other != node), "what runs stays"
                else:
                    assert not outcome.evicts
                    assert after == before
                scene.state.observe_stuck(key, None)
            case "break" if before and facts.runs:
                node = data.draw(st.sampled_from(sorted(before)))
                scene.break_down(node)
                for other in names:
                    lost = [host for host in scene.where(other) if not scene.state.nodes[host].state.ready]
                    if lost and scene.state.workloads.facts[f"{NAMESPACE}/{other}"].runs:
                        scene.lose(other, *sorted(lost))
                scene.run()
            case "keep" if facts.runs and facts.pod_sets[0].spares and not facts.unhealthy_nodes:
                scene.keep(name)
            case _:
                pass
        check(scene, names)
