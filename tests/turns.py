"""Turns for tests on control planes, where all processors are busy: they then play two at a time instead of four.

Tests wait most of their time, so there are more processes than processors (`tests/workers.py`). On a slow machine they do not: each then
keeps the others waiting, and what has a limit of time in topogate or in Kubernetes, as a review has, comes too late. As many tests as there
are processors always play; one more does where the processors have time for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from e2e.process import open_lock_file

CROWD = 4
"""So many tasks for each processor, running or ready to run, are too many to begin one more test."""
LOOKS, LOOK_S = 10, 0.1


def count_running(path: Path = Path("/proc/stat")) -> float:
    """How many tasks run or are ready to, on average over a second; 0 where the kernel does not tell."""
    if not path.exists():
        return 0.0
    seen = 0
    for _ in range(LOOKS):
        seen += next((int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("procs_running")), 0)
        time.sleep(LOOK_S)
    return seen / LOOKS


class Turns:
    """Of all test runs of this user together: a turn is a locked byte of one file, so that it ends with the process at the latest."""

    def __init__(self, folder: Path | None = None, processors: int = os.cpu_count() or 1) -> None:
        self._processors = processors
        self._file = open_lock_file("turns", folder or Path(tempfile.gettempdir()))

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Waits for a turn, or for processors that are not crowded."""
        while (turn := self._find_free()) is None and count_running() > CROWD * self._processors:
            pass
        try:
            yield
        finally:
            if turn is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, turn)

    def _find_free(self) -> int | None:
        for turn in range(self._processors):
            with contextlib.suppress(OSError):
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, turn)
                return turn
        return None
