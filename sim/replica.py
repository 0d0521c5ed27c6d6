"""Replicas of the reconciler: processes that elect their leader and are started again after they end, as a Deployment does.

What a process sends is judged by what it has observed itself: `Replica.problems` has what it must never do.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from core.jobs.kinds.registry import KINDS
from core.model.configuration import LeaseRules
from core.names import SYSTEM_NAMESPACE
from core.placement.algorithms.profile import read_profiles
from core.plan.steps import pacing
from core.runtime.http.client import Client
from core.runtime.lease import LeaderElection, LeadershipLost
from reconciler.app import Reconciler
from reconciler.behaviour import Behaviour
from sim.apiserver.server import LEASES, Change, Request, Server
from sim.loop import Process, VirtualClock, VirtualLoop
from sim.models.base import POD
from sim.sent import find_wrong_delete, find_wrong_ungating
from sim.transport import Faults, Sender, SimTransport

USER = "system:serviceaccount:topogate-system:topogate-reconciler"
LEASE_NAME = "topogate-reconciler"
RULES = LeaseRules()
CALM_S = 60.0  # after the last fault: all that was late has come
NOTICED_S = 2.0  # after which a process in calm knows that a node is lost


class Replica:
    """One of the replicas, process after process. Its wall clock and its way to the API server are its own."""

    def __init__(
        self,
        server: Server,
        loop: VirtualLoop,
        name: str,
        chance: random.Random,
        *,
        is_elected: bool,
        faults: Faults | None = None,
        **options: Any,
    ) -> None:
        """`is_elected` is False for one that leads without an election. `options` are those of its `Behaviour`."""
        self._server, self._loop, self.name, self._chance, self._is_elected = server, loop, name, chance, is_elected
        self._options = options
        self.clock = VirtualClock(loop)
        self.faults = faults or Faults(random.Random(chance.random()))
        self.identity = ""
        self.deaths = 0  # by faults
        self.lost = 0  # leaderships
        self.problems: list[str] = []
        self.written: set[tuple[str, str, str]] = set()  # group, resource and verb of all that its processes have sent to be written
        self.calm_since = 0.0  # nothing has gone wrong since then; infinite while something does
        self.lost_at: Mapping[str, float] = {}  # since when hosts are gone or not ready
        self.before_write: Callable[[Request], None] = lambda _: None  # may raise, as that of its `Sender`
        self.after_write: Callable[[Request], None] = lambda _: None
        self.reconciler: Reconciler | None = None  # of the process that runs now
        self._started = 0
        self._ended: list[tuple[Process, asyncio.Task[None]]] = []
        self._has_led, self._is_taken = False, False
        server.on_change_of[LEASES].append(self._note_lease)
        self.start()

    def start(self) -> None:
        """Starts its next process."""
        self.reconciler = None
        self._started += 1
        self._has_led, self._is_taken = False, False
        self.identity = f"{self.name}-{self._started}"
        self.process = Process(self._loop)
        self.task = self.process.run(self._work())
        self.task.add_done_callback(self._note_end)

    async def _work(self) -> None:
        sender = Sender(USER, self.process, self.kill, self._check_sent, self._note_write, lambda request: self.before_write(request))
        client, of_lease = (Client(SimTransport(self._server, sender, self.faults)) for _ in range(2))
        election = None
        if self._is_elected:
            election = LeaderElection(
                of_lease,
                SYSTEM_NAMESPACE,
                LEASE_NAME,
                self.identity,
                lease_duration_s=RULES.lease_duration_s,
                renew_deadline_s=RULES.renew_deadline_s,
                retry_period_s=RULES.retry_period_s,
                clock=self.clock,
            )
            client.fence = election.count_seconds_left
        self.reconciler = Reconciler(client, self.clock, Behaviour(**{"profiles": read_profiles({}), **self._options}), kinds=KINDS)
        await self.reconciler.run(election)

    @property
    def leads(self) -> bool:
        """Whether the Lease names its process."""
        return find_holder(self._server) == self.identity

    @property
    def decides(self) -> bool:
        """Whether its process leads and has begun to decide."""
        is_alive = not (self.process.is_dead or self.process.is_frozen)
        return is_alive and self.leads and self.reconciler is not None and self.reconciler.deciding is not None

    def count_slots(self) -> int:
        """For how many nodes its table of usage has room."""
        return int(self.reconciler.observed.state.ledger._table._amounts.shape[1]) if self.reconciler is not None else 0

    def count_changes(self) -> int:
        """How often it has noted a change that may help a workload which waits."""
        return self.reconciler.observed.state.changes if self.reconciler is not None else 0

    def _note_write(self, request: Request) -> None:
        """Notes a write of a process that does not hold the lease."""
        self.after_write(request)
        if self._is_elected and request.kind.resource != LEASES and not self.leads:
            what = f"{request.verb} {request.kind.plural} {request.name}"
            self.problems.append(f"{self.identity} writes while {find_holder(self._server) or 'nobody'} holds the lease: {what}")

    def _check_sent(self, request: Request) -> None:
        """Notes the right that a write needs, and a write that is wrong by what the process itself has observed."""
        resource = f"{request.kind.plural}/{request.subresource}" if request.subresource else request.kind.plural
        self.written.add((request.kind.group, resource, request.verb))
        if self.reconciler is None or request.kind.resource != POD:
            return
        stored = self._server.objects[POD].get((request.namespace, request.name))
        problem = find_wrong_delete(self.reconciler.observed, request, stored.obj if stored is not None else {})
        host, told = find_wrong_ungating(self.reconciler.observed, request)
        now = self._loop.time()
        # What is sent late, since others are answered late, was right when it was decided.
        if host and now > self.calm_since + CALM_S and now > self.lost_at.get(host, now) + NOTICED_S:
            problem = told
        if problem:
            self.problems.append(f"{self.identity} {problem}")

    def _note_lease(self, change: Change) -> None:
        """Notes whether another process holds the lease after this one has held it: the server forgets old changes."""
        holder = find_holder(self._server)
        self._has_led |= holder == self.identity
        self._is_taken |= self._has_led and holder not in ("", self.identity)

    # --- what may happen to it ----------------------------------------------------------------------

    def kill(self) -> None:
        """Its process ends at once (SIGKILL), and another one is started seconds later."""
        if self.process.is_dead:
            return
        self.deaths += 1
        self.process.kill()
        self._replace()

    def freeze(self) -> Callable[[], None]:
        """Its process stands still (SIGSTOP) until what is returned is called."""
        process = self.process
        process.freeze()
        return lambda: process.thaw() if not process.is_dead else None

    def _replace(self) -> None:
        self._ended.append((self.process, self.task))
        self._loop.call_later(self._chance.uniform(1, 10), self.start)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if self.process.is_dead or task.cancelled():
            return
        self.process.is_dead = True
        error = task.exception()
        if self._has_waited_in_vain(error):
            self._replace()
        elif isinstance(error, BaseExceptionGroup) and error.split(LeadershipLost)[1] is None:
            self.lost += 1
            if not self._is_taken:
                self.problems.append(f"{self.identity} ends for want of a lease that no other process has taken")
            self._replace()
        else:
            self.problems.append(f"{self.identity} ends: {error!r}")

    def _has_waited_in_vain(self, error: BaseException | None) -> bool:
        """Whether it ended because its watches delivered nothing when it was to lead, while there were faults."""
        is_late = isinstance(error, BaseExceptionGroup) and error.split(TimeoutError)[1] is None
        return is_late and self._loop.time() < self.calm_since + pacing.CATCH_UP_S

    def end(self) -> list[asyncio.Task[None]]:
        """Ends all of its processes; returns what is to be waited for."""
        for process, task in [*self._ended, (self.process, self.task)]:
            process.is_dead = True
            task.cancel()
            process.thaw()
        return [task for _, task in [*self._ended, (self.process, self.task)]]


def find_holder(server: Server) -> str:
    """The identity in the Lease; empty if nobody holds it."""
    stored = server.objects[LEASES].get((SYSTEM_NAMESPACE, LEASE_NAME))
    return str(stored.obj["spec"].get("holderIdentity") or "") if stored is not None else ""
