"""What docs/command.md shows is what the command prints."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.cli.commands import ROOT, Commands

TEXT = (ROOT / "docs" / "command.md").read_text()
BLOCKS = re.findall(r"^```console\n\$ topogate (.*)\n((?:.*\n)*?)```$", TEXT, re.MULTILINE)
OFFLINE = [(command, shown) for command, shown in BLOCKS if "--nodes" in command]
CODES = {"job-one-rack": 3, "job-three-mistakes": 2}


@pytest.mark.parametrize(("command", "shown"), OFFLINE, ids=[command[:40] for command, _ in OFFLINE])
def test_documented_command_prints_the_documented_output(topogate: Commands, monkeypatch: pytest.MonkeyPatch, command: str, shown: str):
    monkeypatch.chdir(ROOT)
    ran = topogate.run(*shlex.split(command))
    assert ran.code == next((code for name, code in CODES.items() if name in command), 0)
    if shown.endswith("...\n"):
        assert ran.out.startswith(shown.removesuffix("...\n"))
    elif ran.code == 2:
        assert (ran.out, ran.err) == ("", shown)
    elif shown:
        assert ran.out == shown


def test_each_word_is_shown_offline_or_needs_a_cluster():
    assert len(OFFLINE) == 7
    assert all(shown for command, shown in OFFLINE), "each with what it prints"
    assert {command for command, _ in BLOCKS} - {command for command, _ in OFFLINE} == {
        "explain job one-rack",
        "queue research",  # tests/cli/test_queue.py
        "topology --seats --svg tree.svg",
    }
