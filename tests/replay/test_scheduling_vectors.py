"""The vectors of the scheduler's cycles and second passes, through `python -m tests.replay` and through its parts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.replay import scheduling
from tests.replay.__main__ import main

PEER = Path(os.environ.get("TOPOGATE_PEER_VECTORS", Path(__file__).parents[2] / ".." / "shared" / "vectors" / "peer"))
FILES = {"second_pass": 54, "schedule_extra": 39}
_INPUT = (
    "id kind gates attempt workload workloads pass_time_seconds update_iteration update_workload nodes pods topologies admission_checks "
    "resource_flavors cluster_queues local_queues resource_transformations patch_status_error concurrent_update pods_ready_tracking "
    "second_pass_workloads now"
)
INPUT = _INPUT.split()


def existing(name: str) -> Path:
    path = PEER / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not here; TOPOGATE_PEER_VECTORS names the folder of the peer's vectors")
    return path


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in existing(name).read_text().splitlines()]


@pytest.mark.parametrize("name", FILES)
def test_every_case_passes_by_the_command_but_for_named_rules(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 9."""
    assert main(["scheduling", str(existing(name))]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{FILES[name]} passed, 0 failed"


def test_each_rule_is_needed_and_few_cases_are_touched_by_one() -> None:
    cases = [case for name in FILES for case in load(name)]
    touched = {case["id"]: sentence for case in cases if (sentence := scheduling.rule(case)) is not None}
    for rule in scheduling.RULES:
        assert rule.sentence in touched.values()
    beyond_design = [name for name, sentence in touched.items() if not sentence.startswith(("i: ", "h: "))]
    assert len(beyond_design) <= 3


def test_answers_need_no_expected_part() -> None:
    for name in FILES:
        for case in load(name):
            blind = {key: value for key, value in case.items() if key in INPUT}
            assert scheduling.answer(blind) == scheduling.answer(case)
            assert scheduling.rule(blind) == scheduling.rule(case)


def test_an_answer_that_differs_is_told() -> None:
    for case in load("second_pass"):
        if case["kind"] == "schedule_cycle":
            other = scheduling.answer(case)
            for wire in other["workloads_after"]:
                wire["status"] = {"conditions": [{"type": "Finished", "status": "True", "reason": "Odd"}]}
            assert scheduling.differences(case, other)
