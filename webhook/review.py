"""One admission review: from the request to the answer. What a kind's defaults and rules are, `core.jobs` says."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from opentelemetry.trace import Span, SpanKind

from core.api.admission import AdmissionRequest, Cause, allowed, denied, patched
from core.jobs.contract import Defaults, FieldError, JobKind, Json, Rules
from core.jobs.kinds import KINDS
from core.jobs.objects import OBJECTS, ObjectRules
from core.names import DEFAULT_LOCAL_QUEUE, GROUP, QUEUE_NAME_LABEL, TRACEPARENT_ANNOTATION, VERSION
from core.runtime.telemetry import context_from, current_traceparent, tracer
from webhook.jsonpatch import diff
from webhook.registration import hook_path

logger = logging.getLogger(__name__)
TRACER = "topogate.webhook"
REVIEW = "admission.review"
# Whether a namespace has a LocalQueue of the default name; raises LookupFailed where it cannot be told in time.
HasDefaultQueue = Callable[[str], Awaitable[bool]]
Handler = Callable[[AdmissionRequest], Awaitable[dict[str, Any]]]


class LookupFailed(Exception):
    """The API server did not answer in time."""


class Reviews:
    """Answers reviews by path."""

    def __init__(self, has_default_queue: HasDefaultQueue) -> None:
        self._has_default_queue = has_default_queue
        self.handlers: dict[str, Handler] = {}
        for kind in KINDS:
            self.handlers[hook_path("mutate", kind.group, kind.version, kind.kind)] = self._mutate_job(kind)
            self.handlers[hook_path("validate", kind.group, kind.version, kind.kind)] = self._validate_job(kind)
        for rules in OBJECTS:
            self.handlers[hook_path("mutate", GROUP, VERSION, rules.kind)] = self._mutate_object(rules)
            self.handlers[hook_path("validate", GROUP, VERSION, rules.kind)] = self._validate_object(rules)

    async def answer(self, path: str, request: AdmissionRequest) -> dict[str, Any]:
        """The review's answer, in a span: the first of a workload's trace when a job is created."""
        known = ((request.object or {}).get("metadata") or {}).get("annotations") or {}
        with tracer(TRACER).start_as_current_span(
            REVIEW,
            context=context_from(known.get(TRACEPARENT_ANNOTATION)),
            kind=SpanKind.SERVER,
            attributes={
                "topogate.admission.path": path,
                "topogate.admission.operation": request.operation,
                "topogate.admission.kind": request.kind.kind,
                "k8s.namespace.name": request.namespace,
                "topogate.object.name": request.name or _generate_name(request.object),
            },
        ) as span:
            answer = await self.handlers[path](request)
            _describe(span, answer)
            return answer

    # --- jobs ---------------------------------------------------------------------------------------

    def _mutate_job(self, kind: JobKind) -> Handler:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            job = request.object
            if job is None:
                return allowed(request)
            queue = None
            if QUEUE_NAME_LABEL not in ((job.get("metadata") or {}).get("labels") or {}):
                try:
                    queue = DEFAULT_LOCAL_QUEUE if await self._has_default_queue(request.namespace) else None
                except LookupFailed as error:
                    message = f"the LocalQueue {DEFAULT_LOCAL_QUEUE!r} of the namespace could not be looked up ({error}); try again"
                    return denied(request, message, code=503)
            changed = kind.default(job, Defaults(queue, current_traceparent()))
            return patched(request, list(diff(job, changed)), _unqueued(request, changed))

        return handle

    def _validate_job(self, kind: JobKind) -> Handler:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            job, old = request.object, request.old_object
            if job is None or QUEUE_NAME_LABEL not in ((job.get("metadata") or {}).get("labels") or {}):
                return allowed(request)
            return _judge(request, kind.validate_create(job) if old is None else kind.validate_update(old, job))

        return handle

    # --- our own objects ------------------------------------------------------------------------------

    def _mutate_object(self, rules: ObjectRules) -> Handler:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            obj = request.object
            return allowed(request) if obj is None else patched(request, list(diff(obj, rules.default(obj))))

        return handle

    def _validate_object(self, rules: ObjectRules) -> Handler:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            obj = request.object
            return allowed(request) if obj is None else _judge(request, rules.validate(obj, request.old_object))

        return handle


def _judge(request: AdmissionRequest, rules: Rules) -> dict[str, Any]:
    if not rules.errors:
        return allowed(request, rules.warnings)
    return denied(request, _headline(rules.errors), [_cause(error) for error in rules.errors], rules.warnings)


def _headline(errors: Sequence[FieldError]) -> str:
    return "topogate refuses this object:" if len(errors) == 1 else f"topogate refuses this object for {len(errors)} reasons:"


def _cause(error: FieldError) -> Cause:
    shown = "" if error.value is None else f"{error.value!r}: "
    return Cause(error.field, f"{shown}{error.accepted}", error.type.value)


def _unqueued(request: AdmissionRequest, job: Json) -> list[str]:
    if QUEUE_NAME_LABEL in ((job.get("metadata") or {}).get("labels") or {}):
        return []
    where = f"namespace {request.namespace} is managed by topogate but has no LocalQueue {DEFAULT_LOCAL_QUEUE!r}"
    return [f"{where}: without the label {QUEUE_NAME_LABEL} this job is neither queued nor placed"]


def _generate_name(obj: Json | None) -> str:
    return str(((obj or {}).get("metadata") or {}).get("generateName") or "")


def _describe(span: Span, answer: dict[str, Any]) -> None:
    response = answer["response"]
    span.set_attribute("topogate.admission.allowed", response["allowed"])
    if not response["allowed"]:
        span.set_attribute("topogate.message", response["status"]["message"])
