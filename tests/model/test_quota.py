"""Quota in a tree: what is lent, borrowed and left, against a recount from the definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.quota_tree import NO_SHARE, Quota, QuotaOwner, QuotaTree, Share

CPU, GPU, OTHER = ("f", "cpu"), ("f", "gpu"), ("g", "cpu")


def build_owner(name: str, nominal: int | None = None, parent: str | None = None, **limits: int) -> QuotaOwner:
    return QuotaOwner(name, {} if nominal is None else {CPU: Quota(nominal, limits.get("borrow"), limits.get("lend"))}, parent)


def test_alone_a_queue_has_its_nominal_quota():
    tree = QuotaTree([build_owner("q", 10)])
    assert (tree.compute_available("q", CPU), tree.compute_potential("q", CPU), tree.get_nominal("q", CPU)) == (10, 10, 10)
    tree.add("q", {CPU: 7})
    assert (tree.compute_available("q", CPU), tree.compute_potential("q", CPU), tree.compute_borrowed("q", CPU)) == (3, 10, 0)
    tree.add("q", {CPU: 5})
    assert (tree.compute_available("q", CPU), tree.compute_borrowed("q", CPU)) == (-2, 2)
    assert tree.compute_available("q", GPU) == 0
    assert tree.find_cohort("q") is None
    assert tree.list_relatives("q") == []
    assert tree.compute_shares("q") == []
    assert tree.compute_shares("gone") == [], "former defect: a queue that was deleted raised KeyError"


@pytest.mark.parametrize(
    ("borrow", "lend", "used_by_b", "available", "potential"),
    [
        (None, None, 0, 15, 15),
        (None, None, 5, 10, 15),
        (None, None, 8, 7, 15),
        (3, None, 0, 13, 13),
        (3, None, 8, 7, 13),
        (0, None, 0, 10, 10),
        (None, 2, 0, 12, 12),  # b keeps 3 of its 5
        (None, 2, 3, 12, 12),
        (None, 2, 4, 11, 12),
        (None, 0, 0, 10, 10),
    ],
)
def test_two_queues_of_a_cohort(borrow: int | None, lend: int | None, used_by_b: int, available: int, potential: int):
    a = build_owner("a", 10, "c", **({} if borrow is None else {"borrow": borrow}))
    tree = QuotaTree([a, build_owner("b", 5, "c", **({} if lend is None else {"lend": lend}))])
    tree.add("b", {CPU: used_by_b})
    assert (tree.compute_available("a", CPU), tree.compute_potential("a", CPU)) == (available, potential)
    assert tree.list_relatives("a") == ["b"]
    assert tree.find_cohort("a") == "c"


def test_a_cohort_has_quota_of_its_own_and_a_parent():
    cohorts = [build_owner("left", 2, "root", borrow=4), build_owner("right", 3, "root", lend=1), build_owner("root", 1)]
    tree = QuotaTree([build_owner("a", 10, "left"), build_owner("b", 5, "right")], cohorts)
    assert tree.list_ancestors("a") == ["left", "root"]
    # right lends 1 of its 8, root has 1: a gets both, since left may borrow 4.
    assert tree.compute_potential("a", CPU) == 10 + 2 + 1 + 1
    assert tree.compute_potential("b", CPU) == 5 + 3 + 12 + 1
    tree.add("b", {CPU: 20})
    assert tree.compute_cohort_usage("right") == {CPU: 20}
    assert tree.compute_cohort_usage("root") == {CPU: 13}
    assert tree.compute_available("a", CPU) == 1
    assert tree.is_using_others("a", "b", CPU)
    assert not tree.is_using_others("b", "a", CPU)


def test_queue_that_borrows_within_its_own_cohort_uses_no_quota_of_others():
    cohorts = [build_owner("left", None, "root"), build_owner("right", None, "root")]
    tree = QuotaTree([build_owner("a", 4, "left"), build_owner("b", 4, "right"), build_owner("c", 4, "right")], cohorts)
    tree.add("b", {CPU: 8})
    assert not tree.is_using_others("a", "b", CPU), "of c's, which is its own cohort's"
    assert tree.is_using_others("c", "b", CPU)
    tree.add("b", {CPU: 1})
    assert tree.is_using_others("a", "b", CPU)
    assert not QuotaTree([build_owner("a", 4), build_owner("b", 4)]).is_using_others("a", "b", CPU)


def test_cohorts_in_a_cycle_lend_no_quota():
    cohorts = [
        build_owner("x", 100, "y"),
        build_owner("y", 100, "x"),
        build_owner("below", 100, "x"),
        build_owner("self", 100, "self"),
        build_owner("fine", 1),
    ]
    queues = [build_owner("a", 4, "x"), build_owner("b", 4, "below"), build_owner("c", 4, "self"), build_owner("d", 4, "fine")]
    tree = QuotaTree(queues, cohorts)
    assert tree.circular == {"x", "y", "below", "self"}
    assert [tree.compute_potential(name, CPU) for name in "abcd"] == [4, 4, 4, 5]


@pytest.mark.parametrize("depth", [2, 5_000])
def test_chain_of_cohorts_of_any_depth_lends_all_that_it_has(depth: int):
    """Each cohort above the stack's depth was a RecursionError, and each workload below it `Misconfigured`."""
    chain = [build_owner(f"c{i}", None, f"c{i + 1}") for i in range(1, depth)]
    tree = QuotaTree(
        [build_owner("a", 2, "c0"), build_owner("b", 6, "c1")], [build_owner("c0", 0, "c1", borrow=3), *chain, build_owner(f"c{depth}", 1)]
    )
    assert tree.circular == frozenset()
    assert (tree.compute_potential("a", CPU), tree.compute_potential("b", CPU)) == (5, 9)
    assert (tree.find_limit("a", CPU), tree.find_limit("b", CPU)) == (("c0", 3), None)
    tree.add("a", {CPU: 4})
    assert (tree.compute_available("a", CPU), tree.compute_available("b", CPU)) == (1, 5)
    assert tree.is_using_others("b", "a", CPU)
    assert tree.compute_shares("a")[-2:] == [share(Fraction(2, 9)), share(Fraction(2, 5))]
    assert tree.copy_around("b").compute_available("a", CPU) == 1


def test_a_cohort_without_an_object_and_a_queue_named_like_it():
    tree = QuotaTree([build_owner("c", 4, "c"), build_owner("d", 2, "c")])
    assert tree.list_relatives("c") == ["d"]
    assert tree.compute_available("c", CPU) == 6


def test_unknown_queue_has_no_quota_usage():
    tree = QuotaTree([build_owner("q", 1)])
    tree.add("gone", {CPU: 5})
    assert tree.get_usage("gone") == {}
    assert tree.compute_borrowed("q", CPU) == 0
    tree.add("q", {CPU: 1})
    tree.add("q", {CPU: 1}, -1)
    assert tree.get_usage("q") == {}


def share(value: Fraction | int) -> Share:
    return Share(False, Fraction(value))


def test_dominant_share_is_the_largest_borrowed_part_of_lendable_quota():
    quota = {CPU: Quota(10), GPU: Quota(4)}
    tree = QuotaTree([QuotaOwner("a", {CPU: Quota(2), GPU: Quota(1)}, "c", Fraction(2)), QuotaOwner("b", quota, "c")])
    assert tree.compute_shares("a") == [share(0)]
    tree.add("a", {CPU: 5, GPU: 1})
    assert tree.compute_shares("a") == [share(Fraction(3, 12) / 2)]
    assert tree.compute_shares("a", {GPU: 2}) == [share(Fraction(2, 5) / 2)]
    assert tree.compute_shares("a", {CPU: -4}) == [share(0)]
    free = QuotaTree([QuotaOwner("a", {CPU: Quota(2)}, "c", Fraction(0)), QuotaOwner("b", quota, "c")])
    assert free.compute_shares("a") == [share(0)]
    assert free.compute_shares("a", {CPU: 3}) == [Share(True, Fraction(1, 12))]


def test_a_share_counts_a_resource_over_all_flavors():
    tree = QuotaTree([QuotaOwner("a", {CPU: Quota(2), OTHER: Quota(1)}, "c"), QuotaOwner("b", {CPU: Quota(6), OTHER: Quota(3)}, "c")])
    tree.add("a", {CPU: 4, OTHER: 2})
    assert tree.compute_shares("a") == [share(Fraction(2 + 1, 8 + 4))]


def test_share_is_zero_without_borrowing_or_lendable_quota():
    exact = QuotaTree([QuotaOwner("a", {CPU: Quota(2)}, "c", Fraction(0)), build_owner("b", 4, "c")])
    exact.add("a", {CPU: 2})
    assert exact.compute_shares("a") == [share(0)]
    empty = QuotaTree([build_owner("a", 0, "c"), build_owner("b", 0, "c")])
    empty.add("a", {CPU: 1})
    assert empty.compute_shares("a") == [share(0)]


def test_shares_of_a_queue_are_listed_from_the_root_down():
    cohorts = [build_owner("left", 0, "root"), build_owner("root", 0)]
    tree = QuotaTree([build_owner("a", 2, "left"), build_owner("b", 4, "left"), build_owner("c", 6, "root")], cohorts)
    tree.add("a", {CPU: 8})
    # left takes 2 of the 12 that root could lend; a takes 6 of the 12 that left could.
    assert tree.compute_shares("a") == [share(Fraction(2, 12)), share(Fraction(6, 12))]
    assert tree.compute_shares("a", {CPU: 1}) == [share(Fraction(3, 12)), share(Fraction(7, 12))]


def test_the_infinite_are_beyond_all_and_compare_among_themselves():
    assert sorted([Share(True, Fraction(1, 9)), Share(True, Fraction(0)), share(7), share(0)]) == [
        share(0),
        share(7),
        Share(True, Fraction(0)),
        Share(True, Fraction(1, 9)),
    ]
    assert [one.is_zero for one in (NO_SHARE, share(1), Share(True, Fraction(0)))] == [True, False, False]


def test_lendable_quota_includes_resources_of_other_subtrees():
    cohorts = [QuotaOwner("left", {}, "root")]
    tree = QuotaTree(
        [build_owner("a", 0, "left"), build_owner("b", 2, "left"), build_owner("c", 6, "root"), QuotaOwner("d", {OTHER: Quota(8)}, "root")],
        cohorts,
    )
    tree.add("a", {CPU: 4})
    assert tree.compute_shares("a") == [share(Fraction(2, 16)), share(Fraction(4, 16))]
    assert (tree.compute_cohort_share("left"), tree.compute_cohort_share("root"), tree.compute_cohort_share("nowhere")) == (
        share(Fraction(2, 16)),
        NO_SHARE,
        NO_SHARE,
    )


def test_queues_meet_at_their_lowest_common_cohort():
    cohorts = [QuotaOwner("left", {}, "root"), QuotaOwner("right", {}, "root")]
    tree = QuotaTree(
        [build_owner("a", 0, "left"), build_owner("b", 0, "left"), build_owner("c", 0, "right"), build_owner("d", 0, "root")], cohorts
    )
    assert [tree.find_meeting_level(*pair) for pair in ("ab", "ac", "ad", "da")] == [1, 0, 0, 0]


# --- against a recount --------------------------------------------------------------------------------------

limits = st.none() | st.integers(0, 6)


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[QuotaOwner], list[QuotaOwner]]:
    """Cohorts, each with a parent among those before it, and queues below them."""

    def quota() -> Mapping[tuple[str, str], Quota]:
        return {name: Quota(draw(st.integers(0, 8)), draw(limits), draw(limits)) for name in (CPU, GPU) if draw(st.booleans())}

    cohorts = [
        QuotaOwner(f"c{i}", quota(), draw(st.sampled_from([None, *(f"c{j}" for j in range(i))]))) for i in range(draw(st.integers(1, 4)))
    ]
    names = [None, *(cohort.name for cohort in cohorts)]
    return [QuotaOwner(f"q{i}", quota(), draw(st.sampled_from(names))) for i in range(draw(st.integers(1, 5)))], cohorts


usages = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([CPU, GPU]), st.integers(0, 6)), max_size=12)


class Recount:
    """The same from the definition, for one resource, from the leaves up at each question."""

    def __init__(self, queues: list[QuotaOwner], cohorts: list[QuotaOwner], name: tuple[str, str], used: Mapping[str, int]) -> None:
        self.owners = {("q", q.name): q for q in queues} | {("c", c.name): c for c in cohorts}
        self.name, self.used = name, used

    def quota(self, key: tuple[str, str]) -> Quota:
        return self.owners[key].quota.get(self.name, Quota(0))

    def below(self, key: tuple[str, str]) -> list[tuple[str, str]]:
        return [other for other, each in self.owners.items() if key[0] == "c" and each.parent == key[1]]

    def total(self, key: tuple[str, str]) -> int:
        return self.quota(key).nominal + sum(self.total(each) - self.kept(each) for each in self.below(key))

    def kept(self, key: tuple[str, str]) -> int:
        lending = self.quota(key).lending_limit
        return 0 if lending is None or self.owners[key].parent is None else max(0, self.total(key) - lending)

    def usage(self, key: tuple[str, str]) -> int:
        below = sum(max(0, self.usage(each) - self.kept(each)) for each in self.below(key))
        return below + (self.used.get(key[1], 0) if key[0] == "q" else 0)

    def broken(self) -> set[tuple[str, str]]:
        """Owners that use more than they may: roots more than all there is, others more than they may borrow."""
        found = set()
        for key, each in self.owners.items():
            most = self.quota(key).borrowing_limit
            if each.parent is None:
                if self.usage(key) > self.total(key):
                    found.add(key)
            elif most is not None and max(0, self.usage(key) - self.kept(key)) > self.total(key) - self.kept(key) + most:
                found.add(key)
        return found


@given(forests(), usages)
def test_quota_usage_equals_a_recount_in_any_order(
    forest: tuple[list[QuotaOwner], list[QuotaOwner]], steps: list[tuple[int, tuple[str, str], int]]
):
    queues, cohorts = forest
    tree, other = QuotaTree(queues, cohorts), QuotaTree(queues, cohorts)
    known = [(queues[i % len(queues)].name, name, amount) for i, name, amount in steps]
    for queue, name, amount in known:
        tree.add(queue, {name: amount})
    for queue, name, amount in reversed(known):
        other.add(queue, {name: 2 * amount})
        other.add(queue, {name: amount}, -1)
    for name in (CPU, GPU):
        used = {q.name: sum(amount for queue, each, amount in known if (queue, each) == (q.name, name)) for q in queues}
        recount = Recount(queues, cohorts, name, used)
        for cohort in cohorts:
            assert (
                tree.compute_cohort_usage(cohort.name).get(name, 0)
                == recount.usage(("c", cohort.name))
                == other.compute_cohort_usage(cohort.name).get(name, 0)
            )
        for queue_owner in queues:
            assert tree.get_usage(queue_owner.name).get(name, 0) == used[queue_owner.name]


@given(forests(), usages, st.integers(0, 4), st.sampled_from([CPU, GPU]))
def test_available_quota_may_be_used_but_not_one_unit_more(
    forest: tuple[list[QuotaOwner], list[QuotaOwner]], steps: list[tuple[int, tuple[str, str], int]], asking: int, name: tuple[str, str]
):
    queues, cohorts = forest
    tree, queue = QuotaTree(queues, cohorts), queues[asking % len(queues)].name
    used: dict[str, int] = {}
    for i, each, amount in steps:
        taker = queues[i % len(queues)].name
        if each == name and amount <= tree.compute_available(taker, name):  # as topogate does
            tree.add(taker, {name: amount})
            used[taker] = used.get(taker, 0) + amount
    assert Recount(queues, cohorts, name, used).broken() == set()
    left = tree.compute_available(queue, name)
    assert 0 <= left <= tree.compute_potential(queue, name)
    assert Recount(queues, cohorts, name, used | {queue: used.get(queue, 0) + left}).broken() == set()
    assert Recount(queues, cohorts, name, used | {queue: used.get(queue, 0) + left + 1}).broken() != set()
    tree.add(queue, {name: left})
    assert tree.compute_available(queue, name) == 0


@given(forests(), usages, st.integers(0, 4), st.sampled_from([CPU, GPU]), st.booleans())
def test_a_borrowing_limit_is_named_just_where_more_would_be_left_without(
    forest: tuple[list[QuotaOwner], list[QuotaOwner]],
    steps: list[tuple[int, tuple[str, str], int]],
    asking: int,
    name: tuple[str, str],
    empty: bool,
):
    queues, cohorts = forest
    tree, free = QuotaTree(queues, cohorts), QuotaTree(*([strip_limits(owner) for owner in owners] for owners in forest))
    for i, each, amount in steps:
        for one in (tree, free):
            one.add(queues[i % len(queues)].name, {each: amount})
    queue = queues[asking % len(queues)].name
    left, most = ((one.compute_potential if empty else one.compute_available)(queue, name) for one in (tree, free))
    limited = tree.find_limit(queue, name, empty=empty)
    assert (limited is not None) == (left < most)
    if limited is not None:
        whose, limit = limited
        named = next(owner for owner in (queues if whose is None else cohorts) if owner.name == (whose or queue))
        assert named.quota[name].borrowing_limit == limit


def strip_limits(owner: QuotaOwner) -> QuotaOwner:
    """The same without its borrowing limits."""
    return replace(owner, quota={name: replace(quota, borrowing_limit=None) for name, quota in owner.quota.items()})
