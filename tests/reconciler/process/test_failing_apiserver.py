"""The reconciler beside an API server that fails: what it is asked is refused, late, or done without an answer. Nothing is lost or doubled,
and a server that is in trouble is not asked all the time."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from e2e.api import wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.proxies.writes_proxy import WRITES, WritesProxy
from e2e.topogate import READY_MARK, Topogate
from tests.reconciler.scenes import Scene

SEED = 24108
SHARE = 0.25  # of all requests
JOBS = 12
WAYS = ("500", "unanswered", "429", "late", "broken", "503")  # of writes, and all but one of reads
LATE_S = 1.0
OUTAGE_S = 8.0


class FailingServer(WritesProxy):
    """Fails a share of all requests, in each way that an API server or what is before it has. `is_away`: all of them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.server, cluster.ca_file, cluster.token)
        self._chance = random.Random(SEED)
        self._ways = {True: itertools.cycle(WAYS), False: itertools.cycle(way for way in WAYS if way != "unanswered")}
        self.share = 0.0
        self.is_away = False
        self.asked = 0
        self.failed: dict[str, int] = {}

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.is_away:
            return web.Response(status=503, text="the server is currently unable to handle the request")
        if self._chance.random() >= self.share:
            return await super()._forward(request)
        way = next(self._ways[request.method in WRITES])
        self.failed[way] = self.failed.get(way, 0) + 1
        if way == "late":
            await asyncio.sleep(LATE_S)
            return await super()._forward(request)
        if way == "unanswered":  # it was done all the same
            await super()._forward(request)
        if way in ("broken", "unanswered"):
            assert request.transport is not None
            request.transport.close()
            return web.Response(status=500)
        return web.Response(status=int(way), headers={"Retry-After": "1"} if way == "429" else {}, text="etcdserver: request timed out")


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[FailingServer]:
    with FailingServer(cluster) as running:
        yield running


@pytest.fixture
def failing(cluster: Cluster, topogate: Topogate, server: FailingServer, tmp_path: Path) -> Iterator[FailingServer]:
    """The reconciler is led past it."""
    topogate.kill_reconciler()
    topogate.start_reconciler(kubeconfig=server.write_kubeconfig(tmp_path / "kubeconfig"))
    yield server
    server.share, server.is_away = 0.0, False


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate, failing: FailingServer) -> Iterator[Scene]:
    opened = Scene(cluster).open()
    yield opened
    opened.close()


@pytest.mark.long
def test_of_requests_a_quarter_fails_and_every_job_is_placed_once(scene: Scene, topogate: Topogate, failing: FailingServer) -> None:
    failing.share = SHARE
    names = [f"job-{number}" for number in range(JOBS)]
    for name in names:
        scene.submit(name, pods=2, gpus=1, indexed=True, required=scene.rack)
    for name in names:
        now = scene.until_bound(name, 2)
    failing.share = 0.0
    assert failing.failed.keys() == set(WAYS), "each way of failing was met"
    assert truth.check_invariants(now) == []
    assert len(now.workloads) == JOBS
    for name in names:
        assert truth.as_assigned(now, name) == []
        assert truth.check_one_domain(now, name, scene.rack) == []
    assert topogate.reconciler is not None
    lines = [json.loads(line) for line in topogate.reconciler.log.read_text().splitlines()]
    assert [line for line in lines if "exception" in line or line["level"] == "error"] == []


def test_unreachable_api_server_is_requested_seldom_and_jobs_created_meanwhile_are_bound(
    scene: Scene, topogate: Topogate, failing: FailingServer
) -> None:
    scene.submit("before", pods=2, gpus=1, required=scene.rack)
    scene.until_bound("before", 2)
    failing.is_away, asked = True, failing.asked
    scene.submit("meanwhile", pods=2, gpus=1, required=scene.rack)
    time.sleep(OUTAGE_S)  # what is measured is how often it asks in that time
    often = (failing.asked - asked) / OUTAGE_S
    failing.is_away = False
    now = scene.until_bound("meanwhile", 2)
    assert truth.check_invariants(now) == []
    assert often < 20, f"{often:.0f} requests a second to a server that is away"
    assert topogate.reconciler is not None
    assert topogate.reconciler.is_running


@pytest.mark.long
def test_reconciler_that_starts_beside_a_failing_api_server_binds_jobs(
    scene: Scene, topogate: Topogate, failing: FailingServer, tmp_path: Path
) -> None:
    topogate.kill_reconciler()
    failing.share = 2 * SHARE
    topogate.start_reconciler(kubeconfig=failing.write_kubeconfig(tmp_path / "another"), wait=False)
    reconciler = topogate.reconciler
    assert reconciler is not None
    wait_for("it to decide", lambda: READY_MARK in reconciler.log.read_text())
    failing.share = 0.0
    scene.submit("job", pods=2, gpus=1, required=scene.rack)
    scene.until_bound("job", 2)
