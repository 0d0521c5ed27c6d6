"""Spans of a workload's life.

All are children of the admission request that its `topogate.dev/traceparent` names, so that one trace has every step
from `kubectl apply` to bound pods. Work done for many workloads at once is linked.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from opentelemetry.trace import Span, SpanKind, use_span

from core import trace_names as t
from core.names import TRACEPARENT_ANNOTATION
from core.placement.explain.choice import Choice
from core.plan.steps.steps import MOST_SPAN_EVENTS
from core.queueing.flavors.outcome import Admissible, Attempt, NotAdmissible, Preempting
from core.runtime.report.telemetry import build_context, build_links, get_current_traceparent, make_tracer

TRACER = "topogate.reconciler"
Attributes = Mapping[str, str | int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000
_PLANNED_NS = 250_000_000  # for so long before its span begins what a step writes may have been planned, with its time
_TRACES_REMEMBERED = 4096
_CAUSES = frozenset({t.CREATE, t.ADMIT, t.EVICT})  # steps that begin a wait; the API has their times in whole seconds only
MOST_LINKS = 32
# By traceparent: when the latest of those, or the first step that was seen, began and ended.
_cause: OrderedDict[str, tuple[int, int]] = OrderedDict()
_decision: OrderedDict[str, str] = OrderedDict()  # by traceparent: that of the latest decision


def convert_to_nanoseconds(moment: datetime) -> int:
    """Returns the nanoseconds from 1970 to a moment (with a time zone), as spans count time; whole microseconds."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def parse_time(text: str | None) -> datetime | None:
    """Returns the moment that a time of the API names, with its time zone; None where `text` is None or empty. Raises ValueError for any
    other text."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def find_traceparent(obj: Mapping[str, Any]) -> str | None:
    """Returns the W3C traceparent of the admission request that created an object (its annotation `topogate.dev/traceparent`), as it is
    there, unchecked. None where it has none."""
    annotations = obj["metadata"].get("annotations") or {}
    found = annotations.get(TRACEPARENT_ANNOTATION)
    return str(found) if found else None


def find_decision(obj: Mapping[str, Any]) -> str | None:
    """Returns the traceparent of the latest decision on a workload that this process has traced (`explain`; of the last 4,096 workloads),
    else of the workload's own trace. It is a link target. None where the workload has no trace."""
    own_trace = find_traceparent(obj)
    return _decision.get(own_trace, own_trace) if own_trace is not None else None


def list_other_traces(objs: Iterable[Mapping[str, Any]], than: Mapping[str, Any]) -> list[str]:
    """Returns the traceparents of objects that have another one than `than`, each once, in order, `MOST_LINKS` at most. Empty where `than`
    has none: nothing is traced.
    """
    known = find_traceparent(than)
    if known is None:
        return []  # nothing is traced
    found = dict.fromkeys(own_trace for obj in objs if (own_trace := find_traceparent(obj)) is not None and own_trace != known)
    return list(islice(found, MOST_LINKS))


@contextmanager
def trace_step(
    name: str,
    obj: Mapping[str, Any],
    attributes: Attributes | None = None,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    links: Iterable[str | None] = (),
) -> Iterator[Span]:
    """Opens and yields a span in the trace of one workload, linked to the current span and to `links`, the traceparents of its causes
    (None: no link). It ends with the step, or at `end` if that is given, and has an error status if the step raises. `start` and `end` are
    for what has happened already. A `start` in whole seconds moves to the step that this process saw as its cause in that second.
    Beside `attributes` it has the namespace. For a workload without a trace (nothing was traced when its job was created) the span is part
    of the current one."""
    traceparent, began = find_traceparent(obj), time.time_ns()
    own_trace = build_context(traceparent)
    span: Span | None = None
    try:
        with make_tracer(TRACER).start_as_current_span(
            name,
            context=own_trace,
            kind=SpanKind.INTERNAL,
            start_time=began if start is None else _start_of(start, traceparent),
            links=[
                link
                for traceparent_of_link in ((get_current_traceparent() if own_trace is not None else None), *links)
                for link in build_links(traceparent_of_link)
            ],
            attributes={t.NAMESPACE: obj["metadata"].get("namespace") or "", **(attributes or {})},
            end_on_exit=end is None,
        ) as span:
            is_cause = span.is_recording() and traceparent is not None and (name in _CAUSES or traceparent not in _cause)
            if is_cause and traceparent is not None:
                _store_trace(_cause, traceparent, (began, began))
            yield span
    finally:
        if end is not None and span is not None:
            span.end(convert_to_nanoseconds(end))
    if is_cause and traceparent is not None:
        _store_trace(_cause, traceparent, (began, time.time_ns()))


def _store_trace(memory: OrderedDict[str, Any], traceparent: str, what: object) -> None:
    memory[traceparent] = what
    memory.move_to_end(traceparent)
    while len(memory) > _TRACES_REMEMBERED:
        memory.popitem(last=False)


def _start_of(given: datetime | None, traceparent: str | None) -> int | None:
    """The API cuts its times to the second, so a span that starts at one would come before what caused it. Where this process
    knows better, since that step was under way in that second, it is the end of that step; or its beginning, as long as
    it is under way: what it does may be seen before its answer comes."""
    if given is None:
        return None
    start = convert_to_nanoseconds(given)
    began, ended = _cause.get(traceparent or "", (start, start))
    return ended if given.microsecond == 0 and began < start + _SECOND_NS + _PLANNED_NS and start <= ended else start


@contextmanager
def trace_cycle() -> Iterator[Span]:
    """Opens and yields a span of a decision cycle over many workloads; the caller sets the attribute VERDICT_COUNT to their number. The
    span is sent only where that is not 0, or an error is raised.

    Each event of a busy cluster starts a cycle and most decide nothing; a span that is never ended is never sent.
    """
    span = make_tracer(TRACER).start_span(t.CYCLE, kind=SpanKind.INTERNAL)
    try:
        with use_span(span, end_on_exit=False):
            yield span
    except BaseException:
        span.end()
        raise
    if (getattr(span, "attributes", None) or {}).get(t.VERDICT_COUNT):
        span.end()


def explain(span: Span, workload: Mapping[str, Any], outcome: Admissible | NotAdmissible) -> None:
    """Adds the explanation of a decision to its span: each flavor tried, per level the best domain, the reasons that exclude nodes, the
    chosen nodes, and the victims (`MOST_SPAN_EVENTS` of each list at most). Remembers the current span as the latest decision on the
    workload, for `find_decision`. Does nothing where the span is not recorded."""
    if not span.is_recording():
        return
    own_trace, here = find_traceparent(workload), get_current_traceparent()
    if own_trace is not None and here is not None:
        _store_trace(_decision, own_trace, here)
    for attempt in outcome.attempts[:MOST_SPAN_EVENTS]:
        _explain_attempt(span, attempt)
    if isinstance(outcome, NotAdmissible):
        # No error: the decision is right, and the workload waits.
        span.set_attributes({t.REFUSED: True, t.REASON: outcome.reason, t.MESSAGE: outcome.message})
        if outcome.preempting is not None:
            _explain_found(span, outcome.preempting.found)
            _explain_preempting(span, outcome.preempting)
    else:
        span.set_attributes({t.REFUSED: False, t.BORROWS: outcome.borrows})
        _explain_found(span, outcome)


def _explain_attempt(span: Span, attempt: Attempt) -> None:
    flavor: Attributes = {t.FLAVOR: attempt.flavor, t.POD_SET: attempt.pod_set}
    span.add_event(t.FLAVOR_REFUSED, {**flavor, t.REASON: attempt.reason, t.MESSAGE: attempt.sentence})
    explanation = attempt.refusal.explanation if attempt.refusal is not None else None
    for fact in explanation.levels if explanation is not None else ():
        best: Attributes = {t.LEVEL: fact.level, t.DOMAIN: "/".join(fact.best), t.DOMAIN_FIT: fact.fit, t.DOMAIN_WANTED: fact.wanted}
        span.add_event(t.LEVEL_BEST, {**flavor, **best, t.MESSAGE: str(fact)})
    for exclusion in explanation.exclusions if explanation is not None else ():
        nodes: Attributes = {t.REASON: exclusion.reason, t.NODE_COUNT: exclusion.count, t.NODE_NAME: exclusion.example}
        span.add_event(t.NODES_EXCLUDED, {**flavor, **nodes})


def _explain_found(span: Span, found: Admissible) -> None:
    for given in found.admission.pod_sets[:MOST_SPAN_EVENTS]:
        flavors = ", ".join(dict.fromkeys(given.flavors.values()))
        span.add_event(t.FLAVOR_ASSIGNED, {t.POD_SET: given.name, t.FLAVOR: flavors, t.POD_COUNT: given.count})
    for flavor, placement in found.placements[:MOST_SPAN_EVENTS]:
        span.add_event(
            t.PLACED,
            {
                t.FLAVOR: flavor,
                t.POD_SET: placement.pod_set,
                t.LEVEL: placement.level,
                t.DOMAIN_COUNT: len(placement.assignment.domains),
                t.POD_COUNT: placement.assignment.count,
                t.MESSAGE: format_domains(placement.assignment.domains),
            },
        )
    for choice in found.choices[:MOST_SPAN_EVENTS]:
        _explain_choice(span, choice)


def _explain_choice(span: Span, choice: Choice) -> None:
    pod_set: Attributes = {t.POD_SET: choice.pod_set, t.DOMAIN_WANTED: choice.wanted}
    if choice.too_small is not None:  # the level that was asked for
        fact = choice.too_small
        best: Attributes = {t.LEVEL: fact.level, t.DOMAIN: "/".join(fact.best), t.DOMAIN_FIT: fact.fit, t.DOMAIN_WANTED: fact.wanted}
        span.add_event(t.LEVEL_BEST, {**pod_set, **best, t.MESSAGE: str(fact)})
    used: Attributes = {t.DOMAIN: ", ".join("/".join(held.domain) for held in choice.used), t.DOMAIN_COUNT: choice.count}
    span.add_event(t.CHOSEN, {**pod_set, t.LEVEL: choice.level, **used, t.MESSAGE: str(choice)})


def _explain_preempting(span: Span, preempting: Preempting) -> None:
    span.set_attribute(t.VICTIM_COUNT, len(preempting.victims))
    for victim in preempting.victims[:MOST_SPAN_EVENTS]:
        span.add_event(t.VICTIM_CHOSEN, {t.VICTIM: victim.workload.key, t.REASON: victim.reason, t.MESSAGE: victim.why})
    for key in preempting.leaving[:MOST_SPAN_EVENTS]:
        span.add_event(t.VICTIM_LEAVING, {t.VICTIM: key})
    for key in preempting.unseen[:MOST_SPAN_EVENTS]:
        span.add_event(t.VICTIM_UNSEEN, {t.VICTIM: key})


def add_failure(span: Span, obj: Mapping[str, Any], error: Exception) -> None:
    """Adds an event to a span for a write to a pod that has failed: the pod's name and the error. The other writes go on."""
    span.add_event(t.POD_FAILED, {t.POD_NAME: obj["metadata"]["name"], t.MESSAGE: str(error)})


def format_domains(domains: Sequence[Any], most: int = 8) -> str:
    """Returns domains with their pods as text, such as `a/b=4, a/c=2`: the first `most` of them, then the number of the others."""
    shown = ", ".join(f"{'/'.join(domain.values)}={domain.count}" for domain in domains[:most])
    return shown if len(domains) <= most else f"{shown}, and {len(domains) - most} more"
