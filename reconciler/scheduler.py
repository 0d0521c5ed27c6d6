"""The decision loop: woken by changes, runs a cycle, writes the verdicts.

Deciding is synchronous and sees no half event; writing is concurrent. A verdict whose write fails is
taken back and decided again.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from core import trace_names as t
from core.model.admission import Admission, admission_from_wire, admission_to_wire
from core.model.configuration import FairSharing, SecondPass
from core.model.encoding import encoded_size
from core.model.pods_ready import PodsReadyRules
from core.names import (
    ADMITTED,
    EVENT_SECOND_PASS_FAILED,
    EVENT_WORKLOAD_REFUSED,
    QUOTA_RESERVED,
    REASON_PENDING_EVALUATION,
    REASON_PENDING_TOPOLOGY,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
)
from core.placement.choice import show_choices
from core.placement.profile import Profiles
from core.plan.admission import MAX_ETCD_BYTES, amended_status, waiting_status
from core.plan.conditions import Condition, says
from core.plan.verdicts import next_pass_s, verdict_status
from core.queueing.cycle import PASSING, Cycle, Verdict
from core.queueing.outcome import Found, NotFound
from core.queueing.second_pass import REPLACES, NodeReplacement
from core.runtime.clock import Clock
from core.runtime.errors import Conflict, KubeError, ServerError, Unreachable
from core.runtime.errors import NotFound as ObjectNotFound
from core.runtime.pace import yielding
from core.runtime.resource import Obj
from core.runtime.store import Change, object_key
from core.runtime.tasks import eternal
from core.runtime.workqueue import WorkQueue
from core.state.facts import WorkloadFacts, condition_is_true, find_condition
from reconciler import resources as r
from reconciler import tracing
from reconciler.allowance import Allowance
from reconciler.apply import Paused, Writer
from reconciler.metrics import UNRECORDED, Recorder
from reconciler.observed import Observed
from reconciler.preempting import Preemptions
from reconciler.replies import Replies
from reconciler.storms import Storms
from reconciler.telling import Events

logger = logging.getLogger(__name__)
BATCH_WINDOW_S = 0.02  # lets a burst of events be decided as one batch
# Where many wait each cycle asks all of them whether anything helps them: of the time that this takes so many times as much is left
# for all else, and more changes are decided on in one go.
DECIDING_REST, LONGEST_WINDOW_S = 9, 0.15
CYCLE_BUDGET_S = 0.25  # then the loop writes and serves events before it goes on
WRITES_AT_ONCE = 8
MOST_TASKS = 1024  # then deciding waits for writing
WORDS_AT_ONCE, WORDS_PER_S = 64, 10  # first refusals that are told at once
TOLD_PER_S = 50  # all others at most
# That somebody who knows that it waits does so for another reason or in other words. The API server's time is for admissions first:
# of the time that such a write takes, nine times as much is left between two of them, and the slower it is the longer.
TELL_AFTER_S, TELL_REST, LONGEST_REST_S = 1.0, 9, 2.0
CATCH_UP_S = 0.1  # between two who are behind those of their kind in the queue, and are told what these were
RETRY_S = 1.0
FIND_OUT_ATTEMPTS = 120
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 30.0  # of a workload whose verdict could not be written
LOST_ANSWER = "the answer to the last write was lost; it is decided on anew"


@dataclass(frozen=True, slots=True)
class _Judged:
    """A verdict, and when the decision on it began and ended."""

    verdict: Verdict
    began: datetime
    ended: datetime


class _Wake(asyncio.Event):
    """Set while something is to be decided; knows since when."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._since = clock, 0.0

    def set(self) -> None:
        if not self.is_set():
            self._since = self._clock.monotonic()
        super().set()

    @property
    def waited_s(self) -> float:
        return self._clock.monotonic() - self._since if self.is_set() else 0.0


class Scheduler:
    """Decides on waiting workloads whenever something changed that could help one."""

    def __init__(
        self,
        observed: Observed,
        writer: Writer,
        clock: Clock,
        profiles: Profiles,
        pods_ready: PodsReadyRules | None = None,
        second_pass: SecondPass = SecondPass(),  # noqa: B008, a frozen value
        replacement: NodeReplacement = REPLACES,
        sharing: FairSharing | None = None,
        *,
        shrinks: bool = True,
        storms: Storms | None = None,
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self._observed = observed
        self._recorder = recorder
        self._writer = writer
        self._clock = clock
        in_storm = storms.holds if storms is not None else lambda workload: False
        self._cycle = Cycle(observed.state, profiles, pods_ready, replacement, sharing, shrinks=shrinks, is_in_storm=in_storm)
        self._second_pass = second_pass
        self._wake = _Wake(clock)
        if storms is not None:
            storms.on_change.append(self._wake.set)
        self._held_back: dict[str, tuple[int, float]] = {}  # uid -> failed writes in a row, and until when it is passed over
        self._not_before: dict[str, datetime] = {}  # uid -> when it is queued again, as its status says
        # Uids of those that are passed over for that, and of those whose second pass has failed, at the time at which they are
        # to be looked at again.
        self._due = WorkQueue(clock)
        self._news: dict[str, _Judged] = {}  # uid -> why it waits now; it has been told before, for the same reason in other words
        self._to_tell = WorkQueue(clock)
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)
        self._events = Events(observed, writer, recorder)
        self._replies = Replies(observed.workloads)
        self._preempting = Preemptions(observed, writer, self._events, self._writes, self._spare, recorder)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()  # one of them
        self._writing: dict[str, bool] = {}  # uid -> whether it had its turn meanwhile, and was not judged
        self._words = Allowance(WORDS_PER_S, WORDS_AT_ONCE)
        self._seen_changes = -1
        self._is_stale = asyncio.Event()
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

    def _on_change(self, _change: Change) -> None:
        if self._observed.state.changes != self._seen_changes:
            self._wake.set()

    def _on_workload(self, change: Change) -> None:
        uid = change.obj["metadata"]["uid"]
        facts = self._observed.state.workloads.facts.get(object_key(change.obj)) if change.new is not None else None
        if change.new is None:
            self._held_back.pop(uid, None)
        until = tracing.parse_time(facts.requeue_at) if facts is not None else None
        if until is None:
            self._not_before.pop(uid, None)
        else:
            self._not_before[uid] = until
        self._wake.set()

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as self._background:
            eternal(self._background, "requeuing", self._wake_when_due())
            eternal(self._background, "other words", self._tell_news())
            eternal(self._background, "catching up", self._catch_up())
            try:
                window_s = BATCH_WINDOW_S
                while True:
                    await self._wake.wait()
                    await self._clock.sleep(window_s)
                    self._wake.clear()
                    self._seen_changes = self._observed.state.changes
                    began = self._clock.monotonic()
                    await self.run_cycle()
                    window_s = min(LONGEST_WINDOW_S, max(BATCH_WINDOW_S, DECIDING_REST * (self._clock.monotonic() - began)))
            finally:
                self._events.cancel()
                for task in self._tasks:
                    task.cancel()

    async def _wake_when_due(self) -> None:
        while True:
            item = await self._due.get()
            self._due.done(item.key)
            self._cycle.reconsider(str(item.key))
            self._wake.set()

    async def _tell_news(self) -> None:
        """Whatever is freed or taken changes the words of many who wait: told in good time, not at once."""
        while True:
            item = await self._to_tell.get()
            began = self._clock.monotonic()
            judged = self._news.pop(str(item.key), None)
            if judged is not None and self._observed.state.workloads.holding(judged.verdict.workload.key) is None:
                self._writing[judged.verdict.workload.uid] = False
                with yielding():
                    await self._write_first(judged)
            self._to_tell.done(item.key)
            await self._rest(1 / TOLD_PER_S, began)

    async def _catch_up(self) -> None:
        """Many ask for the same, and the first of them was told how things are now: the others hear of it one after the other."""
        while True:
            await self._is_stale.wait()
            began = self._clock.monotonic()
            verdict = self._cycle.catch_up(self._writing.__contains__)
            if verdict is not None:
                uid, now = verdict.workload.uid, self._clock.now()
                self._news.pop(uid, None)
                self._writing[uid] = False
                with yielding():
                    await self._write_first(_Judged(verdict, now, now))
            elif not self._cycle.is_stale:
                self._is_stale.clear()
            await self._rest(CATCH_UP_S, began)

    async def _rest(self, least_s: float, began: float) -> None:
        """Most of the API server's time is others'."""
        await self._clock.sleep(min(LONGEST_REST_S, max(least_s, TELL_REST * (self._clock.monotonic() - began))))

    def _told_in(self, verdict: Verdict) -> float | None:
        """After how many seconds a workload is told why it waits, at the pace of all that are told. None: at once, whatever it is."""
        outcome, workload = verdict.outcome, self._replies.latest(verdict.workload.key)
        if (
            verdict.is_second_pass
            or isinstance(outcome, Found)
            or (outcome.preempting is not None and outcome.preempting.victims)
            or outcome.breaks_rule
            or workload is None
        ):
            return None
        told = find_condition(workload, QUOTA_RESERVED) or {}
        reasons = {told.get("reason"), outcome.reason}
        if told.get("status") == "False" and (len(reasons) == 1 or reasons <= PASSING):
            return TELL_AFTER_S
        return None if self._words.take(self._clock.monotonic()) else 0.0  # of a crowd that comes at once some are told a bit later

    async def run_cycle(self) -> None:
        """One batch of decisions. Their writes are under way when it returns, see `settle`."""
        started = self._clock.monotonic()
        deadline = started + CYCLE_BUDGET_S
        with tracing.cycle() as span:
            judged: list[_Judged] = []
            began = self._clock.now()
            for verdict in self._cycle.run(lambda: self._clock.monotonic() < deadline, self._is_held_back, self._is_busy):
                ended = self._clock.now()
                judged.append(_Judged(verdict, began, ended))
                began = ended
            refused = any(isinstance(one.verdict.outcome, NotFound) for one in judged)
            span.set_attributes({t.VERDICT_COUNT: len(judged), t.REFUSED: refused})
            self._record(judged, self._clock.monotonic() - started)
            if self._clock.monotonic() >= deadline or self._cycle.wants_more:
                self._wake.set()
            if self._cycle.is_stale:
                self._is_stale.set()
            for one in judged:
                uid = one.verdict.workload.uid
                self._news.pop(uid, None)
                told_in = self._told_in(one.verdict)
                if told_in is None:
                    self._writing[uid] = False
                    self._start(self._write_first(one), f"write verdict on {one.verdict.workload.key}")
                else:
                    self._news[uid] = one
                    self._to_tell.add_after(uid, told_in, "other words")
        while len(self._tasks) > MOST_TASKS:
            self._ended.clear()
            await self._ended.wait()

    def _record(self, judged: list[_Judged], seconds: float) -> None:
        if judged:
            self._recorder.cycle(succeeded=any(isinstance(one.verdict.outcome, Found) for one in judged), seconds=seconds)
        for one in judged:
            took = (one.ended - one.began).total_seconds()
            self._recorder.decided(found=isinstance(one.verdict.outcome, Found), seconds=max(0.0, took))

    @property
    def behind_s(self) -> float:
        """For how long what has changed waits to be decided on."""
        return self._wake.waited_s

    def count_refused(self) -> Mapping[str, int]:
        """Per LocalQueue how many of those who wait were refused, and how things are now are not asked again."""
        now = self._clock.now()
        return self._cycle.count_refused(lambda uid: (until := self._not_before.get(uid)) is not None and until > now)

    async def settle(self) -> None:
        """Until all that was decided is written and told, in whatever pace else."""
        for uid in list(self._news):
            await self._write(self._news.pop(uid))
        while (verdict := self._cycle.catch_up()) is not None:
            await self._write(_Judged(verdict, self._clock.now(), self._clock.now()))
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._events.settle()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a write ended in a fault of ours", extra={"task": task.get_name()}, exc_info=error)

    async def _write_first(self, judged: _Judged) -> None:
        """The workload is not judged until its verdict is written: two writes at once would be in each other's way."""
        try:
            await self._write(judged)
        finally:
            if self._writing.pop(judged.verdict.workload.uid, False):
                self._wake.set()

    async def _write(self, judged: _Judged) -> None:
        verdict, key = judged.verdict, judged.verdict.workload.key
        workload = self._replies.latest(key)
        try:
            async with self._writes:
                if workload is None or workload["metadata"]["uid"] != verdict.workload.uid:
                    self._take_back(verdict, "it is gone")
                elif isinstance(verdict.outcome, Found):
                    too_large = _too_large(workload, verdict.outcome)
                    if too_large is None:
                        await self._admit(workload, judged, verdict.outcome)
                    else:
                        self._observed.state.forget(key)
                        if verdict.is_second_pass:
                            await self._tell_of_failed_pass(workload, judged, too_large)
                        else:
                            await self._let_wait(workload, judged, too_large)
                elif verdict.outcome.evicts:
                    await self._evict(workload, judged, verdict.outcome)
                elif verdict.is_second_pass:
                    await self._tell_of_failed_pass(workload, judged, verdict.outcome)
                else:
                    await self._let_wait(workload, judged, verdict.outcome)
        except (Unreachable, ServerError) as error:
            if verdict.is_second_pass and isinstance(verdict.outcome, NotFound):
                self._take_back(verdict, str(error))  # nothing is assumed, and an eviction may be written twice
                return
            logger.warning("verdict may or may not have been written", extra={"workload": key, "error": str(error)})
            self._background.create_task(self._find_out(judged), name=f"find out about {key}")
        except KubeError as error:
            if not isinstance(error, Conflict | ObjectNotFound):
                logger.warning("verdict could not be written", extra={"workload": key, "error": str(error)})
            self._take_back(verdict, str(error), getattr(error, "retry_after", None))
        except Paused as error:  # decided on before that was seen
            self._take_back(verdict, str(error))
        except Exception as error:
            logger.exception("verdict could not be written", extra={"workload": key})
            self._take_back(verdict, repr(error))
        except BaseException:
            self._take_back(verdict, "the write was cut off")
            raise
        else:
            self._held_back.pop(verdict.workload.uid, None)
            if isinstance(verdict.outcome, NotFound) and verdict.outcome.preempting is not None:
                await self._preempting.tell_all(verdict.workload, verdict.outcome.preempting)

    async def _find_out(self, judged: _Judged) -> None:
        """The answer to a write was lost. Until it is known what became of it the decision stays assumed: its place
        given to another would be booked twice if the write did arrive.

        A write still on its way is made to fail before the place is given up: it is guarded by the version that
        the workload had, and a status written now changes that.
        """
        verdict = judged.verdict
        namespace, _, name = verdict.workload.key.partition("/")
        for _ in range(FIND_OUT_ATTEMPTS):
            await self._clock.sleep(RETRY_S)
            try:
                now = await self._writer.read_workload(namespace, name)
                if now["metadata"]["uid"] != verdict.workload.uid:
                    break
                admission = admission_from_wire((now.get("status") or {}).get("admission"))
                if admission is not None and not (verdict.is_second_pass and _wants_second_pass(now, admission)):
                    self._observed.state.confirm(verdict.workload.key, int(now["metadata"]["resourceVersion"]))
                    return
                if verdict.is_second_pass and admission is not None:
                    lost = Condition(ADMITTED, False, REASON_PENDING_TOPOLOGY, LOST_ANSWER)
                    if condition_is_true(now, ADMITTED):
                        lost = Condition(ADMITTED, True, ADMITTED, LOST_ANSWER)
                    state = (now.get("status") or {}).get("requeueState")
                    status = amended_status(now, [lost], self._writer.now(), state)
                else:
                    facts, rules = verdict.workload, self._observed.state.resource_rules
                    status = waiting_status(now, facts, REASON_PENDING_EVALUATION, LOST_ANSWER, self._writer.now(), rules)
                await self._writer.apply_admission(now, status, strict=True)
                break
            except ObjectNotFound:
                break
            except KubeError as error:
                logger.warning("still not known what was written", extra={"workload": verdict.workload.key, "error": str(error)})
        self._take_back(verdict, "its write did not arrive")

    def _is_held_back(self, uid: str) -> bool:
        """It was evicted and is to be queued again only later."""
        later = self._not_before.get(uid)
        left = (later - self._clock.now()).total_seconds() if later is not None else 0.0
        if left > 0:
            self._due.add_after(uid, left, "queued again")
            return True
        return False

    def _is_busy(self, uid: str) -> bool:
        """Its verdict is being written, or could not be a moment ago: it is judged again once that is done, or over."""
        if uid in self._writing:
            self._writing[uid] = True
        _, until = self._held_back.get(uid, (0, 0.0))
        return uid in self._writing or self._clock.monotonic() < until

    def _take_back(self, verdict: Verdict, why: str, retry_after_s: float | None = None) -> None:
        """Undoes a verdict that was not written; the workload is judged again after a pause that doubles."""
        workload = verdict.workload
        if isinstance(verdict.outcome, Found):
            self._observed.state.forget(workload.key)
        self._cycle.reconsider(workload.uid)
        if self._replies.latest(workload.key) is None:
            return
        failures, _ = self._held_back.get(workload.uid, (0, 0.0))
        pause = max(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures), retry_after_s or 0.0)
        self._held_back[workload.uid] = failures + 1, self._clock.monotonic() + pause
        logger.debug("verdict taken back", extra={"workload": workload.key, "why": why, "pause_s": pause})
        asyncio.get_running_loop().call_later(pause + BATCH_WINDOW_S, self._wake.set)

    async def _admit(self, workload: Obj, judged: _Judged, found: Found) -> None:
        verdict, queue = judged.verdict, found.admission.cluster_queue
        since = tracing.parse_time(verdict.workload.queued_since)
        self._tell_of_wait(workload, verdict, queue)
        self._tell_of_solve(workload, judged, queue, found)
        with tracing.step(t.ADMIT, workload, self._attributes(workload, queue)):
            written = await self._written(workload, self._status(workload, verdict))
        self._observed.state.confirm(verdict.workload.key, int(written["metadata"]["resourceVersion"]))
        story = tracing.traceparent_of(workload)
        self._recorder.written(max(0.0, (self._clock.now() - judged.ended).total_seconds()), story)
        self._recorder.placed(found.choices, story)
        if not verdict.is_second_pass:
            message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {self._seconds_since(since)}s"
            said_again = condition_is_true(written, ADMITTED)
            self._events.tell(r.WORKLOADS, workload, QUOTA_RESERVED, message, is_minor=said_again)
        if verdict.workload.admitted:
            logger.info(
                "failed nodes replaced", extra={"workload": verdict.workload.key, "nodes": sorted(verdict.workload.unhealthy_nodes)}
            )
            return
        if not condition_is_true(written, ADMITTED):
            logger.info("workload waits for its checks", extra={"workload": verdict.workload.key, "cluster_queue": queue})
            return
        logger.info("workload admitted", extra={"workload": verdict.workload.key, "cluster_queue": queue})
        reserved = tracing.parse_time(verdict.workload.reserved_at) if verdict.is_second_pass else None
        message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {self._seconds_since(reserved)}s"
        placed = [text for text in (found.together, show_choices(found.choices)) if text]
        message += f"; placed: {'; '.join(placed)}" if placed else ""
        self._events.tell(r.WORKLOADS, workload, ADMITTED, message)

    def _seconds_since(self, moment: datetime | None) -> int:
        return max(0, int((self._clock.now() - moment).total_seconds())) if moment is not None else 0

    async def _tell_of_failed_pass(self, workload: Obj, judged: _Judged, outcome: NotFound) -> None:
        """It keeps its quota, and is tried again when something that could help has changed, or after a pause that doubles."""
        self._tell_of_solve(workload, judged, _queue_of(judged.verdict.workload), outcome)
        pause = next_pass_s(workload, self._clock.now(), self._second_pass)
        if pause is not None:
            self._due.add_after(workload["metadata"]["uid"], pause, "second pass")
        self._events.tell(r.WORKLOADS, workload, EVENT_SECOND_PASS_FAILED, outcome.message, warning=True)
        self._events.tell_maker(workload, EVENT_SECOND_PASS_FAILED, outcome.message)

    async def _evict(self, workload: Obj, judged: _Judged, outcome: NotFound) -> None:
        """There is no other place for pods that have lost theirs: all of it is to be stopped, and queued again."""
        queue = _queue_of(judged.verdict.workload)
        self._tell_of_solve(workload, judged, queue, outcome)
        evicted = self._attributes(workload, queue) | {t.REASON: outcome.reason, t.MESSAGE: outcome.message}
        with tracing.step(t.EVICT, workload, evicted, links=[tracing.decision_of(workload)]):
            await self._written(workload, self._status(workload, judged.verdict))
        logger.info("workload evicted", extra={"workload": judged.verdict.workload.key, "reason": outcome.reason, "why": outcome.message})
        self._events.tell(r.WORKLOADS, workload, f"EvictedDueTo{outcome.reason}", outcome.message)

    async def _written(self, workload: Obj, status: Mapping[str, Any]) -> Obj:
        """Strict: if the workload was deactivated, changed or deleted since it was seen, the decision is void."""
        written = await self._writer.apply_admission(workload, status, strict=True)
        self._replies.keep(written)
        return written

    def _status(self, workload: Obj, verdict: Verdict) -> dict[str, Any]:
        status = verdict_status(workload, verdict, self._writer.now(), self._observed.state.resource_rules)
        assert status is not None, "a second pass that failed writes nothing"
        return status

    async def _let_wait(self, workload: Obj, judged: _Judged, outcome: NotFound) -> None:
        verdict = judged.verdict
        condition = Condition(QUOTA_RESERVED, False, outcome.reason, outcome.message)
        if says((workload.get("status") or {}).get("conditions") or (), condition):
            if outcome.breaks_rule:
                await self._writer.deactivate(workload, outcome.reason)
            return
        queue = self._observed.state.find_cluster_queue(verdict.workload)
        self._tell_of_solve(workload, judged, queue.name if queue is not None else "", outcome)
        written = await self._written(workload, self._status(workload, replace(verdict, outcome=outcome)))
        if outcome.breaks_rule:  # what is wrong is told first, so that no deactivated workload is without a reason
            await self._writer.deactivate(written, outcome.reason)
        logger.info("workload waits", extra={"workload": verdict.workload.key, "reason": outcome.reason, "why": outcome.message})
        self._events.tell(r.WORKLOADS, workload, outcome.reason, outcome.message, warning=True)
        self._events.tell_maker(workload, EVENT_WORKLOAD_REFUSED if outcome.breaks_rule else outcome.reason, outcome.message)

    def _spare(self, key: str) -> None:
        """A victim could not be told to go: who wanted it to is judged anew."""
        self._cycle.spare(key)
        asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)

    # --- tracing ----------------------------------------------------------------------------------------

    def _tell_of_wait(self, workload: Obj, verdict: Verdict, queue: str) -> None:
        """What it has waited for until now: quota, or with quota for its checks. Where nodes are replaced nothing waits."""
        facts, attributes = verdict.workload, self._attributes(workload, queue)
        if verdict.is_second_pass:
            if not facts.admitted:
                tracing.tell_of_checks(workload, facts, attributes)
            return
        requeued = ((workload.get("status") or {}).get("requeueState") or {}).get("count")
        if requeued:
            attributes[t.REQUEUE_COUNT] = int(requeued)
        with tracing.step(t.QUEUED, workload, attributes, start=tracing.parse_time(facts.queued_since)):
            pass

    def _tell_of_solve(self, workload: Obj, judged: _Judged, queue: str, outcome: Found | NotFound) -> None:
        attributes = {**self._attributes(workload, queue), t.PASS: _pass_of(judged.verdict)}
        with tracing.step(t.SOLVE, workload, attributes, start=judged.began, end=judged.ended) as span:
            tracing.explain(span, workload, outcome)

    @staticmethod
    def _attributes(workload: Obj, queue: str) -> dict[str, Any]:
        return {t.WORKLOAD: workload["metadata"]["name"], t.CLUSTER_QUEUE: queue}


def _queue_of(workload: WorkloadFacts) -> str:
    return workload.admission.cluster_queue if workload.admission is not None else ""


def _pass_of(verdict: Verdict) -> str:
    if not verdict.is_second_pass:
        return t.FIRST_PASS
    return t.REPLACEMENT if verdict.workload.unhealthy_nodes else t.SECOND_PASS


def _wants_second_pass(workload: Obj, admission: Admission) -> bool:
    """Whether what a second pass found is not written."""
    return admission.awaits_topology or bool((workload.get("status") or {}).get("unhealthyNodes"))


def _too_large(workload: Obj, found: Found) -> NotFound | None:
    """An assignment that etcd would not take is refused before any write, with its size."""
    size = encoded_size(workload) + encoded_size(admission_to_wire(found.admission))
    if size <= MAX_ETCD_BYTES:
        return None
    message = f"the Workload with its assignment would have {size} bytes; etcd takes {MAX_ETCD_BYTES}"
    return NotFound(REASON_TOPOLOGY_PLACEMENT_FAILED, message, found.attempts)
