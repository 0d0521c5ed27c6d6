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
from core.placement.explain.choice import Choice, explain_choice, show_choices
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
    ("blocks", "asked", "expected"),
    [
        pytest.param(
            [[[8], [4], [2]]],
            request(4, Mode.REQUIRED, RACK),
            "cloud/rack b0/b0-r01 with room for 4, the tightest of 2 that hold all 4 pods; next b0/b0-r00 with room for 8",
            id="the tightest",
        ),
        pytest.param(
            [[[8], [4]]], request(5, Mode.REQUIRED, RACK), "cloud/rack b0/b0-r00, the only one of 2 that holds all 5 pods", id="one"
        ),
        pytest.param([[[8]]], request(5, Mode.REQUIRED, BLOCK), "cloud/block b0, the only one", id="nothing to choose"),
        pytest.param(
            [[[4], [3]], [[9, 9, 9]]],
            request(6, Mode.PREFERRED, RACK, slices=[(RACK, 3)]),
            "cloud/rack b1/b1-r00, the only one of 3 that holds all 2 slices",
            id="slices",
        ),
        pytest.param(
            [[[4], [3]]],
            request(6, Mode.PREFERRED, RACK),
            "no cloud/rack holds all 6 pods, the best holds 4; cloud/block b0, the only one",
            id="widened",
        ),
        pytest.param(
            [[[4], [3]], [[1], [1]]],
            request(8, Mode.PREFERRED, BLOCK),
            "2 of 2 cloud/blocks (b0, b1); none holds all 8 pods alone",
            id="spread",
        ),
        pytest.param(
            [[[1, 2, 3]]],
            request(3),
            f"{HOSTNAME_LABEL} n002, the only one of 3 that holds all 3 pods",
            id="no level asked for",
        ),
        pytest.param(
            [[[1, 2, 3, 1, 9]]],
            request(16),
            f"5 of 5 {HOSTNAME_LABEL}s (n000, n001, n002 and 2 more); none holds all 16 pods alone",
            id="many nodes",
        ),
    ],
)
def test_sentences(blocks: list[list[list[int]]], asked: PodSetRequest, expected: str):
    assert show_choices(get_choice(build_cluster(blocks), asked)) == f"pod set main: {expected}"


def test_leader_and_workers_are_one_choice():
    cluster = build_cluster([[[4], [5], [9]]])
    asked = group(request(1, Mode.REQUIRED, RACK, name="leader"), request(4, Mode.REQUIRED, RACK, name="workers"))
    expected = "cloud/rack b0/b0-r01 with room for 4, the tightest of 2 that hold all 4 pods; next b0/b0-r02 with room for 8"
    assert show_choices(get_choice(cluster, *asked)) == f"pod set workers and leader: {expected}"


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
    assert [str(choice) for choice in told] == [
        "pod set first: cloud/rack b0/b0-r00 with room for 4, the tightest of 2 that hold all 4 pods; next b0/b0-r01 with room for 5",
        "pod set second: cloud/rack b0/b0-r01, the only one of 2 that holds all 5 pods",
    ]


def test_choice_after_a_joint_search_is_explained_as_such():
    cluster = build_cluster([[[4], [5]]])
    big_last = [request(4, Mode.UNCONSTRAINED, name="any"), request(4, Mode.REQUIRED, RACK, name="tight")]
    view = cluster.view()
    decision = place(view, big_last, MIXED)
    told = explain_choice(view, big_last, replace(decision, looked_ahead=True))
    assert all("one after the other they would not fit" in str(choice) for choice in told)


def test_compact_choice_reports_a_proven_answer():
    assert str(*get_choice(build_cluster([[[4], [5]]]), request(4), profile=COMPACT)).endswith("; no answer is more compact")


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
