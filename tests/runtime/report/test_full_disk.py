"""Both processes where no byte can be written to any disk: nothing that they do needs one, and no line of a log is worth more than that.

What they write at all are log lines on stderr, which a runtime puts on a node's disk. Here it is a file on a file system that is full, as
is the folder for temporary files; the rest of the machine is read-only. Certificates are read, and what is made goes into memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.runtime.report.probes import HEALTH, METRICS
from e2e import manifests
from e2e.api import wait_for
from e2e.process import find_free_ports
from tests.webhook.asking import MUTATE_JOB, build_body
from tests.webhook.test_process import PAIR, ROOT, ask, is_closed, write_kubeconfig

pytestmark = pytest.mark.slow  # whole processes
SCRIPT = """
mount --make-rprivate /
mount -t tmpfs -o size=64k none "$1"
mount -o remount,bind,ro /
exec 2>"$1/log"
export TMPDIR="$1"
cat /dev/zero >"$1/rest" 2>/dev/null || true
shift
exec "$@"
"""


class FullDisk:
    """A process beside a full file system of its own."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._disk = folder / "disk"
        self._disk.mkdir()
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as nobody has to know to set it
        self.process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc", SCRIPT, "sh", str(self._disk), *command],
            cwd=ROOT,
            env=buffered,
        )

    def path(self, name: str) -> Path:
        """As seen from outside."""
        return Path(f"/proc/{self.process.pid}/root{self._disk}/{name}")

    def make_room(self) -> None:
        self.path("rest").unlink()


@contextlib.contextmanager
def running(folder: Path, *command: str) -> Iterator[FullDisk]:
    disk = FullDisk(folder, sys.executable, "-m", *command)
    try:
        yield disk
    finally:
        disk.process.kill()
        disk.process.wait()


def wait_served(disk: FullDisk, port: int) -> None:
    wait_for("it to serve", lambda: disk.process.poll() is not None or not is_closed(port), poll_s=0.02)
    assert disk.process.poll() is None
    with pytest.raises(OSError, match="No space left on device"):
        disk.path("more").write_bytes(b"x" * 4096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tls.crt").write_bytes(PAIR.certificate)
    (tmp_path / "tls.key").write_bytes(PAIR.key)
    write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    return tmp_path


@pytest.mark.parametrize("makes_room", [False, True])
def test_the_webhook_answers_reviews_and_ends_in_good_order(folder: Path, makes_room: bool):
    port, metrics = find_free_ports(2)
    files = [f"--cert-file={folder}/tls.crt", f"--key-file={folder}/tls.key", f"--kubeconfig={folder}/kubeconfig"]
    with running(folder, "webhook", "--host=127.0.0.1", f"--port={port}", f"--metrics-port={metrics}", *files) as disk:
        wait_served(disk, port)
        for _ in range(20):
            status, answer = ask(port, build_body(manifests.build_job("train", "team-a", pods=1)))
            assert (status, answer["response"]["allowed"]) == (200, True)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}{METRICS}", timeout=120) as reply:
            assert f'topogate_reviews_total{{path="{MUTATE_JOB}",result="allowed"}} 20.0' in reply.read().decode()
        with disk.path("log").open() as log:
            assert log.read() == ""
            if makes_room:
                disk.make_room()
            disk.process.send_signal(signal.SIGTERM)
            assert disk.process.wait(20) == 0
            assert [json.loads(line)["message"] for line in log.read().splitlines()] == (["stopping"] if makes_room else [])


def test_the_reconciler_lives_on_and_ends_in_good_order(folder: Path):
    health, metrics = find_free_ports(2)
    ports = [f"--health-port={health}", f"--metrics-port={metrics}", "--health-address=127.0.0.1"]
    with running(folder, "reconciler", f"--kubeconfig={folder}/kubeconfig", *ports) as disk:
        wait_served(disk, health)
        for path, port in ((HEALTH, health), (METRICS, metrics)):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as reply:
                assert reply.status == 200
        disk.process.send_signal(signal.SIGTERM)
        assert disk.process.wait(20) == 0


def test_a_certificate_of_its_own_needs_no_disk_either(folder: Path):
    """It is issued at the start, and handed to OpenSSL, which only reads files."""
    (port,) = find_free_ports(1)
    own = ["--cert-mode=own", "--cert-secret=certs", "--cert-namespace=ns", "--cert-dns-name=localhost", "--cert-configuration=mutating/m"]
    served = ["--host=127.0.0.1", f"--port={port}", "--metrics-port=0", f"--kubeconfig={folder}/kubeconfig"]
    with running(folder, "webhook", *own, *served) as disk:
        wait_served(disk, port)
        disk.process.send_signal(signal.SIGTERM)
        assert disk.process.wait(20) == 0
