"""The encoding vectors, through `python -m tests.replay`: read as the peer means it, written no longer than the peer does."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.replay import encoding
from tests.replay.__main__ import main

GENERATED = Path(__file__).parents[1] / "vectors" / "encoding" / "encoding.jsonl"
PEER = Path(os.environ.get("TOPOGATE_PEER_VECTORS", Path(__file__).parents[3] / "shared" / "vectors" / "peer")) / "encoding.jsonl"
INPUTS = {"decode": ["v1beta2"], "size": ["scheme", "nodes"], "convert": ["to", "input"], "convert_round_trip": ["input"]}


def load(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        pytest.skip(f"{path} is not here; TOPOGATE_PEER_VECTORS names the folder of the peer's vectors")
    return [json.loads(line) for line in path.read_text().splitlines()]


def list_kept(path: Path) -> list[dict[str, Any]]:
    return [case for case in load(path) if encoding.leave_out(case) is None]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "count"), [(GENERATED, 88), (PEER, 89)], ids=["generated", "peer"])
def test_every_case_passes_by_the_command(path: Path, count: int, capsys: pytest.CaptureFixture[str]):
    load(path)
    assert main(["encoding", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{count} passed, 0 failed"


@pytest.mark.parametrize("path", [GENERATED, PEER], ids=["generated", "peer"])
def test_answers_need_the_input_only(path: Path):
    for case in list_kept(path):
        if case["kind"] != "size":
            blind = {name: case[name] for name in ("id", "kind", *INPUTS.get(case["kind"], ["internal"]))}
            assert encoding.answer(blind) == encoding.answer(case), case["id"]
            assert encoding.rule(blind) == encoding.rule(case), case["id"]


def test_two_cases_in_a_hundred_at_most_are_others_by_rule():
    cases = list_kept(GENERATED) + list_kept(PEER)
    assert sum(encoding.rule(case) is not None for case in cases) <= len(cases) * 2 // 100


def test_only_inner_steps_and_helpers_are_left_out():
    left_out = {case["kind"] for case in load(PEER) if encoding.leave_out(case)}
    assert left_out == {
        *("prefix_keys", "domain_runs"),
        *("has_node", "node_name_from_domain", "domain_belongs_to", "max_nodes"),
    }
    assert not any(map(encoding.leave_out, load(GENERATED)))


@pytest.mark.parametrize("mistake", ["domain", "field", "lossy", "cut"])
def test_a_wrong_conversion_is_found(mistake: str):
    to = "v1beta2" if mistake == "cut" else "v1beta1"
    case = max(
        (case for case in list_kept(PEER) if case["kind"] == "convert" and case["to"] == to), key=lambda case: len(str(case["input"]))
    )
    got = copy.deepcopy(encoding.answer(case))
    assert encoding.differences(case, got) == []
    (given,) = got["output"]["status"]["admission"]["podSetAssignments"]
    if mistake == "domain":
        given["topologyAssignment"]["domains"].pop()
    elif mistake == "field":
        given["count"] = 3
    elif mistake == "cut":
        given["topologyAssignment"]["slices"][0]["podCounts"] = {"individual": [10, 21]}
    else:
        del got["output"]["metadata"]["annotations"]
    assert encoding.differences(case, got) != []


@pytest.mark.parametrize("mistake", ["longer", "order", "lost", "unreadable", "decoded"])
def test_a_wrong_answer_is_found(mistake: str):
    case = next(case for case in load(GENERATED) if len(case["internal"]["domains"]) > 2 and len(case["internal"]["levels"]) == 1)
    if mistake == "decoded":
        case = {"id": "x", "kind": "decode", "v1beta2": case["v1beta2"], "internal": case["internal"]}
    got = encoding.answer(case)
    assert encoding.differences(case, got) == []
    if mistake == "longer":
        got["v1beta2"]["slices"][0]["comment"] = "x" * 1000
    elif mistake == "order":
        got["v1beta2"]["slices"][0]["valuesPerLevel"][0]["individual"]["roots"].reverse()
    elif mistake == "lost":
        got["v1beta2"]["slices"].pop()
    elif mistake == "unreadable":
        got["v1beta2"]["slices"][0]["domainCount"] += 1
    else:
        got["internal"]["domains"].pop()
    assert len(encoding.differences(case, got)) == 1
