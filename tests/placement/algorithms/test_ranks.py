"""Ranks to domains, and what makes a pod set greedy."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import Mode, TopologyRequest
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.placement.algorithms.ranks import RankedPod, assign_pods

INDEX, GROUP = "index", "group"
BY_INDEX = TopologyRequest(Mode.REQUIRED, "rack", pod_index_label=INDEX)
BY_GROUP = replace(BY_INDEX, sub_group_index_label=GROUP, sub_group_count=2)


def build_assignment(*counts: int) -> TopologyAssignment:
    return TopologyAssignment(("rack",), tuple(DomainCount((f"r{i}",), count) for i, count in enumerate(counts)))


def build_pod(name: str, index: object = None, *, at: str | None = None, terminating: bool = False, group: object = None) -> RankedPod:
    labels = {label: str(value) for label, value in ((INDEX, index), (GROUP, group)) if value is not None}
    return RankedPod(name, labels, (at,) if at is not None else None, terminating)


def build_gang(count: int, start: int = 0) -> list[RankedPod]:
    return [build_pod(f"p{i}", i) for i in range(start, start + count)]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.randoms(use_true_random=False), st.integers(0, 3))
def test_a_rank_has_its_domain_whatever_the_order_of_the_pods(counts, random, offset):
    here = build_assignment(*counts)
    pods = build_gang(here.count, offset)
    random.shuffle(pods)
    expected = {f"p{rank + offset}": domain for rank, domain in enumerate(here.expand())}
    result = assign_pods(here, pods, BY_INDEX, offset=offset)
    assert result.by_rank
    assert result.domains == expected
    # Those that come first get theirs without waiting for the others.
    some = pods[: random.randint(0, len(pods))]
    assert assign_pods(here, some, BY_INDEX, offset=offset).domains == {p.name: expected[p.name] for p in some}


def test_ranks_of_billions_of_pods_need_no_list_of_them() -> None:
    """A node may announce as many pods as it likes; those that are there are few."""
    here = build_assignment(2**31, 2**31)
    assert assign_pods(here, [build_pod("first", 0), build_pod("last", 2**32 - 1)], BY_INDEX).domains == {"first": 0, "last": 1}


@given(st.integers(1, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_sub_groups_follow_each_other(groups, size, random):
    here = build_assignment(*[1] * (groups * size))
    request = replace(BY_GROUP, sub_group_count=groups)
    pods = [build_pod(f"{g}-{i}", i, group=g) for g in range(groups) for i in range(size)]
    random.shuffle(pods)
    result = assign_pods(here, pods, request)
    assert result.by_rank
    assert result.domains == {f"{g}-{i}": g * size + i for g in range(groups) for i in range(size)}


@pytest.mark.parametrize(
    ("spoilt", "broken"),
    [
        (build_pod("p1"), "pod p1 has no label index"),
        (build_pod("p1", "x"), "pod p1 has label index=x, which is no index"),
        (build_pod("p1", "-1"), "which is no index"),
        (build_pod("p1", "٣"), "which is no index"),
        (build_pod("p1", 4), "pod p1 has rank 4, outside of the 4 assigned"),
        (build_pod("p1", 0), "pods p0 and p1 both have rank 0"),
        (build_pod("p1", 1, at="elsewhere"), "is in another domain"),
    ],
)
def test_one_bad_rank_makes_the_whole_pod_set_greedy(spoilt: RankedPod, broken: str):
    pods = [build_pod("p0", 0), spoilt, build_pod("p3", 3), build_pod("p2", 2)]
    result = assign_pods(build_assignment(2, 2), pods, BY_INDEX)
    assert not result.by_rank
    assert broken in (result.broken or "")
    # In the order of the list; who runs somewhere fills a place there.
    if spoilt.domain is None:
        assert result.domains == {"p0": 0, "p1": 0, "p3": 1, "p2": 1}
    else:
        assert result.domains == {"p0": 0, "p3": 0, "p2": 1}


@pytest.mark.parametrize("count", [None, 0, 3])
def test_sub_groups_that_do_not_divide_the_pods_make_it_greedy(count):
    pods = [build_pod(f"p{i}", i % 2, group=i // 2) for i in range(4)]
    result = assign_pods(build_assignment(2, 2), pods, replace(BY_GROUP, sub_group_count=count))
    assert not result.by_rank
    assert "equal sub-groups" in (result.broken or "")
    assert result.domains == {"p0": 0, "p1": 0, "p2": 1, "p3": 1}


def test_an_index_outside_of_its_sub_group_makes_it_greedy():
    result = assign_pods(build_assignment(2, 2), [build_pod("p0", 2, group=0), build_pod("p1", 0, group=1)], BY_GROUP)
    assert result.broken is not None
    assert "pod p0 has index 2" in result.broken
    assert result.domains == {"p0": 0, "p1": 0}


def test_without_an_index_label_pods_are_taken_as_they_come_and_nothing_is_broken():
    for request in (None, TopologyRequest(Mode.IMPLIED)):
        result = assign_pods(build_assignment(1, 2), [build_pod("c"), build_pod("a"), build_pod("b")], request)
        assert result.domains == {"c": 0, "a": 1, "b": 1}
        assert (result.by_rank, result.broken) == (False, None)


def test_pods_that_run_where_their_rank_says_stay_and_the_others_join_them():
    pods = [build_pod("p0", 0, at="r0"), build_pod("p1", 1), build_pod("p2", 2, at="r1"), build_pod("p3", 3)]
    result = assign_pods(build_assignment(2, 2), pods, BY_INDEX)
    assert result.by_rank
    assert result.domains == {"p1": 0, "p3": 1}


def test_the_successor_of_a_terminating_pod_may_have_its_rank():
    result = assign_pods(
        build_assignment(1, 1), [build_pod("old", 0, at="r0", terminating=True), build_pod("new", 0), build_pod("p1", 1)], BY_INDEX
    )
    assert result.by_rank
    assert result.domains == {"new": 0, "p1": 1}


def test_without_ranks_a_terminating_pod_still_fills_its_place():
    pods = [build_pod("old", at="r0", terminating=True), build_pod("gone", terminating=True), build_pod("a"), build_pod("b")]
    assert assign_pods(build_assignment(1, 1), pods, None).domains == {"a": 1}


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_a_greedy_pod_set_never_has_more_pods_in_a_domain_than_assigned(counts, data):
    here = build_assignment(*counts)
    places = [None, *(f"r{i}" for i in range(len(counts)))]
    count = data.draw(st.integers(0, here.count))
    pods = [build_pod(f"p{i}", at=data.draw(st.sampled_from(places))) for i in range(count)]
    result = assign_pods(here, pods, None)
    running = Counter(p.domain for p in pods if p.domain is not None)
    added = Counter(here.domains[domain].values for domain in result.domains.values())
    for domain in here.domains:
        assert not added[domain.values] or running[domain.values] + added[domain.values] <= domain.count
    if all(running[domain.values] <= domain.count for domain in here.domains):
        assert len(result.domains) == sum(p.domain is None for p in pods)


def test_a_pod_without_the_index_of_its_sub_group_makes_it_greedy():
    result = assign_pods(build_assignment(2, 2), [build_pod("p0", 0, group=0), build_pod("p1", 1)], BY_GROUP)
    assert not result.by_rank
    assert result.broken is not None
    assert "pod p1" in result.broken
    assert result.domains == {"p0": 0, "p1": 0}


def test_an_index_below_the_offset_makes_it_greedy():
    """Rank -1 is no rank: the pod would get the last domain."""
    result = assign_pods(build_assignment(1, 1), build_gang(2), BY_INDEX, offset=1)
    assert not result.by_rank
    assert result.broken is not None
    assert "pod p0 has rank -1" in result.broken


def test_pods_of_which_none_has_an_index_are_not_placed_by_rank():
    result = assign_pods(build_assignment(1, 1), [build_pod("b"), build_pod("a")], BY_INDEX)
    assert (result.by_rank, result.broken) == (False, None)
    assert result.domains == {"b": 0, "a": 1}


# --- after a node was replaced ------------------------------------------------------------------------


def test_missing_ranks_go_to_the_domain_that_took_the_place_of_theirs():
    """Four nodes of two; the second was lost, and the assignment names its successor last."""
    stay = [build_pod(f"p{rank}", rank, at=at) for rank, at in ((0, "r0"), (1, "r0"), (4, "r1"), (5, "r1"), (6, "r2"), (7, "r2"))]
    result = assign_pods(build_assignment(2, 2, 2, 2), [*stay, build_pod("p3", 3), build_pod("p2", 2)], BY_INDEX)
    assert (result.by_rank, result.broken) == (True, None)
    assert result.domains == {"p2": 3, "p3": 3}
    assert result.ranks == {"p2": 2, "p3": 3}


def test_ranks_that_are_missing_elsewhere_go_back_to_their_neighbours():
    stay = [build_pod(f"p{rank}", rank, at=at) for rank, at in ((1, "r0"), (5, "r1"), (7, "r2"))]
    new = [build_pod(f"p{rank}", rank) for rank in (0, 2, 3, 4, 6)]
    result = assign_pods(build_assignment(2, 2, 2, 2), [*stay, *new], BY_INDEX)
    assert result.domains == {"p0": 0, "p4": 1, "p6": 2, "p2": 3, "p3": 3}
    assert result.broken is None


def test_ranks_that_cannot_be_together_any_more_keep_their_numbers_and_it_is_told():
    result = assign_pods(
        build_assignment(2, 2),
        [build_pod("p0", 0, at="r0"), build_pod("p1", 1, at="r1"), build_pod("p2", 2), build_pod("p3", 3, at="r0")],
        BY_INDEX,
    )
    assert (result.domains, result.ranks) == ({"p2": 1}, {"p2": 2})
    assert result.broken is not None
    assert "ranks 0 and 3" in result.broken


@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.randoms(use_true_random=False), st.data())
def test_around_pods_that_stay_every_place_is_filled_once_and_every_rank_keeps_its_number(counts, random, data):
    here = build_assignment(*counts)
    places = [domain for domain, count in enumerate(counts) for _ in range(count)]
    shuffled = list(places)
    random.shuffle(shuffled)
    stays = data.draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places)))
    pods = [build_pod(f"p{rank}", rank, at=f"r{shuffled[rank]}" if stay else None) for rank, stay in enumerate(stays)]
    result = assign_pods(here, pods, BY_INDEX)
    assert result.by_rank
    assert result.ranks == {f"p{rank}": rank for rank, stay in enumerate(stays) if not stay}
    filled = [*result.domains.values(), *(shuffled[rank] for rank, stay in enumerate(stays) if stay)]
    assert sorted(filled) == places


def test_pods_without_ranks_prefer_places_without_ended_pods():
    """Those of pods that have succeeded may be given up before it is known how many."""
    here = build_assignment(1, 2, 1)
    assert assign_pods(here, [build_pod("new")], None, ended={("r0",): 1}).domains == {"new": 1}
    assert assign_pods(
        here, [build_pod("new"), build_pod("a", at="r1"), build_pod("b", at="r2")], None, ended={("r1",): 1, ("r0",): 1}
    ).domains == {"new": 0}
    assert assign_pods(here, [build_pod("new")], None, ended={("r0",): 1}, surplus=1).domains == {"new": 1}


def test_pod_with_its_place_by_rank_given_up_takes_one_that_is_kept():
    """As of an index that failed and is made again last, after a pod beyond the ranks has ended at its place."""
    here = build_assignment(2, 2)
    result = assign_pods(here, [build_pod("a-1", 1)], BY_INDEX, ended={("r0",): 2, ("r1",): 2}, surplus=3)
    assert (result.domains, result.by_rank) == ({"a-1": 1}, False)
    assert result.broken is not None
    assert "rank 1" in result.broken
    assert "pod a-1" in result.broken


def test_pod_with_its_place_by_rank_kept_takes_it_while_others_are_given_up():
    here, ended = build_assignment(2, 2), Counter[tuple[str, ...]]({("r0",): 1, ("r1",): 2})
    result = assign_pods(here, [build_pod("a-1", 1)], BY_INDEX, ended=ended, surplus=3)
    assert (result.domains, result.by_rank) == ({"a-1": 0}, True)
    follows = [build_pod("a-1", 1), RankedPod("old", {INDEX: "1"}, ("r0",), terminating=True)]
    assert assign_pods(here, follows, BY_INDEX, ended=ended, surplus=3).domains == {"a-1": 0}


def nearest_first(assigned: TopologyAssignment, pods: list[RankedPod]) -> dict[str, int]:
    """Missing ranks around pods that stay, each looked for among all: the rule word for word."""
    values = [domain.values for domain in assigned.domains]
    rank_of = {pod.name: int(pod.labels[INDEX]) for pod in pods}
    held = {at: [rank_of[pod.name] for pod in pods if pod.domain == values[at]] for at in range(len(values))}
    room = {at: domain.count - len(held[at]) for at, domain in enumerate(assigned.domains)}
    missing, places = sorted(rank_of[pod.name] for pod in pods if pod.domain is None), dict[int, int]()
    for at in sorted((at for at in held if held[at]), key=lambda at: min(held[at])):
        for _ in range(min(room[at], len(missing))):
            nearest = min(missing, key=lambda rank: (min(abs(rank - own) for own in held[at]), rank))
            missing.remove(nearest)
            held[at].append(nearest)
            places[nearest] = at
    others = [at for at in held if not held[at] for _ in range(room[at])]
    return {pod.name: (places | dict(zip(missing, others, strict=False)))[rank_of[pod.name]] for pod in pods if pod.domain is None}


def build_scattered_gang(counts: list[int], random: Random, staying: int) -> tuple[TopologyAssignment, list[RankedPod]]:
    """A gang some of whose pods stay, each in a domain with room that need not be that of its rank."""
    assigned = build_assignment(*counts)
    places = [at for at, count in enumerate(counts) for _ in range(count)]
    random.shuffle(places)
    pods = [build_pod(f"p{rank}", rank, at=assigned.domains[at].values[0]) for rank, at in enumerate(places)]
    for waiting in random.sample(range(len(pods)), len(pods) - min(staying, len(pods))):
        pods[waiting] = replace(pods[waiting], domain=None)
    return assigned, pods


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.randoms(use_true_random=False), st.integers(1, 12))
def test_missing_ranks_go_to_the_domain_of_the_nearest_that_stays(counts, random, staying):
    assigned, pods = build_scattered_gang(counts, random, staying)
    found = assign_pods(assigned, pods, BY_INDEX)
    order = list(assigned.expand())
    if any(pod.domain not in (None, assigned.domains[order[rank]].values) for rank, pod in enumerate(pods)):
        assert found.domains == nearest_first(assigned, pods)


def test_missing_ranks_are_found_in_few_steps_for_each():
    assigned, pods = build_scattered_gang([100, 100], Random(1), 100)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = assign_pods(assigned, pods, BY_INDEX)
    finally:
        sys.setprofile(None)
    assert len(found.domains) == 100
    assert calls < 60 * len(pods)
