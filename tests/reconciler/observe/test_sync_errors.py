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
    assert scene.troubles.describe_errors() == (
        "the API server does not serve topologies.kueue.x-k8s.io, workloads.kueue.x-k8s.io in kueue.x-k8s.io/v1beta2; "
        "install their CustomResourceDefinitions: the chart does (crds.install: true)"
    )
    health = Health(scene.clock)
    health.reconciler = scene.reconciler
    assert health.find_unready_reason().endswith(f"; {scene.reconciler.troubles.describe_errors()}")


def test_a_missing_right_is_named_with_the_servers_own_words(scene: Scene):
    scene.fail(LISTED, scene.observed.nodes, scene.observed.pods)
    assert scene.troubles.describe_errors() == f"no right to list and watch nodes, pods (the chart's ClusterRole has it): {LISTED.message}"


def test_sync_errors_report_only_the_most_severe_error(scene: Scene):
    scene.fail(ServerError(500, "InternalError", "no leader"), scene.observed.pods)
    assert scene.troubles.describe_errors() == "pods cannot be listed: 500 InternalError: no leader"
    scene.fail(LISTED, scene.observed.nodes)
    assert scene.troubles.describe_errors().startswith("no right to list and watch nodes ")
    scene.fail(MISSING, scene.observed.topologies)
    assert scene.troubles.describe_errors().startswith("the API server does not serve topologies.kueue.x-k8s.io in ")
    scene.fail(Unauthorized(401, "Unauthorized", "Unauthorized"), scene.observed.namespaces)
    assert scene.troubles.describe_errors() == "the API server https://api.example:6443 does not accept our credentials: Unauthorized"
    scene.fail(Unreachable("GET /api/v1/pods: no answer within 30 s"), scene.observed.pods)
    assert (
        scene.troubles.describe_errors()
        == "the API server https://api.example:6443 cannot be reached: GET /api/v1/pods: no answer within 30 s"
    )


def test_sync_error_after_the_first_list_is_reported_only_if_it_lasts(scene: Scene):
    scene.sync()
    scene.fail(Unreachable("broken"))
    assert scene.troubles.describe_errors() == ""
    scene.fail(LISTED, scene.observed.nodes)
    assert scene.troubles.describe_errors().startswith("no right to list and watch nodes ")


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
    assert line["why"].startswith("the API server http://127.0.0.1:9 cannot be reached: GET http://127.0.0.1:9/")
