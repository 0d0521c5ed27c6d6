"""One admission review: from the request to the answer. `core.jobs` defines the defaults and rules of a kind."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from core import trace_names as t
from core.api.admission_review import UNAVAILABLE, AdmissionRequest, allow, build_patched, deny
from core.jobs.annotation_catalog import Places
from core.jobs.annotations import validate_own
from core.jobs.contract import Defaults, ErrorType, JobKind, Json, Reviewed, Rules
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.pod_parents import PodParent
from core.jobs.kinds.registry import KINDS
from core.jobs.objects import OBJECTS, ObjectRules
from core.jobs.schema_check import build_spec_shape, find_misshapen
from core.jobs.templated import TemplatedKind
from core.model.gates import DEVICES, NO_GATES, POD_GROUPS, ChosenGates
from core.model.own_pods_ready import MOST_READY_S
from core.names import DEFAULT_LOCAL_QUEUE, GROUP, OWN_GROUP, PODGROUP_GATE, QUEUE_NAME_LABEL, TRACEPARENT_ANNOTATION, VERSION
from core.runtime.report.telemetry import build_context, build_links, get_current_traceparent, make_tracer
from webhook.answers import get_metadata_map, is_going, judge
from webhook.gated_rules import validate_gated, validate_gated_workload
from webhook.jsonpatch import diff
from webhook.known_names import ListNameWarnings, list_named_levels, list_no_warnings
from webhook.lookup import Find, Lookup, LookupFailed, LookupOfPods, find_controller, find_nothing
from webhook.podgroup_review import RETRY_AFTER_S, GroupReviews
from webhook.registration import build_hook_path
from webhook.scale import SCALE_PATH, ScaleReviews

logger = logging.getLogger(__name__)
TRACER = "topogate.webhook"
_PATHS_SHOWN = 3  # of what is put back
_POD_OF_TOKEN = "authentication.kubernetes.io/pod-uid"  # the uid in the extra fields of a user that is a pod
# Whether a namespace has a LocalQueue of the default name; raises LookupFailed where there is no answer in time.
HasDefaultQueue = Callable[[str], Awaitable[bool]]
Handler = Callable[[AdmissionRequest], Awaitable[dict[str, Any]]]


class Reviews:
    """Answers reviews by path. `gates`: those of `OF_THE_WEBHOOK` change what is answered. `most_ready_s`: the longest
    time that a job may ask for by WAIT_FOR_PODS_READY, in seconds. `list_name_warnings`: `KnownNames.list_warnings`.
    Without the gate DEVICES in `gates` jobs that claim devices are refused, whatever its default: no quota counts these
    unless the file says as what."""

    def __init__(
        self,
        has_default_queue: HasDefaultQueue,
        kinds: Sequence[JobKind] = KINDS,
        find: Find = find_nothing,
        *,
        gates: ChosenGates = NO_GATES,
        most_ready_s: float = MOST_READY_S,
        list_name_warnings: ListNameWarnings = list_no_warnings,
    ) -> None:
        self._has_default_queue, self._list_name_warnings = has_default_queue, list_name_warnings
        gates = ChosenGates({DEVICES: False, **gates.values})
        self._gates, self._most_ready_s = gates, most_ready_s
        self.handlers: dict[str, Handler] = {}
        self._beginnings: set[str] = set()
        reviewed: tuple[Reviewed, ...] = (*kinds, *list_pod_kinds(kinds))
        # A StatefulSet or its like may be part of another object with queued pods. The controller of a job is a kind
        # that makes jobs. For a pod it counts only if the objects above it are queued for it.
        self._lookup = Lookup(reviewed, find)
        self._lookup_of_jobs = Lookup(kinds, find)
        self._lookup_of_pods = LookupOfPods(kinds, find, list_pod_kinds(kinds))
        for kind in reviewed:
            mutate = build_hook_path("mutate", kind.group, kind.version, kind.kind)
            self._beginnings.add(mutate)
            self.handlers[mutate] = self._make_job_mutator(kind)
            self.handlers[build_hook_path("validate", kind.group, kind.version, kind.kind)] = self._validate_job(kind)
        self._groups = GroupReviews(reviewed, self._lookup_of_jobs, is_on=gates.is_on(POD_GROUPS))
        self.handlers |= self._groups.handlers
        self.handlers[SCALE_PATH] = ScaleReviews(reviewed, find).handle
        for rules in OBJECTS:
            if rules.default is not None:
                self.handlers[build_hook_path("mutate", GROUP, VERSION, rules.kind)] = self._make_object_mutator(rules.kind, rules.default)
            self.handlers[build_hook_path("validate", GROUP, VERSION, rules.kind)] = self._validate_object(rules)

    async def answer(self, path: str, request: AdmissionRequest) -> dict[str, Any]:
        """Returns the answer to a review of a hook's path, as JSON: an AdmissionReview. Opens a span for it. An object nested too deeply is
        refused; so is, with 503, one for which a needed look-up fails. A job's creation begins a trace, whatever trace its annotation
        names: the annotation may be a copy of another job's, or forged, so that the named trace is only linked. Later reviews are part of
        the trace that the annotation names. Raises KeyError for a path without a hook."""
        known = get_metadata_map(request.object, "annotations").get(TRACEPARENT_ANNOTATION)
        begins = path in self._beginnings and request.operation == "CREATE"
        with make_tracer(TRACER).start_as_current_span(
            t.REVIEW,
            context=Context() if begins else build_context(known),
            kind=SpanKind.SERVER,
            links=build_links(known) if begins else None,
            attributes=_build_attributes(path, request) | ({t.BEGINS: True} if begins else {}),
        ) as span:
            try:
                answer = await self.handlers[path](request)
            except RecursionError:
                answer = deny(request, "the object is nested too deeply to be judged")
            _describe(span, answer)
            return answer

    # --- jobs ---------------------------------------------------------------------------------------

    def _make_job_mutator(self, kind: Reviewed) -> Handler:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            job = request.object
            if job is None or find_misshapen(kind.spec_shape, job):
                return allow(request)  # the validating review reports what is wrong with it
            if isinstance(kind, Pod) and kind.is_left_alone(job):
                return allow(request)
            given, old = job, request.old_object
            if isinstance(kind, TemplatedKind) and old is not None:
                if find_misshapen(kind.spec_shape, old):
                    return allow(request)
                patch = list(diff(given, kind.default_change(old, job)))
                return build_patched(request, patch, () if kind.is_suspended(job) else _put_back(kind, patch))
            if isinstance(kind, PodParent) and old is not None and not find_misshapen(kind.spec_shape, old):
                job = kind.restore_templates(job, old)
            queue, what = None, "the owner of the object"
            try:
                if await self._is_part_of_queued(kind, job, request):
                    return allow(request)
                if QUEUE_NAME_LABEL not in get_metadata_map(job, "labels"):
                    if request.operation != "CREATE":
                        return build_patched(request, list(diff(given, job)))  # an object without a queue at its creation stays so
                    what = f"the LocalQueue {DEFAULT_LOCAL_QUEUE!r} of the namespace"
                    queue = DEFAULT_LOCAL_QUEUE if await self._has_default_queue(request.namespace) else None
            except LookupFailed as error:
                logger.warning("a lookup failed", extra={"what": what, "namespace": request.namespace, "error": str(error)})
                message = f"{what} could not be looked up ({error}); try again"
                return deny(request, message, code=UNAVAILABLE, retry_after_s=RETRY_AFTER_S)
            traceparent = get_current_traceparent() if request.operation == "CREATE" else None
            changed = kind.default(job, Defaults(queue, traceparent))
            is_placed = self._groups.is_served(kind, changed)
            return build_patched(request, list(diff(given, changed)), () if is_placed else _list_unqueued_warnings(request, changed))

        return handle

    async def _is_part_of_queued(self, kind: Reviewed, job: Json, request: AdmissionRequest) -> bool:
        """Whether the object that made a new one was queued for it. A pod that names a queue itself is queued by itself."""
        if isinstance(kind, Pod):
            if QUEUE_NAME_LABEL in get_metadata_map(job, "labels"):
                return False
            return await self._lookup_of_pods.is_part(job, request.namespace, request.user_info.extra.get(_POD_OF_TOKEN, ()))
        lookup = self._lookup if isinstance(kind, PodParent) else self._lookup_of_jobs
        return await lookup.is_part_of_queued(job, request.namespace)

    def _validate_job(self, kind: Reviewed) -> Handler:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            job, old = request.object, request.old_object
            if job is None or is_going(job):
                return allow(request)
            before, after = (get_metadata_map(obj, "labels").get(QUEUE_NAME_LABEL) for obj in (old, job))
            if before is None and after is None:
                return allow(request)
            own = _judge_own(kind, job, old) if after is not None else Rules()
            is_kept = before == after and _has_same_spec(old, job)
            if is_kept and _has_same_marks(old, job) and not isinstance(kind, Pod):
                return judge(request, own)
            misshapen = find_misshapen(kind.spec_shape, job)
            if misshapen and is_kept:
                return judge(request, own)  # nothing of what is misshapen is of this change
            if misshapen:
                return judge(request, Rules(misshapen))
            job = await self._lookup.expand(kind, job, request.namespace)
            if old is None or find_misshapen(kind.spec_shape, old):
                judged = _with(kind.validate_create(job), validate_gated(kind, job, None, self._gates, self._most_ready_s))
                judged = await self._drop_limits_of_part(kind, job, request, judged)
                return judge(
                    request, await self._warn_of_names(kind, job, None, request, self._filter_lifted(kind, job, _with(own, judged)))
                )
            old = await self._lookup.expand(kind, old, request.namespace)
            judged = kind.validate_update(old, job)
            if after is not None:
                judged = _with(judged, validate_gated(kind, job, old if before is not None else None, self._gates, self._most_ready_s))
            judged = await self._drop_limits_of_part(kind, job, request, judged)
            judged = self._filter_lifted(kind, job, _with(own, judged))
            return judge(request, await self._warn_of_names(kind, job, old, request, judged))

        return handle

    async def _warn_of_names(self, kind: Reviewed, job: Json, old: Json | None, request: AdmissionRequest, rules: Rules) -> Rules:
        """Returns the rules with warnings of a queue and of levels that are not known, if an accepted change names them (`old` None: it is
        new). An object that a controller makes has none: no user reads them."""
        queue, before = (get_metadata_map(obj, "labels").get(QUEUE_NAME_LABEL) for obj in (job, old))
        is_left_alone = isinstance(kind, Pod) and kind.is_left_alone(job)
        if queue is None or rules.errors or is_left_alone or find_controller(job):
            return rules
        levels = list_named_levels(kind, job)
        if old is not None and queue == before:
            known = set(list_named_levels(kind, old))
            levels = [level for level in levels if level not in known]
        if not levels and queue == before:
            return rules
        return _with(rules, Rules((), tuple(await self._list_name_warnings(request.namespace, queue, levels, is_new=queue != before))))

    async def _drop_limits_of_part(self, kind: Reviewed, job: Json, request: AdmissionRequest, rules: Rules) -> Rules:
        """Without limits that a part of a queued object exceeds: its templates are those of that object, to which the start has added. A
        RayCluster has the labels of its RayJob, the queue among them."""
        if all(error.type is not ErrorType.TOO_MANY for error in rules.errors):
            return rules
        try:
            if not await self._is_part_of_queued(kind, job, request):
                return rules
        except LookupFailed as error:
            logger.warning("a lookup failed", extra={"what": "the owner", "namespace": request.namespace, "error": str(error)})
            return rules
        return Rules(tuple(error for error in rules.errors if error.type is not ErrorType.TOO_MANY), rules.warnings)

    def _filter_lifted(self, kind: Reviewed, job: Json, rules: Rules) -> Rules:
        """Returns the rules without errors that a feature gate lifts, and without the gate that a job has by its annotation. The review of
        groups reports that the gate excludes a queue; of two webhooks that refuse, the API server may report either."""
        rules = rules.filter_by_gates(self._gates)
        if not self._groups.is_served(kind, job):
            return rules
        return Rules(tuple(error for error in rules.errors if error.value != PODGROUP_GATE), rules.warnings)

    # --- our own objects ------------------------------------------------------------------------------

    def _make_object_mutator(self, kind: str, default: Callable[[Json], dict[str, Any]]) -> Handler:
        shape = build_spec_shape(kind)

        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            obj = request.object
            if obj is None or find_misshapen(shape, obj):
                return allow(request)  # its schema has not been checked yet; that check reports what is wrong
            return build_patched(request, list(diff(obj, default(obj))))

        return handle

    def _validate_object(self, rules: ObjectRules) -> Handler:
        shape = build_spec_shape(rules.kind)

        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            obj, old = request.object, request.old_object
            if obj is None or is_going(obj) or (_has_same_spec(old, obj) and _has_same_marks(old, obj)):
                return allow(request)
            misshapen = find_misshapen(shape, obj)
            before = None if old is None or find_misshapen(shape, old) else old
            gated = validate_gated_workload(obj, old, self._gates) if rules.kind == "Workload" else Rules()
            if _has_same_spec(old, obj):
                return judge(request, _with(gated, Rules((), () if misshapen else tuple(_list_new_warnings(rules, obj, before)))))
            if misshapen:
                return judge(request, Rules(misshapen))
            judged = rules.validate(obj, before)
            return judge(request, _with(gated, judged.filter_by_gates(self._gates)))

        return handle


def _list_new_warnings(rules: ObjectRules, obj: Json, old: Json | None) -> Iterator[str]:
    """Warnings of a change of labels and annotations alone, which no rule refuses."""
    before = rules.validate(old, None).warnings if old is not None else ()
    yield from (warning for warning in rules.validate(obj, None).warnings if warning not in before)


def _judge_own(kind: Reviewed, job: Json, old: Json | None) -> Rules:
    """Checks annotations and labels of the object itself, before its spec is checked."""
    notes, before, labels, labels_before = (get_metadata_map(obj, part) for part in ("annotations", "labels") for obj in (job, old))
    if isinstance(kind, Pod):
        return validate_own(notes, before, None, labels, labels_before)
    places = Places(kind.kind, pods_alone=isinstance(kind, PodParent) and kind.pods_alone)
    # The place of the templates is only computed if it must be reported.
    misplaced = any(map(places.has_no_use_for, (*notes, *labels)))
    if isinstance(kind, TemplatedKind | PodParent) and misplaced and not find_misshapen(kind.spec_shape, job):
        places = replace(places, templates=kind.list_annotation_paths(job))
    return validate_own(notes, before, places, labels, labels_before)


def _has_same_spec(old: Json | None, new: Json) -> bool:
    """Whether a change leaves alone what is judged: an object that a newer rule would refuse can still be labelled and finished."""
    return old is not None and old.get("spec") == new.get("spec")


def _has_same_marks(old: Json | None, new: Json) -> bool:
    """Whether a change leaves alone all labels and annotations of topogate's and Kueue's."""
    return all(_read_marks(old, part) == _read_marks(new, part) for part in ("labels", "annotations"))


def _read_marks(obj: Json | None, part: str) -> dict[str, Any]:
    prefixes = (f"{GROUP}/", f"{OWN_GROUP}/")
    return {name: value for name, value in get_metadata_map(obj, part).items() if name.startswith(prefixes)}


def _with(own: Rules, rules: Rules) -> Rules:
    return Rules((*own.errors, *rules.errors), tuple(dict.fromkeys((*own.warnings, *rules.warnings))))


def _put_back(kind: TemplatedKind, patch: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning that names the fields of a started job that the change lacks and that stay."""
    if not patch:
        return []
    paths = [str(entry["path"]) for entry in patch]
    shown = ", ".join(paths[:_PATHS_SHOWN]) + (f" and {len(paths) - _PATHS_SHOWN} more" if len(paths) > _PATHS_SHOWN else "")
    return [f"a running {kind.kind} keeps what it was started with; suspend it to change that. Put back: {shown}"]


def _list_unqueued_warnings(request: AdmissionRequest, job: Json) -> list[str]:
    if QUEUE_NAME_LABEL in get_metadata_map(job, "labels"):
        return []
    where = f"namespace {request.namespace} is managed by topogate but has no LocalQueue {DEFAULT_LOCAL_QUEUE!r}"
    return [f"{where}: without the label {QUEUE_NAME_LABEL} this {request.kind.kind} is neither queued nor placed"]


def _build_attributes(path: str, request: AdmissionRequest) -> dict[str, str | bool]:
    metadata = (request.object or {}).get("metadata")
    generated = metadata.get("generateName") if isinstance(metadata, dict) else None
    found: dict[str, str | bool] = {
        t.REVIEW_PATH: path,
        t.REVIEW_OPERATION: request.operation,
        t.OBJECT_KIND: request.kind.kind,
        t.REVIEW_UID: request.uid,
        t.REVIEW_DRY_RUN: bool(request.dry_run),
        t.OBJECT_NAME: request.name or str(generated or ""),
    }
    return found | ({t.NAMESPACE: request.namespace} if request.namespace else {})


def _describe(span: Span, answer: dict[str, Any]) -> None:
    response = answer["response"]
    span.set_attributes({t.REVIEW_ALLOWED: response["allowed"], t.REFUSED: not response["allowed"]})
    if response["allowed"]:
        return
    status = response["status"]
    span.set_attribute(t.MESSAGE, status["message"])
    if status["code"] == UNAVAILABLE:  # no decision: a look-up failed
        span.set_status(Status(StatusCode.ERROR, status["message"]))
