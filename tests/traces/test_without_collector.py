"""Tracing that is off costs nothing, and a collector that cannot be reached disturbs nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.names import TRACEPARENT_ANNOTATION
from core.runtime.report.telemetry import ENDPOINT_VARIABLES
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.process import find_free_ports
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.traces.scene import scene


def list_logs(running: Topogate) -> list[Path]:
    assert running.webhook is not None
    assert running.reconciler is not None
    return [running.webhook.log, running.reconciler.log]


def all_annotations(now: truth.Snapshot) -> set[str]:
    objects: list[dict[str, Any]] = [*now.jobs, *now.workloads, *(pod for job in now.jobs for pod in now.pods_of(job["metadata"]["name"]))]
    objects += [job["spec"]["template"] for job in now.jobs]
    return {name for obj in objects for name in obj["metadata"].get("annotations") or {}}


def test_with_tracing_off_no_sdk_is_imported_and_no_traceparent_is_written(
    cluster: Cluster, installed: Installed, monkeypatch: pytest.MonkeyPatch
):
    for name in ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # each import is a line of stderr
    running = installed.run(is_fresh=True)
    with scene(cluster, "untraced") as here:
        here.submit("job", pods=2)
        here.wait_bound("job", 2)
        annotations = all_annotations(here.read())
        logs = list_logs(running)
    assert any(name.startswith("kueue.x-k8s.io/") for name in annotations)
    assert TRACEPARENT_ANNOTATION not in annotations
    for log in logs:
        imported = {line.rpartition("|")[2].strip() for line in log.read_text().splitlines() if line.startswith("import time:")}
        assert "opentelemetry.trace" in imported, "the API alone is there"
        assert not {
            name for name in imported if name.startswith(("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp", "opentelemetry.proto"))
        }


def test_unreachable_trace_collector_delays_no_job_and_fails_none(cluster: Cluster, installed: Installed):
    (nobody,) = find_free_ports(1)
    running = installed.run(otlp_endpoint=f"http://127.0.0.1:{nobody}", is_fresh=True)
    with scene(cluster, "unheard") as here:
        for number in range(5):
            here.submit(f"job-{number}", pods=1)  # a review that waits for the collector is not answered within its 10 s
        for number in range(5):
            here.wait_bound(f"job-{number}", 1)
        assert here.story("job-0"), "the story is written down, though nobody hears it"
        logs = list_logs(running)
    running.kill_reconciler()
    assert running.webhook is not None
    running.webhook.stop(grace_s=60)
    assert running.webhook.exit_code == 0, "it waits for the collector at most 5 s with spans and 2 s with metrics, and is not killed"
    for log in logs:
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert not [line for line in lines if line["level"] == "error"]
        dropped = [line for line in lines if line["message"] == "spans cannot be exported and are dropped"]
        assert len(dropped) <= 1
        assert all((line["endpoint"], line["protocol"]) == (f"http://127.0.0.1:{nobody}", "http/protobuf") for line in dropped)
    told = {json.loads(line)["message"] for line in logs[0].read_text().splitlines()}
    lost = {"spans cannot be exported and are dropped", "spans may be lost: the collector does not answer"}
    assert told & lost, "by the export that failed, or by the end that did not wait for it"
