"""Verdicts are written and reported, and victims evicted. If a write fails the decision is reverted; if its answer is lost the workload
is read."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol

from core.model.configuration import SecondPass
from core.model.node_health_rules import RequeueRules
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.workloads.verdict_steps import (
    DecidedWorkload,
    Judged,
    PresentVictim,
    VerdictRules,
    is_place_reported,
    plan_lost_answer,
    plan_preemption,
    plan_verdict,
    refuse_too_large,
)
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import RequeueAfter, Retryable
from core.runtime.http.errors import Conflict, KubeError, ServerError, Unreachable
from core.runtime.http.errors import NotFound as ObjectNotFound
from core.runtime.watch.store import read_version
from core.state.facts import WorkloadFacts
from core.state.whereabouts import describe_place
from reconciler.execute import tracing
from reconciler.execute.executor import Executor, Left, Paused
from reconciler.execute.recorder import Recorder
from reconciler.nodes.stuck_pods import find_moved
from reconciler.observe.observed import Observed

logger = logging.getLogger(__name__)
FIND_OUT_ATTEMPTS = 120


class Loop(Protocol):
    """What is asked of the loop that decides."""

    def drop_decision(self, uid: str) -> None:
        """Drops what was decided on the workload with a uid, so that it is decided on again in a later cycle."""

    def judge_later(self, uid: str, seconds: float) -> None:
        """Judges the workload with a uid again after some seconds, whether anything has changed or not."""

    def refuse(self, workload: WorkloadFacts, why: NotAdmissible) -> None:
        """Refuses a workload with a decision that cannot be written: it is not made again until the workload or a configuration changes."""

    def wake(self) -> None:
        """Decides once more, on whatever there is to decide."""

    def wake_in(self, seconds: float) -> None:
        """Decides once more after some seconds, on whatever there is to decide."""

    def exclude_victim(self, key: str) -> None:
        """Records that the workload with a key could not be evicted: the workload that waits for its room is decided on again."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs work in a task of its own with a name, to its end; does not wait for it."""


class Verdicts:
    """Writes them: `pacing.VERDICTS_AT_ONCE` at most at once of those that admit or preempt, and `pacing.REFUSALS_AT_ONCE` of all others,
    so that admissions do not wait for these."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        second_pass: SecondPass,
        loop: Loop,
        recorder: Recorder,
        requeue: RequeueRules = RequeueRules(),  # noqa: B008, a frozen value
    ) -> None:
        self._observed, self._executor, self._clock = observed, executor, clock
        self._second_pass, self._requeue = second_pass, requeue
        self._loop, self._recorder = loop, recorder
        self._writes, self._refusals = asyncio.Semaphore(pacing.VERDICTS_AT_ONCE), asyncio.Semaphore(pacing.REFUSALS_AT_ONCE)
        self._writing: dict[str, bool] = {}  # uid -> whether it had its turn meanwhile, and was not judged
        self._held_back: dict[str, tuple[int, float]] = {}  # uid -> failed writes in a row, and until when it is passed over

    def begin(self, uid: str) -> None:
        """Records that the verdict on the workload with a uid is about to be written: from now on it is busy until that is done."""
        self._writing[uid] = False

    def is_being_written(self, uid: str) -> bool:
        """Whether a verdict on the workload with a uid is being written."""
        return uid in self._writing

    def is_busy(self, uid: str) -> bool:
        """Whether the workload with a uid, which has its turn, is not to be judged: its verdict is being written, and two writes at once
        would be in each other's way; or it could not be a moment ago. Then it is judged once that is done, or over."""
        if uid in self._writing:
            self._writing[uid] = True
        _, until = self._held_back.get(uid, (0, 0.0))
        return uid in self._writing or self._clock.monotonic() < until

    def drop(self, uid: str) -> None:
        """Removes the pause of the workload with a uid, which is gone."""
        self._held_back.pop(uid, None)

    async def write(self, judged: Judged) -> None:
        """Writes one decision on a workload, an admission or a refusal, and evicts its victims. Returns once it is written or reverted, or
        a task looks up what became of it; raises nothing for a write that fails, whatever the error. One that is reverted is decided on
        again after a pause that doubles. Victims that could not be evicted are excluded (`Loop.exclude_victim`)."""
        uid = judged.verdict.workload.uid
        self._writing.setdefault(uid, False)
        try:
            await self._try_to_write(judged)
        finally:
            if self._writing.pop(uid, False):
                self._loop.wake()

    async def _try_to_write(self, judged: Judged) -> None:
        verdict = judged.verdict
        # The present workload, not that of its turn: any change meanwhile makes the decision void.
        workload = self._observed.workloads.store.get(verdict.workload.key)
        try:
            async with self._writes if verdict.is_urgent else self._refusals:
                written = await self._write(workload, judged)
        except (Unreachable, ServerError) as error:
            if verdict.is_second_pass and isinstance(verdict.outcome, NotAdmissible):
                self._undo_verdict(verdict, str(error))  # nothing is assumed, and an eviction may be written twice
                return
            logger.warning("verdict may or may not have been written", extra={"workload": verdict.workload.key, "error": str(error)})
            self._loop.start(self._find_out(judged), f"find out about {verdict.workload.key}")
        except KubeError as error:
            if not isinstance(error, Conflict | ObjectNotFound):
                logger.warning("verdict could not be written", extra={"workload": verdict.workload.key, "error": str(error)})
            self._undo_verdict(verdict, str(error), getattr(error, "retry_after", None))
        except (Paused, Retryable) as error:  # decided on before that was seen
            self._undo_verdict(verdict, str(error))
        except Exception as error:
            logger.exception("verdict could not be written", extra={"workload": verdict.workload.key})
            self._undo_verdict(verdict, repr(error))
        except BaseException:
            self._undo_verdict(verdict, "the write was cut off")
            raise
        else:
            if written is not None:
                self._held_back.pop(verdict.workload.uid, None)
                await self._evict_victims(written)

    async def _write(self, workload: Obj | None, judged: Judged) -> DecidedWorkload | None:
        """What was written; None where the decision was void."""
        verdict, left, workloads = judged.verdict, Left(), self._observed.state.workloads
        if workload is None or workload["metadata"]["uid"] != verdict.workload.uid:
            self._undo_verdict(verdict, "it is gone")
            return None
        if isinstance(verdict.outcome, Admissible):
            if not workloads.is_assumed(verdict.workload.key):
                self._undo_verdict(verdict, "its status was written meanwhile")
                return None
            workloads.begin_write(verdict.workload.key, read_version(workload))
        f = self._read(workload, judged)
        if f.outcome is not verdict.outcome and isinstance(f.outcome, NotAdmissible):
            self._refuse(verdict, f.outcome)
        result = await self._executor.execute(plan_verdict(f), left)
        if isinstance(result, RequeueAfter):
            self._loop.judge_later(verdict.workload.uid, result.seconds)
        if isinstance(f.outcome, Admissible):
            trace = tracing.find_traceparent(left[r.WORKLOADS, f.facts.key])
            self._recorder.record_write(max(0.0, (self._clock.now() - judged.ended).total_seconds()), trace)
            self._recorder.record_placement(f.outcome.choices, trace)
        return f

    async def _evict_victims(self, f: DecidedWorkload) -> None:
        """Each takes a turn of its own, whatever becomes of the others."""
        async with asyncio.TaskGroup() as group:
            for victim in f.victims:
                group.create_task(self._evict(f, victim), name=f"preempt {victim.victim.workload.key}")

    async def _evict(self, f: DecidedWorkload, present: PresentVictim) -> None:
        key = present.victim.workload.key
        try:
            plan = plan_preemption(f, present, self._executor.format_now())
            async with self._writes:
                await self._executor.execute(plan)
        except BaseException as error:
            self._loop.exclude_victim(key)
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, Conflict | ObjectNotFound | Paused):
                known = isinstance(error, KubeError)
                why = {"workload": key, "by": f.facts.key, "error": str(error)}
                logger.warning("a workload could not be preempted", extra=why, exc_info=None if known else error)
        else:
            if plan.steps:
                self._recorder.record_preemption(f.queue or None, present.victim.reason)

    def _read(self, workload: Obj, judged: Judged) -> DecidedWorkload:
        verdict, state = judged.verdict, self._observed.state
        outcome = refuse_too_large(workload, verdict.outcome) or verdict.outcome
        queue = verdict.workload.admission.cluster_queue if verdict.workload.admission is not None else ""
        if not verdict.is_second_pass:
            found = state.find_cluster_queue(verdict.workload)
            queue = found.name if found is not None else ""
        place = describe_place(state, outcome.admission) if isinstance(outcome, Admissible) and is_place_reported(workload, outcome) else ""
        is_move = isinstance(outcome, Admissible) and verdict.workload.admitted and not verdict.workload.unhealthy_nodes
        moved = find_moved(self._observed, verdict.workload, outcome.admission) if is_move and isinstance(outcome, Admissible) else ()
        rules = VerdictRules(state.resource_rules, self._second_pass, self._requeue)
        healthy = frozenset(name for name in verdict.workload.unhealthy_nodes if not self._observed.is_lost_node(name))
        victims = tuple(self._read_victims(outcome)) if isinstance(outcome, NotAdmissible) else ()
        path = self._build_path(verdict.workload) if victims else "/"
        return DecidedWorkload(workload, judged, outcome, self._clock.now(), rules, queue, place, tuple(moved), healthy, path, victims)

    def _read_victims(self, outcome: NotAdmissible) -> Iterator[PresentVictim]:
        for victim in outcome.preempting.victims if outcome.preempting is not None else ():
            if (seen := self._observed.workloads.store.get(victim.workload.key)) is not None:
                yield PresentVictim(victim, seen, self._build_path(victim.workload))

    def _build_path(self, workload: WorkloadFacts) -> str:
        """Where a workload's queue is among the cohorts: /root/.../queue."""
        queue = self._observed.state.find_cluster_queue(workload)
        if queue is None:
            return "/"
        return "/" + "/".join([*reversed(self._observed.state.quota.list_ancestors(queue.name)), queue.name])

    def _refuse(self, verdict: Verdict, too_large: NotAdmissible) -> None:
        if isinstance(verdict.outcome, Admissible):
            # This helps no workload that waits: the same would be decided again otherwise.
            self._observed.state.drop_assumed(verdict.workload.key, verdict.workload.uid, helps=False)
        else:  # no workload is evicted for a place that cannot be written
            self._loop.drop_decision(verdict.workload.uid)
            self._loop.wake_in(pacing.VERDICT_PAUSE_S)
        self._loop.refuse(verdict.workload, too_large)

    async def _find_out(self, judged: Judged) -> None:
        """The answer to a write was lost. Until it is known what became of it the decision stays assumed: its place
        given to another would be booked twice if the write did arrive. Before it is given up, a write still on its way is made to fail."""
        verdict = judged.verdict
        namespace, _, name = verdict.workload.key.partition("/")
        for _ in range(FIND_OUT_ATTEMPTS):
            await self._clock.sleep(pacing.VERDICT_RETRY_S)
            try:
                now = await self._executor.read(r.WORKLOADS, namespace, name)
                if now["metadata"]["uid"] != verdict.workload.uid:
                    break
                plan = plan_lost_answer(verdict, now, self._executor.format_now(), self._observed.state.resource_rules)
                if not plan.steps:
                    self._observed.state.confirm(verdict.workload.key, read_version(now), verdict.workload.uid)
                    return
                await self._executor.execute(plan)
                break
            except ObjectNotFound:
                break
            except Exception as error:  # of ours, perhaps for what others have written: the next look is another try
                trace = None if isinstance(error, KubeError) else error
                extra = {"workload": verdict.workload.key, "error": str(error)}
                logger.warning("still not known what was written", extra=extra, exc_info=trace)
        self._undo_verdict(verdict, "its write did not arrive")

    def _undo_verdict(self, verdict: Verdict, why: str, retry_after_s: float | None = None) -> None:
        """Undoes a verdict that was not written; the workload is judged again after a pause that doubles."""
        workload = verdict.workload
        if isinstance(verdict.outcome, Admissible):
            self._observed.state.drop_assumed(workload.key, workload.uid)
        self._loop.drop_decision(workload.uid)
        if workload.key not in self._observed.workloads.store:
            return
        failures, _ = self._held_back.get(workload.uid, (0, 0.0))
        pause = max(min(pacing.VERDICT_LONGEST_PAUSE_S, pacing.VERDICT_PAUSE_S * 2**failures), retry_after_s or 0.0)
        self._held_back[workload.uid] = failures + 1, self._clock.monotonic() + pause
        logger.debug("verdict taken back", extra={"workload": workload.key, "why": why, "pause_s": pause})
        self._loop.wake_in(pause)
