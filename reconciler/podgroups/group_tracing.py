"""The trace of a group of pods: one trace, which its PodGroup names in `topogate.dev/traceparent`, from when the group
was first reconciled to its bound pods."""

from opentelemetry.trace import SpanKind

from core import trace_names as t
from core.names import TRACEPARENT_ANNOTATION
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.steps import PASSED_OVER, Step, make_plan
from core.resource import Obj
from core.runtime.report.telemetry import get_current_traceparent, make_tracer
from core.runtime.watch.store import build_object_key
from reconciler.execute import tracing
from reconciler.execute.executor import Executor, Left


async def begin_trace(executor: Executor, group: Obj) -> Obj:
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
        left, write = Left(), w.set_annotations(r.POD_GROUPS, group, {TRACEPARENT_ANNOTATION: trace})
        await executor.execute(make_plan(Step("begin trace", write, passes=PASSED_OVER)), left)
        return left.get((r.POD_GROUPS, build_object_key(group)), group)  # where it has changed its event is on the way
