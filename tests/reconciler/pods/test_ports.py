"""The reconciler as a process whose API server is not there: its ports, its probes, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.api import wait_for
from e2e.process import find_free_ports
from reconciler.settings import parse
from tests.scraped import Scraped
from tests.webhook.test_process import write_kubeconfig

ROOT = Path(__file__).parents[3]


def command(folder: Path, *flags: str) -> list[str]:
    write_kubeconfig(folder, "http://127.0.0.1:9")
    return [sys.executable, "-m", "reconciler", "--health-address", "127.0.0.1", "--kubeconfig", str(folder / "kubeconfig"), *flags]


@contextmanager
def running(folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log, subprocess.Popen(command(folder, *flags), cwd=ROOT, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str] | None:
    """None as long as nobody listens."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return None


def test_ports_have_defaults_that_a_deployment_needs_not_repeat():
    settings = parse([])
    assert (settings.health_address, settings.health_port, settings.metrics_port) == ("0.0.0.0", 8081, 8080)
    settings = parse(["--health-port", "0", "--metrics-port", "0"])
    assert (settings.health_port, settings.metrics_port) == (0, 0)


@pytest.mark.parametrize("flag", ["--health-port", "--metrics-port"])
@pytest.mark.parametrize("value", ["65536", "x", "-1", "00"])
def test_port_flag_with_an_invalid_port_is_rejected_in_one_line(flag: str, value: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parse([f"{flag}={value}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"argument {flag}: '{value}' " in line


@pytest.mark.parametrize("flags", [(), ("--no-leader-election",)])
def test_reconciler_that_has_not_listed_everything_is_alive_but_not_ready(tmp_path: Path, flags: tuple[str, ...]):
    health, metrics = find_free_ports(2)
    with running(tmp_path, "--health-port", str(health), "--metrics-port", str(metrics), *flags) as process:
        wait_for("it to answer", lambda: get(metrics, "/metrics"), poll_s=0.02)
        assert get(health, "/healthz") == (200, "ok")
        status, why = get(health, "/readyz") or (0, "")
        assert status == 503
        assert why.startswith("not ok: not listed yet: ")
        assert get(health, "/metrics") == (404, "404: Not Found")
        status, text = get(metrics, "/metrics") or (0, "")
        found = Scraped(text)
        assert (status, found.value("topogate_leader")) == (200, 0)
        assert found.rows("kueue_pending_workloads", "cluster_queue") == {}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert [json.loads(line)["level"] for line in (tmp_path / "log").read_text().splitlines()].count("error") == 0


def test_where_they_are_served_may_stand_in_the_file(tmp_path: Path):
    health, metrics = find_free_ports(2)
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        f"health: {{healthProbeBindAddress: '127.0.0.1:{health}'}}\nmetrics: {{bindAddress: '127.0.0.2:{metrics}'}}\n"
    )
    write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    flags = ["--config", str(file), "--kubeconfig", str(tmp_path / "kubeconfig")]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([sys.executable, "-m", "reconciler", *flags], cwd=ROOT, stderr=log) as process,
    ):
        try:
            wait_for("metrics", lambda: get(metrics, "/metrics", "127.0.0.2"), poll_s=0.02)
            assert get(health, "/healthz") == (200, "ok")
            assert get(metrics, "/metrics") is None
        finally:
            process.kill()


def test_a_port_that_is_taken_ends_it_with_one_clear_line(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ["--health-port", str(taken.getsockname()[1]), "--metrics-port", "0"]
        done = subprocess.run(command(tmp_path, *flags), cwd=ROOT, capture_output=True, text=True, check=False)
    (line,) = map(json.loads, done.stderr.splitlines())
    assert (done.returncode, line["level"], line["message"]) == (1, "error", "the reconciler cannot start")
    assert "address already in use" in line["error"]


LOSES = """
import sys
import reconciler.__main__ as process
from core.runtime.lease import LeadershipLost

async def serve(*_):
    raise ExceptionGroup("root", [ExceptionGroup("leader", [LeadershipLost("the lease x is held by another")])])

process.serve = serve
sys.exit(process.main([]))
"""


def test_process_that_lost_its_lease_ends_with_one_line():
    done = subprocess.run([sys.executable, "-c", LOSES], cwd=ROOT, capture_output=True, text=True, check=False)
    [line] = map(json.loads, done.stderr.splitlines())
    assert (done.returncode, line["message"], line["error"]) == (
        1,
        "the reconciler ends: another process leads",
        "the lease x is held by another",
    )
    assert "Traceback" not in done.stderr
