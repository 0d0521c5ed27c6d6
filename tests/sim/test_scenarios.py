"""Random lives of a cluster hold, and a seed is the same life each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def play(*arguments: str, hash_seed: str = "0") -> str:
    """In a process of its own: the order of sets is part of what a seed stands for."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "sim.run", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


@pytest.mark.timeout(600)
def test_lives_of_a_cluster_with_faults_hold():
    told = play("--seed", "1", "--count", "5")
    assert "5 of 5 hold" in told
    assert sum(map(int, re.findall(r"(\d+) crashes", told))) > 5, "something went wrong on the way"


@pytest.mark.timeout(600)
def test_seed_is_the_same_life_in_every_process():
    lives = {play("--seed", "2", hash_seed=hash_seed).partition("1 of 1")[0] for hash_seed in ("0", "7")}
    assert len(lives) == 1
