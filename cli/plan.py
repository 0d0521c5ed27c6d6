"""What would happen to jobs that are not there yet: judged and defaulted as by the webhook, then decided on as by the reconciler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cli.documents import Document, complete
from cli.failures import BadInput
from core.api.admission import AdmissionRequest, patch_of
from core.jobs.contract import JobKind
from core.jobs.objects import OBJECTS
from core.jobs.prebuilt import prebuilt_name
from core.names import DEFAULT_LOCAL_QUEUE, GROUP, MANAGED_NAMESPACE_LABEL, QUEUE_NAME_LABEL, VERSION
from core.plan.workload import build_workload
from core.queueing.cycle import Verdict
from core.queueing.outcome import Found, NotFound
from core.runtime.controller import Retryable
from core.runtime.resource import Obj, Resource
from core.runtime.store import object_key
from reconciler import resources as r
from reconciler.outlook import Outlook
from reconciler.steps import find_priority
from webhook.jsonpatch import apply
from webhook.registration import hook_path
from webhook.review import Reviews

SYSTEM_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Planned:
    """One job, and what would become of it; `workload` is None where it would not even be queued, for the reason given."""

    where: str
    kind: JobKind
    job: Obj
    workload: Obj | None
    warnings: tuple[str, ...]
    outcome: Found | NotFound | None
    problem: str = ""

    @property
    def is_admitted(self) -> bool:
        """Whether its pods would start, as far as topogate is asked."""
        return isinstance(self.outcome, Found) and not self.outcome.checks


class Planner:
    """Plans jobs one after the other into a cluster that is only thought of; what one is given the next does not find free."""

    def __init__(self, outlook: Outlook, kinds: Sequence[JobKind]) -> None:
        self._outlook = outlook
        self._observed = outlook.observed
        self._kinds = {(r.resource_of(kind).api_version, kind.kind): kind for kind in kinds}
        self._informers = {informer.resource: informer for informer in self._observed.informers}
        self._reviews = Reviews(self._has_default_queue, kinds, self._find)
        self._now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _has_default_queue(self, namespace: str) -> bool:
        return f"{namespace}/{DEFAULT_LOCAL_QUEUE}" in self._outlook.state.local_queues

    async def _find(self, resource: Resource, name: str, namespace: str) -> Obj | None:
        informer = next((found for known, found in self._informers.items() if str(known) == str(resource)), None)
        return informer.store.get(f"{namespace}/{name}" if resource.namespaced else name) if informer is not None else None

    async def plan(self, documents: Sequence[Document], namespace: str, wrong: Sequence[str] = ()) -> list[Planned]:
        """What becomes of jobs that are created in this order, at once.

        Raises BadInput, which names every mistake in all of them behind those that were found before (`wrong`).
        """
        planned, wrong = [], list(wrong)
        for document in documents:
            try:
                planned.append(await self._create(document, namespace))
            except BadInput as error:
                wrong += error.lines
        if wrong:
            raise BadInput(wrong)
        keys = [object_key(each.workload) for each in planned if each.workload is not None]
        verdicts = self._outlook.decide(keys)
        return [_with_verdict(each, verdicts) for each in planned]

    async def _create(self, document: Document, namespace: str) -> Planned:
        kind = self._kinds[document.api]
        job = self._named(document, kind, namespace)
        job, warnings = await self._admitted(document, job, _Api(kind.group, kind.version, kind.kind, kind.plural))
        if QUEUE_NAME_LABEL not in (job["metadata"].get("labels") or {}):
            queue = f"the label {QUEUE_NAME_LABEL} is missing"
            raise BadInput(f"{document.where}: metadata.labels: {queue}: topogate leaves a job alone that names no LocalQueue")
        if prebuilt_name(job) is not None:
            raise BadInput(f"{document.where}: it takes a Workload that was made beforehand: `topogate explain workload` tells of that one")
        job, missing = self._observed.related.expanded(kind, job)
        if missing is not None:
            return Planned(document.where, kind, job, None, warnings, None, f"it would not be queued yet: {missing}")
        try:
            priority, priority_class = find_priority(self._observed, job["metadata"]["labels"], lambda: kind.priority_class(job))
        except Retryable as error:
            return Planned(document.where, kind, job, None, warnings, None, str(error))
        workload = build_workload(kind, job, priority=priority, priority_class=priority_class)
        rules = next(rules for rules in OBJECTS if rules.kind == "Workload")
        workload, more = await self._admitted(document, workload, _Api(GROUP, VERSION, rules.kind, rules.plural))
        workload = complete(workload, r.WORKLOADS, namespace)
        workload["metadata"]["creationTimestamp"] = self._now
        self._observed.workloads.put(workload)
        return Planned(document.where, kind, job, workload, (*warnings, *more), None)

    def _named(self, document: Document, kind: JobKind, namespace: str) -> Obj:
        """The job as the API server would store it, were it not for the webhook."""
        metadata = document.obj.get("metadata") or {}
        name = metadata.get("name") or (f"{metadata['generateName']}plan" if metadata.get("generateName") else None)
        if not name:
            raise BadInput(f"{document.where}: metadata.name: it is missing; it has to be given")
        job = complete({**document.obj, "metadata": {**metadata, "name": name}}, r.resource_of(kind), namespace)
        job["metadata"] |= {"uid": f"planned-{job['metadata']['uid']}", "creationTimestamp": self._now}
        return job

    async def _admitted(self, document: Document, obj: Obj, api: "_Api") -> tuple[Obj, tuple[str, ...]]:
        """An object as the webhook lets it pass, and its warnings. Raises BadInput, which names every field that it refuses."""
        if api.group != GROUP and not self._is_asked_about(obj):
            return obj, ()
        warnings: list[str] = []
        for action in ("mutate", "validate"):
            answer = await self._reviews.answer(hook_path(action, api.group, api.version, api.kind), api.request(obj))
            response = answer["response"]
            warnings += response.get("warnings", ())
            if not response["allowed"]:
                raise BadInput(_refused(document, response["status"]))
            obj = apply(obj, patch_of(response))
        return obj, tuple(warnings)

    def _is_asked_about(self, job: Obj) -> bool:
        """Whether the API server would ask the webhook about a job at all (webhook.registration)."""
        namespace = job["metadata"]["namespace"]
        managed = (self._outlook.state.namespaces.get(namespace) or {}).get(MANAGED_NAMESPACE_LABEL) == "true"
        return namespace != SYSTEM_NAMESPACE and (QUEUE_NAME_LABEL in (job["metadata"].get("labels") or {}) or managed)


@dataclass(frozen=True, slots=True)
class _Api:
    group: str
    version: str
    kind: str
    plural: str

    def request(self, obj: Obj) -> AdmissionRequest:
        """A request to create an object."""
        metadata = obj["metadata"]
        return AdmissionRequest.model_validate(
            {
                "uid": "plan",
                "kind": {"group": self.group, "version": self.version, "kind": self.kind},
                "resource": {"group": self.group, "version": self.version, "resource": self.plural},
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "operation": "CREATE",
                "object": obj,
                "dryRun": True,
            }
        )


def _refused(document: Document, status: Mapping[str, Any]) -> list[str]:
    causes = status.get("details", {}).get("causes") or ()
    return [f"{document.where}: {cause['field']}: {cause['message']}" for cause in causes] or [f"{document.where}: {status['message']}"]


def _with_verdict(planned: Planned, verdicts: Mapping[str, Verdict]) -> Planned:
    if planned.workload is None:
        return planned
    verdict = verdicts[object_key(planned.workload)]
    return Planned(planned.where, planned.kind, planned.job, planned.workload, planned.warnings, verdict.outcome)
