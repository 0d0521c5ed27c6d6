"""Ungating plans against the measured cases: who is ungated, and with which node selector."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.replay.ungater import answer, differences, rule

HERE = Path(__file__).parents[2] / "vectors" / "ungater" / "ungater.jsonl"
PEER = Path(os.environ.get("TOPOGATE_PEER_VECTORS", Path(__file__).parents[3] / ".." / "shared" / "vectors" / "peer")) / "ungater.jsonl"


@pytest.mark.parametrize(("path", "least"), [(HERE, 150), (PEER, 40)], ids=["generated", "peer"])
def test_measured_cases_are_ungated_alike(path: Path, least: int):
    if not path.exists():
        pytest.skip(f"{path} is not here; TOPOGATE_PEER_VECTORS names the folder of the peer's vectors")
    cases: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(cases) >= least
    assert {case["id"]: found for case in cases if (found := differences(case, answer(case)))} == {}
    # At most 2 percent of the family (vectors/README.md), rounded up.
    assert sum(rule(case) is not None for case in cases) <= math.ceil(len(cases) * 0.02)
