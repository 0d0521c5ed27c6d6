"""Election: never two leaders, whatever is delayed or lost; and a leader only as long as its work lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.resource import Obj
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import Conflict, Forbidden, KubeError, NotFound, Unreachable
from core.runtime.lease import Election, LeaderElection, LeadershipLost
from sim.apiserver.server import Change
from tests.runtime.lease_server import LeaseServer

NAMES = ["one", "two", "three"]
CANDIDATES = st.sampled_from(NAMES)


class LeaseMachine(RuleBasedStateMachine):
    """Three candidates and one Lease. Between deciding to write and the write reaching the server any time may pass, and answers may be
    lost."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server = LeaseServer()
        self.candidates = {name: Election("ns", "lease", name, lease_duration_s=15, renew_deadline_s=10) for name in NAMES}
        self.underway: dict[str, tuple[float, Obj]] = {}

    @rule(seconds=st.sampled_from([0.1, 2.0, 6.0, 10.0, 15.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=CANDIDATES)
    def look(self, name: str) -> None:
        if name not in self.underway:
            self.candidates[name].observe(self.server.lease, self.now)

    @rule(name=CANDIDATES)
    def send(self, name: str) -> None:
        """The wall clock is useless on purpose: every candidate writes the same time always."""
        if name not in self.underway:
            body = self.candidates[name].write(self.now, "2000-01-01T00:00:00.000000Z" if name == "one" else str(self.now))
            if body is not None:
                self.underway[name] = self.now, body

    @precondition(lambda self: self.underway)
    @rule(data=st.data(), answer_lost=st.booleans())
    def arrive(self, data: st.DataObject, answer_lost: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.underway)))
        sent_at, body = self.underway.pop(name)
        try:
            written = self.server.put(body, create="resourceVersion" not in body["metadata"])
        except (Conflict, NotFound):
            return
        if not answer_lost:
            self.candidates[name].record_write(written, sent_at)

    @rule(name=CANDIDATES)
    def release(self, name: str) -> None:
        if name in self.underway:
            return
        body = self.candidates[name].release("x")
        assert not self.candidates[name].is_leader(self.now)
        if body is not None:
            try:
                self.server.put(body, create=False)
            except (Conflict, NotFound):
                return

    @invariant()
    def never_two_leaders(self) -> None:
        assert sum(candidate.is_leader(self.now) for candidate in self.candidates.values()) <= 1

    def teardown(self) -> None:
        """Whatever happened, an undisturbed candidate leads in the end."""
        candidate = self.candidates["three"]
        for _ in range(3):
            candidate.observe(self.server.lease, self.now)
            body = candidate.write(self.now, str(self.now))
            if body is not None:
                candidate.record_write(self.server.put(body, create="resourceVersion" not in body["metadata"]), self.now)
            if candidate.is_leader(self.now):
                break
            self.now += 16
        assert candidate.is_leader(self.now)


TestLease = LeaseMachine.TestCase


def test_a_deadline_longer_than_the_lease_is_refused():
    with pytest.raises(ValueError, match="overlap"):
        Election("ns", "lease", "one", lease_duration_s=10, renew_deadline_s=10)


def test_a_new_holder_is_counted_and_a_renewal_is_not():
    server = LeaseServer()
    one = Election("ns", "lease", "one", lease_duration_s=15, renew_deadline_s=10)
    two = Election("ns", "lease", "two", lease_duration_s=15, renew_deadline_s=10)
    for moment in (0.0, 2.0):
        body = one.write(moment, f"wall {moment}")
        assert body is not None
        one.record_write(server.put(body, create=server.lease is None), moment)
    assert server.lease is not None
    assert (server.lease["spec"]["leaseTransitions"], server.lease["spec"]["acquireTime"]) == (0, "wall 0.0")
    two.observe(server.lease, 3.0)
    assert two.write(17.9, "w") is None
    body = two.write(18.0, "w")
    assert body is not None
    assert body["spec"]["leaseTransitions"] == 1


def take(candidate: Election, server: LeaseServer, now: float) -> None:
    candidate.observe(server.lease, now)
    body = candidate.write(now, str(now))
    assert body is not None
    candidate.record_write(server.put(body, create=server.lease is None), now)
    assert candidate.is_leader(now)


def test_version_is_handed_over_by_a_holder_that_gave_the_lease_back_and_by_no_other():
    server = LeaseServer()
    one, two, three, four = (Election("ns", "lease", name, lease_duration_s=15, renew_deadline_s=10) for name in (*NAMES, "four"))
    take(one, server, 0.0)
    assert one.handed_over is None, "there was no holder"
    body = one.release("x")
    assert body is not None
    given_back = server.put(body, create=False)["metadata"]["resourceVersion"]
    take(two, server, 1.0)
    assert two.handed_over == given_back
    take(two, server, 2.0)
    assert two.handed_over == given_back, "a renewal changes nothing"
    three.observe(server.lease, 3.0)
    take(three, server, 20.0)
    assert three.handed_over is None, "two fell silent"
    assert server.lease is not None
    server.put({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": ""}}, create=False)
    take(four, server, 21.0)
    assert four.handed_over is None, "three may still work: the lease was emptied by hand"


def test_renewal_that_changes_nothing_is_none():
    """The API server keeps the version: the other candidate sees no change, and takes the lease when its time is over."""
    server = LeaseServer()
    one = Election("ns", "lease", "one", lease_duration_s=15, renew_deadline_s=10)
    body = one.write(0.0, "its clock stands still")
    assert body is not None
    one.record_write(server.put(body, create=True), 0.0)
    body = one.write(8.0, "its clock stands still")
    assert body is not None
    one.record_write(server.put(body, create=False), 8.0)
    assert one.is_leader(9.9)
    assert not one.is_leader(10.0)


# -- the skin, in virtual time


def make_election(server: LeaseServer, identity: str = "one") -> LeaderElection:
    return LeaderElection(server.client, "ns", "lease", identity, chance=lambda: 0.0)


async def idle() -> None:
    await asyncio.Event().wait()


def holder(server: LeaseServer) -> Any:
    return server.lease and server.lease["spec"]["holderIdentity"]


@pytest.mark.looptime
async def test_it_leads_while_the_work_lasts_and_gives_the_lease_back(looptime):
    server = LeaseServer()
    election = make_election(server)

    async def work() -> None:
        assert election.leads
        await asyncio.sleep(60)
        assert election.leads
        assert holder(server) == "one"

    await election.run(work)
    assert looptime == 60
    assert holder(server) == ""
    assert server.lease is not None
    assert server.lease["spec"]["leaseDurationSeconds"] == 1
    assert not election.leads
    assert 28 <= len(server.writes) <= 32


@pytest.mark.looptime
async def test_dead_work_does_not_keep_the_lease(looptime):
    server = LeaseServer()

    async def work() -> None:
        await asyncio.sleep(5)
        raise RuntimeError("the work died")

    with pytest.raises(RuntimeError, match="the work died"):
        await make_election(server).run(work)
    assert looptime == 5
    assert holder(server) == ""


@pytest.mark.looptime
@pytest.mark.parametrize("how", ["failing", "hanging"])
async def test_a_leader_that_cannot_renew_writes_nothing_before_others_may_lead_and_goes_on_if_none_does(looptime, how: str):
    """Former defect: the leader ended, though no other could take over while the API server was away."""
    server = LeaseServer()
    election = make_election(server)
    left: dict[str, float] = {}

    async def work() -> None:
        await asyncio.sleep(20.5)
        left["renewed"] = election.count_seconds_left()
        if how == "failing":
            server.failing = Unreachable("down")
        else:
            server.hanging = True
        await asyncio.sleep(9.4)
        left["just before"] = election.count_seconds_left()
        await asyncio.sleep(0.2)
        left["ten seconds after"] = election.count_seconds_left()
        await asyncio.sleep(60)
        server.failing, server.hanging = None, False
        await asyncio.sleep(5)
        left["back"] = election.count_seconds_left()

    await election.run(work)
    assert left["renewed"] > 9
    assert left["back"] > 5
    assert 0 < left["just before"] <= 0.2
    assert left["ten seconds after"] <= 0


class StandingClock(SystemClock):
    """Of a process that stood still for `stood_s` in all, which nothing in it has noticed."""

    stood_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stood_s


@pytest.mark.looptime
async def test_renewal_with_an_answer_read_too_late_is_made_again(looptime):
    """Seed 5358: the process stood still between a renewal and its answer, and ended, though no other had taken the lease."""
    server, clock = LeaseServer(), StandingClock()
    election = LeaderElection(server.client, "ns", "lease", "one", clock=clock, chance=lambda: 0.0)

    def stand_still(_: Change) -> None:
        server.api.on_change.remove(stand_still)
        clock.stood_s = 12.0

    async def work() -> None:
        await asyncio.sleep(20.5)
        server.api.on_change.append(stand_still)
        await asyncio.sleep(1.8)
        assert clock.stood_s
        assert not election.leads
        await asyncio.sleep(2)
        assert election.leads

    await election.run(work)
    assert {*server.writes} == {"one", ""}


@pytest.mark.looptime
async def test_a_lease_that_another_held_meanwhile_is_lost_though_it_is_free(looptime):
    """What the other one wrote it may not have seen."""
    server = LeaseServer()

    async def work() -> None:
        await asyncio.sleep(4.5)
        server.failing = Unreachable("down")
        await asyncio.sleep(20)
        assert server.lease is not None
        spec = {**server.lease["spec"], "holderIdentity": "", "leaseTransitions": server.lease["spec"]["leaseTransitions"] + 1}
        server.failing = None
        server.put({**server.lease, "spec": spec}, create=False)
        await asyncio.sleep(1000)

    with pytest.raises(LeadershipLost):
        await make_election(server).run(work)


async def test_renewals_go_on_while_the_loop_stands_still_and_end_when_it_does_for_too_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Former defect: a decision of a minute cost the lease, and the next leader made the same decision."""
    server = LeaseServer()

    async def connect() -> Client:
        return server.client

    election = LeaderElection(server.client, "ns", "lease", "one", retry_period_s=0.02, connect=connect)

    async def work() -> None:
        await wait_until(lambda: len(server.writes) > 1)
        before = len(server.writes)
        while len(server.writes) < before + 3:  # no await: the loop stands still meanwhile
            pass
        assert election.leads
        monkeypatch.setattr("core.runtime.lease.PROGRESS_S", -1.0)
        while not caplog.records:  # the first renewal that is left out: the one before it has ended
            pass
        before = len(server.writes)
        while len(caplog.records) < 5:
            pass
        assert {record.message for record in caplog.records} == {"lease not renewed"}
        assert len(server.writes) == before

    await election.run(work)
    assert holder(server) == ""


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110, what is waited for happens on another thread
            await asyncio.sleep(0.01)


@pytest.mark.looptime
async def test_lease_taken_by_another_holder_ends_the_work_at_once(looptime):
    server = LeaseServer()

    async def work() -> None:
        await asyncio.sleep(4.5)
        assert server.lease is not None
        stolen = {**server.lease["spec"], "holderIdentity": "thief"}
        server.put({**server.lease, "spec": stolen}, create=False)
        await asyncio.sleep(1000)

    with pytest.raises(LeadershipLost, match="thief"):
        await make_election(server).run(work)
    assert float(looptime) == pytest.approx(6, abs=0.1)
    assert holder(server) == "thief", "what is not ours is not given back"


@pytest.mark.looptime
async def test_lease_with_changed_labels_stays_with_its_holder():
    server = LeaseServer()

    async def work() -> None:
        await asyncio.sleep(4.5)
        assert server.lease is not None
        labelled = {**server.lease["metadata"], "labels": {"a": "b"}}
        server.put({**server.lease, "metadata": labelled}, create=False)
        await asyncio.sleep(60)
        assert server.lease["metadata"]["labels"] == {"a": "b"}

    await make_election(server).run(work)


@pytest.mark.looptime
async def test_brief_failures_do_not_cost_the_lease():
    server = LeaseServer()

    async def work() -> None:
        for error in (Unreachable("reset"), KubeError(500), None):
            server.failing = error
            await asyncio.sleep(3)

    await make_election(server).run(work)
    assert holder(server) == ""


@pytest.mark.looptime
async def test_a_cancelled_leader_gives_the_lease_back_even_if_cancelled_again():
    server = LeaseServer()

    async def work() -> None:
        await asyncio.sleep(1000)

    task = asyncio.create_task(make_election(server).run(work))
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert holder(server) == ""


@pytest.mark.looptime
@pytest.mark.parametrize("how", ["refused", "hanging"])
async def test_an_api_server_that_is_down_is_named_in_a_warning_at_most_once_a_minute(caplog: pytest.LogCaptureFixture, how: str):
    server = LeaseServer()
    server.hanging = how == "hanging"
    server.failing = Unreachable("GET https://in-memory.example:6443/apis: connection refused")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(150):
            await make_election(server).run(idle)
    told = [(record.getMessage(), vars(record).get("address")) for record in caplog.records if record.levelname == "WARNING"]
    assert told == [("the API server cannot be reached", "https://in-memory.example:6443")] * 3


@pytest.mark.looptime
async def test_rights_that_are_missing_are_warned_of_and_a_candidate_that_was_faster_is_not(caplog: pytest.LogCaptureFixture):
    server = LeaseServer()
    told = []
    for failure in (Forbidden(403, "Forbidden", "no leases"), Conflict(409, "Conflict", "too late")):
        server.failing = failure
        caplog.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await make_election(server).run(idle)
        told.append([record.getMessage() for record in caplog.records if record.levelname == "WARNING"])
    assert told == [["lease not acquired"], []]


@pytest.mark.looptime
async def test_giving_back_is_bounded(looptime):
    server = LeaseServer()

    async def work() -> None:
        server.hanging = True

    await make_election(server).run(work)
    assert looptime == 5
    assert holder(server) == "one"


@pytest.mark.looptime
async def test_the_next_takes_over_at_once_from_a_leader_that_gave_up_and_late_from_one_that_died():
    server = LeaseServer()
    led: list[tuple[str, float]] = []
    loop = asyncio.get_running_loop()

    async def lead(name: str, seconds: float) -> None:
        led.append((name, loop.time()))
        await asyncio.sleep(seconds)

    first = asyncio.create_task(make_election(server, "first").run(lambda: lead("first", 10)))
    await asyncio.sleep(1)
    second = asyncio.create_task(make_election(server, "second").run(lambda: lead("second", 1000)))
    await first
    await asyncio.sleep(3)
    assert [name for name, _ in led] == ["first", "second"]
    assert led[1][1] <= 10 + 3.1

    # The second dies without a word: its lease stays, and nobody renews it.
    server.failing = Unreachable("dead")
    second.cancel()
    await asyncio.wait({second})
    server.failing = None
    assert holder(server) == "second"
    died_at = loop.time()
    await make_election(server, "third").run(lambda: lead("third", 1))
    assert led[-1][0] == "third"
    assert 15 <= led[-1][1] - died_at <= 18
