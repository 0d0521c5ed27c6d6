"""Kills the processes of a cluster when the process that started them is gone, however it ended.

Started beside a cluster (`python -m e2e.guard`) with a pipe as standard input: `+PID` to watch over a process, `-PID`
when it was stopped properly, `=FOLDER` for what may not be left behind (data in memory, say). The end of the pipe means
that the owner is gone, be it by SIGKILL, and what is still on the list is killed. Not PR_SET_PDEATHSIG: that fires when
the *thread* that forked ends, which a test's worker thread does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from typing import IO


def watch_over(lines: IO[str]) -> tuple[set[int], set[str]]:
    """The processes still alive by the owner's account when its pipe ended, and the folders to be removed after them."""
    alive: set[int] = set()
    folders: set[str] = set()
    for line in lines:
        told = line[1:].rstrip("\n")
        if line.startswith("="):
            folders.add(told)
        elif line.startswith("+"):
            alive.add(int(told))
        else:
            alive.discard(int(told))
    return alive, folders


def main() -> None:
    alive, folders = watch_over(sys.stdin)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
