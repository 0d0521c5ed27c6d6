"""What it takes to go on when nodes come and go: a node moves the reservations of its own domains alone."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from core.placement.topology.node_counts import NodeCounts
from core.queueing.flavors.outcome import Admissible
from core.state.facts import NodeFacts, TopologyFacts
from core.state.ledger import Domain, Ledger, PodSetKey
from core.state.promises import find_missing
from tests.builders import RACK, Node, build_topology_json
from tests.queueing.scene import Scene


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of workloads for which something is reserved, in the order of the calls."""
    calls: list[str] = []
    reserve = Ledger.reserve

    def count(self: Ledger, key: Any, reservation: Any) -> None:
        if reservation is not None:
            calls.append(key[0])
        reserve(self, key, reservation)

    monkeypatch.setattr(Ledger, "reserve", count)
    return calls


def running(workloads: int, *, racks: int = 4) -> Scene:
    scene = Scene()
    for rack in range(racks):
        scene.rack(f"r{rack}", 4)
    for i in range(workloads):
        scene.submit(f"w{i}")
    for name, outcome in scene.run().items():
        assert isinstance(outcome, Admissible)
        scene.state.confirm(f"ns/{name}", 2)
    return scene


def in_one_rack(workloads: int) -> Scene:
    """Workloads on a topology of racks alone, where the only rack has 8 nodes."""
    scene = Scene()
    scene.state.observe_topology("t", TopologyFacts.read(build_topology_json("t", [RACK])))
    scene.rack("r0", 8)
    for i in range(workloads):
        scene.submit(f"w{i}")
    scene.run()
    return scene


def reserved_domains(scene: Scene) -> list[Domain]:
    return [domain for taken in scene.state.ledger._taken.values() for domain in taken.reservation.domains]


def reservations_of_trees(scene: Scene) -> list[PodSetKey]:
    """Keys of the reservations that keep a topology tree alive."""
    return [key for key, taken in scene.state.ledger._taken.items() if isinstance(taken.reservation.pinned, NodeCounts)]


def build_host(name: str, rack: str) -> Node:
    return Node(name, {RACK: rack, HOSTNAME_LABEL: name}, {"cpu": 4000, "pods": 10})


def test_node_that_joins_moves_no_reservation_of_other_nodes(reserved: list[str]):
    scene = running(20)
    reserved.clear()
    scene.node(build_host("late", "r0"))
    scene.state.refresh()
    assert reserved == []
    assert scene.state.ledger.find_drift() == {}


def test_node_that_gets_another_hostname_moves_the_reservations_of_its_own_domain(reserved: list[str]):
    scene = running(20)
    reserved.clear()
    taken = {name for name, _ in scene.state.ledger.list_counted_nodes(("ns/w0", "main", None))}
    (name,) = taken
    scene.state.observe_node(name, None)
    scene.state.refresh()
    scene.node(build_host(name, "elsewhere"))
    scene.state.refresh()
    assert 0 < len(set(reserved)) < 20
    assert scene.state.ledger.find_drift() == {}
    assert next(found for found in find_missing(scene.state) if found is not None) == {}


def test_reservations_that_are_written_refer_to_no_tree():
    scene = running(20)
    assert reservations_of_trees(scene) == []


def test_reservations_that_are_not_written_refer_to_no_tree_that_is_gone():
    scene = running(0)
    scene.submit("w")
    scene.run()
    scene.node(build_host("late", "r0"))
    scene.state.refresh()
    assert reservations_of_trees(scene) == []


def test_workloads_in_one_domain_of_many_nodes_share_one_set_of_names():
    scene = in_one_rack(10)
    domains = reserved_domains(scene)
    assert len(domains) == 10
    assert len({id(domain.nodes) for domain in domains}) == 1
    scene.node(build_host("late", "r1"))
    scene.submit("w10")
    scene.run()
    assert len({id(domain.nodes) for domain in reserved_domains(scene)}) == 1  # the new view has the set of the former one


def test_audit_of_many_workloads_in_one_domain_reads_its_nodes_once(monkeypatch: pytest.MonkeyPatch):
    scene = in_one_rack(10)
    labels = CountedLabels({RACK: "r0"})
    for name, node in list(scene.state.nodes.items()):
        scene.state.nodes[name] = NodeFacts(node.name, labels, node.state)
    assert next(found for found in find_missing(scene.state) if found is not None) == {}
    assert labels.reads <= 8 * 8  # of each node a few; not so many for each workload


class CountedLabels(dict[str, str]):
    """Labels that count how often they are read."""

    reads = 0

    def get(self, *key: Any) -> Any:
        self.reads += 1
        return super().get(*key)

    def __getitem__(self, key: str) -> str:
        self.reads += 1
        return super().__getitem__(key)
