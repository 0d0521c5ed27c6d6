"""Why a pod set got its domain: what is said of the domains is so, and reads well."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, PodSetRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.compactness import CompactSearch
from core.placement.algorithms.profile import COMPACT, MIXED
from core.placement.engine import place
from core.placement.explain.choice import Choice, HeldDomain, explain_choice, show_choices
from core.placement.refusals import MAX_MESSAGE
from tests.builders import BLOCK, RACK, request
from tests.placement.algorithms.test_balanced import build_cluster
from tests.placement.reference import can_fit, get_path
from tests.strategies import Cluster, jobs, scenes


def get_choice(cluster: Cluster, *asked: PodSetRequest, profile=MIXED) -> tuple[Choice, ...]:
    view = cluster.view()
    decision = place(view, asked, profile)
    assert decision.refusal is None
    return explain_choice(view, asked, decision)


def group(*requests: PodSetRequest) -> list[PodSetRequest]:
    return [replace(each, topology=replace(each.topology, group="g")) for each in requests if each.topology is not None]


@pytest.mark.parametrize(
    ("blocks", "asked", "level", "used", "able"),
    [
        pytest.param(
            [[[8], [4], [2]]],
            request(4, Mode.REQUIRED, RACK),
            RACK,
            ["b0/b0-r01"],
            (2, 3),
            id="the tightest",
        ),
        pytest.param([[[8], [4]]], request(5, Mode.REQUIRED, RACK), RACK, ["b0/b0-r00"], (1, 2), id="one"),
        pytest.param([[[8]]], request(5, Mode.REQUIRED, BLOCK), BLOCK, ["b0"], (1, 1), id="nothing to choose"),
        pytest.param(
            [[[4], [3]], [[9, 9, 9]]],
            request(6, Mode.PREFERRED, RACK, slices=[(RACK, 3)]),
            RACK,
            ["b1/b1-r00"],
            (1, 3),
            id="slices",
        ),
        pytest.param(
            [[[4], [3]]],
            request(6, Mode.PREFERRED, RACK),
            BLOCK,
            ["b0"],
            (1, 1),
            id="widened",
        ),
        pytest.param(
            [[[4], [3]], [[1], [1]]],
            request(8, Mode.PREFERRED, BLOCK),
            BLOCK,
            ["b0", "b1"],
            (0, 2),
            id="spread",
        ),
        pytest.param(
            [[[1, 2, 3]]],
            request(3),
            HOSTNAME_LABEL,
            ["n002"],
            (1, 3),
            id="no level asked for",
        ),
        pytest.param(
            [[[1, 2, 3, 1, 9]]],
            request(16),
            HOSTNAME_LABEL,
            ["n000", "n001", "n002", "n003", "n004"],
            (0, 5),
            id="many nodes",
        ),
    ],
)
def test_choice_names_used_domains_beside_those_that_could_hold_all(
    blocks: list[list[list[int]]], asked: PodSetRequest, level: str, used: list[str], able: tuple[int, int]
):
    (choice,) = get_choice(build_cluster(blocks), asked)
    assert (choice.pod_set, choice.level, choice.count) == ("main", level, len(used))
    assert ["/".join(held.domain) for held in choice.used] == used[:3]
    assert (choice.able, choice.domains) == able
    size = 3 if choice.unit == "slice" else 1
    assert choice.wanted == asked.count // size
    widened = asked.topology is not None and asked.topology.level not in (None, level)
    assert (choice.too_small.fit if choice.too_small is not None else None) == (4 if widened else None)


def test_choice_of_the_tightest_names_the_next_best():
    (choice,) = get_choice(build_cluster([[[8], [4], [2]]]), request(4, Mode.REQUIRED, RACK))
    assert choice.used == (HeldDomain(("b0", "b0-r01"), 4),)
    assert choice.next_best == HeldDomain(("b0", "b0-r00"), 8)


def test_leader_and_workers_are_one_choice():
    cluster = build_cluster([[[4], [5], [9]]])
    asked = group(request(1, Mode.REQUIRED, RACK, name="leader"), request(4, Mode.REQUIRED, RACK, name="workers"))
    (choice,) = get_choice(cluster, *asked)
    assert (choice.pod_set, choice.beside, choice.level, choice.able, choice.wanted) == ("workers", "leader", RACK, 2, 4)
    assert choice.used == (HeldDomain(("b0", "b0-r01"), 4),)
    assert choice.next_best == HeldDomain(("b0", "b0-r02"), 8)


def test_explaining_a_leader_before_its_workers_leaves_the_free_amounts_alone():
    """Found by a reader: with a third pod set behind them the amounts of the caller were used up."""
    view = build_cluster([[[4], [5], [9]]]).view()
    asked = (
        *group(request(1, Mode.REQUIRED, RACK, name="leader"), request(4, Mode.REQUIRED, RACK, name="workers")),
        request(2, Mode.REQUIRED, RACK, name="third"),
    )
    free = view.free.copy()
    decision = place(view, asked, MIXED, free=free)
    assert decision.refusal is None
    before = free.copy()
    assert len(explain_choice(view, asked, decision, free=free)) == 2
    assert (free == before).all()


def test_choice_of_a_pod_set_is_explained_beside_earlier_pod_sets():
    cluster = build_cluster([[[4], [5]]])
    told = get_choice(cluster, request(4, Mode.REQUIRED, RACK, name="first"), request(5, Mode.REQUIRED, RACK, name="second"))
    assert [(choice.pod_set, choice.able, choice.domains, choice.used) for choice in told] == [
        ("first", 2, 2, (HeldDomain(("b0", "b0-r00"), 4),)),
        ("second", 1, 2, (HeldDomain(("b0", "b0-r01"), 5),)),
    ]
    assert told[0].next_best == HeldDomain(("b0", "b0-r01"), 5)


def test_choice_after_a_joint_search_is_explained_as_such():
    cluster = build_cluster([[[4], [5]]])
    big_last = [request(4, Mode.UNCONSTRAINED, name="any"), request(4, Mode.REQUIRED, RACK, name="tight")]
    view = cluster.view()
    decision = place(view, big_last, MIXED)
    told = explain_choice(view, big_last, replace(decision, looked_ahead=True))
    assert all(choice.looked_ahead for choice in told)


def test_compact_choice_reports_a_proven_answer():
    (choice,) = get_choice(build_cluster([[[4], [5]]]), request(4), profile=COMPACT)
    assert choice.search is not None
    assert choice.search.optimal


@given(scenes(max_nodes=8), st.sampled_from([MIXED, COMPACT]))
def test_choice_explanation_agrees_with_the_cluster(scene: tuple[Cluster, PodSetRequest], profile):
    cluster, asked = scene
    view = cluster.view()
    decision = place(view, [asked], profile)
    if decision.refusal is not None:
        assert explain_choice(view, [asked], decision) == ()
        return
    (choice,) = explain_choice(view, [asked], decision)
    domain_of = {node.name: get_path(cluster, node, choice.level) for node in cluster.nodes}
    used = {domain_of[name] for name, _ in decision.placements[0].nodes}
    assert choice.count == len(used)
    assert choice.domains == len(set(domain_of.values()))
    if choice.level != HOSTNAME_LABEL and asked.topology is not None and not asked.topology.slices:
        assert choice.able == sum(_holds(cluster, asked, choice.level, domain) for domain in set(domain_of.values()))
        if choice.next_best is not None:
            assert choice.next_best.domain not in used
            assert _holds(cluster, asked, choice.level, choice.next_best.domain) == (choice.next_best.units >= asked.count)


def _holds(cluster: Cluster, asked: PodSetRequest, level: str, domain: tuple[str, ...]) -> bool:
    return _hold(cluster, asked, level, (domain,))


def _hold(cluster: Cluster, asked: PodSetRequest, level: str, domains: Collection[tuple[str, ...]]) -> bool:
    """Whether domains together hold all of it."""
    nodes = {node.name: node for node in cluster.nodes if get_path(cluster, node, level) in domains}
    inside = replace(cluster, nodes=tuple(nodes.values()), used=tuple(usage for usage in cluster.used if usage[0] in nodes))
    assert asked.topology is not None
    return can_fit(inside, replace(asked, topology=replace(asked.topology, mode=Mode.UNCONSTRAINED, level=None)))


@given(scenes(max_nodes=8), st.sampled_from([MIXED, COMPACT]))
def test_no_fewer_domains_could_have_held_it_than_the_excess_says(scene: tuple[Cluster, PodSetRequest], profile):
    cluster, asked = scene
    decision = place(view := cluster.view(), [asked], profile)
    if decision.refusal is not None or asked.topology is None or asked.topology.slices:
        return
    (choice,) = explain_choice(view, [asked], decision)
    domains = sorted({get_path(cluster, node, choice.level) for node in cluster.nodes})
    fewest = next(
        n for n in range(1, len(domains) + 1) if any(_hold(cluster, asked, choice.level, some) for some in combinations(domains, n))
    )
    assert choice.excess is not None
    assert 0 <= choice.count - fewest <= choice.excess < choice.count


def test_choice_excess_counts_domains_beyond_the_necessary_number():
    assert [choice.excess for choice in get_choice(build_cluster([[[4], [4]]]), request(6, Mode.PREFERRED, RACK))] == [0]
    held = Choice("main", RACK, (), 3, 5, 0, 10, "pod", largest=9)
    assert held.excess == 1
    assert replace(held, beside="leader").excess is None
    assert replace(held, largest=0).excess is None
    assert replace(held, largest=2).excess == 0, "what is said of domains before may be less than what they hold together"
    assert replace(held, search=CompactSearch((1, 3, 0), (1, 3, 0))).excess == 0


@given(st.data())
def test_choice_explanation_fits_in_one_message_and_names_each_pod_set(data: st.DataObject):
    cluster, _ = data.draw(scenes(max_nodes=8))
    asked = data.draw(jobs(cluster.levels))
    view = cluster.view()
    decision = place(view, asked, MIXED)
    text = show_choices(explain_choice(view, asked, decision))
    assert len(text) <= MAX_MESSAGE
    for placement in decision.placements:
        assert placement.pod_set in text
