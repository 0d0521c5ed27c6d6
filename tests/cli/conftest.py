"""The command, ready to run."""

from pathlib import Path

import pytest

from tests.cli.commands import Commands


@pytest.fixture
def topogate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    return Commands(capsys, tmp_path)
