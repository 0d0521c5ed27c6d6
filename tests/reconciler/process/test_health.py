"""What the reconciler's probes say, and when they do not."""

from __future__ import annotations

import asyncio

import pytest

from core.placement.algorithms.profile import STANDARD
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden
from core.runtime.lease import Election, LeaderElection
from reconciler.app import Reconciler
from reconciler.behaviour import Behaviour
from reconciler.health import QUEUE_STUCK_S, WATCH_SILENT_S, Health
from tests.runtime.fakes import ManualClock
from tests.runtime.lease_server import LeaseServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    """Of a process that leads and has listed everything."""
    health = Health(clock)
    health.reconciler = Reconciler(Client.make_offline(), clock, Behaviour(STANDARD))
    health.reconciler.is_complete = True
    health.reconciler.deciding = health.reconciler._prepare()
    for informer in health.reconciler.observed.awaited:
        informer._synced.set()
        informer.watcher._received_at = clock.time
    return health


def test_standby_reconciler_is_ready_once_everything_is_listed(health: Health, clock: ManualClock):
    assert health.reconciler is not None
    health.reconciler.deciding = None
    assert (health.find_unready_reason(), health.find_dead_reason()) == ("", "")
    clock.time += WATCH_SILENT_S + 1
    assert "has received nothing" in health.find_dead_reason()
    health.reconciler.is_complete = False
    health.reconciler.observed.pods._synced.clear()
    assert health.find_unready_reason().startswith("not listed yet: ")


async def test_standby_reconciler_is_ready_once_it_has_read_the_holder_of_the_lease(health: Health, clock: ManualClock):
    assert health.reconciler is not None
    health.reconciler.deciding = None
    server = LeaseServer()
    server.failing = Forbidden(403, "Forbidden", "leases")
    other = Election("ns", "lease", "another", lease_duration_s=3600, renew_deadline_s=10)
    health.election = LeaderElection(server.client, "ns", "lease", "mine", clock=clock)

    async def lead() -> None:
        pytest.fail("another one leads")

    running = asyncio.create_task(health.election.run(lead))
    await _turns()
    assert "lease" in health.find_unready_reason()
    assert health.find_dead_reason() == ""
    server.put(other.write(0.0, "") or {}, create=True)
    server.failing = None
    await _turns()
    assert health.election.holder == "another"
    assert (health.find_unready_reason(), health.find_dead_reason()) == ("", "")
    running.cancel()
    await asyncio.wait({running})


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_leading_reconciler_is_ready_once_everything_is_listed(health: Health):
    assert health.reconciler is not None
    health.reconciler.is_complete = False
    health.reconciler.observed.pods._synced.clear()
    health.reconciler.observed.workloads._synced.clear()
    why = health.find_unready_reason()
    assert why.startswith("not listed yet: ")
    assert "pods" in why
    assert "workloads" in why
    assert "nodes" not in why
    health.reconciler.is_complete = True
    assert health.find_unready_reason() == ""


def test_stopping_reconciler_is_not_ready_but_alive(health: Health, clock: ManualClock):
    health.stopping = True
    clock.time += WATCH_SILENT_S + 1
    assert (health.find_unready_reason(), health.find_dead_reason()) == ("stopping", "")


def test_silent_watch_beyond_the_limit_fails_the_liveness_probe(health: Health, clock: ManualClock):
    assert health.reconciler is not None
    clock.time += WATCH_SILENT_S
    assert health.find_dead_reason() == ""
    clock.time += 1
    for informer in health.reconciler.observed.awaited:
        if informer is not health.reconciler.observed.pods:
            informer.watcher._received_at = clock.time
    named = (str(health.reconciler.observed.pods.resource), f"{WATCH_SILENT_S + 1:.0f} s")
    assert all(part in health.find_dead_reason() for part in named)


def test_a_kind_that_has_gone_is_not_listened_for(health: Health, clock: ManualClock):
    assert health.reconciler is not None
    gone = next(iter(health.reconciler.observed.jobs.values()))
    gone.watcher._received_at = clock.time - WATCH_SILENT_S - 1
    assert health.find_dead_reason() == ""
    gone._synced.set()
    assert str(gone.resource) in health.find_dead_reason()


def test_a_queue_off_which_nothing_comes_for_too_long_ends_the_process(health: Health, clock: ManualClock):
    assert health.reconciler is not None
    assert health.reconciler.deciding is not None
    controller = health.reconciler.deciding.ungater.controller
    controller.queue.add("ns/w", "it is new")
    clock.time += QUEUE_STUCK_S
    assert health.find_dead_reason() == ""
    clock.time += 1
    assert all(part in health.find_dead_reason() for part in ("controller ungater", f"{QUEUE_STUCK_S + 1:.0f} s"))
    controller.finished_at = clock.time - 5  # it is behind, and goes on
    assert health.find_dead_reason() == ""


def test_a_scheduler_that_does_not_get_to_decide_ends_the_process(health: Health, clock: ManualClock):
    assert health.reconciler is not None
    assert health.reconciler.deciding is not None
    wake = health.reconciler.deciding.scheduler._wake
    clock.time += 10 * QUEUE_STUCK_S
    for informer in health.reconciler.observed.awaited:
        informer.watcher._received_at = clock.time
    assert health.find_dead_reason() == "", "it has nothing to decide"
    wake.set()
    clock.time += QUEUE_STUCK_S
    wake.set()
    assert health.find_dead_reason() == ""
    clock.time += 1
    assert f"{QUEUE_STUCK_S + 1:.0f} s" in health.find_dead_reason()
    wake.clear()
    assert health.find_dead_reason() == ""


def test_a_queue_in_which_nothing_is_due_may_rest(health: Health, clock: ManualClock):
    assert health.reconciler is not None
    assert health.reconciler.deciding is not None
    health.reconciler.deciding.ungater.controller.queue.add_after("ns/w", 10 * QUEUE_STUCK_S, "later")
    for informer in health.reconciler.observed.awaited:
        informer.watcher._received_at = clock.time + 5 * QUEUE_STUCK_S
    clock.time += 5 * QUEUE_STUCK_S
    assert health.find_dead_reason() == ""
