"""Events: on objects, and on the object for which a Workload was made. No caller waits for an event, and none fails if
one is lost.

Events would take the API server's time from what they report. So few are written at once: the slower the API server is,
the fewer a second, and the others wait. The more wait, the more are written at once. Only where too many come for long
are some dropped, minor ones first. Conditions contain all of it in any case.
"""

import asyncio
import logging
import math
from collections import OrderedDict, deque
from typing import NamedTuple, Never

from core.names import EVENT_SET_ASIDE
from core.plan.pods.pod_units import compute_seniority, find_workload_unit
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.actions import from_time
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError, TooManyRequests, Unreachable
from core.runtime.http.rate_limiter import RateLimiter, yield_to_others
from core.runtime.watch.set_aside import Aside
from core.state.facts import find_controller
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.observe.observed import Observed

logger = logging.getLogger(__name__)
REMEMBERED = int(2 * (pacing.EVENTS_BURST + pacing.EVENTS_PER_S * pacing.EVENTS_QUIET_S))  # all that two minutes let through
MOST_CHARACTERS = 1024
ATTEMPTS = 2  # of an event that the API server sheds, or that has no answer: then another one is written


class _Waiting(NamedTuple):
    """An event until it is written: what is needed of its object, so that thousands take little memory."""

    resource: Resource
    name: str
    namespace: str | None
    uid: str
    version: str | None
    reason: str
    message: str
    is_warning: bool
    time: str


class Reporter:
    """Writes events beside everything else."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        observed: Observed | None = None,
        recorder: Recorder = UNRECORDED,
        component: str = "topogate-reconciler",
    ) -> None:
        """`observed`: where the jobs of Workloads are looked up; None in a process that writes no events on jobs."""
        self._client, self._clock, self._observed, self._recorder, self._component = client, clock, observed, recorder, component
        self._reported: OrderedDict[int, float] = OrderedDict()  # when, by the hash of what: texts of thousands of events are megabytes
        self._limiters = {is_warning: RateLimiter(clock, pacing.EVENTS_PER_S, pacing.EVENTS_BURST) for is_warning in (False, True)}
        self._waiting: dict[bool, deque[_Waiting]] = {True: deque(), False: deque()}  # warnings first: by whether they are
        self._has_some = asyncio.Event()
        self._writing: set[asyncio.Future[None]] = set()

    def record_event(
        self, resource: Resource, obj: Obj, reason: str, message: str, *, warning: bool = False, is_minor: bool = False
    ) -> None:
        """Queues an event on an object of `resource`, which `run` writes, with `MOST_CHARACTERS` of the message at most. Drops it if the
        same one (uid, reason, message) was queued within `pacing.EVENTS_QUIET_S` seconds, if `pacing.EVENTS_WAITING` wait, or beyond
        `pacing.EVENTS_PER_S` a second, after `pacing.EVENTS_BURST`. Warning and Normal events (`warning`) have such limits each; those with
        `is_minor` are dropped at half of both. All but repeated ones are counted when they are dropped."""
        key, now = hash((obj["metadata"]["uid"], reason, message)), self._clock.monotonic()
        while self._reported and next(iter(self._reported.values())) + pacing.EVENTS_QUIET_S <= now:
            self._reported.popitem(last=False)
        if key in self._reported:
            return
        is_too_much = len(self._waiting[warning]) >= (pacing.EVENTS_WAITING // 2 if is_minor else pacing.EVENTS_WAITING)
        if is_too_much or not self._limiters[warning].try_turn(least_share=0.5 if is_minor else 0):
            logger.debug("event left out", extra={"reason": reason, "object": obj["metadata"]["name"]})
            self._recorder.record_dropped_event()
            return
        self._reported[key] = now
        while len(self._reported) > REMEMBERED:
            self._reported.popitem(last=False)
        metadata, time = obj["metadata"], from_time(self._clock.now())
        about = resource, metadata["name"], metadata.get("namespace"), metadata["uid"], metadata.get("resourceVersion")
        self._waiting[warning].append(_Waiting(*about, reason, message[:MOST_CHARACTERS], warning, time))
        self._has_some.set()

    def report_on_job(self, workload: Obj, reason: str, message: str, *, warning: bool = True) -> None:
        """Queues an event, Warning by default, as `record_event` does, on the object for which a Workload was made: its controller, or the
        oldest pod of a pod group. Users look at their job, and need not know that there is a Workload. Does nothing where that object is
        not observed or is another one by now, or without `observed`."""
        made_for = self._find_made_for(workload)
        if made_for is not None:
            self.record_event(*made_for, reason, message, warning=warning)

    def report_set_aside(self, aside: Aside) -> None:
        """Queues a Warning event, as `record_event` does, on an object that cannot be handled, with the reason in `aside`. Users and
        administrators see it where the object is."""
        why = f"topogate cannot handle this {aside.resource.kind} and has set it aside until it changes: {aside.why}. Correct or delete it"
        self.record_event(aside.resource, aside.obj, EVENT_SET_ASIDE, why, warning=True)

    async def run(self) -> Never:
        """Writes queued events, `pacing.EVENTS_AT_ONCE` at once and more while many wait, and never returns. An event that the API server
        refuses is logged and dropped.
        """
        await asyncio.gather(*(self._run_worker() for _ in range(pacing.EVENTS_AT_ONCE)))
        raise AssertionError("no worker ends")

    @property
    def waiting(self) -> int:
        """Returns how many events are queued."""
        return sum(map(len, self._waiting.values()))

    async def settle(self, within_s: float = math.inf) -> None:
        """Writes queued events one after the other and returns when none is left, or `within_s` seconds have passed, and those that `run`
        has begun to write have ended. An event that the API server refuses is logged and dropped. What is left is dropped, too."""
        end = self._clock.monotonic() + within_s
        while self.waiting and self._clock.monotonic() < end:
            await self._write_next()
        if left := self.waiting:
            logger.warning("events are left out, since the process ends", extra={"events": left})
            for some in self._waiting.values():
                some.clear()
            for _ in range(left):
                self._recorder.record_dropped_event()
        while self._writing:  # by the workers of `run`
            await asyncio.wait(self._writing)

    async def _run_worker(self) -> Never:
        while True:
            await self._has_some.wait()
            while self.waiting:
                more = min(pacing.EVENTS_MORE_AT_ONCE, self.waiting // pacing.EVENTS_FOR_MORE)
                await asyncio.gather(*(self._write_next() for _ in range(1 + more)))
            self._has_some.clear()

    async def _write_next(self) -> None:
        queue = self._waiting[True] or self._waiting[False]
        if not queue:  # another worker was faster
            return
        done = asyncio.get_running_loop().create_future()
        self._writing.add(done)
        try:
            await self._write(queue.popleft())
        finally:
            self._writing.remove(done)
            done.set_result(None)

    def _build(self, event: _Waiting) -> Obj:
        return {
            "metadata": {"generateName": f"{event.name[:200]}.", "namespace": event.namespace or "default"},
            "involvedObject": {
                "apiVersion": event.resource.api_version,
                "kind": event.resource.kind,
                "name": event.name,
                "namespace": event.namespace,
                "uid": event.uid,
                "resourceVersion": event.version,
            },
            "reason": event.reason,
            "message": event.message,
            "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": self._component},
            "firstTimestamp": event.time,
            "lastTimestamp": event.time,
            "count": 1,
        }

    async def _write(self, event: _Waiting) -> None:
        """An API server that has too much to do gets no other event from this worker for a while."""
        for attempt in range(ATTEMPTS):
            try:
                with yield_to_others():
                    await self._client.create(r.EVENTS, self._build(event), event.namespace or "default")
                return
            except Exception as error:  # one of ours ends no process: an event is not worth that
                failed = error
            if not isinstance(failed, TooManyRequests | Unreachable) or attempt + 1 == ATTEMPTS:
                break
            await self._clock.sleep(getattr(failed, "retry_after", None) or pacing.EVENTS_RETRY_S)
        self._recorder.record_dropped_event()
        trace = None if isinstance(failed, KubeError) else failed
        extra = {"reason": event.reason, "object": event.name, "error": str(failed)}
        logger.warning("event could not be written", extra=extra, exc_info=trace)

    def _find_made_for(self, workload: Obj) -> tuple[Resource, Obj] | None:
        """Returns the object for which a Workload was made: its owner. A pod group has none: its oldest pod, which is
        one event however many there are."""
        owner = find_controller(workload)
        if self._observed is None:
            return None
        if owner is None:
            unit = find_workload_unit(workload)
            pods = self._observed.pods.store.list_by_index("unit", str(unit)) if unit is not None else []
            return (r.PODS, min(pods, key=compute_seniority)) if pods else None
        group, key = owner["apiVersion"].rpartition("/")[0], f"{workload['metadata']['namespace']}/{owner['name']}"
        for informer in self._observed.owning:
            if (informer.resource.group, informer.resource.kind) == (group, owner["kind"]):
                obj = informer.store.get(key)
                return (informer.resource, obj) if obj is not None and obj["metadata"]["uid"] == owner["uid"] else None
        return None
