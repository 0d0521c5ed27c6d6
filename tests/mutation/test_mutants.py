"""What counts as a mutant, and which lines a test has to run to meet one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mutation.__main__ import Reach, statement_at, wanted
from tests.mutation.mutants import Mutant, changed_line, find_mutants, mutate, sample

SOURCE = '''
def add(one: int | None, other: int = 1) -> int | None:
    """One & more."""
    if one is None:
        return None
    return sum(
        [one, other],
    )
'''


def test_one_place_has_one_mutant_and_the_seed_says_which():
    chosen = [list(sample({"a.py": SOURCE}, seed)) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    places = [mutant.place for mutant in chosen[0]]
    assert len(places) == len({*places}) == len({mutant.place for mutant in chosen[2]})
    assert {line for _, line, _ in places} == {2, 4}  # the default, and the question asked


def test_annotation_change_is_no_mutant():
    annotation = next(mutant for mutant in find_mutants("a.py", "def f(x: int | None): ...\n") if "BitOr_Add" in mutant.operator)
    assert mutate(annotation, "def f(x: int | None): ...\n") is None
    assert not any("Is_Eq" in mutant.operator for mutant in find_mutants("a.py", SOURCE))


@pytest.mark.parametrize("source", ["x = list(zip([1], [2], strict=True))\n", "@dataclass(slots=True)\nclass A: ...\n"])
def test_keyword_without_effect_on_decisions_is_no_mutant(source: str):
    """`strict=True` in a program that never breaks it, as an assertion; `slots=True` at all."""
    check = next(mutant for mutant in find_mutants("a.py", source) if mutant.operator == "ReplaceTrueWithFalse")
    assert mutate(check, source) is None


def test_a_survivor_is_shown_by_its_line():
    source = "x = 1\ny = x > 2\n"
    mutant = next(mutant for mutant in find_mutants("a.py", source) if mutant.operator == "ReplaceComparisonOperator_Gt_Lt")
    assert str(mutant) == "a.py:2:7 ReplaceComparisonOperator_Gt_Lt"
    assert changed_line(mutant, source) == ("y = x > 2", "y = x < 2")


@pytest.mark.parametrize(("line", "lines"), [(2, range(2, 3)), (4, range(4, 5)), (5, range(5, 6)), (7, range(6, 9))])
def test_a_line_belongs_to_the_innermost_statement_and_of_a_compound_one_to_its_head(line: int, lines: range):
    assert statement_at(SOURCE, line) == lines


def test_the_fastest_test_that_reaches_a_line_comes_first_and_after_an_import_all_that_reach_the_module():
    reach = Reach({"a.py": {2: {""}, 4: {"fast", "slow"}, 6: {"slow", "slowest"}}}, {"fast": 0.1, "slow": 1, "slowest": 2})
    assert reach.tests_for(Mutant("a.py", 4, (0, 1), "AddNot", 0), SOURCE) == ["fast", "slow"]
    assert reach.tests_for(Mutant("a.py", 7, (0, 1), "AddNot", 0), SOURCE) == ["slow", "slowest"]
    assert reach.tests_for(Mutant("a.py", 2, (0, 1), "AddNot", 0), SOURCE) == ["fast", "slow", "slowest"]
    assert reach.tests_for(Mutant("a.py", 5, (0, 1), "AddNot", 0), SOURCE) == []
    assert reach.tests_for(Mutant("b.py", 5, (0, 1), "AddNot", 0), SOURCE) == []


def test_surviving_mutant_is_tried_again_at_its_current_line(tmp_path: Path):
    tried = list(sample({"a.py": SOURCE}, 1))
    lines = [changed_line(mutant, SOURCE) for mutant in tried]
    entries = [{"path": "a.py", "before": before, "after": after, "killed": i > 0} for i, (before, after) in enumerate(lines)]
    earlier = tmp_path / "mutation.jsonl"
    earlier.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    again = list(wanted({"a.py": SOURCE}, 1, earlier))
    assert tried[0] in again
    assert {changed_line(mutant, SOURCE) for mutant in again} == {lines[0]}
    assert list(wanted({"a.py": SOURCE}, 1, None)) == tried
