"""The webhook as a process: wrong flags and files end it with one clear line, a signal lets it finish what it was asked."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from certs import pki
from core.names import QUEUE_NAME_LABEL
from core.runtime.serving.paced_site import AT_ONCE
from e2e import manifests, warm
from e2e.api import wait_for
from e2e.process import find_free_ports
from tests.scraped import Scraped
from tests.webhook.asking import MUTATE_JOB, apply, build_body, patch_of
from webhook.settings import parse

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC)
CA = pki.issue_ca("test", NOW)
PAIR = pki.issue_serving(CA, ["127.0.0.1"], NOW)
FILES = ["--cert-file", "tls.crt", "--key-file", "tls.key"]


# --- flags ----------------------------------------------------------------------------------------------


def test_flags_have_defaults_that_a_deployment_needs_not_repeat():
    settings = parse(FILES)
    assert (settings.host, settings.port, settings.log_level) == ("0.0.0.0", 9443, "INFO")
    assert (settings.kubeconfig, settings.otlp_endpoint) == (None, None)
    assert settings.cert_file == Path("tls.crt")


WRONG_FLAGS = {
    "unknown": ([*FILES, "--prot", "1"], "--prot 1"),
    "abbreviated": ([*FILES, "--por", "1"], "--por 1"),
    "no files": ([], "--cert-file, --key-file"),
    "port of text": ([*FILES, "--port", "https"], "argument --port: 'https' "),
    "port too high": ([*FILES, "--port", "65536"], "argument --port: '65536' "),
    "port 0": ([*FILES, "--port", "0"], "argument --port: '0' "),
    "level": ([*FILES, "--log-level", "LOUD"], "argument --log-level: 'LOUD' "),
    "collector without scheme": ([*FILES, "--otlp-endpoint", "collector:4318"], "argument --otlp-endpoint: 'collector:4318' "),
    "collector by gRPC": ([*FILES, "--otlp-endpoint", "grpc://collector:4317"], "argument --otlp-endpoint: 'grpc://collector:4317' "),
    "collector by json": ([*FILES, "--otlp-protocol", "http/json"], "argument --otlp-protocol: 'http/json' "),
    "more traces than all": ([*FILES, "--trace-ratio", "2"], "argument --trace-ratio: '2' "),
    "no share": ([*FILES, "--trace-ratio", "nan"], "argument --trace-ratio: 'nan' "),
    "no time": ([*FILES, "--trace-slow", "-1"], "argument --trace-slow: '-1' "),
    "collector with a bad port": ([*FILES, "--otlp-endpoint", "http://collector:x"], "argument --otlp-endpoint: 'http://collector:x' "),
}


@pytest.mark.parametrize("name", WRONG_FLAGS)
def test_a_wrong_flag_ends_with_one_clear_line(name: str, capsys: pytest.CaptureFixture[str]):
    arguments, why = WRONG_FLAGS[name]
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m webhook: ")
    assert why in line
    assert "--help" in line


# --- processes ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificate, key, and a kubeconfig of an API server that nobody has started."""
    (tmp_path / "tls.crt").write_bytes(PAIR.certificate)
    (tmp_path / "tls.key").write_bytes(PAIR.key)
    write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    return tmp_path


def write_kubeconfig(folder: Path, server: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config))


def list_arguments(folder: Path, port: int, metrics_port: int = 0) -> list[str]:
    files = ["--cert-file", str(folder / "tls.crt"), "--key-file", str(folder / "tls.key"), "--kubeconfig", str(folder / "kubeconfig")]
    return ["--host", "127.0.0.1", "--port", str(port), "--metrics-port", str(metrics_port), *files]


def command(folder: Path, port: int, metrics_port: int = 0) -> list[str]:
    return [sys.executable, "-m", "webhook", *list_arguments(folder, port, metrics_port)]


def run_to_its_end(folder: Path, port: int, metrics_port: int = 0) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and log lines."""
    code, lines = warm.run_to_its_end("webhook", list_arguments(folder, port, metrics_port), folder)
    return code, [json.loads(line) for line in lines]


@pytest.mark.parametrize("lost", ["tls.crt", "tls.key"])
def test_a_missing_file_ends_it_with_code_1_and_one_line(folder: Path, lost: str):
    (folder / lost).unlink()
    code, (line,) = run_to_its_end(folder, 1)
    assert code == 1
    assert (line["level"], line["message"]) == ("error", "the webhook cannot serve")
    assert f"No such file or directory: '{folder / lost}'" in line["error"]


def test_a_key_of_another_certificate_ends_it_with_code_1_and_one_line(folder: Path):
    (folder / "tls.key").write_bytes(pki.issue_serving(CA, ["127.0.0.1"], NOW).key)
    code, (line,) = run_to_its_end(folder, 1)
    assert (code, line["message"]) == (1, "the webhook cannot serve")
    assert line["error"].endswith("the key does not belong to the certificate")


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\nnonsense", None], ids=["empty", "broken", "folder"])
@pytest.mark.parametrize("bad", ["tls.crt", "tls.key"])
def test_a_file_that_is_no_pem_ends_it_with_code_1_and_one_line(folder: Path, bad: str, content: bytes | None):
    (folder / bad).unlink()
    if content is None:
        (folder / bad).mkdir()
    else:
        (folder / bad).write_bytes(content)
    code, (line,) = run_to_its_end(folder, 1)
    assert (code, line["level"], line["message"]) == (1, "error", "the webhook cannot serve")
    assert str(folder / bad) in line["error"]


def test_a_port_that_is_taken_ends_it_with_code_1_and_one_line(folder: Path):
    (free,) = find_free_ports(1)
    for of_reviews in (True, False):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            ports = (taken.getsockname()[1], 0) if of_reviews else (free, taken.getsockname()[1])
            code, lines = run_to_its_end(folder, *ports)
        (line,) = [one for one in lines if one["level"] != "info"]
        assert (code, line["message"]) == (1, "the webhook cannot serve")
        assert f"{ports[0] if of_reviews else ports[1]}" in line["error"]
        assert "address already in use" in line["error"]


class SlowApiServer:
    """Has the LocalQueue that it is asked for, and says so when it is let; lists are empty."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()
        slow = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = b'{"kind": "LocalQueue", "metadata": {"name": "default"}}'
                if "?" in self.path:
                    answer = b"" if "watch=" in self.path else b'{"items": [], "metadata": {"resourceVersion": "1"}}'
                else:
                    slow.asked.set()
                if b"items" not in answer:
                    slow.may_answer.wait(10)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def api_server() -> Iterator[SlowApiServer]:
    slow = SlowApiServer()
    thread = threading.Thread(target=slow.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield slow
    slow.may_answer.set()
    slow.server.shutdown()
    thread.join()
    slow.server.server_close()


def ask(port: int, review: bytes) -> tuple[int, dict[str, Any]]:
    context = ssl.create_default_context(cadata=CA.certificate.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=120, context=context)
    try:
        connection.request("POST", MUTATE_JOB, review, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def test_webhook_process_on_a_signal_answers_pending_reviews_and_ends(folder: Path, api_server: SlowApiServer):
    write_kubeconfig(folder, api_server.url)
    (port,) = find_free_ports(1)
    job = manifests.build_job("train", "team-a", pods=1, queue=None)
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(command(folder, port), cwd=ROOT, stderr=out) as webhook, ThreadPoolExecutor(1) as threads:
        try:
            wait_for("the webhook to serve", lambda: '"serving"' in log.read_text(), poll_s=0.01)
            asked = threads.submit(ask, port, build_body(job))
            assert api_server.asked.wait(10)
            webhook.send_signal(signal.SIGTERM)
            wait_for("the webhook to heed it", lambda: '"stopping"' in log.read_text(), poll_s=0.01)
            assert webhook.poll() is None
            assert not asked.done()
            api_server.may_answer.set()
            status, answer = asked.result(10)
            assert webhook.wait(10) == 0
            assert is_closed(port)
        finally:
            webhook.kill()
    assert status == 200
    assert apply(job, patch_of(answer["response"]))["metadata"]["labels"] == {QUEUE_NAME_LABEL: "default"}
    said = [json.loads(line)["message"] for line in log.read_text().splitlines()]
    assert [message for message in said if message != "watch begins again"] == ["serving", "stopping"]  # this API server ends each watch


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_metrics_are_served_beside_reviews(folder: Path):
    port, metrics_port = find_free_ports(2)
    url = f"http://127.0.0.1:{metrics_port}/metrics"
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(command(folder, port, metrics_port), cwd=ROOT, stderr=out) as webhook:
        try:
            wait_for("the webhook to serve both", lambda: not (is_closed(metrics_port) or is_closed(port)), poll_s=0.01)
            status, _ = ask(port, build_body(manifests.build_job("train", "team-a", pods=1)))
            with urllib.request.urlopen(url, timeout=120) as reply:
                found = Scraped(reply.read().decode())
        finally:
            webhook.kill()
    assert status == 200
    assert found.rows("topogate_reviews_total", "path", "result") == {(MUTATE_JOB, "allowed"): 1}
    left = (x509.load_pem_x509_certificate(PAIR.certificate).not_valid_after_utc - datetime.now(UTC)).total_seconds()
    assert abs(found.value("topogate_certificate_expiry_seconds") - left) < 60


def test_probes_are_answered_by_plain_http_beside_reviews(folder: Path):
    port, health_port = find_free_ports(2)
    probes = [f"http://127.0.0.1:{health_port}{path}" for path in ("/readyz", "/healthz")]
    started = [*command(folder, port), "--health-port", str(health_port)]
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(started, cwd=ROOT, stderr=out) as webhook:
        try:
            wait_for("the webhook to serve", lambda: '"serving"' in log.read_text(), poll_s=0.01)
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * AT_ONCE)]  # no handshake of theirs begins
            answers = []
            for url in probes:
                with urllib.request.urlopen(url, timeout=120) as reply:
                    answers.append(reply.read().decode())
            for each in silent:
                each.close()
        finally:
            webhook.kill()
    assert answers == ["ok", "ok"]


def test_missing_metrics_collector_is_logged_once_and_delays_no_review(folder: Path):
    port, nobody = find_free_ports(2)
    collector = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{nobody}/v1/metrics",
        "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "1",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
    }
    log = folder / "log"
    environ = {**os.environ, **collector}
    with log.open("wb") as out, subprocess.Popen(command(folder, port), cwd=ROOT, stderr=out, env=environ) as webhook:
        try:
            wait_for("it to be told of", lambda: "metrics cannot be exported" in log.read_text(), poll_s=0.02)
            slowest = 0.0
            for _ in range(20):
                began = time.monotonic()
                status, _ = ask(port, build_body(manifests.build_job("train", "team-a", pods=1)))
                slowest = max(slowest, time.monotonic() - began)
                assert status == 200
            webhook.send_signal(signal.SIGTERM)
            assert webhook.wait(10) == 0
        finally:
            webhook.kill()
    told = [line["message"] for line in map(json.loads, log.read_text().splitlines()) if line["level"] != "info"]
    assert told[0] == "metrics cannot be exported and are dropped"
    assert set(told[1:]) <= {"the last metrics may be lost: the collector does not answer"}
    assert slowest < 1.0, "a review waited for the exporter"


def test_webhook_with_an_expired_certificate_is_not_ready(folder: Path):
    old = pki.issue_serving(CA, ["127.0.0.1"], NOW - timedelta(days=3650))
    (folder / "tls.crt").write_bytes(old.certificate)
    (folder / "tls.key").write_bytes(old.key)
    (port,) = find_free_ports(1)
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(command(folder, port), cwd=ROOT, stderr=out) as webhook:
        try:
            wait_for("the webhook to serve", lambda: '"serving"' in log.read_text(), poll_s=0.01)
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=120, context=anybody)
            connection.request("GET", "/readyz")
            reply = connection.getresponse()
            status, why = reply.status, reply.read().decode()
            connection.close()
        finally:
            webhook.kill()
    (line,) = [line for line in map(json.loads, log.read_text().splitlines()) if line["level"] != "info"]
    assert line["message"] == "the certificate has ended: API servers refuse it"
    assert status == 503
    assert why.startswith("not ready: the certificate ended at ")
