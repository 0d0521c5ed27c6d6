"""The compact profile: the least of its measure, never more than the kep profile's, and as much work as was agreed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.model.step_budget import PLACEMENT_STEPS, StepBudget
from core.names import HOSTNAME_LABEL
from core.placement.algorithms import compact
from core.placement.algorithms.compactness import CompactSearch, Measure
from core.placement.algorithms.cover import OutOfSteps, SizeCosts, Steps, cover, cover_with_fewest, trace
from core.placement.algorithms.decision import PodSetPlacement
from core.placement.algorithms.profile import COMPACT, MIXED
from core.placement.engine import place
from tests.bench.parts.shapes import build_view, per_gpu
from tests.builders import BLOCK, RACK, request
from tests.placement.algorithms.test_balanced import build_cluster, list_counts
from tests.placement.algorithms.test_properties import check
from tests.placement.reference import _generate_spreads, can_fit, compute_free_amounts, compute_room, get_path
from tests.strategies import Cluster, clusters, jobs, scale_examples, scenes


def count_domains_by_level(cluster: Cluster, spread: Sequence[int]) -> list[Counter[tuple[str, ...]]]:
    """Pods per domain of every level."""
    found: list[Counter[tuple[str, ...]]] = []
    for level in cluster.levels:
        here: Counter[tuple[str, ...]] = Counter()
        for node, count in zip(cluster.nodes, spread, strict=True):
            if count:
                here[get_path(cluster, node, level)] += count
        found.append(here)
    return found


def count_room_by_level(cluster: Cluster, asked: PodSetRequest) -> list[Counter[tuple[str, ...]]]:
    """Pods that every domain holds, from the nodes up; where a finer slice layer is, whole slices alone."""
    assert asked.topology is not None
    free = compute_free_amounts(cluster)
    layers = {layer.level: layer.size for layer in asked.topology.slices[1:]}
    here: Counter[tuple[str, ...]] = Counter()
    for number, node in enumerate(cluster.nodes):
        here[(*get_path(cluster, node, cluster.levels[-1]), str(number))] = compute_room(node, asked, free[node.name])
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
    used, rooms = count_domains_by_level(cluster, spread), count_room_by_level(cluster, asked)
    return (*map(len, used), sum(rooms[-1][key] for key in used[-1]) - asked.count)


def spread_of(cluster: Cluster, placement: PodSetPlacement) -> list[int]:
    placed = dict(placement.nodes)
    return [placed.get(node.name, 0) for node in cluster.nodes]


def generate_allowed_spreads(cluster: Cluster, asked: PodSetRequest) -> Iterator[tuple[int, ...]]:
    """All ways to spread the pods that keep what is required."""
    assert asked.topology is not None
    free = compute_free_amounts(cluster)
    rooms = [compute_room(node, asked, free[node.name]) for node in cluster.nodes]
    for spread in _generate_spreads(rooms, asked.count):
        used = count_domains_by_level(cluster, spread)
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


def compute_least(cluster: Cluster, asked: PodSetRequest) -> Measure:
    return min(measure_of(cluster, asked, spread) for spread in generate_allowed_spreads(cluster, asked))


SCENES = st.one_of(scenes(plain=True, max_nodes=8), scenes(max_nodes=7), layered())


# --- examples: one CPU a pod, blocks of racks of nodes --------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "asked", "kep", "expected"),
    [
        pytest.param([[[19], [10], [10]]], request(20, Mode.REQUIRED, BLOCK), [19, 1, 0], [0, 10, 10], id="no rack is left with 9 of 10"),
        pytest.param(
            [[[2]] * 10, [[9, 9, 9]]],
            request(20, Mode.PREFERRED, BLOCK),
            [2] * 10 + [0, 0, 0],
            [0] * 10 + [9, 9, 2],
            id="one rack rather than ten in the tightest block",
        ),
        pytest.param([[[3, 3, 3], [4, 4, 4]]], request(8, Mode.REQUIRED, RACK), [3, 3, 2, 0, 0, 0], [0, 0, 0, 4, 4, 0], id="fewer nodes"),
        pytest.param([[[3, 5], [4, 2]]], request(7), [3, 0, 2, 2], [2, 5, 0, 0], id="unconstrained pods keep together, too"),
        pytest.param([[[7, 4, 5, 5]]], request(10, Mode.REQUIRED, RACK), [7, 3, 0, 0], [0, 0, 5, 5], id="nothing left over"),
        pytest.param([[[4], [3, 3]]], request(3), [0, 3, 0], [0, 3, 0], id="a broken node before a whole one"),
        pytest.param(
            [[[4, 4, 4], [7, 5], [3, 3]]],
            request(12, Mode.PREFERRED, BLOCK, slices=[(RACK, 6)]),
            [4, 4, 4, 0, 0, 0, 0],
            [0, 0, 0, 7, 5, 0, 0],
            id="slices stay whole in the rack of fewest nodes",
        ),
    ],
)
def test_examples(blocks: list[list[list[int]]], asked: PodSetRequest, kep: list[int], expected: list[int]):
    cluster = build_cluster(blocks)
    assert list_counts(cluster, place(cluster.view(), [asked], MIXED)) == kep
    assert list_counts(cluster, place(cluster.view(), [asked], COMPACT)) == expected


@given(SCENES)
@settings(max_examples=scale_examples(6))
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
    assert placement.search.measure == compute_least(cluster, asked)


@given(SCENES, st.integers(0, 60_000))
@settings(max_examples=scale_examples(3))
def test_stopped_early_an_answer_says_how_far_off_it_may_be(scene: tuple[Cluster, PodSetRequest], limit: int):
    cluster, asked = scene
    kep = place(cluster.view(), [asked], MIXED)
    with patch.object(compact, "STEP_LIMIT", limit):
        decision = place(cluster.view(), [asked], COMPACT)
    check(cluster, [asked], decision)
    if decision.refusal is not None:
        assert decision == kep
        return
    search = decision.placements[0].search
    assert search is not None
    assert search.steps <= limit
    assert (
        search.bound <= compute_least(cluster, asked) <= search.measure <= measure_of(cluster, asked, spread_of(cluster, kep.placements[0]))
    )
    assert search.optimal == (search.gap == 0)


@given(clusters(max_nodes=8), st.data())
def test_whatever_the_workload_its_pod_sets_keep_all_promises(cluster: Cluster, data: st.DataObject):
    wanted = data.draw(jobs(cluster.levels))
    decision, kep = (place(cluster.view(), wanted, profile) for profile in (COMPACT, MIXED))
    assert (decision.refusal is None) == (kep.refusal is None)
    if any(asked.topology is not None and asked.topology.group for asked in wanted):
        assert decision == kep
    else:
        check(cluster, wanted, decision)


def test_preferred_affinity_where_it_counts_outranks_being_compact():
    cluster = build_cluster([[[7, 4, 5, 5]]])
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": ["n000"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    asked = request(10, affinity=affinity)
    respecting = replace(COMPACT, respects_preferred_affinity=True)
    assert list_counts(cluster, place(cluster.view(), [asked], COMPACT)) == [0, 0, 5, 5]
    assert list_counts(cluster, place(cluster.view(), [asked], respecting))[0] == 7


# --- large clusters: bounded, and honest about it -------------------------------------------------------


@pytest.mark.parametrize("count", [20, 300, 1000, 3000, 20_000])
@pytest.mark.parametrize("mode", [Mode.UNCONSTRAINED, Mode.PREFERRED])
def test_on_2560_nodes_the_work_is_bounded_and_no_answer_less_compact_than_keps(count: int, mode: Mode):
    view = build_view(2560)
    asked = PodSetRequest("main", count, per_gpu(1), TopologyRequest(mode, None if mode is Mode.UNCONSTRAINED else "rack"))
    kep, decision = (place(view, [asked], profile) for profile in (MIXED, COMPACT))
    assert (decision.refusal is None) == (kep.refusal is None)
    if decision.refusal is not None:
        return
    (old,), (new,) = kep.placements, decision.placements
    assert new.assignment.count == count
    assert new.search is not None
    assert new.search.steps <= compact.STEP_LIMIT
    assert new.search.bound <= new.search.measure
    assert _used(view, new) <= _used(view, old)
    assert new.search.measure[:3] == _used(view, new)
    assert new.search.optimal or count > 300


def test_search_for_the_most_compact_answer_is_charged_to_the_decision():
    view, asked = build_view(2560), PodSetRequest("main", 1000, per_gpu(1), TopologyRequest(Mode.UNCONSTRAINED))
    spent = []
    for profile in (MIXED, COMPACT):
        budget = StepBudget()
        decision = place(view.copy_with_budget(budget), [asked], profile)
        spent.append(PLACEMENT_STEPS - budget.left)
    (placement,) = decision.placements
    assert placement.search is not None
    assert spent[1] - spent[0] == placement.search.steps // compact.CELLS_A_STEP > 0
    [placement] = place(view.copy_with_budget(StepBudget(left=0)), [asked], COMPACT).placements
    assert placement.search is None, "nothing was searched"


def _used(view, placement: PodSetPlacement) -> tuple[int, ...]:
    """Blocks, racks and nodes."""
    nodes = [view.tree.index[name] for name, _ in placement.nodes]
    return tuple(len({view.tree.paths[node][: level + 1] for node in nodes}) for level in range(3))


def test_a_costlier_measure_than_numbers_can_hold_keeps_the_counts_exact():
    cluster = build_cluster([[[5, 3], [4, 4], [6, 2]]])
    asked = request(14, Mode.REQUIRED, BLOCK)
    with patch.object(compact, "_MOST_COST", 60):
        search = place(cluster.view(), [asked], COMPACT).placements[0].search
    assert search is not None
    assert search.measure[:3] == compute_least(cluster, asked)[:3]
    assert search.bound <= compute_least(cluster, asked)


def test_where_not_even_the_counts_are_numbers_nothing_is_searched():
    """Three racks of which the two tightest hold it: standard is not the most compact, and stays."""
    cluster, asked = build_cluster([[[5, 3], [4, 4], [6, 2]]]), request(14, Mode.REQUIRED, BLOCK)
    steps = []
    for most in (compact._MOST_COST, 0):
        with patch.object(compact, "_MOST_COST", most):
            search = place(cluster.view(), [asked], COMPACT).placements[0].search
        assert search is not None
        assert search.bound <= compute_least(cluster, asked) <= search.measure
        steps.append(search.steps)
    assert steps[0] > 0 == steps[1]


# --- coverings ------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3)), min_size=1, max_size=9), st.data())
def test_as_few_as_hold_it_and_of_those_the_fewest_pods(drawn: list[tuple[int, int]], data: st.DataObject):
    caps = np.array([cap for cap, _ in drawn])
    pods = np.array([4 * cap + more for cap, more in drawn])
    wanted = data.draw(st.integers(1, int(caps.sum())))
    chosen = cover_with_fewest(caps, pods, wanted, Steps(10**9))
    every = [[i for i in range(len(drawn)) if mask >> i & 1] for mask in range(1 << len(drawn))]
    least = min((len(some), int(pods[some].sum())) for some in every if int(caps[some].sum()) >= wanted)
    assert (len(chosen), int(pods[chosen].sum())) == least
    assert int(caps[chosen].sum()) >= wanted


def test_a_covering_takes_of_equal_ones_the_first():
    offers = [
        SizeCosts(np.array([2, 3]), np.array([5, 6])),
        SizeCosts(np.array([1, 2, 3]), np.array([2, 5, 6])),
        SizeCosts(np.array([3]), np.array([6])),
    ]
    tables = cover(offers, 3, Steps(10**6))
    assert tables[-1].tolist() == [0, 2, 5, 6]
    assert trace(offers, tables, 3) == [(0, 3)]


def test_work_that_is_too_much_is_not_begun():
    steps = Steps(10_000)
    with pytest.raises(OutOfSteps):
        steps.spend(10_001)
    assert steps.spent == 0


# --- choosing it ----------------------------------------------------------------------------------------


def test_compact_search_gap_is_the_first_entry_that_is_not_proven():
    assert CompactSearch((1, 3, 9, 0), (1, 2, 9, 0)).gap == 1
    assert CompactSearch((1, 2), (1, 2)).optimal
