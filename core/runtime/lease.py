"""One leader at a time by a coordination.k8s.io/v1 Lease; a leader with a failed work loop gives it up.

`Election` is the pure part. It uses only its own monotonic clock: the time of another holder counts from when its last
change was *observed here*, not from the wall time in the Lease, and our own leadership ends `renew_deadline_s` after
the last renewal was *sent*. Since that is shorter than the time for which others wait, two leaders never overlap,
however wrong the wall clocks are.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from core.resource import Obj, Resource
from core.runtime.clock import Clock, SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import Conflict, KubeError, NotFound, Unreachable

logger = logging.getLogger(__name__)

LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease")

RELEASE_TIMEOUT_S = 5.0
"""Giving the lease back saves the next leader a wait of `lease_duration_s`; it is not worth more than this at exit."""

COMPLAIN_EVERY_S = 60.0
"""An API server may be down for hours; one line a minute reports that, and fills no disk."""

_GIVEN_BACK_S = 1  # the duration of a lease that was given back, and not emptied by hand while its holder works

_RECORD = ("holderIdentity", "renewTime", "acquireTime", "leaseTransitions", "leaseDurationSeconds")


PROGRESS_S = 20.0
"""A leader does no work while its event loop does not turn: after so long its lease is not renewed any more."""


class LeadershipLost(Exception):
    """Another process holds the lease, or held it meanwhile. The process should exit: what it knows may be old."""


class Election:
    """What one candidate knows and may write. Pure: given the Lease as read and the monotonic time."""

    def __init__(self, namespace: str, name: str, identity: str, *, lease_duration_s: float, renew_deadline_s: float) -> None:
        if not 0 < renew_deadline_s < lease_duration_s:
            raise ValueError("the renew deadline must be shorter than the lease, or two leaders could overlap")
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._lease_duration_s = lease_duration_s
        self._renew_deadline_s = renew_deadline_s
        self._lease: Obj | None = None
        self._record: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self.handed_over: str | None = None
        """The resourceVersion at which the last holder had given the lease back, its work ended, and we took it; None where that one fell
        silent, or there was none."""

    @property
    def holder(self) -> str:
        """Returns the identity that holds the lease as far as it is observed; empty when there is none."""
        return str(self._spec.get("holderIdentity") or "")

    @property
    def _spec(self) -> dict[str, Any]:
        return (self._lease or {}).get("spec") or {}

    def is_leader(self, now: float) -> bool:
        """Whether we may act as leader at the monotonic time `now`: the lease is ours, and `get_deadline` is later."""
        return self._renewed_at is not None and now < self._renewed_at + self._renew_deadline_s

    def get_deadline(self) -> float:
        """Returns the monotonic time until which we lead if nothing renews the lease, which may be over; minus infinity where the lease is
        not ours."""
        return float("-inf") if self._renewed_at is None else self._renewed_at + self._renew_deadline_s

    def observe(self, lease: Obj | None, now: float) -> None:
        """Records the Lease as it was read at the monotonic time `now` (None: there is none). One that another holds, or none, ends our own
        leadership; ours does not begin one. The time of its holder counts anew from `now` only where the record has changed."""
        self._lease = lease
        spec = self._spec
        record = tuple(spec.get(part) for part in _RECORD)
        if record != self._record:
            self._record, self._seen_at = record, now
        if self.holder != self.identity:
            self._renewed_at = None

    def was_taken(self, before: Obj | None) -> bool:
        """Whether holder, acquireTime or leaseTransitions of the lease as last observed differ from those of `before`, which we wrote:
        another process held it meanwhile. Also True where it is gone or was given up."""
        return _read_term(before) != _read_term(self._lease)

    @property
    def lease(self) -> Obj | None:
        """Returns the Lease as last observed; None where there is none, or it was not read yet."""
        return self._lease

    def write(self, now: float, wall: str) -> Obj | None:
        """Returns the Lease to write in order to become or stay leader at the monotonic time `now`; None while another holder's time runs.
        `wall` is the wall time, only for people to read. It changes nothing here: `record_write` does. It has the resourceVersion of what
        was read, so that of two candidates one succeeds; without one it is to be created. A change of the holder counts in
        `leaseTransitions`, and sets `acquireTime`."""
        spec = self._spec
        ours = self.holder == self.identity
        if self.holder and not ours and now < self._seen_at + float(spec.get("leaseDurationSeconds") or self._lease_duration_s):
            return None
        return self._with(
            {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": round(self._lease_duration_s),
                "acquireTime": spec.get("acquireTime") or wall if ours else wall,
                "renewTime": wall,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if ours or self._lease is None else 1),
            }
        )

    def record_write(self, lease: Obj, sent_at: float) -> None:
        """Records that the Lease of `write` was stored as `lease`; our time counts from when it was sent, since others may have seen it
        right then.

        One that changed nothing renews nothing, as others see no change: the wall clock stood still.
        """
        if lease["metadata"].get("resourceVersion") == ((self._lease or {}).get("metadata") or {}).get("resourceVersion"):
            return
        before = self._lease
        if self.holder != self.identity:
            was_given_back = not self.holder and self._spec.get("leaseDurationSeconds") == _GIVEN_BACK_S
            self.handed_over = before["metadata"]["resourceVersion"] if before is not None and was_given_back else None
        self.observe(lease, sent_at)
        if self.holder == self.identity:
            self._renewed_at = sent_at

    def release(self, wall: str) -> Obj | None:
        """Returns the Lease to write in order to give it up at once; None when it is not ours. The process leads no
        more from now on."""
        self._renewed_at = None
        if self._lease is None or self.holder != self.identity:
            return None
        return self._with(
            {
                "holderIdentity": "",
                "leaseDurationSeconds": _GIVEN_BACK_S,
                "acquireTime": wall,
                "renewTime": wall,
                "leaseTransitions": int(self._spec.get("leaseTransitions") or 0),
            }
        )

    def _with(self, spec: dict[str, Any]) -> Obj:
        metadata = dict((self._lease or {}).get("metadata") or {"namespace": self._namespace, "name": self._name})
        metadata.pop("managedFields", None)
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": {**self._spec, **spec}}


def _read_term(lease: Obj | None) -> tuple[Any, ...]:
    """The holder of a lease, and since when it holds it: the same as long as one process renews it."""
    spec = (lease or {}).get("spec") or {}
    return tuple(spec.get(part) for part in ("holderIdentity", "acquireTime", "leaseTransitions"))


class LeaderElection:
    """Runs work from the moment in which the lease is ours until another process holds it. The identity must be unique
    to the process.

    While the lease cannot be renewed, the work continues and `count_seconds_left` is 0: a writer has to check it, as
    `Client.fence` does. Once the API server answers again and the lease was not taken meanwhile, the same work
    continues as leader.

    With `connect` renewals are made on a thread with a connection of their own, so that neither a long step of the
    event loop nor a flood of requests costs the lease. They are made only while the loop runs: a leader that stands
    still for `PROGRESS_S` seconds loses its lease.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_period_s: float = 2.0,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        connect: Callable[[], Awaitable[Client]] | None = None,
    ) -> None:
        self._client = client
        self._connect = connect
        self._progress_at = float("-inf")
        self._namespace = namespace
        self._name = name
        self._retry_period_s = retry_period_s
        self._clock = clock or SystemClock()
        self._chance = chance
        self._complained_at = float("-inf")
        self._election = Election(namespace, name, identity, lease_duration_s=lease_duration_s, renew_deadline_s=renew_deadline_s)

    @property
    def leads(self) -> bool:
        """Whether this process leads now: it has renewed the lease within the renew deadline."""
        return self._election.is_leader(self._clock.monotonic())

    def count_seconds_left(self) -> float:
        """Returns the seconds for which we lead if the lease is not renewed; 0 or less where we do not lead. May be called on any
        thread.
        """
        return self._election.get_deadline() - self._clock.monotonic()

    @property
    def holder(self) -> str:
        """Returns the identity that holds the lease as last observed; empty when there is none."""
        return self._election.holder

    @property
    def handed_over(self) -> str | None:
        """Returns the resourceVersion at which the last leader had given the lease back: all that it wrote is older. None where that is not
        known, since it fell silent, or the lease was removed or emptied by hand, or where we never led."""
        return self._election.handed_over

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease without limit, does the work, gives the lease back, and returns once the work has. Raises what the work
        raises. Raises LeadershipLost, with the work cancelled, when another process took the lease, or it was deleted or given up by
        hand. Raises what `connect` raises. The lease is given back after the work
        has ended, also when it failed or all was cancelled: a leader that does no work must not hold it."""
        try:
            await self._acquire()
            logger.info("leading", extra={"lease": self._name, "identity": self._election.identity})
            await self._run_as_leader(work)
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                # As long as a client that cannot reach the server would be led by its own deadline: a hanging request must not hang the
                # election.
                async with asyncio.timeout(self._retry_period_s * 4):
                    if await self._try():
                        return
            except (KubeError, TimeoutError) as error:
                self._report_error(error)
            # Spread, so that candidates that started together do not collide for ever.
            await self._clock.sleep(self._retry_period_s * (1 + 0.2 * self._chance()))

    def _report_error(self, error: KubeError | TimeoutError) -> None:
        """Logs why the lease cannot be acquired or renewed, as a warning at most once a minute. That another candidate
        was faster is no warning."""
        fields = {"lease": self._name, "error": str(error) or "timeout"}
        if isinstance(error, Conflict):
            logger.info("lease not acquired", extra=fields)
            return
        now = self._clock.monotonic()
        if now < self._complained_at + COMPLAIN_EVERY_S:
            return
        self._complained_at = now
        if isinstance(error, Unreachable | TimeoutError):
            logger.warning("the API server cannot be reached", extra={"address": self._client.address, **fields})
        else:
            logger.warning("lease not acquired", extra=fields)

    async def _run_as_leader(self, work: Callable[[], Awaitable[None]]) -> None:
        async def run_work() -> None:
            await work()

        try:
            async with asyncio.TaskGroup() as group:
                renewal = group.create_task(self._renew_in_time(), name=f"renew lease {self._name}")
                group.create_task(run_work(), name=f"leader of {self._name}").add_done_callback(lambda _: renewal.cancel())
        except BaseExceptionGroup as group_error:
            # One failure is the rule, and callers should see it and not its wrapping; with several, having lost the lease explains the
            # others.
            lost = [error for error in group_error.exceptions if isinstance(error, LeadershipLost)]
            if lost:
                raise lost[0] from group_error
            if len(group_error.exceptions) == 1:
                raise group_error.exceptions[0] from None
            raise

    async def _renew_in_time(self) -> None:
        if self._connect is None:
            self._progress_at = float("inf")
            await self._renew()
            return
        renewal = _Apart(self._renew_apart, name=f"lease {self._name}")
        try:
            while not renewal.done.is_set():
                self._progress_at = self._clock.monotonic()
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await renewal.ended.wait()
            renewal.raise_error()
        finally:
            await renewal.stop()

    async def _renew_apart(self) -> None:
        """On the thread: with a client that belongs to its event loop."""
        assert self._connect is not None
        async with await self._connect() as client:
            here, self._client = self._client, client
            try:
                await self._renew()
            finally:
                self._client = here

    async def _renew(self) -> None:
        """Never returns. Raises LeadershipLost."""
        while True:
            await self._clock.sleep(self._retry_period_s)
            stood_still_s = self._clock.monotonic() - self._progress_at
            if stood_still_s > PROGRESS_S:
                logger.warning(
                    "lease not renewed", extra={"lease": self._name, "error": f"the event loop stands still for {stood_still_s:.0f} s"}
                )
                continue
            ours = self._election.lease
            try:
                async with asyncio.timeout(self._retry_period_s * 2):
                    if not self.leads:
                        # Too late to be sure of it: another process may have led meanwhile, and what it wrote we may not have seen.
                        await self._observe()
                    if not self._election.was_taken(ours):
                        await self._write_or_look(ours)
            except (KubeError, TimeoutError) as error:
                logger.warning("lease not renewed", extra={"lease": self._name, "error": str(error) or "timeout"})
                continue
            if self._election.was_taken(ours):  # not where an answer has come too late to lead by it: the next may be in time
                raise LeadershipLost(f"the lease {self._name} is held by {self._election.holder or 'no process'}")

    async def _write_or_look(self, ours: Obj | None) -> None:
        try:
            await self._write()
        except (Conflict, NotFound):
            # It was touched: by another holder, or only a label was set. Look once, and decide by what is there.
            await self._observe()
            if not self._election.was_taken(ours):
                await self._write()

    async def _try(self) -> bool:
        """One attempt to get or keep the lease; whether we lead after it. As leader the Lease known is written without reading it first."""
        if not self._election.is_leader(self._clock.monotonic()):
            await self._observe()
        try:
            return await self._write()
        except (Conflict, NotFound):
            # The Lease was changed: by another holder, or only in a label. Read it once, and decide by what is there.
            await self._observe()
            return await self._write()

    async def _observe(self) -> None:
        try:
            lease: Obj | None = await self._client.get(LEASE, self._name, self._namespace)
        except NotFound:
            lease = None
        self._election.observe(lease, self._clock.monotonic())

    async def _write(self) -> bool:
        sent_at = self._clock.monotonic()
        body = self._election.write(sent_at, self._read_wall_clock())
        if body is None:
            return False
        exists = "resourceVersion" in body["metadata"]
        self._election.record_write(await (self._client.replace(LEASE, body) if exists else self._client.create(LEASE, body)), sent_at)
        return self._election.is_leader(self._clock.monotonic())

    async def _release(self) -> None:
        """Shielded: being cancelled once more does not stop it, only its own time limit does."""

        async def give_back() -> None:
            body = self._election.release(self._read_wall_clock())
            if body is None:
                return
            with suppress(KubeError, TimeoutError):
                async with asyncio.timeout(RELEASE_TIMEOUT_S):
                    await self._client.replace(LEASE, body)
                    logger.info("lease given back", extra={"lease": self._name})

        task = asyncio.create_task(give_back(), name=f"release lease {self._name}")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise

    def _read_wall_clock(self) -> str:
        return self._clock.now().replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class _Apart:
    """A coroutine on a thread and an event loop of its own. `ended` is set in the loop that made it once it has ended."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
        self._home = asyncio.get_running_loop()
        self.done, self.ended = threading.Event(), asyncio.Event()
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self.done.set()
            with suppress(RuntimeError):  # the loop is closed: no task waits any more
                self._home.call_soon_threadsafe(self.ended.set)

    async def _main(self) -> None:
        task = asyncio.create_task(self._work())
        self._running = asyncio.get_running_loop(), task
        if self._stopping.is_set():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def raise_error(self) -> None:
        """Raises what ended it."""
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        """Cancels it and waits until its thread has ended."""
        self._stopping.set()
        if self._running is not None and not self.done.is_set():
            loop, task = self._running
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        cancelled = False
        while not self.ended.is_set():
            try:
                await self.ended.wait()
            except asyncio.CancelledError:  # the thread must have ended before the lease is given back
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError
