"""docs/queues.md: its YAML is a cluster's queues as they stand, and the defaults it names are those of the API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.api.kinds.queue_kinds import ClusterQueueSpec
from core.names import QUEUE_NAME_LABEL
from tests.cli.commands import EXAMPLES, Commands
from tests.docs.console import DOCS

TEXT = (DOCS / "queues.md").read_text()
(SHARED,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
DEFAULTS = re.findall(r"^\| `([\w.]+)` \| \*\*(\w+)\*\*", TEXT, re.MULTILINE)


@pytest.fixture
def topogate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    return Commands(capsys, tmp_path)


def test_two_teams_queues_take_a_job_and_borrow(topogate: Commands) -> None:
    topology, flavor, *_ = yaml.safe_load_all((EXAMPLES / "queues.yaml").read_text())
    queues = topogate.write("queues.yaml", topology, flavor, *yaml.safe_load_all(SHARED))
    nodes = EXAMPLES / "offline" / "nodes.yaml"
    job = yaml.safe_load((EXAMPLES / "job-two-levels.yaml").read_text())
    job["metadata"]["labels"][QUEUE_NAME_LABEL] = "vision"
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", job), "--nodes", nodes, "--nodes", queues)
    assert (ran.code, ran.err) == (0, "")
    assert "would be admitted by ClusterQueue vision" in ran.out


def test_defaults_are_those_of_the_api() -> None:
    assert len(DEFAULTS) == 7
    shipped: dict[str, Any] = ClusterQueueSpec().model_dump(by_alias=True)
    for path, default in DEFAULTS:
        found: Any = shipped
        for key in path.split("."):
            found = found[key]
        assert (path, found) == (path, default)
