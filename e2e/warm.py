"""Starts topogate's processes as copies of one that has imported their modules: half a second of CPU less for each of the hundreds that
a run of the tests starts."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["reconciler.__main__", "webhook.__main__"])


class Copy:
    """A process that runs a module as `python -m` does; what `e2e.process.Process` uses of `subprocess.Popen`."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path, env: Mapping[str, str], *, cwd: Path | None = None) -> None:
        """`cwd`: where the process runs, and finds modules first, as with `python -m`."""
        log.touch()
        self._process = _context.Process(target=_run, args=(module, list(arguments), str(log), dict(env), cwd), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_to_its_end(
    module: str, arguments: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
) -> tuple[int, list[str]]:
    """The exit code of a process that ends by itself, and the lines of both of its outputs. It runs in `folder`, where its log is; `env`
    None: as here. Raises subprocess.TimeoutExpired."""
    log = folder / f"{module}.log"
    log.unlink(missing_ok=True)
    copy = Copy(module, arguments, log, os.environ if env is None else env, cwd=folder)
    try:
        return copy.wait(timeout_s), log.read_text().splitlines()
    finally:
        copy.kill()


def _run(module: str, arguments: list[str], log: str, env: dict[str, str], cwd: Path | None) -> None:
    os.setsid()
    if cwd is not None:
        os.chdir(cwd)
        sys.path.insert(0, str(cwd))
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY | os.O_APPEND)):
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    sys.modules.pop(f"{module}.__main__", None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
