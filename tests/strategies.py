"""Hypothesis strategies: small irregular clusters, usage on them, and requests of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity
from tests.builders import Node, build_view

TAINTS = [("dedicated", "ml", "NoSchedule"), ("dedicated", "web", "NoSchedule"), ("maintenance", "", "NoExecute")]
TOLERATIONS: list[dict[str, Any]] = [
    {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "value": "web"},
    {"key": "maintenance", "effect": "NoExecute", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists"},
]


def scale_examples(ratio: float) -> int:
    """Returns how many examples a test gets that needs more or fewer than others, as a multiple of the profile's in tests/conftest.py."""
    return round(ratio * settings().max_examples)


@dataclass(frozen=True)
class Cluster:
    """Levels, nodes and what is used on them before anything is placed."""

    levels: tuple[str, ...]
    nodes: tuple[Node, ...]
    used: tuple[tuple[str, Mapping[str, int], int], ...] = ()

    def view(self, order: Sequence[int] | None = None) -> FreeCapacity:
        nodes = self.nodes if order is None else [self.nodes[i] for i in order]
        view = build_view(self.levels, nodes)
        for name, amounts, times in self.used:
            view.use_node(name, amounts, times)
        return view


@st.composite
def clusters(draw: st.DrawFn, *, max_nodes: int = 8, cpus: int = 4, hostname: bool | None = None, plain: bool = False) -> Cluster:
    """1 to 4 levels; names of domains recur under different parents; nodes may be out for several reasons."""
    by_host = draw(st.booleans()) if hostname is None else hostname
    upper = draw(st.integers(0 if by_host else 1, 3))
    levels = tuple(f"level-{i}" for i in range(upper)) + ((HOSTNAME_LABEL,) if by_host else ())
    nodes = []
    for i in range(draw(st.integers(1, max_nodes))):
        # Names sort otherwise than they are made, and the hostname is not the node's name.
        labels = {level: draw(st.sampled_from("abc")) for level in levels[:upper]} | {HOSTNAME_LABEL: f"h{i * 7 % 11:02}"}
        if not plain:
            labels |= draw(st.dictionaries(st.sampled_from(["pool", "gen"]), st.sampled_from(["1", "2", "x"]), max_size=2))
        allocatable = {"cpu": draw(st.integers(0, cpus)) * 1000, "pods": draw(st.integers(1, 5))}
        if draw(st.integers(0, 3)) == 0:
            allocatable["gpu"] = draw(st.integers(0, 4))
        nodes.append(
            Node(
                f"n{i}",
                labels,
                allocatable,
                () if plain else tuple(draw(st.lists(st.sampled_from(TAINTS), max_size=1))),
                plain or draw(st.integers(0, 9)) > 0,
                not plain and draw(st.integers(0, 9)) == 0,
            )
        )
    names = [node.name for node in nodes]
    usage = st.tuples(st.sampled_from(names), st.just({"cpu": 500, "pods": 1}), st.integers(1, 3))
    return Cluster(levels, tuple(nodes), tuple(draw(st.lists(usage, max_size=3))))


@st.composite
def requests(
    draw: st.DrawFn, levels: Sequence[str], *, max_count: int = 8, name: str = "main", plain: bool = False, partial: bool = False
) -> PodSetRequest:
    """Any mode, with or without one layer of slices that divides the count; with `partial` it need not."""
    mode = draw(st.sampled_from(Mode))
    level = draw(st.sampled_from(levels)) if mode in (Mode.REQUIRED, Mode.PREFERRED) else None
    count = draw(st.integers(1, max_count))
    slices: tuple[SliceLayer, ...] = ()
    if mode is not Mode.IMPLIED and draw(st.booleans()):
        below = levels[levels.index(level) if level is not None else 0 :]
        size = draw(st.integers(1, 4))
        count = count if partial else max(1, count // size) * size
        slices = (SliceLayer(draw(st.sampled_from(below)), size),)
    asked = {"cpu": draw(st.sampled_from([500, 1000, 2000]))}
    if draw(st.integers(0, 5)) == 0:
        asked["gpu"] = 1
    tolerations = () if plain else tuple(draw(st.lists(st.sampled_from(TOLERATIONS), max_size=2)))
    selector = {} if plain else draw(st.dictionaries(st.sampled_from(["pool"]), st.sampled_from(["1", "2"]), max_size=1))
    return PodSetRequest(name, count, asked, TopologyRequest(mode, level, slices, partial=partial), selector, None, tolerations)


@st.composite
def scenes(draw: st.DrawFn, /, *, plain: bool = False, partial: bool = False, **options: Any) -> tuple[Cluster, PodSetRequest]:
    """A cluster and one request for it; with `partial` its last slice may have fewer pods."""
    cluster = draw(clusters(plain=plain, **options))
    return cluster, draw(requests(cluster.levels, plain=plain, partial=partial))


def roomy(cluster: Cluster) -> Cluster:
    """Nodes large enough that most workloads fit before anything fails."""
    more = {"cpu": 6000, "pods": 6, "gpu": 2}
    nodes = (replace(node, allocatable=dict(Counter(dict(node.allocatable)) + Counter(more))) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes))


@st.composite
def jobs(draw: st.DrawFn, levels: Sequence[str], *, plain: bool = False) -> list[PodSetRequest]:
    """The pod sets of one workload: one of any kind, one with two layers of slices, a leader with workers, or several."""
    kind = draw(st.sampled_from(["one", "one", "layers", "group", "several"]))
    first = draw(requests(levels, plain=plain))
    if kind == "layers" and len(levels) > 1:
        outer = draw(st.integers(0, len(levels) - 2))
        inner = draw(st.integers(outer + 1, len(levels) - 1))
        mode = draw(st.sampled_from([Mode.REQUIRED, Mode.PREFERRED, Mode.UNCONSTRAINED]))
        level = None if mode is Mode.UNCONSTRAINED else levels[draw(st.integers(0, outer))]
        layers = (SliceLayer(levels[outer], 4), SliceLayer(levels[inner], 2))
        return [replace(first, count=draw(st.sampled_from([4, 8])), topology=TopologyRequest(mode, level, layers))]
    if kind == "group" and first.topology is not None:
        shared = replace(first.topology, group="g")
        leader = draw(requests(levels, max_count=1, plain=plain, name="leader"))
        members = [replace(first, topology=shared), replace(leader, count=1, topology=replace(shared, slices=()))]
        return draw(st.permutations(members))
    return [first, draw(requests(levels, plain=plain, name="other"))] if kind == "several" else [first]
