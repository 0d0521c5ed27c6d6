"""Spares that are lent, whatever happens: nothing over capacity, nobody above his place, and the holder has its spare when it needs it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.names import HOSTNAME_LABEL
from core.queueing.flavors.outcome import NotAdmissible
from tests.builders import NAMESPACE, RACK, Node, build_pod_set_json, build_workload_json
from tests.queueing.flavors.test_lending import Lending, build_lending_scene
from tests.queueing.scene import build_times, list_admitted
from tests.strategies import scale_examples

RACKS, WIDE = 2, 4
THIEVES = [f"t{i}" for i in range(12)]
NODES = [f"r{r}-n{n}" for r in range(RACKS) for n in range(WIDE)]
HOLDERS, OTHERS = ("w0", "w1"), ("a", "b", "c", "d")
CREATED = build_times([*HOLDERS, *OTHERS, *THIEVES])
ASKED: list[dict[str, Any]] = [{"required": RACK}, {"preferred": RACK}, {"unconstrained": True}]


class Lives(Lending):
    """A scene in which those who are evicted leave sooner or later."""

    def join(self, name: str, count: int, cpu: str, priority: int, topology: dict[str, Any]) -> None:
        pod_set = build_pod_set_json(count=count, cpu=cpu, topology=topology)
        self.workload(build_workload_json(name, [pod_set], owner=f"owner-{name}", priority=priority, created=CREATED[name]))

    def holds(self, name: str) -> bool:
        return f"{NAMESPACE}/{name}" in self.state.workloads.facts and self.state.workloads.find_holding(f"{NAMESPACE}/{name}") is not None

    def break_and_tell(self, node: str) -> None:
        self.break_down(node)
        for name in (*HOLDERS, *OTHERS):
            lost = [host for host in self.where(name) if not self.state.nodes[host].state.ready] if self.holds(name) else []
            if lost and not self.facts(name).evicted:
                self.lose(name, *sorted(lost))

    def let_leave(self) -> None:
        for name in (*HOLDERS, *OTHERS):
            if self.holds(name) and self.facts(name).evicted:
                self.leave(name)

    def keep_all(self) -> None:
        for name in HOLDERS:
            facts = self.facts(name)
            if facts.admission is not None and facts.pod_sets[0].spares and not facts.unhealthy_nodes and not facts.evicted:
                self.keep(name)


def begun(data: st.DataObject, lends: str = "true", *, sizes: bool = True) -> Lives:
    scene = Lives()
    for node in NODES:
        size = data.draw(st.sampled_from([4, 6, 8])) if sizes else 4
        scene.node(Node(node, {RACK: node[:2], HOSTNAME_LABEL: node}, {"cpu": size * 1000, "pods": 10}))
    for name in HOLDERS:
        count, spares, cpu = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2)), data.draw(st.sampled_from("24"))
        priority, asked = data.draw(st.integers(4, 6)), data.draw(st.sampled_from(ASKED))
        scene.ask(name, count, spares, cpu=cpu, topology=asked, priority=priority, lends=lends, created=CREATED[name])
    for name in OTHERS:
        asked = data.draw(st.sampled_from(ASKED))
        scene.join(name, data.draw(st.integers(1, 4)), data.draw(st.sampled_from("134")), data.draw(st.integers(0, 6)), asked)
    scene.run()
    return scene


def step(scene: Lives, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(NODES))
    match data.draw(st.sampled_from(["break", "mend", "cordon", "keep", "leave", "end", "again"])):
        case "break":
            scene.break_and_tell(node)
        case "mend":
            scene.change(node)
        case "cordon":
            scene.change(node, unschedulable=True)
        case "keep":
            scene.keep_all()
        case "leave":
            scene.let_leave()
        case "end":
            name = data.draw(st.sampled_from(OTHERS))
            if scene.holds(name):
                scene.delete(name)
        case "again":
            name = data.draw(st.sampled_from(OTHERS))
            if f"{NAMESPACE}/{name}" not in scene.state.workloads.facts:
                scene.join(name, data.draw(st.integers(1, 3)), data.draw(st.sampled_from("13")), data.draw(st.integers(0, 6)), ASKED[2])
    scene.run()


def check(scene: Lives) -> None:
    assert not scene.state.ledger.find_drift()
    used: Counter[str] = Counter()
    for name in (*HOLDERS, *OTHERS):
        if scene.holds(name):
            (pod_set,) = scene.facts(name).pod_sets
            used.update({node: count * pod_set.requests["cpu"] for node, count in scene.where(name).items()})
    for node, amount in used.items():
        assert amount <= scene.state.nodes[node].state.allocatable["cpu"], "pods never ask for more than a node has"
    for holder in HOLDERS:
        for node, names in scene.lent(holder).items():
            assert scene.facts(holder).pod_sets[0].lends
            assert node in scene.held(holder)
            for name in names:
                assert scene.facts(name).priority < scene.facts(holder).priority
                assert node in scene.where(name)


@settings(max_examples=scale_examples(1.5))
@given(st.data())
def test_no_node_holds_more_pods_than_it_has_room_for_and_only_the_lower_borrow(data: st.DataObject) -> None:
    scene = begun(data)
    check(scene)
    for _ in range(data.draw(st.integers(1, 8))):
        step(scene, data)
        check(scene)


@settings(max_examples=scale_examples(1.5))
@given(st.data())
def test_holder_gets_its_spare_once_its_borrowers_are_gone(data: st.DataObject) -> None:
    scene = begun(data, sizes=False)
    for _ in range(data.draw(st.integers(0, 4))):
        step(scene, data)
    scene.let_leave()
    scene.run()
    scene.keep_all()
    holder = data.draw(st.sampled_from(HOLDERS))
    facts = scene.facts(holder)
    if facts.admission is None or facts.evicted or facts.unhealthy_nodes or not facts.pod_sets[0].spares:
        return
    kept, before = scene.keep(holder), scene.where(holder)
    if not kept.serving or any(not scene.state.nodes[node].state.ready for node in before):
        return
    scene.break_and_tell(data.draw(st.sampled_from(sorted(before))))
    for _ in range(2):
        scene.run()
        check(scene)
        scene.let_leave()
    scene.run()
    assert not scene.facts(holder).unhealthy_nodes
    assert not scene.facts(holder).evicted
    assert all(scene.state.nodes[node].state.ready for node in scene.where(holder))
    assert scene.where(holder).total() == before.total()


@dataclass
class Promise:
    """A holder for whose sake some were told to go, who is going, where the holder is to be, and where the rest stood before."""

    holder: str
    going: set[str]
    nodes: set[str]
    stood: dict[str, Counter[str]]


def losing(scene: Lives, data: st.DataObject) -> Promise | None:
    """Some nodes of a holder that lends others fail, a moment after there is room elsewhere again."""
    full = [node for node in NODES if scene.state.nodes[node].state.ready and scene.free(node) > 0]
    for node in full:
        scene.change(node, unschedulable=True)
    for name in OTHERS:
        if f"{NAMESPACE}/{name}" not in scene.state.workloads.facts:
            scene.join(name, 1, "4", data.draw(st.integers(0, 5)), ASKED[2])
    scene.run()
    for node in full:
        scene.change(node)
    lending_now = [name for name in HOLDERS if scene.lent(name)]
    if not lending_now:
        return None
    holder = data.draw(st.sampled_from(lending_now))
    borrowers = {name for names in scene.lent(holder).values() for name in names}
    for name in OTHERS:
        if name not in borrowers and data.draw(st.booleans()):
            scene.delete(name)
    stood = {name: scene.where(name) for name in (*HOLDERS, *OTHERS)}
    for node in data.draw(st.sets(st.sampled_from(sorted(scene.where(holder))), min_size=1)):
        scene.break_and_tell(node)
    preempting = outcome.preempting if isinstance(outcome := scene.run().get(holder), NotAdmissible) else None
    if preempting is None or not preempting.victims:
        return None
    nodes = {node for _, placement in preempting.found.placements for node, _ in placement.nodes}
    going = [*preempting.leaving, *(victim.workload.key for victim in preempting.victims)]
    gone = {key.partition("/")[2] for key in going}
    return Promise(holder, gone, nodes, {name: where for name, where in stood.items() if name not in {holder, *gone}})


@settings(max_examples=scale_examples(2.5))
@given(st.data())
def test_holder_that_reclaims_its_spare_is_whole_after_evictions_under_random_events(data: st.DataObject) -> None:
    scene = begun(data, sizes=False)
    for _ in range(data.draw(st.integers(0, 3))):
        step(scene, data)
    promise = losing(scene, data)
    if promise is None:
        return
    was, thieves = scene.where(promise.holder), iter(THIEVES)
    left = {node for name in promise.going for node in scene.where(name)}
    for _ in range(data.draw(st.integers(1, 4))):
        match data.draw(st.sampled_from(["come", "come", "leave", "lose", "late"])):
            case "come":
                for name in [next(thieves) for _ in range(data.draw(st.integers(1, 3)))]:
                    cpu, priority = data.draw(st.sampled_from("1234")), data.draw(st.integers(0, 12))
                    scene.join(name, data.draw(st.integers(1, 2)), cpu, priority, data.draw(st.sampled_from(ASKED)))
            case "leave":
                for name in data.draw(st.sets(st.sampled_from(OTHERS))):
                    if scene.holds(name) and scene.facts(name).evicted:
                        scene.leave(name)
            case "lose":  # others that have lost nodes look for room, too
                others = sorted({*NODES} - promise.nodes - {*scene.where(promise.holder)})
                scene.break_and_tell(data.draw(st.sampled_from(others)))
            case "late":
                scene.cycle.requeue_workload(f"uid-{promise.holder}")
        scene.run()
        check(scene)
    for name in promise.going:
        if scene.holds(name) and scene.facts(name).evicted:
            scene.leave(name)
    scene.run()
    check(scene)
    assert not scene.facts(promise.holder).evicted
    assert not scene.facts(promise.holder).unhealthy_nodes
    assert all(scene.state.nodes[node].state.ready for node in scene.where(promise.holder))
    assert scene.where(promise.holder).total() == was.total()
    rests = all(scene.where(name) == stood for name, stood in promise.stood.items())  # else it may have come by other room
    assert not rests or left & {*scene.where(promise.holder)}, "they did not go for nothing"


@settings(max_examples=scale_examples(1.5))
@given(st.data())
def test_when_nothing_happens_any_more_it_comes_to_rest(data: st.DataObject) -> None:
    scene = begun(data)
    for _ in range(data.draw(st.integers(0, 6))):
        step(scene, data)
    stands: list[object] = []
    for _ in range(12):
        scene.run()
        check(scene)
        scene.let_leave()
        scene.keep_all()
        there = [name for name in (*HOLDERS, *OTHERS) if f"{NAMESPACE}/{name}" in scene.state.workloads.facts]
        stands.append([(name, scene.where(name), scene.held(name), scene.facts(name).evicted) for name in there])
    assert stands[-1] == stands[-2] == stands[-3]


@given(st.data())
def test_spares_without_the_lend_annotation_are_never_lent(data: st.DataObject) -> None:
    scene = begun(data, lends="false")
    for _ in range(data.draw(st.integers(1, 5))):
        step(scene, data)
        assert not any(scene.lent(holder) for holder in HOLDERS)
        assert not scene.state.workloads.list_lenders()
        assert not scene.state.workloads.has_borrowers()
        view = scene.state.get_view("tas")
        assert view is not None
        assert (view.capacity.free >= 0).all()


@given(st.data())
def test_restarted_scheduler_reads_the_same_state_in_any_order_of_events(data: st.DataObject) -> None:
    scene = begun(data, sizes=False)
    for _ in range(data.draw(st.integers(0, 4))):
        step(scene, data)
    scene.break_and_tell(data.draw(st.sampled_from(NODES)))
    later = Lives()
    there = [name for name in (*HOLDERS, *OTHERS) if f"{NAMESPACE}/{name}" in scene.state.workloads.facts]
    for kind, name in data.draw(st.permutations([*(("node", node) for node in NODES), *(("workload", name) for name in there)])):
        if kind == "node":
            later.state.observe_node(name, scene.state.nodes[name])
        else:
            later.workload(scene.objects[name])
    later.state.refresh()
    assert [later.lent(holder) for holder in HOLDERS] == [scene.lent(holder) for holder in HOLDERS]
    assert not later.state.ledger.find_drift()
    fresh = build_lending_scene()
    for node in NODES:
        fresh.state.observe_node(node, scene.state.nodes[node])
    for name in there:
        fresh.workload(scene.objects[name])
    assert list_admitted(later.run()) == list_admitted(fresh.run())
    assert {name: later.where(name) for name in there} == {name: fresh.where(name) for name in there}
