"""What becomes of a decision: it is written and told; one whose write fails is taken back, and one whose answer is lost found out about."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from core import trace_names as t
from core.model.admission import Admission, admission_from_wire, admission_to_wire
from core.model.configuration import SecondPass
from core.model.encoding import encoded_size
from core.model.node_health import RequeueRules
from core.model.spares import must_be_named, show_borrowed, show_held_spares
from core.names import (
    ADMITTED,
    BORROWED_SPARES,
    EVENT_PODS_MOVED,
    EVENT_SECOND_PASS_FAILED,
    EVENT_WORKLOAD_REFUSED,
    EVICTED,
    QUOTA_RESERVED,
    REASON_PENDING_EVALUATION,
    REASON_PENDING_TOPOLOGY,
    REASON_TOPOLOGY_PLACEMENT_FAILED,
    SPARES,
)
from core.placement.choice import show_choices
from core.plan import resources as r
from core.plan import writes as w
from core.plan.admission import (
    BEFORE,
    FEWER,
    MAX_ETCD_BYTES,
    MOST_OF_FORMER,
    PLACED,
    amended_status,
    comes_back,
    find_former,
    waiting_status,
)
from core.plan.conditions import Condition, says
from core.plan.verdicts import forgotten_before, next_pass_s, verdict_status
from core.queueing.lending import show_loans
from core.queueing.outcome import Found, NotFound
from core.queueing.partial import describe_shortfalls
from core.queueing.run import Verdict
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.errors import Conflict, KubeError, ServerError, Unreachable
from core.runtime.errors import NotFound as ObjectNotFound
from core.state.facts import WorkloadFacts, condition_is_true, find_condition
from core.state.whereabouts import describe_move, describe_place
from reconciler import tracing
from reconciler.execute import Executor, Paused
from reconciler.metrics import Recorder
from reconciler.observed import Observed
from reconciler.preempting import Preemptions
from reconciler.stuck_pods import delete_stuck

logger = logging.getLogger(__name__)
WRITES_AT_ONCE = 8
RETRY_S = 1.0
FIND_OUT_ATTEMPTS = 120
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 30.0  # of a workload whose verdict could not be written
LOST_ANSWER = "the answer to the last write was lost; it is decided on anew"


class Loop(Protocol):
    """What is asked of the loop that decides."""

    def judge_again(self, uid: str) -> None:
        """Forgets what was decided on a workload."""

    def judge_later(self, uid: str, seconds: float) -> None:
        """Judges a workload again after a time, whether anything has changed or not."""

    def refuse(self, workload: WorkloadFacts, why: NotFound) -> None:
        """A decision cannot be written: it is not made again until the workload or a configuration changes."""

    def wake_in(self, seconds: float) -> None:
        """Decides once more after a time, on whatever there is to decide."""

    def spare(self, key: str) -> None:
        """A victim, which could not be told to go: who wanted it to is judged anew."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Does something beside, to its end."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and when the decision on it began and ended."""

    verdict: Verdict
    began: datetime
    ended: datetime


class Verdicts:
    """Writes them, `WRITES_AT_ONCE` at most."""

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
        self._observed, self._executor, self._clock, self._second_pass, self._requeue = observed, executor, clock, second_pass, requeue
        self._loop, self._recorder = loop, recorder
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)
        self._preempting = Preemptions(observed, executor, self._writes, loop.spare, recorder)
        self._held_back: dict[str, tuple[int, float]] = {}  # uid -> failed writes in a row, and until when it is passed over

    def rests(self, uid: str) -> bool:
        """Whether the verdict on a workload could not be written a moment ago."""
        _, until = self._held_back.get(uid, (0, 0.0))
        return self._clock.monotonic() < until

    def forget(self, uid: str) -> None:
        """A workload is gone."""
        self._held_back.pop(uid, None)

    async def write(self, judged: Judged) -> None:
        """One; returns once it is written, taken back, or to be found out about."""
        verdict, key = judged.verdict, judged.verdict.workload.key
        workload = self._observed.workloads.store.get(key)
        too_large: NotFound | None = None
        try:
            async with self._writes:
                if workload is None or workload["metadata"]["uid"] != verdict.workload.uid:
                    self._take_back(verdict, "it is gone")
                elif (too_large := _find_too_large(workload, verdict.outcome)) is not None:
                    if isinstance(verdict.outcome, Found):
                        # This helps no workload that waits: the same would be decided again otherwise.
                        self._observed.state.forget(key, verdict.workload.uid, helps=False)
                    else:  # no workload is evicted for a place that cannot be written
                        self._loop.judge_again(verdict.workload.uid)
                        self._loop.wake_in(FIRST_PAUSE_S)
                    self._loop.refuse(verdict.workload, too_large)
                    if verdict.is_second_pass:
                        await self._tell_of_failed_pass(workload, judged, too_large)
                    else:
                        await self._let_wait(workload, judged, too_large)
                elif isinstance(verdict.outcome, Found):
                    await self._admit(workload, judged, verdict.outcome)
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
            self._loop.start(self._find_out(judged), f"find out about {key}")
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
            if isinstance(verdict.outcome, NotFound) and verdict.outcome.preempting is not None and too_large is None:
                await self._preempting.tell_all(verdict.workload, verdict.outcome.preempting)

    async def _find_out(self, judged: Judged) -> None:
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
                now = await self._executor.read(r.WORKLOADS, namespace, name)
                if now["metadata"]["uid"] != verdict.workload.uid:
                    break
                admission = admission_from_wire((now.get("status") or {}).get("admission"))
                if admission is not None and not (verdict.is_second_pass and _wants_second_pass(now, admission, verdict.workload)):
                    self._observed.state.confirm(verdict.workload.key, int(now["metadata"]["resourceVersion"]), verdict.workload.uid)
                    return
                if verdict.is_second_pass and admission is not None:
                    lost = Condition(ADMITTED, False, REASON_PENDING_TOPOLOGY, LOST_ANSWER)
                    if condition_is_true(now, ADMITTED):
                        lost = Condition(ADMITTED, True, ADMITTED, LOST_ANSWER)
                    state = (now.get("status") or {}).get("requeueState")
                    status = amended_status(now, [lost], self._executor.now(), state)
                else:
                    facts, rules = verdict.workload, self._observed.state.resource_rules
                    status = waiting_status(now, facts, REASON_PENDING_EVALUATION, LOST_ANSWER, self._executor.now(), rules)
                await self._executor.write(w.apply_admission(now, status))
                break
            except ObjectNotFound:
                break
            except KubeError as error:
                logger.warning("still not known what was written", extra={"workload": verdict.workload.key, "error": str(error)})
        self._take_back(verdict, "its write did not arrive")

    def _take_back(self, verdict: Verdict, why: str, retry_after_s: float | None = None) -> None:
        """Undoes a verdict that was not written; the workload is judged again after a pause that doubles."""
        workload = verdict.workload
        if isinstance(verdict.outcome, Found):
            self._observed.state.forget(workload.key, workload.uid)
        self._loop.judge_again(workload.uid)
        if workload.key not in self._observed.workloads.store:
            return
        failures, _ = self._held_back.get(workload.uid, (0, 0.0))
        pause = max(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures), retry_after_s or 0.0)
        self._held_back[workload.uid] = failures + 1, self._clock.monotonic() + pause
        logger.debug("verdict taken back", extra={"workload": workload.key, "why": why, "pause_s": pause})
        self._loop.wake_in(pause)

    async def _admit(self, workload: Obj, judged: Judged, found: Found) -> None:
        verdict, queue = judged.verdict, found.admission.cluster_queue
        since = tracing.parse_time(verdict.workload.queued_since)
        self._tell_of_wait(workload, verdict, queue)
        self._tell_of_solve(workload, judged, queue, found)
        before = find_former(self._status(workload, verdict), MOST_OF_FORMER) if comes_back(workload) else ""
        with tracing.step(t.ADMIT, workload, self._attributes(workload, queue) | ({t.FORMER: before} if before else {})):
            if verdict.workload.admitted and not verdict.workload.unhealthy_nodes:
                await delete_stuck(self._observed, self._executor, verdict.workload, found.admission)
            workload = await self._name_spares(workload, verdict, found)
            written = await self._written(workload, self._status(workload, verdict))
        self._observed.state.confirm(verdict.workload.key, int(written["metadata"]["resourceVersion"]), verdict.workload.uid)
        story = tracing.traceparent_of(workload)
        self._recorder.written(max(0.0, (self._clock.now() - judged.ended).total_seconds()), story)
        self._recorder.placed(found.choices, story)
        if not verdict.is_second_pass:
            message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {self._seconds_since(since)}s"
            said_again = condition_is_true(written, ADMITTED)
            self._executor.reporter.event(r.WORKLOADS, workload, QUOTA_RESERVED, message, is_minor=said_again)
        if verdict.workload.admitted:
            what = "failed nodes replaced" if verdict.workload.unhealthy_nodes else "another place for pods that were stuck"
            nodes, spares = sorted(verdict.workload.unhealthy_nodes), _swapped_in(verdict.workload, found)
            logger.info(what, extra={"workload": verdict.workload.key, "nodes": nodes, "spares": spares})
            self._tell_of_move(workload, verdict.workload, found)
            return
        if not condition_is_true(written, ADMITTED):
            logger.info("workload waits for its checks", extra={"workload": verdict.workload.key, "cluster_queue": queue})
            return
        logger.info("workload admitted", extra={"workload": verdict.workload.key, "cluster_queue": queue})
        reserved = tracing.parse_time(verdict.workload.reserved_at) if verdict.is_second_pass else None
        message = f"Admitted by ClusterQueue {queue}, wait time since reservation was {self._seconds_since(reserved)}s"
        fewer = describe_shortfalls(verdict.workload, found)
        message += f"{FEWER}{fewer}" if fewer else ""
        placed = [text for text in (found.together, show_choices(found.choices), show_loans(found.loans)) if text]
        message += f"{PLACED}{'; '.join(placed)}" if placed else ""
        message += f"{BEFORE}{before}" if before else ""
        self._executor.reporter.event(r.WORKLOADS, workload, ADMITTED, message)

    def _tell_of_move(self, workload: Obj, facts: WorkloadFacts, found: Found) -> None:
        """Who made the job sees its pods end, and others come elsewhere."""
        moved = describe_move(facts.admission, found.admission, facts.unhealthy_nodes) if facts.admission is not None else ""
        if moved:
            self._executor.reporter.event(r.WORKLOADS, workload, EVENT_PODS_MOVED, moved)
            self._executor.reporter.report_on_job(workload, EVENT_PODS_MOVED, moved, warning=False)

    async def _name_spares(self, workload: Obj, verdict: Verdict, found: Found) -> Obj:
        """Before the admission by which they are held, so that whoever decides next holds the same."""
        said, notes = workload["metadata"].get("annotations") or {}, dict[str, str | None]()
        asked = {pod_set.name: pod_set.spares for pod_set in verdict.workload.pod_sets}
        replaces = _pass_of(verdict) == t.REPLACEMENT  # its assignment says of both which count no more
        if must_be_named(found.admission, said.get(SPARES), asked, replaces=replaces):
            notes[SPARES] = show_held_spares(found.admission)
        borrowed = show_borrowed(found.admission)
        if not replaces and borrowed != said.get(BORROWED_SPARES):
            notes[BORROWED_SPARES] = borrowed
        if not notes:
            return workload
        return await self._annotated(workload, notes)

    async def _annotated(self, workload: Obj, annotations: Mapping[str, str | None]) -> Obj:
        return await self._executor.write(w.patch_workload(workload, {"metadata": {"annotations": dict(annotations)}}))

    def _seconds_since(self, moment: datetime | None) -> int:
        return max(0, int((self._clock.now() - moment).total_seconds())) if moment is not None else 0

    async def _tell_of_failed_pass(self, workload: Obj, judged: Judged, outcome: NotFound) -> None:
        """It keeps its quota, and is tried again when something that could help has changed, or after a pause that doubles."""
        self._tell_of_solve(workload, judged, _queue_of(judged.verdict.workload), outcome)
        pause = next_pass_s(workload, self._clock.now(), self._second_pass)
        if pause is not None:
            self._loop.judge_later(workload["metadata"]["uid"], pause)
        self._executor.reporter.event(r.WORKLOADS, workload, EVENT_SECOND_PASS_FAILED, outcome.message, warning=True)
        self._executor.reporter.report_on_job(workload, EVENT_SECOND_PASS_FAILED, outcome.message)

    async def _evict(self, workload: Obj, judged: Judged, outcome: NotFound) -> None:
        """There is no other place for pods that have lost theirs: all of it is to be stopped, and queued again."""
        queue = _queue_of(judged.verdict.workload)
        self._tell_of_solve(workload, judged, queue, outcome)
        forgotten = forgotten_before(workload, judged.verdict, self._executor.now(), self._requeue)
        if forgotten:
            workload = await self._annotated(workload, forgotten)
        status = self._status(workload, judged.verdict)
        why = (find_condition({"status": status}, EVICTED) or {}).get("message") or ""  # the outcome's, and when it is queued again
        evicted = self._attributes(workload, queue) | {t.REASON: outcome.reason, t.MESSAGE: why}
        with tracing.step(t.EVICT, workload, evicted, links=[tracing.decision_of(workload)]):
            await self._written(workload, status)
        logger.info("workload evicted", extra={"workload": judged.verdict.workload.key, "reason": outcome.reason, "why": why})
        self._executor.reporter.event(r.WORKLOADS, workload, f"EvictedDueTo{outcome.reason}", why)

    async def _written(self, workload: Obj, status: Mapping[str, Any]) -> Obj:
        """Strict: if the workload was deactivated, changed or deleted since it was seen, the decision is void."""
        return await self._executor.write(w.apply_admission(workload, status))

    def _status(self, workload: Obj, verdict: Verdict) -> dict[str, Any]:
        state, outcome = self._observed.state, verdict.outcome
        is_told = isinstance(outcome, Found) and comes_back(workload) and not outcome.admission.awaits_topology
        place = describe_place(state, outcome.admission) if isinstance(outcome, Found) and is_told else ""
        status = verdict_status(workload, verdict, self._executor.now(), state.resource_rules, self._requeue, place)
        assert status is not None, "a second pass that failed writes nothing"
        return status

    async def _let_wait(self, workload: Obj, judged: Judged, outcome: NotFound) -> None:
        verdict = judged.verdict
        condition = Condition(QUOTA_RESERVED, False, outcome.reason, outcome.message)
        if says((workload.get("status") or {}).get("conditions") or (), condition):
            if outcome.breaks_rule:
                await self._executor.write(w.deactivate(workload, outcome.reason))
            return
        queue = self._observed.state.find_cluster_queue(verdict.workload)
        self._tell_of_solve(workload, judged, queue.name if queue is not None else "", outcome)
        written = await self._written(workload, self._status(workload, replace(verdict, outcome=outcome)))
        if outcome.breaks_rule:  # what is wrong is told first, so that no deactivated workload is without a reason
            await self._executor.write(w.deactivate(written, outcome.reason))
        logger.info("workload waits", extra={"workload": verdict.workload.key, "reason": outcome.reason, "why": outcome.message})
        self._executor.reporter.event(r.WORKLOADS, workload, outcome.reason, outcome.message, warning=True)
        self._executor.reporter.report_on_job(workload, EVENT_WORKLOAD_REFUSED if outcome.breaks_rule else outcome.reason, outcome.message)

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

    def _tell_of_solve(self, workload: Obj, judged: Judged, queue: str, outcome: Found | NotFound) -> None:
        attributes = {**self._attributes(workload, queue), t.PASS: _pass_of(judged.verdict)}
        swapped = _swapped_in(judged.verdict.workload, outcome)
        if swapped:
            attributes[t.SPARES] = ", ".join(swapped)
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
    return t.REPLACEMENT if verdict.workload.unhealthy_nodes or verdict.workload.admitted else t.SECOND_PASS


def _swapped_in(workload: WorkloadFacts, outcome: Found | NotFound) -> list[str]:
    """Spares that take pods of lost nodes."""
    if not isinstance(outcome, Found) or workload.admission is None:
        return []
    before, now = (
        {(given.name, node) for given in admission.pod_sets for node in given.spares}
        for admission in (workload.admission, outcome.admission)
    )
    return sorted({node for _, node in before - now})


def _wants_second_pass(workload: Obj, admission: Admission, before: WorkloadFacts) -> bool:
    """Whether what a second pass found is not written: where pods were stuck `before`, only the admission shows it."""
    is_as_before = before.admitted and not before.unhealthy_nodes and admission == before.admission
    return is_as_before or admission.awaits_topology or bool((workload.get("status") or {}).get("unhealthyNodes"))


def _find_too_large(workload: Obj, outcome: Found | NotFound) -> NotFound | None:
    """Refuses a place that etcd would not take: one to be written now, or one for which others would have to go first."""
    if isinstance(outcome, Found):
        return _too_large(workload, outcome)
    if outcome.preempting is None or outcome.evicts:
        return None
    return _too_large(workload, outcome.preempting.found)


def _too_large(workload: Obj, found: Found) -> NotFound | None:
    """An assignment that etcd would not take is refused before any write, with its size."""
    status = {key: value for key, value in (workload.get("status") or {}).items() if key != "admission"}
    size = encoded_size({**workload, "status": status}) + encoded_size(admission_to_wire(found.admission))
    if size <= MAX_ETCD_BYTES:
        return None
    message = f"the Workload with its assignment would have {size} bytes; etcd takes {MAX_ETCD_BYTES}"
    return NotFound(REASON_TOPOLOGY_PLACEMENT_FAILED, message, found.attempts)
