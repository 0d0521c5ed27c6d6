"""Whether traces tell what happened: the steps of a story, nothing from nowhere, and the sentence that the user reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from core import trace_names as t
from core.names import QUOTA_RESERVED, TRACEPARENT_ANNOTATION
from e2e.audit import truth
from e2e.audit.otlp import SpanRecord

# Of a job that is admitted, in the order in which they begin; but its pods are waited for while it is being started.
STORY = (t.REVIEW, t.CREATE, t.QUEUED, t.SOLVE, t.ADMIT, t.START, t.GATHERED, t.UNGATE, t.BOUND)
# The longest time of a story that no span covers: each step waits for the event of the one before.
MOST_GAP_S = 5.0

Spans = Callable[[str], list[SpanRecord]]  # of one trace


def trace_of(workload: dict[str, Any] | None) -> str:
    """The trace id that a Workload, or any other object, names; nothing where it names none."""
    annotations = ((workload or {}).get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(TRACEPARENT_ANNOTATION, "--").split("-")[1])


def find_problems(spans: list[SpanRecord], steps: Iterable[str] = STORY) -> list[str]:
    """What a trace lacks to be a whole story."""
    names = {span.name for span in spans}
    found = [f"the trace lacks the step {name}" for name in steps if name not in names]
    known = {span.span_id for span in spans}
    found += [f"span {span.name} has a parent outside of the trace" for span in spans if span.parent_id and span.parent_id not in known]
    return found + [f"nothing is told of the {gap:.1f} s before {name}" for name, gap in find_gaps(spans) if gap > MOST_GAP_S]


def find_gaps(spans: list[SpanRecord]) -> list[tuple[str, float]]:
    """Times of a story that none of its spans covers, in seconds, and the span that ended each."""
    found, covered = [], None
    for span in sorted(spans, key=lambda span: span.start_ns):
        if covered is not None and span.start_ns > covered:
            found.append((span.name, (span.start_ns - covered) / 1e9))
        covered = max(covered or 0, span.end_ns)
    return found


def find_unreported_refusals(workloads: Iterable[dict[str, Any]], spans: Spans) -> list[str]:
    """Refused workloads whose trace does not have the sentence of their condition, word for word."""
    found = []
    for workload in workloads:
        condition = truth.get_condition(workload, QUOTA_RESERVED)
        if condition.get("status") != "False":
            continue
        told = {span.attributes.get(t.MESSAGE) for span in spans(trace_of(workload)) if span.attributes.get(t.REFUSED)}
        if condition["message"] not in told:
            found.append(f"the trace of workload {workload['metadata']['name']} does not say: {condition['message']}")
    return found
