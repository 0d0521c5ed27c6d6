"""One process of the control plane: started with its log in a file, watched until it is healthy, stopped by its id."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType

from e2e.warm import Copy

START_TIMEOUT_S = 600.0
POLL_S = 0.05
LOG_TAIL_LINES = 25
PORTS = range(20_000, 30_000)
_random = random.SystemRandom()  # what tests seed must not give two of them the same ports
_reserved = set[int]()  # by this process


class StartFailed(Exception):
    """A part ended or stayed unhealthy while starting; the message has its name and the end of its log."""


def find_free_ports(count: int) -> list[int]:
    """Distinct ports that were free on all addresses a moment ago.

    None that the kernel hands out by itself on Linux, from 32768 on: whoever connects to somebody meanwhile would get it. And none that
    was given before to this process, or to another one of this user that still runs.
    """
    found: list[int] = []
    for port in _random.sample(PORTS, len(PORTS)):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("", port))
            if _reserve_port(port):
                found.append(port)
        if len(found) == count:
            return found
    raise StartFailed(f"{count} ports are wanted, and of those from {PORTS.start} to {PORTS.stop - 1} only {len(found)} are free")


def _reserve_port(port: int) -> bool:
    """Whether a port is ours until this process ends, which no other process of this user has: also while nothing listens on it, as what
    did is started anew. Each locks the bytes of its ports in one file."""
    if port in _reserved:
        return False
    with contextlib.suppress(OSError):
        fcntl.lockf(_open_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        _reserved.add(port)
        return True
    return False


@cache
def _open_reservations() -> int:
    return open_lock_file("ports", Path(tempfile.gettempdir()))


def open_lock_file(name: str, folder: Path) -> int:
    """A file of this user of which processes lock bytes with `lockf`: they hold them until they end at the latest. Open it once in a
    process, since what is locked is free again when any descriptor of it is closed."""
    path = folder / f"topogate-{name}-{os.getuid()}.lock"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class Guard:
    """The owner's side of `e2e.guard`: tells it which processes must not outlive this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "e2e.guard"],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parent.parent,
        )

    def add(self, pid: int) -> None:
        self._tell(f"+{pid}")

    def remove(self, pid: int) -> None:
        self._tell(f"-{pid}")

    def remove_in_the_end(self, folder: Path) -> None:
        """Once the owner is gone and its processes are killed."""
        self._tell(f"={folder}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)


class Process:
    """A named part. It has its own session, so that Ctrl-C reaches only the owner, which then stops all in order."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        guard: Guard | None,
        env: Mapping[str, str] | None = None,
        copy: Copy | None = None,
    ) -> None:
        """`copy` runs already, with that log, in place of the command."""
        self.name = name
        self.log = log
        self._guard = guard
        if copy is not None:
            self._popen: subprocess.Popen[bytes] | Copy = copy
        else:
            with log.open("ab") as out:
                self._popen = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
                )
        if guard is not None:
            guard.add(self.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, negative where a signal ended it."""
        return self._popen.poll()

    def wait_healthy(self, url: str, headers: Mapping[str, str] | None = None, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once `url` answers 200; raise `StartFailed` as soon as the process ends, or when time is up."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.is_running:
                raise StartFailed(f"{self.name} ended with code {self._popen.returncode} while starting; {self.describe_log()}")
            if _answers(url, headers or {}):
                return
            time.sleep(POLL_S)
        raise StartFailed(f"{self.name} was not healthy within {timeout_s:.0f} s; {self.describe_log()}")

    def terminate(self) -> None:
        """Asks it to end, and does not wait."""
        self._popen.send_signal(signal.SIGTERM)

    def stop(self, grace_s: float) -> None:
        """End it: politely for `grace_s`, then for certain (at once if zero). It may have ended by itself."""
        if self.is_running and grace_s > 0:
            self._popen.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=grace_s)
        if self.is_running:
            self._popen.kill()
        self._popen.wait(timeout=120)
        if self._guard is not None:
            self._guard.remove(self.pid)

    def abandon(self) -> None:
        """Let it outlive this process without a complaint about an unreaped child at exit."""
        assert isinstance(self._popen, subprocess.Popen), "a copy ends with its owner"
        self._popen.returncode = 0

    def describe_log(self) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return f"the end of {self.log}:\n" + "\n".join(tail)


def trust_anybody() -> ssl.SSLContext:
    """For what asks for health only: whether a certificate is right is for the clients that carry credentials to check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the default context would read all certificates of the machine for nothing
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _answers(url: str, headers: Mapping[str, str]) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust_anybody()))
    try:
        with opener.open(urllib.request.Request(url, headers=dict(headers)), timeout=10) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def is_alive(pid: int, mark: str) -> bool:
    """Whether that process runs and names `mark` among its arguments: an id alone may long belong to another one."""
    try:
        return mark in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return False


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
