"""Rules of topology spreading in the engine: the domains that are left by an independent recount, with every profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest, TopologyRequest
from core.model.topology_spreading import CountedRule, SpreadingRule
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import ALWAYS_LEAST_FREE, ALWAYS_MOST_FREE, COMPACT, MIXED, Profile
from core.placement.engine import OneDomain, PodSetPlacement, place
from core.placement.refusals import RefusalKind
from core.placement.topology.free_capacity import FreeCapacity
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_view, request

PROFILES = (MIXED, ALWAYS_LEAST_FREE, ALWAYS_MOST_FREE, COMPACT)


class Asked(NamedTuple):
    """A rule, and the racks in which each Workload that it counts is; a cluster is blocks of racks of nodes with so many CPUs."""

    key: str
    share: int
    required: bool


Cluster = list[list[list[int]]]  # CPUs of nodes, by rack, by block
Held = list[frozenset[tuple[int, int]]]  # racks of each Workload, as block and rack


def build_cluster(cluster: Cluster) -> FreeCapacity:
    nodes = [
        Node(
            name := f"b{b}-r{r}-n{n}",
            {BLOCK: f"b{b}", RACK: f"b{b}-r{r}", HOSTNAME_LABEL: name},
            {"cpu": cpu * 1000, "pods": 100},
        )
        for b, racks in enumerate(cluster)
        for r, cpus in enumerate(racks)
        for n, cpu in enumerate(cpus)
    ]
    return build_view(THREE_LEVELS, nodes)


def count_rules(cluster: Cluster, held: Held, asked: Sequence[Asked]) -> tuple[CountedRule, ...]:
    """What the index of the state counts, by plain loops."""
    racks = [(b, r) for b, block in enumerate(cluster) for r in range(len(block))]
    in_block = [sum(any(at[0] == b for at in each) for each in held) for b in range(len(cluster))]
    in_rack = [sum(rack in each for each in held) for rack in racks]
    found = []
    for key, share, required in asked:
        rule = SpreadingRule(key, share, required)
        if key == BLOCK:
            found.append(CountedRule(rule, 0, np.array(in_block), np.full(len(cluster), len(held))))
        else:
            found.append(CountedRule(rule, 1, np.array(in_rack), np.array([in_block[b] for b, _ in racks])))
    return tuple(sorted(found, key=lambda each: each.level))


def rank_racks(cluster: Cluster, held: Held, asked: Sequence[Asked]) -> dict[tuple[int, int], tuple[tuple[int, int], ...] | None]:
    """For each rack its place in the order of preferred rules, lower first, by fractions; None where a required rule closes it."""
    ranks: dict[tuple[int, int], tuple[tuple[int, int], ...] | None] = {}
    for b, block in enumerate(cluster):
        for r in range(len(block)):
            own_block = [each for each in held if any(at[0] == b for at in each)]
            own_rack = [each for each in held if (b, r) in each]
            tiers: list[tuple[int, int]] = []
            is_closed = False
            for key, share, required in sorted(asked, key=lambda rule: rule.key != BLOCK):
                count, whole = (len(own_block), len(held)) if key == BLOCK else (len(own_rack), len(own_block))
                is_over = count > Fraction(share, 1000) * whole
                is_closed |= required and is_over
                if not required:
                    tiers.append((2, count) if is_over else (1, 0) if not count else (0, 0))
            ranks[b, r] = None if is_closed else tuple(tiers)
    return ranks


def find_rack(placement: PodSetPlacement) -> tuple[int, int]:
    """The one rack of all pods."""
    [found] = {tuple(part[1:] for part in domain.values[-1].split("-")[:2]) for domain in placement.assignment.domains}
    return int(found[0]), int(found[1])


clusters = st.lists(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=3), min_size=1, max_size=3)
shares = st.sampled_from([1, 250, 333, 334, 500, 501, 750, 999])
rules = st.lists(
    st.builds(Asked, st.sampled_from([BLOCK, RACK]), shares, st.booleans()), min_size=1, max_size=2, unique_by=lambda each: each.key
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Cluster, Held, list[Asked], int]:
    cluster = draw(clusters)
    racks = [(b, r) for b, block in enumerate(cluster) for r in range(len(block))]
    held = draw(st.lists(st.frozensets(st.sampled_from(racks), min_size=1, max_size=3), max_size=8))
    return cluster, held, draw(rules), draw(st.integers(1, 8))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@given(question=questions())
def test_rack_is_open_with_room_of_the_best_rank_or_there_is_none(profile: Profile, question: tuple[Cluster, Held, list[Asked], int]):
    cluster, held, asked, count = question
    view, counted = build_cluster(cluster), count_rules(cluster, held, asked)
    decision = place(view, [request(count, Mode.REQUIRED, RACK, spreading=counted)], profile)
    ranks = rank_racks(cluster, held, asked)
    able = {(b, r) for b, block in enumerate(cluster) for r, cpus in enumerate(block) if sum(cpus) >= count}
    open_and_able = {rack: rank for rack in able if (rank := ranks[rack]) is not None}
    if not open_and_able:
        assert decision.refusal is not None
        is_any_open = any(rank is not None for rank in ranks.values())
        assert (decision.refusal.kind is RefusalKind.SPREADING) is not is_any_open
        assert any("opens with" in note for note in decision.refusal.explanation.notes) == bool(able)  # type: ignore[union-attr]
        return
    assert decision.refusal is None
    found = find_rack(decision.placements[0])
    best = [rack for rack, rank in open_and_able.items() if rank == min(open_and_able.values())]
    assert found in best
    # Among these the profile chooses as if there were no others.
    alone = place(
        build_cluster([[cpus if (b, r) in best else [0] * len(cpus) for r, cpus in enumerate(block)] for b, block in enumerate(cluster)]),
        [request(count, Mode.REQUIRED, RACK)],
        profile,
    )
    assert decision.placements[0].assignment == alone.placements[0].assignment


@given(question=questions())
def test_group_is_in_an_open_rack_of_the_best_rank_that_has_room_for_all(question: tuple[Cluster, Held, list[Asked], int]):
    cluster, held, asked, count = question
    view, counted = build_cluster(cluster), count_rules(cluster, held, asked)
    topology = TopologyRequest(Mode.REQUIRED, RACK, group="g")
    unit = [PodSetRequest(name, pods, {"cpu": 1000}, topology, spreading=counted) for name, pods in (("leader", 1), ("worker", count))]
    decision = place(view, unit, MIXED)
    ranks = rank_racks(cluster, held, asked)
    able = {
        rack: rank
        for b, block in enumerate(cluster)
        for r, cpus in enumerate(block)
        if sum(cpus) >= count + 1 and (rank := ranks[rack := (b, r)]) is not None
    }
    assert (decision.refusal is None) == bool(able)
    if decision.refusal is None:
        found = {find_rack(placement) for placement in decision.placements}
        assert found <= {rack for rack, rank in able.items() if rank == min(able.values())}
        assert len(found) == 1


@pytest.mark.parametrize("together", [True, False])
@given(question=questions(), second=st.integers(1, 4))
def test_pod_sets_placed_with_others_are_never_in_a_closed_rack(
    together: bool, question: tuple[Cluster, Held, list[Asked], int], second: int
):
    cluster, held, asked, count = question
    view, counted = build_cluster(cluster), count_rules(cluster, held, asked)
    requests = [
        request(count, Mode.REQUIRED, RACK, name="one", spreading=counted),
        request(second, Mode.REQUIRED, RACK, name="two", cpu=2000, spreading=counted),
        request(1, name="free"),
    ]
    decision = place(view, requests, MIXED, together=OneDomain(BLOCK, True, "test") if together else None)
    ranks = rank_racks(cluster, held, asked)
    for placement in decision.placements if decision.refusal is None else ():
        assert placement.pod_set == "free" or ranks[find_rack(placement)] is not None


@given(question=questions(), spares=st.integers(1, 2))
def test_pod_set_with_spares_is_never_in_a_closed_rack(question: tuple[Cluster, Held, list[Asked], int], spares: int):
    cluster, held, asked, count = question
    counted = count_rules(cluster, held, asked)
    decision = place(build_cluster(cluster), [request(count, Mode.REQUIRED, RACK, spreading=counted, spares=spares)], MIXED)
    if decision.refusal is None:
        assert rank_racks(cluster, held, asked)[find_rack(decision.placements[0])] is not None


@given(question=questions())
def test_auto_level_with_a_rule_by_racks_is_the_rack(question: tuple[Cluster, Held, list[Asked], int]):
    cluster, held, _, count = question
    counted = count_rules(cluster, held, [Asked(RACK, 500, True)])
    view = build_cluster(cluster)
    by_name = place(view, [request(count, Mode.REQUIRED, RACK, spreading=counted)], MIXED)
    by_auto = place(view, [request(count, Mode.REQUIRED, "auto", spreading=counted)], MIXED)
    assert (by_name.refusal is None) == (by_auto.refusal is None)
    if by_name.refusal is None:
        assert by_name.placements[0].assignment == by_auto.placements[0].assignment


def test_slices_with_a_partial_one_are_placed_in_an_open_rack():
    cluster, held = [[[4, 4], [4, 4]]], [frozenset({(0, 0)})]
    counted = count_rules(cluster, held, [Asked(RACK, 500, True)])
    asked = request(7, Mode.REQUIRED, RACK, slices=[(HOSTNAME_LABEL, 3)], spreading=counted)
    assert asked.topology is not None
    partial = replace(asked, topology=replace(asked.topology, partial=True))
    decision = place(build_cluster(cluster), [partial], MIXED)
    assert decision.refusal is None
    assert find_rack(decision.placements[0]) == (0, 1)


def test_suggestions_of_a_refusal_name_open_nodes_at_the_required_level_only():
    cluster, held = [[[4], [2]], [[3]]], [frozenset({(0, 0)})]
    counted = count_rules(cluster, held, [Asked(RACK, 500, True)])
    decision = place(build_cluster(cluster), [request(4, Mode.REQUIRED, RACK, spreading=counted)], MIXED)
    assert decision.refusal is not None
    explanation = decision.refusal.explanation
    assert decision.refusal.kind is RefusalKind.NOT_FIT
    assert explanation is not None
    assert [change.pods for change in explanation.changes] == [3]
    assert [(exclusion.reason, exclusion.count) for exclusion in explanation.exclusions] == [("topology spreading", 1)]
    assert "b0/b0-r0 has 1 of 1 Workload" in "".join(explanation.notes)
    assert "2 Workloads in b0 or 1 fewer in b0/b0-r0" in "".join(explanation.notes)
