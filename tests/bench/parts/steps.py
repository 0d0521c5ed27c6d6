"""What a worst case is, and how its steps are taken: see `tests.bench.worst`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

from core.runtime.clock import SystemClock

NODES, PODS = 5_000, 50_000
STEP_MS, PREEMPTION_MS = 100, 1_000  # of the longest step, and of all steps of a preemption
WAITING_MS = 20_000  # until all that wait have been judged once, or told why they wait
Steps = Generator[object, None, None]  # each `next` is one synchronous step


@dataclass(frozen=True)
class Case:
    """One worst input: `make` builds it, untimed, and returns its steps."""

    name: str
    whole_ms: int
    make: Callable[[], Steps]


CASES: list[Case] = []


def case(whole_ms: int = STEP_MS) -> Callable[[Callable[[], Steps]], Callable[[], Steps]]:
    """Adds a function to the cases, named after it."""

    def add(make: Callable[[], Steps]) -> Callable[[], Steps]:
        CASES.append(Case(make.__name__.replace("_", "-"), whole_ms, make))
        return make

    return add


def once(call: Callable[[], object]) -> Steps:
    """A single step."""
    yield call()


class ThreadClock(SystemClock):
    """Counts the processor time of the thread."""

    def monotonic(self) -> float:
        return time.thread_time()


def turns(work: Coroutine[Any, Any, object]) -> Steps:
    """Each turn of the event loop that does the work is a step. What it leaves to threads is not."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    while not task.done():
        loop.call_later(0.001, lambda: None)  # while a thread is at work there is something to wait for
        loop.stop()
        loop.run_forever()
        yield None
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    task.result()
