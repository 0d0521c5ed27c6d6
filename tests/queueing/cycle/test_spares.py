"""Nodes that are kept free for a workload: nobody else gets them, they take its pods when a node fails, and others take their place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import Admission
from core.model.configuration import ResourceRules
from core.model.spare_nodes import must_be_named, show_held_spares
from core.names import HOSTNAME_LABEL, LEAVING_TAINTS, SLICE_NAME, SLICE_REPLACES, SPARE_NODES, SPARES
from core.queueing.cycle.kept_spares import KeptSpares, list_kept_spares, with_kept
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.facts import NodeFacts, WorkloadFacts
from tests.builders import NAMESPACE, RACK, Node, build_node_json, build_pod_json, build_pod_set_json, build_workload_json
from tests.queueing.running import Running
from tests.queueing.scene import list_admitted, list_shortages

NODES = 4


class Sparing(Running):
    """A running scene in which the names of spares are written, too, and kept up on demand."""

    def ask(self, name: str, count: int, spares: int, *, cpu: str = "4", topology: dict[str, Any] | None = None, **options: Any) -> str:
        pod_set = build_pod_set_json(count=count, cpu=cpu, topology={"required": RACK} if topology is None else topology)
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: str(spares)}}
        return self.workload(build_workload_json(name, [pod_set], owner=f"owner-{name}", **options))

    def write(self, verdict: Verdict) -> None:
        name, replaces = verdict.workload.key.partition("/")[2], bool(verdict.workload.unhealthy_nodes) or verdict.workload.admitted
        said = (self.objects[name]["metadata"].get("annotations") or {}).get(SPARES)
        asked = {pod_set.name: pod_set.spares for pod_set in verdict.workload.pod_sets}
        if isinstance(verdict.outcome, Admissible) and must_be_named(verdict.outcome.admission, said, asked, replaces=replaces):
            self.note(name, verdict.outcome.admission)
        super().write(verdict)

    def note(self, name: str, admission: Admission) -> None:
        text, wire = show_held_spares(admission), self.objects[name]
        notes = {name: value for name, value in (wire["metadata"].get("annotations") or {}).items() if name != SPARES}
        metadata = {**wire["metadata"], "annotations": notes | ({SPARES: text} if text else {})}
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        self.objects[name] = {**wire, "metadata": metadata}
        self.state.observe_workload(f"{NAMESPACE}/{name}", WorkloadFacts.read(self.objects[name]))

    def keep(self, name: str) -> KeptSpares:
        key = f"{NAMESPACE}/{name}"
        facts = self.state.workloads.facts[key]
        (kept,) = list_kept_spares(self.state, facts, LEAVING_TAINTS)
        assert facts.admission is not None
        admission = with_kept(facts.admission, [kept])
        self.state.assume_spares(key, admission)
        self.note(name, admission)
        self.state.confirm(key, int(self.objects[name]["metadata"]["resourceVersion"]))
        assert not self.state.ledger.find_drift()
        return kept

    def held(self, name: str) -> tuple[str, ...]:
        admission = self.state.workloads.find_holding(f"{NAMESPACE}/{name}")
        return admission.pod_sets[0].spares if admission is not None else ()

    def free(self, node: str) -> int:
        view = self.state.get_view("tas")
        assert view is not None
        return int(view.capacity.free[view.capacity.axis["cpu"], view.capacity.tree.index[node]]) // 1000

    def change(self, node: str, **changes: Any) -> None:
        facts = self.state.nodes[node]
        changed = replace(Node(node, facts.labels, dict(facts.state.allocatable)), **changes)
        self.state.observe_node(node, NodeFacts.read(build_node_json(changed)))


def build_sparing_scene(*racks: int) -> Sparing:
    scene = Sparing()
    for i, nodes in enumerate(racks or (NODES,)):
        scene.rack(f"r{i}", nodes)
    return scene


def test_spare_node_is_not_assigned_to_other_workloads() -> None:
    scene = build_sparing_scene()
    scene.ask("w", 2, 1)
    assert list_admitted(scene.run()) == {"w"}
    assert scene.held("w") == ("r0-n2",)
    assert scene.free("r0-n2") == 0
    scene.submit("two", 2, cpu="4")
    scene.submit("one", 1, cpu="4")
    assert list_admitted(scene.run()) == {"one"}
    assert scene.where("one") == {"r0-n3": 1}


def test_refusal_for_lack_of_spares_does_not_apply_to_workloads_that_request_fewer_spares() -> None:
    scene = build_sparing_scene(1)
    scene.ask("a", 1, 1)
    scene.ask("b", 1, 0)
    assert list_admitted(scene.run()) == {"b"}


def test_two_in_one_cycle_do_not_get_the_same() -> None:
    scene = build_sparing_scene()
    scene.ask("a", 1, 1)
    scene.ask("b", 1, 1)
    assert list_admitted(scene.run()) == {"a", "b"}
    assert not {*scene.held("a"), *scene.where("a")} & {*scene.held("b"), *scene.where("b")}
    scene.ask("c", 1, 0)
    outcome = scene.run()["c"]
    assert isinstance(outcome, NotAdmissible)


def test_the_spare_takes_the_pods_of_a_lost_node_though_another_waits_for_room() -> None:
    scene = build_sparing_scene()
    scene.ask("w", 2, 1)
    scene.submit("x", 1, cpu="4")
    scene.run()
    scene.submit("waits", 1, cpu="4")
    assert list_admitted(scene.run()) == set()
    (spare,) = scene.held("w")
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    outcome = scene.run()
    assert list_admitted(outcome) == {"w"}
    assert scene.where("w") == {"r0-n0": 1, spare: 1}
    assert scene.held("w") == ()  # by the assignment alone: nothing else was written
    assert not scene.state.ledger.find_drift()


def test_the_spare_is_taken_before_a_node_that_fits_as_well() -> None:
    scene = build_sparing_scene()
    scene.ask("w", 2, 1)
    scene.run()
    scene.keep("w")
    scene.change("r0-n2", taints=((LEAVING_TAINTS[0], "", "PreferNoSchedule"),))
    assert scene.keep("w").serving == ("r0-n3",)
    scene.change("r0-n2")
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    scene.run()
    assert scene.where("w") == {"r0-n1": 1, "r0-n3": 1}
    assert scene.keep("w").serving == ("r0-n2",)


def test_where_more_nodes_are_lost_than_are_spare_the_others_are_looked_for() -> None:
    scene = build_sparing_scene(6)
    scene.ask("w", 3, 1)
    scene.run()
    for node in ("r0-n0", "r0-n1"):
        scene.break_down(node)
    scene.lose("w", "r0-n0", "r0-n1")
    assert list_admitted(scene.run()) == {"w"}
    assert sum(scene.where("w").values()) == 3
    assert "r0-n2" in scene.where("w")


def test_spare_node_smaller_than_the_usage_of_the_fullest_node_is_released() -> None:
    """A random test found this: more was held than the node has."""
    scene = Sparing()
    for node, cpu in (("n0", 1), ("n1", 1), ("n2", 3), ("n3", 1)):
        scene.node(Node(f"r0-{node}", {RACK: "r0", HOSTNAME_LABEL: f"r0-{node}"}, {"cpu": cpu * 1000, "pods": 10}))
    scene.submit("first", 1, cpu="2")
    scene.run()
    scene.ask("w", 3, 1, cpu="1")
    scene.run()
    assert (sorted(scene.where("w")), scene.held("w")) == (["r0-n0", "r0-n1", "r0-n2"], ("r0-n3",))
    scene.delete("first")
    for node in ("r0-n0", "r0-n1"):
        scene.break_down(node)
    scene.lose("w", "r0-n0", "r0-n1")
    scene.run()
    assert (scene.where("w"), scene.held("w")) == ({"r0-n2": 3}, ())
    assert scene.free("r0-n3") == 1


def test_a_spare_that_the_pods_of_another_pod_set_were_given_is_none_any_more() -> None:
    scene = build_sparing_scene(3)
    sets = []
    for name, spares in (("a", "1"), ("b", "0")):
        pod_set = build_pod_set_json(name, 1, cpu="3", topology={"required": RACK})
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: spares}}
        sets.append(pod_set)
    scene.workload(build_workload_json("w", sets, owner="owner-w"))
    scene.run()
    assert scene.objects["w"]["metadata"]["annotations"] == {SPARES: '{"a":["r0-n1"]}'}
    assert scene.where("w") == {"r0-n0": 1, "r0-n2": 1}
    scene.break_down("r0-n2")
    scene.lose("w", "r0-n2")
    scene.run()
    assert scene.where("w") == {"r0-n0": 1, "r0-n1": 1}
    assert (scene.held("w"), scene.free("r0-n1")) == ((), 1)


def test_missing_spares_keep_no_lost_pod_from_its_place() -> None:
    """All nodes of the workload are lost: its pods are placed like new ones, and that must not wait for spares."""
    scene = build_sparing_scene(3)
    scene.ask("w", 1, 1)
    scene.run()
    assert (scene.where("w"), scene.held("w")) == ({"r0-n0": 1}, ("r0-n1",))
    scene.submit("other", 1, cpu="4")
    scene.run()
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    assert list_admitted(scene.run()) == {"w"}
    kept = scene.keep("w")
    assert (scene.where("w"), kept.serving, kept.missing) == ({"r0-n1": 1}, (), 1)


def test_spares_are_given_back_with_the_workload() -> None:
    scene = build_sparing_scene(2)
    scene.ask("w", 1, 1)
    scene.run()
    assert scene.free("r0-n1") == 0
    scene.delete("w")
    assert [scene.free("r0-n0"), scene.free("r0-n1")] == [4, 4]
    assert not scene.state.ledger.find_drift()


def test_restarted_scheduler_holds_the_same_spare_nodes() -> None:
    scene = build_sparing_scene()
    scene.ask("w", 2, 1)
    scene.run()
    later = build_sparing_scene()
    later.workload(scene.objects["w"])
    later.state.refresh()
    assert later.held("w") == scene.held("w")
    assert [later.free(f"r0-n{i}") for i in range(NODES)] == [scene.free(f"r0-n{i}") for i in range(NODES)]


# --- exchanged and filled up ----------------------------------------------------------------------------


def test_a_spare_that_is_gone_cordoned_or_moved_is_exchanged() -> None:
    scene = build_sparing_scene(3, 3)
    scene.ask("w", 1, 1)
    scene.run()
    assert scene.held("w") == ("r0-n1",)
    scene.change("r0-n1", unschedulable=True)
    assert scene.keep("w").serving == ("r0-n2",)
    scene.change("r0-n1")
    assert scene.keep("w").serving == ("r0-n2",)  # what serves stays
    scene.change("r0-n2", labels={RACK: "r1", HOSTNAME_LABEL: "r0-n2"})
    assert scene.keep("w").serving == ("r0-n1",)
    scene.state.observe_node("r0-n1", None)
    kept = scene.keep("w")
    assert (kept.nodes, kept.missing) == ((), 1)
    assert "0 of 1 spare node" in str(kept)


def test_one_that_does_not_serve_stays_held_where_there_is_no_other_and_is_told() -> None:
    scene = build_sparing_scene(2)
    scene.ask("w", 1, 1)
    scene.run()
    scene.break_down("r0-n1")
    kept = scene.keep("w")
    assert (kept.serving, kept.nodes, kept.missing) == ((), ("r0-n1",), 1)
    assert kept.broken == (("r0-n1", "NotReady"),)
    scene.change("r0-n1")
    assert scene.keep("w").serving == ("r0-n1",)


def test_a_missing_one_is_found_when_room_appears() -> None:
    scene = build_sparing_scene(2)
    scene.ask("w", 1, 1)
    scene.run()
    scene.state.observe_node("r0-n1", None)
    assert scene.keep("w").missing == 1
    scene.node(Node("r0-n5", {RACK: "r0", HOSTNAME_LABEL: "r0-n5"}, {"cpu": 4000, "pods": 10}))
    assert scene.keep("w").serving == ("r0-n5",)


def test_where_nodes_that_stay_are_to_be_had_none_is_kept_that_is_about_to_go() -> None:
    scene = build_sparing_scene(3)
    scene.ask("w", 1, 1)
    scene.run()
    taints = ((LEAVING_TAINTS[0], "", "PreferNoSchedule"),)
    scene.change("r0-n1", taints=taints)
    assert scene.keep("w").serving == ("r0-n2",)
    scene.change("r0-n2", taints=taints)
    assert scene.keep("w").serving == ("r0-n2",)


def test_keep_spares_without_fill_adds_no_new_spare_node() -> None:
    scene = build_sparing_scene(3)
    scene.ask("w", 1, 1)
    scene.run()
    facts = scene.state.workloads.facts[f"{NAMESPACE}/w"]
    (kept,) = list_kept_spares(scene.state, facts, fills=False)
    assert kept.serving == ("r0-n1",)
    scene.break_down("r0-n1")
    (kept,) = list_kept_spares(scene.state, facts, fills=False)
    assert (kept.serving, kept.nodes) == ((), ("r0-n1",))
    (kept,) = list_kept_spares(scene.state, facts)
    assert kept.nodes == ("r0-n2",)


def test_cycle_with_a_preemptor_makes_room() -> None:
    scene = build_sparing_scene(1)
    scene.queue("cq", {"tas": "100"}, preemption={"withinClusterQueue": "LowerPriority"})
    scene.submit("low", 1, cpu="4")
    scene.run()
    assert not scene.cycle.makes_room
    scene.submit("high", 1, cpu="4", priority=5)
    scene.run()
    assert scene.cycle.makes_room


def test_growing_workload_keeps_its_spares_and_does_not_wait_for_new_ones() -> None:
    scene = build_sparing_scene(4)
    scene.ask("w", 1, 1)
    scene.run()
    assert (scene.where("w"), scene.held("w")) == ({"r0-n0": 1}, ("r0-n1",))
    for before, name, count, spares in (("w", "w2", 2, 1), ("w2", "w3", 4, 0)):
        pod_set = build_pod_set_json(count=count, cpu="4", topology={"required": RACK})
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: "1"}}
        heir = build_workload_json(name, [pod_set], owner="owner-w")
        heir["metadata"]["annotations"] = {SLICE_NAME: "w", SLICE_REPLACES: f"{NAMESPACE}/{before}"}
        scene.workload(heir)
        scene.run()
        assert sum(scene.where(name).values()) == count
        assert (len(scene.held(name)), scene.held(before)) == (spares, ())
        assert not {*scene.held(name)} & {*scene.where(name)}
        assert not scene.state.ledger.find_drift()


def test_two_pod_sets_with_spares_share_one_spare_node_that_fits_both() -> None:
    """On one node, if that has room for both: when the node that they share is lost, both have a place."""
    scene = build_sparing_scene(4)
    sets = []
    for name in ("a", "b"):
        pod_set = build_pod_set_json(name, 1, cpu="2", topology={"required": RACK})
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: "1"}}
        sets.append(pod_set)
    scene.workload(build_workload_json("w", sets, owner="owner-w"))
    scene.run()
    facts = scene.state.workloads.facts[f"{NAMESPACE}/w"]
    kept = list_kept_spares(scene.state, facts)
    assert facts.admission is not None
    assert with_kept(facts.admission, kept) == facts.admission
    assert [one.serving for one in kept] == [("r0-n1",), ("r0-n1",)]
    assert scene.free("r0-n1") == 0
    scene.break_down("r0-n0")
    scene.lose("w", "r0-n0")
    assert list_admitted(scene.run()) == {"w"}
    assert scene.where("w") == {"r0-n1": 2}


def test_no_node_is_a_spare_of_two_pod_sets_of_two_flavors_that_has_room_for_one() -> None:
    """Former defect: of flavors over the same nodes each pod set got the same other node, once its spare was gone."""
    scene = build_sparing_scene(7)
    for name in ("one", "two"):
        scene.flavor(name, "t")
    scene.queue("cq", {"one": "8", "two": "100"})
    sets = [build_pod_set_json(name, 1, cpu="4", topology={"required": RACK}) for name in "ab"]
    for pod_set in sets:
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: "1"}}
    scene.workload(build_workload_json("w", sets, owner="owner-w"))
    scene.run()
    facts = scene.state.workloads.facts[f"{NAMESPACE}/w"]
    assert [one.serving for one in list_kept_spares(scene.state, facts)] == [("r0-n1",), ("r0-n3",)]
    scene.break_down("r0-n1")
    scene.break_down("r0-n3")
    assert [one.serving for one in list_kept_spares(scene.state, facts)] == [("r0-n4",), ("r0-n5",)]


@pytest.mark.parametrize("spares", [0, 1])
def test_the_spare_of_one_pod_set_has_room_for_another_of_another_flavor_too(spares: int) -> None:
    """Review 28: what `a` gained on its own spare was taken from the room for `b` twice, and the workload was evicted."""
    scene = build_sparing_scene(4)
    for name in ("one", "two"):
        scene.flavor(name, "t")
    scene.queue("cq", {"two": "2", "one": "100"})
    sets = [build_pod_set_json(name, 1, cpu="2", topology={"required": RACK}) for name in "ab"]
    if spares:
        sets[0]["template"]["metadata"] = {"annotations": {SPARE_NODES: str(spares)}}
    scene.workload(build_workload_json("w", sets, owner="owner-w"))
    scene.run()
    left = scene.held("w")[0] if spares else "r0-n2"
    for name in {"r0-n0", "r0-n1", "r0-n2", "r0-n3"} - {left}:
        scene.break_down(name)
    scene.lose("w", *scene.where("w"))
    assert isinstance(scene.run()["w"], Admissible)
    assert scene.where("w") == {left: 2}


def test_spares_annotation_written_by_a_user_is_held_only_for_allowed_nodes() -> None:
    """Whoever may write Workloads names a node of another rack: it is exchanged at the next look."""
    scene = build_sparing_scene(2, 2)
    scene.ask("w", 1, 1)
    scene.run()
    wire = scene.objects["w"]
    wire["metadata"]["annotations"] = {SPARES: '{"main":["r1-n0","r1-n1"],"else":["r0-n1"]}'}
    scene.workload(wire)
    assert scene.held("w") == ("r1-n0",)
    assert scene.keep("w").serving == ("r0-n1",)
    assert scene.free("r1-n0") == 4


# --- quota ----------------------------------------------------------------------------------------------


def build_counting_scene(*racks: int, **options: Any) -> Sparing:
    """A scene in which quota counts spares."""
    scene = Sparing(resource_rules=ResourceRules(counts_spares=True), **options)
    for i, nodes in enumerate(racks or (NODES,)):
        scene.rack(f"r{i}", nodes)
    return scene


def get_usage(scene: Sparing, queue: str = "cq") -> int:
    return scene.state.quota.get_usage(queue).get(("tas", "cpu"), 0) // 1000


def test_spares_use_quota_unless_administrator_lets_them_go_uncounted() -> None:
    """Former defect: with 64 uncounted spares a queue of 8 GPUs held 65 nodes of 8."""
    for rules, amount in ((ResourceRules(), 12), (ResourceRules(counts_spares=False), 8)):
        scene = Sparing(resource_rules=rules)
        scene.rack("r0", NODES)
        scene.ask("w", 2, 1)
        scene.run()
        assert get_usage(scene) == amount


def test_where_it_is_chosen_they_use_as_much_as_they_hold_whatever_becomes_of_them() -> None:
    scene = build_counting_scene()
    scene.ask("w", 2, 1)
    scene.run()
    assert get_usage(scene) == 12
    assert scene.objects["w"]["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] == {"cpu": "8"}
    scene.break_down("r0-n1")
    scene.lose("w", "r0-n1")
    scene.run()
    assert (scene.held("w"), get_usage(scene)) == ((), 12)
    scene.keep("w")
    assert (scene.held("w"), get_usage(scene)) == (("r0-n3",), 12)
    scene.delete("w")
    assert get_usage(scene) == 0


def test_workload_with_quota_for_its_pods_but_not_for_its_spares_waits() -> None:
    scene = build_counting_scene(quota="11")
    scene.ask("w", 2, 1)
    outcome = scene.run()["w"]
    assert isinstance(outcome, NotAdmissible)
    (shortage,) = list_shortages(outcome)
    assert (shortage.wanted, shortage.nominal, shortage.never_fits) == (12000, 11000, True)
    assert "spare nodes" in outcome.message
    scene.queue("cq", {"tas": "12"})
    assert list_admitted(scene.run()) == {"w"}


def test_quota_used_by_spares_counts_for_the_next_workload_of_the_cycle() -> None:
    scene = build_counting_scene(quota="15")
    scene.ask("w", 2, 1)
    scene.submit("x", 1, cpu="4")
    outcome = scene.run()
    assert list_admitted(outcome) == {"w"}
    refused = outcome["x"]
    assert isinstance(refused, NotAdmissible)
    (shortage,) = list_shortages(refused)
    assert (shortage.wanted, shortage.available, shortage.used, shortage.nominal) == (4000, 3000, 12000, 15000)


def test_quota_of_two_pod_sets_includes_the_spares_of_both() -> None:
    scene = build_counting_scene(quota="7")
    sets = []
    for name in ("a", "b"):
        pod_set = build_pod_set_json(name, 1, cpu="2", topology={"required": RACK})
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: "1"}}
        sets.append(pod_set)
    scene.workload(build_workload_json("w", sets, owner="owner-w"))
    assert list_admitted(scene.run()) == set()
    scene.queue("cq", {"tas": "8"})
    assert list_admitted(scene.run()) == {"w"}
    assert get_usage(scene) == 8


# --- whatever happens -------------------------------------------------------------------------------------


@given(st.data())
def test_spares_under_random_node_changes_stay_in_their_domain_and_exclusive(data: st.DataObject) -> None:
    scene = build_sparing_scene(4, 4)
    for i in range(3):
        asked: list[dict[str, Any]] = [{"required": RACK}, {"preferred": RACK}, {"unconstrained": True}]
        count, spares, cpu = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2)), data.draw(st.sampled_from("24"))
        scene.ask(f"w{i}", count, spares, cpu=cpu, topology=data.draw(st.sampled_from(asked)))
    scene.run()
    everybody = [f"w{i}" for i in range(3)]
    for _ in range(data.draw(st.integers(1, 6))):
        node = data.draw(st.sampled_from([f"r{r}-n{n}" for r in range(2) for n in range(4)]))
        match data.draw(st.sampled_from(["break", "mend", "cordon", "keep"])):
            case "break":
                scene.break_down(node)
                for name in everybody:
                    lost = [host for host in scene.where(name) if not scene.state.nodes[host].state.ready]
                    if lost and scene.state.workloads.find_holding(f"{NAMESPACE}/{name}") is not None:
                        scene.lose(name, *sorted(lost))
            case "mend":
                scene.change(node)
            case "cordon":
                scene.change(node, unschedulable=True)
            case "keep":
                for name in everybody:
                    facts = scene.state.workloads.facts[f"{NAMESPACE}/{name}"]
                    if facts.admission is not None and facts.pod_sets[0].spares and not facts.unhealthy_nodes:
                        scene.keep(name)
        scene.run()
        check(scene, everybody)


def test_spares_of_a_required_rack_are_given_back_where_all_pods_get_another_rack() -> None:
    """The spare fails first, then the node with all pods."""
    scene = build_sparing_scene(4, 4)
    scene.ask("w", 2, 1, cpu="2")
    scene.ask("x", 2, 0)
    scene.run()
    assert (scene.where("w"), scene.held("w")) == ({"r0-n0": 2}, ("r0-n1",))
    for node in ("r0-n1", "r0-n0"):
        scene.break_down(node)
        scene.run()
    scene.lose("w", "r0-n0")
    scene.run()
    assert (scene.where("w"), scene.held("w")) == ({"r1-n0": 2}, ())
    assert scene.keep("w").serving == ("r1-n1",)
    check(scene, ["w", "x"])


def check(scene: Sparing, everybody: list[str]) -> None:
    assert not scene.state.ledger.find_drift()
    view = scene.state.get_view("tas")
    assert view is not None
    assert (view.capacity.free >= 0).all()
    for name in everybody:
        admission = scene.state.workloads.find_holding(f"{NAMESPACE}/{name}")
        facts = scene.state.workloads.facts[f"{NAMESPACE}/{name}"]
        if admission is None:
            continue
        pods, spares = set(scene.where(name)), set(scene.held(name))
        assert len(spares) <= facts.pod_sets[0].spares
        assert not pods & spares
        topology = facts.pod_sets[0].topology
        if topology is not None and topology.mode.value == "required":
            assert len({node[:2] for node in pods | spares}) == 1


def test_node_that_rejected_pods_of_the_workload_is_a_spare_only_without_alternative() -> None:
    scene = build_sparing_scene()
    scene.ask("w", 2, 1)
    scene.run()
    assert scene.held("w") == ("r0-n2",)
    rejected = build_pod_json("p", node="r0-n2", cpu="4", phase="Failed", workload="w", owner="owner-w")
    rejected["status"]["reason"] = "OutOfcpu"
    scene.pod(rejected)
    assert scene.keep("w").serving == ("r0-n3",)
    scene.change("r0-n3", unschedulable=True)
    assert scene.keep("w").serving == ("r0-n2",)
