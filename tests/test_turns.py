"""Tests on control planes wait for one another where the processors are crowded, and only there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import turns
from tests.turns import Turns, count_running

PROGRAM = """
import sys
from collections.abc import Iterator
from pathlib import Path
from tests.turns import Turns
with Turns(Path(sys.argv[1]), processors=1).take():
    print("has it", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which has the only turn."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"has it\n"
        yield process
        process.stdin.close()


def test_turn_of_another_process_is_waited_for_while_processors_are_crowded(
    holder: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looks: list[bool] = []

    def look() -> float:
        looks.append(holder.poll() is None)
        if len(looks) == 3:
            holder.kill()
            holder.wait()
        return turns.CROWD + 0.1

    monkeypatch.setattr(turns, "count_running", look)
    with Turns(tmp_path, processors=1).take():
        assert looks == [True, True, True]


def test_no_turn_is_needed_where_processors_have_time(holder: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turns, "count_running", lambda: float(turns.CROWD))
    with Turns(tmp_path, processors=1).take():
        assert holder.poll() is None


def test_turn_is_given_back_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turns, "count_running", lambda: pytest.fail("it had to wait"))
    with Turns(tmp_path, processors=1).take():
        pass
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert done.stdout == b"has it\n"


def test_running_tasks_are_averaged_over_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stat = tmp_path / "stat"
    stat.write_text("cpu 1 2 3\nprocs_running 6\nprocs_blocked 1\n")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        stat.write_text("cpu 1 2 3\nprocs_running 2\n")

    monkeypatch.setattr("time.sleep", sleep)
    assert count_running(stat) == (6 + 9 * 2) / 10
    assert sum(slept) == pytest.approx(1.0)


def test_system_that_does_not_tell_is_not_crowded(tmp_path: Path):
    assert count_running(tmp_path / "stat") == 0
