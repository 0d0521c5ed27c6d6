"""Plugins of other packages as a decision sees them: questions, answers, and a decision that is made anew with what was answered."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.plugin_choice import GENERATE, SCORE, Which
from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.algorithm import Outcome, decide, default_plugins
from core.podgroups.framework import PlacementCycle, Plugins
from core.podgroups.group import PodGroupInfo
from core.podgroups.outside import Answers, OutsideGenerator, OutsideScorer, Unanswered
from core.podgroups.placements import Placement, build_whole, join
from core.podgroups.questions import Nonsense, Question, read_placements, read_scores, to_generate
from core.podgroups.scorers import BinPacking
from core.podgroups.topology_placement import TopologyPlacement
from tests.builders import RACK, build_view
from tests.podgroups.builders import ask, build_cluster, build_node, count_placed_pods, group, name_of, racks, small_sets

GENERATOR, SCORER = Which(GENERATE, "acme"), Which(SCORE, "acme")
Body = Mapping[str, Any]


def build_plugins(answers: Answers) -> Plugins:
    """The usual ones, and one of each kind."""
    usual = default_plugins()
    return Plugins((*usual.generators, OutsideGenerator(GENERATOR, answers)), (*usual.scorers, (OutsideScorer(SCORER, answers), 1.0)))


def same(body: Body) -> list[dict[str, Any]]:
    """Each placement as it was."""
    return [{**shown, "parent": [rank, at]} for rank, of_rank in enumerate(body["placements"]) for at, shown in enumerate(of_rank)]


def answered(
    view: FreeCapacity,
    asked: PodGroupInfo,
    generate: Callable[[Body], Any] = same,
    score: Callable[[Body], Any] = lambda body: [0] * len(body["candidates"]),
    answers: Answers | None = None,
) -> Outcome:
    """A decision made as often as it takes; what is said goes through JSON, as it does between processes."""
    answers = answers if answers is not None else Answers()
    while True:
        try:
            return decide(view, asked, build_plugins(answers))
        except Unanswered as error:
            question = error.question
            body = json.loads(json.dumps(question.compose()))
            said = generate(body) if question.which.role == GENERATE else score(body)
            answers.add_answer(question, json.loads(json.dumps(said)))
            answers.times += 1
            assert answers.times < 10


def prefer(name: str) -> Callable[[Body], list[float]]:
    return lambda body: [100.0 * (one["name"] == name) for one in body["candidates"]]


# --- decisions --------------------------------------------------------------------------------------------------------


def test_outside_plugin_is_asked_once_and_its_answer_counts():
    answers = Answers()
    outcome = answered(build_cluster({"r1": [2], "r2": [2], "r3": [1]}), group((2, 1)), score=prefer("r2"), answers=answers)
    assert (name_of(outcome), answers.times, answers.is_used, answers.missed) == ("r2", 2, True, {})


def test_the_weight_of_an_outside_scorer_counts():
    answers = Answers()
    answers.add_answer(_to_score(group((2, 1))), [0, 60])
    for weight, chosen in ((1.0, "r1"), (2.0, "r2")):
        scorers = ((BinPacking(), 1.0), (OutsideScorer(SCORER, answers), weight))
        view = build_cluster({"r1": [2], "r2": [100]})
        assert name_of(decide(view, group((2, 1)), Plugins((TopologyPlacement(),), scorers))) == chosen


def _to_score(asked: PodGroupInfo) -> Question:
    answers = Answers({GENERATOR: "it is away"})
    with pytest.raises(Unanswered) as error:
        decide(build_cluster({"r1": [2], "r2": [100]}), asked, build_plugins(answers))
    return error.value.question


@given(racks, small_sets)
def test_outside_plugin_with_neutral_answers_does_not_change_the_decision(
    sizes: Mapping[str, Sequence[int]], sets: Sequence[tuple[int, int]]
):
    view, asked = build_cluster(sizes), group(*sets)
    plain, other = ask(view, asked), answered(view, asked)
    assert name_of(other) == name_of(plain)
    assert plain.chosen is None or count_placed_pods(other) == count_placed_pods(plain)


@given(racks, small_sets)
def test_outside_plugin_that_is_skipped_does_not_change_the_decision(sizes: Mapping[str, Sequence[int]], sets: Sequence[tuple[int, int]]):
    view, asked, answers = build_cluster(sizes), group(*sets), Answers({GENERATOR: "it hangs", SCORER: "it raised"})
    plain, other = ask(view, asked), decide(view, asked, build_plugins(answers))
    assert name_of(other) == name_of(plain)
    assert answers.missed[GENERATOR] == "it hangs"
    assert (SCORER in answers.missed) <= (other.chosen is not None)


@given(racks, small_sets, st.randoms(use_true_random=False))
def test_random_generated_placements_keep_constraints_and_room(
    sizes: Mapping[str, Sequence[int]], sets: Sequence[tuple[int, int]], chance: Any
):
    def generate(body: Body) -> list[dict[str, Any]]:
        found = []
        for number, shown in enumerate(same(body)):
            nodes = chance.sample(shown["nodes"], chance.randint(1, len(shown["nodes"])))
            found.append({**shown, "name": f"{number}", "nodes": nodes, "rank": chance.randint(0, 2)})
        return found

    view, asked = build_cluster(sizes), group(*sets)
    outcome = answered(view, asked, generate, lambda body: [chance.random() for _ in body["candidates"]])
    if outcome.chosen is None:
        return
    where = count_placed_pods(outcome)
    assert len({view.tree.labels[view.tree.index[name]][RACK] for name in where}) == 1
    assert sum(where.values()) == asked.count
    assert ask(view, asked).chosen is not None, "a part of a rack does not hold what no rack does"


# --- answers of another moment -----------------------------------------------------------------------------------------


def test_outside_plugin_is_asked_again_for_another_group():
    view, answers = build_cluster({"r1": [2], "r2": [2]}), Answers()
    answered(view, group((2, 1)), score=prefer("r2"), answers=answers)
    assert answers.times == 2
    assert name_of(answered(view, group((1, 1)), score=prefer("r1"), answers=answers)) == "r1"
    assert answers.times == 4


def test_placements_that_have_come_meanwhile_are_asked_about_and_those_that_are_gone_are_not():
    view, answers, asked = build_cluster({"r1": [2], "r2": [2], "r3": [2]}), Answers(), group((2, 1))
    view.use_node("r2-0", {"cpu": 2000})
    answered(view, asked, score=prefer("r3"), answers=answers)
    view.use_node("r3-0", {"cpu": 2000})
    assert name_of(answered(view, asked, answers=answers)) == "r1"
    assert answers.times == 2, "one is left, and nothing to choose"
    view.use_node("r2-0", {"cpu": 2000}, -1)
    assert name_of(answered(view, asked, score=prefer("r2"), answers=answers)) == "r2"
    assert answers.times == 3, "r2 had not been asked about"


def test_places_in_another_tree_are_others():
    """Racks of the same names: a node that has come is where one of r2 was."""
    answers, asked = Answers(), group((2, 1))
    answered(build_cluster({"r1": [2], "r2": [2]}), asked, score=prefer("r2"), answers=answers)
    outcome = answered(build_cluster({"r1": [2, 2], "r2": [2]}), asked, score=prefer("r2"), answers=answers)
    assert count_placed_pods(outcome) == {"r2-0": 2}
    assert answers.times == 3, "what was said of these names is still so"


def test_scores_are_of_one_group():
    view, answers = build_cluster({"r1": [2], "r2": [2]}), Answers({GENERATOR: "it is away"})
    assert name_of(answered(view, group((2, 1)), score=prefer("r2"), answers=answers)) == "r2"
    assert name_of(answered(view, group((1, 1)), score=prefer("r1"), answers=answers)) == "r1"
    assert answers.times == 2


def test_a_question_is_about_the_moment_in_which_it_was_asked():
    view = build_cluster({"r1": [2], "r2": [2]})
    question = to_generate(GENERATOR, PlacementCycle(view), group((1, 1)), [build_whole(view.tree)])
    before = json.dumps(question.compose())
    view.use_node("r1-0", {"cpu": 2000, "example.com/new": 1})
    assert json.dumps(question.compose()) == before


def test_free_amounts_for_a_plugin_are_never_negative():
    view = build_cluster({"r1": [2]})
    view.use_node("r1-0", {"cpu": 5000})
    assert to_generate(GENERATOR, PlacementCycle(view), group((1, 1)), [build_whole(view.tree)]).compose()["amounts"]["cpu"]["free"] == [0]


# --- nonsense ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [None, {}, [1], [1, 2, 3], [1, "2"], [1, True], [1, None], [1, float("nan")], [1, -float("inf")], [1, 10**400]]
)
def test_scores_that_are_none_are_refused(answer: Any):
    with pytest.raises(Nonsense):
        read_scores(_to_score(group((2, 1))), answer)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": None}, "has no name"),
        ({"rank": -1}, "the rank of placement 'x' is no whole number"),
        ({"rank": 1.0}, "the rank"),
        ({"rank": 2**31}, "the rank"),
        ({"nodes": []}, "has no nodes"),
        ({"nodes": [-1]}, "or some that are not there"),
        ({"nodes": [4]}, "or some that are not there"),
        ({"nodes": [True]}, "or some that are not there"),
        ({"nodes": ["r1-0"]}, "or some that are not there"),
        ({"nodes": [0, 2]}, "not within one"),
        ({"nodes": [3]}, "not within one"),
        ({"parent": None}, "not within one"),
        ({"parent": [1, 0]}, "not within one"),
        ({"parent": [0, 2]}, "not within one"),
        ({"parent": [0]}, "not within one"),
    ],
)
def test_placements_that_are_none_are_refused(changes: dict[str, Any], why: str):
    view = build_cluster({"r1": [1, 1], "r2": [1, 1]})
    question = to_generate(
        GENERATOR,
        PlacementCycle(view),
        group((1, 1)),
        TopologyPlacement().generate(PlacementCycle(view), group((1, 1)), [build_whole(view.tree)]),
    )
    good = {"name": "x", "rank": 0, "nodes": [1, 0, 1], "parent": [0, 0]}
    (found,) = read_placements(question, [good])
    assert (found.names, found.list_nodes(0).tolist(), found[0].parent.name if found[0].parent else None) == (("x",), [0, 1], "r1")
    with pytest.raises(Nonsense, match=why):
        read_placements(question, [good | changes])
    others: list[Any] = [None, {}, "x", [good, 3]]
    for answer in others:
        with pytest.raises(Nonsense):
            read_placements(question, answer)


_scalars = st.none() | st.booleans() | st.integers(-3, 6) | st.integers() | st.floats() | st.text(max_size=3)
_fields = st.sampled_from(["name", "rank", "nodes", "parent", "x"])
_odd = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_fields, inner, max_size=4), max_leaves=12)
_placements = st.fixed_dictionaries({"name": st.text(max_size=2) | _odd, "rank": st.integers(-1, 2) | _odd, "nodes": _odd, "parent": _odd})


@given(_odd | st.lists(_placements, max_size=3) | st.lists(st.floats() | st.integers(), min_size=2, max_size=2))
def test_random_plugin_answer_is_read_or_refused(answer: Any):
    view, asked = build_cluster({"r1": [1, 1], "r2": [1, 1]}), group((1, 1))
    question = to_generate(
        GENERATOR, PlacementCycle(view), asked, TopologyPlacement().generate(PlacementCycle(view), asked, [build_whole(view.tree)])
    )
    with contextlib.suppress(Nonsense):
        for of_rank in read_placements(question, answer):
            assert all(len({view.tree.labels[at][RACK] for at in one.nodes.tolist()}) == 1 for one in of_rank)
    with contextlib.suppress(Nonsense):
        assert all(np.isfinite(score) for score in read_scores(_to_score(group((2, 1))), answer).values())


def test_a_name_is_given_once_in_each_rank_and_nodes_as_often_as_one_likes():
    view = build_cluster({"r1": [1, 1]})
    question = to_generate(GENERATOR, PlacementCycle(view), group((1, 1)), [build_whole(view.tree)])
    one = {"name": "x", "rank": 1, "nodes": [0, 1], "parent": [0, 0]}
    found = read_placements(question, [one, one | {"rank": 0}, one | {"name": "b"}])
    assert [(of_rank.rank, of_rank.names) for of_rank in found] == [(0, ("x",)), (1, ("b", "x"))]
    assert found[1].compute_sums(view.free[view.axis["cpu"]]).tolist() == [2000, 2000]
    with pytest.raises(Nonsense, match="two placements of rank 1 are called 'x'"):
        read_placements(question, [one, one])


# --- built-in plugins in other company ------------------------------------------------------------------------------------


def test_topology_placement_divides_placements_of_earlier_generators():
    """Also where these are all nodes together."""
    view = build_cluster({"r1": [1, 1], "r2": [1, 1]})
    halves = join([_placement("even", 0, 2), _placement("odd", 1, 3)])
    (found,) = TopologyPlacement().generate(PlacementCycle(view), group((1, 1)), [halves])
    assert {one.name: [view.tree.names[at] for at in one.nodes] for one in found} == {
        "even/r1": ["r1-0"],
        "even/r2": ["r2-0"],
        "odd/r1": ["r1-1"],
        "odd/r2": ["r2-1"],
    }


def _placement(name: str, *nodes: int) -> Placement:

    return Placement(name, np.array(nodes, dtype=np.int64))


@pytest.mark.parametrize(
    ("weights", "chosen"),
    [
        (None, "cpus"),
        ({"gpu": 1.0}, "gpus"),
        ({"gpu": 3.0, "cpu": 1.0}, "gpus"),
        ({"cpu": 3.0, "gpu": 1.0}, "cpus"),
        ({"other": 1.0}, "cpus"),
    ],
)
def test_bin_packing_goes_by_the_resources_that_are_named(weights: Mapping[str, float] | None, chosen: str):
    """Rack `cpus` would have its CPUs all used and its GPUs half; rack `gpus` half and all. Alike they tie, and go by name."""
    nodes = [build_node("a", "b", "cpus", 2, 4), build_node("b", "b", "gpus", 4, 2)]
    (pods,) = group((2, 1)).pod_sets
    asked = replace(group((2, 1)), pod_sets=(replace(pods, requests={"cpu": 1000, "gpu": 1}),))
    answers = Plugins((TopologyPlacement(),), ((BinPacking(weights), 1.0),))
    assert name_of(decide(build_view([HOSTNAME_LABEL], nodes), asked, answers)) == chosen
