"""A copy of a process that has imported topogate behaves as `python -m` does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from e2e.warm import Copy

SERVES = ("--kubeconfig", "/nowhere", "--metrics-port", "0", "--health-port", "0")


def test_copy_that_refuses_its_arguments_ends_with_exit_code_of_program(tmp_path: Path):
    log = tmp_path / "log"
    copy = Copy("reconciler", ["--feature-gates", "TASNoSuchThing=true"], log, os.environ)
    assert copy.wait(60) == 2
    assert log.read_text().startswith("python -m reconciler: argument --feature-gates: ")


def test_copy_has_environment_that_it_is_given(tmp_path: Path):
    log = tmp_path / "log"
    copy = Copy("reconciler", SERVES, log, {**os.environ, "TOPOGATE_LOG_LEVEL": "no-such-level"})
    assert copy.wait(60) == 2
    assert "no-such-level" in log.read_text()


def test_copy_that_is_killed_has_signal_as_exit_code(tmp_path: Path):
    copy = Copy("timeit", ["-n", "1000000000", "pass"], tmp_path / "log", os.environ)
    with pytest.raises(subprocess.TimeoutExpired):
        copy.wait(0.0)
    assert copy.poll() is None
    copy.kill()
    assert copy.wait(60) == -signal.SIGKILL
    copy.send_signal(signal.SIGTERM)  # nobody is there any more
