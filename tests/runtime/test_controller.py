"""What each outcome of a reconcile means for its key."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
from collections.abc import Awaitable, Callable

import pytest

from core.runtime.clock import SystemClock
from core.runtime.controller import Controller, Done, Hindered, RequeueAfter, Result, Retryable, Terminal
from core.runtime.http.errors import Conflict, ServerError
from core.runtime.report import logs
from core.runtime.workqueue import Item, WorkQueue

pytestmark = pytest.mark.looptime

Runs = list[tuple[float, Item]]


async def run_for(seconds: float, outcomes: list[Result | Exception]) -> tuple[Controller, Runs]:
    """One key, whose runs end as `outcomes` say, the last for ever."""
    queue = WorkQueue(SystemClock(), chance=lambda: 0.0)
    runs: Runs = []

    async def reconcile(item: Item) -> Result:
        outcome = outcomes[min(len(runs), len(outcomes) - 1)]
        runs.append((asyncio.get_running_loop().time(), item))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    controller = Controller("test", reconcile, queue)
    queue.add("key", "event")
    await drive(controller, lambda: asyncio.sleep(seconds))
    return controller, runs


async def drive(controller: Controller, meanwhile: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.create_task(controller.run())
    await meanwhile()
    controller.queue.stop()
    await task


async def test_done_is_done():
    controller, runs = await run_for(100, [Done()])
    assert [(time, item.reasons) for time, item in runs] == [(0.0, frozenset({"event"}))]
    assert controller.results == {**dict.fromkeys(controller.results, 0), "done": 1}


async def test_requeue_after_comes_back_in_time():
    controller, runs = await run_for(100, [RequeueAfter(30), RequeueAfter(30), Done()])
    assert controller.finished_at == 60.0
    assert [(time, item.reasons) for time, item in runs] == [
        (0.0, frozenset({"event"})),
        (30.0, frozenset({"requeue after"})),
        (60.0, frozenset({"requeue after"})),
    ]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(Retryable("later"), "retry"), (ServerError(500), "retry"), (RuntimeError("bug"), "error"), (Conflict(409, "Conflict"), "conflict")],
    ids=lambda value: getattr(value, "reason", None) or str(value),
)
async def test_failures_back_off_until_success_forgets_them(error: Exception, outcome: str):
    controller, runs = await run_for(1, [error, error, error, RequeueAfter(0.1), error, Done()])
    gaps = [round(after[0] - before[0], 4) for before, after in itertools.pairwise(runs)]
    assert gaps == [0.005, 0.01, 0.02, 0.1, 0.005]
    assert controller.results[outcome] == 4


async def test_hindered_object_is_logged_once_at_info_until_its_reason_changes(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    reasons = ["class x", "class x", "class x", "class y", None, "class y"]
    outcomes: list[Result | Exception] = [Done() if reason is None else Hindered(f"there is no {reason}") for reason in reasons]
    outcomes[4] = RequeueAfter(0.1)
    controller, _ = await run_for(1, [*outcomes, Done()])
    assert [(record.levelname, record.__dict__["why"]) for record in caplog.records] == [
        ("INFO", f"there is no class {name}") for name in ("x", "y", "y")
    ]
    assert controller.results["retry"] == 5


async def test_a_terminal_failure_is_not_tried_again():
    controller, runs = await run_for(1000, [Terminal("never")])
    assert len(runs) == 1
    assert controller.results["terminal"] == 1
    assert controller.queue.count_failures("key") == 0


async def test_priority_survives_a_failure():
    queue = WorkQueue(SystemClock(), chance=lambda: 0.0)
    priorities: list[int] = []

    async def reconcile(item: Item) -> Result:
        priorities.append(item.priority)
        if len(priorities) == 1:
            raise Retryable("once")
        return Done()

    queue.add("key", "initial", -100)
    await drive(Controller("test", reconcile, queue), lambda: asyncio.sleep(1))
    assert priorities == [-100, -100]


async def test_shutting_down_lets_work_finish(looptime):
    queue = WorkQueue(SystemClock())
    finished: list[object] = []

    async def reconcile(item: Item) -> Result:
        await asyncio.sleep(10)
        finished.append(item.key)
        return Done()

    for number in range(5):
        queue.add(number, "r")
    await drive(Controller("test", reconcile, queue, workers=2), lambda: asyncio.sleep(15))
    assert finished == [0, 1, 2, 3]
    assert looptime == 20


async def test_log_lines_of_a_reconcile_contain_controller_key_and_reconcile_id():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    log = logging.getLogger("some.module")
    log.addHandler(handler)

    async def reconcile(item: Item) -> Result:
        await asyncio.sleep(1)
        log.warning("deep inside", extra={"pod": "p"})
        return Done()

    queue = WorkQueue(SystemClock())
    queue.add("ns/a", "r")
    queue.add("ns/b", "r")
    await drive(Controller("jobs", reconcile, queue, workers=2), lambda: asyncio.sleep(5))
    log.removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["controller"], line["key"], line["pod"]) for line in lines] == [("jobs", "ns/a", "p"), ("jobs", "ns/b", "p")]
    assert lines[0]["reconcile_id"] != lines[1]["reconcile_id"]


async def test_draining_waits_for_keys_that_are_worked_on_and_takes_no_more():
    queue, runs = WorkQueue(SystemClock()), list[object]()

    async def reconcile(item: Item) -> Result:
        await asyncio.sleep(5)
        runs.append(item.key)
        return RequeueAfter(1)

    controller = Controller("test", reconcile, queue, workers=2)
    for key in range(3):
        queue.add(key, "event")
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(1)
    await controller.drain()
    assert asyncio.get_running_loop().time() == 5
    await asyncio.sleep(100)
    assert runs == [0, 1]
    await task


async def test_draining_a_controller_that_rests_returns_at_once():
    controller = Controller("test", lambda item: asyncio.sleep(0, Done()), WorkQueue(SystemClock()))
    task = asyncio.create_task(controller.run())
    await asyncio.sleep(1)
    await controller.drain()
    assert asyncio.get_running_loop().time() == 1
    await task
