"""Kills the processes of a cluster when the process that started them is gone, however it ended.

Started beside a cluster (`python -m e2e.guard`) with a pipe as standard input: `+PID` to watch over a process, `-PID`
when it was stopped properly. The end of the pipe means that the owner is gone, be it by SIGKILL, and what is still on
the list is killed. Not PR_SET_PDEATHSIG: that fires when the *thread* that forked ends, which a test's worker thread does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import IO


def watch_over(lines: IO[str]) -> set[int]:
    """The processes still alive by the owner's account when its pipe ended."""
    alive: set[int] = set()
    for line in lines:
        pid = int(line[1:])
        if line.startswith("+"):
            alive.add(pid)
        else:
            alive.discard(pid)
    return alive


def main() -> None:
    for pid in watch_over(sys.stdin):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
