"""The only place of this process that writes, but for events (`reconciler.execute.event_recorder`), the leader's lease
(`core.runtime.lease`) and access reviews, which are questions (`reconciler.visibility.access_reviews`). It executes plans
(`core.plan.steps.steps`), and nothing else. Errors are the caller's to judge.

Every write is guarded here by the state of the object that was seen, held back where an administrator's pause holds it, and observed at
once when it is answered (`Client.on_reply`). The client sends none for a process that does not lead any more (`Client.fence`), and keeps to
the pace that an administrator has set (`Client.pace`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar, assert_never

from opentelemetry.trace import INVALID_SPAN
from opentelemetry.trace import Span as TracedSpan

from core.model.pause_state import Pause
from core.names import FIELD_MANAGER, MANAGER_ADMISSION
from core.plan.steps import api_resources as r
from core.plan.steps.actions import from_time
from core.plan.steps.managed_status import is_as_judged
from core.plan.steps.pausing import Stopped, find_held_eviction, find_stopped, has_effect
from core.plan.steps.steps import MOST_SPAN_EVENTS, Event, Hold, Log, Overtaken, ParallelSteps, Plan, Span, Step, Then
from core.plan.steps.writes import Apply, Create, Delete, Guard, Json, Patch, Write
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.controller import Deferred, Done, Hindered, RequeueAfter, Result
from core.runtime.http.client import Client
from core.runtime.http.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound, truncate
from core.runtime.http.rate_limiter import yield_to_others
from core.runtime.http.throttle import Throttle
from core.runtime.watch.store import build_object_key
from reconciler.execute import tracing
from reconciler.execute.event_recorder import Reporter

logger = logging.getLogger(__name__)
T = TypeVar("T")
ATTEMPTS = 4  # at an object that others write at the same time
MOST_SHOWN = 300  # characters of a refusal, in an event


REFUSALS = BadRequest, Forbidden, Invalid  # by a policy or an admission webhook: time heals none of them


class Paused(Deferred):
    """An administrator has paused what this write begins."""


class Left(dict[tuple[Resource, str], Obj]):
    """What the steps of a plan have left of objects: as the API server has answered, by resource and key. `done`: the names of those that
    have succeeded; `failed`: of steps that were done together, the errors, by resource and key, too."""

    def __init__(self) -> None:
        super().__init__()
        self.done: set[str] = set()
        self.failed: dict[tuple[Resource, str], KubeError | Paused] = {}


class Executor:
    """Executes plans through one client, but for what the present pause (`paused`) holds back."""

    def __init__(self, client: Client, clock: Clock, reporter: Reporter, paused: Callable[[], Pause] = Pause) -> None:
        self._client, self._clock, self.reporter, self._paused = client, clock, reporter, paused
        self._moving: set[str] = set()
        self._throttle = Throttle(clock)

    def format_now(self) -> str:
        """Returns the time of the wall clock as the API writes it: UTC, in whole seconds."""
        return from_time(self._clock.now())

    def is_moving(self, workload: str) -> bool:
        """Whether a write of this process is under way that changes or removes the admission which a Workload (key: namespace/name) has:
        its pods get other places, or fewer. A first admission does not count."""
        return workload in self._moving

    async def read(self, resource: Resource, namespace: str | None, name: str) -> Obj:
        """Returns an object as the API server has it now, where what was observed is not enough. `namespace` None: it is in none. Raises
        KubeError, of which NotFound where it is gone."""
        return await self._client.get(resource, name, namespace)

    async def _write(self, write: Write) -> Obj:
        """What the API server answers: the object as it is from now on, but for deletions. With the guards WAITING and AS_JUDGED, and where
        it applies a status with SAME, it reads the object anew after a Conflict, `ATTEMPTS` tries in all. Raises Conflict where its guard
        fails, NotFound where the object is gone, and either where another one has its name; and any other KubeError. Raises Paused, after
        an event, where a pause holds it."""
        self._hold_paused(write)
        metadata = write.seen["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        match write:
            case Create(resource, obj, manager):
                return await self._client.create(resource, obj, field_manager=manager)
            case Patch(guard=Guard.WAITING) | Delete(guard=Guard.WAITING):
                return await self._write_again(write, lambda now: "is bound by now" if now["spec"].get("nodeName") else "")
            case Patch(guard=Guard.AS_JUDGED) | Apply(guard=Guard.AS_JUDGED):
                return await self._write_again(
                    write, lambda now: "" if is_as_judged(now, write.seen) else "has changed since it was judged"
                )
            case Patch():
                body = _add_guard(write.body, write.seen, write.guard)
                return await self._client.patch(
                    write.resource, name, namespace, body, kind=write.kind, subresource=write.subresource, field_manager=FIELD_MANAGER
                )
            case Apply(guard=Guard.SAME, subresource="status"):
                return await self._write_again(write, lambda _: "")
            case Apply() if _is_moving_pods(write):
                key = build_object_key(write.seen)
                self._moving.add(key)
                try:
                    return await self._apply(write, _add_guard(write.body, write.seen, write.guard))
                finally:
                    self._moving.discard(key)
            case Apply():
                return await self._apply(write, _add_guard(write.body, write.seen, write.guard))
            case Delete(resource, _, guard):
                uid = metadata["uid"] if guard is not Guard.ANY else None
                version = metadata["resourceVersion"] if guard is Guard.AS_SEEN else None
                return await self._client.delete(resource, name, namespace, uid=uid, resource_version=version)
            case _:
                assert_never(write)

    async def execute(self, plan: Plan, left: Left | None = None) -> Result:
        """Executes the steps of a plan one after the other. Returns RequeueAfter with the seconds that the plan names, else Done. `left`
        gets the objects as the steps have left them, and the names of the steps that succeeded. Raises the KubeError of the first step that
        fails: at once, or after the later steps where that step does not hold them up (`Step.holds_up`). Of writes that one step does
        together, one error is raised: the first that is no refusal, else the first. A step that meets what it names in `passes` is passed
        over. Paused, where a pause holds a write, is such an error. Raises Hindered where the plan has a problem. The `rest` of a plan is
        executed as well, before such an error of its own steps is raised; what it returns is returned."""
        left, failed = Left() if left is None else left, list[KubeError | Paused]()
        for step in plan.steps:
            try:
                await self._execute_step(step, left)
            except (KubeError, Paused) as error:
                if _is_holding_up(step, error):
                    raise
                failed.append(error)
        result: Result = Done() if plan.again_s is None else RequeueAfter(plan.again_s)
        if plan.rest is not None:
            unsure = {key for (_, key), error in left.failed.items() if not isinstance(error, REFUSALS)}
            result = await self.execute(plan.rest(unsure, self._clock.now()), left)
        if failed:
            raise failed[0]
        if plan.problem:
            raise Hindered(plan.problem)
        return result

    async def _execute_step(self, step: Step, left: Left, *, in_turn: bool = False) -> None:
        if isinstance(step.write, ParallelSteps):
            with _open_span(step.span) as span:
                failed = await self._execute_together(step, step.write.steps, span, left)
            if failed is not None:
                raise failed
        elif step.write is not None:
            at = step.write.resource, build_object_key(step.write.seen)
            write = _follow(step.write, left.get(at))
            reply = await self._write_step(step, write, in_turn=in_turn)
            if reply is None:
                return
            if not isinstance(write, Delete):
                left[at] = reply
        elif step.span is not None:
            with _open_span(step.span):
                pass
        if step.log is not None:
            logger.log(logging.WARNING if step.log.warning else logging.INFO, step.log.message, extra=dict(step.log.fields))
        for event in step.events:
            self._report(event)
        left.done.add(step.name)

    async def _write_step(self, step: Step, write: Write, *, in_turn: bool) -> Obj | None:
        """What the API server answers; None where the step passes over what others have done meanwhile."""
        try:
            with _open_span(step.span):
                # Of many writes as many are under way at once, of all controllers together, as the API server accepts.
                return await (self._throttle.run(lambda: self._write(write)) if in_turn else self._write(write))
        except (NotFound, Conflict, Paused) as error:
            # A create may meet another conflict than one of its name, as that of a quota which others use: nothing has been made then.
            changed = AlreadyExists if isinstance(write, Create) else Conflict
            meanwhile = {NotFound: Overtaken.GONE, changed: Overtaken.CHANGED, Paused: Overtaken.PAUSED}
            if not any(isinstance(error, kind) and overtaken in step.passes for kind, overtaken in meanwhile.items()):
                raise
            return None
        except Invalid as error:
            if step.if_refused is not None:
                self._report(step.if_refused(truncate(str(error), MOST_SHOWN)))
            raise

    def _report(self, event: Event) -> None:
        if event.on_job:
            self.reporter.report_on_job(event.obj, event.reason, event.message, warning=event.warning)
        else:
            self.reporter.record_event(
                event.resource, event.obj, event.reason, event.message, warning=event.warning, is_minor=event.is_minor
            )

    async def _execute_together(
        self, step: Step, steps: Sequence[Step | Sequence[Step]], span: TracedSpan, left: Left
    ) -> KubeError | Paused | None:
        rest, failed, faults = iter(steps), list[KubeError | Paused](), list[Exception]()

        async def run_steps() -> None:
            for some in rest:
                for one in (some,) if isinstance(some, Step) else some:
                    try:
                        await self._execute_step(one, Left(), in_turn=True)
                    except (KubeError, Paused) as error:
                        failed.append(error)
                        if one.write is not None and not isinstance(one.write, ParallelSteps):
                            left.failed[one.write.resource, build_object_key(one.write.seen)] = error
                            if len(failed) <= MOST_SPAN_EVENTS:
                                tracing.add_failure(span, one.write.seen, error)
                        if _is_holding_up(one, error):
                            break

        async def run_guarded() -> None:
            try:
                await run_steps()
            except Exception as error:  # of ours: writes that are under way are answered first, so that it is known what they did
                faults.append(error)

        # No task for each, of which more would only wait: of 50,000 the event loop would do nothing else until all of them had begun.
        async with asyncio.TaskGroup() as group:  # no task continues after the plan has ended
            for _ in range(min(self._throttle.most, len(steps))):
                group.create_task(run_guarded())
        if faults:
            raise faults[0]
        if not failed:
            return None
        worst = next((error for error in failed if not isinstance(error, REFUSALS)), failed[0])
        log = step.log or Log("part of a step failed", {"step": step.name, "count": len(steps)})
        level = logging.INFO if all(isinstance(error, Conflict | NotFound | Paused) for error in failed) else logging.WARNING
        logger.log(level, log.message, extra={**log.fields, "failed": len(failed), "error": str(worst)})
        return worst

    async def _apply(self, write: Apply, body: dict[str, Any]) -> Obj:
        metadata = write.seen["metadata"]
        with yield_to_others() if write.yields else nullcontext():
            return await self._client.apply(
                write.resource,
                metadata["name"],
                metadata.get("namespace"),
                body,
                field_manager=write.manager,
                subresource=write.subresource,
            )

    async def _write_again(self, write: Patch | Apply | Delete, explain: Callable[[Obj], str]) -> Obj:
        """Writes to an object that other clients write to at the same time, or with a watch that is behind: as it was
        seen, then as it is now.

        `explain` returns why an object is to be left alone, empty where it is not. Raises Conflict with that reason, or
        where the object is changed again and again, and NotFound where the one that was seen is gone.
        """
        now = write.seen
        for attempt in range(ATTEMPTS):
            if attempt:
                now = await self._read_same(write)
            if why := explain(now):
                raise Conflict(409, "Conflict", f"{write.resource.kind} {build_object_key(now)} {why}")
            try:
                return await self._write(replace(write, seen=now, guard=Guard.AS_SEEN))
            except Conflict as error:
                conflict = error
        raise conflict

    async def _read_same(self, write: Write) -> Obj:
        """Returns the present object of a write. Raises NotFound where another one has its name."""
        metadata = write.seen["metadata"]
        now = await self.read(write.resource, metadata.get("namespace"), metadata["name"])
        if now["metadata"]["uid"] != metadata["uid"]:
            raise NotFound(404, "NotFound", f"{write.resource.kind} {metadata['name']} is another one by now")
        return now

    def _hold_paused(self, write: Write) -> None:
        """Raises Paused, with an event, where an administrator has paused what a write begins."""
        stopped: Stopped | None = None
        match write:
            case Apply(manager=manager) if manager == MANAGER_ADMISSION:
                stopped = find_stopped(self._paused(), write.seen, write.body["status"])
            case Patch(evicts_for=reason) if reason and has_effect(write.seen):
                stopped = find_held_eviction(self._paused(), reason, "")
            case _:
                pass
        if stopped is not None:
            self.reporter.record_event(r.WORKLOADS, write.seen, stopped.reason, stopped.message, warning=True)
            raise Paused(stopped.stop.sentence)


@contextmanager
def _open_span(span: Span | None) -> Iterator[TracedSpan]:
    if span is None:
        yield INVALID_SPAN
        return
    decided = [*((span.obj,) if span.follows_decision else ()), *((span.decided_on,) if span.decided_on is not None else ())]
    links = [tracing.find_decision(obj) for obj in decided]
    links += tracing.list_other_traces(span.causes, than=span.obj)
    start = tracing.parse_time(span.start) if isinstance(span.start, str) else span.start
    with tracing.trace_step(span.name, span.obj, span.attributes, start=start, end=span.end, links=links) as opened:
        for name, attributes, at in span.events:
            moment = tracing.parse_time(at)
            opened.add_event(name, dict(attributes), tracing.convert_to_nanoseconds(moment) if moment is not None else None)
        if span.explains is not None:
            tracing.explain(opened, span.obj, span.explains)
        yield opened


def _is_holding_up(step: Step, error: KubeError | Paused) -> bool:
    return step.holds_up is Hold.ALWAYS or (step.holds_up is Hold.UNLESS_REFUSED and not isinstance(error, REFUSALS))


def _is_moving_pods(write: Apply) -> bool:
    if write.manager != MANAGER_ADMISSION:
        return False
    before, after = ((status or {}).get("admission") for status in (write.seen.get("status"), write.body["status"]))
    return bool(before) and before != after


def _add_guard(body: Json, seen: Json, guard: Guard) -> dict[str, Any]:
    metadata: dict[str, Any] = dict(body.get("metadata") or {})
    if guard is not Guard.ANY:
        metadata["uid"] = seen["metadata"]["uid"]
    if guard is Guard.AS_SEEN:
        metadata["resourceVersion"] = seen["metadata"]["resourceVersion"]
    return {**body, "metadata": metadata}


def _follow(write: Write | Then, left: Obj | None) -> Write:
    """A write of an object as the step before has left it, if any has."""
    if isinstance(write, Then):
        return write.build(left if left is not None else write.seen)
    return replace(write, seen=left) if left is not None and left["metadata"]["uid"] == write.seen["metadata"].get("uid") else write
