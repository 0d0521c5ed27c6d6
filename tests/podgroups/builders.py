"""Small groups and clusters, and what a patient person would answer about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st

from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.algorithm import Outcome, decide, default_plugins
from core.podgroups.framework import Plugins
from core.podgroups.group import PodGroupInfo, TopologyConstraint
from tests.builders import BLOCK, RACK, Node, build_view, request


def build_node(name: str, block: str | None, rack: str | None, cpu: int = 4, gpu: int = 0, **other: Any) -> Node:
    labels = {HOSTNAME_LABEL: name}
    labels |= {} if block is None else {BLOCK: block}
    labels |= {} if rack is None else {RACK: rack}
    return Node(name, labels, {"cpu": cpu * 1000, "gpu": gpu, "pods": 110}, **other)


def build_cluster(racks: Mapping[str, Sequence[int]], *, block: str = "b") -> FreeCapacity:
    """A node for each number, with so many CPUs, in the rack of that name; `b2/r1` is rack r1 of block b2."""
    return build_view([HOSTNAME_LABEL], list_nodes(racks, block))


def list_nodes(racks: Mapping[str, Sequence[int]], block: str = "b") -> list[Node]:
    found = []
    for rack, sizes in racks.items():
        in_block, _, name = rack.rpartition("/")
        found += [build_node(f"{rack.replace('/', '-')}-{i}", in_block or block, name, cpu) for i, cpu in enumerate(sizes)]
    return found


def group(*sets: tuple[int, int], by: Sequence[str] = (RACK,), preferred: Sequence[str] = (), **other: object) -> PodGroupInfo:
    """A gang of all of its pods; each set is (pods, CPUs of one)."""
    pod_sets = tuple(request(count, cpu=cpu * 1000, name=f"set-{i}") for i, (count, cpu) in enumerate(sets))
    constraints = tuple(TopologyConstraint(level, level in preferred) for level in by)
    options = {"min_count": sum(count for count, _ in sets)} | other
    return PodGroupInfo("ns", "group", pod_sets, constraints, **options)  # type: ignore[arg-type]


def ask(view: FreeCapacity, asked: PodGroupInfo, plugins: Plugins | None = None) -> Outcome:
    return decide(view, asked, plugins or default_plugins())


def count_placed_pods(outcome: Outcome) -> dict[str, int]:
    """Pods per node."""
    assert outcome.chosen is not None
    found: dict[str, int] = {}
    for of_set in outcome.chosen.assignment.nodes:
        for name, count in of_set:
            found[name] = found.get(name, 0) + count
    return found


def name_of(outcome: Outcome) -> str | None:
    return None if outcome.chosen is None else outcome.chosen.placement.name


def can_hold_all(sizes: Sequence[int], pods: Sequence[int]) -> bool:
    """Whether pods of these sizes have places on nodes of these sizes: every way is tried."""
    if not pods:
        return True
    return any(
        size >= pods[0] and can_hold_all([*sizes[:at], size - pods[0], *sizes[at + 1 :]], pods[1:])
        for at, size in enumerate(sizes)
        if size not in sizes[:at]
    )


sizes_of_nodes = st.lists(st.integers(0, 5), min_size=1, max_size=3)
racks = st.dictionaries(st.sampled_from(["b1/r1", "b1/r2", "b2/r1", "b2/r3"]), sizes_of_nodes, min_size=1)
small_sets = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=2)
