"""What cannot be seen is told in one line that says what to mend, once, and again only while it lasts."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from core.placement.algorithms.profile import STANDARD
from core.plan.steps import pacing
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, KubeError, NotFound, ServerError, Unauthorized, Unreachable
from core.runtime.watch.informer import Informer
from e2e.api import wait_for
from reconciler.app import Reconciler
from reconciler.behaviour import Behaviour
from reconciler.health import Health
from reconciler.observe.sync_errors import Troubles
from tests.reconciler.pods.test_ports import ROOT, command
from tests.runtime.fakes import ManualClock

LISTED = Forbidden(403, "Forbidden", 'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope')
MISSING = NotFound(404, "", "404 page not found")


class Scene:
    """A reconciler that has listed nothing yet, beside an API server of this address."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        client = cast("Client", SimpleNamespace(address="https://api.example:6443"))
        self.reconciler = Reconciler(client, self.clock, Behaviour(STANDARD))
        self.observed = self.reconciler.observed
        self.troubles = Troubles(self.observed, self.clock, client)

    def fail(self, error: KubeError | None, *informers: Informer) -> None:
        for informer in informers or self.observed.awaited:
            informer.watcher.trouble = error

    def sync(self, *informers: Informer) -> None:
        for informer in informers or self.observed.awaited:
            informer._synced.set()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_missing_definitions_are_named_with_how_to_get_them(scene: Scene):
    scene.fail(MISSING, scene.observed.workloads, scene.observed.topologies)
    described = scene.troubles.describe_errors()
    named = ("topologies.kueue.x-k8s.io, workloads.kueue.x-k8s.io", "kueue.x-k8s.io/v1beta2", "crds.install: true")
    assert all(part in described for part in named)
    health = Health(scene.clock)
    health.reconciler = scene.reconciler
    assert health.find_unready_reason().endswith(f"; {scene.reconciler.troubles.describe_errors()}")


def test_a_missing_right_is_named_with_the_servers_own_words(scene: Scene):
    scene.fail(LISTED, scene.observed.nodes, scene.observed.pods)
    assert "nodes, pods " in scene.troubles.describe_errors()
    assert scene.troubles.describe_errors().endswith(LISTED.message)


def test_sync_errors_report_only_the_most_severe_error(scene: Scene):
    scene.fail(ServerError(500, "InternalError", "no leader"), scene.observed.pods)
    assert all(part in scene.troubles.describe_errors() for part in ("pods", "500 InternalError: no leader"))
    scene.fail(LISTED, scene.observed.nodes)
    assert scene.troubles.describe_errors().endswith(LISTED.message)
    scene.fail(MISSING, scene.observed.topologies)
    assert "topologies.kueue.x-k8s.io" in scene.troubles.describe_errors()
    scene.fail(Unauthorized(401, "Unauthorized", "Unauthorized"), scene.observed.namespaces)
    assert all(part in scene.troubles.describe_errors() for part in ("https://api.example:6443", ": Unauthorized"))
    scene.fail(Unreachable("GET /api/v1/pods: no answer within 30 s"), scene.observed.pods)
    described = scene.troubles.describe_errors()
    assert all(part in described for part in ("https://api.example:6443", "GET /api/v1/pods: no answer within 30 s"))


def test_sync_error_after_the_first_list_is_reported_only_if_it_lasts(scene: Scene):
    scene.sync()
    scene.fail(Unreachable("broken"))
    assert scene.troubles.describe_errors() == ""
    scene.fail(LISTED, scene.observed.nodes)
    assert scene.troubles.describe_errors().endswith(LISTED.message)


def test_sync_error_is_logged_once_then_periodically_and_at_its_end(scene: Scene, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)

    def told() -> list[str]:
        lines = [f"{record.levelname} {record.message}" for record in caplog.records]
        caplog.clear()
        return lines

    scene.fail(MISSING, scene.observed.topologies)
    scene.troubles.check()
    assert told() == [], "it may be over before anybody could read it"
    scene.troubles.check()
    assert told() == ["WARNING the cluster cannot be seen"]
    scene.clock.time += pacing.TROUBLES_REMIND_S - 1
    scene.troubles.check()
    assert told() == []
    scene.clock.time += 1
    scene.troubles.check()
    assert told() == ["WARNING the cluster cannot be seen"]
    scene.fail(LISTED, scene.observed.topologies)
    scene.troubles.check()
    scene.troubles.check()
    assert told() == ["WARNING the cluster cannot be seen"]
    scene.fail(None)
    scene.troubles.check()
    scene.troubles.check()
    scene.troubles.check()
    assert told() == ["INFO the cluster can be seen"]


def test_an_api_server_that_is_not_there_is_one_warning_and_ends_nothing(tmp_path: Path):
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command(tmp_path, "--health-port=0", "--metrics-port=0"), cwd=ROOT, stderr=out)
    try:
        wait_for("it to be told", lambda: '"the cluster cannot be seen"' in log.read_text(), poll_s=0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    (line,) = [line for line in map(json.loads, log.read_text().splitlines()) if line["level"] != "info"]
    assert line["level"] == "warning"
    assert all(part in line["why"] for part in ("the API server http://127.0.0.1:9 ", "GET http://127.0.0.1:9/"))
