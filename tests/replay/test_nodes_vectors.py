"""The vectors of nodes that are lost, through `python -m tests.replay` and through its parts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.replay import nodes
from tests.replay.__main__ import main

PEER = Path(os.environ.get("TOPOGATE_PEER_VECTORS", Path(__file__).parents[2] / ".." / "shared" / "vectors" / "peer"))
INPUT = {"id", "kind", "gates", "now", "objects", "requests", "fault", "node", "node_name", "old_node", "pod", "old_pod", "event"}


def existing() -> Path:
    path = PEER / "nodes.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not here; TOPOGATE_PEER_VECTORS names the folder of the peer's vectors")
    return path


def load() -> list[dict[str, Any]]:
    return [json.loads(line) for line in existing().read_text().splitlines()]


def test_every_case_passes_by_the_command_but_for_named_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 9."""
    assert main(["nodes", str(existing())]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "94 passed, 0 failed"


def test_each_rule_is_needed_and_the_gates_of_a_reconcile_are_touched_seldom() -> None:
    cases = load()
    touched = {case["id"]: sentence for case in cases if (sentence := nodes.rule(case)) is not None}
    for rule in nodes.RULES:
        assert rule.sentence in touched.values()
    assert len([case for case in cases if case["kind"] == "reconcile" and case["id"] in touched]) <= 7


def test_answers_need_no_expected_part() -> None:
    for case in load():
        blind = {key: value for key, value in case.items() if key in INPUT}
        assert nodes.answer(blind) == nodes.answer(case)
        assert nodes.rule(blind) == nodes.rule(case)


def test_an_answer_that_differs_is_told() -> None:
    case = next(case for case in load() if case["kind"] == "reconcile" and nodes.rule(case) is None)
    got = nodes.answer(case)
    assert nodes.differences(case, got) == []
    assert nodes.differences(case, {**got, "pods_after": ["default/another"]}) != []
