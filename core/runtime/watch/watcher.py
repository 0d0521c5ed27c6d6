"""The watcher: carries out what `watch_step` decides, feeds back what came of it, and hands the events on."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Never

from core.resource import Obj, Page, Resource
from core.runtime.clock import Clock, SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError
from core.runtime.watch.watch_step import (
    CAUSES,
    Action,
    Applied,
    Closed,
    Deleted,
    Event,
    Failed,
    Init,
    InitApply,
    InitDone,
    Input,
    ListPage,
    Opening,
    OpenWatch,
    Raw,
    Read,
    ReopenRequested,
    Silent,
    Sleep,
    Unproven,
    Watching,
    WatchPolicy,
    WatchStep,
    Woke,
    begin,
    plan_step,
)

__all__ = ["Applied", "Deleted", "Event", "Init", "InitApply", "InitDone", "WatchPolicy", "Watcher", "begin", "plan_step"]

logger = logging.getLogger(__name__)
AT_ONCE = 100  # events between two turns of the loop: each is parsed, slimmed and folded in some tenths of a millisecond


@dataclass
class Watcher:
    """Lists and watches one resource. `chance` in [0, 1) is the randomness of pauses and timeouts."""

    client: Client
    resource: Resource
    namespace: str | None = None
    field_selector: str | None = None
    clock: Clock = field(default_factory=SystemClock)
    policy: WatchPolicy = field(default_factory=WatchPolicy)
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self.restarts = dict.fromkeys(CAUSES, 0)
        """How often a request had to be made again, by cause; all causes are there from the start."""
        self.trouble: KubeError | None = None
        """Why nothing is received: how the last request failed, until the server answers again."""
        self.version = ""
        """The resource version up to which everything has been handed on; empty before the first list."""
        self.opened = self.delivered = 0
        """How many lists and streams were begun, and the number of the latest of them that is a list which was read to its end: it has all
        that there was when it was begun. A stream, and each bookmark in it, may come from a server with a cache that lags behind."""
        self._owed = ""  # the version up to which events, or else a list, are to be handed on
        self._limit = _ReadLimit()
        self._is_asked = False
        self._received_at: float | None = None
        self._stream: AsyncGenerator[Obj, None] | None = None
        self._silence_s = 0.0

    def compute_event_age(self, clock: Clock | None = None) -> float | None:
        """Returns the seconds since the server last gave a sign of life; None before the first. That is a page, an event, a bookmark, or
        a stream that it has ended in good order after its whole time: bookmarks are no promise, and of an idle resource one may be missing
        in several streams in a row. `clock` None: the watcher's own. Used in liveness checks and a gauge.
        """
        return None if self._received_at is None else (clock or self.clock).monotonic() - self._received_at

    def has_reached(self, version: str, opened: int) -> bool:
        """Whether everything up to a resource version has been handed on: by the stream, or by a list begun after the one numbered
        `opened`. `opened` is the attribute of that name as it was when the version became known."""
        return not is_behind(self.version, version) or self.delivered > opened

    def refresh(self, version: str) -> None:
        """Opens the stream again, or makes the next one short if none is open. Within some seconds the watcher `has_reached` the version.

        Where that stream ends before it has reached the version all is listed.
        """
        self._is_asked = True
        if is_behind(self._owed, version):
            self._owed = version
        self._limit.end_now()

    async def run(self, sink: Callable[[Event], Awaitable[None]]) -> Never:
        """Lists and watches, and calls `sink` with each event. Never returns. Whatever `sink` raises is a bug and ends the run: an event
        half folded in must not be passed over.

        However many events come at once, others have their turn in between.
        """
        state, action = begin(self.policy)
        in_a_row, limit = 0, _ReadLimit()  # another run may have begun before this one has ended
        self._limit = limit
        try:
            while True:
                given = await self._execute(action)
                following = plan_step(state, given, now=self.clock.monotonic(), chance=self.chance(), policy=self.policy)
                self._report(following, given)
                if isinstance(given, Page | Raw) or (isinstance(given, Closed) and following.cause == "closed"):
                    self._received_at, self.trouble = self.clock.monotonic(), None
                elif isinstance(given, Failed):
                    self.trouble = given.error
                if isinstance(given, Page):
                    await self.clock.sleep(0)  # it was parsed in one go
                for event in following.events:
                    await sink(event)
                    in_a_row += 1
                    if in_a_row >= AT_ONCE:
                        in_a_row = 0
                        await self.clock.sleep(0)
                state, action = following.state, following.action
                if any(isinstance(event, InitDone) for event in following.events):
                    self.delivered = self.opened
                if isinstance(state, Opening | Watching):
                    self.version = state.resource_version
        finally:
            limit.stop()
            await self._close()

    async def _execute(self, action: Action) -> Input:
        if not isinstance(action, Read):
            await self._close()
        try:
            match action:
                case ListPage(token, limit):
                    if not token:
                        self.opened, self._owed = self.opened + 1, ""
                    return await self.client.list_page(
                        self.resource, self.namespace, limit=limit, continue_token=token, field_selector=self.field_selector
                    )
                case OpenWatch(version, timeout_s):
                    if self._is_asked or (self._owed and is_behind(self.version, self._owed)):  # also after a stream that failed
                        timeout_s = min(timeout_s, self.policy.refresh_s)
                    self._silence_s = timeout_s + self.policy.silence_s
                    self._is_asked = False
                    self.opened += 1
                    self._stream = self.client.watch(
                        self.resource,
                        self.namespace,
                        resource_version=version,
                        field_selector=self.field_selector,
                        timeout_seconds=timeout_s,
                    )
                    return await self._read(self._stream)
                case Read():
                    return Closed() if self._stream is None else await self._read(self._stream)
                case Sleep(seconds):
                    await self.clock.sleep(seconds)
                    return Woke()
        except KubeError as error:
            return Failed(error)

    async def _read(self, stream: AsyncGenerator[Obj, None]) -> Input:
        if self._is_asked:
            return ReopenRequested()
        try:
            with self._limit.begin(self._silence_s):
                return Raw(await anext(stream))
        except StopAsyncIteration:
            return Unproven() if self._owed and is_behind(self.version, self._owed) else Closed()
        except TimeoutError:
            return ReopenRequested() if self._is_asked else Silent()

    async def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(KubeError):
                await stream.aclose()

    def _report(self, following: WatchStep, given: Input) -> None:
        if following.cause is not None:
            self.restarts[following.cause] += 1
            # A repeated failure is logged once: there are dozens of watchers, and an API server may be unavailable for
            # long.
            known = isinstance(given, Failed) and self.trouble is not None and str(given.error) == str(self.trouble)
            level = logging.DEBUG if known or following.cause == "closed" else logging.INFO
            fields: dict[str, Any] = {"resource": str(self.resource), "cause": following.cause}
            if isinstance(given, Failed):
                fields["error"] = str(given.error)
            if isinstance(following.action, Sleep):
                fields["pause_s"] = round(following.action.seconds, 3)
            logger.log(level, "watch begins again", extra=fields)
        if following.oddity is not None:
            logger.warning("watch event of an unknown type is skipped", extra={"resource": str(self.resource), "type": following.oddity})


class _ReadLimit:
    """Limits how long the next event of a stream is waited for, as `asyncio.timeout` does: raises TimeoutError where it takes longer.

    The timer of one event is kept for the next, which moves only the end: there is an event for each change of each pod, and hardly ever a
    stream that is silent for too long.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None  # that waits, None where none does
        self._end = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled_before, self._is_over = 0, False

    def begin(self, seconds: float) -> _ReadLimit:
        """From now on the current task may wait for so many seconds, in the block that it guards."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._task, self._cancelled_before, self._is_over, self._end = task, task.cancelling(), False, loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._end:
            self.stop()
        if self._timer is None:
            self._timer = loop.call_at(self._end, self._check)
        return self

    def end_now(self) -> None:
        """Ends the wait that is under way, if there is one, as if its time were over."""
        if self._task is not None and not self._is_over:
            self.stop()
            loop = asyncio.get_running_loop()
            self._end = loop.time()
            self._timer = loop.call_at(self._end, self._check)

    def stop(self) -> None:
        """Ends the timer, not what it limits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer, task, loop = None, self._task, asyncio.get_running_loop()
        if task is None:
            return
        if self._end > loop.time():
            self._timer = loop.call_at(self._end, self._check)
        else:
            self._is_over = True
            task.cancel()

    def __enter__(self) -> None:
        """Nothing is left to do: see `begin`."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        task, self._task = self._task, None
        assert task is not None
        if self._is_over and task.uncancel() <= self._cancelled_before and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error


def is_behind(version: str, now: str) -> bool:
    """Whether a resource version is older than another; also True where they cannot be compared. Versions of all resources are one
    sequence.
    """
    return not (version.isdecimal() and now.isdecimal()) or int(version) < int(now)
