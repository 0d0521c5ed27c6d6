"""The placement vectors, through `python -m tests.replay` and through its parts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replay import placement
from tests.replay.__main__ import main

HERE = Path(__file__).parent.parent / "vectors"
SHARED = Path(__file__).parents[2] / ".." / "shared" / "vectors"
PEER = Path(os.environ.get("TOPOGATE_PEER_VECTORS", SHARED / "peer"))
FIRST = HERE / "placement" / "placement_first.jsonl"


def load(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        pytest.skip(f"{path} is not here; TOPOGATE_PEER_VECTORS names the folder of the peer's vectors")
    return [json.loads(line) for line in path.read_text().splitlines()]


def wrong(cases: list[dict[str, Any]]) -> dict[str, list[str]]:
    found = {case["id"]: placement.differences(case, placement.answer({k: v for k, v in case.items() if k != "expect"})) for case in cases}
    return {name: differences for name, differences in found.items() if differences}


def test_every_first_case_passes_by_the_command(capsys: pytest.CaptureFixture[str]):
    """Issue 4."""
    assert main(["placement", str(FIRST)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{len(load(FIRST))} passed, 0 failed"


def test_the_examples_of_the_kep_give_its_own_figures():
    cases = load(HERE / "placement" / "placement_kep_examples.jsonl")
    assert len(cases) >= 4
    assert all("kep_counts_per_node" in case for case in cases)
    assert wrong(cases) == {}


@pytest.mark.parametrize("path", ["peer/placement_tables", "peer/placement_calls", "generated/placement"])
def test_every_measured_case_passes(path: str):
    folder, name = path.split("/")
    cases = load((PEER if folder == "peer" else PEER.parent / folder) / f"{name}.jsonl")
    assert len(cases) > 50
    assert wrong(cases) == {}


# --- the command itself -------------------------------------------------------------------------------


def test_an_empty_file_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert main(["placement", str(empty)]) == 1
    assert "has no case" in capsys.readouterr().err


@pytest.mark.parametrize("mistake", ["count", "domain", "ok", "kind"])
def test_a_wrong_expectation_is_listed_by_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str], mistake: str):
    cases = load(FIRST)[:60]
    victim = next(case for case in cases if case["expect"]["ok"] == (mistake != "kind"))
    entry = victim["expect"]["pod_sets"][0]
    if mistake == "count":
        entry["assignment"]["domains"][0]["count"] += 1
    elif mistake == "domain":
        entry["assignment"]["domains"][0]["values"] = ["elsewhere"]
    elif mistake == "ok":
        victim["expect"] = {"ok": False, "pod_sets": [{"name": entry["name"], "failure": {"kind": "not_fit"}}]}
    else:
        entry["failure"]["kind"] = "stale_assignment"
    file = tmp_path / "wrong.jsonl"
    file.write_text("\n".join(map(json.dumps, cases)))
    assert main(["placement", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "59 passed, 1 failed"
    assert [line.partition(":")[0] for line in lines[:-1]] == [victim["id"]]


def test_answers_are_the_same_without_the_expected_part(tmp_path: Path):
    cases = load(FIRST)
    blind = tmp_path / "blind.jsonl"
    blind.write_text("\n".join(json.dumps({key: value for key, value in case.items() if key != "expect"}) for case in cases))
    outs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file, out in zip((FIRST, blind), outs, strict=True):
        assert main(["placement", str(file), "--answers", str(out)]) == 0
    first, second = map(load, outs)
    assert first == second
    assert [record["id"] for record in first] == [case["id"] for case in cases]
    for case, record in zip(cases, first, strict=True):
        assert placement.differences(case, record["answer"]) == []


# --- numbers of a refusal -----------------------------------------------------------------------------


def refusals(cases: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for case in cases:
        ours = {entry["name"]: entry for entry in placement.answer(case)["pod_sets"]}
        for entry in case["expect"]["pod_sets"]:
            if entry.get("failure", {}).get("kind") == "not_fit":
                yield case["id"], entry["failure"], ours[entry["name"]]["failure"]


def test_refusals_state_the_numbers_of_the_vectors():
    """One rule: where the peer leaves nodes that are not ready or cordoned out of its total, we count them and say why they are out."""
    seen = 0
    for name, theirs, ours in refusals(load(FIRST)):
        seen += 1
        assert (ours["fit"], ours["of"], ours["unit"]) == (theirs["fit"], theirs["of"], theirs["unit"]), name
        if "total_nodes" in theirs:
            unusable = {reason: ours["excluded"].pop(reason) for reason in ("NotReady", "unschedulable") if reason in ours["excluded"]}
            assert ours["total_nodes"] - sum(unusable.values()) == theirs["total_nodes"], name
            assert ours["excluded"] == theirs["excluded"], name
    assert seen > 50
