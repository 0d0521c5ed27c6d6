"""Run a long command with its progress in sight.

A first run builds for minutes; somebody who sees nothing for so long believes it hangs. A terminal gets one line
that is rewritten; a log (CI) gets a plain line every `LOG_INTERVAL_S`, few enough to read.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

LOG_INTERVAL_S = 15.0
TTY_INTERVAL_S = 0.5
WIDTH = 110


class CommandFailed(Exception):
    """The command ended with a non-zero code; the message carries the end of what it said."""


class Progress:
    """One line of progress for one task: what it is, how long it has taken, what it does just now."""

    def __init__(self, task: str, out: TextIO | None = None) -> None:
        self.task = task
        self._out = out if out is not None else sys.stderr
        self._tty = self._out.isatty()
        self._start = time.monotonic()
        self._shown_at = float("-inf")

    def update(self, detail: str = "") -> None:
        """Show where the task is, unless it was shown a moment ago."""
        now = time.monotonic()
        if now - self._shown_at < (TTY_INTERVAL_S if self._tty else LOG_INTERVAL_S):
            return
        self._shown_at = now
        self._write(f"==> {self.task}: {now - self._start:.0f} s {detail}")

    def finish(self, outcome: str) -> None:
        """Show the last line, whatever was shown before."""
        self._write(f"==> {self.task}: {outcome} after {time.monotonic() - self._start:.0f} s", last=True)

    def _write(self, line: str, *, last: bool = False) -> None:
        if self._tty:
            self._out.write("\r\x1b[K" + line[:WIDTH] + ("\n" if last else ""))
        else:
            self._out.write(line[:WIDTH] + "\n")
        self._out.flush()


def run_with_progress(task: str, command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run to the end, counting the lines the command prints as steps done; raises `CommandFailed` with its last lines."""
    progress = Progress(task)
    progress.update("starting")
    lines: list[str] = []
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lines.extend, args=(map(str.rstrip, process.stdout),), daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                progress.update(f"({len(lines)} steps) {lines[-1]}" if lines else "")
                time.sleep(0.2)
        except BaseException:
            process.kill()
            raise
        reader.join()
    if process.returncode != 0:
        progress.finish("failed")
        raise CommandFailed(f"{task} failed with code {process.returncode}; its last lines:\n" + "\n".join(lines[-20:]))
    progress.finish("done")
