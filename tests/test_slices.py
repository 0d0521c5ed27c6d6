"""Processes of tests have long turns on the processor, and what they start has them, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.slices import use_long_slices

PROGRAM = """
import os, subprocess, sys
from tests.slices import use_long_slices
used = use_long_slices()
child = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]
print(used, os.sched_getscheduler(0), subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip())
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has the policy SCHED_BATCH")
def test_slices_of_a_process_are_long_and_those_of_its_children_as_well():
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    if told[0] == "False":
        pytest.skip("the system call is refused here, as in some containers")
    assert told == ["True", str(os.SCHED_BATCH), str(os.SCHED_BATCH)]


def test_slices_on_another_system_stay_as_they_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert not use_long_slices()
