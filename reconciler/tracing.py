"""Spans of a workload's life. All are children of the admission request that its `topogate.dev/traceparent` names,
so that one trace tells the story from `kubectl apply` to bound pods; work done for many workloads at once is linked."""

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry.trace import Span, SpanKind, use_span

from core.names import TRACEPARENT_ANNOTATION
from core.queueing.outcome import Found, NotFound
from core.runtime.telemetry import context_from, current_traceparent, link_from, tracer

TRACER = "topogate.reconciler"

# Attribute keys; `k8s.*` as OpenTelemetry's semantic conventions have them.
NAMESPACE = "k8s.namespace.name"
JOB_NAME = "k8s.job.name"
WORKLOAD = "topogate.workload.name"
CLUSTER_QUEUE = "topogate.cluster_queue.name"
REASON = "topogate.reason"
MESSAGE = "topogate.message"
FLAVOR = "topogate.flavor.name"
POD_SET = "topogate.pod_set.name"
POD_COUNT = "topogate.pod.count"
DOMAIN_COUNT = "topogate.domain.count"
LEVEL = "topogate.topology.level"
VERDICT_COUNT = "topogate.verdict.count"

# Span names.
CYCLE = "scheduler.cycle"
QUEUED = "workload.queued"
CREATE = "workload.create"
SOLVE = "placement.solve"
ADMIT = "workload.admit"
START = "job.start"
UNGATE = "pods.ungate"
BOUND = "pods.bound"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000
_STORIES_REMEMBERED = 4096
_first: OrderedDict[str, tuple[int, int]] = OrderedDict()  # by traceparent: when the first step that this process saw began and ended


def nanoseconds(moment: datetime) -> int:
    """A moment as spans count it."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def parse_time(text: str | None) -> datetime | None:
    """A time of the API, None where there is none."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def traceparent_of(obj: Mapping[str, Any]) -> str | None:
    """The admission request that an object came from."""
    annotations = obj["metadata"].get("annotations") or {}
    found = annotations.get(TRACEPARENT_ANNOTATION)
    return str(found) if found else None


@contextmanager
def step(
    name: str, obj: Mapping[str, Any], *, start: datetime | None = None, end: datetime | None = None, **attributes: str | int
) -> Iterator[Span]:
    """A span of one workload's story, linked to the cycle it is part of; ends with an error status if the step raises.

    `start` and `end` are for what has happened already.

    A workload without a story of its own (nothing was traced when its job came) is told of inside of the cycle.
    """
    traceparent, began = traceparent_of(obj), time.time_ns()
    story = context_from(traceparent)
    with tracer(TRACER).start_as_current_span(
        name,
        context=story,
        kind=SpanKind.INTERNAL,
        start_time=began if start is None else _start_of(start, traceparent),
        links=link_from(current_traceparent()) if story is not None else None,
        attributes={NAMESPACE: obj["metadata"].get("namespace") or "", **attributes},
        end_on_exit=end is None,
    ) as span:
        is_first = span.is_recording() and traceparent is not None and _first.setdefault(traceparent, (began, began)) == (began, began)
        yield span
        if end is not None:
            span.end(nanoseconds(end))
    if is_first and traceparent is not None:
        _first[traceparent] = began, time.time_ns()
        while len(_first) > _STORIES_REMEMBERED:
            _first.popitem(last=False)


def _start_of(given: datetime | None, traceparent: str | None) -> int | None:
    """The API cuts its times to the second, so a span that starts at one would come before what caused it. Where this process
    knows better, since the story's first step was under way in that second, it is the end of that step; or its beginning, as long as
    it is under way: what it does may be seen before its answer comes."""
    if given is None:
        return None
    start = nanoseconds(given)
    began, ended = _first.get(traceparent or "", (start, start))
    return ended if given.microsecond == 0 and began < start + _SECOND_NS and start <= ended else start


@contextmanager
def cycle() -> Iterator[Span]:
    """A span of a decision cycle over many workloads, which says in VERDICT_COUNT how many.

    Each event of a busy cluster starts a cycle and most decide nothing; a span that is never ended is never sent.
    """
    span = tracer(TRACER).start_span(CYCLE, kind=SpanKind.INTERNAL)
    try:
        with use_span(span, end_on_exit=False):
            yield span
    except BaseException:
        span.end()
        raise
    if (getattr(span, "attributes", None) or {}).get(VERDICT_COUNT):
        span.end()


def explain(span: Span, outcome: Found | NotFound) -> None:
    """Puts a decision's explanation on its span: each flavor tried, per level the best domain, what excludes nodes."""
    if not span.is_recording():
        return
    for attempt in outcome.attempts:
        span.add_event(
            "flavor.refused", {FLAVOR: attempt.flavor, POD_SET: attempt.pod_set, REASON: attempt.reason, MESSAGE: attempt.sentence}
        )
        explanation = attempt.refusal.explanation if attempt.refusal is not None else None
        for fact in explanation.levels if explanation is not None else ():
            span.add_event("level.best_domain", {FLAVOR: attempt.flavor, LEVEL: fact.level, MESSAGE: str(fact)})
        for exclusion in explanation.exclusions if explanation is not None else ():
            span.add_event(
                "nodes.excluded",
                {
                    FLAVOR: attempt.flavor,
                    REASON: exclusion.reason,
                    "topogate.node.count": exclusion.count,
                    "k8s.node.name": exclusion.example,
                },
            )
    if isinstance(outcome, NotFound):
        span.set_attribute(REASON, outcome.reason)
        span.set_attribute(MESSAGE, outcome.message)
        return  # no error: the decision is right, and the workload waits
    for flavor, placement in outcome.placements:
        span.add_event(
            "pod_set.placed",
            {
                FLAVOR: flavor,
                POD_SET: placement.pod_set,
                LEVEL: placement.level,
                DOMAIN_COUNT: len(placement.assignment.domains),
                POD_COUNT: placement.assignment.count,
                MESSAGE: brief(placement.assignment.domains),
            },
        )
    for choice in outcome.choices:
        span.add_event("domain.chosen", {POD_SET: choice.pod_set, LEVEL: choice.level, MESSAGE: str(choice)})


def brief(domains: Sequence[Any], most: int = 8) -> str:
    """Some domains and counts as text."""
    shown = ", ".join(f"{'/'.join(domain.values)}={domain.count}" for domain in domains[:most])
    return shown if len(domains) <= most else f"{shown}, and {len(domains) - most} more"
