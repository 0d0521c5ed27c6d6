"""What both processes log at the finest level while jobs come and go: JSON lines that can be put together, and nothing secret."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.reconciler.scenes import Scene

Line = dict[str, Any]


@pytest.fixture
def topogate(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> Topogate:
    monkeypatch.setenv("TOPOGATE_LOG_LEVEL", "DEBUG")
    return installed.run(is_fresh=True)


def list_lines(log: Path) -> list[Line]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def list_tokens(topogate: Topogate) -> list[str]:
    """With what each process shows who it is."""
    files = [yaml.safe_load(path.read_text()) for path in topogate._kubeconfigs.values()]
    return [user["user"]["token"] for file in files for user in file["users"]]


def test_lines_are_json_with_ids_and_no_secrets(cluster: Cluster, topogate: Topogate) -> None:
    scene = Scene(cluster).open()
    scene.submit("fits", pods=2, gpus=1, required=scene.rack)
    scene.submit("waits", pods=9, gpus=8, required=scene.rack)
    scene.until_bound("fits", 2)
    scene.until_waiting("waits", "TopologyPlacementFailed")
    scene.close()
    assert topogate.webhook is not None
    assert topogate.reconciler is not None
    logs = [topogate.webhook.log, topogate.reconciler.log]
    for log in logs:
        for line in list_lines(log):
            assert {"time", "level", "logger", "message"} <= line.keys()
    runs: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for line in list_lines(topogate.reconciler.log):
        assert ("controller" in line) == ("reconcile_id" in line) == ("key" in line)
        if "controller" in line:
            runs[line["reconcile_id"]].add((line["controller"], line["key"]))
    assert runs
    assert all(len(of_one) == 1 for of_one in runs.values()), "an id is of one run"
    for text in (log.read_text() for log in logs):
        assert "PRIVATE KEY" not in text
        assert "Bearer" not in text
        for token in list_tokens(topogate):
            assert not any(part in text for part in (token, *token.split(".")[1:]))
