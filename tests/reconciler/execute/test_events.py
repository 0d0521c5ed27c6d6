"""Events: the same is not told twice within two minutes, and nothing longer is remembered of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, TooManyRequests, Unreachable
from reconciler.execute.event_recorder import REMEMBERED, Reporter
from reconciler.execute.recorder import Recorder
from tests.runtime.fakes import ManualClock

NOT_OFTEN_S = 1.0  # less than are written a second


class Told:
    """What the API server was told of, as (name, reason, note)."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.events: list[tuple[str, str, str]] = []
        self.reporter = Reporter(cast("Client", SimpleNamespace(create=self._create)), self.clock)

    async def _create(self, _resource: Any, body: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        self.events.append((body["involvedObject"]["name"], body["reason"], body["message"]))
        return body

    def clear(self) -> None:
        for waiting in self.reporter._waiting.values():
            waiting.clear()

    async def tell(self, name: str, message: str = "why", reason: str = "Reason") -> None:
        self.reporter.record_event(r.WORKLOADS, {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}}, reason, message)
        await self.reporter.settle()


@pytest.fixture
def told() -> Told:
    return Told()


async def test_repeated_event_is_emitted_again_only_after_two_minutes(told: Told):
    for message in ("one", "one", "two"):
        await told.tell("a", message)
    await told.tell("b", "one")
    assert told.events == [("a", "Reason", "one"), ("a", "Reason", "two"), ("b", "Reason", "one")]
    told.clock.time += pacing.EVENTS_QUIET_S - 0.1
    await told.tell("a", "one")
    assert len(told.events) == 3
    told.clock.time += 0.1
    await told.tell("a", "one")
    assert told.events[3:] == [("a", "Reason", "one")]


async def test_event_reporter_drops_record_of_events_older_than_quiet_period(told: Told):
    """A soak of jobs showed it: texts of thousands of events of jobs that are over were kept until there were too many."""
    for number in range(1000):
        told.clock.time += NOT_OFTEN_S
        await told.tell(f"job-{number}", "x" * 1000)
    assert len(told.events) == 1000
    assert len(told.reporter._reported) == pacing.EVENTS_QUIET_S / NOT_OFTEN_S
    assert all(isinstance(key, int) for key in told.reporter._reported), "no text is kept"


async def test_of_too_many_the_oldest_are_forgotten_first(told: Told):
    told.reporter._reported.update((number, told.clock.time) for number in range(REMEMBERED))
    await told.tell("a")
    assert len(told.reporter._reported) == REMEMBERED
    assert 0 not in told.reporter._reported
    assert 1 in told.reporter._reported


async def test_events_of_many_workloads_that_come_at_once_are_all_written(told: Told):
    """In the load of Kueue's performance rig half of all events were dropped: 50 a second were written."""
    for number in range(pacing.EVENTS_WAITING):
        told.reporter.record_event(r.WORKLOADS, {"metadata": {"name": f"w{number}", "namespace": "ns", "uid": f"{number}"}}, "Admitted", "")
    await told.reporter.settle()
    assert [name for name, _, _ in told.events] == [f"w{number}" for number in range(pacing.EVENTS_WAITING)]


async def test_events_beyond_the_limit_of_those_that_wait_are_dropped_minor_ones_at_half_of_it(told: Told):
    for number in range(pacing.EVENTS_WAITING + 10):
        about = {"metadata": {"name": f"w{number}", "namespace": "ns", "uid": f"{number}"}}
        told.reporter.record_event(r.WORKLOADS, about, "Minor", "", is_minor=True)
    assert told.reporter.waiting == pacing.EVENTS_WAITING // 2
    for number in range(pacing.EVENTS_WAITING + 10):
        told.reporter.record_event(r.WORKLOADS, {"metadata": {"name": f"w{number}", "namespace": "ns", "uid": f"{number}"}}, "Major", "")
    assert told.reporter.waiting == pacing.EVENTS_WAITING


async def test_events_that_go_on_after_a_burst_are_limited_by_the_second(told: Told):
    for number in range(pacing.EVENTS_BURST + 10):
        told.reporter.record_event(r.WORKLOADS, {"metadata": {"name": "a", "namespace": "ns", "uid": f"{number}"}}, "Reason", "")
        told.clear()
    recorded: list[int] = []
    for _ in range(3):
        told.clock.time += 1.0
        for number in range(100):
            told.reporter.record_event(
                r.WORKLOADS, {"metadata": {"name": "a", "namespace": "ns", "uid": f"{number}"}}, f"{told.clock.time}", ""
            )
        recorded.append(told.reporter.waiting)
        told.clear()
    assert recorded == [pacing.EVENTS_PER_S] * 3


@pytest.mark.parametrize(("waiting", "at_once"), [(10, 2), (pacing.EVENTS_FOR_MORE + 2, 4), (pacing.EVENTS_WAITING, 8)])
async def test_more_events_are_written_at_once_the_more_wait(waiting: int, at_once: int):
    began, may_end = list[str](), asyncio.Event()

    async def create(_resource: Any, body: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        began.append(body["involvedObject"]["name"])
        await may_end.wait()
        return body

    reporter = Reporter(cast("Client", SimpleNamespace(create=create)), ManualClock())
    for number in range(waiting):
        reporter.record_event(r.WORKLOADS, {"metadata": {"name": f"w{number}", "namespace": "ns", "uid": f"{number}"}}, "Reason", "why")
    working = asyncio.create_task(reporter.run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert began == [f"w{number}" for number in range(at_once)]
    may_end.set()
    await reporter.settle()
    assert len(began) == waiting
    working.cancel()
    await asyncio.wait([working])


async def test_settled_reporter_has_ended_the_writes_of_its_workers():
    """Found by a reader: a process that ends left events unwritten that its workers had begun to write."""
    began, may_end, written = asyncio.Event(), asyncio.Event(), list[str]()

    async def create(_resource: Any, body: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        began.set()
        await may_end.wait()
        written.append(body["involvedObject"]["name"])
        return body

    reporter = Reporter(cast("Client", SimpleNamespace(create=create)), ManualClock())
    working = asyncio.create_task(reporter.run())
    reporter.record_event(r.WORKLOADS, {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}}, "Reason", "why")
    await began.wait()
    settling = asyncio.create_task(reporter.settle())
    await asyncio.sleep(0)
    assert not settling.done()
    may_end.set()
    await settling
    assert written == ["a"]
    working.cancel()
    await asyncio.wait([working])


def record(reporter: Reporter, name: str, *, warning: bool = False) -> None:
    reporter.record_event(r.WORKLOADS, {"metadata": {"name": name, "namespace": "ns", "uid": name}}, "Reason", "why", warning=warning)


async def test_event_with_a_fault_of_ours_is_left_out_and_ends_nothing():
    """Former defect: the process ended."""
    written = list[str]()

    async def create(_resource: Any, body: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        if body["involvedObject"]["name"] == "a":
            raise RuntimeError("odd")
        written.append(body["involvedObject"]["name"])
        return body

    reporter = Reporter(cast("Client", SimpleNamespace(create=create)), ManualClock())
    for name in ("a", "b"):
        record(reporter, name)
    await reporter.settle()
    assert written == ["b"]


async def test_warnings_are_written_before_thousands_of_other_events_that_wait(told: Told):
    for number in range(pacing.EVENTS_WAITING + 1):
        record(told.reporter, f"w{number}")
    record(told.reporter, "warned", warning=True)
    await told.reporter.settle()
    assert told.events[0][0] == "warned"
    assert len(told.events) == pacing.EVENTS_WAITING + 1


@pytest.mark.parametrize(
    ("refusals", "asked", "dropped", "slept"),
    [([429], 2, 0, 7.0), ([429, 429], 2, 1, 7.0), ([0], 2, 0, pacing.EVENTS_RETRY_S), ([403], 1, 1, 0.0)],
)
async def test_event_that_is_shed_is_written_again_once_after_a_pause(refusals: list[int], asked: int, dropped: int, slept: float):
    """Attack: an API server that refused at once was sent thousands of events, which were lost without being counted."""
    times, clock, drops = list[float](), ManualClock(), list[None]()

    async def create(_resource: Any, body: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        times.append(clock.time)
        if len(times) <= len(refusals):
            status = refusals[len(times) - 1]
            errors = {429: TooManyRequests(429, "TooManyRequests", "shed", retry_after=7.0), 403: Forbidden(403, "Forbidden", "no")}
            raise errors.get(status) or Unreachable("no answer")
        return body

    recorder = cast("Recorder", SimpleNamespace(record_dropped_event=lambda: drops.append(None)))
    reporter = Reporter(cast("Client", SimpleNamespace(create=create)), clock, recorder=recorder)
    record(reporter, "a")
    began = clock.time
    await reporter.settle()
    assert (len(times), len(drops), times[-1] - began) == (asked, dropped, slept)


async def test_events_that_wait_when_the_process_ends_take_no_more_than_the_time_for_them(caplog: pytest.LogCaptureFixture):
    clock, written = ManualClock(), list[str]()

    async def create(_resource: Any, body: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        written.append(body["involvedObject"]["name"])
        clock.time += 0.5
        return body

    reporter = Reporter(cast("Client", SimpleNamespace(create=create)), clock)
    for number in range(100):
        record(reporter, f"w{number}")
    await reporter.settle(2.0)
    assert len(written) == 4
    assert reporter.waiting == 0
    assert [record.__dict__["events"] for record in caplog.records] == [96]
