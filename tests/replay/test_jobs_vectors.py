"""The vectors of jobs, validation and podsets, through `python -m tests.replay` and through its parts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.jobs.kinds.registry import KINDS
from core.jobs.templated import TemplatedKind
from tests.replay import kinds, podsets, validation
from tests.replay.__main__ import FAMILIES, main
from tests.replay.rules import RULES

HERE = Path(__file__).parents[1] / "vectors" / "validation" / "validation.jsonl"
PEER = Path(os.environ.get("TOPOGATE_PEER_VECTORS", Path(__file__).parents[2] / ".." / "shared" / "vectors" / "peer"))
FILES = {
    "generated": ("validation", HERE),
    "peer": ("validation", PEER / "validation.jsonl"),
    "podsets": ("podsets", PEER / "podsets.jsonl"),
}


def existing(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is not here; TOPOGATE_PEER_VECTORS names the folder of the peer's vectors")
    return path


def cases(family: str, path: Path) -> Iterator[dict[str, Any]]:
    for line in existing(path).read_text().splitlines():
        case = json.loads(line)
        if not FAMILIES[family].leave_out(case):
            yield case


@pytest.mark.parametrize("name", FILES)
def test_every_case_passes_by_the_command_but_for_named_rules(name: str, capsys: pytest.CaptureFixture[str]):
    """Issue 6."""
    family, path = FILES[name]
    assert main([family, str(existing(path))]) == 0
    passed, _, rest = capsys.readouterr().out.splitlines()[-1].partition(" passed, ")
    assert rest == "0 failed"
    assert int(passed) > 90


def touched() -> Iterator[tuple[str, str]]:
    for family, path in FILES.values():
        for case in cases(family, path):
            yield case["id"], (validation if family == "validation" else podsets).rule(case) or ""


def test_each_rule_is_needed_and_few_go_beyond_the_design():
    found = dict(touched())
    for rule in RULES:
        assert any(rule.sentence in sentences for sentences in found.values()), rule.sentence
    lettered = [rule.sentence for rule in RULES if rule.sentence[1] == ":"] + [validation.UNKNOWN_LEVEL]
    beyond = [name for name, sentences in found.items() if sentences and not any(sentence in sentences for sentence in lettered)]
    assert len(beyond) <= 0.02 * len(found)


def test_no_case_without_a_rule_may_differ():
    """What the rules explain is looked at only where one touches a case."""
    case = next(case for case in cases("validation", HERE) if case["kind"] == "job" and not case["admitted"] and not validation.rule(case))
    assert validation.differences(case, {"admitted": True, "errors": []})
    assert validation.differences(case, {"admitted": False, "errors": [{"type": "FieldValueInvalid", "field": "spec"}]})


def test_answers_need_no_expected_part(tmp_path: Path):
    expected = {"errors", "pod_sets", "topology_request", "object_after", "workloads_after", "events", "info", "admitted", "attempts"}
    for name, (which, path) in FILES.items():
        family, blind, out = FAMILIES[which], tmp_path / f"{name}.jsonl", tmp_path / f"{name}-out.jsonl"
        blind.write_text("".join(json.dumps({k: v for k, v in case.items() if k not in expected}) + "\n" for case in cases(which, path)))
        assert main([which, str(blind), "--answers", str(out)]) == 0
        answers = {record["id"]: record["answer"] for record in map(json.loads, out.read_text().splitlines())}
        assert all(family.differences(case, answers[case["id"]]) == [] for case in cases(which, path))


def test_every_kind_has_cases():
    seen = {case["framework"] for family, path in FILES.values() for case in cases(family, path) if case.get("framework")}
    assert {kind.kind for kind in KINDS if isinstance(kind, TemplatedKind)} <= {
        kinds.kind_of({"framework": name}).kind for name in seen - {"workload"}
    }
