"""Suspends jobs that run without an admission, and leaves those that another program resumes again and again for a growing time.

The controller of a JobSet resumes its Jobs. Where a Job of it has the queue label and the JobSet does not, each of the two programs would
undo at once what the other has written.
"""

from dataclasses import dataclass

from core.jobs.contract import JobKind
from core.jobs.templates import has_gate
from core.names import EVENT_STOPPED, QUEUE_NAME_LABEL
from core.plan import resources as r
from core.plan import writes as w
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.state.facts import controller_of
from reconciler.execute import Executor

FREE, LONGEST_S, REMEMBERED_S, MOST_KEPT = 5, 5.0, 300.0, 10_000


@dataclass(slots=True)
class _Seen:
    count: int
    at: float


class Suspensions:
    """How often each job was suspended within the last minutes, by uid."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor, self._clock = executor, clock
        self._seen: dict[str, _Seen] = {}

    async def suspend(self, kind: JobKind, job: Obj, why: str, *, may_wait: bool) -> Result:
        """Suspends a job; after `FREE` times within minutes only once its turn has come, if it `may_wait`: it has no quota, and was not
        started. Until then its pods wait behind their gates: a job with any template without a gate is suspended at once in any case.
        Raises what the API server refuses."""
        uid, now = job["metadata"]["uid"], self._clock.monotonic()
        may_wait = may_wait and all(has_gate(pod_set.template) for pod_set in kind.pod_sets(job))
        wait_s = self._find_wait(uid, now) if may_wait else 0.0
        if wait_s > 0:
            return RequeueAfter(wait_s)
        await self._executor.do(w.change_job(kind, job, kind.suspend(job)))
        count = self._note(uid, now)
        self._executor.reporter.event(r.resource_of(kind), job, EVENT_STOPPED, why + (self._explain(job) if count >= FREE else ""))
        return Done()

    def _find_wait(self, uid: str, now: float) -> float:
        seen = self._seen.get(uid)
        if seen is None or seen.count < FREE or now - seen.at > REMEMBERED_S:
            return 0.0
        return seen.at + min(LONGEST_S, 2.0 ** min(seen.count - FREE, 10)) - now

    def _note(self, uid: str, now: float) -> int:
        if len(self._seen) > MOST_KEPT:
            self._seen = {uid: seen for uid, seen in self._seen.items() if now - seen.at <= REMEMBERED_S}
        seen = self._seen.get(uid)
        is_recent = seen is not None and now - seen.at <= REMEMBERED_S
        self._seen[uid] = _Seen(seen.count + 1 if seen is not None and is_recent else 1, now)
        return self._seen[uid].count

    @staticmethod
    def _explain(job: Obj) -> str:
        owner = controller_of(job)
        if owner is None:
            return ". It is resumed again and again"
        return f". {owner['kind']} {owner['name']} resumes it again and again: the label {QUEUE_NAME_LABEL} belongs on that"
