"""The compact profile: the least of its measure, never more than the kep profile's, and as much work as was agreed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.placement.engine import Placement, place
from core.placement.measure import Measure, fragment_order
from core.placement.profile import COMPACT
from tests.placement.reference import _spreads, can_fit, free_amounts, path, room
from tests.strategies import Cluster, clusters, scenes


def domains_by_level(cluster: Cluster, spread: Sequence[int]) -> list[Counter[tuple[str, ...]]]:
    """Pods per domain of every level."""
    found: list[Counter[tuple[str, ...]]] = []
    for level in cluster.levels:
        here: Counter[tuple[str, ...]] = Counter()
        for node, count in zip(cluster.nodes, spread, strict=True):
            if count:
                here[path(cluster, node, level)] += count
        found.append(here)
    return found


def room_by_level(cluster: Cluster, asked: PodSetRequest) -> list[Counter[tuple[str, ...]]]:
    """Pods that every domain holds, from the nodes up; where a finer slice layer is, whole slices alone."""
    assert asked.topology is not None
    free = free_amounts(cluster)
    layers = {layer.level: layer.size for layer in asked.topology.slices[1:]}
    here: Counter[tuple[str, ...]] = Counter()
    for number, node in enumerate(cluster.nodes):
        here[(*path(cluster, node, cluster.levels[-1]), str(number))] = room(node, asked, free[node.name])
    found: list[Counter[tuple[str, ...]]] = []
    for level in range(len(cluster.levels) - 1, -1, -1):
        above: Counter[tuple[str, ...]] = Counter()
        for key, held in here.items():
            above[key[: level + 1]] += held
        size = layers.get(cluster.levels[level], 1)
        here = Counter({key: held // size * size for key, held in above.items()})
        found.insert(0, here)
    return found


def measure_of(cluster: Cluster, asked: PodSetRequest, spread: Sequence[int]) -> Measure:
    """The measure by its definition, node by node."""
    used, rooms = domains_by_level(cluster, spread), room_by_level(cluster, asked)
    left = [sum(rooms[level][key] for key in here) - asked.count for level, here in enumerate(used)]
    return (*map(len, used), *(left[level] for level in fragment_order(len(used))))


def spread_of(cluster: Cluster, placement: Placement) -> list[int]:
    placed = dict(placement.nodes)
    return [placed.get(node.name, 0) for node in cluster.nodes]


def allowed_spreads(cluster: Cluster, asked: PodSetRequest) -> Iterator[tuple[int, ...]]:
    """All ways to spread the pods that keep what is required."""
    assert asked.topology is not None
    free = free_amounts(cluster)
    rooms = [room(node, asked, free[node.name]) for node in cluster.nodes]
    for spread in _spreads(rooms, asked.count):
        used = domains_by_level(cluster, spread)
        if asked.topology.mode is Mode.REQUIRED and len(used[cluster.levels.index(asked.topology.level or "")]) > 1:
            continue
        if all(count % layer.size == 0 for layer in asked.topology.slices for count in used[cluster.levels.index(layer.level)].values()):
            yield spread


@st.composite
def layered(draw: st.DrawFn) -> tuple[Cluster, PodSetRequest]:
    """Two layers of slices."""
    cluster = draw(clusters(max_nodes=7, cpus=4, hostname=True, plain=True))
    while len(cluster.levels) < 2:
        cluster = draw(clusters(max_nodes=7, cpus=4, hostname=True, plain=True))
    outer = draw(st.integers(0, len(cluster.levels) - 2))
    inner = draw(st.integers(outer + 1, len(cluster.levels) - 1))
    layers = (SliceLayer(cluster.levels[outer], 4), SliceLayer(cluster.levels[inner], 2))
    mode = draw(st.sampled_from([Mode.REQUIRED, Mode.PREFERRED, Mode.UNCONSTRAINED]))
    level = None if mode is Mode.UNCONSTRAINED else cluster.levels[draw(st.integers(0, outer))]
    return cluster, PodSetRequest("main", draw(st.sampled_from([4, 8])), {"cpu": 500}, TopologyRequest(mode, level, layers))


@given(st.one_of(scenes(plain=True, max_nodes=8), scenes(max_nodes=7), layered()))
@settings(max_examples=400)
def test_no_spread_of_the_pods_is_more_compact(scene: tuple[Cluster, PodSetRequest]):
    cluster, asked = scene
    decision = place(cluster.view(), [asked], COMPACT)
    assert (decision.refusal is None) == can_fit(cluster, asked)
    if decision.refusal is not None:
        return
    (placement,) = decision.placements
    assert placement.search is not None
    assert placement.search.optimal
    assert placement.search.gap == 0
    assert placement.search.measure == measure_of(cluster, asked, spread_of(cluster, placement))
    assert placement.search.measure == min(measure_of(cluster, asked, spread) for spread in allowed_spreads(cluster, asked))
