"""The decision loop: woken by changes, runs a cycle, writes the verdicts.

Deciding is synchronous and sees only whole events; writing is concurrent. A verdict that cannot be written is taken
back and decided again. A long decision is made in pieces, between which the loop serves events, and is applied if it
still holds.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from core import trace_names as t
from core.model.configuration import FairSharing, SecondPass
from core.model.node_health_rules import RequeueRules
from core.model.pods_ready_rules import PodsReadyRules
from core.placement.algorithms.profile import Profiles
from core.plan.steps import pacing
from core.plan.workloads.verdict_steps import Judged
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.second_pass import REPLACES, NodeReplacement
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.runtime.clock import Clock
from core.runtime.tasks import start_eternal
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import WorkQueue
from core.state.facts import WorkloadFacts
from reconciler.execute import tracing
from reconciler.execute.executor import Executor
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.nodes.mass_not_ready import Storms
from reconciler.observe.observed import Observed
from reconciler.schedule.reasons import Reasons
from reconciler.schedule.verdicts import Verdicts

logger = logging.getLogger(__name__)


class _Wake(asyncio.Event):
    """Set while something is to be decided; knows since when."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._since = clock, 0.0
        self.count = 0  # of events that may change a decision

    def set(self) -> None:
        self.count += 1
        self.set_without_event()

    def set_without_event(self) -> None:
        """Sets it though nothing has happened: a cycle was cut off."""
        if not self.is_set():
            self._since = self._clock.monotonic()
        super().set()

    @property
    def waited_s(self) -> float:
        return self._clock.monotonic() - self._since if self.is_set() else 0.0


class StepTime:
    """The time of one step, with at least half of it from the first question on: what comes before that is done in each cycle, however
    long it takes."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._ends, self._is_asked = clock.monotonic() + seconds, False

    def is_left(self) -> bool:
        """Whether the step may go on. The first call ensures that at least half of the step's time is left."""
        now = self._clock.monotonic()
        if not self._is_asked:
            self._ends, self._is_asked = max(self._ends, now + self._seconds / 2), True
        return now < self._ends


def may_go_on(time: StepTime, judged: Sequence[object], urgent: Sequence[object]) -> bool:
    """Whether a cycle with the verdicts `judged` may go on: time is left, there are fewer than `pacing.MOST_VERDICTS`, and fewer than
    `pacing.MOST_URGENT` of them are `urgent`."""
    return time.is_left() and len(judged) < pacing.MOST_VERDICTS and len(urgent) < pacing.MOST_URGENT


class Scheduler:
    """Decides on waiting workloads whenever something changed that could help one.

    A change wakes it and hands nothing over: the cycle reads in the state which workloads have changed (`Pending.sync`).
    """

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        profiles: Profiles,
        pods_ready: PodsReadyRules | None = None,
        second_pass: SecondPass = SecondPass(),  # noqa: B008, a frozen value
        replacement: NodeReplacement = REPLACES,
        sharing: FairSharing | None = None,
        *,
        shrinks: bool = True,
        storms: Storms | None = None,
        requeue: RequeueRules = RequeueRules(),  # noqa: B008, a frozen value
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self._observed = observed
        self._recorder = recorder
        self._executor = executor
        self._clock = clock
        in_storm = storms.is_affected if storms is not None else lambda workload: False
        self._cycle = Cycle(
            observed.state, profiles, pods_ready, replacement, sharing, shrinks=shrinks, is_in_storm=in_storm, timer=clock.read_timer
        )
        self._wake = _Wake(clock)
        if storms is not None:
            storms.on_change.append(self._wake.set)
        self._not_before: dict[str, datetime] = {}  # uid -> when it is queued again, by its status
        # Uids of the workloads that are passed over for that, and of those with a failed second pass, at the time at
        # which they are tried again.
        self._due = WorkQueue(clock)
        self._verdicts = Verdicts(observed, executor, clock, second_pass, self, recorder, requeue)
        self._tasks: set[asyncio.Task[None]] = set()
        self._urgent: set[asyncio.Task[None]] = set()  # of these
        self._ended = asyncio.Event()  # one of them
        self._reasons = Reasons(observed, clock, self._cycle, self._verdicts)
        self._seen_changes = -1
        self._is_cut = False  # whether the last cycle left decisions to the next
        self._count_at_round = 0  # events when the round of cycles began
        self._is_draining = False
        for informer in (
            observed.nodes,
            observed.pods,
            observed.daemon_sets,
            observed.topologies,
            observed.flavors,
            observed.cluster_queues,
            observed.cohorts,
            observed.admission_checks,
            observed.local_queues,
            observed.namespaces,
            observed.pauses,
        ):
            informer.add_handler(self._on_change)
        observed.workloads.add_handler(self._on_workload)
        observed.state.on_free.append(self._wake.set)

    def _on_change(self, _change: Change) -> None:
        if self._observed.state.changes != self._seen_changes:
            self._wake.set()

    def _on_workload(self, change: Change) -> None:
        uid = change.obj["metadata"]["uid"]
        facts = self._observed.state.workloads.facts.get(build_object_key(change.obj)) if change.new is not None else None
        if change.new is None:
            self._verdicts.drop(uid)
        until = tracing.parse_time(facts.requeue_at) if facts is not None else None
        if until is None:
            self._not_before.pop(uid, None)
        else:
            self._not_before[uid] = until
        self._wake.set()

    async def run(self) -> None:
        """Runs a cycle whenever something has changed that could help a workload. Never returns; raises what ends a part, in an exception
        group.
        """
        async with asyncio.TaskGroup() as self._background:
            start_eternal(self._background, "requeuing", self._wake_when_due())
            self._reasons.run(self._background)
            start_eternal(self._background, "old reasons", self._refresh_reasons())
            try:
                window_s = pacing.DECIDING_WINDOW_S
                while True:
                    await self._wake.wait()
                    await self._clock.sleep(window_s)
                    if self._is_draining:
                        await asyncio.Event().wait()
                    self._wake.clear()
                    self._seen_changes = self._observed.state.changes
                    began = self._clock.monotonic()
                    await self.run_cycle()
                    rest_s = pacing.DECIDING_REST * (self._clock.monotonic() - began)
                    window_s = min(pacing.LONGEST_WINDOW_S, max(pacing.DECIDING_WINDOW_S, rest_s))
                    window_s = min(window_s, pacing.CUT_REST_S) if self._is_cut else window_s
            finally:
                for task in self._tasks:
                    task.cancel()

    def _set_aside(self, error: Exception) -> None:
        """A decision raised: the workload that it was about is left out until it changes, and all others are decided on."""
        facts = self._cycle.set_aside()
        if facts is not None:
            self._observed.state.drop_assumed(facts.key, facts.uid)  # assumed perhaps, and not handed out
        workload = self._observed.workloads.store.get(facts.key) if facts is not None else None
        if facts is not None and workload is not None:
            self._observed.set_aside.add(self._observed.workloads.resource, facts.key, workload, error)
        else:
            logger.error("a cycle failed and is tried again", exc_info=error)
        self.wake_in(pacing.LONGEST_WINDOW_S)

    async def _wake_when_due(self) -> None:
        while True:
            item = await self._due.get()
            self._due.finish(item.key)
            self._cycle.requeue_workload(str(item.key))
            self._wake.set()

    async def _refresh_reasons(self) -> None:
        """Renews refusals with amounts that may be out of date: a refusal stands until something could help, and its
        amounts change without that.

        When nothing has happened for some seconds, earlier refusals are decided on again, a few at a time, until
        something happens.
        """
        seen, before = -1, 0  # events, and the round from which on refusals are new
        while True:
            await self._clock.sleep(pacing.REASONS_QUIET_S)
            if self._wake.count == seen or self._wake.is_set():
                continue
            count = self._wake.count
            await self._clock.sleep(pacing.REASONS_QUIET_S)
            if self._wake.count != count or self._is_cut:
                continue
            seen, before = count, self._cycle.round
            while self._wake.count == count and self._cycle.drop_refusals(before, pacing.REASONS_REFRESHED):
                self._wake.set_without_event()
                await self._clock.sleep(pacing.REASONS_REFRESH_S)

    async def run_cycle(self) -> None:
        """Runs one batch of decisions, long ones to their end; none while it is drained. A workload with a decision that raises is set
        aside until it changes. The writes of the verdicts are under way when it returns, see `settle`."""
        while not self._is_draining and await self._run_part():
            try:
                for _ in iter(lambda: self._cycle.run_piece(StepTime(self._clock, pacing.PIECE_S).is_left), False):
                    await asyncio.sleep(0)  # the loop serves events and writes
            except Exception as error:
                self._set_aside(error)

    async def _run_part(self) -> bool:
        """Runs one cycle. Returns whether it ended for a decision that continues in pieces."""
        started = self._clock.monotonic()
        time, was_cut = StepTime(self._clock, pacing.DECIDING_S), self._is_cut
        if not was_cut:
            self._count_at_round = self._wake.count
        with tracing.trace_cycle() as span:
            judged, urgent = list[Judged](), list[Judged]()
            began = self._clock.now()
            try:
                for verdict in self._cycle.run(partial(may_go_on, time, judged, urgent), self._is_held_back, self._verdicts.is_busy):
                    ended = self._clock.now()
                    judged.append(Judged(verdict, began, ended))
                    urgent += judged[-1:] if verdict.is_urgent else []
                    began = ended
            except Exception as error:  # what was decided before is assumed already, and has to be written
                self._set_aside(error)
            refused = any(isinstance(one.verdict.outcome, NotAdmissible) for one in judged)
            span.set_attributes({t.VERDICT_COUNT: len(judged), t.REFUSED: refused})
            self._record(judged, self._clock.monotonic() - started)
            self._is_cut = self._cycle.is_cut
            if self._is_cut:
                self._wake.set_without_event()
            elif self._cycle.wants_more or (was_cut and self._wake.count != self._count_at_round):
                self._wake.set()  # what happened during the round may help those that had their turn before
            if self._cycle.is_stale:
                self._reasons.note_stale()
            for one in judged:
                if not self._reasons.defer(one):
                    self._start(one)
        while len(self._tasks) > pacing.MOST_VERDICT_WRITES or len(self._urgent) > pacing.MOST_URGENT:
            self._ended.clear()
            await self._ended.wait()
        return self._cycle.is_deciding

    def _record(self, judged: list[Judged], seconds: float) -> None:
        if judged:
            self._recorder.record_cycle(succeeded=any(isinstance(one.verdict.outcome, Admissible) for one in judged), seconds=seconds)
        for one in judged:
            took = (one.ended - one.began).total_seconds()
            self._recorder.record_decision(found=isinstance(one.verdict.outcome, Admissible), seconds=max(0.0, took))

    @property
    def behind_s(self) -> float:
        """Returns for how many seconds what has changed waits to be decided on; 0 where nothing does."""
        return self._wake.waited_s

    def count_by_class(self) -> Iterator[tuple[str, int, int]]:
        """Yields, for each group of waiting workloads that ask for the same, its LocalQueue (namespace/name), how many there are, and how
        many of these are not decided on again until something has changed. They were refused, or wait for a time in their status."""
        now = self._clock.now()
        return self._cycle.count_by_class(lambda uid: (until := self._not_before.get(uid)) is not None and until > now)

    @property
    def makes_room(self) -> bool:
        """Whether any workload is being evicted for another one, which gets what that releases."""
        return self._cycle.makes_room

    async def drain(self) -> None:
        """Stops deciding; returns once all verdicts that are being written are written. Reasons that are to be written later are not."""
        self._is_draining = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def settle(self) -> None:
        """Writes all verdicts and all reasons, whatever the pace otherwise; returns once they and all events are written."""
        for judged in self._reasons.drain():
            await self._verdicts.write(judged)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._executor.reporter.settle()

    def _start(self, judged: Judged) -> None:
        workload = judged.verdict.workload
        self._verdicts.begin(workload.uid)  # not when the task has its turn
        task = asyncio.create_task(self._verdicts.write(judged), name=f"write verdict on {workload.key}")
        self._tasks.add(task)
        self._urgent |= {task} if judged.verdict.is_urgent else set()
        task.add_done_callback(self._handle_done)

    def _handle_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._urgent.discard(task)
        self._ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a write ended in a fault of ours", extra={"task": task.get_name()}, exc_info=error)

    def _is_held_back(self, uid: str) -> bool:
        """It was evicted and is to be queued again only later."""
        later = self._not_before.get(uid)
        left = (later - self._clock.now()).total_seconds() if later is not None else 0.0
        if left > 0:
            self._due.add_after(uid, left, "queued again")
            return True
        return False

    # --- what writing verdicts asks of the loop (reconciler.schedule.verdicts.Loop) ----------------------------------------

    def drop_decision(self, uid: str) -> None:
        """Drops what was decided on the workload with a uid, so that it is decided on again; see `Loop.drop_decision`."""
        self._cycle.requeue_workload(uid)

    def refuse(self, workload: WorkloadFacts, why: NotAdmissible) -> None:
        """Refuses a workload until it or a configuration changes; see `Loop.refuse`."""
        self._cycle.unwritable.add(workload, why)

    def judge_later(self, uid: str, seconds: float) -> None:
        """Judges the workload with a uid again after some seconds; see `Loop.judge_later`."""
        self._due.add_after(uid, seconds, "second pass")

    def wake(self) -> None:
        """Runs a cycle after a short window in which events are gathered; see `Loop.wake`."""
        self._wake.set()

    def wake_in(self, seconds: float) -> None:
        """Runs a cycle after some seconds, and a short window in which events are gathered; see `Loop.wake_in`. Needs the running event
        loop.
        """
        asyncio.get_running_loop().call_later(seconds + pacing.DECIDING_WINDOW_S, self._wake.set)

    def exclude_victim(self, key: str) -> None:
        """Excludes the workload with a key as a victim and runs a cycle in `pacing.VERDICT_RETRY_S` seconds; see `Loop.exclude_victim`."""
        self._cycle.exclude_victim(key)
        self.wake_in(pacing.VERDICT_RETRY_S)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Starts a task with a name at once and does not wait for it. Allowed only while `run` is under way: before it AttributeError is
        raised. An error of the task ends `run`."""
        self._background.create_task(work, name=name)
