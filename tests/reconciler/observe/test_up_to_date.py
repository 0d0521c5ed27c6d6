"""A new leader decides nothing before its watches have delivered what was written before it leads."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from core.plan.steps import pacing
from core.runtime.http.client import Client
from core.runtime.http.errors import Unreachable
from reconciler.observe.observed import Observed
from sim.apiserver.server import Request, Server
from sim.harness import DirectTransport, list_kinds
from tests.runtime.fakes import ManualClock


def connect() -> Client:
    """To an API server at version 100, which does not answer at first."""
    server = Server(list_kinds(), now=lambda: "", chance=random.Random(1))
    server.version, failures = 100, [Unreachable("away"), Unreachable("away")]

    async def fail(_: Request) -> None:
        if failures:
            raise failures.pop()

    return Client(DirectTransport(server, fail))


class Turning(ManualClock):
    """Calls `then` at each sleep; time passes by sleeping only."""

    def __init__(self, then: Callable[[int], None] = lambda turn: None) -> None:
        super().__init__()
        self.then, self.turns = then, 0

    async def sleep(self, seconds: float) -> None:
        self.turns += 1
        self.then(self.turns)
        await super().sleep(seconds)


def follower(version: str) -> Observed:
    """A process with all watches but those of Workloads at version 100."""
    observed = Observed(Client.make_offline(), ManualClock())
    for informer in observed.awaited:
        informer.watcher.version, informer.watcher.opened = "100", 1
    observed.workloads.watcher.version = version
    return observed


async def wait(observed: Observed, clock: Turning) -> None:
    await observed.wait_for_watches(connect(), clock)


async def test_new_leader_with_all_watches_up_to_date_opens_none_anew():
    observed, clock = follower("100"), Turning()
    await wait(observed, clock)
    assert clock.turns == 2, "the API server was away twice"
    assert not any(informer.watcher._is_asked for informer in observed.awaited)


async def test_new_leader_waits_for_nothing_that_is_newer_than_the_lease_that_was_given_back():
    """At each restart of a process all was listed twice, with seconds in between: its own lease had made the watches old."""
    observed, clock = follower("99"), Turning()
    await observed.wait_for_watches(Client.make_offline(), clock, "99")
    assert clock.turns == 0
    assert not any(informer.watcher._is_asked for informer in observed.awaited)


async def test_new_leader_waits_for_a_watch_that_is_older_than_the_lease_that_was_given_back():
    def deliver(turn: int) -> None:
        if turn == 5:
            observed.workloads.watcher.version = "100"

    observed, clock = follower("99"), Turning(deliver)
    await observed.wait_for_watches(Client.make_offline(), clock, "100")
    assert clock.turns == 5


@pytest.mark.parametrize("how", ["event", "whole stream"])
async def test_new_leader_waits_for_a_watch_that_is_behind(how: str):
    def deliver(turn: int) -> None:
        watcher = observed.workloads.watcher
        if turn == 50 and how == "event":
            watcher.version = "100"
        elif turn == 50:
            watcher.opened = watcher.delivered = 2

    observed, clock = follower("99"), Turning(deliver)
    await wait(observed, clock)
    assert clock.turns == 50
    assert [informer for informer in observed.awaited if informer.watcher._is_asked] == [observed.workloads]


async def test_stream_that_was_whole_before_does_not_count():
    def deliver(turn: int) -> None:
        if turn == 50:
            observed.workloads.watcher.opened = observed.workloads.watcher.delivered = 2

    observed, clock = follower("99"), Turning(deliver)
    observed.workloads.watcher.delivered = 1
    await wait(observed, clock)
    assert clock.turns == 50


async def test_watch_that_delivers_nothing_keeps_the_process_from_leading():
    observed, clock = follower("99"), Turning()
    before = clock.monotonic()
    with pytest.raises(TimeoutError, match=r"the watches of workloads\.kueue\.x-k8s\.io deliver nothing"):
        await wait(observed, clock)
    assert clock.monotonic() - before > pacing.CATCH_UP_S
