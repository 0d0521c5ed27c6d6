"""KEP-5732's three phases: which placement a group gets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.podset import PodSetRequest
from core.model.quantity import LARGEST
from core.model.step_budget import SENTENCE, StepBudget
from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.algorithm import default_plugins
from core.podgroups.framework import PlacementCycle
from core.podgroups.group import PodGroupInfo
from core.podgroups.group_explanation import explain
from core.podgroups.placement_feasibility import are_apart, check_apart, check_one
from core.podgroups.placements import Placement, build_whole
from core.podgroups.scorers import RankDistance
from core.podgroups.topology_placement import TopologyPlacement
from tests.builders import BLOCK, RACK, Node, build_view, request
from tests.podgroups.builders import (
    ask,
    build_cluster,
    build_node,
    can_hold_all,
    count_placed_pods,
    group,
    list_nodes,
    name_of,
    racks,
    small_sets,
)


def test_all_pods_go_to_one_rack_that_holds_them():
    outcome = ask(build_cluster({"r1": [2], "r2": [2, 2], "r3": [4, 4]}), group((3, 1)))
    assert name_of(outcome) == "r2", "r3 would hold them, too, and be less full"
    assert sum(count_placed_pods(outcome).values()) == 3


def test_a_gang_that_no_rack_holds_is_placed_nowhere_though_the_cluster_has_room():
    outcome = ask(build_cluster({"r1": [2], "r2": [2]}), group((3, 1)))
    assert outcome.chosen is None
    assert [placements.names for placements in outcome.tried] == [("r1", "r2")]


def test_where_all_cannot_go_as_many_as_a_gang_needs_may():
    outcome = ask(build_cluster({"r1": [2], "r2": [3]}), group((4, 1), min_count=2))
    assert (name_of(outcome), sum(count_placed_pods(outcome).values())) == ("r2", 3)


def test_one_pod_more_outweighs_the_fuller_rack():
    """kube-scheduler 1.36's weights prefer nine pods in a full rack to ten in a half empty one."""
    outcome = ask(build_cluster({"full": [9], "half": [20]}), group((10, 1), min_count=1))
    assert (name_of(outcome), sum(count_placed_pods(outcome).values())) == ("half", 10)


def test_nodes_without_the_label_are_in_no_placement():
    view = build_view([HOSTNAME_LABEL], [build_node("a", "b", None, 8), build_node("c", "b", "r1", 2)])
    assert name_of(ask(view, group((2, 1)))) == "r1"
    assert ask(view, group((3, 1))).chosen is None


def test_nodes_that_take_nothing_do_not_count():
    nodes = [build_node("a", "b", "r1", 4, ready=False), build_node("b", "b", "r2", 4, unschedulable=True), build_node("c", "b", "r3", 2)]
    assert name_of(ask(build_view([HOSTNAME_LABEL], nodes), group((2, 1)))) == "r3"


def test_nested_levels_of_a_placement_have_their_parent_domain():
    """Future extension 3: racks of the same name in two blocks are two racks."""
    outcome = ask(build_cluster({"b1/r1": [2], "b2/r1": [2], "b2/r2": [3]}), group((3, 1), by=[BLOCK, RACK]))
    assert name_of(outcome) == "b2/r2"
    assert outcome.chosen is not None
    assert outcome.chosen.placement.parent is not None
    assert outcome.chosen.placement.parent.name == "b2"
    assert ask(build_cluster({"b1/r1": [2], "b2/r1": [2]}), group((4, 1), by=[BLOCK, RACK])).chosen is None


def test_a_preferred_rack_is_given_up_for_the_block_and_that_for_anywhere():
    """Future extensions 1 and 2: placements with a rank."""
    asked = group((4, 1), by=[BLOCK, RACK], preferred=[RACK, BLOCK])
    fits = build_cluster({"b1/r1": [4], "b2/r2": [8, 8]})
    assert (name_of(ask(fits, asked)), rank_of(fits, asked)) == ("b1/r1", 0)
    in_block = build_cluster({"b1/r1": [2], "b1/r2": [2], "b2/r3": [3]})
    assert (name_of(ask(in_block, asked)), rank_of(in_block, asked)) == ("b1", 1)
    anywhere = build_cluster({"b1/r1": [2], "b2/r2": [2]})
    assert (name_of(ask(anywhere, asked)), rank_of(anywhere, asked)) == ("", 2)
    assert rank_of(build_cluster({"b1/r1": [1], "b2/r2": [2]}), asked) is None


def rank_of(view: FreeCapacity, asked: PodGroupInfo) -> int | None:
    chosen = ask(view, asked).chosen
    return None if chosen is None else chosen.placement.rank


def test_enough_feasible_placements_are_enough():
    """Future extension 6: the first by name of those that hold the group."""
    view = build_cluster({"r1": [1], "r2": [9], "r3": [3]})
    assert name_of(ask(view, group((3, 1)))) == "r3"
    assert name_of(ask(view, group((3, 1)), replace(default_plugins(), feasible_limit=1))) == "r2"


def test_a_placement_for_the_desired_count_though_fewer_pods_exist():
    view = build_cluster({"r1": [3], "r2": [8]})
    assert name_of(ask(view, group((3, 1), min_count=1))) == "r1"
    assert name_of(ask(view, group((3, 1), min_count=1, desired_count=6))) == "r2"
    assert name_of(ask(view, group((3, 1), min_count=1, desired_count=20))) == "r2", "the most there is"


def test_pods_that_come_later_go_where_the_group_runs():
    view = build_cluster({"r1": [4, 4], "r2": [2]})
    assert name_of(ask(view, group((2, 1), running={"r1-0": 2}))) == "r1"
    full = group((9, 1), min_count=11, running={"r1-0": 2})
    assert ask(view, full).chosen is None, "no other rack, whatever is free there"
    assert ask(view, group((1, 1), running={"r1-0": 1, "r2-0": 1})).chosen is None, "a node was moved to another rack"


def test_consecutive_ranks_share_as_few_nodes_as_possible():
    view = build_cluster({"r1": [2, 3, 4]})
    assert count_placed_pods(ask(view, group((6, 1)))) == {"r1-2": 4, "r1-0": 2}, "the rest on the tightest"
    narrow = build_cluster({"r1": [2, 2, 2], "r2": [3, 4]})
    plugins = replace(default_plugins(), scorers=((RankDistance(), 1.0),))
    assert name_of(ask(narrow, group((6, 1)), plugins)) == "r2"


def test_gpus_count_when_placements_are_packed():
    """kube-scheduler's own scorer counts processors and memory only."""
    nodes = [build_node("a", "b", "r1", 8, gpu=8), build_node("c", "b", "r2", 8, gpu=4)]
    asked = replace(group(), pod_sets=(PodSetRequest("set", 2, {"cpu": 1000, "gpu": 2}),), min_count=2)
    assert name_of(ask(build_view([HOSTNAME_LABEL], nodes), asked)) == "r2"


class Refusing:
    """A state plugin by which some placements have nothing."""

    name = "Refusing"

    def __init__(self, *names: str) -> None:
        self.names, self.seen = names, list[str]()

    def assume(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> None:
        self.seen.append(f"+{placement.name}")
        if placement.name in self.names:
            cycle.closed = placement.build_mask(cycle.view.tree)

    def restore_state(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> None:
        self.seen.append(f"-{placement.name}")
        cycle.closed = None


def test_assumed_state_of_a_plugin_is_reverted_after_each_placement():
    view = build_cluster({"r1": [3], "r2": [4], "r3": [9]})
    refusing, second = Refusing("r1"), Refusing()
    before = view.free.copy()
    outcome = ask(view, group((3, 1)), replace(default_plugins(), states=(refusing, second)))
    assert name_of(outcome) == "r2"
    assert refusing.seen == ["+r1", "-r1", "+r2", "-r2", "+r3", "-r3"] == second.seen
    assert np.array_equal(view.free, before)


class Raising(Refusing):
    def assume(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> None:
        super().assume(cycle, group, placement)
        raise RuntimeError("no")


def test_assumed_state_is_reverted_when_a_plugin_raises():
    first, raising = Refusing(), Raising()
    with pytest.raises(RuntimeError):
        ask(build_cluster({"r1": [3]}), group((3, 1)), replace(default_plugins(), states=(first, raising)))
    assert first.seen == ["+r1", "-r1"] == raising.seen


@given(racks, st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_equal_pods_are_placed_just_when_a_rack_holds_them(sizes: dict[str, list[int]], count: int, cpu: int, whole: bool):
    view = build_cluster(sizes)
    asked = group((count, cpu), by=[BLOCK, RACK], min_count=count if whole else 1)
    outcome = ask(view, asked)
    most = max(sum(size // cpu for size in rack) for rack in sizes.values())
    if most < asked.min_count:
        assert outcome.chosen is None
        return
    counts = count_placed_pods(outcome)
    assert sum(counts.values()) == min(most, count)
    check_lies_right(view, asked, counts, name_of(outcome) or "")


@given(racks, small_sets)
def test_a_group_of_unlike_pods_is_whole_or_absent(sizes: dict[str, list[int]], sets: list[tuple[int, int]]):
    view = build_cluster(sizes)
    asked = group(*sets, by=[BLOCK, RACK])
    outcome = ask(view, asked)
    pods = [cpu for count, cpu in sets for _ in range(count)]
    possible = {name for name, rack in sizes.items() if can_hold_all(rack, pods)}
    if outcome.chosen is None:
        assert not possible or len(sets) > 1, "set by set, as the KEP has it, is not every way"
        return
    assert name_of(outcome) in possible
    assert outcome.chosen.pods == asked.count


def check_lies_right(view: FreeCapacity, asked: PodGroupInfo, counts: dict[str, int], rack: str) -> None:
    """Nothing over capacity, all in one rack."""
    (pods,) = asked.pod_sets
    for name, count in counts.items():
        at = view.tree.index[name]
        assert count * pods.requests["cpu"] <= view.free[view.axis["cpu"], at]
        assert f"{view.tree.labels[at][BLOCK]}/{view.tree.labels[at][RACK]}" == rack


@given(racks, small_sets, st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_nodes_does_not_matter(sizes: dict[str, list[int]], sets: list[tuple[int, int]], random: object, preferred: bool):
    nodes = list_nodes(sizes)
    asked = group(*sets, by=[BLOCK, RACK], preferred=[RACK] if preferred else [], min_count=1)
    answer = ask(build_view([HOSTNAME_LABEL], nodes), asked)
    random.shuffle(nodes)  # type: ignore[attr-defined]
    again = ask(build_view([HOSTNAME_LABEL], nodes), asked)
    assert name_of(again) == name_of(answer)
    if answer.chosen is not None:
        assert count_placed_pods(again) == count_placed_pods(answer)


@given(racks, st.integers(1, 6), st.integers(1, 3), st.data())
def test_more_capacity_never_hurts(sizes: dict[str, list[int]], count: int, cpu: int, data: st.DataObject):
    asked = group((count, cpu), by=[BLOCK, RACK], min_count=data.draw(st.integers(1, count)))
    before = ask(build_cluster(sizes), asked)
    rack = data.draw(st.sampled_from(sorted(sizes)))
    more = {**sizes, rack: [*sizes[rack], data.draw(st.integers(0, 3))]}
    after = ask(build_cluster(more), asked)
    assert before.chosen is None or (after.chosen is not None and after.chosen.pods >= before.chosen.pods)


@given(racks, small_sets)
def test_placements_checked_in_sequence_and_together_give_the_same_outcome(sizes: dict[str, list[int]], sets: list[tuple[int, int]]):
    """Equal pods are checked in all placements at once; with a plugin's state each placement is checked by itself."""
    view = build_cluster(sizes)
    asked = group(sets[0], by=[BLOCK, RACK], min_count=1)
    fast, slow = ask(view, asked), ask(view, asked, replace(default_plugins(), states=(Refusing(),)))
    assert name_of(fast) == name_of(slow)
    if fast.chosen is not None:
        assert count_placed_pods(fast) == count_placed_pods(slow)


# --- unlike pods in all placements at once --------------------------------------------------------------

unlike_sets = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=2, max_size=4)


@given(racks, unlike_sets, st.integers(0, 3), st.booleans())
def test_unlike_pods_checked_at_once_fit_as_one_placement_after_another(
    sizes: dict[str, list[int]], sets: list[tuple[int, int]], more: int, by_block: bool
) -> None:
    view, asked = build_cluster(sizes), group(*sets, by=[BLOCK] if by_block else [RACK], min_count=1)
    asked = replace(asked, desired_count=asked.count + more)
    (placements,) = TopologyPlacement().generate(PlacementCycle(view), asked, [build_whole(view.tree)])
    cycle = PlacementCycle(view)
    assert are_apart(cycle, asked, placements)
    checked = check_apart(cycle, asked, placements)
    expected = [check_one(cycle, asked, placement, to_the_end=True) for placement in placements]
    assert checked.pods.tolist() == [assignment.count for assignment, _ in expected]
    assert checked.room.tolist() == [assignment.count + coming for assignment, coming in expected]
    assert [checked.compute_assignment(at) for at in range(len(placements))] == [assignment for assignment, _ in expected]


def test_group_of_unlike_pods_without_steps_left_is_explained_by_the_most_hopeful_placements() -> None:
    view = build_cluster({f"r{i:02}": [4] * (100 + i) for i in range(40)})
    asked = group(*((1, 1 + i % 4) for i in range(200)), (2_000, 4), (2_000, 3))
    budget = StepBudget(1)
    outcome = ask(view.copy_with_budget(budget), asked)
    assert outcome.chosen is None
    told = explain(view.copy_with_budget(budget), asked, outcome.tried)
    assert told.placements == 40
    assert {fact.name for fact in told.facts} == {f"r{i}" for i in range(40 - len(told.facts), 40)}
    assert f"{len(told.facts)} looked at of 40 placements" in str(told)
    assert SENTENCE in str(told)


def test_group_of_unlike_pods_without_steps_left_gets_a_place_among_the_first_checked() -> None:
    view = build_cluster({f"r{i:02}": [4] * 100 for i in range(40)})
    asked = group((1, 4), (1, 3), (1, 2))
    outcome = ask(view.copy_with_budget(StepBudget(1)), asked)
    assert sum(count_placed_pods(outcome).values()) == 3


@pytest.mark.parametrize("amount", [2**40, LARGEST - 1])
def test_amounts_of_any_size_are_summed_without_leaving_int64(amount: int):
    """Found by a reader: a group of unlike pods found no place, and no reason, beside nodes with the largest amounts."""
    nodes = [Node(name, {HOSTNAME_LABEL: name, RACK: "r", BLOCK: "b"}, {"memory": amount, "cpu": 8000, "pods": 110}) for name in "abc"]
    sets = tuple(request(1, requests={"cpu": cpu * 1000, "memory": 1}, name=f"set-{cpu}") for cpu in (1, 2))
    asked = replace(group((1, 1), (1, 2)), pod_sets=sets)
    assert sum(count_placed_pods(ask(build_view([HOSTNAME_LABEL], nodes), asked)).values()) == 2
