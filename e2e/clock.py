"""The time by which tests wait: that of the machine, or that of a simulated cluster while one is in use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol


class Time(Protocol):
    """What tests need of a time."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Returns when so much time has passed."""

    def now(self) -> datetime:
        """The wall clock, with a zone."""

    def repeat(self, turn: Callable[[], bool], every_s: float, name: str) -> Callable[[], None]:
        """Calls `turn` again and again, beside what the caller does, until it returns False or what is returned here is called."""


class MachineTime:
    """Time as it passes; what is repeated has a thread of its own."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def repeat(self, turn: Callable[[], bool], every_s: float, name: str) -> Callable[[], None]:
        stopping = threading.Event()

        def run() -> None:
            while not stopping.wait(every_s) and turn():
                pass

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()

        def end() -> None:
            stopping.set()
            thread.join()

        return end


class Clock:
    """Asks the time that is in use, at first that of the machine."""

    def __init__(self) -> None:
        self._time: Time = MachineTime()

    def monotonic(self) -> float:
        return self._time.monotonic()

    def sleep(self, seconds: float) -> None:
        self._time.sleep(seconds)

    def now(self) -> datetime:
        return self._time.now()

    def repeat(self, turn: Callable[[], bool], every_s: float, name: str) -> Callable[[], None]:
        return self._time.repeat(turn, every_s, name)

    @contextmanager
    def use(self, other: Time) -> Iterator[None]:
        """Another time holds while the context is open."""
        before, self._time = self._time, other
        try:
            yield
        finally:
            self._time = before


CLOCK = Clock()
