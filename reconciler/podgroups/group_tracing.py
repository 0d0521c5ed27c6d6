"""The trace of a group of pods: one trace, which its PodGroup names in `topogate.dev/traceparent`, from when the group
was first reconciled to its bound pods."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from opentelemetry.trace import Span, SpanKind

from core import trace_names as t
from core.names import TRACEPARENT_ANNOTATION
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.steps import MOST_SPAN_EVENTS
from core.podgroups.acting import GroupStep, Place
from core.podgroups.members import GroupKey
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.http.errors import Conflict, NotFound
from core.runtime.report.telemetry import get_current_traceparent, make_tracer
from reconciler.execute import tracing
from reconciler.execute.executor import Executor


class GroupTraces:
    """Emits the spans of groups. Nothing is written or stored while tracing is off."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor, self._clock = executor, clock
        # When the first pods of a replica were ungated, for replicas with pods that are not bound yet.
        self._let_go: dict[GroupKey, datetime] = {}

    async def begin(self, group: Obj) -> Obj:
        """Returns a group as it is where its annotation names a trace. Else begins one, writes that annotation and returns the group as
        written. Returns it unchanged while tracing is off, and where the write met a Conflict or NotFound. Raises any other KubeError."""
        metadata = group["metadata"]
        if tracing.find_traceparent(group) is not None:
            return group
        attributes = {t.NAMESPACE: metadata["namespace"], t.POD_GROUP: metadata["name"], t.BEGINS: True}
        with make_tracer(tracing.TRACER).start_as_current_span(t.GROUP, kind=SpanKind.INTERNAL, attributes=attributes) as span:
            trace = get_current_traceparent()
            if not span.is_recording() or trace is None:
                return group
            try:
                return await self._executor.write(w.set_annotations(r.POD_GROUPS, group, {TRACEPARENT_ANNOTATION: trace}))
            except (Conflict, NotFound):
                return group  # its event is on the way

    def drop(self, group: Obj) -> None:
        """Drops what is remembered of the replicas of a group that is gone: when their pods were ungated, for `bound`."""
        metadata = group["metadata"]
        for key in [key for key in self._let_go if (key.namespace, key.name) == (metadata["namespace"], metadata["name"])]:
            del self._let_go[key]

    @contextmanager
    def trace_reservation(self, group: Obj, key: GroupKey, step: GroupStep, began: datetime) -> Iterator[None]:
        """Emits a span for a decision that was begun at `began` and found places. Opens another one for the writes that keep them, which
        are made in the context.
        """
        with tracing.trace_step(t.SOLVE, group, _build_attributes(key, len(step.keep)), start=began, end=self._clock.now()) as span:
            span.set_attributes({t.REFUSED: False, t.REASON: step.reason, t.MESSAGE: step.message})
            _add_places(span, step.keep)
        with tracing.trace_step(t.KEEP, group, _build_attributes(key, len(step.keep))):
            yield

    @contextmanager
    def trace_release(self, group: Obj, key: GroupKey, places: Sequence[Place]) -> Iterator[None]:
        """Opens a span for the writes that ungate pods, which are made in the context; it has the number of pods by node. Records when the
        first of them began for a replica, if the span is recorded."""
        began = self._clock.now()
        with tracing.trace_step(t.UNGATE, group, _build_attributes(key, len(places))) as span:
            _add_places(span, places)
            if span.is_recording():
                self._let_go.setdefault(key, began)
            yield

    def trace_refusal(self, group: Obj, key: GroupKey, step: GroupStep, message: str) -> None:
        """Emits a span for a decision that found no place for a replica: its reason, `message` and what each placement lacks."""
        now = self._clock.now()
        with tracing.trace_step(t.SOLVE, group, _build_attributes(key), start=now, end=now) as span:
            span.set_attributes({t.REFUSED: True, t.REASON: step.reason, t.MESSAGE: message})
            for fact in step.explanation.facts[:MOST_SPAN_EVENTS] if step.explanation is not None else ():
                placement: tracing.Attributes = {t.DOMAIN: fact.name, t.DOMAIN_FIT: fact.fit, t.NODE_COUNT: fact.nodes}
                span.add_event(t.PLACEMENT_LACKS, {**placement, t.MESSAGE: ", ".join(map(str, fact.short))})

    def bound(self, group: Obj, key: GroupKey, pods: int) -> None:
        """Emits the span that ends when all ungated pods of a replica are on their nodes, once. `pods`: how many; nothing where this
        process has ungated none while tracing was on."""
        since = self._let_go.pop(key, None)
        if since is None:
            return
        with tracing.trace_step(t.BOUND, group, _build_attributes(key, pods), start=since):
            pass


def _build_attributes(key: GroupKey, pods: int | None = None) -> dict[str, str | int]:
    named: dict[str, str | int] = {t.POD_GROUP: key.name, t.REPLICA: key.replica}
    return named | ({t.POD_COUNT: pods} if pods is not None else {})


def _add_places(span: Span, places: Sequence[Place]) -> None:
    counts: dict[str, int] = {}
    for _, node in places:
        counts[node] = counts.get(node, 0) + 1
    for node, pods in list(counts.items())[:MOST_SPAN_EVENTS]:
        span.add_event(t.NODE_KEPT, {t.NODE_NAME: node, t.POD_COUNT: pods})
